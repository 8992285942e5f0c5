// Definitions of host_driver.hpp.
#pragma once

#include "memsaver/host/host_driver.hpp"
#include "memsaver/host/host_machine.hpp"
#include "memsaver/host/shared_pages.hpp"

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {

MEMSAVER_INLINE std::unique_ptr<HostPageSource> shared_pages(const std::string& name, std::size_t capacity,
                                                             std::size_t granularity) {
    return std::make_unique<SharedPages>(name, capacity, granularity);
}

} // namespace detail

MEMSAVER_INLINE HostDriver::HostDriver(std::size_t capacity_bytes, HostDriverOptions options)
    : AnyDriver{detail::HostMachine::make(capacity_bytes, options)} {}

MEMSAVER_INLINE std::optional<HostDriver> HostDriver::from(const AnyDriver& driver) {
    if (dynamic_cast<const detail::HostMachine*>(&driver.machine()) == nullptr) return std::nullopt;
    return HostDriver{driver};
}

MEMSAVER_INLINE detail::HostMachine& HostDriver::host() const noexcept {
    return static_cast<detail::HostMachine&>(machine());
}

MEMSAVER_INLINE Status HostDriver::enqueue(StreamRef stream, Address address, std::size_t bytes,
                                           std::function<void()> kernel) const noexcept {
    return host().enqueue(stream, {address, bytes}, std::move(kernel));
}

MEMSAVER_INLINE Status HostDriver::enqueue(StreamRef stream, std::function<void()> kernel) const noexcept {
    return host().enqueue(stream, {}, std::move(kernel));
}

MEMSAVER_INLINE Status HostDriver::synchronize(StreamRef stream) const noexcept { return host().synchronize(stream); }

MEMSAVER_INLINE Status HostDriver::hold(StreamRef stream) const noexcept { return host().hold(stream, true); }

MEMSAVER_INLINE Status HostDriver::let_go(StreamRef stream) const noexcept { return host().hold(stream, false); }

MEMSAVER_INLINE Status HostDriver::stall_copies(const TimeLimit& duration) const noexcept {
    return host().stall_copies(duration);
}

MEMSAVER_INLINE Status HostDriver::put_in_pool(PoolRef pool, std::size_t bytes) const noexcept {
    return host().put_in_pool(pool, bytes);
}

MEMSAVER_INLINE Status HostDriver::free_pool(PoolRef pool) const noexcept { return host().free_pool(pool); }

MEMSAVER_INLINE void HostDriver::lose() const noexcept { host().lose(); }

MEMSAVER_INLINE Status HostDriver::call_unrelaxed() const noexcept { return host().call_unrelaxed(); }

MEMSAVER_INLINE std::vector<std::string> HostDriver::violations() const { return host().violations(); }

MEMSAVER_INLINE HostCounts HostDriver::counts() const noexcept { return host().counts(); }

} // namespace memsaver::inline v0_3
