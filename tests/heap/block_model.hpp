// A model of a block allocator: one record for each unit of memory. Slow, but obviously correct.
#pragma once

#include "memsaver/heap/block_allocator.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <utility>
#include <vector>

namespace block_model {

using namespace memsaver;
using namespace memsaver::detail;

inline constexpr std::size_t unit = BlockAllocator::unit;
inline constexpr Address base = 0x7f00'0000'0000;

/// Ranges as pairs, for sets and messages.
using Ranges = std::set<std::pair<Address, std::size_t>>;

inline Ranges free_ranges(BlockAllocator& blocks, std::size_t bytes, Side side) {
    Ranges ranges;
    blocks.for_each_free(bytes, side, [&](Range range) { ranges.emplace(range.address, range.bytes); });
    return ranges;
}

/// The observable state of an allocator, to detect changes.
struct Snapshot {
    explicit Snapshot(BlockAllocator& blocks)
        : open{free_ranges(blocks, 0, Side::open)}, shut{free_ranges(blocks, 0, Side::shut)}, sums{
                                                                                                  blocks.live_bytes(),
                                                                                                  blocks.live_blocks(),
                                                                                                  blocks.free_bytes()} {
        blocks.for_each_live([&](const Block& block) { live.emplace(block.serial, block.address); });
    }
    bool operator==(const Snapshot&) const = default;

    Ranges open;
    Ranges shut;
    std::map<std::uint64_t, Address> live;
    std::vector<std::size_t> sums;
};

class Model {
public:
    struct Unit {
        enum class What : unsigned char { absent, free, taken } what = What::absent;
        Side side = Side::open;
        bool operator==(const Unit&) const = default;
    };
    struct Taken {
        std::size_t bytes = 0;
        std::size_t requested = 0;
        std::uint64_t serial = 0;
        bool freed = false;
    };

    Model(std::size_t units, std::size_t seam) : units_(units), seam_{seam} {}

    [[nodiscard]] std::size_t size() const { return units_.size(); }
    [[nodiscard]] const std::map<Address, Taken>& taken() const { return taken_; }
    [[nodiscard]] const Unit& at(std::size_t i) const { return units_[i]; }
    static Address address(std::size_t i) { return base + i * unit; }
    static std::size_t index(Address address) { return (address - base) / unit; }
    static Range range(std::size_t first, std::size_t count) { return {address(first), count * unit}; }

    [[nodiscard]] bool all(Range range, Unit::What what) const {
        for (std::size_t i = index(range.address); i < index(range.end()); ++i) {
            if (units_[i].what != what) return false;
        }
        return true;
    }
    void paint(Range range, Unit what) {
        for (std::size_t i = index(range.address); i < index(range.end()); ++i) units_[i] = what;
    }
    void mark(Range range, Unit::What what) {
        for (std::size_t i = index(range.address); i < index(range.end()); ++i) units_[i].what = what;
    }
    void side_of_all(Side side) {
        for (Unit& each : units_) each.side = side;
    }

    /// Returns the maximal free ranges of a side with at least `bytes` bytes.
    [[nodiscard]] Ranges free(std::size_t bytes, Side side) const {
        Ranges ranges;
        for (std::size_t i = 0; i < units_.size();) {
            if (units_[i] != Unit{Unit::What::free, side}) {
                ++i;
                continue;
            }
            const std::size_t first = i;
            do {
                ++i;
            } while (i < units_.size() && units_[i] == units_[first] && (seam_ == 0 || address(i) % seam_ != 0));
            if ((i - first) * unit >= bytes) ranges.emplace(address(first), (i - first) * unit);
        }
        return ranges;
    }
    [[nodiscard]] bool fits(std::size_t bytes, std::size_t alignment) const {
        const Ranges ranges = free(bytes, Side::open);
        return std::any_of(ranges.begin(), ranges.end(), [&](const auto& range) {
            return align_up(range.first, alignment) + bytes <= range.first + range.second;
        });
    }
    /// Returns the free range that contains an address.
    [[nodiscard]] Range free_around(Address at) const {
        for (const auto& [begin, bytes] : free(0, units_[index(at)].side)) {
            if (begin <= at && at < begin + bytes) return {begin, bytes};
        }
        return {};
    }

    void allocated(const Block& block) {
        CHECK(block.address % unit == 0);
        CHECK(all({block.address, block.bytes}, Unit::What::free));
        for (std::size_t i = 0; i < block.bytes / unit; ++i) {
            CHECK(units_[index(block.address) + i].side == Side::open);
        }
        CHECK(block.serial > last_serial_);
        last_serial_ = block.serial;
        mark({block.address, block.bytes}, Unit::What::taken);
        taken_[block.address] = {block.bytes, block.requested, block.serial, false};
    }
    void freed(Address at) { taken_.at(at).freed = true; }
    void reclaimed(Address at) {
        mark({at, taken_.at(at).bytes}, Unit::What::free);
        taken_.erase(at);
    }

    /// Checks that the state of `blocks` equals the model.
    void check(BlockAllocator& blocks, std::size_t at_least) const {
        for (const Side side : {Side::open, Side::shut}) {
            CHECK(free_ranges(blocks, 0, side) == free(0, side));
            CHECK(free_ranges(blocks, at_least, side) == free(at_least, side));
        }
        std::size_t free_bytes = 0;
        for (std::size_t i = 0; i < units_.size(); ++i) {
            if (units_[i].what == Unit::What::free) free_bytes += unit;
            if (units_[i].what != Unit::What::absent) CHECK(blocks.side(address(i)) == units_[i].side);
            const Block* found = blocks.find(address(i));
            const auto known = taken_.find(address(i));
            REQUIRE((found != nullptr) == (known != taken_.end()));
            if (found == nullptr) continue;
            CHECK(found->address == address(i));
            CHECK(found->bytes == known->second.bytes);
            CHECK(found->serial == known->second.serial);
            CHECK(found->state == (known->second.freed ? Block::State::freed : Block::State::live));
        }
        CHECK(blocks.free_bytes() == free_bytes);
        std::size_t live = 0;
        std::size_t live_bytes = 0;
        for (const auto& [begin, block] : taken_) {
            live += block.freed ? 0 : 1;
            live_bytes += block.freed ? 0 : block.requested;
        }
        CHECK(blocks.live_blocks() == live);
        CHECK(blocks.live_bytes() == live_bytes);
        blocks.for_each_live([&](const Block& block) {
            CHECK(taken_.count(block.address) == 1);
            CHECK_FALSE(taken_.at(block.address).freed);
            live -= 1;
        });
        CHECK(live == 0);
    }

private:
    std::vector<Unit> units_;
    std::map<Address, Taken> taken_;
    std::size_t seam_;
    std::uint64_t last_serial_ = 0;
};

/// Random operations on an allocator and on its model. `act(call)` runs each call that may throw.
class Walk {
public:
    static constexpr std::size_t granule = 16; // units
    static constexpr std::size_t granules = 24;

    Walk(std::uint64_t seed, std::size_t seam)
        : blocks{seam, 100}, model{granule * granules, seam}, random_{seed}, seam_{seam} {}

    template <class Act>
    void step(Act&& act) {
        switch (below(16)) {
        case 0:
        case 1: add(act); break;
        case 2: remove(act); break;
        case 3: all(Side::open); break;
        case 4: all(Side::shut); break;
        case 5: set_shut(act); break;
        case 6:
        case 7:
        case 8: give_up(); break;
        case 9:
        case 10:
        case 11: reclaim(); break;
        default: allocate(act);
        }
        model.check(blocks, below(64) * unit);
    }

    std::size_t below(std::size_t n) { return std::uniform_int_distribution<std::size_t>{0, n - 1}(random_); }

    BlockAllocator blocks;
    Model model;

private:
    using What = Model::Unit::What;

    Range some_granules(std::size_t most) {
        const std::size_t count = 1 + below(most);
        return Model::range(below(granules - count + 1) * granule, count * granule);
    }

    template <class Act>
    void add(Act& act) {
        const Range range = some_granules(seam_ == 0 ? 4 : 1); // a chunk is never larger than the seam
        if (!model.all(range, What::absent)) return;
        act([&] { blocks.add(range); });
        model.paint(range, {What::free, Side::open});
    }
    template <class Act>
    void remove(Act& act) {
        const Range range = some_granules(3);
        if (!model.all(range, What::free)) return;
        act([&] { blocks.remove(range); });
        model.paint(range, {What::absent, Side::open});
    }
    void all(Side side) {
        side == Side::open ? blocks.open_all() : blocks.shut_all();
        model.side_of_all(side);
    }
    template <class Act>
    void set_shut(Act& act) {
        std::vector<Range> shut;
        for (std::size_t at = below(5); at < granules;) {
            const std::size_t count = std::min(1 + below(4), granules - at);
            shut.push_back(Model::range(at * granule, count * granule));
            at += count + below(5);
        }
        act([&] { blocks.set_shut(shut); });
        model.side_of_all(Side::open);
        for (const Range& range : shut) {
            for (std::size_t i = 0; i < range.bytes / unit; ++i) {
                const std::size_t at = Model::index(range.address) + i;
                model.paint(Model::range(at, 1), {model.at(at).what, Side::shut});
            }
        }
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
            const Range range = blocks.reclaim(address);
            model.reclaimed(address);
            CHECK(range == model.free_around(address));
        }
    }

    std::mt19937_64 random_;
    std::size_t seam_;
};

} // namespace block_model
