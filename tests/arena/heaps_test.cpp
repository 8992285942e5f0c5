// Blocks of an arena as programs see them: whose they are, when they are reused, and what happens in paused memory.
#include "arena/elsewhere.hpp"
#include "memsaver/arena/extent_sizes.hpp"
#include "memsaver/arena/heaps.hpp"
#include "memsaver/driver/host_driver.hpp"
#include "memsaver/testing/testing.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace arena_heaps_test {

using namespace memsaver;
using test::Elsewhere;

using Machine = FaultyDriver<HostDriver>;
constexpr Address base = 0x7f00'0000'0000;
constexpr std::size_t granularity = 2_MiB;
constexpr std::size_t chunk = 1_MiB;
constexpr Range space{base, 256 * granularity};
const FreeOrder at_once{FreeOrder::Kind::idle, {}};

/// The heaps of an arena whose memory nobody touches, so that there need not be any.
struct Fixture {
    Address allocate(std::size_t bytes, std::size_t alignment = 256) {
        return heaps.allocate(align_up(bytes, 256), alignment, bytes);
    }
    void deallocate(Address address, FreeOrder order = {}) {
        heaps.deallocate(address, order, "tag", [&](std::uint64_t serial) { forgotten.push_back(serial); });
    }
    std::string misuse(Address address) {
        try {
            deallocate(address);
        } catch (const Misuse& error) {
            return error.what();
        }
        FAIL_CHECK("nothing was thrown");
        return {};
    }
    /// Ends an operation with just `paused` shut.
    void end_operation(const std::vector<Range>& paused) {
        heaps.end_operation(&paused, [&](Range block) { return covers(paused, block); });
    }
    std::size_t free_bytes(Side side = Side::open) {
        std::size_t bytes = 0;
        for (const Range& range : heaps.free_ranges(256, side)) bytes += range.bytes;
        return bytes;
    }

    Machine driver{HostDriver{64_MiB}};
    Heaps<Machine> heaps{driver, space, granularity};
    std::vector<std::uint64_t> forgotten;
};

TEST_CASE("Heaps: nothing without memory, then small and large blocks that do not overlap") {
    Fixture f;
    CHECK(f.allocate(1) == 0);
    CHECK(f.allocate(1_MiB) == 0);
    f.heaps.add({base, 4 * granularity});
    std::map<Address, std::size_t> blocks;
    for (const std::size_t bytes : {std::size_t{1}, std::size_t{256}, std::size_t{64_KiB}, std::size_t{65_KiB},
                                    std::size_t{1_MiB}, std::size_t{3_MiB}}) {
        const Address address = f.allocate(bytes);
        REQUIRE(address != 0);
        CHECK(blocks.emplace(address, bytes).second);
    }
    Address last = 0;
    for (const auto& [address, bytes] : blocks) {
        CHECK(address >= last);
        last = address + bytes;
    }
    CHECK(f.heaps.sums().live_blocks == blocks.size());
    CHECK(f.heaps.sums().live_bytes == 257 + 64_KiB + 65_KiB + 4_MiB);
    for (const auto& [address, bytes] : blocks) f.deallocate(address, at_once);
    CHECK(f.heaps.sums().live_blocks == 0);
    CHECK(f.heaps.sums().live_bytes == 0);
    CHECK(f.forgotten.size() == blocks.size());
    CHECK(std::set<std::uint64_t>(f.forgotten.begin(), f.forgotten.end()).size() == blocks.size());
    CHECK(f.free_bytes() == 4 * granularity); // chunks that were leased for small blocks are back
    CHECK(f.heaps.free_ranges(4 * granularity, Side::open) == std::vector<Range>{{base, 4 * granularity}});
}

TEST_CASE("Heaps: alignment, also of small blocks") {
    Fixture f;
    f.heaps.add({base, 16 * granularity});
    for (std::size_t alignment = 256; alignment <= 8_MiB; alignment *= 2) {
        CHECK(f.allocate(256) != 0);
        const Address address = f.allocate(300, alignment);
        CHECK(address != 0);
        CHECK(address % alignment == 0);
    }
}

TEST_CASE("Heaps: freed memory is reused after the device's work, after one stream's, or at once") {
    Fixture f;
    f.heaps.add({base, granularity});
    Address all = f.allocate(granularity);
    REQUIRE(all == base);
    SUBCASE("at once") {
        f.deallocate(all, at_once);
        CHECK(f.allocate(granularity) == base);
    }
    SUBCASE("after a fence") {
        CHECK_FALSE(f.heaps.anything_fenced());
        f.deallocate(all);
        CHECK(f.allocate(granularity) == 0);
        CHECK(f.heaps.anything_fenced());
        CHECK_FALSE(
            f.heaps.fence_is_worth_it(granularity, false, 1)); // less than 32 MiB: growing is better than waiting
        CHECK_FALSE(f.heaps.fence_is_worth_it(1, false, 64_MiB));
        f.heaps.fence();
        f.heaps.settle();
        CHECK_FALSE(f.heaps.anything_fenced());
        CHECK(f.allocate(granularity) == base);
    }
    SUBCASE("a wait is worth it once it gives back as much as growing would, and 32 MiB") {
        const Address more = base + granularity;
        f.heaps.add({more, 64_MiB});
        f.deallocate(f.allocate(32_MiB));
        CHECK(f.heaps.fence_is_worth_it(32_MiB, false, granularity));
        CHECK_FALSE(f.heaps.fence_is_worth_it(33_MiB, false, granularity));
        CHECK_FALSE(f.heaps.fence_is_worth_it(granularity, false, 33_MiB));
    }
    SUBCASE("not after a fence that began before, nor after one that failed") {
        const std::uint64_t early = f.heaps.fences().begin();
        f.deallocate(all);
        f.heaps.fences().finish(early);
        CHECK(f.allocate(granularity) == 0);
        f.driver.fail({.call = Call::drain});
        CHECK_THROWS_AS(f.heaps.fence(), DriverError);
        CHECK(f.allocate(granularity) == 0);
    }
    SUBCASE("after a stream") {
        OwnedStream<Machine> stream;
        REQUIRE(stream.open(f.driver).ok());
        REQUIRE(f.driver.inner().hold(stream.get()).ok());
        REQUIRE(f.driver.inner().enqueue(stream.get(), [] {}).ok());
        f.deallocate(all, {FreeOrder::Kind::stream, stream.get()});
        CHECK(f.allocate(granularity) == 0);
        REQUIRE(f.driver.inner().let_go(stream.get()).ok());
        REQUIRE(f.driver.drain().ok());
        CHECK(f.allocate(granularity) == base);
    }
    SUBCASE("after another device's work, of which no fence tells") {
        const auto mark = std::make_shared<Elsewhere>();
        f.deallocate(all, {FreeOrder::Kind::marked, {}, 0, mark});
        f.heaps.fence();
        f.heaps.settle();
        CHECK(f.allocate(granularity) == 0);
        mark->done = true;
        CHECK(f.allocate(granularity) == base);
    }
    SUBCASE("after another device's work, if it is freed while an operation that comes to nothing is under way") {
        const auto mark = std::make_shared<Elsewhere>();
        f.heaps.begin_operation(true);
        f.deallocate(all, {FreeOrder::Kind::marked, {}, 0, mark});
        f.end_operation({});
        f.heaps.fence();
        f.heaps.settle();
        CHECK(f.allocate(granularity) == 0);
        mark->done = true;
        CHECK(f.allocate(granularity) == base);
    }
    SUBCASE("never, if it was freed in a capture") {
        OwnedStream<Machine> stream;
        REQUIRE(stream.open(f.driver).ok());
        REQUIRE(f.driver.begin_capture(stream.get(), CaptureMode::global).ok());
        f.deallocate(all, {FreeOrder::Kind::stream, stream.get()});
        GraphRef graph;
        REQUIRE(f.driver.end_capture(stream.get(), graph).ok());
        REQUIRE(f.driver.close_graph(graph).ok());
        f.heaps.fence();
        f.heaps.settle();
        CHECK(f.allocate(granularity) == 0);
    }
}

TEST_CASE("Heaps: if a stream cannot be marked, the block is still the program's") {
    Fixture f;
    f.heaps.add({base, granularity});
    const Address address = f.allocate(1000);
    for (const Call call : {Call::capturing, Call::open_event, Call::record}) {
        f.driver.fail({.call = call});
        CHECK_THROWS_AS(f.deallocate(address, {FreeOrder::Kind::stream, {}}), DriverError);
        f.driver.heal();
        CHECK(f.heaps.sums().live_blocks == 1);
        CHECK(f.forgotten.empty());
    }
    f.deallocate(address, {FreeOrder::Kind::stream, {}});
    CHECK(f.heaps.sums().live_blocks == 0);
}

TEST_CASE("Heaps: misuse is told by what is wrong, and changes nothing") {
    Fixture f;
    f.heaps.add({base, 4 * granularity});
    const Address small = f.allocate(1000);
    const Address large = f.allocate(3_MiB);
    const auto has = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
    CHECK(has(f.misuse(small + 256), "inside a block of 1000 B"));
    CHECK(has(f.misuse(large + 2_MiB), "inside a block of 3.00 MiB"));
    CHECK(has(f.misuse(large + 1), "in tag \"tag\""));
    CHECK(has(f.misuse(align_down(small, chunk) + 2048), "no block of this tag starts here"));
    CHECK(has(f.misuse(base + space.bytes - 256), "no block of this tag starts here")); // never added
    CHECK(f.heaps.sums().live_blocks == 2);
    f.deallocate(small);
    f.deallocate(large);
    CHECK(has(f.misuse(small), "of 1000 B was freed before"));
    CHECK(has(f.misuse(large), "of 3.00 MiB was freed before"));
    f.heaps.fence();
    f.heaps.settle();
    CHECK(has(f.misuse(small), "may have been freed before"));
    CHECK(f.forgotten.size() == 2);
    // A chunk that small blocks lie in is no block of the program's.
    Address first_of_chunk = 0;
    std::vector<Address> smalls;
    for (int i = 0; i < 8; ++i) smalls.push_back(f.allocate(256));
    first_of_chunk = align_down(smalls.front(), chunk);
    if (std::find(smalls.begin(), smalls.end(), first_of_chunk) == smalls.end()) {
        CHECK(has(f.misuse(first_of_chunk), "no block of this tag starts here"));
    }
}

TEST_CASE("Heaps: memory that an operation has shut serves nobody; blocks freed there stay until it ends") {
    Fixture f;
    f.heaps.add({base, 2 * granularity});
    const Address small = f.allocate(500);
    const Address large = f.allocate(granularity);
    const std::vector<Range> paused{{base, 2 * granularity}};
    f.heaps.begin_operation(true);
    CHECK(f.allocate(1) == 0);
    CHECK(f.allocate(1_MiB) == 0);
    f.deallocate(small, at_once);
    f.deallocate(large);
    CHECK(f.heaps.live_blocks(paused).empty());
    CHECK(f.free_bytes(Side::shut) < granularity); // the chunk and the large block are still taken
    SUBCASE("if it is paused then, no work can touch them") {
        f.end_operation(paused);
        CHECK(f.free_bytes(Side::shut) == 2 * granularity);
        CHECK(f.free_bytes(Side::open) == 0);
        CHECK(f.allocate(1) == 0);
    }
    SUBCASE("if not, they wait for the device") {
        f.end_operation({});
        CHECK(f.allocate(granularity) == 0);
        f.heaps.fence();
        f.heaps.settle();
        CHECK(f.free_bytes(Side::open) == 2 * granularity);
    }
    SUBCASE("new memory is open meanwhile") {
        f.heaps.add({base + 8 * granularity, granularity});
        const Address fresh = f.allocate(100);
        CHECK(fresh >= base + 8 * granularity);
        f.deallocate(fresh, at_once);
        f.end_operation(paused);
        CHECK(f.free_bytes(Side::open) == granularity);
    }
}

TEST_CASE("Heaps: in paused memory a block is free at once, and whole chunks go back to be dropped") {
    Fixture f;
    f.heaps.add({base, granularity});
    std::vector<Address> smalls;
    for (int i = 0; i < 1000; ++i) smalls.push_back(f.allocate(512));
    f.heaps.begin_operation(true);
    f.end_operation({{base, granularity}});
    const std::vector<Range> paused{{base, granularity}};
    CHECK(f.heaps.live_blocks(paused).size() == 1000);
    OwnedStream<Machine> stream;
    REQUIRE(stream.open(f.driver).ok());
    REQUIRE(f.driver.inner().hold(stream.get()).ok());
    REQUIRE(f.driver.inner().enqueue(stream.get(), [] {}).ok());
    for (const Address address : smalls) f.deallocate(address, {FreeOrder::Kind::stream, stream.get()});
    CHECK_FALSE(f.heaps.anything_fenced());
    CHECK(f.free_bytes(Side::shut) == granularity);
    CHECK_FALSE(f.heaps.remove_if_free({base, granularity}, Side::open));
    CHECK(f.heaps.remove_if_free({base, granularity}, Side::shut));
    CHECK(f.free_bytes(Side::shut) == 0);
    REQUIRE(f.driver.inner().let_go(stream.get()).ok());
}

TEST_CASE("Heaps: a block of which only a part could be paused is not handed out as a whole again") {
    Fixture f;
    f.heaps.add({base, 3 * granularity});
    const Address all = f.allocate(3 * granularity);
    const std::vector<Range> paused{{base, granularity}, {base + 2 * granularity, granularity}};
    f.heaps.begin_operation(true);
    f.end_operation(paused); // the pages in the middle could not be taken away
    f.deallocate(all);       // work may still touch those
    CHECK(f.allocate(granularity) == 0);
    f.heaps.fence();
    f.heaps.settle();
    CHECK(f.heaps.free_ranges(256, Side::open) == std::vector<Range>{{base + granularity, granularity}});
    CHECK(f.free_bytes(Side::shut) == 2 * granularity);
    CHECK(f.allocate(2 * granularity) == 0);
    CHECK(f.allocate(granularity) == base + granularity);
    f.heaps.begin_operation(false);
    f.end_operation({});
    CHECK(f.free_bytes(Side::open) == 2 * granularity);
}

TEST_CASE("Heaps: live blocks of ranges, chunks left out") {
    Fixture f;
    f.heaps.add({base, 4 * granularity});
    std::map<Address, std::size_t> blocks;
    for (int i = 0; i < 300; ++i) {
        const std::size_t bytes = i % 30 == 0 ? 100_KiB : 1000;
        blocks[f.allocate(bytes)] = bytes;
    }
    for (const std::vector<Range>& ranges :
         {std::vector<Range>{{base, 4 * granularity}}, std::vector<Range>{{base + granularity, granularity}},
          std::vector<Range>{{base, granularity}, {base + 2 * granularity, granularity}}}) {
        std::map<Address, std::size_t> expected;
        for (const auto& [address, bytes] : blocks) {
            for (const Range& range : ranges) {
                if (range.address <= address && address < range.end()) expected[address] = align_up(bytes, 256);
            }
        }
        std::map<Address, std::size_t> live;
        for (const LiveBlock& block : f.heaps.live_blocks(ranges))
            CHECK(live.emplace(block.address, block.bytes).second);
        CHECK(live == expected);
    }
}

TEST_CASE("Heaps: eight threads allocate, free each other's blocks, and operations go on meanwhile") {
    Fixture f;
    f.heaps.add({base, 64 * granularity});
    constexpr int threads_count = 8;
    std::mutex shared_mutex; // over blocks that whoever comes may free
    std::vector<Address> shared;
    std::atomic<bool> stop{false};
    std::atomic<std::size_t> forgotten{0};
    std::atomic<std::size_t> allocated{0};
    std::mutex owners_mutex; // over what is live: no two blocks overlap
    std::map<Address, std::size_t> owners;
    bool overlap = false;
    std::vector<std::thread> threads;
    for (int i = 0; i < threads_count; ++i) {
        threads.emplace_back([&, i] {
            std::mt19937_64 random{static_cast<std::uint64_t>(i)};
            for (int step = 0; step < 1500; ++step) {
                const std::size_t bytes = random() % 10 == 0 ? 256 * (1 + random() % 2000) : 256 * (1 + random() % 20);
                if (const Address address = f.heaps.allocate(bytes, 256, bytes); address != 0) {
                    allocated += 1;
                    {
                        const std::lock_guard lock{owners_mutex};
                        const auto after = owners.lower_bound(address);
                        overlap = overlap || (after != owners.end() && after->first < address + bytes);
                        overlap = overlap || (after != owners.begin() &&
                                              std::prev(after)->first + std::prev(after)->second > address);
                        owners.emplace(address, bytes);
                    }
                    const std::lock_guard lock{shared_mutex};
                    shared.push_back(address);
                }
                Address victim = 0;
                {
                    const std::lock_guard lock{shared_mutex};
                    if (shared.size() < 100) continue;
                    std::swap(shared[random() % shared.size()], shared.back());
                    victim = shared.back();
                    shared.pop_back();
                }
                {
                    const std::lock_guard lock{owners_mutex};
                    owners.erase(victim);
                }
                f.heaps.deallocate(victim, random() % 2 == 0 ? at_once : FreeOrder{}, "tag",
                                   [&](std::uint64_t) { forgotten += 1; });
                if (random() % 200 == 0) f.heaps.fence();
                if (random() % 200 == 0) f.heaps.settle();
                if (random() % 100 == 0) (void)f.heaps.sums();
            }
        });
    }
    std::thread operations{[&] {
        while (!stop) {
            f.heaps.begin_operation(true);
            (void)f.heaps.live_blocks({{base, 64 * granularity}});
            f.end_operation({{base, 32 * granularity}});
            f.heaps.begin_operation(false);
            (void)f.free_bytes(Side::shut);
            f.end_operation({});
        }
    }};
    for (std::thread& thread : threads) thread.join();
    stop = true;
    operations.join();
    CHECK_FALSE(overlap);
    CHECK(f.heaps.sums().live_blocks == shared.size());
    CHECK(allocated == forgotten + shared.size());
    for (const Address address : shared) f.deallocate(address);
    f.heaps.fence();
    f.heaps.settle();
    CHECK(f.heaps.sums().live_blocks == 0);
    CHECK(f.heaps.sums().live_bytes == 0);
    CHECK(f.heaps.free_ranges(256, Side::open) == std::vector<Range>{{base, 64 * granularity}});
    CHECK(f.free_bytes(Side::shut) == 0);
}

TEST_CASE("Heaps: closing forgets what waits, while nobody can deallocate") {
    Fixture f;
    f.heaps.add({base, granularity});
    f.deallocate(f.allocate(256), {FreeOrder::Kind::stream, {}});
    f.deallocate(f.allocate(granularity / 2), {FreeOrder::Kind::stream, {}});
    CHECK(f.driver.outstanding().events == 2);
    bool last = false;
    f.heaps.close([&] { last = true; });
    CHECK(last);
    CHECK(f.driver.everything_given_back());
}

} // namespace arena_heaps_test
