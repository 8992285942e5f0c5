// A forked child cannot use its parent's saver: calls fail with an error and do not affect the parent.
#include "support/every_call.hpp"
#include "support/machines.hpp"
#include "support/sampling.hpp"

#include <sys/mman.h>

namespace process_fork_test {
using namespace test;
using process_test::Child;
using process_test::refused;

constexpr std::size_t bytes = 4_MiB + 4_KiB;

TEST_CASE("fork: every call of the child is refused, and the parent's bytes stay") {
    const HostDriver driver{256_MiB};
    MemorySaver saver{driver};
    const Arena weights = saver.arena("a", HostBackup{.threads = 2});
    const Arena files = saver.arena("b", FileBackup{.directory = "/tmp", .threads = 2, .ring_bytes = 8_MiB});
    const Arena active = saver.arena("active");
    const Arena outside = saver.outside().arena();
    const Buffer<char> plain{outside, 1000};
    std::vector<std::pair<void*, unsigned char>> blocks;
    for (const Arena* arena : {&weights, &files, &active}) {
        blocks.emplace_back(arena->allocate(bytes), static_cast<unsigned char>(blocks.size() + 1));
        std::memset(blocks.back().first, blocks.back().second, bytes);
    }
    Elastic range = active.elastic(64_MiB, {.granularity = 4_MiB, .on_reclaim = [](std::size_t) { return 0; }});
    range.commit(0, 8_MiB);
    std::memset(range.data(), 9, 8_MiB);
    range.release(4_MiB, 4_MiB); // waits
    (void)saver.pause({"a", "b"});
    Use held = saver.use("active");
    Gate gate = saver.gate(blocks[0].first, 1);
    Gate lost = saver.gate(blocks[1].first, 1);
    Arrival coming = saver.resume_async("a");
    TaggedArena<HostDriver, Discard> alone{driver, "alone", Discard{}};
    Registrations registrations{saver};
    Registration card = registrations.add(blocks[2].first, bytes, {});

    Child child{[&] {
        int wrong = 0;
        const auto expect = [&](const std::function<void()>& use) { wrong += refused(use) ? 0 : 1; };
        expect([&] { coming.wait(); });
        expect([&] { coming.wait(blocks[0].first, 1); });
        expect([&] { coming.before(nullptr); });
        expect([&] { (void)coming.done(); });
        coming = {}; // reports nothing
        expect([&] { gate.before(nullptr); });
        gate = {}; // reports nothing, and the event stays the parent's
        lost = {};
        expect([&] { held.until(StreamRef{}); });
        held.release(); // reports nothing
        expect([&] { range.commit(0, 1); });
        expect([&] { range.release(0, 4_MiB); });
        expect([&] { range.resize(0); });
        range = {}; // reports nothing
        expect([&] { (void)alone.bytes_to_resume(); });
        expect([&] { (void)card.registered(); });
        expect([&] { (void)registrations.add(blocks[2].first, bytes, {}); });
        expect([&] {
            (void)registrations.add(Tags{"active"},
                                    {.on_pause = OnPause::renew, .on_register = [] {}, .on_deregister = [] {}});
        });
        expect([&] { registrations.renew(); });
        expect([&] { saver.load(blocks[2].first, 1, "/dev/null"); });
        expect([&] { active.load(blocks[2].first, 1, "/dev/null"); });
        expect([&] { saver.invalidate(blocks[2].first, 1); });
        expect([&] { active.invalidate(blocks[2].first, 1); });
        expect([&] { (void)outside.allocate(1); });
        expect([&] { outside.deallocate(plain.data()); });
        expect([&] { (void)outside.usage(); });
        for (const auto& each : every_call<MemorySaver<HostDriver>>())
            if (std::string{"owns"} != each.name) // says no
                expect([&] { each.call(saver, weights, blocks[0].first); });
        return wrong;
    }};
    CHECK(child.outcome() == "0");

    card.end();
    CHECK_THROWS_AS((void)saver.pause("active", {.timeout = std::chrono::milliseconds{1}}), NotIdle); // still in use
    held.release();
    gate.before(nullptr);
    lost.before(nullptr);
    (void)saver.resume();
    for (const auto& [block, value] : blocks) CHECK(filled_with(block, bytes, value));
    CHECK(filled_with(range.data(), 4_MiB, 9));
    range.commit(0, 8_MiB);
    range.resize(0, already_idle);
    CHECK(driver.violations().empty());
}

TEST_CASE("fork: objects that the child destroys still belong to the parent") {
    const HostDriver driver{256_MiB};
    std::optional<MemorySaver<HostDriver>> saver{std::in_place, driver};
    std::optional<TaggedArena<HostDriver, FileBackup>> alone{
        std::in_place, driver, "alone", FileBackup{.directory = "/tmp", .threads = 2, .ring_bytes = 8_MiB}};
    std::optional<Buffer<unsigned char>> buffer{std::in_place, saver->arena("weights"), bytes};
    auto* const block = static_cast<unsigned char*>(alone->allocate(bytes));
    std::memset(buffer->data(), 1, bytes);
    std::memset(block, 2, bytes);
    (void)alone->pause();
    std::vector<BackupView> views; // each is the last owner of its pages, of a mapping and of a part of one
    for (const std::size_t size : {4_MiB, 256_KiB}) {
        const std::string tag = "of " + std::to_string(size);
        void* const kept = saver->arena(tag, HostBackup{.retain = false}).allocate(size);
        (void)saver->pause(tag);
        views.push_back(saver->backup_view(kept, size));
        (void)saver->resume(tag);
    }
    const auto first = reinterpret_cast<std::uintptr_t>(views[0].data()) & ~std::uintptr_t{4095};

    Child child{[&] {
        void* const own = ::mmap(reinterpret_cast<void*>(first), 64_KiB, PROT_READ | PROT_WRITE, // NOLINT
                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        if (own == MAP_FAILED) return 1; // the parent's pages are not here
        views.clear();
        std::memset(own, 1, 64_KiB);
        buffer.reset();
        alone.reset();
        saver.reset();
        return 0;
    }};
    CHECK(child.outcome() == "0");

    (void)alone->resume();
    CHECK(filled_with(buffer->data(), bytes, 1));
    CHECK(filled_with(block, bytes, 2));
    CHECK(driver.violations().empty());
}

TEST_CASE("fork: a driver that the child destroys is the parent's, whatever its streams do") {
    std::optional<HostDriver> driver{std::in_place, 64_MiB};
    StreamRef stream;
    CHECK(driver->open_stream(stream).ok());
    CHECK(driver->enqueue(stream, [] {}).ok());
    CHECK(driver->synchronize(stream).ok()); // its thread waits for more
    const auto ends = [&] {
        Child child{[&] {
            ::alarm(30);
            driver.reset();
        }};
        CHECK(child.wait() == 0);
    };
    ends();
    CHECK(driver->enqueue(stream, [] { std::this_thread::sleep_for(std::chrono::milliseconds{100}); }).ok());
    ends();
    CHECK(driver->synchronize(stream).ok());
}

// Sanitizers: one ends such a child when it starts a thread; another's allocator is locked by threads that the child
// lacks.
TEST_CASE("fork: a child has a saver at once, whatever the parent's threads did" * doctest::skip(test::sanitized)) {
    const HostDriver driver{256_MiB};
    MemorySaver saver{driver};
    std::atomic<bool> stop{false};
    std::vector<std::thread> threads;
    for (const std::string tag : {"a", "b"}) {
        threads.emplace_back([&, tag] { // tags come and go
            while (!stop.load()) {
                const Arena arena = saver.arena(tag, Discard{});
                arena.deallocate(arena.allocate(4096));
                saver.drop(tag);
            }
        });
        threads.emplace_back([&] { // the list of names of addresses is the process's
            const HostDriver own{1_MiB};
            Address address = 0;
            (void)own.reserve(1_MiB, 0, address);
            while (!stop.load()) own.name_addresses(address, 1_MiB, "named again and again");
            (void)own.unreserve(address, 1_MiB);
        });
    }
    const int forks = test::sampling().all() ? 50 : 20;
    for (int i = 0; i < forks; ++i) {
        Child child{[] {
            (void)::alarm(30); // a child that hangs ends by this signal
            MemorySaver own{HostDriver{64_MiB}};
            const Arena arena = own.arena("weights", HostBackup{.threads = 2});
            auto* const block = static_cast<unsigned char*>(arena.allocate(bytes));
            std::memset(block, 7, bytes);
            pause_and_resume(own);
            return block[bytes - 1] == 7 ? 0 : 1;
        }};
        const int code = child.wait();
        CHECK(code == 0);
        if (code != 0) break;
    }
    stop = true;
    for (std::thread& thread : threads) thread.join();
}
} // namespace process_fork_test
