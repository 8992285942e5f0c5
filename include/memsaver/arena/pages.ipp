// Definitions of pages.hpp.
#pragma once

#include "memsaver/arena/pages.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {

MEMSAVER_INLINE std::size_t granularity_of(const AnyDriver& driver) {
    std::size_t granularity = 0;
    check(driver.granularity(granularity), "query the page granularity");
    return granularity;
}

MEMSAVER_INLINE ExtentState Extent::state() const noexcept {
    if (mapping_.owns()) return ExtentState::active;
    return pages_.owns() ? ExtentState::held : ExtentState::paused;
}

MEMSAVER_INLINE Status Extent::map(const AnyDriver& driver, const Extent& owner) noexcept {
    const Status status = mapping_.open(driver, Range{address_, bytes_}, owner.pages_.get().handle);
    return status.ok() ? driver.allow_access(address_, bytes_) : status;
}

MEMSAVER_INLINE std::vector<Range> worth_cutting(std::vector<Range> dead, std::size_t total) {
    constexpr std::size_t always = 16_MiB;
    std::size_t left = 0;
    for (const Range& range : dead) left += range.bytes;
    const std::size_t alive = total - left;
    std::sort(dead.begin(), dead.end(), [](const Range& a, const Range& b) { return a.bytes > b.bytes; });
    std::size_t cut = 0;
    while (cut < dead.size() && (dead[cut].bytes >= always || left > alive / 64)) left -= dead[cut++].bytes;
    dead.resize(cut);
    return dead;
}

MEMSAVER_INLINE void split_into_extents(Range range, std::size_t granularity, std::vector<Range>& pieces) {
    const std::size_t most = std::max(granularity, largest_extent);
    while (range.bytes != 0) {
        const std::size_t bytes = std::min(range.bytes, most);
        pieces.push_back({range.address, bytes});
        range = {range.address + bytes, range.bytes - bytes};
    }
}

MEMSAVER_INLINE Address AddressSpace::take(std::size_t bytes, std::size_t alignment) {
    Address at = align(all_.address, alignment);
    for (const auto& [begin, end] : taken_) {
        if (at <= begin && begin - at >= bytes + gap_) break;
        if (end + gap_ > at) at = align(end + gap_, alignment);
    }
    if (at > all_.end() || all_.end() - at < bytes) return 0;
    taken_.emplace(at, at + bytes);
    return at;
}

MEMSAVER_INLINE void AddressSpace::split(Address at) {
    const auto last = std::prev(taken_.lower_bound(at));
    if (last->second <= at) return;
    taken_.emplace(at, last->second);
    last->second = at;
}

MEMSAVER_INLINE void AddressSpace::give(Range range) {
    split(range.end());
    auto piece = std::prev(taken_.upper_bound(range.address));
    if (piece->first < range.address) {
        piece->second = range.address;
        ++piece;
    }
    while (piece != taken_.end() && piece->first < range.end()) piece = taken_.erase(piece);
}

MEMSAVER_INLINE Address AddressSpace::align(Address at, std::size_t alignment) noexcept {
    return (at + alignment - 1) & ~(Address{alignment} - 1);
}

MEMSAVER_INLINE ArenaPages::ArenaPages(AnyDriver driver, std::string tag, ArenaOptions options,
                                       std::function<void(Range)> on_segment)
    : driver_{std::move(driver)}, tag_{std::move(tag)}, options_{std::move(options)},
      granularity_(granularity_of(driver_)),
      on_segment_{std::move(on_segment)}, capacity_{options_.capacity}, margin_{options_.margin} {}

MEMSAVER_INLINE std::size_t ArenaPages::reserved_bytes() const noexcept {
    std::size_t sum = 0;
    for (const Segment& segment : segments_) sum += segment.space.all().bytes;
    return sum;
}

MEMSAVER_INLINE AddressSpace& ArenaPages::space_of(Range range) noexcept {
    std::size_t i = 0;
    while (i + 1 < segments_.size() && !overlap(segments_[i].space.all(), range)) ++i;
    return segments_[i].space;
}

MEMSAVER_INLINE Status ArenaPages::create(Extent& extent) noexcept {
    const Status status = extent.create(driver_);
    if (!status.ok()) return status;
    note_peak(physical_bytes_.fetch_add(extent.bytes()) + extent.bytes());
    return status;
}

MEMSAVER_INLINE void ArenaPages::note_peak(std::size_t now) noexcept {
    std::size_t peak = peak_bytes_.load();
    while (peak < now && !peak_bytes_.compare_exchange_weak(peak, now)) {
    }
}

MEMSAVER_INLINE void ArenaPages::take_over(Extent& to, ArenaPages& from, Extent& extent) noexcept {
    const std::size_t bytes = extent.physical_bytes();
    to.take_pages(extent);
    from.physical_bytes_ -= bytes;
    note_peak(physical_bytes_.fetch_add(bytes) + bytes);
}

MEMSAVER_INLINE Status ArenaPages::release(Extent& extent) noexcept {
    const std::size_t before = extent.physical_bytes();
    const Status status = extent.release();
    if (status.ok()) physical_bytes_ -= before;
    return status;
}

MEMSAVER_INLINE Status ArenaPages::drop(Extent& extent) noexcept {
    const Status status = extent.unmap();
    return status.ok() ? release(extent) : status;
}

MEMSAVER_INLINE void ArenaPages::give_up_pages(std::vector<Extent>& extents) noexcept {
    for (Extent& extent : extents) {
        if (extent.state() == ExtentState::held) (void)release(extent);
    }
}

MEMSAVER_INLINE void ArenaPages::abandon(std::vector<Extent>& extents, bool owns_addresses, bool in_use) noexcept {
    const Status drained = in_use ? driver_.drain() : Status{};
    for (Extent& extent : extents) {
        const Status status = drained.ok() ? drop(extent) : drained;
        if (!status.ok()) hold(std::move(extent), owns_addresses, status);
    }
    const std::lock_guard lock{mutex};
    in_hand -= extents.size();
    extents.clear();
}

MEMSAVER_INLINE void ArenaPages::hold(Extent&& extent, bool owns_addresses, const Status& status) noexcept {
    const EventSink none; // a lost device keeps no pages, so nothing is retried
    emit(status.kind == StatusKind::gone ? none : options_.events, [&] {
        return Event{EventKind::ignored, tag_, driver_.device(),
                     failure_text(status, "release pages (the next operation retries)")};
    });
    const std::lock_guard lock{mutex};
    held.push_back({std::move(extent), owns_addresses}); // capacity was reserved for all extents in hand
}

MEMSAVER_INLINE void ArenaPages::hold_until(Extent&& extent, const std::shared_ptr<const WorkMark>& until) noexcept {
    const std::lock_guard lock{mutex};
    held.push_back({std::move(extent), false, until}); // capacity was reserved for all extents in hand
}

MEMSAVER_INLINE std::size_t ArenaPages::waiting_bytes() noexcept {
    const std::lock_guard lock{mutex};
    std::size_t bytes = 0;
    for (const Held& each : held) bytes += each.until != nullptr ? each.extent.bytes() : 0;
    return bytes;
}

MEMSAVER_INLINE std::vector<std::shared_ptr<const WorkMark>> ArenaPages::awaited_in(const std::vector<Range>& ranges) {
    const std::lock_guard lock{mutex};
    std::vector<std::shared_ptr<const WorkMark>> marks;
    for (const Held& each : held) {
        if (each.until == nullptr || std::find(marks.begin(), marks.end(), each.until) != marks.end()) continue;
        if (std::any_of(ranges.begin(), ranges.end(), [&](const Range& r) { return overlap(r, each.range()); }))
            marks.push_back(each.until);
    }
    return marks;
}

MEMSAVER_INLINE std::vector<Range> ArenaPages::mapped_and_held() {
    const std::lock_guard lock{mutex};
    std::vector<Range> ranges;
    for (const Held& each : held) {
        if (each.extent.state() == ExtentState::active) ranges.push_back(each.range());
    }
    sort_by_address(ranges);
    return ranges;
}

MEMSAVER_INLINE Status ArenaPages::settle() noexcept {
    if (!unsettled_.load()) return {};
    const Status status = driver_.drain();
    if (status.ok()) unsettled_.store(false);
    return status;
}

MEMSAVER_INLINE Status ArenaPages::retry_held() {
    const auto failed = [](const Held& each) {
        return each.until == nullptr && each.extent.state() == ExtentState::active;
    };
    std::unique_lock lock{mutex};
    if (std::any_of(held.begin(), held.end(), failed)) { // the operation's own work may have been in flight
        lock.unlock();
        if (const Status drained = driver_.drain(); !drained.ok()) return drained;
        lock.lock();
    }
    Status first;
    for (std::size_t i = 0; i < held.size();) { // no erase_if: `give` may throw
        Held& kept = held[i];
        bool passed = true;
        const Status asked = kept.until != nullptr ? kept.until->query(passed) : Status{};
        if (!asked.ok() || !passed) {
            if (first.ok()) first = asked;
            ++i;
            continue;
        }
        if (const Status status = drop(kept.extent); !status.ok()) {
            if (first.ok()) first = status;
            ++i;
            continue;
        }
        if (kept.owns_addresses) space_of(kept.range()).give(kept.range());
        if (i + 1 != held.size()) kept = std::move(held.back());
        held.pop_back();
    }
    return first;
}

MEMSAVER_INLINE Status ArenaPages::create_all(std::vector<Extent>& extents, std::size_t beside) noexcept {
    std::size_t needed = beside;
    for (const Extent& extent : extents) needed += extent.state() == ExtentState::paused ? extent.bytes() : 0;
    if (const std::size_t margin = this->margin(); margin != 0 && needed != 0) {
        DeviceMemory memory;
        if (const Status status = driver_.memory(memory); !status.ok()) return status;
        if (memory.free_bytes < margin || memory.free_bytes - margin < needed)
            return {StatusKind::out_of_memory, 0, "less than the margin would remain free"};
    }
    for (Extent& extent : extents) {
        if (extent.state() != ExtentState::paused) continue; // an earlier call could not release its pages
        const Status status = create(extent);
        if (!status.ok()) return status;
    }
    return {};
}

MEMSAVER_INLINE void ArenaPages::raise_no_room(const Status& status, const char* what, std::size_t needed) const {
    DeviceMemory memory;
    (void)driver_.memory(memory);
    if (status.kind != StatusKind::out_of_memory) raise(status, what, "tag \"" + tag_ + "\" on " + driver_.name());
    raise(status, what,
          "tag \"" + tag_ + "\" on " + driver_.name() + " needs " + format_bytes(needed) + ", " +
              format_bytes(memory.free_bytes) + " are free" +
              (margin() != 0 ? ", of which " + format_bytes(margin()) + " are the margin" : ""),
          needed, memory.free_bytes);
}

MEMSAVER_INLINE std::vector<Extent> ArenaPages::plan(const std::vector<Range>& ranges) {
    std::vector<Range> pieces;
    for (const Range& range : ranges) {
        if (options_.single_handle) {
            pieces.push_back(range);
        } else {
            split_into_extents(range, granularity_, pieces);
        }
    }
    return plan_each(pieces);
}

MEMSAVER_INLINE std::vector<Extent> ArenaPages::plan_each(const std::vector<Range>& ranges) {
    std::vector<Extent> extents;
    extents.reserve(ranges.size());
    for (const Range& range : ranges) extents.emplace_back(range.address, range.bytes);
    const std::lock_guard lock{mutex};
    active.reserve(active.size() + in_hand + ranges.size());
    held.reserve(held.size() + active.size() + in_hand + ranges.size());
    in_hand += ranges.size();
    return extents;
}

MEMSAVER_INLINE void ArenaPages::plan_again(std::vector<Extent>& extents, const std::vector<Range>& ranges) {
    std::vector<Extent> planned = plan_each(ranges);
    const std::lock_guard lock{mutex};
    in_hand -= extents.size();
    extents.swap(planned);
}

MEMSAVER_INLINE void ArenaPages::activate(std::vector<Extent>& extents) noexcept {
    for (Extent& extent : extents) active.push_back(std::move(extent));
    in_hand -= extents.size();
    extents.clear();
}

MEMSAVER_INLINE Range ArenaPages::take_addresses(std::size_t bytes, std::size_t alignment) {
    alignment = std::max(alignment, granularity_);
    std::size_t wanted = 0;
    {
        const std::lock_guard lock{mutex};
        for (Segment& segment : segments_) {
            if (const Address address = segment.space.take(bytes, alignment)) return {address, bytes};
        }
        wanted = align_up(segment_bytes(reserved_bytes(), bytes), granularity_);
    }
    Reservation reservation;
    const std::size_t at = std::max<std::size_t>(alignment, 1_MiB);
    Status status = reservation.open(driver_, wanted + granularity_, at);
    if (!status.ok() && wanted != bytes) { // if that many cannot be reserved, only the needed ones
        wanted = bytes;
        status = reservation.open(driver_, wanted + granularity_, at);
    }
    check(status, "reserve addresses", wanted, 0);
    const Range all{reservation.get().address, wanted};
    driver_.name_addresses(all.address, reservation.get().bytes, ("tag \"" + tag_ + '"').c_str());
    AddressSpace space{all, options_.single_handle ? granularity_ : 0}; // blocks never join across a gap
    const Address address = space.take(bytes, alignment);
    {
        const std::lock_guard lock{mutex};
        segments_.push_back({std::move(reservation), std::move(space)});
    }
    try {
        on_segment_(all);
    } catch (...) {
        const std::lock_guard lock{mutex};
        segments_.pop_back();
        throw;
    }
    return {address, bytes};
}

MEMSAVER_INLINE void ArenaPages::abandon_growth(Range range, std::vector<Extent>& extents) {
    abandon(extents, true);
    const std::lock_guard lock{mutex};
    std::vector<Range> kept; // their addresses are freed together with their pages
    for (const Held& each : held) {
        if (each.owns_addresses && overlap(range, each.range())) kept.push_back(each.range());
    }
    if (kept.empty()) return space_of(range).give(range);
    sort_by_address(kept);
    for (const Range& rest : without({range}, kept)) space_of(rest).give(rest);
}

MEMSAVER_INLINE std::vector<Range> ArenaPages::paused_ranges() {
    const std::lock_guard lock{mutex};
    std::vector<Range> ranges;
    for (const Batch& batch : paused) ranges.insert(ranges.end(), batch.ranges.begin(), batch.ranges.end());
    sort_by_address(ranges);
    return ranges;
}

MEMSAVER_INLINE void ArenaPages::take_out(const std::vector<Range>& ranges, std::vector<Extent>& extents,
                                          FunctionRef<void()> act) {
    const std::lock_guard lock{mutex};
    std::vector<std::vector<Range>> left;
    left.reserve(paused.size());
    for (const Batch& batch : paused) left.push_back(without(batch.ranges, ranges));
    extents.reserve(active.size());
    act();
    for (std::size_t i = 0; i < left.size(); ++i) paused[i].ranges.swap(left[i]);
    std::erase_if(paused, [](const Batch& batch) { return batch.ranges.empty(); });
    std::erase_if(active, [&](Extent& extent) {
        if (!covers(ranges, {extent.address(), extent.bytes()})) return false;
        extents.push_back(std::move(extent));
        return true;
    });
    in_hand += extents.size();
}

MEMSAVER_INLINE void ArenaPages::forget_block(std::uint64_t serial, const AnySlot* own) noexcept {
    const std::lock_guard lock{mutex};
    for (const Batch& batch : paused) {
        if (batch.slot.get() != own) batch.slot->forget(serial);
    }
}

MEMSAVER_INLINE void ArenaPages::free_addresses(Range range) { // which no extent needs any more
    const std::lock_guard lock{mutex};
    for (Segment& segment : segments_) { // none if the arena has been closed meanwhile
        if (overlap(segment.space.all(), range)) return segment.space.give(range);
    }
}

MEMSAVER_INLINE Status ArenaPages::close() noexcept {
    const std::lock_guard lock{mutex};
    Status first;
    const auto try_to = [&](const Status& status) {
        if (!status.ok() && status.kind != StatusKind::gone && first.ok()) first = status;
        return status.ok();
    };
    std::erase_if(held, [&](Held& kept) { return try_to(drop(kept.extent)); });
    std::erase_if(active, [&](Extent& extent) { return try_to(drop(extent)); });
    paused.clear();
    if (!active.empty() || !held.empty()) return first;
    std::erase_if(segments_, [&](Segment& segment) { return try_to(segment.reservation.close()); });
    return first;
}

} // namespace detail

} // namespace memsaver::inline v0_3
