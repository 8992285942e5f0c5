// Definitions of hooks.hpp.
#pragma once

#include "memsaver/saver/hooks.hpp"

#include "memsaver/core/pointers.hpp"

namespace memsaver::inline v0_3 {

MEMSAVER_INLINE Hook::Hook(Hook first, Hook second)
    : end_{[both = detail::new_shared<std::pair<Hook, Hook>>(std::move(first), std::move(second))]() mutable {
          both.reset();
      }} {}

MEMSAVER_INLINE Hook& Hook::operator=(Hook&& other) noexcept {
    if (this == &other) return *this;
    Hook ending{std::move(*this)};
    end_ = std::exchange(other.end_, nullptr);
    return *this;
}

MEMSAVER_INLINE Hook::~Hook() {
    if (end_) end_();
}

} // namespace memsaver::inline v0_3
