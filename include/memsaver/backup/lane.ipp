// Definitions of lane.hpp.
#pragma once

#include "memsaver/backup/lane.hpp"

#include <memory>
#include <span>
#include <utility>

namespace memsaver::inline v0_3 {

namespace detail {

struct Lane::Mark final : Ticket::Work {
    explicit Mark(AnyDriver on) : driver{std::move(on)} {}
    Status query(bool& done) noexcept override { return driver.query(event.get(), done); }
    Status wait() noexcept override { return driver.wait(event.get()); }
    [[nodiscard]] bool enqueued() const noexcept override { return true; }
    Status follow(StreamRef stream, Range) noexcept override { return driver.follow(stream, event.get()); }

    AnyDriver driver;
    OwnedEvent event;
};

MEMSAVER_INLINE Ticket Lane::fill(std::span<const Range> ranges, unsigned char byte) {
    std::size_t bytes = 0;
    for (const Range& range : ranges) bytes += range.bytes;
    if (bytes == 0) return {};
    if (!stream_.owns()) check(stream_.open(driver_), "open a stream");
    auto mark = std::make_unique<Mark>(driver_);
    check(mark->event.open(driver_, stream_.get()), "open an event");
    Status status;
    for (const Range& range : ranges) {
        status = driver_.fill(range.address, byte, range.bytes, stream_.get());
        if (!status.ok()) break;
    }
    const Status recorded = driver_.record(mark->event.get(), stream_.get());
    if (!status.ok() || !recorded.ok()) {
        (void)(recorded.ok() ? mark->wait() : driver_.drain());
        check(status, "fill memory", bytes, ranges.front().address);
        check(recorded, "record an event");
    }
    return Ticket{std::move(mark), bytes};
}

} // namespace detail

} // namespace memsaver::inline v0_3
