// The open captures of a saver: their threads and streams. Keeps pauses and captures apart. Knows nothing about what is
// recorded or by whom.
#pragma once

#include "memsaver/arena/graph_keeps.hpp"
#include "memsaver/core/lists.hpp"
#include "memsaver/core/order.hpp"
#include "memsaver/core/pointers.hpp"
#include "memsaver/core/vector.hpp"
#include "memsaver/driver/fork_check.hpp"

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

namespace memsaver::inline v0_3::detail {

/// Thread-safe. Costs one atomic load while no capture is open.
class OpenCaptures {
public:
    explicit OpenCaptures(std::shared_ptr<const ForkCheck> fork = new_shared<const ForkCheck>())
        : fork_{std::move(fork)} {}
    ~OpenCaptures() = default;

    /// Scoped registration of a capture by this thread. The constructor waits until no pause is in progress. Throws
    /// Misuse if this thread is already capturing, because a block freed then could not be attributed to one graph.
    class Entry {
    public:
        Entry(OpenCaptures& captures, std::string tag, StreamRef stream, std::shared_ptr<GraphKeeps> graph)
            : captures_{captures} {
            std::unique_lock lock{captures_.mutex_};
            if (const Open* const outer = captures_.on_this_thread()) {
                misuse({"capture of tag ", in_quotes(tag), ": this thread is already capturing tag ",
                        in_quotes(outer->tag), "; end that capture first, or capture on another thread"});
            }
            captures_.free_.wait(lock, [&] { return captures_.kept_out_ == 0; });
            captures_.open_.push_back({std::move(tag), stream, std::this_thread::get_id(), std::move(graph), this});
            captures_.count_.store(captures_.open_.size());
        }
        Entry& operator=(Entry&&) = delete;
        ~Entry() {
            if (captures_.fork_->forked()) return;
            const std::lock_guard lock{captures_.mutex_};
            erase_in(captures_.open_, [&](const Open& open) { return open.entry == this; });
            captures_.count_.store(captures_.open_.size());
            captures_.free_.notify_all();
        }

    private:
        OpenCaptures& captures_;
    };

    /// Scoped registration of an operation that would break open captures. Throws Misuse if a capture is open.
    class KeepOut {
    public:
        KeepOut(OpenCaptures& captures, const char* what) : captures_{captures} {
            const std::lock_guard lock{captures_.mutex_};
            captures_.refuse_locked(what);
            captures_.kept_out_ += 1;
        }
        /// Waits until no capture is open instead of throwing Misuse. Throws NotIdle after the deadline.
        KeepOut(OpenCaptures& captures, const Deadline& deadline) : captures_{captures} {
            std::unique_lock lock{captures_.mutex_};
            const auto none = [&] { return captures_.open_.empty(); };
            if (!deadline) {
                captures_.free_.wait(lock, none);
            } else if (!captures_.free_.wait_until(lock, *deadline, none)) {
                not_idle({"tag ", in_quotes(captures_.open_.back().tag),
                          " was still being captured when the timeout expired; nothing has changed"});
            }
            captures_.kept_out_ += 1;
        }
        KeepOut& operator=(KeepOut&&) = delete;
        ~KeepOut() {
            if (captures_.fork_->forked()) return;
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

    [[nodiscard]] bool open() const noexcept { return count_.load() != 0; }
    /// Returns whether this thread has an open capture.
    [[nodiscard]] bool here() {
        if (count_.load() == 0) return false;
        const std::lock_guard lock{mutex_};
        return on_this_thread() != nullptr;
    }

    /// Keeps an object alive for as long as the graph of the capture that `stream` takes part in: the capture that
    /// began on this stream, else this thread's, else all open captures, because it is unknown which. A no-op if no
    /// capture is open.
    void keep(StreamRef stream, const std::shared_ptr<const void>& what) {
        if (count_.load() == 0) return;
        const std::lock_guard lock{mutex_};
        const Open* of = of_stream(stream);
        if (of == nullptr) of = on_this_thread();
        for (Open& open : open_) {
            if (of == nullptr || of == &open) open.graph->add(what);
        }
    }

    /// Adjusts the order in which a block is freed: a free with a stream on which a capture began belongs to that
    /// capture's graph, whichever thread frees; otherwise, inside a capture of this thread, it belongs to this
    /// thread's. Returns what that graph keeps, or null.
    std::shared_ptr<GraphKeeps> adjust_free_order(FreeOrder& order) noexcept {
        if (count_.load() == 0 || order.kind == FreeOrder::Kind::idle) return {};
        const std::lock_guard lock{mutex_};
        const Open* of = order.kind == FreeOrder::Kind::stream ? of_stream(order.stream) : nullptr;
        if (of == nullptr) of = on_this_thread();
        if (of == nullptr) return {};
        if (order.kind == FreeOrder::Kind::device) order.kind = FreeOrder::Kind::replayed;
        return of->graph;
    }

private:
    struct Open {
        std::string tag;
        StreamRef stream;
        std::thread::id thread;
        std::shared_ptr<GraphKeeps> graph;
        const Entry* entry;
    };

    // Called with the lock held:

    /// The capture that began on this stream. One handle names a different stream in each thread.
    [[nodiscard]] const Open* of_stream(StreamRef stream) const noexcept {
        if (stream.per_thread()) return on_this_thread();
        return first_in(open_, [&](const Open& open) { return open.stream == stream; });
    }
    [[nodiscard]] const Open* on_this_thread() const noexcept {
        return first_in(open_, [here = std::this_thread::get_id()](const Open& open) { return open.thread == here; });
    }
    void refuse_locked(const char* what) const {
        if (open_.empty()) return;
        const std::string& tag = open_.back().tag;
        misuse_of(tag, {what, ": tag ", in_quotes(tag), " is being captured; end the capture first"});
    }

    std::shared_ptr<const ForkCheck> fork_; // checked before the lock is taken in destructors
    std::atomic<std::size_t> count_{0};
    std::mutex mutex_; // guards the members below
    std::condition_variable free_;
    Vector<Open> open_;
    std::size_t kept_out_ = 0;
};

} // namespace memsaver::inline v0_3::detail
