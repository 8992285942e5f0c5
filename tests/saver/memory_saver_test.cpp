// The saver: tags, several of them at once, several devices, running out of memory, misuse, closing, and being
// disabled.
#include "support/bytes.hpp"
#include "support/machines.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace saver_memory_saver_test {

using namespace test;

TEST_CASE_FIXTURE(OnSaver, "memory is released and resumed, pointers stay, over three cycles" * on_machines) {
    const std::size_t before = machine.free_bytes();
    Buffer<float> kv;
    {
        const auto region = saver.region("kv_cache");
        kv = Buffer<float>{region, 16 << 20};
    }
    const float* const data = kv.data();
    CHECK(about(machine.free_bytes(), before - 64_MiB));
    for (std::uint64_t cycle = 0; cycle < 3; ++cycle) {
        write_pattern(machine.driver, data, 8_MiB, cycle);
        CHECK(has_pattern(machine.driver, data, 8_MiB, cycle));
        CHECK(saver.pause("kv_cache").released_bytes == 64_MiB);
        CHECK(about(machine.free_bytes(), before));
        CHECK(machine.driver.handle_bytes() == 0);
        CHECK(kv.data() == data);
        CHECK(saver.resume("kv_cache").mapped_bytes == 64_MiB);
        CHECK(about(machine.free_bytes(), before - 64_MiB));
    }
}

TEST_CASE_FIXTURE(OnSaver, "tags touch only their members" * on_machines) {
    void* const a = saver.arena("a", Zero{}).allocate(4_MiB);
    void* const b = saver.arena("b", Discard{.poison = static_cast<unsigned char>(0xBB)}).allocate(6_MiB);
    void* const c = saver.arena("c", Zero{}).allocate(8_MiB);
    write_pattern(machine.driver, a, 4_MiB, 1);
    write_pattern(machine.driver, b, 6_MiB, 2);
    write_pattern(machine.driver, c, 8_MiB, 3);

    Report report = saver.pause({"b", "a", "b"});
    CHECK(report.tags.size() == 2);
    CHECK(row_of(saver, "c").state == "active");
    CHECK(has_pattern(machine.driver, c, 8_MiB, 3));
    CHECK(saver.bytes_to_resume({"a", "a"}) == saver.bytes_to_resume("a"));
    CHECK(saver.bytes_to_resume() == saver.bytes_to_resume({"a", "b", "c"}));

    // Allocations made while others are paused are unaffected.
    void* const fresh = saver.arena("a").allocate(4_MiB);
    write_pattern(machine.driver, fresh, 4_MiB, 4);
    const std::size_t need = saver.bytes_to_resume("a");
    report = saver.resume("a"); // staged
    CHECK(report.mapped_bytes == need);
    CHECK(row_of(saver, "b").state == "paused");
    CHECK(all_are(machine.driver, a, 4_MiB, 0));
    CHECK(has_pattern(machine.driver, fresh, 4_MiB, 4));
    CHECK(has_pattern(machine.driver, c, 8_MiB, 3));
    report = saver.resume({"a", "b", "c"});
    CHECK(report.tags.size() == 1);
    CHECK(all_are(machine.driver, b, 6_MiB, 0xBB));
    CHECK(saver.pause().tags.size() == 3);
    CHECK(machine.driver.handle_bytes() == 0);
    CHECK(saver.pause().released_bytes == 0);
    CHECK(saver.resume(std::vector<std::string>{"c"}).tags.size() == 1);
    check_books(saver, machine.driver);
}

TEST_CASE_FIXTURE(OnSaver, "pointers find their tag from its first byte to its last" * on_machines) {
    std::vector<std::pair<std::string, unsigned char*>> blocks; // each uses all of its tag's capacity
    for (const char* tag : {"a", "b", "c"}) {
        void* const block = saver.arena(tag, Discard{}, {.capacity = 4_MiB}).allocate(4_MiB);
        blocks.emplace_back("tag \"" + std::string{tag} + '"', static_cast<unsigned char*>(block));
    }
    const auto refusal = [&](void* pointer) { return text_of<Misuse>([&] { saver.deallocate(pointer); }); };
    for (const auto& [tag, block] : blocks) {
        CHECK(contains(refusal(block + 1), tag));
        CHECK(contains(refusal(block + 4_MiB - 1), tag));
        CHECK(!contains(refusal(block - 1), tag));
    }
    CHECK_THROWS_AS(saver.deallocate(reinterpret_cast<void*>(~Address{0})), Misuse);
    saver.deallocate(nullptr);
    saver.deallocate(nullptr, already_idle);
    for (const auto& [tag, block] : blocks) saver.deallocate(block);
}

TEST_CASE_FIXTURE(OnSaver, "pointers find their tag while other tags are made") {
    constexpr std::size_t count = 200;
    std::vector<unsigned char*> blocks(count);
    std::atomic<std::size_t> made{0};
    std::atomic<int> wrong{0};
    std::thread reader{[&] {
        for (std::size_t known = 0; known < count; known = made.load()) {
            for (std::size_t i = 0; i < known; ++i) {
                const std::string text = text_of<Misuse>([&] { saver.deallocate(blocks[i] + 1); });
                if (!contains(text, "tag \"" + std::to_string(i) + '"')) ++wrong;
            }
        }
    }};
    for (std::size_t i = 0; i < count; ++i) {
        void* const block = saver.arena(std::to_string(i), Discard{}, {.capacity = 2_MiB}).allocate(1000);
        blocks[i] = static_cast<unsigned char*>(block);
        made = i + 1;
    }
    reader.join();
    CHECK(wrong == 0);
}

TEST_CASE_FIXTURE(OnSaver, "memory that cannot be released is reported with its tag" * on_machines) {
    (void)saver.arena("first").allocate(2_MiB);
    (void)saver.arena("second").allocate(2_MiB);
    machine.driver.fail({.call = Call::release, .nth = 2});
    const std::string paused = text_of<DriverError>([&] { (void)saver.pause(); });
    CHECK(contains(paused, "release pages (tag \"second\" on device " + std::to_string(machine.driver.device())));
    machine.driver.heal();
    (void)saver.resume();
    saver.close();
}

// --- Out of memory ---

TEST_CASE_FIXTURE(OnSaver, "resuming several tags without room for all changes nothing" * on_machines) {
    void* const a = saver.arena("a", Zero{}).allocate(64_MiB);
    void* const b = saver.arena("b", Zero{}).allocate(64_MiB);
    (void)saver.pause();
    void* const c = saver.arena("c").allocate(4_MiB);
    write_pattern(machine.driver, c, 4_MiB, 3);
    std::optional<Ballast<std::remove_cvref_t<decltype(machine.driver.inner())>>> ballast;
    ballast.emplace(machine.driver, 96_MiB);
    const std::size_t free = machine.free_bytes();
    try {
        (void)saver.resume();
        FAIL_CHECK("there was room");
    } catch (const OutOfMemory& error) {
        CHECK(error.needed_bytes() == 128_MiB);
        CHECK(about(error.free_bytes(), free));
    }
    CHECK(row_of(saver, "a").state == "paused");
    CHECK(row_of(saver, "b").state == "paused");
    CHECK(machine.driver.handle_bytes() == 4_MiB);
    check_books(saver, machine.driver);
    CHECK(saver.resume("b").mapped_bytes == 64_MiB); // one of them fits
    CHECK_THROWS_AS((void)saver.resume(), OutOfMemory);
    CHECK(row_of(saver, "b").state == "active");
    ballast.reset();
    CHECK(saver.resume().mapped_bytes == 64_MiB);
    CHECK(all_are(machine.driver, a, 4_MiB, 0));
    CHECK(all_are(machine.driver, b, 4_MiB, 0));
    CHECK(has_pattern(machine.driver, c, 4_MiB, 3));
}

TEST_CASE_FIXTURE(OnMachine, "out of memory releases the saver's unused memory, and tries again" * on_machines) {
    std::atomic<int> retried{0};
    MemorySaver saver{machine.driver,
                      {.events = [&](const Event& event) { retried += event.kind == EventKind::retried ? 1 : 0; }}};
    const Arena idle = saver.arena("idle");
    const Arena busy = saver.arena("busy", Zero{});
    void* const kept = busy.allocate(64_MiB);
    idle.deallocate(idle.allocate(128_MiB), already_idle);

    SUBCASE("for an allocation") {
        const Ballast ballast{machine.driver, 64_MiB};
        void* const more = busy.allocate(140_MiB);
        CHECK(retried == 1);
        CHECK(row_of(saver, "idle").mapped_bytes == 0);
        CHECK_THROWS_AS((void)busy.allocate(140_MiB), OutOfMemory);
        busy.deallocate(more);
    }
    SUBCASE("for a resume") {
        (void)saver.pause("busy");
        const Ballast ballast{machine.driver, 32_MiB};
        CHECK(saver.resume("busy").mapped_bytes == 64_MiB);
        CHECK(retried == 1);
        CHECK(row_of(saver, "idle").mapped_bytes == 0);
    }
    SUBCASE("the arena's own, too") {
        (void)saver.pause("busy");
        busy.deallocate(busy.allocate(128_MiB), already_idle);
        (void)saver.trim("idle");
        const Ballast ballast{machine.driver, 32_MiB};
        CHECK(saver.resume("busy").mapped_bytes == 64_MiB);
        CHECK(retried == 1);
    }
    SUBCASE("plain memory") {
        const Ballast ballast{machine.driver, 32_MiB};
        const auto outside = saver.outside();
        void* const plain = saver.allocate(100_MiB);
        CHECK(retried == 1);
        saver.deallocate(plain);
    }
    check_books(saver, machine.driver);
    write_pattern(machine.driver, kept, 1_MiB, 1);
    CHECK(has_pattern(machine.driver, kept, 1_MiB, 1));
}

TEST_CASE_FIXTURE(OnSaver,
                  "a reserve is taken once: memory that a pause or a trim released is not taken again" * on_machines) {
    const Arena arena = saver.arena("reserved", Discard{}, ArenaOptions{.reserve = 64_MiB});
    CHECK(machine.driver.handle_bytes() == 64_MiB);
    (void)saver.pause();
    (void)saver.arena("reserved");
    { auto region = saver.region("reserved"); }
    CHECK(machine.driver.handle_bytes() == 0);
    (void)saver.resume();
    (void)saver.trim();
    (void)saver.arena("reserved");
    CHECK(machine.driver.handle_bytes() == 0);
}

TEST_CASE_FIXTURE(OnMachine, "the margin stays free for allocations and resumes" * on_machines) {
    const std::size_t free = machine.free_bytes();
    MemorySaver saver{machine.driver, {.margin = free - 128_MiB}};
    const Arena arena = saver.arena("tag");
    (void)arena.allocate(64_MiB);
    CHECK_THROWS_AS((void)arena.allocate(100_MiB), OutOfMemory);
    (void)saver.pause();
    {
        const Ballast other{machine.driver, free - 96_MiB};
        CHECK_THROWS_AS((void)saver.resume(), OutOfMemory);
        CHECK(row_of(saver, "tag").state == "paused");
        CHECK(machine.driver.handle_bytes() == 0);
    }
    (void)saver.resume();
    CHECK(machine.free_bytes() + 16_MiB >= free - 128_MiB);
}

TEST_CASE_FIXTURE(OnMachine, "trim releases unused memory, of one tag or of all" * on_machines) {
    int trimmed = 0;
    MemorySaver saver{machine.driver,
                      {.events = [&](const Event& event) { trimmed += event.kind == EventKind::trimmed ? 1 : 0; }}};
    for (const char* tag : {"a", "b"}) saver.arena(tag).deallocate(saver.arena(tag).allocate(32_MiB));
    void* const paused = saver.arena("c", Zero{}).allocate(32_MiB);
    (void)saver.pause("c");
    CHECK(saver.trim("a").released_bytes == 32_MiB);
    CHECK(row_of(saver, "b").mapped_bytes == 32_MiB);
    CHECK(saver.trim().released_bytes == 32_MiB);
    CHECK(trimmed == 2);
    CHECK(saver.trim().released_bytes == 0);
    CHECK(trimmed == 2);
    CHECK(machine.driver.handle_bytes() == 0);
    (void)saver.resume();
    CHECK(all_are(machine.driver, paused, 1_MiB, 0));
}

TEST_CASE("a saver can be moved" * on_machines) {
    const Checked machine;
    MemorySaver first{machine.driver};
    const Arena arena = first.arena("tag");
    MemorySaver second{std::move(first)};
    CHECK(second.arena("tag") == arena);
    CHECK(second.driver() == machine.driver);
    CHECK(second.enabled());
}

// --- Disabled ---

TEST_CASE_FIXTURE(OnMachine, "switched off: the same program on plain memory" * on_machines) {
    MemorySaver saver{machine.driver, {.enabled = false}};
    CHECK(!saver.enabled());
    int hooks = 0;
    const Hook hook = saver.before_pause([&](PauseEvent&) { ++hooks; });
    Buffer<float> buffer;
    {
        const auto region = saver.region("kv");
        buffer = Buffer<float>{region, 1 << 20};
        void* const block = saver.allocate(1_MiB);
        saver.deallocate(block);
    }
    write_pattern(machine.driver, buffer.data(), buffer.size_bytes(), 1);
    CHECK(saver.pause("kv").released_bytes == 0);
    CHECK(has_pattern(machine.driver, buffer.data(), buffer.size_bytes(), 1));
    CHECK(saver.resume().mapped_bytes == 0);
    CHECK(saver.trim().released_bytes == 0);
    CHECK(saver.bytes_to_resume("kv") == 0);
    CHECK_THROWS_AS(saver.invalidate("kv"), Misuse); // its policy keeps no bytes
    CHECK(hooks == 0);
    CHECK_THROWS_AS((void)saver.pause("nobody"), Misuse); // misuse is still detected
    CHECK_THROWS_AS((void)saver.arena("kv", Zero{}), Misuse);
    CHECK_THROWS_AS((void)saver.arena("kv").allocate(0), Misuse);
    CHECK(row_of(saver, "kv").state == "plain");
    CHECK(row_of(saver, "kv").mapped_bytes == 4_MiB);
    check_books(saver, machine.driver);
    CHECK(machine.driver.outstanding().reservations == 0);
    saver.close();
    CHECK(machine.driver.plain_bytes() == 0);
    CHECK_THROWS_AS((void)saver.pause(), Misuse);
    CHECK_THROWS_AS((void)saver.arena("kv"), Misuse);
}

// --- Several devices: any number of host machines ---

TEST_CASE("a tag on two devices pauses and resumes on both") {
    const Checked first{host_machine, 0};
    const Checked second{nasty_machine, 1};
    MemorySaver saver{first.driver};
    const Arena here = saver.arena("weights", Zero{});
    const Arena there = saver.arena("weights", Zero{}, second.driver);
    CHECK(!(here == there));
    CHECK(here.device() == 0);
    CHECK(there.device() == 1);
    CHECK(saver.arena("weights", Zero{}, second.driver) == there);
    CHECK_THROWS_AS((void)saver.arena("weights", Discard{}, second.driver), Misuse);
    const Checked twin{host_machine, 1};
    CHECK_THROWS_AS((void)saver.arena("weights", Zero{}, twin.driver), Misuse); // another driver of device 1

    void* const a = here.allocate(4_MiB);
    void* const b = there.allocate(8_MiB);
    write_pattern(first.driver, a, 4_MiB, 1);
    write_pattern(second.driver, b, 8_MiB, 2);
    CHECK(saver.usage().devices().size() == 2);
    check_books(saver, first.driver);
    check_books(saver, second.driver);

    Report report = saver.pause("weights");
    CHECK(report.tags.size() == 2);
    CHECK(first.driver.handle_bytes() == 0);
    CHECK(second.driver.handle_bytes() == 0);
    CHECK(report.released_bytes == saver.bytes_to_resume("weights"));
    {
        const Ballast ballast{second.driver, 4_MiB};
        CHECK_THROWS_AS((void)saver.resume("weights"), OutOfMemory);
        CHECK(first.driver.handle_bytes() == 0); // the other device's part is released
        check_books(saver, first.driver);
    }
    report = saver.resume("weights");
    CHECK(report.tags.size() == 2);
    CHECK(all_are(first.driver, a, 4_MiB, 0));
    CHECK(all_are(second.driver, b, 8_MiB, 0));
    saver.deallocate(a);
    saver.deallocate(b);
    (void)saver.trim();
    CHECK(first.driver.handle_bytes() + second.driver.handle_bytes() == 0);
}

TEST_CASE("several devices work at the same time") {
    const Checked first{host_machine, 0};
    const Checked second{host_machine, 1};
    MemorySaver saver{first.driver};
    (void)saver.arena("tag").allocate(2_MiB);
    (void)saver.arena("tag", Discard{}, second.driver).allocate(2_MiB);
    // Each device's unmap waits until the other's has been reached too.
    std::atomic<int> inside{0};
    const auto meet = [&](const CallRecord& made) {
        if (made.call != Call::unmap) return;
        if (++inside > 2) return;
        const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds{20};
        while (inside < 2 && std::chrono::steady_clock::now() < patience) std::this_thread::yield();
    };
    first.driver.on_call(meet);
    second.driver.on_call(meet);
    CHECK_NOTHROW((void)saver.pause("tag"));
    CHECK(inside == 2);
    first.driver.on_call({});
    second.driver.on_call({});
    (void)saver.resume("tag");
}

TEST_CASE("a saver of one device waits for that one only") {
    const Checked first{host_machine, 0};
    const Checked second{host_machine, 1};
    MemorySaver saver{first.driver};
    (void)saver.arena("here").allocate(2_MiB);
    (void)saver.arena("there", Discard{}, second.driver).allocate(2_MiB);
    StreamRef stream;
    const HostDriver host = host_of(second.driver);
    REQUIRE(host.open_stream(stream).ok());
    REQUIRE(host.hold(stream).ok());
    REQUIRE(host.enqueue(stream, [] {}).ok());
    CHECK(saver.pause("here").released_bytes == 2_MiB);
    CHECK_THROWS_AS((void)saver.pause({.timeout = std::chrono::milliseconds{2}}), NotIdle);
    CHECK(row_of(saver, "there").state == "active");
    REQUIRE(host.let_go(stream).ok());
    CHECK(saver.pause().released_bytes == 2_MiB);
    REQUIRE(host.close_stream(stream).ok());
}

// --- Order and timeouts, through the saver ---

TEST_CASE("a timeout is for all tags together, and changes nothing when it ends") {
    const Checked machine{host_machine};
    const HostDriver host = host_of(machine.driver);
    MemorySaver saver{machine.driver};
    void* const a = saver.arena("a").allocate(2_MiB);
    void* const b = saver.arena("b").allocate(2_MiB);
    write_pattern(machine.driver, a, 2_MiB, 1);
    write_pattern(machine.driver, b, 2_MiB, 2);
    const OwnStream stream{host};
    REQUIRE(host.hold(stream).ok());
    REQUIRE(host.enqueue(stream, address_of(b), 2_MiB, [] {}).ok());
    CHECK_THROWS_AS((void)saver.pause({"a", "b"}, {.order = after(stream), .timeout = std::chrono::milliseconds{5}}),
                    NotIdle);
    CHECK(row_of(saver, "a").state == "active");
    CHECK(row_of(saver, "b").state == "active");
    CHECK(has_pattern(machine.driver, a, 2_MiB, 1));
    check_books(saver, machine.driver);
    CHECK(saver.pause("a", {.order = already_idle}).released_bytes == 2_MiB);
    REQUIRE(host.let_go(stream).ok());
    const Report report = saver.pause({"a", "b"}, {.order = after(stream), .timeout = std::chrono::minutes{1}});
    CHECK(report.tags.size() == 1);
    CHECK(report.released_bytes == 2_MiB);
    (void)saver.resume();
}

} // namespace saver_memory_saver_test
