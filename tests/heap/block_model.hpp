// A model of a block allocator: one record for each unit of memory. Slow, but obviously correct.
#pragma once

#include "memsaver/heap/block_allocator.hpp"
#include "support/machines.hpp"

namespace block_model {
using namespace memsaver;
using namespace memsaver::detail;

inline constexpr std::size_t unit = BlockAllocator::unit;
inline constexpr Address base = 0x7f00'0000'0000;

/// Ranges as pairs, for sets and messages.
using Ranges = std::set<std::pair<Address, std::size_t>>;

inline Ranges free_ranges(BlockAllocator& blocks, std::size_t bytes) {
    Ranges ranges;
    blocks.for_each_free(bytes, [&](Range range) { ranges.emplace(range.address, range.bytes); });
    return ranges;
}

/// The observable state of an allocator, to detect changes.
struct Snapshot {
    explicit Snapshot(BlockAllocator& blocks)
        : free{free_ranges(blocks, 0)}, sums{blocks.live_bytes(), blocks.live_blocks()} {
        blocks.for_each_saved([&](const Block& block) { live.emplace(block.serial, block.address); });
    }
    bool operator==(const Snapshot&) const = default;

    Ranges free;
    std::map<std::uint64_t, Address> live;
    std::vector<std::size_t> sums;
};

struct Model {
    enum class What : unsigned char { absent, free, taken };
    struct Taken {
        std::size_t bytes = 0;
        std::size_t requested = 0;
        std::uint64_t serial = 0;
        bool freed = false;
    };

    explicit Model(std::size_t units) : units_(units) {}

    [[nodiscard]] std::size_t size() const { return units_.size(); }
    [[nodiscard]] const std::map<Address, Taken>& taken() const { return taken_; }
    static Address address(std::size_t i) { return base + i * unit; }
    static std::size_t index(Address address) { return (address - base) / unit; }
    static Range range(std::size_t first, std::size_t count) { return {address(first), count * unit}; }

    [[nodiscard]] bool all(Range range, What what) const {
        for (std::size_t i = index(range.address); i < index(range.end()); ++i) {
            if (units_[i] != what) return false;
        }
        return true;
    }
    void paint(Range range, What what) {
        for (std::size_t i = index(range.address); i < index(range.end()); ++i) units_[i] = what;
    }

    /// Returns the maximal free ranges with at least `bytes` bytes.
    [[nodiscard]] Ranges free(std::size_t bytes) const {
        Ranges ranges;
        for (auto end = units_.begin(), begin = end; begin != units_.end(); begin = end) {
            begin = std::find(end, units_.end(), What::free);
            end = std::find_if(begin, units_.end(), [](What what) { return what != What::free; });
            const std::size_t size = static_cast<std::size_t>(end - begin) * unit;
            if (size != 0 && size >= bytes)
                ranges.emplace(address(static_cast<std::size_t>(begin - units_.begin())), size);
        }
        return ranges;
    }
    [[nodiscard]] bool fits(std::size_t bytes, std::size_t alignment) const {
        const Ranges ranges = free(bytes);
        return std::any_of(ranges.begin(), ranges.end(), [&](const auto& range) {
            return align_up(range.first, alignment) + bytes <= range.first + range.second;
        });
    }
    void allocated(const Block& block) {
        CHECK(block.address % unit == 0);
        CHECK(all({block.address, block.bytes}, What::free));
        CHECK(serials_.insert(block.serial).second); // never used before
        paint({block.address, block.bytes}, What::taken);
        taken_[block.address] = {block.bytes, block.requested, block.serial, false};
    }
    void freed(Address at) { taken_.at(at).freed = true; }
    void reclaimed(Address at) {
        paint({at, taken_.at(at).bytes}, What::free);
        taken_.erase(at);
    }

    /// Checks that the state of `blocks` equals the model.
    void check(BlockAllocator& blocks, std::size_t at_least) const {
        CHECK(free_ranges(blocks, 0) == free(0));
        CHECK(free_ranges(blocks, at_least) == free(at_least));
        for (std::size_t i = 0; i < units_.size(); ++i) {
            const Block* found = blocks.find(address(i));
            const auto known = taken_.find(address(i));
            REQUIRE((found != nullptr) == (known != taken_.end()));
            if (found == nullptr) continue;
            CHECK(found->address == address(i));
            CHECK(found->bytes == known->second.bytes);
            CHECK(found->serial == known->second.serial);
            CHECK(found->state == (known->second.freed ? Block::State::freed : Block::State::live));
        }
        std::size_t live = 0;
        std::size_t live_bytes = 0;
        for (const auto& [begin, block] : taken_) {
            live += block.freed ? 0 : 1;
            live_bytes += block.freed ? 0 : block.requested;
        }
        CHECK(blocks.live_blocks() == live);
        CHECK(blocks.live_bytes() == live_bytes);
        blocks.for_each_saved([&](const Block& block) {
            CHECK(taken_.count(block.address) == 1);
            CHECK_FALSE(taken_.at(block.address).freed);
            live -= 1;
        });
        CHECK(live == 0);
    }

private:
    std::vector<What> units_;
    std::map<Address, Taken> taken_;
    std::set<std::uint64_t> serials_;
};

/// Random operations on an allocator and on its model. `act(call)` runs each call that may throw.
struct Walk {
    static constexpr std::size_t granule = 16; // units
    static constexpr std::size_t granules = 24;

    explicit Walk(std::uint64_t seed) : model{granule * granules}, random_{seed} {}

    template <class Act>
    void step(Act&& act) {
        const std::size_t what = below(16);
        if (what < 2) add(act);
        if (what == 2) remove(act);
        if (what == 3) merge(act);
        if (4 <= what && what < 9) give_up();
        if (9 <= what && what < 12) reclaim();
        if (12 <= what) allocate(act);
        model.check(blocks, below(64) * unit);
    }

    std::size_t below(std::size_t n) { return std::uniform_int_distribution<std::size_t>{0, n - 1}(random_); }

    std::uint64_t serials = 0;
    BlockAllocator blocks{serials};
    Model model;

private:
    using What = Model::What;

    Range some_granules(std::size_t most) {
        const std::size_t count = 1 + below(most);
        return Model::range(below(granules - count + 1) * granule, count * granule);
    }

    template <class Act>
    void add(Act& act) {
        const Range range = some_granules(4);
        if (!model.all(range, What::absent)) return;
        act([&] { blocks.add(range); });
        model.paint(range, What::free);
    }
    template <class Act>
    void remove(Act& act) {
        const Range range = some_granules(3);
        if (!model.all(range, What::free)) return;
        act([&] { blocks.remove(range); });
        model.paint(range, What::absent);
    }
    /// Merges another allocator, with a block or two, into this one.
    template <class Act>
    void merge(Act& act) {
        const Range range = some_granules(4);
        if (!model.all(range, What::absent)) return;
        BlockAllocator other{serials};
        const Snapshot empty{other};
        other.add(range);
        std::vector<Block> made;
        for (std::size_t i = below(3); i-- > 0;) made.push_back(*other.allocate((1 + below(6)) * unit, 256, unit));
        act([&] { blocks.merge(other); });
        CHECK(Snapshot{other} == empty);
        model.paint(range, What::free);
        for (const Block& block : made) model.allocated(block);
    }
    template <class Act>
    void allocate(Act& act) {
        const std::size_t bytes = (1 + below(below(4) == 0 ? 48 : 6)) * unit;
        const std::size_t alignment = std::size_t{1} << (below(3) == 0 ? below(13) : 8);
        const std::size_t requested = bytes - below(unit);
        const Block* block = nullptr;
        act([&] { block = blocks.allocate(bytes, alignment, requested); });
        REQUIRE((block != nullptr) == model.fits(bytes, alignment));
        if (block == nullptr) return;
        CHECK(block->address % alignment == 0);
        CHECK(block->bytes == bytes);
        CHECK(block->requested == requested);
        model.allocated(*block);
    }
    /// Returns a block of the model, or 0.
    Address some_block(bool freed) {
        std::vector<Address> all;
        for (const auto& [address, block] : model.taken()) {
            if (block.freed == freed) all.push_back(address);
        }
        return all.empty() ? 0 : all[below(all.size())];
    }
    void give_up() {
        if (const Address address = some_block(false); address != 0) {
            blocks.mark_freed(*blocks.find(address));
            model.freed(address);
        }
    }
    void reclaim() {
        if (const Address address = some_block(true); address != 0) {
            blocks.reclaim(address);
            model.reclaimed(address);
        }
    }

    std::mt19937_64 random_;
};
} // namespace block_model
