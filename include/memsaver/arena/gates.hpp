// The gates of one arena: events that streams and captured graphs wait for, recorded anew whenever bytes are in flight.
// Knows nothing about graphs or about how the bytes are moved.
#pragma once

#include "memsaver/backup/crew.hpp"
#include "memsaver/backup/ticket.hpp"
#include "memsaver/core/function_ref.hpp"
#include "memsaver/driver/fork_check.hpp"
#include "memsaver/driver/host_cells.hpp"
#include "memsaver/driver/neighbours.hpp"
#include "memsaver/driver/owned.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
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

/// All gates of an arena. If the copies of a gate's bytes are on their streams, its event is recorded on a relay stream
/// that follows these streams. Otherwise it is recorded on a second relay stream, behind a wait for a number in host
/// memory, which a thread raises as the bytes arrive. Each relay stream handles its gates in the order in which their
/// bytes are begun. So no gate is queued behind one whose bytes are begun later, and no gate that follows copies is
/// queued behind one that the host must open. More streams would not improve the order on a GPU: streams that wait
/// share its few queues, and hold up each other and all copies there.
///
/// Requires the arena's turn, except `give_up`.
class ArenaGates {
public:
    class Opening;

    explicit ArenaGates(AnyDriver driver) : driver_{std::move(driver)} {}
    ArenaGates(const ArenaGates&) = delete;
    ArenaGates& operator=(const ArenaGates&) = delete;
    ~ArenaGates() = default;

    /// Adds a gate, which is open. Throws Unavailable if the driver has no gates, or the error of a failing call.
    [[nodiscard]] std::shared_ptr<GateMark> add(Range range, Address block, std::uint64_t serial);
    /// Returns the stream for waits that do not depend on the host. Requires that there is a gate.
    [[nodiscard]] StreamRef relay() const noexcept { return copies_.get(); }

    /// Must be called before bytes are put in flight: resets an earlier `give_up`.
    void begin() noexcept;
    /// Records the event of every gate with bytes among those in flight; `lives(gate)` returns whether its block is
    /// live. Gates whose bytes are not on their streams yet are left to the returned Opening, which is null if there
    /// are none. May wait for kernels that write the bytes. Throws the error of a failing call; then no stream waits
    /// for long. `moved(status, ticket)` throws the error of a failure to follow bytes.
    [[nodiscard]] std::unique_ptr<Opening> record(const std::vector<Bringing>& coming,
                                                  FunctionRef<bool(const GateMark&)> lives,
                                                  FunctionRef<void(const Status&, Ticket&)> moved);
    /// Opens all gates, because some bytes will not arrive, or because the device must be waited for before they do.
    /// Streams that wait for the host continue, and the bytes that they waited for count as not restored. Any thread.
    void give_up() noexcept;

    /// Releases everything except the gates' events, which the gates own. No stream may be waiting for the host. What
    /// fails is kept for a retry; returns the first failure.
    Status close() noexcept;

private:
    struct Due;

    [[nodiscard]] std::vector<Due> due(const std::vector<Bringing>& coming, FunctionRef<bool(const GateMark&)> lives);
    /// Returns whether streams can wait for the host: false if no memory can be pinned.
    [[nodiscard]] bool can_wait();
    /// Commits the host to raising the word to `value`.
    void promise(std::uint32_t value) noexcept;
    void open(std::uint32_t value) noexcept;
    void raise_to(std::uint32_t value) noexcept; // requires the lock
    [[nodiscard]] bool gave_up() noexcept;

    AnyDriver driver_;
    std::shared_ptr<const ForkCheck> fork_; // for gates that outlive the arena
    std::vector<std::weak_ptr<GateMark>> gates_;
    OwnedStream copies_;           // relay stream that follows copies
    OwnedStream host_wait_stream_; // relay stream that waits for the host
    PinnedBuffer page_;
    std::mutex mutex_; // guards the members below
    std::atomic<std::uint32_t>* opened_count_ =
        nullptr;                 // in the page: number of gates that the host has opened; wraps around
    std::uint32_t promised_ = 0; // number of gates that the host has to open
    bool waiting_ = false;       // the word has not reached `promised_`
    bool gave_up_ = false;       // since `begin`: gates are opened at once
};

/// Opens gates in order, on a thread of its own. The destructor waits until all are open. Enqueues nothing on a stream:
/// streams that wait at a gate share a device queue with other streams, so work that has to run there could deadlock.
class ArenaGates::Opening {
public:
    /// Bytes that must have arrived before the word is raised to `value`.
    struct Part {
        Ticket* ticket;
        Range range;
        std::uint32_t value;
    };
    /// A gate that opens when the word reaches `value`.
    struct Closed {
        std::shared_ptr<GateMark> gate;
        std::uint32_t value;
    };

    Opening(ArenaGates& gates, std::vector<Part> parts, std::vector<Closed> closed);
    Opening(const Opening&) = delete;
    Opening& operator=(const Opening&) = delete;
    ~Opening() { crew_.join(); }

    /// Records the events of its gates, behind waits for the word. Must be called once, after everything in the same
    /// operation that waits for kernels: these could be queued behind the waits. Throws as `record`.
    void start();
    /// Waits until all gates are open. Returns the first failure; in that case they opened too early.
    Status wait() noexcept;

private:
    void run() noexcept;
    [[nodiscard]] Status open_each() noexcept;

    ArenaGates& gates_;
    std::vector<Part> parts_;
    std::vector<Closed> closed_; // in order
    Status status_;
    Crew crew_; // last: joined before the other members are destroyed
};

} // namespace detail

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/arena/gates.ipp"
#endif
