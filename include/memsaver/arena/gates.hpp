// The gates of one arena: events that streams and captured graphs wait for, recorded anew whenever bytes are on their
// way. Does not know graphs, nor what brings the bytes.
#pragma once

#include "memsaver/backup/crew.hpp"
#include "memsaver/backup/ticket.hpp"
#include "memsaver/core/function_ref.hpp"
#include "memsaver/driver/fork_mark.hpp"
#include "memsaver/driver/host_memory.hpp"
#include "memsaver/driver/neighbours.hpp"
#include "memsaver/driver/owned.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace memsaver::inline v0_2 {

namespace detail {

/// A part of a block, and the event that is passed once its bytes are here. Shared by its handles and by the graphs
/// that were captured with it; the arena knows it for as long as one of them lives, and no longer.
struct GateMark {
    GateMark(AnyDriver on, Range part, Address of, std::uint64_t number)
        : driver{std::move(on)}, range{part}, block{of}, serial{number} {}

    AnyDriver driver;
    Range range;
    Address block; ///< where it begins
    std::uint64_t serial;
    OwnedEvent event;
};

/// Bytes on their way: a ticket, and the memory that it brings.
struct Bringing {
    Ticket* ticket;
    std::vector<Range> ranges;
};

/// Where the copies of a gate's bytes are on their streams, its event is recorded on a relay stream that follows them.
/// Where they are not yet, it is recorded on another relay stream, behind a wait for a number in host memory, which a
/// thread raises as the bytes arrive. Both go through their gates in the order in which the bytes are begun, so that no
/// gate is behind one whose bytes are begun later, and none that copies reach directly behind one that the host must
/// open. More streams would order them no better on a GPU: streams that wait share its few queues, and hold up each
/// other and everybody's copies there.
///
/// Under the arena's turn, but for `give_up`.
class ArenaGates {
public:
    class Opening;

    explicit ArenaGates(AnyDriver driver) : driver_{std::move(driver)} {}
    ArenaGates(const ArenaGates&) = delete;
    ArenaGates& operator=(const ArenaGates&) = delete;
    ~ArenaGates() = default;

    /// One more, which is passed. Throws Unavailable where the driver has no gates, or what a failing call stands for.
    [[nodiscard]] std::shared_ptr<GateMark> add(Range range, Address block, std::uint64_t serial);
    /// A stream for waits that do not wait for the host. Once there is a gate.
    [[nodiscard]] StreamRef relay() const noexcept { return copies_.get(); }

    /// Bytes are about to be on their way: nothing has been given up of them.
    void begin() noexcept;
    /// Records the event of every gate with bytes among those on their way; `lives(gate)`: whether its block does.
    /// Those whose bytes are not on their streams yet are left to what it answers; null if there are none. May wait for
    /// kernels that bring bytes. Throws what a failing call stands for; then no stream waits for long. `moved(status,
    /// ticket)` throws what a failure to follow bytes stands for.
    [[nodiscard]] std::unique_ptr<Opening> record(const std::vector<Bringing>& coming,
                                                  FunctionRef<bool(const GateMark&)> lives,
                                                  FunctionRef<void(const Status&, Ticket&)> moved);
    /// Some bytes will not come, or the device has to be waited for before they do: every stream that waits for the
    /// host goes on, and the bytes that it waited for count as not brought. Any thread.
    void give_up() noexcept;

    /// Gives everything back but the gates' events, which are theirs. Nothing waits any more. What fails is kept, to be
    /// tried again; answers the first failure.
    Status close() noexcept;

private:
    struct Due;

    [[nodiscard]] std::vector<Due> due(const std::vector<Bringing>& coming, FunctionRef<bool(const GateMark&)> lives);
    /// Whether the host can have streams wait for it: not where nothing can be pinned.
    [[nodiscard]] bool can_wait();
    /// From now on the host owes the words up to `value`.
    void promise(std::uint32_t value) noexcept;
    void open(std::uint32_t value) noexcept;
    void raise_to(std::uint32_t value) noexcept; // with the lock held
    [[nodiscard]] bool gave_up() noexcept;

    AnyDriver driver_;
    std::shared_ptr<const ForkMark> fork_; // for gates that outlive the arena
    std::vector<std::weak_ptr<GateMark>> gates_;
    OwnedStream copies_; // relay streams: follows copies,
    OwnedStream words_;  // and waits for the host
    PinnedBuffer page_;
    std::mutex mutex_;                           // guards what follows
    std::atomic<std::uint32_t>* word_ = nullptr; // in the page: how many gates the host has opened; wraps around
    std::uint32_t promised_ = 0;                 // how many it is to open
    bool waiting_ = false;                       // fewer than that
    bool gave_up_ = false;                       // since `begin`: what is to open is opened at once
};

/// Opens gates, in order, on a thread of its own. Its end waits until all are open. It puts nothing on a stream: behind
/// a gate stand streams that share a queue of the device with any other, and what had to pass there would never pass.
class ArenaGates::Opening {
public:
    /// Bytes that have to be here before the word comes to `value`.
    struct Part {
        Ticket* ticket;
        Range range;
        std::uint32_t value;
    };
    /// A gate that the word opens when it comes to `value`.
    struct Closed {
        std::shared_ptr<GateMark> gate;
        std::uint32_t value;
    };

    Opening(ArenaGates& gates, std::vector<Part> parts, std::vector<Closed> closed);
    Opening(const Opening&) = delete;
    Opening& operator=(const Opening&) = delete;
    ~Opening() { crew_.join(); }

    /// Records the events of its gates, behind waits for the word. Once nothing else of the same operation has to wait
    /// for kernels, which might stand behind these. Throws as `record`; it is begun once.
    void start();
    /// Waits until all gates are open. Answers the first failure, after which they opened too soon.
    Status wait() noexcept;

private:
    void run() noexcept;
    [[nodiscard]] Status open_each() noexcept;

    ArenaGates& gates_;
    std::vector<Part> parts_;
    std::vector<Closed> closed_; // in order
    Status status_;
    Crew crew_; // last: it is joined before the rest dies
};

} // namespace detail

} // namespace memsaver::inline v0_2

#ifndef MEMSAVER_COMPILED
#include "memsaver/arena/gates.ipp"
#endif
