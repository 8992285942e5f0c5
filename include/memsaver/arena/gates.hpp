// The gates of one arena: events that streams and captured graphs wait for, recorded anew whenever bytes are in flight.
// Knows nothing about graphs or about how the bytes are moved.
#pragma once

#include "memsaver/backup/ticket.hpp"
#include "memsaver/core/function_ref.hpp"
#include "memsaver/driver/fork_check.hpp"
#include "memsaver/driver/owned.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {

/// A part of a block, and the event that completes once its bytes are resident. Shared by its handles and by the graphs
/// captured with it; the arena keeps only a weak reference.
struct GateMark {
    GateMark(AnyDriver on, Range part, Address of, std::uint64_t number)
        : driver{std::move(on)}, range{part}, block{of}, serial{number} {}

    AnyDriver driver;
    Range range;
    Address block; ///< address of the block
    std::uint64_t serial;
    OwnedEvent event;
};

/// Bytes in flight: a ticket, and the ranges that it restores.
struct Bringing {
    Ticket* ticket;
    std::vector<Range> ranges;
};

/// All gates of an arena. Each event is recorded on a relay stream that follows the streams of its bytes. Bytes whose
/// copies are not on a stream yet are waited for, by the thread that begins them: a stream that waited for the host
/// would hold up others on a GPU, and calls that wait for the whole device.
///
/// Requires the arena's turn.
class ArenaGates {
public:
    explicit ArenaGates(AnyDriver driver) : driver_{std::move(driver)} {}
    ArenaGates(const ArenaGates&) = delete;
    ArenaGates& operator=(const ArenaGates&) = delete;
    ~ArenaGates() = default;

    /// Adds a gate, which is open. Throws Unavailable if the driver has no gates, or the error of a failing call.
    [[nodiscard]] std::shared_ptr<GateMark> add(Range range, Address block, std::uint64_t serial);
    /// Returns the relay stream. Requires that there is a gate.
    [[nodiscard]] StreamRef relay() const noexcept { return relay_.get(); }

    /// Records the event of every gate with bytes among those in flight, in the order in which bytes are begun: those
    /// of `first`, then by address. `lives(gate)` returns whether its block is live. Throws the error of a failing
    /// call. `moved(status, ticket)` throws the error of a failure to follow bytes.
    void record(const std::vector<Bringing>& coming, const std::vector<Range>& first,
                FunctionRef<bool(const GateMark&)> lives, FunctionRef<void(const Status&, Ticket&)> moved);

    /// Releases everything except the gates' events, which the gates own. What fails is kept for a retry.
    Status close() noexcept;

private:
    AnyDriver driver_;
    std::shared_ptr<const ForkCheck> fork_; // for gates that outlive the arena
    std::vector<std::weak_ptr<GateMark>> gates_;
    OwnedStream relay_;
};

} // namespace detail

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/arena/gates.ipp"
#endif
