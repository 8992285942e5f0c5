// A stream of the library's own, for what it fills.
#pragma once

#include "memsaver/backup/ticket.hpp"
#include "memsaver/driver/owned.hpp"

#include <span>
#include <utility>

namespace memsaver::inline v0_2 {

namespace detail {

/// A stream and what has been put on it. One thread at a time.
class Lane {
public:
    explicit Lane(AnyDriver driver) : driver_{std::move(driver)} {}

    /// Enqueues a fill of every range with `byte`. Throws what a failing call stands for; what was enqueued before the
    /// failure has passed by then.
    Ticket fill(std::span<const Range> ranges, unsigned char byte);

private:
    struct Mark;

    AnyDriver driver_;
    OwnedStream stream_;
};

} // namespace detail

} // namespace memsaver::inline v0_2

#ifndef MEMSAVER_COMPILED
#include "memsaver/backup/lane.ipp"
#endif
