// Definitions of hooks.hpp.
#pragma once

#include "memsaver/saver/hooks.hpp"

#include <algorithm>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace memsaver::inline v0_2 {

MEMSAVER_INLINE Hook::Hook(Hook first, Hook second)
    : end_{[both = std::make_shared<std::pair<Hook, Hook>>(std::move(first), std::move(second))]() mutable {
          both.reset();
      }} {}

MEMSAVER_INLINE Hook& Hook::operator=(Hook&& other) noexcept {
    Hook ending{std::move(*this)};
    end_ = std::exchange(other.end_, nullptr);
    return *this;
}

MEMSAVER_INLINE Hook::~Hook() {
    if (end_) end_();
}

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
