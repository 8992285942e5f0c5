// Definitions of host_driver.hpp.
#pragma once

#include "memsaver/host/host_driver.hpp"
#include "memsaver/host/host_engine.hpp"

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace memsaver::inline v0_3 {

MEMSAVER_INLINE HostDriver::HostDriver(std::size_t capacity_bytes, HostDriverOptions options)
    : device_{options.device} {
    const std::size_t unit = options.granularity;
    const auto least = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    if ((unit & (unit - 1)) != 0 || unit < least)
        detail::misuse({"HostDriver: .granularity is ", detail::in_digits(unit), " bytes (", detail::in_bytes(unit),
                        "); valid are powers of two of at least ", detail::in_digits(least),
                        " bytes, the system's page size, such as 2_MiB"});
    machine_ = detail::translated([&] { return std::make_shared<detail::HostMachine>(capacity_bytes, options); });
}

MEMSAVER_INLINE bool operator==(const HostDriver& a, const HostDriver& b) noexcept { return a.machine_ == b.machine_; }

MEMSAVER_INLINE int HostDriver::device() const noexcept { return device_; }

MEMSAVER_INLINE std::string HostDriver::name() const { return "host memory"; }

MEMSAVER_INLINE Status HostDriver::granularity(std::size_t& out) const noexcept {
    return machine_->with_memory([&](detail::HostMemory& m) {
        out = m.granularity();
        return detail::HostStatus::ok;
    });
}

MEMSAVER_INLINE Status HostDriver::memory(DeviceMemory& out) const noexcept {
    return machine_->with_memory([&](detail::HostMemory& m) {
        out = m.memory();
        return detail::HostStatus::ok;
    });
}

MEMSAVER_INLINE Status HostDriver::reserve(std::size_t bytes, std::size_t alignment, Address& out) const noexcept {
    return machine_->with_memory([&](detail::HostMemory& m) { return m.reserve(bytes, alignment, out); });
}

MEMSAVER_INLINE Status HostDriver::unreserve(Address address, std::size_t bytes) const noexcept {
    return machine_->with_memory([&](detail::HostMemory& m) { return m.unreserve({address, bytes}); });
}

MEMSAVER_INLINE Status HostDriver::create(std::size_t bytes, PageHandle& out) const noexcept {
    return machine_->with_memory([&](detail::HostMemory& m) { return m.create(bytes, out); });
}

MEMSAVER_INLINE Status HostDriver::release(PageHandle handle) const noexcept {
    return machine_->with_memory([&](detail::HostMemory& m) { return m.release(handle); });
}

MEMSAVER_INLINE Status HostDriver::map(Address address, std::size_t bytes, PageHandle handle) const noexcept {
    return machine_->with_memory([&](detail::HostMemory& m) { return m.map({address, bytes}, handle); });
}

MEMSAVER_INLINE Status HostDriver::unmap(Address address, std::size_t bytes) const noexcept {
    return machine_->unmap({address, bytes});
}

MEMSAVER_INLINE Status HostDriver::allow_access(Address address, std::size_t bytes) const noexcept {
    return machine_->with_memory([&](detail::HostMemory& m) {
        return m.allow({address, bytes}, detail::HostAccess::write);
    });
}

MEMSAVER_INLINE Status HostDriver::allocate_plain(std::size_t bytes, Address& out) const noexcept {
    return machine_->with_memory([&](detail::HostMemory& m) { return m.allocate_plain(bytes, out); });
}

MEMSAVER_INLINE Status HostDriver::free_plain(Address address) const noexcept { return machine_->free_plain(address); }

MEMSAVER_INLINE Status HostDriver::open_stream(StreamRef& out) const noexcept { return machine_->open_stream(out); }

MEMSAVER_INLINE Status HostDriver::close_stream(StreamRef stream) const noexcept {
    return machine_->close_stream(stream);
}

MEMSAVER_INLINE Status HostDriver::open_event(StreamRef near, EventRef& out) const noexcept {
    return machine_->open_event(near, out);
}

MEMSAVER_INLINE Status HostDriver::close_event(EventRef event) const noexcept { return machine_->close_event(event); }

MEMSAVER_INLINE Status HostDriver::record(EventRef event, StreamRef stream) const noexcept {
    return machine_->record(event, stream);
}

MEMSAVER_INLINE Status HostDriver::record_device(EventRef event) const noexcept {
    return machine_->record_device(event);
}

MEMSAVER_INLINE Status HostDriver::follow(StreamRef stream, EventRef event) const noexcept {
    return machine_->follow(stream, event);
}

MEMSAVER_INLINE Status HostDriver::query(EventRef event, bool& passed) const noexcept {
    return machine_->query(event, passed);
}

MEMSAVER_INLINE Status HostDriver::wait(EventRef event) const noexcept { return machine_->wait(event); }

MEMSAVER_INLINE Status HostDriver::drain() const noexcept { return machine_->drain(); }

MEMSAVER_INLINE Status HostDriver::synchronize(StreamRef stream) const noexcept {
    return machine_->synchronize(stream);
}

MEMSAVER_INLINE Status HostDriver::capturing(StreamRef stream, bool& yes) const noexcept {
    return machine_->capturing(stream, yes);
}

MEMSAVER_INLINE Status HostDriver::lane(Direction direction, StreamRef& out) const noexcept {
    return machine_->lane(direction, out);
}

MEMSAVER_INLINE Neighbours* HostDriver::neighbours() const noexcept { return &machine_->neighbours; }

MEMSAVER_INLINE void HostDriver::name_addresses(Address address, std::size_t bytes, const char* name) const noexcept {
    (void)machine_->with_memory([&](detail::HostMemory& m) {
        m.name({address, bytes}, name);
        return detail::HostStatus::ok;
    });
}

MEMSAVER_INLINE Status HostDriver::owns_stream(StreamRef stream, bool& yes) const noexcept {
    yes = machine_->owns(stream.native()); // a query: not a violation
    return {};
}

MEMSAVER_INLINE Status HostDriver::owns_event(EventRef event, bool& yes) const noexcept {
    yes = machine_->owns(event.native());
    return {};
}

MEMSAVER_INLINE Status HostDriver::pool_memory(PoolRef pool, std::size_t& bytes) const noexcept {
    return machine_->with_memory([&](auto&) {
        bytes = machine_->pools.bytes(pool);
        return detail::HostStatus::ok;
    });
}

MEMSAVER_INLINE Status HostDriver::trim_pool(PoolRef pool, std::size_t keep) const noexcept {
    return machine_->with_memory([&](detail::HostMemory& m) {
        machine_->pools.trim(m, pool, keep);
        return detail::HostStatus::ok;
    });
}

MEMSAVER_INLINE Status HostDriver::pin_host(void* pages, std::size_t bytes) const noexcept {
    return machine_->with_memory([&](auto&) { return machine_->pins.pin(pages, bytes); });
}

MEMSAVER_INLINE Status HostDriver::unpin_host(void* pages) const noexcept {
    return machine_->with_memory([&](auto&) { return machine_->pins.unpin(pages); });
}

MEMSAVER_INLINE Status HostDriver::copy_to_host(void* host, Address from, std::size_t bytes,
                                                StreamRef stream) const noexcept {
    if (!machine_->pins.whole(host, bytes)) return detail::HostStatus::invalid_value;
    detail::HostWork work = detail::HostWork::on({from, bytes}, detail::HostWork::Kind::copy_to_host);
    work.to_host = host;
    work.by_engine = true;
    return machine_->submit(stream, std::move(work), true);
}

MEMSAVER_INLINE Status HostDriver::copy_to_device(Address to, const void* host, std::size_t bytes,
                                                  StreamRef stream) const noexcept {
    if (!machine_->pins.whole(host, bytes)) return detail::HostStatus::invalid_value;
    detail::HostWork work = detail::HostWork::on({to, bytes}, detail::HostWork::Kind::copy_to_device);
    work.from_host = host;
    work.by_engine = true;
    return machine_->submit(stream, std::move(work), true);
}

MEMSAVER_INLINE Status HostDriver::reach_peer(Address, std::size_t) const noexcept { return {}; }

MEMSAVER_INLINE Status HostDriver::copy_peer(Address to, Address from, std::size_t bytes,
                                             StreamRef stream) const noexcept {
    bool out = false; // whether this machine owns `from`; the other machine's pages are ordinary host memory
    (void)machine_->with_memory([&](detail::HostMemory& m) {
        out = m.mappings().accessible({from, bytes}, detail::HostAccess::read);
        return detail::HostStatus::ok;
    });
    // NOLINTNEXTLINE(performance-no-int-to-ptr)
    auto* const other = reinterpret_cast<std::byte*>(out ? to : from);
    return out ? copy_to_host(other, from, bytes, stream) : copy_to_device(to, other, bytes, stream);
}

MEMSAVER_INLINE Status HostDriver::copy_many(Direction direction, const CopyPart* parts, std::size_t count,
                                             StreamRef stream) const noexcept {
    for (std::size_t i = 0; i < count; ++i) {
        const CopyPart& part = parts[i];
        // NOLINTNEXTLINE(performance-no-int-to-ptr)
        auto* const host = reinterpret_cast<std::byte*>(direction == Direction::out ? part.to : part.from);
        const Status status = direction == Direction::out ? copy_to_host(host, part.from, part.bytes, stream)
                                                          : copy_to_device(part.to, host, part.bytes, stream);
        if (!status.ok()) return status;
    }
    return {};
}

MEMSAVER_INLINE Status HostDriver::copy_by_kernel(Address to, Address from, std::size_t bytes,
                                                  StreamRef stream) const noexcept {
    machine_->load_kernel();
    if (bytes == 0) return {};
    bool out = false;
    const Status found = machine_->with_memory([&](detail::HostMemory& m) {
        out = m.mappings().accessible({from, bytes}, detail::HostAccess::read);
        auto* const host = reinterpret_cast<std::byte*>(out ? to : from); // NOLINT(performance-no-int-to-ptr)
        const bool pinned = machine_->pins.pinned(host) && machine_->pins.pinned(host + bytes - 1);
        return pinned ? detail::HostStatus::ok : detail::HostStatus::invalid_value;
    });
    if (!found.ok()) return found;
    using Kind = detail::HostWork::Kind;
    detail::HostWork work =
        detail::HostWork::on({out ? from : to, bytes}, out ? Kind::copy_to_host : Kind::copy_to_device);
    if (out) work.to_host = reinterpret_cast<void*>(to);            // NOLINT(performance-no-int-to-ptr)
    if (!out) work.from_host = reinterpret_cast<const void*>(from); // NOLINT(performance-no-int-to-ptr)
    return machine_->submit(stream, std::move(work), true);
}

MEMSAVER_INLINE Status HostDriver::stall_copies(const TimeLimit& duration) const noexcept {
    return machine_->stall_copies(duration);
}

MEMSAVER_INLINE Status HostDriver::fill(Address to, unsigned char byte, std::size_t bytes,
                                        StreamRef stream) const noexcept {
    detail::HostWork work = detail::HostWork::on({to, bytes}, detail::HostWork::Kind::fill);
    work.byte = byte;
    return machine_->submit(stream, std::move(work), true);
}

MEMSAVER_INLINE Status HostDriver::begin_capture(StreamRef s, CaptureMode mode) const noexcept {
    return machine_->begin_capture(s, mode);
}

MEMSAVER_INLINE Status HostDriver::end_capture(StreamRef s, GraphRef& out) const noexcept {
    return machine_->end_capture(s, out);
}

MEMSAVER_INLINE Status HostDriver::update_graph(StreamRef s, GraphRef& graph) const noexcept {
    return machine_->update_graph(s, graph);
}

MEMSAVER_INLINE Status HostDriver::launch(GraphRef graph, StreamRef stream) const noexcept {
    return machine_->launch(graph, stream);
}

MEMSAVER_INLINE Status HostDriver::close_graph(GraphRef graph) const noexcept { return machine_->close_graph(graph); }

MEMSAVER_INLINE Status HostDriver::follow_outside(StreamRef stream, EventRef event) const noexcept {
    return machine_->follow_outside(stream, event);
}

MEMSAVER_INLINE Status HostDriver::enqueue(StreamRef stream, Address address, std::size_t bytes,
                                           std::function<void()> kernel) const noexcept {
    if (!kernel) return detail::HostStatus::invalid_value;
    try {
        detail::HostWork work = detail::HostWork::on({address, bytes}, detail::HostWork::Kind::kernel);
        work.kernel = std::make_shared<std::function<void()>>(std::move(kernel));
        return machine_->submit(stream, std::move(work), false);
    } catch (...) {
        return detail::HostStatus::out_of_host_memory;
    }
}

MEMSAVER_INLINE Status HostDriver::enqueue(StreamRef stream, std::function<void()> kernel) const noexcept {
    return enqueue(stream, 0, 0, std::move(kernel));
}

MEMSAVER_INLINE Status HostDriver::hold(StreamRef stream) const noexcept { return machine_->hold(stream, true); }

MEMSAVER_INLINE Status HostDriver::let_go(StreamRef stream) const noexcept { return machine_->hold(stream, false); }

MEMSAVER_INLINE Status HostDriver::put_in_pool(PoolRef pool, std::size_t bytes) const noexcept {
    return machine_->with_memory([&](detail::HostMemory& m) { return machine_->pools.add(m, pool, bytes); });
}

MEMSAVER_INLINE Status HostDriver::free_pool(PoolRef pool) const noexcept {
    return machine_->with_memory([&](auto&) {
        machine_->pools.free(pool);
        return detail::HostStatus::ok;
    });
}

MEMSAVER_INLINE void HostDriver::lose() const noexcept { machine_->lose(); }

MEMSAVER_INLINE Status HostDriver::call_unrelaxed() const noexcept { return machine_->call_unrelaxed(); }

MEMSAVER_INLINE std::vector<std::string> HostDriver::violations() const { return machine_->violations(); }

MEMSAVER_INLINE HostCounts HostDriver::counts() const noexcept {
    HostCounts counts = machine_->counts();
    counts.pinned_bytes = machine_->pins.pinned_bytes();
    return counts;
}

} // namespace memsaver::inline v0_3
