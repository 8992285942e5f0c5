// Definitions of host_engine.hpp.
#pragma once

#include "memsaver/core/order.hpp"
#include "memsaver/host/host_engine.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {

MEMSAVER_INLINE HostWork HostWork::on(HostRange range, Kind kind) noexcept {
    HostWork work;
    work.kind = kind;
    work.range = range;
    return work;
}

MEMSAVER_INLINE HostAccess HostWork::access() const noexcept {
    return kind == Kind::copy_to_host ? HostAccess::read : HostAccess::write;
}

MEMSAVER_INLINE bool HostWork::run() const noexcept {
    void* const device = reinterpret_cast<void*>(range.address);
    switch (kind) {
    case Kind::copy_to_host: std::memcpy(to_host, device, range.bytes); break;
    case Kind::copy_to_device: std::memcpy(device, from_host, range.bytes); break;
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

MEMSAVER_INLINE void HostCaptures::begin(HostStream& stream, CaptureMode mode) {
    auto capture = std::make_shared<HostCapture>();
    capture->origin = &stream;
    capture->mode = mode;
    capture->thread = detail::ThreadMark::here();
    capture->streams.push_back(&stream);
    open_.push_back(capture);
    stream.capture = std::move(capture);
}

MEMSAVER_INLINE Status HostCaptures::may_end(const HostStream& stream) noexcept {
    const HostCapture* const capture = stream.capture.get();
    if (capture == nullptr || capture->origin != &stream) return HostStatus::illegal_state;
    const bool here = capture->mode == CaptureMode::relaxed || capture->thread.is_here();
    return here ? HostStatus::ok : HostStatus::wrong_thread;
}

MEMSAVER_INLINE std::shared_ptr<HostCapture> HostCaptures::leave(HostStream& stream) noexcept {
    std::shared_ptr<HostCapture> capture = std::move(stream.capture);
    if (capture == nullptr) return capture;
    std::erase(capture->streams, &stream);
    capture->broken = true;
    if (capture->origin == &stream) end(*capture);
    return capture;
}

MEMSAVER_INLINE void HostCaptures::end(HostCapture& capture) noexcept {
    capture.open = false;
    std::erase_if(open_, [&](const auto& open) { return open.get() == &capture; });
    for (HostStream* const stream : capture.streams) stream->capture = nullptr;
}

MEMSAVER_INLINE bool HostCaptures::break_all() noexcept {
    return break_if([](const HostCapture&) { return true; });
}

MEMSAVER_INLINE bool HostCaptures::break_unrelaxed() noexcept {
    return break_if([here = ::pthread_self()](const HostCapture& capture) {
        return capture.mode == CaptureMode::global ||
               (capture.mode == CaptureMode::thread_local_ && capture.thread.is(here));
    });
}

MEMSAVER_INLINE GraphRef HostGraphs::add(std::vector<HostWork>& recorded) {
    auto graph = std::make_unique<HostGraph>();
    HostGraph* const native = graph.get();
    graphs_.emplace(native, std::move(graph)).first->second->calls.swap(recorded);
    return {native};
}

MEMSAVER_INLINE std::unique_ptr<HostGraph> HostGraphs::update(GraphRef& graph, std::vector<HostWork>& recorded) {
    HostGraph* const known = find(graph);
    const auto alike = [](const HostWork& a, const HostWork& b) { return a.kind == b.kind; };
    if (known != nullptr &&
        std::equal(known->calls.begin(), known->calls.end(), recorded.begin(), recorded.end(), alike)) {
        known->calls.swap(recorded);
        return nullptr;
    }
    const GraphRef fresh = add(recorded);
    return take(std::exchange(graph, fresh));
}

MEMSAVER_INLINE HostGraph* HostGraphs::find(GraphRef graph) const noexcept {
    const auto found = graphs_.find(graph.native);
    return found == graphs_.end() ? nullptr : found->second.get();
}

MEMSAVER_INLINE std::unique_ptr<HostGraph> HostGraphs::take(GraphRef graph) noexcept {
    const auto found = graphs_.find(graph.native);
    if (found == graphs_.end()) return nullptr;
    std::unique_ptr<HostGraph> taken = std::move(found->second);
    graphs_.erase(found);
    return taken;
}

MEMSAVER_INLINE HostEngine::~HostEngine() {
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

MEMSAVER_INLINE void HostEngine::lose() noexcept {
    const Lock lock{mutex_};
    mark_lost();
}

MEMSAVER_INLINE std::shared_ptr<HostStream> HostEngine::find(const void* native) const noexcept {
    if (native == nullptr) return default_stream_;
    const auto found = streams_.find(native);
    return found == streams_.end() ? nullptr : found->second;
}

MEMSAVER_INLINE HostStream* HostEngine::open() {
    reap();
    const std::shared_ptr<HostStream> stream = new_stream();
    streams_.emplace(stream.get(), stream);
    return stream.get();
}

MEMSAVER_INLINE void HostEngine::close(const std::shared_ptr<HostStream>& stream) {
    reap();
    if (stream->worker.joinable()) closing_.push_back(stream); // first, because it may throw
    streams_.erase(stream.get());
    stream->closing = true;
    stream->held = false;
    want(mark(stream));
    stream->wake.notify_all();
}

MEMSAVER_INLINE void HostEngine::hold(HostStream& stream, bool yes) noexcept {
    stream.held = yes;
    stream.wake.notify_all();
}

MEMSAVER_INLINE void HostEngine::push(HostStream& stream, HostWork work) {
    if (stream.finished) stream.worker.join();
    stream.finished = false;
    if (!stream.worker.joinable()) stream.worker = std::thread{[this, &stream] { serve(stream); }};
    stream.queue.push_back(std::move(work));
    ++stream.submitted;
    HostWork& queued = stream.queue.back();
    queued.pinned = memory_.mappings().pin(queued.range);
    if (stream.can_run()) stream.wake.notify_one();
}

MEMSAVER_INLINE std::vector<HostMark> HostEngine::mark_all() {
    std::vector<HostMark> marks;
    const auto add = [&](const std::shared_ptr<HostStream>& stream) {
        if (stream->completed != stream->submitted) marks.push_back(mark(stream));
    };
    add(default_stream_);
    for (const auto& [native, stream] : streams_) add(stream);
    for (const auto& stream : closing_) add(stream);
    return marks;
}

MEMSAVER_INLINE bool HostEngine::passed(const std::vector<HostMark>& marks) noexcept {
    return std::all_of(marks.begin(), marks.end(),
                       [](const HostMark& mark) { return mark.stream->completed >= mark.position; });
}

MEMSAVER_INLINE void HostEngine::want(const std::vector<HostMark>& marks) noexcept {
    for (const HostMark& mark : marks) want(mark);
}

MEMSAVER_INLINE Status HostEngine::wait(Lock& lock, const std::vector<HostMark>& marks) {
    want(marks);
    // A lost machine completes no more work, but its running copies still use the caller's memory.
    progress_.wait(lock, [&] {
        return passed(marks) || (lost_ && std::none_of(marks.begin(), marks.end(),
                                                       [](const HostMark& mark) { return mark.stream->copying(); }));
    });
    return lost_ ? HostStatus::gone : HostStatus::ok;
}

MEMSAVER_INLINE bool HostEngine::invalidate_work(const char* what, HostRange range) noexcept {
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

MEMSAVER_INLINE std::shared_ptr<HostStream> HostEngine::new_stream() const {
    auto stream = std::make_shared<HostStream>();
    if (options_.late) stream->allowed = 0;
    return stream;
}

MEMSAVER_INLINE void HostEngine::wake_all() noexcept {
    each_stream([](HostStream& stream) { stream.wake.notify_all(); });
    progress_.notify_all();
}

MEMSAVER_INLINE void HostEngine::mark_lost() noexcept {
    lost_ = true;
    wake_all();
}

MEMSAVER_INLINE void HostEngine::fault(const char* what, HostRange where) noexcept {
    violations_.note(what, where, memory_.name_at(where.address));
    if (!options_.survive_faults) mark_lost();
}

MEMSAVER_INLINE void HostEngine::want(const HostMark& mark) noexcept {
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

MEMSAVER_INLINE void HostEngine::reap() noexcept {
    std::erase_if(closing_, [](const std::shared_ptr<HostStream>& stream) {
        if (stream->finished) stream->worker.join();
        return stream->finished;
    });
}

MEMSAVER_INLINE void HostEngine::serve(HostStream& stream) noexcept {
    Lock lock{mutex_};
    // A thread without work ends, and the next work starts another: a program whose main thread has called pthread_exit
    // ends with its last thread.
    constexpr std::chrono::seconds rest{1};
    while (true) {
        const bool woken = stream.wake.wait_for(lock, rest, [&] {
            return stopping_ || stream.can_run() || (lost_ && !stream.queue.empty()) ||
                   (stream.closing && stream.queue.empty());
        });
        if (!woken && stream.queue.empty()) break;
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

MEMSAVER_INLINE void HostEngine::serve_first(HostStream& stream, Lock& lock) noexcept {
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
        memory_.mappings().unpin(work.range, work.pinned);
        work.pinned = memory_.mappings().pin(work.range); // memory may have been mapped after the launch
        if (!memory_.mappings().accessible(work.range, work.access())) {
            fault("work on memory that is not mapped, or without access: paused, freed, or elastic and not committed",
                  work.range);
        } else {
            lock.unlock();
            const bool well = work.run();
            lock.lock();
            if (!well) fault("a kernel threw an exception", work.range);
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

MEMSAVER_INLINE bool HostEngine::running_on(HostRange range) noexcept {
    bool any = false;
    each_stream(
        [&](const HostStream& stream) { any = any || (stream.busy && stream.queue.front().range.overlaps(range)); });
    return any;
}

MEMSAVER_INLINE bool HostMachine::owns(const void* native) noexcept {
    return engine_.locked([&] { return engine_.find(native) != nullptr || events_.contains(native); });
}

MEMSAVER_INLINE std::vector<std::string> HostMachine::violations() {
    return engine_.locked([&] { return engine_.violations().texts(); });
}

MEMSAVER_INLINE HostCounts HostMachine::counts() noexcept {
    return engine_.locked([&] {
        HostCounts counts;
        engine_.memory().count(counts);
        counts.streams = engine_.stream_count();
        for (const StreamRef lane : lanes_) counts.streams -= lane == StreamRef{} ? 0U : 1U;
        counts.events = events_.size();
        counts.graphs = graphs_.size();
        return counts;
    });
}

MEMSAVER_INLINE Status HostMachine::unmap(HostRange range) noexcept {
    return engine_.guarded([&](auto&) {
        bool in_use = false;
        if (const Status status = engine_.memory().check_unmap(range, in_use); !status.ok()) return status;
        const bool running = in_use && engine_.invalidate_work("unmap of memory in use by unfinished work", range);
        return engine_.memory().unmap(range, running);
    });
}

MEMSAVER_INLINE Status HostMachine::free_plain(Address address) noexcept {
    return engine_.guarded([&](auto& lock) {
        if (address == 0 || engine_.memory().plain_range(address).bytes == 0)
            return address == 0 ? HostStatus::ok : HostStatus::invalid_value;
        if (const Status status = engine_.wait(lock, engine_.mark_all()); !status.ok()) return status;
        const HostRange range = engine_.memory().plain_range(address); // again, because the lock was released while
                                                                       // waiting
        if (range.bytes == 0) return HostStatus::invalid_value;
        // New work was submitted during the wait. If it is running, the memory is not freed under it, but never.
        if (engine_.memory().mappings().in_use(range) &&
            engine_.invalidate_work("free of memory in use by unfinished work", range))
            return HostStatus::ok;
        engine_.memory().free_plain(range);
        return HostStatus::ok;
    });
}

MEMSAVER_INLINE Status HostMachine::open_stream(StreamRef& out) noexcept {
    return engine_.guarded([&](auto&) {
        out = engine_.open();
        return HostStatus::ok;
    });
}

MEMSAVER_INLINE Status HostMachine::stall_copies(const TimeLimit& duration) noexcept {
    return engine_.guarded([&](auto&) {
        engine_.stall_copies(deadline_after(duration).value_or(std::chrono::steady_clock::time_point::max()));
        return HostStatus::ok;
    });
}

MEMSAVER_INLINE void HostMachine::load_kernel() noexcept {
    if (kernel_loaded_.load()) return;
    std::this_thread::sleep_until(engine_.locked([&] { return engine_.stalled_until(); }));
    kernel_loaded_.store(true);
}

MEMSAVER_INLINE Status HostMachine::lane(Direction direction, StreamRef& out) noexcept {
    return engine_.guarded([&](auto&) {
        StreamRef& lane = lanes_[direction == Direction::out ? 0 : 1];
        if (lane == StreamRef{}) lane = engine_.open();
        out = lane;
        return HostStatus::ok;
    });
}

MEMSAVER_INLINE Status HostMachine::close_stream(StreamRef ref) noexcept {
    std::shared_ptr<HostCapture> capture; // its calls are destroyed after the lock is released
    return engine_.guarded([&](auto&) {
        const auto stream = ref.native() == nullptr ? nullptr : engine_.find(ref.native());
        if (stream == nullptr) return stranger("close of a stream that does not exist");
        engine_.close(stream);
        capture = captures_.leave(*stream);
        return HostStatus::ok;
    });
}

MEMSAVER_INLINE Status HostMachine::hold(StreamRef ref, bool yes) noexcept {
    return with_stream(ref, [&](const auto& stream) {
        engine_.hold(*stream, yes);
        return HostStatus::ok;
    });
}

MEMSAVER_INLINE Status HostMachine::submit(StreamRef ref, HostWork work, bool checked) noexcept {
    return with_stream(ref, [&](const auto& stream) {
        if (stream->capture != nullptr && stream->capture->broken) return HostStatus::capture_invalidated;
        if (checked && !engine_.memory().mappings().accessible(work.range, work.access()))
            return HostStatus::invalid_value;
        put(*stream, std::move(work));
        return HostStatus::ok;
    });
}

MEMSAVER_INLINE Status HostMachine::open_event(StreamRef near, EventRef& out) noexcept {
    return with_stream(near, [&](const auto&) {
        auto event = std::make_shared<HostEvent>();
        HostEvent* const native = event.get();
        out = events_.emplace(native, std::move(event)).first->second.get();
        return HostStatus::ok;
    });
}

MEMSAVER_INLINE Status HostMachine::close_event(EventRef ref) noexcept {
    return engine_.guarded([&](auto&) {
        return events_.erase(ref.native()) == 1 ? HostStatus::ok
                                                : stranger("close of a CUDA event that does not exist");
    });
}

MEMSAVER_INLINE Status HostMachine::record(EventRef ref, StreamRef stream_ref) noexcept {
    return with_event(ref, stream_ref, [&](const auto& event, const auto& stream) {
        if (stream->capture != nullptr && stream->capture->broken) return HostStatus::capture_invalidated;
        std::vector<HostMark> marks;
        if (stream->capture == nullptr) marks.push_back(engine_.mark(stream));
        event->marks = std::move(marks);
        event->captured = stream->capture;
        return HostStatus::ok;
    });
}

MEMSAVER_INLINE Status HostMachine::record_device(EventRef ref) noexcept {
    return with_event(ref, {}, [&](const auto& event, const auto&) {
        if (captures_.break_all()) return HostStatus::capture_unsupported;
        event->marks = engine_.mark_all();
        event->captured = nullptr;
        return HostStatus::ok;
    });
}

MEMSAVER_INLINE Status HostMachine::follow(StreamRef stream_ref, EventRef ref) noexcept {
    return with_event(ref, stream_ref, [&](const auto& event, const auto& stream) {
        if (stream->capture != nullptr && stream->capture->broken) return HostStatus::capture_invalidated;
        if (stream->capture != nullptr && stream->capture != event->captured) {
            stream->capture->broken = true; // a graph can wait for other events only through follow_outside
            return HostStatus::capture_isolation;
        }
        if (event->captured == nullptr) {
            HostWork work;
            work.kind = HostWork::Kind::follow;
            work.marks = event->marks;
            engine_.push(*stream, std::move(work));
            return HostStatus::ok;
        }
        if (!event->captured->open || event->captured->broken) return HostStatus::captured_event;
        if (stream->capture == nullptr) { // joins the capture; recorded work is already in order
            event->captured->streams.push_back(stream.get());
            stream->capture = event->captured;
        }
        return HostStatus::ok;
    });
}

MEMSAVER_INLINE Status HostMachine::follow_outside(StreamRef stream_ref, EventRef ref) noexcept {
    return with_event(ref, stream_ref, [&](const auto& event, const auto& stream) {
        if (stream->capture != nullptr && stream->capture->broken) return HostStatus::capture_invalidated;
        if (event->captured != nullptr) return HostStatus::captured_event;
        HostWork work;
        work.kind = HostWork::Kind::follow_outside;
        if (stream->capture == nullptr) {
            work.marks = event->marks;
        } else {
            work.outside = event;
        }
        put(*stream, std::move(work));
        return HostStatus::ok;
    });
}

MEMSAVER_INLINE Status HostMachine::query(EventRef ref, bool& passed) noexcept {
    return with_event(ref, {}, [&](const auto& event, const auto&) {
        if (event->captured != nullptr) return HostStatus::captured_event;
        passed = engine_.passed(event->marks);
        engine_.want(event->marks);
        return HostStatus::ok;
    });
}

MEMSAVER_INLINE Status HostMachine::wait(EventRef ref) noexcept {
    return engine_.guarded([&](auto& lock) {
        const auto found = events_.find(ref.native());
        if (found == events_.end()) return stranger("wait for a CUDA event that does not exist");
        if (found->second->captured != nullptr) return HostStatus::captured_event;
        const std::vector<HostMark> marks = found->second->marks; // the event may be recorded again during the wait
        return engine_.wait(lock, marks);
    });
}

MEMSAVER_INLINE Status HostMachine::drain() noexcept {
    return engine_.guarded([&](auto& lock) { return engine_.wait(lock, engine_.mark_all()); });
}

MEMSAVER_INLINE Status HostMachine::synchronize(StreamRef ref) noexcept {
    return engine_.guarded([&](auto& lock) {
        const std::shared_ptr<HostStream> stream = engine_.find(ref.native());
        if (stream == nullptr) return stranger("wait for a stream that does not exist");
        const bool broke = captures_.break_unrelaxed();
        if (stream->capture != nullptr) {
            stream->capture->broken = true;
            return HostStatus::capture_unsupported;
        }
        if (broke) return HostStatus::capture_unsupported;
        return engine_.wait(lock, {engine_.mark(stream)});
    });
}

MEMSAVER_INLINE Status HostMachine::capturing(StreamRef ref, bool& yes) noexcept {
    return with_stream(ref, [&](const auto& stream) {
        yes = stream->capture != nullptr;
        return HostStatus::ok;
    });
}

MEMSAVER_INLINE Status HostMachine::begin_capture(StreamRef ref, CaptureMode mode) noexcept {
    return with_stream(ref, [&](const auto& stream) {
        if (stream == engine_.default_stream()) return HostStatus::capture_unsupported;
        if (stream->capture != nullptr) return HostStatus::illegal_state;
        captures_.begin(*stream, mode);
        return HostStatus::ok;
    });
}

MEMSAVER_INLINE Status HostMachine::end_capture(StreamRef ref, GraphRef& out) noexcept {
    return finish_capture(ref, [&](auto& recorded) { out = graphs_.add(recorded); });
}

MEMSAVER_INLINE Status HostMachine::update_graph(StreamRef ref, GraphRef& graph) noexcept {
    std::unique_ptr<HostGraph> old; // destroyed after the lock is released
    return finish_capture(ref, [&](auto& recorded) {
        if (graphs_.find(graph) == nullptr) (void)stranger("update of a graph that does not exist");
        old = graphs_.update(graph, recorded);
    });
}

MEMSAVER_INLINE Status HostMachine::launch(GraphRef ref, StreamRef stream_ref) noexcept {
    return with_stream(stream_ref, [&](const auto& stream) {
        const HostGraph* const graph = graphs_.find(ref);
        if (graph == nullptr) return stranger("launch of a graph that does not exist");
        if (stream->capture != nullptr && stream->capture->broken) return HostStatus::capture_invalidated;
        std::vector<HostWork> calls = graph->calls;
        for (HostWork& call : calls) {
            if (call.kind != HostWork::Kind::follow_outside || stream->capture != nullptr) continue;
            const std::shared_ptr<HostEvent> event = call.outside.lock();
            if (event == nullptr) return stranger("launch of a graph that waits for a closed CUDA event");
            if (event->captured != nullptr) return HostStatus::captured_event;
            call.marks = event->marks; // the current marks
        }
        for (HostWork& call : calls) put(*stream, std::move(call));
        return HostStatus::ok;
    });
}

MEMSAVER_INLINE Status HostMachine::close_graph(GraphRef ref) noexcept {
    std::unique_ptr<HostGraph> graph; // destroyed after the lock is released
    return engine_.guarded([&](auto&) {
        graph = graphs_.take(ref);
        return graph != nullptr ? HostStatus::ok : stranger("close of a graph that does not exist");
    });
}

MEMSAVER_INLINE Status HostMachine::call_unrelaxed() noexcept {
    return engine_.guarded(
        [&](auto&) { return captures_.break_unrelaxed() ? HostStatus::capture_unsupported : HostStatus::ok; });
}

MEMSAVER_INLINE Status HostMachine::stranger(const char* what) noexcept {
    engine_.violations().note(what, {});
    return HostStatus::invalid_handle;
}

MEMSAVER_INLINE void HostMachine::put(HostStream& stream, HostWork work) {
    if (stream.capture != nullptr)
        stream.capture->calls.push_back(std::move(work));
    else
        engine_.push(stream, std::move(work));
}

} // namespace detail

} // namespace memsaver::inline v0_3
