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
    return reads || kind == Kind::copy_to_host ? HostAccess::read : HostAccess::write;
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

} // namespace detail

} // namespace memsaver::inline v0_3
