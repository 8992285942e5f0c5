// Definitions of hook_lists.hpp.
#pragma once

#include "memsaver/saver/hook_lists.hpp"

#include <algorithm>
#include <mutex>
#include <string>
#include <thread>

namespace memsaver::inline v0_3 {

namespace detail {

MEMSAVER_INLINE HookThreads::Entry::Entry(HookThreads& threads) noexcept : threads_{threads} {
    const std::lock_guard lock{threads_.mutex_};
    threads_.count_ += 1;
    after_ = std::exchange(threads_.running_, this);
    if (after_ != nullptr) after_->before_ = this;
}

MEMSAVER_INLINE HookThreads::Entry::~Entry() {
    if (threads_.fork_->forked()) return;
    const std::lock_guard lock{threads_.mutex_};
    threads_.count_ -= 1;
    (before_ != nullptr ? before_->after_ : threads_.running_) = after_;
    if (after_ != nullptr) after_->before_ = before_;
}

MEMSAVER_INLINE bool HookThreads::here() {
    const std::lock_guard lock{mutex_};
    const Entry* entry = running_;
    while (entry != nullptr && entry->thread_ != std::this_thread::get_id()) entry = entry->after_;
    return entry != nullptr;
}

MEMSAVER_INLINE void HookThreads::refuse(const char* what, const Tags& tags) {
    if (here()) misuse({what, " of ", quoted_tags(tags), " inside a hook is not allowed"});
}

} // namespace detail

} // namespace memsaver::inline v0_3
