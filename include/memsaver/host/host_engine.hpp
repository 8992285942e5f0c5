// The simulated device's engine: streams with threads of their own, captures and graphs.
#pragma once

#include "memsaver/core/function_ref.hpp"
#include "memsaver/core/thread_mark.hpp"
#include "memsaver/core/vector.hpp"
#include "memsaver/driver/system_limits.hpp"
#include "memsaver/host/host_memory.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>

namespace memsaver::inline v0_3 {

namespace detail {

/// A point in a stream: passed when `position` pieces of work are complete.
struct HostMark {
    std::shared_ptr<HostStream> stream;
    std::uint64_t position = 0;
};

/// One piece of work, and the device memory that it uses.
struct HostWork {
    enum class Kind : unsigned char { copy_to_host, copy_to_device, fill, kernel, follow, follow_outside };

    Kind kind = Kind::kernel;
    unsigned char byte = 0;
    bool doomed = false;    // its memory was unmapped before it ran
    bool reads = false;     // a kernel that writes no device memory
    bool by_engine = false; // a copy that waits while the copy engines are stalled
    Range range;
    void* host = nullptr;                          // of a copy
    std::shared_ptr<std::function<void()>> kernel; // shared with the graphs that replay it
    Vector<HostMark> marks;                        // of a `follow`
    std::weak_ptr<HostEvent> outside;              // of a `follow_outside` in a graph: each launch reads its current
                                                   // marks

    [[nodiscard]] static HostWork on(Range range, Kind kind) noexcept {
        HostWork work;
        work.kind = kind;
        work.range = range;
        return work;
    }
    [[nodiscard]] static HostWork copy(Direction direction, Address to, Address from, std::size_t bytes) noexcept {
        const bool out = direction == Direction::out;
        HostWork work = on({out ? from : to, bytes}, out ? Kind::copy_to_host : Kind::copy_to_device);
        work.host = reinterpret_cast<void*>(out ? to : from); // NOLINT(performance-no-int-to-ptr)
        return work;
    }
    /// The access to its memory; for a kernel, the access that it may make.
    [[nodiscard]] HostAccess access() const noexcept {
        return reads || kind == Kind::copy_to_host ? HostAccess::read : HostAccess::write;
    }
    /// Runs the work. Returns false if a kernel threw, which it must not do.
    [[nodiscard]] bool run() const noexcept {
        void* const device = reinterpret_cast<void*>(range.address);
        switch (kind) {
        case Kind::copy_to_host: std::memcpy(host, device, range.bytes); break;
        case Kind::copy_to_device: std::memcpy(device, host, range.bytes); break;
        case Kind::fill: std::memset(device, byte, range.bytes); break;
        case Kind::follow:
        case Kind::follow_outside: break;
        case Kind::kernel: try { (*kernel)();
            } catch (...) {
                return false;
            }
        }
        return true;
    }
    [[nodiscard]] bool waits() const noexcept { return kind == Kind::follow || kind == Kind::follow_outside; }
};

/// The work recorded between the begin and end of a capture. Streams join it by following an event recorded in it;
/// whether they rejoin the origin before its end is not checked.
struct HostCapture {
    HostStream* origin = nullptr;
    CaptureMode mode = CaptureMode::global;
    detail::ThreadMark thread;
    bool open = true;
    bool broken = false;
    Vector<HostWork> calls; // in recording order, which is valid for every stream concerned
};

using HostGraph = Vector<HostWork>;

/// Whether a graph can be updated to this work in place: drivers require the same sequence of kinds of calls.
[[nodiscard]] inline bool fits(const HostGraph& graph, const HostGraph& recorded) noexcept {
    bool alike = graph.size() == recorded.size();
    for (std::size_t i = 0; alike && i < recorded.size(); ++i) alike = graph[i].kind == recorded[i].kind;
    return alike;
}

} // namespace detail

/// A queue of work, and the thread that runs it, which starts with the first work and ends after a second without any.
struct HostStream {
    static constexpr std::uint64_t all = std::numeric_limits<std::uint64_t>::max();

    std::condition_variable wake;
    std::deque<detail::HostWork> queue; // the first has the number `completed` + 1
    std::uint64_t completed = 0;
    std::uint64_t allowed = all; // the highest number of work that may start
    bool busy = false;           // the first in the queue is running
    bool held = false;
    bool closing = false;
    bool finished = false; // the thread has completed, and is to be joined
    std::shared_ptr<detail::HostCapture> capture;
    std::thread worker;

    /// Returns whether the first work in the queue may run: the stream is not held, and the number is allowed.
    [[nodiscard]] bool can_run() const noexcept { return !queue.empty() && !held && completed < allowed; }
    /// Returns whether its capture can only be ended.
    [[nodiscard]] bool broken() const noexcept { return capture != nullptr && capture->broken; }
    /// Returns whether a copy or fill runs.
    [[nodiscard]] bool copying() const noexcept { return busy && queue.front().kind != detail::HostWork::Kind::kernel; }
};

/// Points in one or more streams. An event without marks has completed.
struct HostEvent {
    detail::Vector<detail::HostMark> marks;
    std::shared_ptr<detail::HostCapture> captured; // recorded in a capture: a graph node, not a point in time
};

namespace detail {

/// Returns the place of an object in a list of owners, or the list's end.
template <class Owners>
auto place_of(Owners& owners, const void* object) noexcept {
    auto place = owners.begin();
    while (place != owners.end() && place->get() != object) ++place;
    return place;
}

/// Calls `f` and returns its Status: ok if it returns nothing.
template <class F, class... Arguments>
Status status_of(F& f, Arguments&&... arguments) {
    if constexpr (std::is_void_v<decltype(f(arguments...))>) {
        f(arguments...);
        return HostStatus::ok;
    } else {
        return f(arguments...);
    }
}

class HostEngine {
public:
    using Lock = std::unique_lock<std::mutex>;

    HostEngine(std::size_t capacity, const HostDriverOptions& options)
        : options_{options}, memory_{capacity, options}, default_stream_{new_stream()} {}

    /// Drops work that has not started, and waits for work that has.
    ~HostEngine() {
        {
            const Lock lock{mutex_};
            stopping_ = true;
            wake_all();
        }
        each_stream([](HostStream& stream) {
            if (!stream.worker.joinable()) return;
            // After pthread_exit in main, the last thread that ends runs the program's exit.
            if (stream.worker.get_id() == std::this_thread::get_id())
                stream.worker.detach();
            else
                stream.worker.join();
        });
    }
    HostEngine& operator=(HostEngine&&) = delete;

    /// Calls `f(lock)` under the lock unless the machine is lost; `f` may return nothing. Exceptions become a status.
    template <class F>
    Status guarded(F f) noexcept {
        return guarded_call([&](Lock& lock) { return status_of(f, lock); });
    }

    /// Calls `f()` under the lock, on a lost machine too; may return any type.
    template <class F>
    auto locked(F f) {
        const Lock lock{mutex_};
        return f();
    }

    void lose() noexcept {
        const Lock lock{mutex_};
        mark_lost();
    }

    // The functions below are called under the lock.

    /// Opens a capture. Strong exception guarantee: throws std::bad_alloc.
    static void begin_capture(HostStream& stream, CaptureMode mode) {
        auto capture = new_shared<HostCapture>();
        capture->origin = &stream;
        capture->mode = mode;
        capture->thread = detail::ThreadMark::here();
        stream.capture = std::move(capture);
    }
    static Status may_end(const HostStream& stream) noexcept {
        const HostCapture* const capture = stream.capture.get();
        if (capture == nullptr || capture->origin != &stream) return HostStatus::illegal_state;
        const bool here = capture->mode == CaptureMode::relaxed || capture->thread.is_here();
        return here ? HostStatus::ok : HostStatus::wrong_thread;
    }
    /// Ends a capture and frees its streams. The caller holds a reference to the capture.
    void end_capture(HostCapture& capture) noexcept {
        capture.open = false;
        each_stream([&](HostStream& stream) {
            if (stream.capture.get() == &capture) stream.capture = nullptr;
        });
    }
    /// Takes a closing stream out of its capture, which breaks, and is returned.
    std::shared_ptr<HostCapture> leave_capture(HostStream& stream) noexcept {
        std::shared_ptr<HostCapture> capture = std::move(stream.capture);
        if (capture == nullptr) return capture;
        capture->broken = true;
        if (capture->origin == &stream) end_capture(*capture);
        return capture;
    }
    /// Breaks all captures, like marking or waiting for the whole device. Returns whether there were any.
    bool break_captures() noexcept {
        return break_if([](const HostCapture&) { return true; });
    }
    /// Breaks captures like a blocking call on a thread that did not switch to relaxed mode.
    bool break_unrelaxed() noexcept {
        return break_if([here = ::pthread_self()](const HostCapture& capture) {
            return capture.mode == CaptureMode::global ||
                   (capture.mode == CaptureMode::thread_local_ && capture.thread.is(here));
        });
    }

    void stall_copies(std::chrono::steady_clock::time_point until) noexcept { stalled_until_ = until; }
    [[nodiscard]] std::chrono::steady_clock::time_point stalled_until() const noexcept { return stalled_until_; }

    HostMemory& memory() noexcept { return memory_; }
    const std::shared_ptr<HostStream>& default_stream() const noexcept { return default_stream_; }

    /// Finds the open stream `native`; null if there is none.
    std::shared_ptr<HostStream> find(const void* native) const noexcept {
        if (native == nullptr) return default_stream_;
        const auto found = place_of(streams_, native);
        return found == streams_.end() || (*found)->closing ? nullptr : *found;
    }

    std::size_t stream_count() const noexcept {
        std::size_t open = 0;
        for (const auto& stream : streams_) open += stream->closing ? 0U : 1U;
        return open;
    }

    HostStream* open() {
        reap();
        return streams_.emplace_back(new_stream()).get();
    }

    /// Closes a stream. Pending work still runs; a hold is removed.
    void close(const std::shared_ptr<HostStream>& stream) {
        stream->closing = true;
        stream->held = false;
        want(mark(stream));
        stream->wake.notify_all();
        reap();
    }

    void hold(HostStream& stream, bool yes) noexcept {
        stream.held = yes;
        stream.wake.notify_all();
    }

    /// Enqueues `work` and marks its memory as in use.
    void push(HostStream& stream, HostWork work) {
        if (stream.finished) stream.worker.join();
        stream.finished = false;
        if (!stream.worker.joinable()) stream.worker = std::thread{[this, &stream] { serve(stream); }};
        stream.queue.push_back(std::move(work));
        if (stream.can_run()) stream.wake.notify_one();
    }

    static HostMark mark(const std::shared_ptr<HostStream>& stream) {
        return {stream, stream->completed + stream->queue.size()};
    }

    /// Returns marks at the current end of every stream with unfinished work.
    Vector<HostMark> mark_all() {
        Vector<HostMark> marks;
        const auto add = [&](const std::shared_ptr<HostStream>& stream) {
            if (!stream->queue.empty()) marks.push_back(mark(stream));
        };
        add(default_stream_);
        for (const auto& stream : streams_) add(stream);
        return marks;
    }

    static bool passed(const Vector<HostMark>& marks) noexcept {
        return all_in(marks, [](const HostMark& mark) { return mark.stream->completed >= mark.position; });
    }

    /// With the option `late`: allows all work to start that `marks` depend on.
    void want(const Vector<HostMark>& marks) noexcept {
        for (const HostMark& mark : marks) want(mark);
    }

    Status wait(Lock& lock, const Vector<HostMark>& marks) {
        want(marks);
        // A lost machine completes no more work, but its running copies still use the caller's memory.
        progress_.wait(lock, [&] {
            return passed(marks) ||
                   (lost_ && !any_in(marks, [](const HostMark& mark) { return mark.stream->copying(); }));
        });
        return lost_ ? HostStatus::gone : HostStatus::ok;
    }

    /// Called when memory in `range` is removed, which is a fault if unfinished work uses it: what has not started will
    /// not run. Not ok if any is running, and so cannot lose its memory.
    Status invalidate_work(const char* what, Range range) noexcept {
        bool running = false;
        bool any = false;
        each_stream([&](HostStream& stream) {
            for (HostWork& work : stream.queue) {
                if (work.doomed || !share_bytes(work.range, range)) continue;
                any = true;
                if (stream.busy && &work == &stream.queue.front())
                    running = true;
                else
                    work.doomed = true;
            }
        });
        if (any) fault(what, range);
        return !running ? HostStatus::ok : lost_ ? HostStatus::gone : HostStatus::invalid_value;
    }

private:
    Status guarded_call(FunctionRef<Status(Lock&)> f) noexcept {
        try {
            Lock lock{mutex_};
            return lost_ ? HostStatus::gone : f(lock);
        } catch (const std::system_error&) { // of std::thread
            return SystemLimits::no_thread;
        } catch (...) { // bad_alloc
            return HostStatus::out_of_host_memory;
        }
    }
    std::shared_ptr<HostStream> new_stream() const {
        auto stream = new_shared<HostStream>();
        if (options_.late) stream->allowed = 0;
        return stream;
    }

    template <class F>
    void each_stream(F f) noexcept {
        f(*default_stream_);
        for (const auto& stream : streams_) f(*stream);
    }

    template <class F>
    bool break_if(F concerned) noexcept {
        bool any = false;
        each_stream([&](HostStream& stream) {
            if (stream.capture == nullptr || !concerned(*stream.capture)) return;
            stream.capture->broken = true;
            any = true;
        });
        return any;
    }

    void wake_all() noexcept {
        each_stream([](HostStream& stream) { stream.wake.notify_all(); });
        progress_.notify_all();
    }

    void mark_lost() noexcept {
        lost_ = true;
        wake_all();
    }

    void fault(const char* what, Range where) noexcept {
        memory_.note(what, where);
        if (!options_.survive_faults) mark_lost();
    }

    void want(const HostMark& mark) noexcept {
        HostStream& stream = *mark.stream;
        if (stream.allowed >= mark.position) return; // also ends the recursion, which visits each stream once
        const std::uint64_t first = std::max(stream.allowed, stream.completed);
        stream.allowed = mark.position;
        for (std::uint64_t number = first; number < mark.position; ++number) {
            const std::uint64_t index = number - stream.completed;
            if (index < stream.queue.size()) want(stream.queue[index].marks);
        }
        stream.wake.notify_all();
    }

    /// Drops closed streams that have no thread, or one that has completed, which is joined.
    void reap() noexcept {
        erase_in(streams_, [](const std::shared_ptr<HostStream>& stream) {
            if (!stream->closing || (stream->worker.joinable() && !stream->finished)) return false;
            if (stream->worker.joinable()) stream->worker.join();
            return true;
        });
    }

    void serve(HostStream& stream) noexcept {
        Lock lock{mutex_};
        // A thread without work ends, and the next work starts another: a program whose main thread has called
        // pthread_exit ends with its last thread.
        constexpr std::chrono::seconds rest{1};
        while (true) {
            const bool woken = stream.wake.wait_for(lock, rest, [&] {
                return stopping_ || stream.can_run() || (lost_ && !stream.queue.empty()) ||
                       (stream.closing && stream.queue.empty());
            });
            if (!woken && stream.queue.empty()) break;
            if (!woken) continue; // its work is held, or late
            if (stopping_ || lost_) {
                // Kernel objects of the program must not be destroyed under the lock.
                std::deque<HostWork> dropped;
                dropped.swap(stream.queue);
                lock.unlock();
                dropped.clear();
                lock.lock();
            }
            if (stopping_ || (stream.closing && stream.queue.empty())) break;
            if (!stream.queue.empty() && !lost_) serve_first(stream, lock);
        }
        stream.finished = true;
    }

    void serve_first(HostStream& stream, Lock& lock) noexcept {
        HostWork& work = stream.queue.front(); // its address is stable while others are pushed
        const auto stalled = [&] { return work.by_engine && std::chrono::steady_clock::now() < stalled_until_; };
        while (stalled() && !stopping_ && !lost_) {
            const auto until = stalled_until_;
            stream.wake.wait_until(lock, until);
        }
        if (stopping_ || lost_) return;
        stream.busy = true;
        if (work.waits()) {
            const auto over = [&] { return stopping_ || lost_ || passed(work.marks); };
            progress_.wait(lock, over);
        } else if (!work.doomed) { // otherwise the violation has been
                                   // recorded
            if (!memory_.accessible(work.range, work.access())) {
                fault(
                    "work on memory that is not mapped, or without access: paused, freed, or elastic and not committed",
                    work.range);
            } else {
                lock.unlock();
                const bool well = work.run();
                lock.lock();
                if (!well) fault("a kernel threw an exception", work.range);
            }
        }
        HostWork done = std::move(work);
        stream.queue.pop_front();
        stream.busy = false;
        ++stream.completed;
        progress_.notify_all();
        if (done.kernel == nullptr) return;
        lock.unlock();
        done.kernel.reset();
        lock.lock();
    }

    std::mutex mutex_;
    std::condition_variable progress_; // work has completed, or the machine is lost
    const HostDriverOptions options_;
    HostMemory memory_;
    std::shared_ptr<HostStream> default_stream_;
    Vector<std::shared_ptr<HostStream>> streams_; // and those that are closing
    std::chrono::steady_clock::time_point stalled_until_{};
    bool lost_ = false;
    bool stopping_ = false;
};

} // namespace detail

} // namespace memsaver::inline v0_3
