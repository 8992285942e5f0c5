// What makes a host machine run: its lock, its memory, its streams with a thread each, waiting, and being lost.
// Does not know events, captures or handles that programs pass in.
//
// A thread for each stream and not one for all: work that no order connects then really runs at once, and a kernel that
// waits holds up its own stream only.
#pragma once

#include "memsaver/driver/host_memory.hpp"
#include "memsaver/driver/host_stream.hpp"

#include <algorithm>
#include <mutex>
#include <new>
#include <utility>

namespace memsaver::inline v0_1 {

class HostEngine {
public:
    using Lock = std::unique_lock<std::mutex>;

    HostEngine(std::size_t capacity, const HostDriverOptions& options)
        : options_{options}, memory_{capacity, options, violations_}, default_stream_{new_stream()} {}

    /// Work that has not begun is dropped; work that has is waited for.
    ~HostEngine() {
        {
            const Lock lock{mutex_};
            stopping_ = true;
            wake_all();
        }
        each_stream([](HostStream& stream) {
            if (stream.worker.joinable()) stream.worker.join();
        });
    }
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

    void lose() noexcept {
        const Lock lock{mutex_};
        mark_lost();
    }

    // What follows is called under the lock.

    HostMemory& memory() noexcept { return memory_; }
    HostViolations& violations() noexcept { return violations_; }
    const std::shared_ptr<HostStream>& default_stream() const noexcept { return default_stream_; }

    /// The open stream at `native`, or nothing.
    std::shared_ptr<HostStream> find(const void* native) const noexcept {
        if (native == nullptr) return default_stream_;
        const auto found = streams_.find(native);
        return found == streams_.end() ? nullptr : found->second;
    }

    std::size_t stream_count() const noexcept { return streams_.size(); }

    HostStream* open() {
        reap();
        const std::shared_ptr<HostStream> stream = new_stream();
        streams_.emplace(stream.get(), stream);
        return stream.get();
    }

    /// Pending work still runs, and nothing holds it back any more.
    void close(const std::shared_ptr<HostStream>& stream) {
        reap();
        if (stream->worker.joinable()) closing_.push_back(stream); // may throw: first
        streams_.erase(stream.get());
        stream->closing = true;
        stream->held = false;
        want(mark(stream));
        stream->wake.notify_all();
    }

    void hold(HostStream& stream, bool yes) noexcept {
        stream.held = yes;
        stream.wake.notify_all();
    }

    /// Queues `work`, whose memory is from now on in use.
    void push(HostStream& stream, HostWork work) {
        if (!stream.worker.joinable()) stream.worker = std::thread{[this, &stream] { serve(stream); }};
        stream.queue.push_back(std::move(work));
        ++stream.submitted;
        HostWork& queued = stream.queue.back();
        queued.pinned = memory_.mappings().pin(queued.range);
        if (stream.can_run()) stream.wake.notify_one();
    }

    /// Where the stream stands now.
    static HostMark mark(const std::shared_ptr<HostStream>& stream) { return {stream, stream->submitted}; }

    /// Where every stream with unfinished work stands now.
    std::vector<HostMark> mark_all() {
        std::vector<HostMark> marks;
        const auto add = [&](const std::shared_ptr<HostStream>& stream) {
            if (stream->completed != stream->submitted) marks.push_back(mark(stream));
        };
        add(default_stream_);
        for (const auto& [native, stream] : streams_) add(stream);
        for (const auto& stream : closing_) add(stream);
        return marks;
    }

    static bool passed(const std::vector<HostMark>& marks) noexcept {
        return std::all_of(marks.begin(), marks.end(),
                           [](const HostMark& mark) { return mark.stream->completed >= mark.position; });
    }

    /// On a machine whose work is late: somebody wants these passed, so what leads there may start.
    void want(const std::vector<HostMark>& marks) noexcept {
        for (const HostMark& mark : marks) want(mark);
    }

    Status wait(Lock& lock, const std::vector<HostMark>& marks) {
        want(marks);
        // A lost machine passes nothing any more, but its copies under way still use the caller's memory.
        progress_.wait(lock, [&] {
            return passed(marks) || (lost_ && std::none_of(marks.begin(), marks.end(), [](const HostMark& mark) {
                                         return mark.stream->copying();
                                     }));
        });
        return lost_ ? HostStatus::gone : HostStatus::ok;
    }

    /// Memory in `range` goes away under work that is not done: that work will not run. Whether some is running
    /// already.
    bool doom(const char* what, HostRange range) noexcept {
        bool running = false;
        each_stream([&](HostStream& stream) {
            for (HostWork& work : stream.queue) {
                if (!work.range.overlaps(range)) continue;
                if (stream.busy && &work == &stream.queue.front())
                    running = true;
                else
                    work.doomed = true;
            }
        });
        fault(what, range);
        return running;
    }

private:
    std::shared_ptr<HostStream> new_stream() const {
        auto stream = std::make_shared<HostStream>();
        if (options_.late) stream->allowed = 0;
        return stream;
    }

    template <class F>
    void each_stream(F f) noexcept {
        f(*default_stream_);
        for (const auto& [native, stream] : streams_) f(*stream);
        for (const auto& stream : closing_) f(*stream);
    }

    void wake_all() noexcept {
        each_stream([](HostStream& stream) { stream.wake.notify_all(); });
        progress_.notify_all();
    }

    void mark_lost() noexcept {
        lost_ = true;
        wake_all();
    }

    void fault(const char* what, HostRange where) noexcept {
        violations_.note(what, where);
        if (!options_.survive_faults) mark_lost();
    }

    void want(const HostMark& mark) noexcept {
        HostStream& stream = *mark.stream;
        if (stream.allowed >= mark.position) return; // also ends the recursion, which goes through each stream once
        const std::uint64_t first = std::max(stream.allowed, stream.completed);
        stream.allowed = mark.position;
        for (std::uint64_t number = first; number < mark.position; ++number) {
            const std::uint64_t index = number - stream.completed;
            if (index < stream.queue.size()) want(stream.queue[index].marks);
        }
        stream.wake.notify_all();
    }

    /// Joins the threads of closed streams that are done.
    void reap() noexcept {
        std::erase_if(closing_, [](const std::shared_ptr<HostStream>& stream) {
            if (stream->finished) stream->worker.join();
            return stream->finished;
        });
    }

    /// A stream's thread.
    void serve(HostStream& stream) noexcept {
        Lock lock{mutex_};
        while (true) {
            stream.wake.wait(lock, [&] {
                return stopping_ || stream.can_run() || (lost_ && !stream.queue.empty()) ||
                       (stream.closing && stream.queue.empty());
            });
            if (stopping_ || lost_) {
                // What programs put into kernels must not be destroyed under the lock.
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
        HostWork& work = stream.queue.front(); // stays in place while others are pushed
        stream.busy = true;
        if (work.kind == HostWork::Kind::follow) {
            progress_.wait(lock, [&] { return stopping_ || lost_ || passed(work.marks); });
        } else if (!work.doomed) { // else it was noted then
            memory_.mappings().unpin(work.range, work.pinned);
            work.pinned =
                memory_.mappings().pin(work.range); // what a kernel finds here may have been mapped after its launch
            if (!memory_.mappings().accessible(work.range, work.access())) {
                fault("work on memory that is not mapped, or without access", work.range);
            } else {
                lock.unlock();
                const bool well = work.run();
                lock.lock();
                if (!well) fault("a kernel threw", work.range);
            }
        }
        memory_.mappings().unpin(work.range, work.pinned);
        HostWork done = std::move(work);
        stream.queue.pop_front();
        stream.busy = false;
        ++stream.completed;
        memory_.seal_scraps([this](const HostRange& scrap) { return running_on(scrap); });
        progress_.notify_all();
        if (done.kernel == nullptr) return;
        lock.unlock();
        done.kernel.reset();
        lock.lock();
    }

    bool running_on(HostRange range) noexcept {
        bool any = false;
        each_stream([&](const HostStream& stream) {
            any = any || (stream.busy && stream.queue.front().range.overlaps(range));
        });
        return any;
    }

    std::mutex mutex_;
    std::condition_variable progress_; // some work is complete, or the machine is lost
    const HostDriverOptions options_;
    HostViolations violations_;
    HostMemory memory_;
    std::shared_ptr<HostStream> default_stream_;
    std::unordered_map<const void*, std::shared_ptr<HostStream>> streams_;
    std::vector<std::shared_ptr<HostStream>> closing_;
    bool lost_ = false;
    bool stopping_ = false;
};

} // namespace memsaver::inline v0_1
