// Plain memory: outside regions, and everywhere in a disabled saver.
#include "support/machines.hpp"

namespace saver_plain_arena_test {
using namespace test;

/// Gives an address again as soon as it was freed, as cudaMalloc does.
struct Reusing : DeviceAround {
    using DeviceAround::DeviceAround;
    Status allocate_plain(std::size_t bytes, Address& address) noexcept override {
        if (spare == 0) return DeviceAround::allocate_plain(bytes, address);
        address = std::exchange(spare, 0);
        return {};
    }
    Status free_plain(Address address) noexcept override {
        spare = address;
        if (freed) std::exchange(freed, nullptr)();
        return {};
    }
    Address spare = 0;
    std::function<void()> freed;
};

TEST_CASE("plain memory whose address another thread gets while it is being freed is that thread's block") {
    const HostWith<Reusing> driver{64_MiB};
    MemorySaver saver{driver, {.enabled = false}};
    const Arena arena = saver.arena("plain");
    void* const freed = arena.allocate(1_MiB);
    void* other = nullptr;
    driver.changed().freed = [&] { std::thread{[&] { other = arena.allocate(1_MiB); }}.join(); };
    arena.deallocate(freed);
    CHECK(other == freed);
    CHECK(saver.owns(other));
    CHECK(arena.usage().used_bytes == 1_MiB);
    CHECK(arena.usage().blocks == 1);
    CHECK(address_of(other) % 256 == 0);
    CHECK_NOTHROW(arena.deallocate(other));
    CHECK(arena.usage().mapped_bytes == 0);
}

TEST_CASE_FIXTURE(OnMachine, "plain memory without room says what was needed, and what is free" * on_machines) {
    MemorySaver saver{machine.driver, {.enabled = false}};
    const Arena arena = saver.arena("plain");
    CHECK_THROWS_AS((void)arena.allocate(std::numeric_limits<std::size_t>::max()), Misuse);
    const std::size_t free = machine.free_bytes();
    const auto error = thrown<OutOfMemory>([&] { (void)arena.allocate(free + 64_MiB); });
    CHECK(error.needed_bytes() == free + 64_MiB);
    CHECK(about(error.free_bytes(), free));
    CHECK(arena.usage().blocks == 0);
}

TEST_CASE_FIXTURE(OnHost, "a block that a graph keeps is counted as memory, not as a block, until it has been freed") {
    const OwnStream stream{machine.driver};
    {
        MemorySaver saver{machine.driver, {.enabled = false}};
        const Arena arena = saver.arena("plain");
        void* const block = arena.allocate(1_MiB);
        std::vector<ArenaUsage> rows;
        {
            const Graph graph = capture(saver, "plain", stream, [&] { arena.deallocate(block); });
            rows.push_back(arena.usage());
            machine.driver.fail({.call = Call::free_plain});
        }
        rows.push_back(arena.usage());
        saver.close();
        for (const ArenaUsage& row : rows) {
            CHECK(row.blocks == 0);
            CHECK(row.used_bytes == 0);
            CHECK(row.mapped_bytes == 1_MiB);
        }
        CHECK(arena.usage().mapped_bytes == 0);
    }
}

TEST_CASE_FIXTURE(OnMachine, "plain memory that only a graph keeps has a row in the saver's usage") {
    const OwnStream stream{machine.driver};
    {
        MemorySaver saver{machine.driver};
        void* const block = saver.outside().allocate(64_MiB);
        const Graph graph = capture(saver, "graph", stream, [&] { saver.deallocate(block); });
        std::size_t kept = 0;
        for (const ArenaUsage& row : saver.usage()) kept += row.state == "plain" ? row.mapped_bytes : 0;
        CHECK(kept == 64_MiB);
        CHECK(machine.driver.plain_bytes() == 64_MiB);
    }
    CHECK(machine.driver.plain_bytes() == 0);
}

TEST_CASE("plain memory that cannot be freed in the end is reported") {
    const MachineDriver driver{HostDriver{1_GiB}};
    Told told;
    {
        MemorySaver saver{driver, {.enabled = false, .events = told.sink()}};
        (void)saver.arena("plain").allocate(1_MiB);
        driver.fail({.call = Call::free_plain, .lasting = Lasting::onwards}); // not tried forever
    }
    REQUIRE(told.all().size() == 1);
    CHECK(told.all()[0].kind == EventKind::ignored);
    CHECK(told.all()[0].tag == "plain");
}
} // namespace saver_plain_arena_test
