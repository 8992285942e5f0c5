// The captures that a saver knows of: on which thread and stream, and that no pause meets them.
// Does not know what is recorded, nor who records it.
#pragma once

#include "memsaver/core/order.hpp"
#include "memsaver/driver/fork_mark.hpp"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace memsaver::inline v0_2 {

namespace detail {

/// Thread safe. Costs one look at a counter while no capture is open.
class OpenCaptures {
public:
    explicit OpenCaptures(std::shared_ptr<const ForkMark> fork = std::make_shared<const ForkMark>())
        : fork_{std::move(fork)} {}
    OpenCaptures(const OpenCaptures&) = delete;
    OpenCaptures& operator=(const OpenCaptures&) = delete;
    ~OpenCaptures() = default;

    /// A capture by this thread, from construction to the end. Waits until no pause is under way. Throws Misuse on a
    /// thread that is capturing already: a block freed then could not be attributed to one graph.
    class Mark {
    public:
        Mark(OpenCaptures& captures, std::string tag, StreamRef stream, std::uint64_t graph);
        Mark(const Mark&) = delete;
        Mark& operator=(const Mark&) = delete;
        ~Mark();

        /// What `keep` was given for this capture.
        [[nodiscard]] std::vector<std::shared_ptr<const void>> kept();

    private:
        OpenCaptures& captures_;
    };

    /// An operation that captures do not survive, from construction to the end. Throws Misuse while one is open.
    class KeepOut {
    public:
        KeepOut(OpenCaptures& captures, const char* what);
        /// Waits until none is open instead. Throws NotIdle once the deadline has passed.
        KeepOut(OpenCaptures& captures, const Deadline& deadline);
        KeepOut(const KeepOut&) = delete;
        KeepOut& operator=(const KeepOut&) = delete;
        ~KeepOut();

    private:
        OpenCaptures& captures_;
    };

    /// Throws Misuse, beginning with `what`, while a capture is open.
    void refuse(const char* what);

    [[nodiscard]] bool open() const noexcept { return count_.load() != 0; }
    /// Whether this thread has one open.
    [[nodiscard]] bool here();

    /// The graph of the capture that `stream` takes part in keeps this alive: that which began at the stream, else this
    /// thread's, else, for nobody knows, all that are open. Does nothing where there is none.
    void keep(StreamRef stream, const std::shared_ptr<const void>& what);

    /// A number for a graph that is to be captured; never 0.
    [[nodiscard]] std::uint64_t new_graph() noexcept { return last_graph_.fetch_add(1) + 1; }

    /// Makes of an order how a block is given up now: with a stream that a capture began at it is that one's graph's,
    /// whoever gives it up; otherwise, inside a capture of this thread, it is this one's.
    void look_at(FreeOrder& order) noexcept;

private:
    struct Open {
        std::string tag;
        StreamRef stream;
        std::thread::id thread;
        std::uint64_t graph;
        const Mark* mark;
        std::vector<std::shared_ptr<const void>> kept{};
    };

    // With the lock held.

    template <class Which>
    [[nodiscard]] const Open* find(const Which& which) const noexcept {
        const auto open = std::find_if(open_.begin(), open_.end(), which);
        return open == open_.end() ? nullptr : &*open;
    }
    [[nodiscard]] const Open* on_this_thread() const noexcept;
    void refuse_locked(const char* what) const;

    std::shared_ptr<const ForkMark> fork_; // asked before the lock by what ends
    std::atomic<std::size_t> count_{0};
    std::atomic<std::uint64_t> last_graph_{0};
    std::mutex mutex_; // guards what follows
    std::condition_variable free_;
    std::vector<Open> open_;
    std::size_t kept_out_ = 0;
};

} // namespace detail

} // namespace memsaver::inline v0_2

#ifndef MEMSAVER_COMPILED
#include "memsaver/saver/open_captures.ipp"
#endif
