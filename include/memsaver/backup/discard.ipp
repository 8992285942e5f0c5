// Definitions of discard.hpp.
#pragma once

#include "memsaver/backup/discard.hpp"
#include "memsaver/core/pointers.hpp"
#include "memsaver/driver/owned.hpp"

#include <utility>

namespace memsaver::inline v0_3 {

namespace detail {

/// A stream for fills, opened by the first.
struct FillSlot::Lane {
    explicit Lane(AnyDriver on) : driver{std::move(on)} {}

    AnyDriver driver;
    OwnedStream stream;
};

struct FillSlot::Mark final : Ticket::Work {
    explicit Mark(AnyDriver on) : driver{std::move(on)} {}
    Status query(bool& done) noexcept override { return driver.query(event.get(), done); }
    Status wait() noexcept override { return driver.wait(event.get()); }
    [[nodiscard]] bool enqueued() const noexcept override { return true; }
    Status follow(StreamRef stream, Range) noexcept override { return driver.follow(stream, event.get()); }

    AnyDriver driver;
    OwnedEvent event;
};

MEMSAVER_INLINE FillSlot::FillSlot(AnyDriver driver, std::optional<unsigned char> byte, bool poison)
    : lane_{new_shared<Lane>(std::move(driver))}, byte_{byte}, poison_{poison} {}

MEMSAVER_INLINE Ticket FillSlot::save(const LiveSet& live) { return poison_ ? fill(live.handed_on) : Ticket{}; }

MEMSAVER_INLINE Ticket FillSlot::restore(const LiveSet& live) { return fill(live.extents); }

MEMSAVER_INLINE Ticket FillSlot::fill(const std::vector<Range>& ranges) const {
    std::size_t bytes = 0;
    for (const Range& range : ranges) bytes += range.bytes;
    if (bytes == 0 || !byte_) return {};
    auto& [driver, stream] = *lane_;
    if (!stream.owns()) check(stream.open(driver), "open a stream");
    auto mark = UniquePtr<Mark>::make(driver);
    check(mark->event.open(driver, stream.get()), "open an event");
    Status status;
    for (const Range& range : ranges) {
        status = driver.fill(range.address, *byte_, range.bytes, stream.get());
        if (!status.ok()) break;
    }
    const Status recorded = driver.record(mark->event.get(), stream.get());
    if (!status.ok() || !recorded.ok()) {
        (void)(recorded.ok() ? mark->wait() : driver.drain());
        check(status, "fill memory", bytes, ranges.front().address);
        check(recorded, "record an event");
    }
    return Ticket{std::move(mark), bytes};
}

} // namespace detail

MEMSAVER_INLINE detail::FillSlot Discard::open(const AnyDriver& driver) const {
    return detail::FillSlot{driver, poison, true};
}

MEMSAVER_INLINE detail::FillSlot Zero::open(const AnyDriver& driver) const {
    return detail::FillSlot{driver, static_cast<unsigned char>(0)};
}

} // namespace memsaver::inline v0_3
