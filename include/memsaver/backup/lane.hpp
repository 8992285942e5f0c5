// A stream of the library for fills.
#pragma once

#include "memsaver/backup/ticket.hpp"
#include "memsaver/driver/owned.hpp"

#include <span>
#include <utility>

namespace memsaver::inline v0_3 {

namespace detail {

/// A stream for fills. Not thread-safe.
class Lane {
public:
    explicit Lane(AnyDriver driver) : driver_{std::move(driver)} {}

    /// Enqueues a fill of every range with `byte`. Throws the exception for a failing call; the fills enqueued before
    /// it have completed by then.
    Ticket fill(std::span<const Range> ranges, unsigned char byte);

private:
    struct Mark;

    AnyDriver driver_;
    OwnedStream stream_;
};

} // namespace detail

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/backup/lane.ipp"
#endif
