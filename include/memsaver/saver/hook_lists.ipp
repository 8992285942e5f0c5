// Definitions of hook_lists.hpp.
#pragma once

#include "memsaver/saver/hook_lists.hpp"

#include <algorithm>
#include <mutex>
#include <string>
#include <thread>

namespace memsaver::inline v0_2 {

namespace detail {

MEMSAVER_INLINE HookThreads::Mark::Mark(HookThreads& threads) : threads_{threads} {
    const std::lock_guard lock{threads_.mutex_};
    threads_.running_.push_back(std::this_thread::get_id());
}

MEMSAVER_INLINE HookThreads::Mark::~Mark() {
    if (threads_.fork_->forked()) return;
    const std::lock_guard lock{threads_.mutex_};
    const auto mark = std::find(threads_.running_.begin(), threads_.running_.end(), std::this_thread::get_id());
    if (mark != threads_.running_.end()) threads_.running_.erase(mark); // one of them: marks nest
}

MEMSAVER_INLINE bool HookThreads::here() {
    const std::lock_guard lock{mutex_};
    return std::find(running_.begin(), running_.end(), std::this_thread::get_id()) != running_.end();
}

MEMSAVER_INLINE void HookThreads::refuse(const char* what, const Tags& tags) {
    if (here()) throw Misuse{std::string{what} + " of " + quoted_tags(tags) + " inside a hook"};
}

} // namespace detail

} // namespace memsaver::inline v0_2
