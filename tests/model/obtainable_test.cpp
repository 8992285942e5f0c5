// How much memory must be obtainable: everything except what live blocks keep mapped. Runs random operations, then
// requests exactly that. OutOfMemory is correct only if the memory was not available.
#include "support/handles.hpp"
#include "support/machines.hpp"
#include "support/played.hpp"
#include "support/random.hpp"
#include "support/sampling.hpp"

namespace model_obtainable_test {
using namespace test;
using Driver = MachineDriver;

constexpr std::size_t capacity = 128_MiB;
constexpr std::size_t granule = 2_MiB;
constexpr std::size_t step_bytes = 2 * granule; // of elastic ranges
constexpr std::size_t steps = 8;

/// A saver on a machine that is nearly full most of the time.
struct Player {
    Player(std::uint64_t seed, const Driver& driver) : random_{seed}, driver_{driver} {
        REQUIRE(driver_.open_stream(stream_).ok());
        for (int i = 0; i < 6; ++i) {
            const std::string tag = "tag" + std::to_string(i);
            arenas_.push_back(saver_.arena(tag, i % 2 == 0 ? AnyPolicy{Discard{}} : AnyPolicy{Zero{}}));
        }
        for (std::size_t i = 0; i < 2; ++i)
            ranges_.push_back(arenas_[i].elastic(steps * step_bytes, {.granularity = step_bytes}));
    }
    ~Player() { CHECK(driver_.close_stream(stream_).ok()); }

    void step() {
        const std::size_t what = random_.below(100);
        if (what < 52) {
            allocate(random_.below(arenas_.size()), random_bytes());
        } else if (what < 80) {
            deallocate();
        } else if (what < 85) {
            commit(ranges_[random_.below(ranges_.size())]);
        } else if (what < 91) {
            const Arena& arena = any_arena();
            (void)saver_.pause(arena.tag());
            for (auto& [address, block] : blocks_)
                if (arenas_[block.tag] == arena) block.pause(Holds::lost);
        } else {
            resume(any_arena());
        }
    }

    /// Requests all memory that is not held, in an empty tag, by a block or by a resume.
    void ask_for_all() {
        const std::size_t bytes = obtainable();
        if (bytes == 0) return;
        const Arena arena = saver_.arena("all");
        CAPTURE(format_bytes(bytes));
        Buffer<char> block;
        REQUIRE_NOTHROW(block = Buffer<char>{arena, bytes});
        if (random_.below(2) == 0) {
            (void)saver_.pause("all");
            for (int i = 0; i < 20; ++i) allocate(random_.below(arenas_.size()), random_bytes());
            while (obtainable() < bytes) deallocate();
            REQUIRE_NOTHROW((void)saver_.resume("all"));
        }
        random_.below(2) == 0 ? block.reset() : block.reset(stream_);
    }
    [[nodiscard]] std::size_t refusals() const { return refusals_; }

private:
    [[nodiscard]] std::size_t obtainable() const { return capacity - handles_.held_by(blocks_); }
    std::size_t random_bytes() {
        switch (random_.below(6)) {
        case 0: return 1 + random_.below(64_KiB);
        case 1: return 1 + random_.below(1_MiB);
        case 2:
        case 3: return 1 + random_.below(8_MiB);
        case 4: return 1 + random_.below(20_MiB);
        default: return granule * (1 + random_.below(24));
        }
    }
    const Arena& any_arena() { return arenas_[random_.below(arenas_.size())]; }

    void allocate(std::size_t which, std::size_t bytes) {
        const std::size_t there = obtainable();
        try {
            const Arena& arena = arenas_[which];
            void* const block = random_.below(3) == 0 ? arena.allocate(bytes, stream_) : arena.allocate(bytes);
            REQUIRE(driver_.fill(address_of(block), 1, bytes, stream_).ok()); // the device is seldom idle
            REQUIRE(blocks_.add(address_of(block), {.tag = which, .bytes = bytes}));
        } catch (const OutOfMemory&) {
            CAPTURE(format_bytes(bytes));
            REQUIRE(there < align_up(bytes, granule)); // live memory was in the way
            refusals_ += 1;
        }
    }
    void deallocate() {
        const auto block = blocks_.any(random_);
        if (block == blocks_.end()) return;
        if (block->second.workspace) return release(block); // a step of a range
        void* const pointer = reinterpret_cast<void*>(block->first);
        random_.below(3) == 0 ? saver_.deallocate(pointer) : saver_.deallocate(pointer, stream_);
        blocks_.erase(block);
    }
    /// Commits some steps of a range; on a paused tag, that is misuse.
    void commit(Elastic& range) {
        const std::size_t first = random_.below(steps);
        const std::size_t end = std::min(steps, first + 1 + random_.below(4));
        const auto at = [&](std::size_t n) { return address_of(range.data()) + n * step_bytes; };
        std::vector<Address> fresh;
        for (std::size_t n = 0; n < steps; ++n) {
            const auto known = blocks_.find(at(n));
            if (known == blocks_.end()) {
                if (n >= first && n < end) fresh.push_back(at(n));
            } else if (known->second.away) {
                REQUIRE_THROWS_AS(range.commit(first * step_bytes, (end - first) * step_bytes), Misuse);
                return;
            }
        }
        const std::size_t there = obtainable();
        const std::size_t before = range.committed_bytes();
        try {
            range.commit(first * step_bytes, (end - first) * step_bytes);
        } catch (const OutOfMemory&) {
            REQUIRE(there < fresh.size() * step_bytes); // live memory was in the way
            REQUIRE(range.committed_bytes() == before);
            refusals_ += 1;
            return;
        }
        for (const Address address : fresh) {
            REQUIRE(driver_.fill(address, 1, step_bytes, stream_).ok());
            const auto which = static_cast<std::size_t>(&range - ranges_.data()); // the arena's, too
            REQUIRE(blocks_.add(address, {.tag = which, .bytes = step_bytes, .workspace = true}));
        }
    }
    void release(PlayedBlocks::iterator block) {
        for (Elastic& range : ranges_) {
            const Address begin = address_of(range.data());
            if (block->first < begin || block->first >= begin + range.capacity()) continue;
            const Order order = random_.below(3) == 0 ? Order{} : after(stream_);
            range.release(block->first - begin, step_bytes, order);
        }
        blocks_.erase(block);
    }
    void resume(const Arena& arena) {
        const std::size_t there = obtainable();
        const std::size_t need = saver_.bytes_to_resume(arena.tag());
        try {
            (void)saver_.resume(arena.tag());
            for (auto& [address, block] : blocks_)
                if (arenas_[block.tag] == arena) block.resume();
        } catch (const OutOfMemory&) {
            REQUIRE(there < need);
            refusals_ += 1;
        }
    }

    Random random_;
    Driver driver_;
    Handles<Driver> handles_{driver_};
    MemorySaver<Driver> saver_{driver_};
    std::vector<Arena> arenas_;
    std::vector<Elastic> ranges_;
    StreamRef stream_;
    PlayedBlocks blocks_;
    std::size_t refusals_ = 0;
};

TEST_CASE("all memory that nobody holds can be allocated, after random operations") {
    std::size_t refusals = 0;
    std::size_t seeds = 0;
    for (std::uint64_t seed = 1 + sampling().first(3); seed <= 8; seed += sampling().stride(3)) {
        CAPTURE(seed);
        seeds += 1;
        const Driver driver{HostDriver{capacity, {.late = seed % 2 == 0}}};
        {
            Player player{seed, driver};
            for (int i = 0; i < 300; ++i) {
                CAPTURE(i);
                player.step();
                if (i % 20 == 19) player.ask_for_all();
            }
            refusals += player.refusals();
        }
        check_given_back(driver);
    }
    CHECK(refusals > 10 * seeds); // some requests had to be refused
    MESSAGE(seeds << " of the seeds 1 to 8, " << refusals << " refusals, each with memory that lives in the way");
}
} // namespace model_obtainable_test
