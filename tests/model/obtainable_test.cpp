// How much memory must be obtainable: everything except what live blocks keep mapped. Runs random operations, then
// requests exactly that. OutOfMemory is correct only if the memory was not available.
#include "support/machines.hpp"
#include "support/model.hpp"
#include "support/sampling.hpp"

namespace model_obtainable_test {
using namespace test;
using Driver = MachineDriver;

constexpr std::size_t capacity = 128_MiB;
constexpr std::size_t granule = 2_MiB;
constexpr std::size_t step_bytes = 2 * granule; // of elastic ranges
constexpr std::size_t steps = 8;

/// A driver's mappings, recorded from its calls. Each row is a physical handle, created and released as a whole.
struct Mappings {
    explicit Mappings(const Driver& driver) : driver_{driver} {
        driver.on_call([rows = rows_](const CallRecord& call) {
            if (!call.status.ok()) return;
            if (call.call == Call::map) rows->emplace(call.address, call.bytes);
            if (call.call == Call::unmap) {
                rows->erase(rows->lower_bound(call.address), rows->lower_bound(call.address + call.bytes));
            }
        });
    }
    ~Mappings() { driver_.on_call({}); }

    /// Returns the bytes of the handles that contain any of these blocks.
    [[nodiscard]] std::size_t held_by(const Model::Blocks& blocks) const {
        std::size_t bytes = 0;
        for (const auto& [address, size] : *rows_) {
            const auto after = blocks.lower_bound(address + size);
            if (after == blocks.begin()) continue;
            const auto& [begin, block] = *std::prev(after);
            if (begin + block.bytes > address) bytes += size;
        }
        return bytes;
    }

private:
    const Driver driver_;
    std::shared_ptr<std::map<Address, std::size_t>> rows_ = std::make_shared<std::map<Address, std::size_t>>();
};

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
            (void)allocate(random_.below(arenas_.size()), random_bytes());
        } else if (what < 80) {
            deallocate();
        } else if (what < 85) {
            commit(ranges_[random_.below(ranges_.size())]);
        } else if (what < 91) {
            const Arena& arena = any_arena();
            (void)saver_.pause(arena.tag());
            model_.pause(arena.tag());
        } else {
            resume(any_arena().tag());
        }
    }

    /// Requests all memory that is not held, in an empty tag, by a block or by a resume.
    void ask_for_all() {
        const std::size_t bytes = obtainable();
        if (bytes == 0) return;
        MemorySaver<Driver>& saver = saver_;
        const Arena arena = saver.arena("all");
        CAPTURE(format_bytes(bytes));
        Buffer<char> block;
        REQUIRE_NOTHROW(block = Buffer<char>{arena, bytes});
        if (random_.below(2) == 0) {
            (void)saver.pause("all");
            for (int i = 0; i < 20; ++i) (void)allocate(random_.below(arenas_.size()), random_bytes());
            while (obtainable() < bytes) deallocate();
            REQUIRE_NOTHROW((void)saver.resume("all"));
        }
        random_.below(2) == 0 ? block.reset() : block.reset(stream_);
    }
    [[nodiscard]] std::size_t refusals() const { return refusals_; }

private:
    [[nodiscard]] std::size_t obtainable() const {
        return capacity - mappings_.held_by(const_cast<Model&>(model_).blocks());
    }
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

    bool allocate(std::size_t which, std::size_t bytes) {
        const std::size_t there = obtainable();
        try {
            const Arena& arena = arenas_[which];
            void* const block = random_.below(3) == 0 ? arena.allocate(bytes, stream_) : arena.allocate(bytes);
            REQUIRE(driver_.fill(address_of(block), 1, bytes, stream_).ok()); // the device is seldom idle
            REQUIRE(model_.add(address_of(block), {arena.tag(), bytes}));
            return true;
        } catch (const OutOfMemory&) {
            CAPTURE(format_bytes(bytes));
            REQUIRE(there < align_up(bytes, granule)); // live memory was in the way
            refusals_ += 1;
            return false;
        }
    }
    void deallocate() {
        const auto block = model_.any(random_);
        if (block == model_.blocks().end()) return;
        if (block->second.elastic) return release(block);
        void* const pointer = reinterpret_cast<void*>(block->first);
        MemorySaver<Driver>& saver = saver_;
        switch (random_.below(3)) {
        case 0: saver.deallocate(pointer); break;
        default: saver.deallocate(pointer, stream_); break;
        }
        model_.remove(block);
    }
    /// Commits some steps of a range; on a paused tag, that is misuse.
    void commit(Elastic& range) {
        const std::size_t first = random_.below(steps);
        const std::size_t end = std::min(steps, first + 1 + random_.below(4));
        const auto at = [&](std::size_t n) { return address_of(range.data()) + n * step_bytes; };
        std::vector<Address> fresh;
        for (std::size_t n = 0; n < steps; ++n) {
            const auto known = model_.blocks().find(at(n));
            if (known == model_.blocks().end()) {
                if (n >= first && n < end) fresh.push_back(at(n));
            } else if (known->second.paused) {
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
            REQUIRE(model_.add(address, {range.arena().tag(), step_bytes, false, true}));
        }
    }
    void release(Model::Blocks::iterator block) {
        for (Elastic& range : ranges_) {
            const Address begin = address_of(range.data());
            if (block->first < begin || block->first >= begin + range.capacity()) continue;
            const Order order = random_.below(3) == 0 ? Order{} : after(stream_);
            range.release(block->first - begin, step_bytes, order);
        }
        model_.remove(block);
    }
    void resume(const std::string& tag) {
        MemorySaver<Driver>& saver = saver_;
        const std::size_t there = obtainable();
        const std::size_t need = saver.bytes_to_resume(tag);
        try {
            (void)saver.resume(tag);
            model_.resume(tag);
        } catch (const OutOfMemory&) {
            REQUIRE(there < need);
            refusals_ += 1;
        }
    }

    Random random_;
    Driver driver_;
    Mappings mappings_{driver_};
    MemorySaver<Driver> saver_{driver_};
    std::vector<Arena> arenas_;
    std::vector<Elastic> ranges_;
    StreamRef stream_;
    Model model_;
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
