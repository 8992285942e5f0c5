// Definitions of host_driver.hpp.
#pragma once

#include "memsaver/core/order.hpp"
#include "memsaver/core/pointers.hpp"
#include "memsaver/host/host_driver.hpp"
#include "memsaver/host/host_machine.hpp"
#include "memsaver/host/shared_pages.hpp"

#include <chrono>
#include <memory>
#include <utility>

namespace memsaver::inline v0_3 {

namespace detail {

MEMSAVER_INLINE UniquePtr<HostPageSource> shared_pages(const std::string& name, std::size_t capacity,
                                                       std::size_t granularity) {
    return UniquePtr<SharedPages>::make(name, capacity, granularity);
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

MEMSAVER_INLINE Status HostDriver::synchronize(StreamRef ref) const noexcept {
    detail::HostMachine& machine = host();
    detail::HostEngine& engine = machine.engine_;
    return engine.guarded([&](auto& lock) {
        const std::shared_ptr<HostStream> stream = engine.find(ref.native());
        if (stream == nullptr) return machine.stranger("wait for a stream that does not exist");
        const bool broke = machine.engine_.break_unrelaxed();
        if (stream->capture != nullptr) stream->capture->broken = true;
        if (broke || stream->capture != nullptr) return detail::HostStatus::capture_unsupported;
        return engine.wait(lock, {engine.mark(stream)});
    });
}

MEMSAVER_INLINE Status HostDriver::hold(StreamRef stream) const noexcept {
    return host().with_stream(stream, [&](const auto& found) { host().engine_.hold(*found, true); });
}

MEMSAVER_INLINE Status HostDriver::let_go(StreamRef stream) const noexcept {
    return host().with_stream(stream, [&](const auto& found) { host().engine_.hold(*found, false); });
}

MEMSAVER_INLINE Status HostDriver::stall_copies(const TimeLimit& duration) const noexcept {
    const auto until = detail::deadline_after(duration).value_or(std::chrono::steady_clock::time_point::max());
    return host().engine_.guarded([&](auto&) { host().engine_.stall_copies(until); });
}

MEMSAVER_INLINE Status HostDriver::put_in_pool(PoolRef pool, std::size_t bytes) const noexcept {
    return host().with_memory([&](detail::HostMemory& m) { return host().pools_.add(m, pool, bytes); });
}

MEMSAVER_INLINE Status HostDriver::free_pool(PoolRef pool) const noexcept {
    return host().with_memory([&](detail::HostMemory&) { host().pools_.free(pool); });
}

MEMSAVER_INLINE void HostDriver::lose() const noexcept { host().engine_.lose(); }

MEMSAVER_INLINE Status HostDriver::call_unrelaxed() const noexcept {
    using detail::HostStatus;
    return host().engine_.guarded(
        [&](auto&) { return host().engine_.break_unrelaxed() ? HostStatus::capture_unsupported : HostStatus::ok; });
}

MEMSAVER_INLINE std::vector<std::string> HostDriver::violations() const {
    return host().engine_.locked([&] { return host().engine_.memory().violations(); });
}

MEMSAVER_INLINE HostCounts HostDriver::counts() const noexcept {
    detail::HostMachine& machine = host();
    return machine.engine_.locked([&] {
        HostCounts counts;
        machine.engine_.memory().count(counts);
        counts.streams = machine.engine_.stream_count();
        for (const StreamRef lane : machine.lanes_) counts.streams -= lane == StreamRef{} ? 0U : 1U;
        counts.events = machine.events_.size();
        counts.graphs = machine.graphs_.size();
        counts.pinned_bytes = machine.pins_.pinned_bytes();
        return counts;
    });
}

} // namespace memsaver::inline v0_3
