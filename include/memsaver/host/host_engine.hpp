// The simulated device's engine: streams that run late on threads of their own, events, captures and graphs.
#pragma once

#include "memsaver/driver/neighbours.hpp"
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
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

namespace memsaver::inline v0_2 {

namespace detail {

/// A point in a stream: passed when so many pieces of work are complete.
struct HostMark {
    std::shared_ptr<HostStream> stream;
    std::uint64_t position = 0;
};

/// One piece of work, and the device memory that it touches.
struct HostWork {
    enum class Kind : unsigned char { copy_to_host, copy_to_device, fill, kernel, follow, follow_outside, wait_word };

    Kind kind = Kind::kernel;
    unsigned char byte = 0;
    bool doomed = false;    // its memory was unmapped before it ran
    bool by_engine = false; // a copy that stands still with the copy engines
    HostRange range;
    void* to_host = nullptr;
    const void* from_host = nullptr;
    std::shared_ptr<std::function<void()>> kernel; // shared with the graphs that replay it
    std::vector<HostMark> marks;                   // of a follow
    std::weak_ptr<HostEvent> outside;              // of a follow in a graph: each launch looks for its marks
    const std::atomic<std::uint32_t>* word = nullptr;
    std::uint32_t value = 0; // that the word must come to
    std::uint64_t pinned = 0;

    [[nodiscard]] static HostWork on(HostRange range, Kind kind) noexcept;
    /// What it does with its memory; of a kernel, what it may.
    [[nodiscard]] HostAccess access() const noexcept;
    /// Whether it ended well: a kernel must not throw.
    [[nodiscard]] bool run() const noexcept;
    /// Whether it only waits: for marks, or for a word.
    [[nodiscard]] bool waits() const noexcept {
        return kind == Kind::follow || kind == Kind::follow_outside || kind == Kind::wait_word;
    }
    /// Whether the host has brought its word to its value.
    [[nodiscard]] bool word_set() const noexcept {
        return word == nullptr || static_cast<std::int32_t>(word->load() - value) >= 0;
    }
};

/// What was recorded between begin and end of a capture. Streams join it by following an event recorded in it; that
/// they come back before its end is not checked.
struct HostCapture {
    HostStream* origin = nullptr;
    CaptureMode mode = CaptureMode::global;
    std::thread::id thread;
    bool open = true;
    bool broken = false;
    std::vector<HostStream*> streams;
    std::vector<HostWork> calls; // one after another, which is an order that every stream concerned can live with
};

struct HostGraph {
    std::vector<HostWork> calls;
};

} // namespace detail

/// A queue and the thread that runs it, from the first work on.
struct HostStream {
    static constexpr std::uint64_t all = std::numeric_limits<std::uint64_t>::max();

    std::condition_variable wake;
    std::deque<detail::HostWork> queue; // the first is number `completed` + 1
    std::uint64_t submitted = 0;
    std::uint64_t completed = 0;
    std::uint64_t allowed = all; // up to which number work may start
    bool busy = false;           // the first is running
    bool held = false;
    bool closing = false;
    bool finished = false; // the thread has nothing more to do
    std::shared_ptr<detail::HostCapture> capture;
    std::thread worker;

    /// Whether the first in its queue may run: nobody holds the stream, and that number is allowed.
    [[nodiscard]] bool can_run() const noexcept { return !queue.empty() && !held && completed < allowed; }
    /// Whether something is running that is no kernel of the program's.
    [[nodiscard]] bool copying() const noexcept { return busy && queue.front().kind != detail::HostWork::Kind::kernel; }
};

/// Points in one or more streams; none is passed.
struct HostEvent {
    std::vector<detail::HostMark> marks;
    std::shared_ptr<detail::HostCapture> captured; // recorded in a capture: a node of a graph and no point in time
};

namespace detail {

class HostCaptures {
public:
    /// Throws std::bad_alloc, having changed nothing.
    void begin(HostStream& stream, CaptureMode mode);

    /// Whether this thread may end the capture that began at `stream`.
    static Status may_end(const HostStream& stream) noexcept;

    /// A stream goes away and breaks the capture that it is in, which is answered.
    std::shared_ptr<HostCapture> leave(HostStream& stream) noexcept;

    /// Its streams are free again. The caller holds the capture.
    void end(HostCapture& capture) noexcept;

    /// As marking or waiting for the whole device does. Whether there were any.
    bool break_all() noexcept;

    /// As a call that may wait does on a thread that did not switch to relaxed mode.
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
    /// Takes what was recorded. Throws std::bad_alloc, having changed nothing.
    GraphRef add(std::vector<HostWork>& recorded);

    /// `graph` becomes what was recorded: itself if calls of the same kinds follow each other, as a driver that updates
    /// in place asks for, otherwise another one. Answers what is to be destroyed. Throws std::bad_alloc, having changed
    /// nothing.
    std::unique_ptr<HostGraph> update(GraphRef& graph, std::vector<HostWork>& recorded);

    [[nodiscard]] HostGraph* find(GraphRef graph) const noexcept;

    /// The graph, no longer one of these; null if there is no such graph.
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

    /// Work that has not begun is dropped; work that has is waited for.
    ~HostEngine();
    HostEngine(const HostEngine&) = delete;
    HostEngine& operator=(const HostEngine&) = delete;

    /// `f(lock)` on a machine that is not lost, under its lock; exceptions become a status.
    template <class F>
    Status guarded(F f) noexcept {
        try {
            Lock lock{mutex_};
            return lost_ ? HostStatus::gone : f(lock);
        } catch (...) { // bad_alloc, or no thread to be had
            return HostStatus::out_of_host_memory;
        }
    }

    /// The same for what is asked of a lost machine too, and answers other than a Status.
    template <class F>
    auto locked(F f) {
        const Lock lock{mutex_};
        return f();
    }

    void lose() noexcept;

    // What follows is called under the lock.

    /// Copies by the copy engines do not begin before that.
    void stall_copies(std::chrono::steady_clock::time_point until) noexcept { stalled_until_ = until; }
    [[nodiscard]] std::chrono::steady_clock::time_point stalled_until() const noexcept { return stalled_until_; }

    HostMemory& memory() noexcept { return memory_; }
    HostViolations& violations() noexcept { return violations_; }
    const std::shared_ptr<HostStream>& default_stream() const noexcept { return default_stream_; }

    /// The open stream at `native`, or nothing.
    std::shared_ptr<HostStream> find(const void* native) const noexcept;

    std::size_t stream_count() const noexcept { return streams_.size(); }

    HostStream* open();

    /// Pending work still runs, and nothing holds it back any more.
    void close(const std::shared_ptr<HostStream>& stream);

    void hold(HostStream& stream, bool yes) noexcept;

    /// Queues `work`, whose memory is from now on in use.
    void push(HostStream& stream, HostWork work);

    /// Where the stream stands now.
    static HostMark mark(const std::shared_ptr<HostStream>& stream) { return {stream, stream->submitted}; }

    /// Where every stream with unfinished work stands now.
    std::vector<HostMark> mark_all();

    static bool passed(const std::vector<HostMark>& marks) noexcept;

    /// On a machine whose work is late: somebody wants these passed, so what leads there may start.
    void want(const std::vector<HostMark>& marks) noexcept;

    Status wait(Lock& lock, const std::vector<HostMark>& marks);

    /// Memory in `range` goes away under work that is not done: that work will not run. Whether some is running
    /// already.
    bool doom(const char* what, HostRange range) noexcept;

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

    /// Joins the threads of closed streams that are done.
    void reap() noexcept;

    /// A stream's thread.
    void serve(HostStream& stream) noexcept;

    void serve_first(HostStream& stream, Lock& lock) noexcept;

    bool running_on(HostRange range) noexcept;

    std::mutex mutex_;
    std::condition_variable progress_; // some work is complete, or the machine is lost
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

class HostMachine {
public:
    HostMachine(std::size_t capacity, const HostDriverOptions& options)
        : pins{options.pin_limit}, engine_{capacity, options} {}

    HostPins pins;
    HostPools pools; // guarded by the lock
    Neighbours neighbours;

    void lose() noexcept { engine_.lose(); }
    bool owns(const void* native) noexcept;

    std::vector<std::string> violations();

    HostCounts counts() noexcept;

    /// `f(memory)`, under the lock.
    template <class F>
    Status with_memory(F f) noexcept {
        return engine_.guarded([&](auto&) { return f(engine_.memory()); });
    }

    Status stall_copies(std::chrono::nanoseconds duration) noexcept;
    /// The first call waits until the copy engines, which bring a kernel to the device, go on.
    void load_kernel() noexcept;

    Status unmap(HostRange range) noexcept;

    Status free_plain(Address address) noexcept;

    Status open_stream(StreamRef& out) noexcept;

    /// The stream for copies in one direction, opened by whoever asks first, and not counted as anybody's.
    Status lane(Direction direction, StreamRef& out) noexcept;

    Status close_stream(StreamRef ref) noexcept;

    Status hold(StreamRef ref, bool yes) noexcept;

    /// Queues or records `work`. Copies and fills are `checked`: their memory must be accessible now, as for CUDA's.
    /// Kernels and graphs find out when they run.
    Status submit(StreamRef ref, HostWork work, bool checked) noexcept;

    Status open_event(StreamRef near, EventRef& out) noexcept;

    Status close_event(EventRef ref) noexcept;

    Status record(EventRef ref, StreamRef stream_ref) noexcept;

    Status record_device(EventRef ref) noexcept;

    Status follow(StreamRef stream_ref, EventRef ref) noexcept;

    Status follow_outside(StreamRef stream_ref, EventRef ref) noexcept;

    /// Queues waiting for the word, which must lie in pinned pages: a GPU would not find it elsewhere.
    Status wait_word(StreamRef ref, const std::atomic<std::uint32_t>& word, std::uint32_t value) noexcept;

    Status query(EventRef ref, bool& passed) noexcept;

    Status wait(EventRef ref) noexcept;

    Status drain() noexcept;

    Status capturing(StreamRef ref, bool& yes) noexcept;

    Status begin_capture(StreamRef ref, CaptureMode mode) noexcept;

    Status end_capture(StreamRef ref, GraphRef& out) noexcept;

    Status update_graph(StreamRef ref, GraphRef& graph) noexcept;

    Status launch(GraphRef ref, StreamRef stream_ref) noexcept;

    Status close_graph(GraphRef ref) noexcept;

    /// What a call that may wait does to open captures when its thread did not switch to relaxed mode.
    Status call_unrelaxed() noexcept;

private:
    Status stranger(const char* what) noexcept;

    template <class F>
    Status with_stream(StreamRef ref, F f) noexcept {
        return engine_.guarded([&](auto&) {
            const std::shared_ptr<HostStream> stream = engine_.find(ref.native());
            return stream == nullptr ? stranger("use of what is not a stream") : f(stream);
        });
    }

    template <class F>
    Status with_event(EventRef ref, StreamRef stream_ref, F f) noexcept {
        return with_stream(stream_ref, [&](const auto& stream) {
            const auto found = events_.find(ref.native());
            return found == events_.end() ? stranger("use of what is not an event") : f(found->second, stream);
        });
    }

    /// Ends a capture; `keep(recorded)` unless it was broken. If that throws, the capture goes on.
    template <class Keep>
    Status finish_capture(StreamRef ref, Keep keep) noexcept {
        std::vector<HostWork> recorded; // what is left of it is destroyed after the lock
        return with_stream(ref, [&](const auto& stream) {
            if (const Status status = HostCaptures::may_end(*stream); !status.ok()) return status;
            const std::shared_ptr<HostCapture> capture = stream->capture;
            if (!capture->broken) keep(capture->calls);
            recorded = std::move(capture->calls);
            captures_.end(*capture);
            return capture->broken ? HostStatus::capture_invalidated : HostStatus::ok;
        });
    }

    void put(HostStream& stream, HostWork work);

    HostEngine engine_;
    std::unordered_map<const void*, std::shared_ptr<HostEvent>> events_;
    HostGraphs graphs_;
    HostCaptures captures_;
    StreamRef lanes_[2];
    std::atomic<bool> kernel_loaded_{false};
};

} // namespace detail

} // namespace memsaver::inline v0_2

#ifndef MEMSAVER_COMPILED
#include "memsaver/host/host_engine.ipp"
#endif
