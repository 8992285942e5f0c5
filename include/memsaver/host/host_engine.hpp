// The simulated device's engine: streams with threads of their own, captures and graphs.
#pragma once

#include "memsaver/core/thread_mark.hpp"
#include "memsaver/core/time_limit.hpp"
#include "memsaver/driver/system_limits.hpp"
#include "memsaver/host/host_memory.hpp"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

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
    HostRange range;
    void* to_host = nullptr;
    const void* from_host = nullptr;
    std::shared_ptr<std::function<void()>> kernel; // shared with the graphs that replay it
    std::vector<HostMark> marks;                   // of a `follow`
    std::weak_ptr<HostEvent> outside;              // of a `follow_outside` in a graph: each launch reads its current
                                                   // marks
    std::uint64_t pinned = 0;

    [[nodiscard]] static HostWork on(HostRange range, Kind kind) noexcept;
    /// The access to its memory; for a kernel, the access that it may make.
    [[nodiscard]] HostAccess access() const noexcept;
    /// Runs the work. Returns false if a kernel threw, which it must not do.
    [[nodiscard]] bool run() const noexcept;
    /// Returns whether the work only waits for marks.
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
    std::vector<HostStream*> streams;
    std::vector<HostWork> calls; // in recording order, which is valid for every stream concerned
};

struct HostGraph {
    std::vector<HostWork> calls;
};

} // namespace detail

/// A queue of work, and the thread that runs it, which starts with the first work and ends after a second without any.
struct HostStream {
    static constexpr std::uint64_t all = std::numeric_limits<std::uint64_t>::max();

    std::condition_variable wake;
    std::deque<detail::HostWork> queue; // the first has the number `completed` + 1
    std::uint64_t submitted = 0;
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
    /// Returns whether the running work is not a kernel of the program.
    [[nodiscard]] bool copying() const noexcept { return busy && queue.front().kind != detail::HostWork::Kind::kernel; }
};

/// Points in one or more streams. An event without marks has completed.
struct HostEvent {
    std::vector<detail::HostMark> marks;
    std::shared_ptr<detail::HostCapture> captured; // recorded in a capture: a graph node, not a point in time
};

namespace detail {

class HostCaptures {
public:
    /// Opens a capture. Strong exception guarantee: throws std::bad_alloc.
    void begin(HostStream& stream, CaptureMode mode);

    /// Checks whether this thread may end the capture that began at `stream`.
    static Status may_end(const HostStream& stream) noexcept;

    /// Removes a closing stream and breaks its capture, which is returned.
    std::shared_ptr<HostCapture> leave(HostStream& stream) noexcept;

    /// Ends a capture and frees its streams. The caller holds a reference to the capture.
    void end(HostCapture& capture) noexcept;

    /// Breaks all captures, like marking or waiting for the whole device. Returns whether there were any.
    bool break_all() noexcept;

    /// Breaks captures like a blocking call on a thread that did not switch to relaxed mode.
    bool break_unrelaxed() noexcept;

private:
    template <class F>
    bool break_if(F concerned) noexcept {
        bool any = false;
        for (const auto& capture : open_) {
            if (!concerned(*capture)) continue;
            capture->broken = true;
            any = true;
        }
        return any;
    }

    std::vector<std::shared_ptr<HostCapture>> open_;
};

class HostGraphs {
public:
    /// Adds a graph and takes its recorded work. Strong exception guarantee: throws std::bad_alloc.
    GraphRef add(std::vector<HostWork>& recorded);

    /// Replaces the recorded work of `graph`: in place if the sequence of call kinds is the same, as drivers require
    /// for in-place updates, otherwise by a new graph. Returns the graph to be destroyed. Strong exception guarantee:
    /// throws std::bad_alloc.
    std::unique_ptr<HostGraph> update(GraphRef& graph, std::vector<HostWork>& recorded);

    [[nodiscard]] HostGraph* find(GraphRef graph) const noexcept;

    /// Removes and returns a graph; null if it does not exist.
    std::unique_ptr<HostGraph> take(GraphRef graph) noexcept;

    [[nodiscard]] std::size_t size() const noexcept { return graphs_.size(); }

private:
    std::unordered_map<const void*, std::unique_ptr<HostGraph>> graphs_;
};

class HostEngine {
public:
    using Lock = std::unique_lock<std::mutex>;

    HostEngine(std::size_t capacity, const HostDriverOptions& options)
        : options_{options}, memory_{capacity, options, violations_}, default_stream_{new_stream()} {}

    /// Drops work that has not started, and waits for work that has.
    ~HostEngine();
    HostEngine(const HostEngine&) = delete;
    HostEngine& operator=(const HostEngine&) = delete;

    /// Calls `f(lock)` under the lock unless the machine is lost. Exceptions become a status.
    template <class F>
    Status guarded(F f) noexcept {
        try {
            Lock lock{mutex_};
            return lost_ ? HostStatus::gone : f(lock);
        } catch (const std::system_error&) { // of std::thread
            return SystemLimits::no_thread;
        } catch (...) { // bad_alloc
            return HostStatus::out_of_host_memory;
        }
    }

    /// Calls `f()` under the lock, on a lost machine too; may return any type.
    template <class F>
    auto locked(F f) {
        const Lock lock{mutex_};
        return f();
    }

    void lose() noexcept;

    // The functions below are called under the lock.

    /// Stalls the copy engines until that time.
    void stall_copies(std::chrono::steady_clock::time_point until) noexcept { stalled_until_ = until; }
    [[nodiscard]] std::chrono::steady_clock::time_point stalled_until() const noexcept { return stalled_until_; }

    HostMemory& memory() noexcept { return memory_; }
    HostViolations& violations() noexcept { return violations_; }
    const std::shared_ptr<HostStream>& default_stream() const noexcept { return default_stream_; }

    /// Finds the open stream `native`; null if there is none.
    std::shared_ptr<HostStream> find(const void* native) const noexcept;

    std::size_t stream_count() const noexcept { return streams_.size(); }

    HostStream* open();

    /// Closes a stream. Pending work still runs; a hold is removed.
    void close(const std::shared_ptr<HostStream>& stream);

    void hold(HostStream& stream, bool yes) noexcept;

    /// Enqueues `work` and marks its memory as in use.
    void push(HostStream& stream, HostWork work);

    /// Returns a mark at the current end of the stream.
    static HostMark mark(const std::shared_ptr<HostStream>& stream) { return {stream, stream->submitted}; }

    /// Returns marks at the current end of every stream with unfinished work.
    std::vector<HostMark> mark_all();

    static bool passed(const std::vector<HostMark>& marks) noexcept;

    /// With the option `late`: allows all work to start that `marks` depend on.
    void want(const std::vector<HostMark>& marks) noexcept;

    Status wait(Lock& lock, const std::vector<HostMark>& marks);

    /// Called when memory in `range` is removed under unfinished work: work that has not started will not run. Returns
    /// whether any is already running.
    bool invalidate_work(const char* what, HostRange range) noexcept;

private:
    std::shared_ptr<HostStream> new_stream() const;

    template <class F>
    void each_stream(F f) noexcept {
        f(*default_stream_);
        for (const auto& [native, stream] : streams_) f(*stream);
        for (const auto& stream : closing_) f(*stream);
    }

    void wake_all() noexcept;

    void mark_lost() noexcept;

    void fault(const char* what, HostRange where) noexcept;

    void want(const HostMark& mark) noexcept;

    /// Joins the threads of closed streams that have completed.
    void reap() noexcept;

    /// The thread function of a stream.
    void serve(HostStream& stream) noexcept;

    void serve_first(HostStream& stream, Lock& lock) noexcept;

    bool running_on(HostRange range) noexcept;

    std::mutex mutex_;
    std::condition_variable progress_; // work has completed, or the machine is lost
    const HostDriverOptions options_;
    HostViolations violations_;
    HostMemory memory_;
    std::shared_ptr<HostStream> default_stream_;
    std::unordered_map<const void*, std::shared_ptr<HostStream>> streams_;
    std::vector<std::shared_ptr<HostStream>> closing_;
    std::chrono::steady_clock::time_point stalled_until_{};
    bool lost_ = false;
    bool stopping_ = false;
};

} // namespace detail

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/host/host_engine.ipp"
#endif
