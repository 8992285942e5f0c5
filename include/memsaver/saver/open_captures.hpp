// The captures that a saver knows of: on which thread and stream, and that no pause meets them.
// Does not know what is recorded, nor who records it.
#pragma once

#include "memsaver/arena/order.hpp"
#include "memsaver/base/base.hpp"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace memsaver::inline v0_1 {

/// Thread safe. Costs one look at a counter while no capture is open.
class OpenCaptures {
public:
    /// A capture by this thread, from construction to the end. Waits until no pause is under way.
    class Mark {
    public:
        Mark(OpenCaptures& captures, std::string tag, StreamRef stream, std::uint64_t graph) : captures_{captures} {
            std::unique_lock lock{captures_.mutex_};
            captures_.free_.wait(lock, [&] { return captures_.kept_out_ == 0; });
            captures_.open_.push_back({std::move(tag), stream, std::this_thread::get_id(), graph, this});
            captures_.count_.store(captures_.open_.size());
        }
        Mark(const Mark&) = delete;
        Mark& operator=(const Mark&) = delete;
        ~Mark() {
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
            const std::lock_guard lock{captures_.mutex_};
            captures_.refuse_locked(what);
            captures_.kept_out_ += 1;
        }
        KeepOut(const KeepOut&) = delete;
        KeepOut& operator=(const KeepOut&) = delete;
        ~KeepOut() {
            const std::lock_guard lock{captures_.mutex_};
            captures_.kept_out_ -= 1;
            captures_.free_.notify_all();
        }

    private:
        OpenCaptures& captures_;
    };

    /// Throws Misuse, beginning with `what`, while a capture is open.
    void refuse(const char* what) {
        const std::lock_guard lock{mutex_};
        refuse_locked(what);
    }

    /// A number for a graph that is to be captured; never 0.
    [[nodiscard]] std::uint64_t new_graph() noexcept { return last_graph_.fetch_add(1) + 1; }

    /// How a block is given up now: inside a capture of this thread, or with a stream that one began at, it is its
    /// graph's.
    [[nodiscard]] FreeOrder order_now(FreeOrder order) noexcept {
        if (count_.load() == 0 || order.kind == FreeOrder::Kind::idle) return order;
        const std::lock_guard lock{mutex_};
        const auto here = std::this_thread::get_id();
        auto of = std::find_if(open_.rbegin(), open_.rend(), [&](const Open& open) { return open.thread == here; });
        if (of != open_.rend() && order.kind == FreeOrder::Kind::device) order.kind = FreeOrder::Kind::replayed;
        if (of == open_.rend() && order.kind == FreeOrder::Kind::stream) {
            of = std::find_if(open_.rbegin(), open_.rend(),
                              [&](const Open& open) { return open.stream == order.stream; });
        }
        if (of != open_.rend()) order.graph = of->graph;
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

    void refuse_locked(const char* what) const {
        if (open_.empty()) return;
        throw Misuse{std::string{what} + ": tag \"" + open_.back().tag +
                     "\" is being captured; the capture has to end first"};
    }

    std::atomic<std::size_t> count_{0};
    std::atomic<std::uint64_t> last_graph_{0};
    std::mutex mutex_; // guards what follows
    std::condition_variable free_;
    std::vector<Open> open_;
    std::size_t kept_out_ = 0;
};

} // namespace memsaver::inline v0_1
