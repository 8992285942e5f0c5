// Plain memory: outside of regions, and everywhere when a saver is switched off.
#include "support/bytes.hpp"
#include "support/machines.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <limits>
#include <string>
#include <vector>

namespace saver_plain_arena_test {

using namespace test;

TEST_CASE_TEMPLATE("one driver allocation for each block", M, MEMSAVER_TEST_MACHINES) {
    const Checked<M> machine;
    PlainArena<typename M::Driver> arena{machine.driver, "plain", {}};
    void* const first = arena.allocate(1000, 256);
    void* const second = arena.allocate(3_MiB, 1);
    CHECK(address_of(first) % 256 == 0);
    CHECK(machine.driver.outstanding().plain == 2);
    CHECK(arena.usage().used_bytes == 1000 + 3_MiB);
    CHECK(arena.usage().mapped_bytes == machine.driver.plain_bytes());
    CHECK(arena.usage().blocks == 2);
    CHECK(arena.contains(first));
    CHECK(arena.contains(static_cast<unsigned char*>(first) + 999));
    CHECK(!arena.contains(static_cast<unsigned char*>(first) + 1000));
    write_pattern(machine.driver, second, 3_MiB, 1);
    CHECK(has_pattern(machine.driver, second, 3_MiB, 1));
    arena.deallocate(first, {});
    arena.deallocate(nullptr, {});
    CHECK_THROWS_AS(arena.deallocate(first, {}), Misuse);
    CHECK_THROWS_AS(arena.deallocate(static_cast<unsigned char*>(second) + 256, {}), Misuse);
    arena.deallocate_quietly(first, {});
    arena.deallocate_quietly(second, {});
    CHECK(machine.driver.everything_given_back());
}

TEST_CASE_TEMPLATE("what plain memory refuses", M, MEMSAVER_TEST_MACHINES) {
    const Checked<M> machine;
    PlainArena<typename M::Driver> arena{machine.driver, "plain", {}};
    const std::size_t most = std::numeric_limits<std::size_t>::max();
    CHECK(contains(text_of<Misuse>([&] { (void)arena.allocate(0, 256); }), "plain"));
    CHECK_THROWS_AS((void)arena.allocate(most, 256), Misuse);
    CHECK_THROWS_AS((void)arena.allocate(1, 0), Misuse);
    CHECK_THROWS_AS((void)arena.allocate(1, 3), Misuse);
    CHECK(contains(text_of<Misuse>([&] { (void)arena.allocate(1, 512); }), "512"));
    const std::size_t free = machine.free_bytes();
    try {
        (void)arena.allocate(free + 64_MiB, 256);
        FAIL_CHECK("there was room");
    } catch (const OutOfMemory& error) {
        CHECK(error.needed_bytes() == free + 64_MiB);
        CHECK(about(error.free_bytes(), free));
    }
    CHECK(arena.usage().blocks == 0);
    (void)arena.allocate(1, 256);
    CHECK(arena.close().ok());
    CHECK_THROWS_AS((void)arena.allocate(1, 256), Misuse);
}

TEST_CASE("a free that fails is kept, and tried again") {
    const Checked<HostMachine2G> machine;
    PlainArena<FaultyDriver<HostDriver>> arena{machine.driver, "plain", {}};
    void* const first = arena.allocate(1_MiB, 256);
    (void)arena.allocate(2_MiB, 256);
    machine.driver.fail({.call = Call::free_plain});
    CHECK_THROWS_AS(arena.deallocate(first, {}), DriverError);
    CHECK(arena.usage().used_bytes == 3_MiB);
    arena.deallocate(first, {});
    machine.driver.fail({.call = Call::free_plain});
    CHECK(!arena.close().ok());
    CHECK(arena.usage().mapped_bytes == machine.driver.plain_bytes());
    CHECK(arena.close().ok());
    CHECK(machine.driver.plain_bytes() == 0);
}

TEST_CASE("what a graph keeps is counted as memory, not as a block, until it has been freed") {
    const Checked<HostMachine2G> machine;
    const FreeOrder in_capture{.kind = FreeOrder::Kind::replayed, .graph = 7};
    PlainArena<FaultyDriver<HostDriver>> arena{machine.driver, "plain", {}};
    arena.deallocate(arena.allocate(1_MiB, 256), in_capture);
    std::vector<ArenaUsage> rows;
    machine.driver.on_call([&](const CallRecord& made) {
        if (made.call == Call::free_plain) rows.push_back(arena.usage());
    });
    machine.driver.fail({.call = Call::free_plain});
    arena.let_go(7);
    machine.driver.on_call({});
    rows.push_back(arena.usage());
    CHECK(arena.close().ok());
    REQUIRE(rows.size() == 2);
    for (const ArenaUsage& row : rows) {
        CHECK(row.blocks == 0);
        CHECK(row.used_bytes == 0);
        CHECK(row.mapped_bytes == 1_MiB);
    }
    CHECK(arena.usage().mapped_bytes == 0);
}

TEST_CASE("plain memory that only a graph keeps has a row in the saver's usage") {
    const Checked<HostMachine2G> machine;
    const HostDriver& host = machine.driver.inner();
    StreamRef stream;
    REQUIRE(host.open_stream(stream).ok());
    {
        MemorySaver saver{machine.driver};
        void* block = nullptr;
        {
            const auto outside = saver.outside();
            block = saver.allocate(64_MiB);
        }
        const Graph graph = capture(saver, "graph", stream, [&] { saver.deallocate(block); });
        const Usage usage = saver.usage();
        std::size_t kept = 0;
        for (const ArenaUsage& row : usage) kept += row.state == "plain" ? row.mapped_bytes : 0;
        CHECK(kept == 64_MiB);
        CHECK(machine.driver.plain_bytes() == 64_MiB);
    }
    CHECK(machine.driver.plain_bytes() == 0);
    REQUIRE(host.close_stream(stream).ok());
}

TEST_CASE("plain memory that cannot be freed in the end is told") {
    const FaultyDriver driver{HostDriver{1_GiB}};
    std::vector<Event> told;
    {
        PlainArena<FaultyDriver<HostDriver>> arena{driver, "plain", [&](const Event& event) { told.push_back(event); }};
        (void)arena.allocate(1_MiB, 256);
        driver.fail({.call = Call::free_plain});
    }
    REQUIRE(told.size() == 1);
    CHECK(told[0].kind == EventKind::ignored);
    CHECK(told[0].tag == "plain");
}

TEST_CASE("the margin holds for plain memory too") {
    const Checked<HostMachine2G> machine;
    MemorySaver saver{machine.driver, {.margin = 2_GiB - 64_MiB}};
    const auto outside = saver.outside();
    CHECK_THROWS_AS((void)saver.allocate(65_MiB), OutOfMemory);
    CHECK(saver.allocate(32_MiB) != nullptr);
    CHECK_THROWS_AS((void)saver.allocate(33_MiB), OutOfMemory);
    MemorySaver off{machine.driver, {.enabled = false, .margin = 2_GiB - 64_MiB}};
    CHECK_THROWS_AS((void)off.arena("tag").allocate(33_MiB), OutOfMemory);
    CHECK(off.arena("tag").allocate(16_MiB) != nullptr);
}

} // namespace saver_plain_arena_test
