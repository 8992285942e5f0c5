// The captures that a saver knows of: on which thread and stream, and that no pause meets them.
// Does not know what is recorded, nor who records it.
#pragma once

#include "memsaver/arena/order.hpp"
#include "memsaver/base/base.hpp"
#include "memsaver/driver/system_fork.hpp"

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

namespace memsaver::inline v0_1 {

/// Thread safe. Costs one look at a counter while no capture is open.
class OpenCaptures {
public:
    OpenCaptures() = default;
    OpenCaptures(const OpenCaptures&) = delete;
    OpenCaptures& operator=(const OpenCaptures&) = delete;
    ~OpenCaptures() {
        if (fork_mark_.forked()) (void)free_.release(); // its end would wait for threads of the parent's
    }

    /// A capture by this thread, from construction to the end. Waits until no pause is under way. Throws Misuse on a
    /// thread that is capturing already: nobody could say whose a block is that it gives up.
    class Mark {
    public:
        Mark(OpenCaptures& captures, std::string tag, StreamRef stream, std::uint64_t graph) : captures_{captures} {
            captures_.fork_mark_.require_parent("capture");
            std::unique_lock lock{captures_.mutex_};
            if (const Open* const outer = captures_.on_this_thread()) {
                throw Misuse{"capture of tag \"" + tag + "\": this thread is capturing tag \"" + outer->tag +
                             "\" already; end that capture first, or capture on another thread"};
            }
            captures_.free_->wait(lock, [&] { return captures_.kept_out_ == 0; });
            captures_.open_.push_back({std::move(tag), stream, std::this_thread::get_id(), graph, this});
            captures_.count_.store(captures_.open_.size());
        }
        Mark(const Mark&) = delete;
        Mark& operator=(const Mark&) = delete;
        ~Mark() {
            if (captures_.fork_mark_.forked()) return;
            const std::lock_guard lock{captures_.mutex_};
            std::erase_if(captures_.open_, [&](const Open& open) { return open.mark == this; });
            captures_.count_.store(captures_.open_.size());
        }

    private:
        OpenCaptures& captures_;
    };

    /// An operation that captures do not survive, from construction to the end. Throws Misuse while one is open.
    class KeepOut {
    public:
        KeepOut(OpenCaptures& captures, const char* what) : captures_{captures} {
            captures_.fork_mark_.require_parent(what);
            const std::lock_guard lock{captures_.mutex_};
            captures_.refuse_locked(what);
            captures_.kept_out_ += 1;
        }
        KeepOut(const KeepOut&) = delete;
        KeepOut& operator=(const KeepOut&) = delete;
        ~KeepOut() {
            if (captures_.fork_mark_.forked()) return;
            const std::lock_guard lock{captures_.mutex_};
            captures_.kept_out_ -= 1;
            captures_.free_->notify_all();
        }

    private:
        OpenCaptures& captures_;
    };

    /// Throws Misuse, beginning with `what`, while a capture is open.
    void refuse(const char* what) {
        fork_mark_.require_parent(what);
        const std::lock_guard lock{mutex_};
        refuse_locked(what);
    }

    /// A number for a graph that is to be captured; never 0.
    [[nodiscard]] std::uint64_t new_graph() noexcept { return last_graph_.fetch_add(1) + 1; }

    /// How a block is given up now: with a stream that a capture began at it is that one's graph's, whoever gives it
    /// up; otherwise, inside a capture of this thread, it is this one's.
    [[nodiscard]] FreeOrder order_now(FreeOrder order) noexcept {
        if (fork_mark_.forked() || count_.load() == 0 || order.kind == FreeOrder::Kind::idle) return order;
        const std::lock_guard lock{mutex_};
        const Open* of = nullptr;
        if (order.kind == FreeOrder::Kind::stream) {
            of = find([&](const Open& open) { return open.stream == order.stream; });
        }
        if (of == nullptr) of = on_this_thread();
        if (of == nullptr) return order;
        order.graph = of->graph;
        if (order.kind == FreeOrder::Kind::device) order.kind = FreeOrder::Kind::replayed;
        return order;
    }

private:
    struct Open {
        std::string tag;
        StreamRef stream;
        std::thread::id thread;
        std::uint64_t graph;
        const Mark* mark;
    };

    // With the lock held.

    template <class Which>
    [[nodiscard]] const Open* find(const Which& which) const noexcept {
        const auto open = std::find_if(open_.begin(), open_.end(), which);
        return open == open_.end() ? nullptr : &*open;
    }
    [[nodiscard]] const Open* on_this_thread() const noexcept {
        return find([here = std::this_thread::get_id()](const Open& open) { return open.thread == here; });
    }
    void refuse_locked(const char* what) const {
        if (open_.empty()) return;
        throw Misuse{std::string{what} + ": tag \"" + open_.back().tag +
                     "\" is being captured; the capture has to end first"};
    }

    ForkMark fork_mark_; // asked before any lock
    std::atomic<std::size_t> count_{0};
    std::atomic<std::uint64_t> last_graph_{0};
    std::mutex mutex_; // guards what follows
    std::unique_ptr<std::condition_variable> free_ = std::make_unique<std::condition_variable>();
    std::vector<Open> open_;
    std::size_t kept_out_ = 0;
};

} // namespace memsaver::inline v0_1
