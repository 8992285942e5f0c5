// The behavior of torch_memory_saver's interface, on any driver.
#include "../../examples/torch_memory_saver/engine.hpp"
#include "support/machines.hpp"

namespace torch_memory_saver_engine_test {
using namespace test;
using tms::Engine;
using tms::Keep;
using tms::Placement;

/// An engine on one machine; checks at the end that everything was released.
struct Bench {
    MachineKind kind = chosen_machine();
    const Checked machine{kind};
    std::vector<std::string> told = {};
    Engine<MachineDriver> engine{{.open = [this](int) { return machine.driver; },
                                  .events =
                                      [this](const Event& event) {
                                          if (event.kind == EventKind::ignored) told.push_back(event.text);
                                      }}};

    void* allocate(const std::string& tag, std::size_t bytes, Keep keep = Keep::nothing) {
        return engine.allocate({tag, keep, keep == Keep::disk ? "/tmp" : "", 0}, bytes);
    }
    [[nodiscard]] std::size_t mapped() const { return machine.driver.handle_bytes(); }
    [[nodiscard]] std::size_t host_bytes() {
        std::size_t bytes = 0;
        for (const ArenaUsage& row : engine.usage()) bytes += row.backed_up_bytes;
        return bytes;
    }
};

TEST_CASE("pages are released and created, pointers stay, tags are separate" * on_machines) {
    Bench bench;
    CHECK(bench.mapped() == 0);
    void* const cache = bench.allocate("kv_cache", 64_MiB + 1);
    void* const weights = bench.allocate("weights", 6912);
    write_pattern(bench.machine.driver, weights, 6912, 1);
    const std::size_t all = bench.mapped();
    CHECK(bench.engine.pause("kv_cache"));
    const std::size_t rest = bench.mapped();
    CHECK(all - rest >= 64_MiB);
    CHECK(rest > 0);
    CHECK(has_pattern(bench.machine.driver, weights, 6912, 1));
    CHECK(bench.engine.pause("kv_cache")); // again: a no-op
    CHECK(bench.mapped() == rest);
    for (int cycle = 0; cycle < 3; ++cycle) {
        CHECK(bench.engine.resume("kv_cache"));
        CHECK(bench.engine.resume("kv_cache"));
        write_pattern(bench.machine.driver, cache, 64_MiB + 1, 2);
        CHECK(has_pattern(bench.machine.driver, cache, 64_MiB + 1, 2));
        CHECK(bench.engine.pause(""));
        CHECK(bench.mapped() == 0);
    }
    CHECK(!bench.engine.pause("nobody"));
    CHECK(!bench.engine.resume("nobody"));
    CHECK(bench.engine.resume(""));
    CHECK(bench.engine.free(cache));
    CHECK(bench.engine.free(weights));
}

TEST_CASE("before anything is allocated there is nothing to pause, and no driver") {
    int opened = 0;
    Engine<HostDriver> engine{{.open = [&](int) {
        ++opened;
        return HostDriver{64_MiB};
    }}};
    int mine = 0;
    CHECK(engine.pause(""));
    CHECK(engine.resume(""));
    CHECK(!engine.pause("a"));
    CHECK(!engine.owns(&mine));
    CHECK(!engine.free(&mine));
    CHECK(engine.backup_of(&mine, 1) == nullptr);
    CHECK(engine.trim() == 0);
    CHECK(engine.usage().empty());
    CHECK(opened == 0);
}

TEST_CASE("kept bytes are the same, whatever keeps them; one tag may have all kinds" * on_machines) {
    Bench bench;
    const auto& driver = bench.machine.driver;
    const std::size_t odd = 5_MiB + 4097;
    std::map<Keep, void*> blocks;
    for (const Keep keep : {Keep::nothing, Keep::pinned, Keep::mmap, Keep::disk})
        blocks[keep] = bench.allocate("weights", odd, keep);
    for (std::uint64_t cycle = 0; cycle < 3; ++cycle) {
        for (const auto& [keep, block] : blocks)
            write_pattern(driver, block, odd, cycle * 10 + static_cast<unsigned>(keep));
        CHECK(bench.engine.pause("weights"));
        CHECK(bench.mapped() == 0);
        for (const auto& [keep, block] : blocks) {
            const auto* const kept = static_cast<const unsigned char*>(bench.engine.backup_of(block, odd));
            CHECK((kept != nullptr) == (keep == Keep::pinned || keep == Keep::mmap));
            if (kept != nullptr) {
                const auto bytes = pattern(odd, cycle * 10 + static_cast<unsigned>(keep));
                CHECK(std::equal(bytes.begin(), bytes.end(), kept));
                CHECK(bench.engine.backup_of(static_cast<char*>(block) + 4096, 100) == kept + 4096);
            }
        }
        CHECK(bench.engine.resume("weights"));
        for (const auto& [keep, block] : blocks) {
            CHECK(bench.engine.backup_of(block, odd) == nullptr); // active
            if (keep == Keep::nothing) continue;
            CHECK(has_pattern(driver, block, odd, cycle * 10 + static_cast<unsigned>(keep)));
        }
    }
}

/// As torch_memory_saver's own tests require.
TEST_CASE("bytes that a resume retained can be read at the same address until one that does not" * on_machines) {
    for (const Keep keep : {Keep::pinned, Keep::mmap}) {
        for (const std::size_t bytes : {std::size_t{1024}, std::size_t{4096}, 5_MiB + 4097}) {
            Bench bench;
            const auto& driver = bench.machine.driver;
            void* const block = bench.allocate("retained", bytes, keep);
            const auto kept_is = [&](std::uint64_t seed) {
                const void* const kept = bench.engine.backup_of(block, bytes);
                REQUIRE(kept != nullptr);
                CHECK(std::memcmp(kept, pattern(bytes, seed).data(), bytes) == 0);
                return kept;
            };
            const auto paused_with = [&](std::uint64_t seed) {
                write_pattern(driver, block, bytes, seed);
                CHECK(bench.engine.pause("retained"));
                return kept_is(seed);
            };
            CHECK(!bench.engine.retain());
            CHECK(bench.engine.pause("retained"));
            CHECK(bench.engine.resume("retained"));
            CHECK(bench.host_bytes() <= (keep == Keep::pinned ? 0 : 64_MiB)); // the rest is copy buffers
            const void* const first = paused_with(1);
            bench.engine.set_retain(true); // between a pause and a resume
            CHECK(bench.engine.resume("retained"));
            CHECK(kept_is(1) == first);
            CHECK(has_pattern(driver, block, bytes, 1));
            bench.engine.set_retain(false);
            CHECK(kept_is(1) == first);
            CHECK(paused_with(2) == first);
            bench.engine.set_retain(true);
            CHECK(bench.engine.resume("retained"));
            CHECK(kept_is(2) == first);
            CHECK(paused_with(3) == first);
            bench.engine.set_retain(false);
            CHECK(bench.engine.resume("retained"));
            CHECK(bench.host_bytes() <= (keep == Keep::pinned ? 0 : 64_MiB));
            CHECK(bench.engine.backup_of(block, bytes) == nullptr);
            CHECK(has_pattern(driver, block, bytes, 3));
        }
    }
}

TEST_CASE("host memory is freed at once with the last block" * on_machines) {
    for (const Keep keep : {Keep::pinned, Keep::mmap}) {
        for (const bool paused : {false, true}) {
            Bench bench;
            bench.engine.set_retain(true);
            void* const block = bench.allocate("retained", 1_MiB, keep);
            write_pattern(bench.machine.driver, block, 1_MiB, 1);
            CHECK(bench.engine.pause("retained"));
            CHECK(bench.host_bytes() != 0);
            if (!paused) CHECK(bench.engine.resume("retained"));
            CHECK(bench.engine.free(block));
            CHECK(bench.host_bytes() <= (keep == Keep::pinned ? 0 : 64_MiB)); // the rest is copy buffers
            CHECK(bench.engine.backup_of(block, 1_MiB) == nullptr);
        }
    }
}

TEST_CASE("freeing releases pages and waits for the device, or for a stream" * on_machines) {
    Bench bench;
    const auto& driver = bench.machine.driver;
    const OwnStream stream{driver};
    for (const bool in_order : {false, true}) {
        std::array<void*, 4> blocks{};
        for (void*& block : blocks) block = bench.allocate("a", 32_MiB);
        REQUIRE(driver.fill(address_of(blocks[0]), 7, 32_MiB, stream).ok()); // unmapping under it would be a violation
        const auto free = [&](void* block) {
            return in_order ? bench.engine.free(block, stream) : bench.engine.free(block);
        };
        for (void* block : blocks) CHECK(free(block));
        CHECK_THROWS_AS(free(blocks[0]), Misuse); // twice
        int mine = 0;
        CHECK(!free(&mine));
        if (in_order) CHECK(bench.engine.pause("a"));
        CHECK(bench.mapped() == 0);
    }
}

TEST_CASE("an allocation leaves the margin free, and a resume need not") {
    Bench bench{host_machine};
    bench.engine.set_margin(256_MiB);
    void* const block = bench.allocate("a", 225_MiB);
    CHECK_THROWS_AS((void)bench.allocate("a", 50_MiB), OutOfMemory);
    CHECK(bench.machine.free_bytes() >= 256_MiB);
    CHECK(bench.engine.pause("a"));
    bench.engine.set_margin(475_MiB);
    CHECK(bench.engine.resume("a"));
    CHECK_THROWS_AS((void)bench.allocate("b", 50_MiB), OutOfMemory);
    bench.engine.set_margin(0);
    (void)bench.allocate("b", 50_MiB);
    CHECK(bench.engine.free(block));
}

TEST_CASE("several threads, while somebody pauses") {
    Bench bench{host_machine};
    Threads{4,
            [&](std::size_t thread) {
                const std::string tag = "thread " + std::to_string(thread % 2);
                const Keep keep = thread < 2 ? Keep::nothing : Keep::pinned;
                for (int i = 0; i < 50; ++i) {
                    void* const block = bench.allocate(tag, 1_MiB, keep);
                    CHECK(bench.engine.owns(block));
                    if (i % 10 == 0) CHECK(bench.engine.pause(tag));
                    if (i % 10 == 5) CHECK(bench.engine.resume(tag));
                    CHECK(bench.engine.free(block));
                }
            }}
        .join();
    CHECK(bench.engine.resume(""));
}

TEST_CASE("plain memory, also on pages that no block needs, and memory of others") {
    Bench bench{host_machine};
    const OwnStream stream{bench.machine.driver};
    CHECK(bench.engine.free(bench.allocate("a", 384_MiB), stream)); // kept for the next allocation
    CHECK(bench.mapped() >= 384_MiB);
    bench.engine.free_plain(0, bench.engine.allocate_plain(0, 256_MiB));
    CHECK(bench.mapped() == 0);
    void* const plain = bench.engine.allocate_plain(0, 1000);
    CHECK(!bench.engine.owns(plain));
    CHECK(!bench.engine.free(plain));
    bench.engine.free_plain(0, plain);
    CHECK(bench.machine.driver.plain_bytes() == 0);
    CHECK_THROWS_AS((void)bench.engine.allocate_plain(0, 4_GiB), OutOfMemory);
}

TEST_CASE("a pause that fails leaves no backup to be read") {
    Bench bench{host_machine};
    void* const block = bench.allocate("a", 4_MiB, Keep::pinned);
    (void)bench.allocate("a", 4_MiB, Keep::mmap);
    write_pattern(bench.machine.driver, block, 4_MiB, 1);
    bench.machine.driver.fail({.call = Call::copy_to_host, .lasting = Lasting::onwards});
    CHECK_THROWS_AS(bench.engine.pause("a"), Error);
    bench.machine.driver.heal();
    write_pattern(bench.machine.driver, block, 4_MiB, 2); // because it is active
    CHECK(bench.engine.backup_of(block, 4_MiB) == nullptr);
    CHECK(bench.engine.pause("a"));
    CHECK(bench.engine.backup_of(block, 4_MiB) != nullptr);
    CHECK(bench.engine.resume("a"));
    CHECK(has_pattern(bench.machine.driver, block, 4_MiB, 2));
}

} // namespace torch_memory_saver_engine_test
