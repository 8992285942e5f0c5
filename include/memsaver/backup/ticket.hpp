// A ticket: a handle to bytes in flight. Knows nothing about what moves them.
#pragma once

#include "memsaver/core/handles.hpp"
#include "memsaver/core/pointers.hpp"
#include "memsaver/core/status.hpp"

#include <atomic>
#include <cstddef>
#include <functional>
#include <utility>

namespace memsaver::inline v0_3 {

/// Receives `(bytes done, bytes to do)` on any thread. Exceptions that it throws are swallowed.
using ProgressSink = std::function<void(std::size_t, std::size_t)>;

namespace detail {

class Progress {
public:
    Progress(ProgressSink sink, std::size_t total) : sink_{std::move(sink)}, total_{total} {}

    void add(std::size_t bytes) noexcept;
    [[nodiscard]] std::size_t total() const noexcept { return total_; }

private:
    ProgressSink sink_;
    std::size_t total_;
    std::atomic<std::size_t> done_{0};
};

} // namespace detail

/// A handle to work that has been started and runs on its own. Move-only. The destructor waits, so that no byte moves
/// after the ticket is gone. A default-constructed Ticket stands for no work and is done. Thread-safe: several threads
/// may query and wait at once.
class Ticket {
public:
    /// The work that moves the bytes. `wait` is called from one thread at a time, possibly more than once, and must
    /// return the same result each time. The other methods may be called from several threads at once.
    class Work {
    public:
        Work& operator=(Work&&) = delete;
        virtual ~Work() = default;
        /// Sets `done` to whether all bytes have arrived. Does not wait. Unless overridden, they have once a `wait` has
        /// returned.
        virtual Status query(bool& done) noexcept {
            done = waited_.load();
            return {};
        }
        /// Waits until all bytes have arrived, or until those that have not can no longer arrive. May throw an Error if
        /// no Status can describe the failure.
        virtual Status wait() = 0;
        /// Makes later work of `stream` wait for the bytes of `range`, and only for those. Unless overridden, the
        /// calling thread waits for them (`wait_for`).
        virtual Status follow(StreamRef /*stream*/, Range range) noexcept {
            try {
                return wait_for(range);
            } catch (...) { // `wait` throws it again
                return {StatusKind::other, 0, "the bytes did not arrive"};
            }
        }
        /// Waits until the bytes of `range` have arrived; for nothing if it is empty. Runs on the calling thread the
        /// work that a program's executor has not started: the executor's threads may all be waiting for the caller.
        /// Unless overridden, it waits for all bytes. May throw as `wait` does.
        virtual Status wait_for(Range range) { return range.bytes == 0 ? Status{} : wait_in_turn(); }
        /// Returns whether all of the work is already on its streams, so that only the device can keep it from
        /// completing.
        [[nodiscard]] virtual bool enqueued() const noexcept { return false; }
        /// Cancels the work: the parts that are not on a stream yet may be skipped, and `wait` then returns a failure.
        /// Callable at any time from any thread. Does not wait.
        virtual void cancel() noexcept {}

    private:
        friend class Ticket;
        Status wait_in_turn();

        std::atomic<bool> waiting_{false}; // a thread is in `wait`; no mutex, to avoid its header
        std::atomic<bool> waited_{false};  // a `wait` has returned
    };

    Ticket() = default;
    /// `work`: also from a std::unique_ptr. `bytes`: how many bytes it moves or fills, for the report.
    Ticket(detail::UniquePtr<Work> work, std::size_t bytes) noexcept : work_{std::move(work)}, bytes_{bytes} {}

    Ticket(Ticket&& other) noexcept : work_{std::move(other.work_)}, bytes_{std::exchange(other.bytes_, 0)} {}
    Ticket& operator=(Ticket&& other) noexcept;
    ~Ticket() { wait_quietly(); }

    /// Returns the total number of bytes that the work moves or fills, whether or not they have arrived.
    [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
    /// See Work::query.
    Status query(bool& done) noexcept;
    /// See Work::wait.
    Status wait();
    /// Waits until the bytes of `range` have arrived.
    Status wait_for(Range range) { return work_ ? work_->wait_for(range) : Status{}; }
    /// Returns whether only the device can keep the bytes from arriving.
    [[nodiscard]] bool enqueued() const noexcept { return !work_ || work_->enqueued(); }
    /// See Work::follow.
    Status follow(StreamRef stream, Range range) noexcept { return work_ ? work_->follow(stream, range) : Status{}; }
    /// See Work::cancel.
    void cancel() noexcept {
        if (work_) work_->cancel();
    }

private:
    void wait_quietly() noexcept;

    detail::UniquePtr<Work> work_;
    std::size_t bytes_ = 0;
};

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/backup/ticket.ipp"
#endif
