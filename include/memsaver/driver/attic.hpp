// Keeps what could not be closed.
#pragma once

#include "memsaver/core/closable.hpp"
#include "memsaver/core/definitions.hpp"
#include "memsaver/core/function_ref.hpp"

#include <memory>
#include <mutex>
#include <utility>

namespace memsaver::inline v0_3::detail {

/// Owners that are no longer needed but could not be closed yet. Needs no host memory, and closes what is left once
/// more, by its destructor, when it is destroyed. Thread-safe; no lock is held while something is closed.
class Attic {
public:
    Attic& operator=(Attic&&) = delete;

    /// Closes `what` and drops it. If that fails, keeps it for `retry` and returns the failure. It may be
    /// kept already.
    Status add(std::shared_ptr<Closable> what) noexcept {
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
    /// Closes everything kept so far again. Returns the first failure.
    Status retry() noexcept {
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
    void each(FunctionRef<void(const Closable&)> act) const {
        const std::lock_guard lock{mutex_};
        for (const Closable* kept = first_.get(); kept != nullptr; kept = kept->next_.get()) act(*kept);
    }
    [[nodiscard]] bool empty() const noexcept {
        const std::lock_guard lock{mutex_};
        return first_ == nullptr;
    }

private:
    mutable std::mutex mutex_;
    std::shared_ptr<Closable> first_;
};

} // namespace memsaver::inline v0_3::detail
