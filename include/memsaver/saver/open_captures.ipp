// Definitions of open_captures.hpp.
#pragma once

#include "memsaver/core/lists.hpp"
#include "memsaver/saver/open_captures.hpp"

#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

namespace memsaver::inline v0_3 {

namespace detail {

MEMSAVER_INLINE OpenCaptures::Entry::Entry(OpenCaptures& captures, std::string tag, StreamRef stream,
                                           std::shared_ptr<GraphKeeps> graph)
    : captures_{captures} {
    std::unique_lock lock{captures_.mutex_};
    if (const Open* const outer = captures_.on_this_thread()) {
        misuse({"capture of tag ", in_quotes(tag), ": this thread is already capturing tag ", in_quotes(outer->tag),
                "; end that capture first, or capture on another thread"});
    }
    captures_.free_.wait(lock, [&] { return captures_.kept_out_ == 0; });
    captures_.open_.push_back({std::move(tag), stream, std::this_thread::get_id(), std::move(graph), this});
    captures_.count_.store(captures_.open_.size());
}

MEMSAVER_INLINE OpenCaptures::Entry::~Entry() {
    if (captures_.fork_->forked()) return;
    const std::lock_guard lock{captures_.mutex_};
    erase_in(captures_.open_, [&](const Open& open) { return open.entry == this; });
    captures_.count_.store(captures_.open_.size());
    captures_.free_.notify_all();
}

MEMSAVER_INLINE void OpenCaptures::keep(StreamRef stream, const std::shared_ptr<const void>& what) {
    if (count_.load() == 0) return;
    const std::lock_guard lock{mutex_};
    const Open* of = find([&](const Open& open) { return open.stream == stream; });
    if (of == nullptr) of = on_this_thread();
    for (Open& open : open_) {
        if (of == nullptr || of == &open) open.graph->add(what);
    }
}

MEMSAVER_INLINE OpenCaptures::KeepOut::KeepOut(OpenCaptures& captures, const Deadline& deadline) : captures_{captures} {
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

MEMSAVER_INLINE OpenCaptures::KeepOut::KeepOut(OpenCaptures& captures, const char* what) : captures_{captures} {
    const std::lock_guard lock{captures_.mutex_};
    captures_.refuse_locked(what);
    captures_.kept_out_ += 1;
}

MEMSAVER_INLINE OpenCaptures::KeepOut::~KeepOut() {
    if (captures_.fork_->forked()) return;
    const std::lock_guard lock{captures_.mutex_};
    captures_.kept_out_ -= 1;
    captures_.free_.notify_all();
}

MEMSAVER_INLINE void OpenCaptures::refuse(const char* what) {
    const std::lock_guard lock{mutex_};
    refuse_locked(what);
}

MEMSAVER_INLINE bool OpenCaptures::here() {
    if (count_.load() == 0) return false;
    const std::lock_guard lock{mutex_};
    return on_this_thread() != nullptr;
}

MEMSAVER_INLINE std::shared_ptr<GraphKeeps> OpenCaptures::adjust_free_order(FreeOrder& order) noexcept {
    if (count_.load() == 0 || order.kind == FreeOrder::Kind::idle) return {};
    const std::lock_guard lock{mutex_};
    const Open* of = nullptr;
    if (order.kind == FreeOrder::Kind::stream) {
        of = find([&](const Open& open) { return open.stream == order.stream; });
    }
    if (of == nullptr) of = on_this_thread();
    if (of == nullptr) return {};
    if (order.kind == FreeOrder::Kind::device) order.kind = FreeOrder::Kind::replayed;
    return of->graph;
}

MEMSAVER_INLINE const OpenCaptures::Open* OpenCaptures::on_this_thread() const noexcept {
    return find([here = std::this_thread::get_id()](const Open& open) { return open.thread == here; });
}

MEMSAVER_INLINE void OpenCaptures::refuse_locked(const char* what) const {
    if (open_.empty()) return;
    const std::string& tag = open_.back().tag;
    misuse_of(tag, {what, ": tag ", in_quotes(tag), " is being captured; end the capture first"});
}

} // namespace detail

} // namespace memsaver::inline v0_3
