// Which addresses of an arena are open for allocation, and which are shut because they are paused.
#pragma once

#include "memsaver/arena/free_bins.hpp"
#include "memsaver/transfer/range.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace memsaver::inline v0_1 {

/// A sorted list of ranges without overlap, each on one side. A handful for an arena. Not thread safe.
class Regions {
public:
    struct Region {
        Address begin;
        Address end;
        Side side;
    };

    /// Makes room for `count` more calls of `add` or `remove`. May throw bad_alloc; then nothing changed.
    void reserve_more(std::size_t count) { list_.reserve(list_.size() + count); }

    void add(Range range, Side side) noexcept { // room has been reserved
        const auto at = std::lower_bound(list_.begin(), list_.end(), range.address,
                                         [](const Region& region, Address a) { return region.begin < a; });
        list_.insert(at, Region{range.address, range.end(), side});
        count(side) += 1;
    }

    /// Cuts a range out, whatever regions it spans. Room for one more region has been reserved.
    void remove(Range range) noexcept {
        for (std::size_t i = 0; i < list_.size();) {
            const Region region = list_[i];
            if (region.end <= range.address || region.begin >= range.end()) {
                ++i;
                continue;
            }
            list_.erase(list_.begin() + static_cast<std::ptrdiff_t>(i));
            count(region.side) -= 1;
            if (region.begin < range.address) {
                add({region.begin, range.address - region.begin}, region.side);
                ++i;
            }
            if (region.end > range.end()) {
                add({range.end(), region.end - range.end()}, region.side);
                ++i;
            }
        }
    }

    void set_all(Side side) noexcept {
        for (Region& region : list_) region.side = side;
        open_ = side == Side::open ? list_.size() : 0;
        shut_ = list_.size() - open_;
    }

    /// The side of an address that some region holds.
    [[nodiscard]] Side side(Address address) const noexcept {
        if (shut_ == 0) return Side::open;
        if (open_ == 0) return Side::shut;
        const auto after = std::upper_bound(list_.begin(), list_.end(), address,
                                            [](Address a, const Region& region) { return a < region.begin; });
        return after == list_.begin() ? Side::open : std::prev(after)->side;
    }

    /// `visit(part, side)` for each part of `range` that lies in one region. All of it lies in some.
    template <class Visit>
    void for_each_part(Range range, Visit&& visit) const {
        auto region = std::upper_bound(list_.begin(), list_.end(), range.address,
                                       [](Address at, const Region& each) { return at < each.end; });
        for (; region != list_.end() && region->begin < range.end(); ++region) {
            const Address begin = std::max(range.address, region->begin);
            visit(Range{begin, std::min(range.end(), region->end) - begin}, region->side);
        }
    }

    [[nodiscard]] bool mixed() const noexcept { return open_ != 0 && shut_ != 0; }
    [[nodiscard]] const std::vector<Region>& list() const noexcept { return list_; }

private:
    std::size_t& count(Side side) noexcept { return side == Side::open ? open_ : shut_; }

    std::vector<Region> list_;
    std::size_t open_ = 0;
    std::size_t shut_ = 0;
};

} // namespace memsaver::inline v0_1
