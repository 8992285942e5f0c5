// Definitions of device_scratch.hpp.
#pragma once

#include "memsaver/backup/device_scratch.hpp"
#include "memsaver/core/sizes.hpp"
#include "memsaver/driver/host_cells.hpp"

#include <cstddef>

namespace memsaver::inline v0_3 {

namespace detail {

MEMSAVER_INLINE std::size_t DeviceScratch::wanted_bytes() const noexcept {
    const std::size_t wanted = wanted_.load();
    return held_.load() < wanted ? wanted : 0; // memory that is too small is released first
}

MEMSAVER_INLINE Range DeviceScratch::range(std::size_t bytes) const noexcept {
    return bytes != 0 && ready_ && mapping_.get().bytes >= bytes ? mapping_.get() : Range{};
}

MEMSAVER_INLINE Status DeviceScratch::take(std::size_t bytes) noexcept {
    if (bytes == 0 || range(bytes).bytes != 0) return {};
    if (users_.load() != 0) return {StatusKind::out_of_memory, 0, "the scratch memory is in use and too small"};
    if (const Status status = give(); !status.ok()) return status;
    const Status status = open(bytes);
    if (!status.ok()) (void)give();
    return status;
}

MEMSAVER_INLINE Status DeviceScratch::open(std::size_t bytes) noexcept {
    std::size_t granularity = 0;
    if (const Status status = driver_.granularity(granularity); !status.ok()) return status;
    const std::size_t whole = align_up(bytes, granularity);
    if (const Status status = pages_.open(driver_, whole); !status.ok())
        return status; // first, because it is the step most likely to fail
    held_.store(whole);
    if (const Status status = addresses_.open(driver_, whole, granularity); !status.ok()) return status;
    if (const Status status = mapping_.open(driver_, addresses_.get(), pages_.get().handle); !status.ok())
        return status;
    const Status status = driver_.allow_access(addresses_.get().address, whole);
    ready_ = status.ok();
    return status;
}

MEMSAVER_INLINE Status DeviceScratch::give() noexcept {
    if (users_.load() != 0) return {};
    if (const Status status = settle(driver_, unsettled_); !status.ok()) return status;
    if (const Status status = mapping_.close(); !status.ok()) return status;
    ready_ = false;
    const Status released = pages_.close();
    if (released.ok()) held_.store(0);
    const Status unreserved = addresses_.close();
    return released.ok() ? unreserved : released;
}

} // namespace detail

} // namespace memsaver::inline v0_3
