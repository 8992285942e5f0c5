// Host memory that has been promised and not been touched yet. Does not know for what.
#pragma once

#include "memsaver/driver/concepts.hpp"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

namespace memsaver::inline v0_1 {

/// What the system says it would still give does not know of pages that are about to be touched: of several backups
/// that ask before any of them touches a page, each would be told that it fits. Those that share a budget are not.
/// Thread safe.
class HostBudget {
public:
    /// The part of a promise that has not been touched. Move-only; ends with its owner.
    class Promise {
    public:
        Promise() = default;
        Promise(Promise&& other) noexcept : budget_{std::move(other.budget_)}, bytes_{std::exchange(other.bytes_, 0)} {}
        Promise& operator=(Promise&& other) noexcept {
            touched(bytes_);
            budget_ = std::move(other.budget_);
            bytes_ = std::exchange(other.bytes_, 0);
            return *this;
        }
        ~Promise() { touched(bytes_); }

        /// `bytes` of it are the system's to count from now on.
        void touched(std::size_t bytes) noexcept {
            if (!budget_) return;
            const std::lock_guard lock{budget_->mutex_};
            bytes = std::min(bytes, bytes_);
            budget_->promised_ -= bytes;
            bytes_ -= bytes;
        }

    private:
        friend class HostBudget;
        Promise(std::shared_ptr<HostBudget> budget, std::size_t bytes) : budget_{std::move(budget)}, bytes_{bytes} {}

        std::shared_ptr<HostBudget> budget_;
        std::size_t bytes_ = 0; // guarded by the budget's mutex
    };

    /// Throws OutOfHostMemory if the system and its control groups would not give `bytes` more than has been promised
    /// already. Without a budget, only what they would give now counts. `whose` is for the text of the exception.
    template <HostPages D>
    static Promise take(const std::shared_ptr<HostBudget>& budget, const D& driver, std::size_t bytes,
                        const std::string& whose = {}) {
        std::unique_lock<std::mutex> lock;
        if (budget) lock = std::unique_lock{budget->mutex_};
        std::size_t available = 0;
        check(driver.host_available(available), "ask how much host memory is left");
        const std::size_t promised = budget ? budget->promised_ : 0;
        available -= std::min(available, promised);
        if (bytes > available) {
            throw OutOfHostMemory{
                whose + "a backup of " + format_bytes(bytes) +
                " does not fit: the system and its control groups would give " + format_bytes(available) +
                (promised == 0 ? std::string{} : " beside the " + format_bytes(promised) + " of other backups")};
        }
        if (!budget) return {};
        budget->promised_ += bytes;
        return {budget, bytes};
    }

    [[nodiscard]] std::size_t promised_bytes() const noexcept {
        const std::lock_guard lock{mutex_};
        return promised_;
    }

private:
    mutable std::mutex mutex_;
    std::size_t promised_ = 0;
};

} // namespace memsaver::inline v0_1
