// Definitions of store.hpp.
#pragma once

#include "memsaver/backup/store.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {

MEMSAVER_INLINE Status first_failure(std::initializer_list<Status> all) noexcept {
    for (const Status& status : all) {
        if (!status.ok()) return status;
    }
    return {};
}

MEMSAVER_INLINE std::vector<Unit> cut_for_observer(std::vector<Unit> units, const StoreOptions& options,
                                                   const AnyDriver& driver) {
    if (!options.observer) return units;
    std::size_t granularity = 0;
    check(driver.granularity(granularity), "query the page granularity");
    return cut_at_addresses(units, granularity);
}

MEMSAVER_INLINE void LocationSpace::grow(BackupStore& store, std::size_t bytes, const LiveSet& live) {
    if (made_.bytes == 0) made_ = store.grow(bytes, live);
    add(made_.location, made_.bytes);
    made_ = {};
}

MEMSAVER_INLINE void LocationSpace::add(std::uint64_t location, std::size_t bytes) {
    const auto start = starts_.insert(location).first;
    try {
        give(location, bytes);
    } catch (...) {
        starts_.erase(start);
        throw;
    }
}

MEMSAVER_INLINE std::uint64_t LocationSpace::take(std::size_t bytes, std::uint64_t like,
                                                  std::size_t& missing) noexcept {
    const std::uint64_t skipped = like % alignment_;
    bytes = around(skipped, bytes).bytes;
    const auto found = by_size_.lower_bound({bytes, 0});
    if (found == by_size_.end()) {
        missing += bytes;
        return 0;
    }
    const auto [size, location] = *found;
    if (size == bytes) {
        erase(location, size);
    } else {
        change(location, size, location + bytes, size - bytes);
    }
    return location + skipped;
}

MEMSAVER_INLINE void LocationSpace::give(std::uint64_t location, std::size_t bytes) {
    const Room room = around(location, bytes);
    location = room.location;
    bytes = room.bytes;
    const auto next = by_location_.lower_bound(location);
    const bool joins_next =
        next != by_location_.end() && location + bytes == next->first && !starts_.contains(next->first);
    const std::size_t behind = joins_next ? next->second : 0;
    if (next != by_location_.begin() && !starts_.contains(location)) {
        const auto [before, size] = *std::prev(next);
        if (before + size == location) {
            if (joins_next) erase(location + bytes, behind);
            return change(before, size, before, size + bytes + behind);
        }
    }
    if (joins_next) return change(location + bytes, behind, location, bytes + behind);
    insert(location, bytes);
}

MEMSAVER_INLINE bool LocationSpace::remove(Room room) noexcept {
    const auto found = by_location_.find(room.location);
    if (found == by_location_.end() || found->second != room.bytes) return false;
    erase(room.location, room.bytes);
    starts_.erase(room.location);
    return true;
}

MEMSAVER_INLINE void LocationSpace::clear() noexcept {
    free_ = 0;
    made_ = {};
    by_location_.clear();
    by_size_.clear();
    starts_.clear();
}

MEMSAVER_INLINE void LocationSpace::insert(std::uint64_t location, std::size_t bytes) {
    const auto sized = by_size_.emplace(bytes, location).first;
    try {
        by_location_.emplace(location, bytes);
    } catch (...) {
        by_size_.erase(sized);
        throw;
    }
    free_ += bytes;
}

MEMSAVER_INLINE void LocationSpace::change(std::uint64_t from, std::size_t old_bytes, std::uint64_t to,
                                           std::size_t bytes) noexcept {
    auto located = by_location_.extract(from);
    auto sized = by_size_.extract({old_bytes, from});
    located.key() = to;
    located.mapped() = bytes;
    sized.value() = {bytes, to};
    by_location_.insert(std::move(located));
    by_size_.insert(std::move(sized));
    free_ = free_ - old_bytes + bytes;
}

MEMSAVER_INLINE void LocationSpace::erase(std::uint64_t location, std::size_t bytes) noexcept {
    by_location_.erase(location);
    by_size_.erase({bytes, location});
    free_ -= bytes;
}

MEMSAVER_INLINE KeptStore::KeptStore(AnyDriver driver, StoreOptions options, std::size_t largest_buffer,
                                     const Attempt& reading)
    : driver_{driver}, options_{std::move(options)},
      share_{std::move(driver), options_.ring_bytes, options_.crew.threads, largest_buffer}, reading_{reading} {}

MEMSAVER_INLINE std::unique_ptr<Transfer> KeptStore::out(std::vector<Unit> units, const LiveSet& live) {
    about(live);
    return start(Direction::out, std::move(units), live, {});
}

MEMSAVER_INLINE std::unique_ptr<Transfer> KeptStore::in(std::vector<Unit> units, const LiveSet& live) {
    about(live);
    return start(Direction::in, std::move(units), live, live.first);
}

MEMSAVER_INLINE void KeptStore::compare(std::vector<Unit> units, const LiveSet& live, CompareWith compare_with) {
    share_.join(live.host_budget);
    compare_with(*this, driver_, units, cut(units, share_.buffer_bytes()), share_.ring(), options_.crew, live.tag);
}

MEMSAVER_INLINE BackupView KeptStore::view(std::uint64_t location, std::size_t bytes) const {
    const std::uint64_t begin = align_down(location, alignment());
    const auto span = static_cast<std::size_t>(align_up(location + bytes, alignment()) - begin);
    const auto copy = share_.copy(span, error_prefix_);
    std::byte* const data = copy->data();
    check_of(get(data, begin, span), reading_, bytes);
    return {copy, data + (location - begin), bytes};
}

MEMSAVER_INLINE void KeptStore::about(const LiveSet& live) {
    error_prefix_ = of_tag(live.tag);
    share_.join(live.host_budget);
    if (options_.observer) options_.observer->about(live.tag);
}

MEMSAVER_INLINE std::vector<Piece> KeptStore::cut(std::vector<Unit> units, std::size_t cell,
                                                  const std::vector<Range>& first) const {
    return cut_in_wanted_order(cut_for_observer(std::move(units), options_, driver_), cell, first, !options_.observer,
                               [&](const Unit& a, const Unit& b) { return apart(a, b); });
}

MEMSAVER_INLINE std::unique_ptr<Transfer> KeptStore::through_ring(Direction direction, std::vector<Unit> units,
                                                                  const LiveSet& live,
                                                                  const std::vector<Range>& first) {
    auto work = staged_transfer(CopyLane{driver_, direction}, cut(std::move(units), share_.buffer_bytes(), first),
                                *this, share_.ring(), options_.crew, options_.observer.get(), live.progress,
                                error_prefix_, live.before_write);
    work->start();
    return work;
}

MEMSAVER_INLINE void KeptStore::check_of(const Status& status, const Attempt& attempt, std::size_t bytes) const {
    if (!status.ok()) raise_of(status, attempt, {error_prefix_, in_bytes(bytes)}, bytes);
}

MEMSAVER_INLINE Status ComparingStore::put(const std::byte* from, std::uint64_t location,
                                           std::size_t bytes) const noexcept {
    constexpr std::size_t step = 1_MiB;
    const std::unique_ptr<std::byte[]> memory{new (std::nothrow) std::byte[step + alignment()]};
    if (!memory) return {StatusKind::out_of_host_memory, 0, "no host memory to compare bytes"};
    void* start = memory.get();
    std::size_t space = step + alignment();
    auto* const kept = static_cast<std::byte*>(std::align(alignment(), step, start, space));
    for (std::size_t done = 0; done < bytes; done += step) {
        const std::size_t part = std::min(bytes - done, step);
        if (const Status status = store_.get(kept, location + done, part); !status.ok()) return status;
        if (std::memcmp(kept, from + done, part) == 0) continue;
        const std::byte* const other = std::mismatch(kept, kept + part, from + done).first;
        note(location + done + static_cast<std::size_t>(other - kept));
    }
    return {};
}

MEMSAVER_INLINE Status ComparingStore::get(std::byte* to, std::uint64_t location, std::size_t bytes) const noexcept {
    return store_.get(to, location, bytes);
}

MEMSAVER_INLINE void ComparingStore::note(std::uint64_t location) const noexcept {
    std::uint64_t first = first_.load();
    while (location < first && !first_.compare_exchange_weak(first, location)) {
    }
}

MEMSAVER_INLINE std::string difference_text(const std::vector<Unit>& units, std::uint64_t location,
                                            const std::string& tag) {
    std::string text = text_of({"tag ", in_quotes(tag), ": bytes have changed since their only save"});
    for (const Unit& unit : units) {
        if (location < unit.location || location - unit.location >= unit.bytes) continue;
        text += text_of({", for example at ", in_hex(unit.device + (location - unit.location)), ", in a block of ",
                         in_bytes(unit.bytes), " at ", in_hex(unit.device)});
    }
    return text_of({text, "; call invalidate(", in_quotes(tag), ") after changing them"});
}

MEMSAVER_INLINE void compare_with(const ByteStore& store, const AnyDriver& driver, const std::vector<Unit>& units,
                                  std::vector<Piece> pieces, std::shared_ptr<Ring> ring, const CrewOptions& crew,
                                  const std::string& tag) {
    const ComparingStore comparing{store};
    const auto transfer = staged_transfer(CopyLane{driver, Direction::out}, std::move(pieces), comparing,
                                          std::move(ring), crew, nullptr, {}, of_tag(tag));
    transfer->start();
    check(transfer->wait(), "compare bytes");
    if (comparing.differs()) misuse({difference_text(units, comparing.first_difference(), tag)});
}

} // namespace detail

} // namespace memsaver::inline v0_3
