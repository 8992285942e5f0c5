// The blocks of an arena as seen by programs: ownership, reuse, and behavior in paused memory.
#include "heap/elsewhere.hpp"
#include "memsaver/arena/pages.hpp"
#include "memsaver/heap/heaps.hpp"
#include "memsaver/host/host_driver.hpp"
#include "memsaver/testing/testing.hpp"
#include "support/host_with.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <latch>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace heap_heaps_test {

using namespace memsaver;
using namespace memsaver::detail;
using test::Elsewhere;

using Machine = FaultyDriver<HostDriver>;
constexpr Address base = 0x7f00'0000'0000;
constexpr std::size_t granularity = 2_MiB;
constexpr std::size_t chunk = 1_MiB; // a small lease
constexpr std::size_t unit = 8_KiB;  // of large ones
constexpr Range space{base, 256 * granularity};
const FreeOrder at_once{FreeOrder::Kind::idle, {}};

/// The heaps of an arena whose memory is never touched, so that it need not exist.
struct Fixture {
    explicit Fixture(std::size_t device_bytes = 64_MiB) : driver{HostDriver{device_bytes}} { heaps.add_segment(space); }
    Address allocate(std::size_t bytes, std::size_t alignment = 256, const std::optional<StreamRef>& stream = {}) {
        return heaps.allocate(align_up(bytes, 256), alignment, bytes, stream);
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
    /// Ends an operation with exactly `paused` shut.
    void end_operation(const std::vector<Range>& paused) {
        heaps.end_operation(&paused, [&](Range block) { return covers(paused, block); });
    }
    std::size_t free_bytes(Side side = Side::open) {
        std::size_t bytes = 0;
        for (const Range& range : heaps.free_ranges(256, side)) bytes += range.bytes;
        return bytes;
    }

    Machine driver;
    Heaps heaps{driver, granularity};
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
    CHECK(f.free_bytes() == 4 * granularity); // chunks leased for small blocks are returned
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

TEST_CASE("Heaps: a large device is waited for less often, and threads share what may wait until then") {
    Fixture f{80_GiB}; // a five-hundredth of it would exceed the maximum of 128 MiB
    f.heaps.add({base, 384_MiB});
    const auto let_wait = [&](std::size_t blocks) {
        std::vector<Address> taken;
        for (std::size_t i = 0; i < blocks; ++i) taken.push_back(f.allocate(32_MiB));
        for (const Address block : taken) f.deallocate(block);
    };
    const auto worth_it = [&] { return f.heaps.fence_is_worth_it(2_MiB, 256, 2_MiB); };
    SUBCASE("all of it is one thread's") {
        let_wait(3);
        CHECK_FALSE(worth_it());
        const Address last = f.allocate(32_MiB);
        CHECK(last != 0);
        f.deallocate(last);
        CHECK(worth_it());
        CHECK(f.allocate(2_MiB) == 0);        // its shard takes no more before
        CHECK(f.heaps.fence_for(2_MiB, 256)); // its own blocks and all other waiting blocks have completed
        CHECK(f.allocate(32_MiB) != 0);
        CHECK(f.driver.calls(Call::drain) == 1);
    }
    const auto shards_of = [&](std::ptrdiff_t threads) {
        std::mutex mutex;
        std::set<std::uint64_t> shards;
        std::latch all{threads};
        std::vector<std::thread> running;
        for (std::ptrdiff_t i = 0; i < threads; ++i) {
            running.emplace_back([&] {
                const Address block = f.allocate(2_MiB);
                {
                    const std::lock_guard lock{mutex};
                    shards.insert(f.heaps.block_holding(block)->serial >> 56U);
                }
                all.arrive_and_wait(); // threads that live concurrently have distinct ids
            });
        }
        for (std::thread& thread : running) thread.join();
        return shards.size(); // of 32, by hash
    };
    SUBCASE("or half of it for each of a few shards") {
        REQUIRE(shards_of(7) >= 2);
        let_wait(1);
        CHECK_FALSE(worth_it());
        let_wait(2);
        CHECK(worth_it());
    }
    SUBCASE("or four times as much between many") {
        REQUIRE(shards_of(80) >= 16);
        CHECK_FALSE(worth_it());
        let_wait(1);
        CHECK(worth_it());
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
        CHECK_FALSE(f.heaps.anything_waits());
        f.deallocate(all);
        CHECK(f.allocate(granularity) == 0);
        CHECK(f.heaps.anything_waits());
        CHECK_FALSE(f.heaps.fence_is_worth_it(granularity, 256, 1)); // less than 32 MiB: growing is better than waiting
        CHECK_FALSE(f.heaps.fence_is_worth_it(1, 256, 64_MiB));
        f.heaps.fence();
        f.heaps.settle();
        CHECK_FALSE(f.heaps.anything_waits());
        CHECK(f.allocate(granularity) == base);
    }
    SUBCASE("a wait is worth it once it gives back as much as growing would, and 32 MiB") {
        f.heaps.add({base + granularity, 96_MiB});
        f.deallocate(f.allocate(36_MiB));
        CHECK(f.heaps.fence_is_worth_it(36_MiB, 256, 36_MiB));
        CHECK_FALSE(f.heaps.fence_is_worth_it(37_MiB, 256, granularity));
        CHECK_FALSE(f.heaps.fence_is_worth_it(33_MiB, 256, 37_MiB));
        SUBCASE("for what this thread's shard serves, 64 MiB, for half of that may wait in other threads'") {
            CHECK_FALSE(f.heaps.fence_is_worth_it(granularity, 256, granularity));
            f.deallocate(f.allocate(36_MiB));
            CHECK(f.heaps.fence_is_worth_it(granularity, 256, 72_MiB));
            CHECK_FALSE(f.heaps.fence_is_worth_it(granularity, 256, 73_MiB));
        }
        SUBCASE("or 32 MiB in that shard") {
            f.deallocate(f.allocate(28_MiB));
            CHECK_FALSE(f.heaps.fence_is_worth_it(granularity, 256, 1_GiB));
            f.deallocate(f.allocate(4_MiB));
            CHECK(f.heaps.fence_is_worth_it(granularity, 256, 1_GiB));
        }
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
        OwnedStream stream;
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
        OwnedStream stream;
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
    // A chunk that contains small blocks is not a block of the program.
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
    CHECK(f.free_bytes(Side::shut) < granularity); // the chunk and the large block are still in use
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
    OwnedStream stream;
    REQUIRE(stream.open(f.driver).ok());
    REQUIRE(f.driver.inner().hold(stream.get()).ok());
    REQUIRE(f.driver.inner().enqueue(stream.get(), [] {}).ok());
    for (const Address address : smalls) f.deallocate(address, {FreeOrder::Kind::stream, stream.get()});
    CHECK_FALSE(f.heaps.anything_waits());
    CHECK(f.free_bytes(Side::shut) == granularity);
    CHECK_FALSE(f.heaps.remove_if_free({base, granularity}, Side::open));
    CHECK(f.heaps.remove_if_free({base, granularity}, Side::shut));
    CHECK(f.free_bytes(Side::shut) == 0);
    REQUIRE(f.driver.inner().let_go(stream.get()).ok());
}

TEST_CASE("Heaps: a block of which only a part could be paused is not handed out as a whole again") {
    for (const std::size_t third : {granularity, 8 * granularity}) { // of a large shard, of the central heap
        CAPTURE(third);
        Fixture f;
        f.heaps.add({base, 3 * third});
        const Address all = f.allocate(3 * third);
        const std::vector<Range> paused{{base, third}, {base + 2 * third, third}};
        f.heaps.begin_operation(true);
        f.end_operation(paused); // the pages in the middle could not be unmapped
        f.deallocate(all);       // work may still touch those
        CHECK(f.allocate(third) == 0);
        f.heaps.fence();
        f.heaps.settle();
        CHECK(f.allocate(2 * third) == 0);
        CHECK(f.allocate(third) == base + third);
        f.deallocate(base + third, at_once);
        f.heaps.begin_operation(false);
        f.end_operation({});
        CHECK(f.heaps.free_ranges(256, Side::open) == std::vector<Range>{{base, 3 * third}});
    }
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

TEST_CASE("Heaps: an address is the central heap's until it is leased, and again once the lease is back") {
    Fixture f;
    f.heaps.add({base, 64 * granularity});
    CHECK(f.heaps.contains(base));
    CHECK(f.heaps.contains(base + space.bytes - 1));
    CHECK_FALSE(f.heaps.contains(base - 1));
    CHECK_FALSE(f.heaps.contains(base + space.bytes));
    const auto leased = [&] {
        f.heaps.settle();
        return 64 * granularity - f.free_bytes();
    };
    const Address small = f.allocate(1000);
    CHECK(leased() == chunk); // one for all small blocks of a thread
    const Address other = f.allocate(64_KiB);
    CHECK(leased() == chunk);
    const Address large = f.allocate(3_MiB + 1000);
    CHECK(leased() == chunk + 3_MiB + unit);                             // exactly its size
    CHECK(f.heaps.block_holding(large + 3_MiB)->bytes == 3_MiB + 1_KiB); // to be saved, not the whole lease
    const Address between = f.allocate(65_KiB);
    CHECK(leased() == chunk + 3_MiB + unit + 65_KiB);
    for (const Address address : {small, other, large, between}) CHECK(f.heaps.block_holding(address).has_value());
    f.deallocate(small, at_once);
    CHECK(leased() == chunk + 3_MiB + unit + 65_KiB); // one block is live in the chunk
    f.deallocate(other, at_once);
    f.deallocate(between, at_once);
    CHECK(leased() == 3_MiB + unit);
    f.deallocate(large, at_once);
    CHECK(leased() == 0);
    const Address all = f.allocate(64 * granularity); // the memory of two shards is one block
    CHECK(all == base);
    CHECK(f.heaps.block_holding(large)->address == base);
    CHECK(f.heaps.sums().live_blocks == 1);
}

TEST_CASE("Heaps: free leases beyond what a shard may keep go back by themselves") {
    Fixture f;
    f.heaps.add({base, 128 * granularity});
    std::vector<Address> blocks;
    for (int i = 0; i < 8; ++i) blocks.push_back(f.allocate(32_MiB));
    for (const Address address : blocks) f.deallocate(address, at_once);
    CHECK(f.allocate(192_MiB) != 0); // nothing has settled: 64 MiB stay for later allocations
    CHECK(f.allocate(32_MiB) != 0);
    CHECK(f.allocate(32_MiB) != 0);
    CHECK(f.allocate(256) == 0);
}

TEST_CASE("Heaps: what was freed with a stream goes to that stream's work at once, and to no other's") {
    Fixture f;
    for (const std::size_t bytes : {std::size_t{64_KiB}, std::size_t{512_KiB}, std::size_t{2_MiB}}) { // of each heap
        CAPTURE(bytes);
        f.heaps.add({base, granularity});
        OwnedStream one;
        OwnedStream two;
        for (OwnedStream* const stream : {&one, &two}) {
            REQUIRE(stream->open(f.driver).ok());
            REQUIRE(f.driver.inner().hold(stream->get()).ok());
            REQUIRE(f.driver.inner().enqueue(stream->get(), [] {}).ok());
        }
        std::vector<Address> all;
        while (const Address address = f.allocate(bytes)) all.push_back(address);
        REQUIRE(all.size() == granularity / bytes);
        const Address block = all.back();
        const std::uint64_t serial = f.heaps.block_holding(block)->serial;
        f.deallocate(block, {FreeOrder::Kind::stream, one.get()});
        CHECK(f.allocate(bytes) == 0);
        CHECK(f.allocate(bytes, 256, two.get()) == 0);
        CHECK(f.allocate(bytes, 4 * granularity * 64, one.get()) == 0); // alignment too large
        CHECK(f.allocate(bytes - 256, 256, one.get()) == block);
        CHECK(f.heaps.block_holding(block)->serial > serial); // a different block
        CHECK(f.heaps.sums().live_blocks == all.size());
        CHECK(f.allocate(bytes, 256, one.get()) == 0); // only once
        for (OwnedStream* const stream : {&one, &two}) REQUIRE(f.driver.inner().let_go(stream->get()).ok());
        f.heaps.fence(); // its mark has completed, but the block is in use again
        f.heaps.settle();
        CHECK(f.allocate(bytes) == 0);

        // Blocks that are shut in the meantime are not reused.
        REQUIRE(f.driver.inner().hold(one.get()).ok());
        REQUIRE(f.driver.inner().enqueue(one.get(), [] {}).ok());
        f.deallocate(block, {FreeOrder::Kind::stream, one.get()});
        f.heaps.begin_operation(true);
        CHECK(f.allocate(bytes, 256, one.get()) == 0);
        f.end_operation({});
        CHECK(f.allocate(bytes, 256, one.get()) == block);

        for (const Address address : all) f.deallocate(address, at_once);
        REQUIRE(f.driver.inner().let_go(one.get()).ok());
        REQUIRE(f.heaps.remove_if_free(f.heaps.free_ranges(granularity, Side::open).at(0), Side::open));
    }
}

/// Behaves like cuStreamIsCapturing for the default stream while a stream that waits for it is being captured.
struct Implicit : DeviceAround {
    using DeviceAround::DeviceAround;
    Status capturing(StreamRef stream, bool& yes) noexcept override {
        const Status status = DeviceAround::capturing(stream, yes);
        yes = yes || (stream == StreamRef{} && implicit);
        return status;
    }
    bool implicit = false;
};

TEST_CASE("Heaps: freed with the default stream while another one is captured: not marked, but after a fence") {
    const FaultyDriver driver{test::HostWith<Implicit>{64_MiB}};
    Heaps heaps{driver, granularity};
    heaps.add_segment(space);
    heaps.add({base, granularity});
    const auto allocate = [&] { return heaps.allocate(granularity, 256, granularity); };
    REQUIRE(allocate() == base);
    std::size_t forgotten = 0;
    driver.inner().changed().implicit = true;
    heaps.deallocate(base, {FreeOrder::Kind::stream, StreamRef{}}, "tag", [&](std::uint64_t) { forgotten += 1; });
    driver.inner().changed().implicit = false;
    CHECK(forgotten == 1);                  // no graph keeps it
    CHECK(driver.calls(Call::record) == 0); // recording would break that capture
    heaps.settle();
    CHECK(allocate() == 0);
    CHECK(heaps.anything_waits());
    heaps.fence();
    CHECK(allocate() == base);
}

TEST_CASE("Heaps: blocks that a thread frees without a stream are waited for before its shard takes much more") {
    Fixture f;
    f.heaps.add({base, 200 * granularity});
    std::size_t taken = 0;
    while (const Address address = f.allocate(64_KiB)) {
        f.deallocate(address);
        taken += 64_KiB;
        REQUIRE(taken <= 8_MiB);
    }
    CHECK(f.heaps.fence_is_worth_it(64_KiB, 256, 64_MiB)); // however much growing would yield
    CHECK_FALSE(f.heaps.fence_is_worth_it(1_MiB, 256, 64_MiB));
    f.heaps.fence();
    CHECK(f.allocate(64_KiB) != 0);
    CHECK_FALSE(f.heaps.fence_is_worth_it(64_KiB, 256, 64_MiB));
}

TEST_CASE("Heaps: segments at any addresses, each with its own blocks") {
    Fixture f;
    const Range below{base - 1024 * granularity, 8 * granularity};
    const Range above{base + 1024 * granularity, 8 * granularity};
    f.heaps.add_segment(above);
    f.heaps.add_segment(below);
    for (const Range& range : {above, below, Range{base, 8 * granularity}}) {
        CHECK(f.heaps.contains(range.address));
        CHECK(f.heaps.contains(range.address + 8 * granularity - 1));
        CHECK_FALSE(f.heaps.contains(range.address - 1));
        f.heaps.add(range);
    }
    CHECK_FALSE(f.heaps.contains(above.end()));
    CHECK_FALSE(f.heaps.contains(below.end()));
    std::vector<Address> blocks;
    while (const Address address = f.allocate(8_MiB)) blocks.push_back(address);
    CHECK(blocks.size() == 6);
    for (const Address address : blocks) CHECK(f.heaps.contains(address + 8_MiB - 1));
    for (const Address address : blocks) f.deallocate(address, at_once);
    CHECK(f.free_bytes() == 24 * granularity);
    CHECK(f.heaps.free_ranges(8 * granularity, Side::open).size() == 3);
}

TEST_CASE("Heaps: a thread's serial numbers are no other heap's") {
    Fixture f;
    f.heaps.add({base, 64 * granularity});
    std::mutex mutex;
    std::set<std::uint64_t> serials;
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; ++i) {
        threads.emplace_back([&] {
            for (int k = 0; k < 20; ++k) {
                const Address address = f.allocate(k % 2 == 0 ? 1000 : 1_MiB);
                const std::lock_guard lock{mutex};
                serials.insert(f.heaps.block_holding(address)->serial);
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(serials.size() == 160);
}

TEST_CASE("Heaps: eight threads allocate, free each other's blocks, and operations go on meanwhile") {
    Fixture f;
    f.heaps.add({base, 64 * granularity});
    constexpr int threads_count = 8;
    std::mutex shared_mutex; // guards blocks that any thread may free
    std::vector<Address> shared;
    std::atomic<bool> stop{false};
    std::atomic<std::size_t> forgotten{0};
    std::atomic<std::size_t> allocated{0};
    std::mutex owners_mutex; // guards the live blocks: no two overlap
    std::map<Address, std::size_t> owners;
    bool overlap = false;
    std::vector<std::thread> threads;
    for (int i = 0; i < threads_count; ++i) {
        threads.emplace_back([&, i] {
            std::mt19937_64 random{static_cast<std::uint64_t>(i)};
            for (int step = 0; step < 1500; ++step) {
                const std::size_t most = random() % 50 == 0 ? 16'000 : random() % 5 == 0 ? 2000 : 20; // up to 4 MiB
                const std::size_t bytes = 256 * (1 + random() % most);
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

} // namespace heap_heaps_test
