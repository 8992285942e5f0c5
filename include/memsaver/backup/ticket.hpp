// A claim on bytes that are on their way. Does not know what moves them.
#pragma once

#include "memsaver/core/form.hpp"
#include "memsaver/core/handles.hpp"
#include "memsaver/core/status.hpp"

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <utility>

namespace memsaver::inline v0_2 {

/// Told `(bytes done, bytes to do)`, from any thread. What it throws is swallowed.
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

/// Work that has been enqueued and goes on by itself. Move-only; its destructor waits, so that no byte moves behind
/// the back of whoever holds the memory. A default Ticket stands for nothing to do, and is done. Any thread may ask and
/// wait, several at once.
class Ticket {
public:
    /// What moves the bytes. `wait` may be called more than once, from one thread at a time, and answers the same; the
    /// others may be called from several threads at once.
    class Work {
    public:
        Work() = default;
        Work(const Work&) = delete;
        Work& operator=(const Work&) = delete;
        virtual ~Work() = default;
        /// Whether all of it has arrived; never waits.
        virtual Status query(bool& done) noexcept = 0;
        /// Waits until all of it has arrived, or until what has not never will. May throw an Error, where no status
        /// says what is wrong.
        virtual Status wait() = 0;
        /// Makes later work of `stream` start after the bytes of `range` have arrived; does not wait for the rest.
        virtual Status follow(StreamRef stream, Range range) noexcept = 0;
        /// Waits until the bytes of `range` have arrived; for the rest too, unless overridden. May throw as `wait`.
        virtual Status wait_for(Range) { return wait_in_turn(); }
        /// Whether all of it is on its streams, so that nothing but the device can keep it from arriving.
        [[nodiscard]] virtual bool enqueued() const noexcept { return false; }
        /// When the last bytes of `range` come: the number of their part, in the order in which the parts are begun.
        [[nodiscard]] virtual std::size_t place(Range) const noexcept { return 0; }
        /// Whether bytes come by kernels of the device, which a stream that waits for the host might stand in the way
        /// of: streams share the few queues that the hardware has.
        [[nodiscard]] virtual bool by_kernels() const noexcept { return false; }
        /// Does here what an executor of the program's has not begun: its threads may all wait for who calls this.
        virtual void help() noexcept {}
        /// Nobody wants it any more: what is not on its streams need not go, and `wait` then answers a failure. Any
        /// time, any thread; does not wait.
        virtual void cancel() noexcept {}

    private:
        friend class Ticket;
        Status wait_in_turn();

        std::atomic<bool> waiting_{false}; // a thread is in `wait`; no mutex, whose header every user would read
    };

    Ticket() = default;
    /// `bytes`: how many are moved or filled, for the report.
    Ticket(std::unique_ptr<Work> work, std::size_t bytes) noexcept : work_{std::move(work)}, bytes_{bytes} {}

    Ticket(Ticket&& other) noexcept : work_{std::move(other.work_)}, bytes_{std::exchange(other.bytes_, 0)} {}
    Ticket& operator=(Ticket&& other) noexcept;
    ~Ticket() { wait_quietly(); }

    /// Bytes that the work moves or fills in all, whether they have arrived or not.
    [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
    // See Work for what these answer.
    Status query(bool& done) noexcept;
    Status wait();
    /// Waits until the bytes of `range` have arrived.
    Status wait_for(Range range) { return work_ ? work_->wait_for(range) : Status{}; }
    /// Whether nothing but the device can keep the bytes from arriving.
    [[nodiscard]] bool enqueued() const noexcept { return !work_ || work_->enqueued(); }
    /// See Work::place.
    [[nodiscard]] std::size_t place(Range range) const noexcept { return work_ ? work_->place(range) : 0; }
    /// Whether bytes come by kernels of the device.
    [[nodiscard]] bool by_kernels() const noexcept { return work_ && work_->by_kernels(); }
    Status follow(StreamRef stream, Range range) noexcept { return work_ ? work_->follow(stream, range) : Status{}; }
    /// See Work::help.
    void help() noexcept {
        if (work_) work_->help();
    }
    /// Nobody wants the bytes any more.
    void cancel() noexcept {
        if (work_) work_->cancel();
    }

private:
    void wait_quietly() noexcept;

    std::unique_ptr<Work> work_;
    std::size_t bytes_ = 0;
};

} // namespace memsaver::inline v0_2

#ifndef MEMSAVER_COMPILED
#include "memsaver/backup/ticket.ipp"
#endif
