// Definitions of kept_store.hpp.
#pragma once

#include "memsaver/backup/kept_store.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {

MEMSAVER_INLINE KeptStore::KeptStore(AnyDriver driver, StoreOptions options, std::size_t largest_buffer,
                                     const Attempt& reading)
    : driver_{driver}, options_{std::move(options)},
      share_{std::move(driver), options_.ring_bytes, options_.crew.threads, largest_buffer}, reading_{reading} {}

MEMSAVER_INLINE std::unique_ptr<Ticket::Work> KeptStore::out(std::vector<Unit> units, const LiveSet& live) {
    about(live);
    return start(Direction::out, std::move(units), live, {});
}

MEMSAVER_INLINE std::unique_ptr<Ticket::Work> KeptStore::in(std::vector<Unit> units, const LiveSet& live) {
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
    // NOLINTNEXTLINE(performance-no-int-to-ptr): a host address
    auto* const data = reinterpret_cast<std::byte*>(copy->address());
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

MEMSAVER_INLINE std::unique_ptr<Ticket::Work> KeptStore::through_ring(Direction direction, std::vector<Unit> units,
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

} // namespace detail

} // namespace memsaver::inline v0_3
