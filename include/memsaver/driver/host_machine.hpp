// The machine behind a HostDriver: what programs name (streams, events, graphs) looked up, checked and handed to the
// engine, and stream captures, as measured of CUDA: the library's calls, made as if in relaxed mode, are harmless to
// them, but for marking or waiting for the whole device. One object for each machine, shared by its driver's copies.
#pragma once

#include "memsaver/driver/host_captures.hpp"
#include "memsaver/driver/host_engine.hpp"
#include "memsaver/driver/host_graphs.hpp"

#include <string>

namespace memsaver::inline v0_1 {

class HostMachine {
public:
    HostMachine(std::size_t capacity, const HostDriverOptions& options) : engine_{capacity, options} {}

    void lose() noexcept { engine_.lose(); }
    bool owns(const void* native) noexcept {
        return engine_.locked([&] { return engine_.find(native) != nullptr || events_.contains(native); });
    }

    std::vector<std::string> violations() {
        return engine_.locked([&] { return engine_.violations().texts(); });
    }

    HostCounts counts() noexcept {
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

    /// `f(memory)`, under the lock.
    template <class F>
    Status with_memory(F f) noexcept {
        return engine_.guarded([&](auto&) { return f(engine_.memory()); });
    }

    Status unmap(HostRange range) noexcept {
        return engine_.guarded([&](auto&) {
            bool in_use = false;
            if (const Status status = engine_.memory().check_unmap(range, in_use); !status.ok()) return status;
            const bool running = in_use && engine_.doom("unmap under work that is not done", range);
            return engine_.memory().unmap(range, running);
        });
    }

    Status free_plain(Address address) noexcept {
        return engine_.guarded([&](auto& lock) {
            if (address == 0 || engine_.memory().plain_range(address).bytes == 0)
                return address == 0 ? HostStatus::ok : HostStatus::invalid_value;
            if (const Status status = engine_.wait(lock, engine_.mark_all()); !status.ok()) return status;
            const HostRange range = engine_.memory().plain_range(address); // again: the lock was away
            if (range.bytes == 0) return HostStatus::invalid_value;
            // Given new work while it waited. It is not taken from under work that runs: it stays for good.
            if (engine_.memory().mappings().in_use(range) && engine_.doom("free under work that is not done", range))
                return HostStatus::ok;
            engine_.memory().free_plain(range);
            return HostStatus::ok;
        });
    }

    Status open_stream(StreamRef& out) noexcept {
        return engine_.guarded([&](auto&) {
            out = engine_.open();
            return HostStatus::ok;
        });
    }

    /// The stream for copies in one direction, opened by whoever asks first, and not counted as anybody's.
    Status lane(Direction direction, StreamRef& out) noexcept {
        return engine_.guarded([&](auto&) {
            StreamRef& lane = lanes_[direction == Direction::out ? 0 : 1];
            if (lane == StreamRef{}) lane = engine_.open();
            out = lane;
            return HostStatus::ok;
        });
    }

    Status close_stream(StreamRef ref) noexcept {
        std::shared_ptr<HostCapture> capture; // its calls are destroyed after the lock
        return engine_.guarded([&](auto&) {
            const auto stream = ref.native() == nullptr ? nullptr : engine_.find(ref.native());
            if (stream == nullptr) return stranger("close of what is not a stream");
            engine_.close(stream);
            capture = captures_.leave(*stream);
            return HostStatus::ok;
        });
    }

    Status hold(StreamRef ref, bool yes) noexcept {
        return with_stream(ref, [&](const auto& stream) {
            engine_.hold(*stream, yes);
            return HostStatus::ok;
        });
    }

    /// Queues or records `work`. Copies and fills are `checked`: their memory must be accessible now, as for CUDA's.
    /// Kernels and graphs find out when they run.
    Status submit(StreamRef ref, HostWork work, bool checked) noexcept {
        return with_stream(ref, [&](const auto& stream) {
            if (stream->capture != nullptr && stream->capture->broken) return HostStatus::capture_invalidated;
            if (checked && !engine_.memory().mappings().accessible(work.range, work.access()))
                return HostStatus::invalid_value;
            put(*stream, std::move(work));
            return HostStatus::ok;
        });
    }

    Status open_event(StreamRef near, EventRef& out) noexcept {
        return with_stream(near, [&](const auto&) {
            auto event = std::make_unique<HostEvent>();
            HostEvent* const native = event.get();
            out = events_.emplace(native, std::move(event)).first->second.get();
            return HostStatus::ok;
        });
    }

    Status close_event(EventRef ref) noexcept {
        return engine_.guarded([&](auto&) {
            return events_.erase(ref.native()) == 1 ? HostStatus::ok : stranger("close of what is not an event");
        });
    }

    Status record(EventRef ref, StreamRef stream_ref) noexcept {
        return with_event(ref, stream_ref, [&](HostEvent& event, const auto& stream) {
            if (stream->capture != nullptr && stream->capture->broken) return HostStatus::capture_invalidated;
            std::vector<HostMark> marks;
            if (stream->capture == nullptr) marks.push_back(engine_.mark(stream));
            event.marks = std::move(marks);
            event.captured = stream->capture;
            return HostStatus::ok;
        });
    }

    Status record_device(EventRef ref) noexcept {
        return with_event(ref, {}, [&](HostEvent& event, const auto&) {
            if (captures_.break_all()) return HostStatus::capture_unsupported;
            event.marks = engine_.mark_all();
            event.captured = nullptr;
            return HostStatus::ok;
        });
    }

    Status follow(StreamRef stream_ref, EventRef ref) noexcept {
        return with_event(ref, stream_ref, [&](HostEvent& event, const auto& stream) {
            if (stream->capture != nullptr && stream->capture->broken) return HostStatus::capture_invalidated;
            if (stream->capture != nullptr && stream->capture != event.captured) {
                stream->capture->broken = true; // a graph cannot wait for what is not in it
                return HostStatus::capture_isolation;
            }
            if (event.captured == nullptr) {
                HostWork work;
                work.kind = HostWork::Kind::follow;
                work.marks = event.marks;
                engine_.push(*stream, std::move(work));
                return HostStatus::ok;
            }
            if (!event.captured->open || event.captured->broken) return HostStatus::captured_event;
            if (stream->capture == nullptr) { // joins the capture; what is recorded there is in order already
                event.captured->streams.push_back(stream.get());
                stream->capture = event.captured;
            }
            return HostStatus::ok;
        });
    }

    Status query(EventRef ref, bool& passed) noexcept {
        return with_event(ref, {}, [&](const HostEvent& event, const auto&) {
            if (event.captured != nullptr) return HostStatus::captured_event;
            passed = engine_.passed(event.marks);
            engine_.want(event.marks);
            return HostStatus::ok;
        });
    }

    Status wait(EventRef ref) noexcept {
        return engine_.guarded([&](auto& lock) {
            const auto found = events_.find(ref.native());
            if (found == events_.end()) return stranger("wait for what is not an event");
            if (found->second->captured != nullptr) return HostStatus::captured_event;
            const std::vector<HostMark> marks = found->second->marks; // the event may move on meanwhile
            return engine_.wait(lock, marks);
        });
    }

    Status drain() noexcept {
        return engine_.guarded([&](auto& lock) { return engine_.wait(lock, engine_.mark_all()); });
    }

    Status capturing(StreamRef ref, bool& yes) noexcept {
        return with_stream(ref, [&](const auto& stream) {
            yes = stream->capture != nullptr;
            return HostStatus::ok;
        });
    }

    Status begin_capture(StreamRef ref, CaptureMode mode) noexcept {
        return with_stream(ref, [&](const auto& stream) {
            if (stream == engine_.default_stream()) return HostStatus::capture_unsupported;
            if (stream->capture != nullptr) return HostStatus::illegal_state;
            captures_.begin(*stream, mode);
            return HostStatus::ok;
        });
    }

    Status end_capture(StreamRef ref, GraphRef& out) noexcept {
        return finish_capture(ref, [&](auto& recorded) { out = graphs_.add(recorded); });
    }

    Status update_graph(StreamRef ref, GraphRef& graph) noexcept {
        std::unique_ptr<HostGraph> old; // destroyed after the lock
        return finish_capture(ref, [&](auto& recorded) {
            if (graphs_.find(graph) == nullptr) (void)stranger("update of what is not a graph");
            old = graphs_.update(graph, recorded);
        });
    }

    Status launch(GraphRef ref, StreamRef stream_ref) noexcept {
        return with_stream(stream_ref, [&](const auto& stream) {
            const HostGraph* const graph = graphs_.find(ref);
            if (graph == nullptr) return stranger("launch of what is not a graph");
            if (stream->capture != nullptr && stream->capture->broken) return HostStatus::capture_invalidated;
            for (const HostWork& call : graph->calls) put(*stream, call);
            return HostStatus::ok;
        });
    }

    Status close_graph(GraphRef ref) noexcept {
        std::unique_ptr<HostGraph> graph; // destroyed after the lock
        return engine_.guarded([&](auto&) {
            graph = graphs_.take(ref);
            return graph != nullptr ? HostStatus::ok : stranger("close of what is not a graph");
        });
    }

    /// What a call that may wait does to open captures when its thread did not switch to relaxed mode.
    Status call_unrelaxed() noexcept {
        return engine_.guarded(
            [&](auto&) { return captures_.break_unrelaxed() ? HostStatus::capture_unsupported : HostStatus::ok; });
    }

private:
    Status stranger(const char* what) noexcept {
        engine_.violations().note(what, {});
        return HostStatus::invalid_handle;
    }

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
            return found == events_.end() ? stranger("use of what is not an event") : f(*found->second, stream);
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

    void put(HostStream& stream, HostWork work) {
        if (stream.capture != nullptr)
            stream.capture->calls.push_back(std::move(work));
        else
            engine_.push(stream, std::move(work));
    }

    HostEngine engine_;
    std::unordered_map<const void*, std::unique_ptr<HostEvent>> events_;
    HostGraphs graphs_;
    HostCaptures captures_;
    StreamRef lanes_[2];
};

} // namespace memsaver::inline v0_1
