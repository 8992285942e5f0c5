// Which host pages are pinned for a host machine: nothing but books, kept as strictly as a GPU's driver keeps them.
#pragma once

#include "memsaver/driver/host_status.hpp"

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <map>
#include <mutex>
#include <new>

namespace memsaver::inline v0_1 {

class HostPins {
public:
    /// `limit`: bytes that may be pinned at once.
    explicit HostPins(std::size_t limit) noexcept : limit_{limit} {}

    /// A second pin of any part is refused, and so is what is over the limit.
    Status pin(const void* pages, std::size_t bytes) noexcept {
        const std::lock_guard lock{mutex_};
        const auto begin = reinterpret_cast<std::uintptr_t>(pages);
        if (bytes == 0 || bytes > std::numeric_limits<std::uintptr_t>::max() - begin || overlaps(begin, bytes))
            return HostStatus::invalid_value;
        if (bytes > limit_ || pinned_bytes_ > limit_ - bytes) return HostStatus::out_of_host_memory;
        try {
            pins_.emplace(begin, bytes);
        } catch (const std::bad_alloc&) {
            return HostStatus::out_of_host_memory;
        }
        pinned_bytes_ += bytes;
        return HostStatus::ok;
    }
    Status unpin(const void* pages) noexcept {
        const std::lock_guard lock{mutex_};
        const auto pin = pins_.find(reinterpret_cast<std::uintptr_t>(pages));
        if (pin == pins_.end()) return HostStatus::invalid_value;
        pinned_bytes_ -= pin->second;
        pins_.erase(pin);
        return HostStatus::ok;
    }

    /// Whether a copy may touch these bytes: not if they lie in a pinned range and beyond it.
    [[nodiscard]] bool whole(const void* host, std::size_t bytes) noexcept {
        const std::lock_guard lock{mutex_};
        const auto begin = reinterpret_cast<std::uintptr_t>(host);
        if (pins_.empty() || !overlaps(begin, bytes)) return true;
        const auto after = pins_.upper_bound(begin);
        return after != pins_.begin() && begin + bytes <= std::prev(after)->first + std::prev(after)->second;
    }

    [[nodiscard]] std::size_t pinned_bytes() noexcept {
        const std::lock_guard lock{mutex_};
        return pinned_bytes_;
    }

private:
    [[nodiscard]] bool overlaps(std::uintptr_t begin, std::size_t bytes) const noexcept {
        const auto after = pins_.lower_bound(begin + bytes);
        return after != pins_.begin() && std::prev(after)->first + std::prev(after)->second > begin;
    }

    std::size_t limit_;
    std::mutex mutex_;
    std::map<std::uintptr_t, std::size_t> pins_;
    std::size_t pinned_bytes_ = 0;
};

} // namespace memsaver::inline v0_1
