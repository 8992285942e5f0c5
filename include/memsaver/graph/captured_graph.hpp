// A graph that a saver knows of: how it is captured, launched and ended. Does not know what it does, nor who asks.
#pragma once

#include "memsaver/graph/graph_base.hpp"
#include "memsaver/saver/saver.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>

namespace memsaver::inline v0_1 {

/// Keeps the saver's core alive. Empty until the first `update`.
template <Driver D>
requires Captures<D>
class CapturedGraph final : public GraphBase {
public:
    CapturedGraph(std::shared_ptr<SaverCore<D>> saver, ArenaBase& arena, D driver, CaptureMode mode)
        : saver_{std::move(saver)}, arena_{&arena}, driver_{std::move(driver)}, mode_{mode} {}

    ~CapturedGraph() override {
        if (saver_->forked()) return; // the parent's
        if (graph_ != GraphRef{}) ignore(driver_.close_graph(graph_), "close a graph");
        saver_->let_go(number_);
    }

    void launch(StreamRef stream) override {
        arena_->require_resumed("launch of a graph");
        check(driver_.launch(graph_, stream), "launch a graph");
    }

    void update(StreamRef stream, const std::function<void()>& body) override {
        (void)saver_->arena(tag(), {}, driver_, {}); // Misuse once the saver is closed
        if (!arena_->owns_stream(stream)) {
            throw Misuse{"capture of tag \"" + tag() + "\": its memory is on device " + std::to_string(device()) +
                         ", the stream is not; name the stream's device in the options"};
        }
        bool capturing = false;
        check(driver_.capturing(stream, capturing), "ask whether a stream is being captured");
        if (capturing) {
            throw Misuse{"capture of tag \"" + tag() + "\": the stream is being captured already"};
        }
        const std::uint64_t number = saver_->captures.new_graph();
        try {
            record(stream, body, number);
        } catch (...) {
            saver_->let_go(number);
            throw;
        }
        saver_->let_go(std::exchange(number_, number));
    }

    [[nodiscard]] const std::string& tag() const noexcept override { return arena_->tag(); }
    [[nodiscard]] int device() const noexcept override { return arena_->device(); }
    [[nodiscard]] GraphRef native() const noexcept override { return graph_; }

private:
    /// Runs the body with the capture, the tag's region and the mark that keeps pauses out around it.
    void record(StreamRef stream, const std::function<void()>& body, std::uint64_t number) {
        const Span capturing{saver_->events(), tag(), device(), "capture"};
        std::optional<OpenCaptures::Mark> mark;
        std::optional<Region> region;
        try {
            mark.emplace(saver_->captures, tag(), stream, number);
            region.emplace(saver_, *arena_);
        } catch (const std::bad_alloc&) {
            throw OutOfHostMemory{"capture of tag \"" + tag() + "\": no host memory for it"};
        }
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
            check(status, "end a capture (what waits for the device, or for another stream, breaks one)");
        }
        graph_ = graph;
    }

    /// The stream is usable again, and nothing of what was recorded is left.
    void drop_capture(StreamRef stream) noexcept {
        GraphRef graph;
        Status status = driver_.end_capture(stream, graph);
        if (!status.ok()) { // a broken capture has ended all the same
            bool open = false;
            if (!driver_.capturing(stream, open).ok() || open) status = driver_.end_capture(stream, graph);
            if (open) ignore(status, "end a capture");
        }
        if (graph != GraphRef{}) ignore(driver_.close_graph(graph), "close a graph");
    }

    void ignore(const Status& status, const char* what) const noexcept {
        if (!status.ok()) saver_->ignore(*arena_, status, what);
    }

    std::shared_ptr<SaverCore<D>> saver_;
    ArenaBase* arena_; // owned by the saver's core
    D driver_;
    CaptureMode mode_;
    GraphRef graph_;
    std::uint64_t number_ = 0; // what its arenas know it by
};

} // namespace memsaver::inline v0_1
