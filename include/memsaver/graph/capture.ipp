// Definitions of capture.hpp.
#pragma once

#include "memsaver/arena/arena.hpp"
#include "memsaver/arena/graph_keeps.hpp"
#include "memsaver/backup/host_backup.hpp"
#include "memsaver/core/pointers.hpp"
#include "memsaver/graph/capture.hpp"
#include "memsaver/saver/saver_state.hpp"

namespace memsaver::inline v0_3 {

namespace detail {

/// What a Graph owns. Keeps the saver's core alive. Holds no graph until the first `update`.
class CapturedGraph {
public:
    CapturedGraph(Arena arena, AnyDriver driver, CaptureMode mode)
        : arena_{std::move(arena)}, driver_{std::move(driver)}, mode_{mode} {}
    CapturedGraph& operator=(CapturedGraph&&) = delete;
    ~CapturedGraph() {
        if (arena_.saver().forked()) return; // belongs to the parent process
        if (graph_ != GraphRef{}) ignore(driver_.close_graph(graph_), "close a graph");
        keeps_.reset();
    }

    void launch(StreamRef stream) {
        arena_.saver().boundary("launch of a graph", arena_.base(), [&] {
            arena_.base().require_resumed("launch of a graph", stream);
            check(driver_.launch(graph_, stream), "launch a graph");
        });
    }

    void update(StreamRef stream, detail::FunctionRef<void()> body) {
        SaverCore& saver = arena_.saver();
        saver.boundary("capture", arena_.base(), [&] {
            arena_.base().require_open("capture");
            if (stream == StreamRef{}) {
                misuse({"capture of tag ", in_quotes(tag()),
                        ": the default stream cannot be captured; pass a stream that the program created"});
            }
            if (!arena_.base().owns_stream(stream)) {
                misuse({"capture of tag ", in_quotes(tag()), ": its memory is on device ", in_digits(device()),
                        ", the stream is not; pass the stream's device in the options"});
            }
            if (detail::being_captured(driver_, stream)) {
                misuse({"capture of tag ", in_quotes(tag()), ": the stream is being captured already"});
            }
            auto keeps = new_shared<GraphKeeps>(); // ends here if the capture fails, else the previous one's does
            record(stream, body, keeps);
            keeps_.swap(keeps);
        });
    }

    [[nodiscard]] const std::string& tag() const noexcept { return arena_.base().tag(); }
    [[nodiscard]] int device() const noexcept { return arena_.base().device(); }
    [[nodiscard]] GraphRef native() const noexcept { return graph_; }

private:
    /// Runs the body inside the capture, a region of the tag and an OpenCaptures mark, which blocks pauses.
    void record(StreamRef stream, detail::FunctionRef<void()> body, const std::shared_ptr<GraphKeeps>& keeps) {
        SaverCore& saver = arena_.saver();
        const Span capturing{saver.events(), tag(), device(), "capture"};
        const OpenCaptures::Entry mark{saver.state().captures_, tag(), stream, keeps};
        const Region region{arena_};
        check(driver_.begin_capture(stream, mode_), "begin a capture");
        try {
            body();
        } catch (...) {
            drop_capture(stream);
            throw;
        }
        GraphRef graph = graph_;
        const bool first = graph == GraphRef{};
        const Status status = first ? driver_.end_capture(stream, graph) : driver_.update_graph(stream, graph);
        if (!status.ok()) {
            bool open = false;
            if (!driver_.capturing(stream, open).ok() || open) drop_capture(stream);
            check(status, "end a capture (waiting for the device or for another stream invalidates it)");
        }
        graph_ = graph;
    }

    /// Ends the capture and discards the recorded work, so that the stream is usable again.
    void drop_capture(StreamRef stream) noexcept {
        GraphRef graph;
        Status status = driver_.end_capture(stream, graph);
        if (!status.ok()) { // a broken capture may have ended already
            bool open = false;
            if (!driver_.capturing(stream, open).ok() || open) status = driver_.end_capture(stream, graph);
            if (open) ignore(status, "end a capture");
        }
        if (graph != GraphRef{}) ignore(driver_.close_graph(graph), "close a graph");
    }

    void ignore(const Status& status, const char* what) const noexcept {
        if (!status.ok()) arena_.saver().ignore(arena_.base(), status, what);
    }

    Arena arena_;
    AnyDriver driver_;
    CaptureMode mode_;
    GraphRef graph_;
    std::shared_ptr<GraphKeeps> keeps_; // ends before the arena
};

MEMSAVER_INLINE Graph captured(SaverCore& saver, TagName tag, StreamRef stream, const CaptureOptions& options,
                               detail::FunctionRef<void()> body) {
    return saver.boundary("capture", [&] {
        require_enumerator("CaptureOptions::mode", options.mode, 3);
        const AnyDriver driver = options.device ? *options.device : saver.driver();
        Arena arena = saver.arena(WantedTag{tag.view(), options.policy, driver, {}, HostBackup{}});
        auto graph = new_shared<CapturedGraph>(std::move(arena), driver, options.mode);
        graph->update(stream, body);
        return Graph{std::move(graph)};
    });
}

} // namespace detail

MEMSAVER_INLINE void Graph::launch(StreamRef stream) const { captured().launch(stream); }

MEMSAVER_INLINE void Graph::update(StreamRef stream, detail::FunctionRef<void()> body) {
    captured().update(stream, body);
}

MEMSAVER_INLINE const std::string& Graph::tag() const { return captured().tag(); }

MEMSAVER_INLINE int Graph::device() const { return captured().device(); }

MEMSAVER_INLINE GraphRef Graph::native() const { return captured().native(); }

MEMSAVER_INLINE detail::CapturedGraph& Graph::captured() const {
    if (graph_ == nullptr) detail::misuse({"an empty or moved-from Graph was used"});
    return *graph_;
}

} // namespace memsaver::inline v0_3
