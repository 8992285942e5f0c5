// Definitions of attic.hpp.
#pragma once

#include "memsaver/driver/attic.hpp"

#include <memory>
#include <mutex>
#include <utility>

namespace memsaver::inline v0_3 {

namespace detail {

MEMSAVER_INLINE Status Attic::add(std::shared_ptr<Closable> what) noexcept {
    const Status status = what->close();
    if (status.ok()) return status;
    const std::lock_guard lock{mutex_};
    for (const Closable* each = first_.get(); each != nullptr; each = each->next_.get()) {
        if (each == what.get()) return status;
    }
    what->next_ = std::move(first_);
    first_ = std::move(what);
    return status;
}

MEMSAVER_INLINE Status Attic::retry() noexcept {
    std::shared_ptr<Closable> next;
    {
        const std::lock_guard lock{mutex_};
        next.swap(first_);
    }
    Status first;
    while (next != nullptr) {
        std::shared_ptr<Closable> each = std::exchange(next, std::move(next->next_));
        if (const Status status = add(std::move(each)); first.ok()) first = status;
    }
    return first;
}

MEMSAVER_INLINE bool Attic::empty() const noexcept {
    const std::lock_guard lock{mutex_};
    return first_ == nullptr;
}

} // namespace detail

} // namespace memsaver::inline v0_3
