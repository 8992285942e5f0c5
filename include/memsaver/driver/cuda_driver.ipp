// Definitions of cuda_driver.hpp.
#pragma once

#include "memsaver/driver/cuda_device.hpp"
#include "memsaver/driver/cuda_driver.hpp"

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

namespace memsaver::inline v0_3 {

MEMSAVER_INLINE CudaDriver::CudaDriver(int device, CudaDriverOptions options, const char* library)
    : device_{std::make_shared<const detail::CudaDevice>(device, std::move(options), library)} {}

MEMSAVER_INLINE CudaAvailability CudaDriver::available(int device, const char* library) {
    return detail::CudaDevice::usable(detail::CudaApi{library}, device);
}

MEMSAVER_INLINE int CudaDriver::device_count(const char* library) {
    int count = 0;
    return detail::CudaDevice::count_devices(detail::CudaApi{library}, count) ? count : 0;
}

MEMSAVER_INLINE int CudaDriver::device() const noexcept { return device_->number(); }

MEMSAVER_INLINE std::string CudaDriver::name() const {
    return detail::text_of({device_->name(), " (CUDA device ", detail::in_digits(device_->number()), ")"});
}

MEMSAVER_INLINE int CudaDriver::numa_node() const noexcept { return device_->numa_node(); }

MEMSAVER_INLINE Status CudaDriver::with_context(detail::FunctionRef<void()> work) const noexcept {
    return device_->call([&](const detail::CudaApi&) {
        work();
        return detail::cuda::success;
    });
}

MEMSAVER_INLINE bool operator==(const CudaDriver& a, const CudaDriver& b) noexcept {
    return a.device_ == b.device_ || *a.device_ == *b.device_;
}

MEMSAVER_INLINE Status CudaDriver::granularity(std::size_t& bytes) const noexcept {
    bytes = device_->granularity();
    return {};
}

MEMSAVER_INLINE Status CudaDriver::memory(DeviceMemory& memory) const noexcept {
    return device_->call(
        [&](const detail::CudaApi& api) { return api.mem_info(&memory.free_bytes, &memory.total_bytes); });
}

MEMSAVER_INLINE Status CudaDriver::reserve(std::size_t bytes, std::size_t alignment, Address& address) const noexcept {
    const Status status = device_->call([&](const detail::CudaApi& api) {
        detail::cuda::DevicePtr reserved = 0;
        const detail::cuda::Result result = api.mem_reserve(&reserved, bytes, alignment, 0, 0);
        if (result == detail::cuda::success) address = reserved;
        return result;
    });
    if (status.kind != StatusKind::out_of_memory) return status;
    return {StatusKind::out_of_addresses, status.code, status.name}; // no memory is reserved with addresses
}

MEMSAVER_INLINE Status CudaDriver::unreserve(Address address, std::size_t bytes) const noexcept {
    return device_->call([&](const detail::CudaApi& api) { return api.mem_unreserve(address, bytes); });
}

MEMSAVER_INLINE Status CudaDriver::create(std::size_t bytes, PageHandle& handle) const noexcept {
    return device_->call([&](const detail::CudaApi& api) {
        detail::cuda::PageHandle created = 0;
        const detail::cuda::Result result = api.mem_create(&created, bytes, &device_->pages(), 0);
        if (result == detail::cuda::success) handle.value = created;
        return result;
    });
}

MEMSAVER_INLINE Status CudaDriver::release(PageHandle handle) const noexcept {
    return device_->call([&](const detail::CudaApi& api) { return api.mem_release(handle.value); });
}

MEMSAVER_INLINE Status CudaDriver::map(Address address, std::size_t bytes, PageHandle handle) const noexcept {
    return device_->call([&](const detail::CudaApi& api) { return api.mem_map(address, bytes, 0, handle.value, 0); });
}

MEMSAVER_INLINE Status CudaDriver::unmap(Address address, std::size_t bytes) const noexcept {
    return device_->call([&](const detail::CudaApi& api) { return api.mem_unmap(address, bytes); });
}

MEMSAVER_INLINE Status CudaDriver::allow_access(Address address, std::size_t bytes) const noexcept {
    return device_->call([&](const detail::CudaApi& api) {
        return api.mem_set_access(address, bytes, device_->access().data(), device_->access().size());
    });
}

MEMSAVER_INLINE Status CudaDriver::open_stream(StreamRef& stream) const noexcept {
    return device_->call([&](const detail::CudaApi& api) {
        detail::cuda::Stream opened = nullptr;
        const detail::cuda::Result result = api.stream_create(&opened, detail::cuda::stream_non_blocking);
        if (result == detail::cuda::success) stream = opened;
        return result;
    });
}

MEMSAVER_INLINE Status CudaDriver::close_stream(StreamRef stream) const noexcept {
    return device_->call([&](const detail::CudaApi& api) { return api.stream_destroy(detail::native(stream)); });
}

MEMSAVER_INLINE Status CudaDriver::open_event(StreamRef near, EventRef& event) const noexcept {
    return device_->call([&](const detail::CudaApi& api) {
        detail::cuda::Context context = device_->context();
        detail::cuda::Result result =
            near == StreamRef{} ? detail::cuda::success : api.stream_context(detail::native(near), &context);
        if (result != detail::cuda::success) return result;
        const detail::CudaScope there{api, context};
        detail::cuda::Event opened = nullptr;
        result = there.result();
        if (result == detail::cuda::success) result = api.event_create(&opened, detail::cuda::event_disable_timing);
        if (result == detail::cuda::success) event = opened;
        return result;
    });
}

MEMSAVER_INLINE Status CudaDriver::close_event(EventRef event) const noexcept {
    return device_->call([&](const detail::CudaApi& api) { return api.event_destroy(detail::native(event)); });
}

MEMSAVER_INLINE Status CudaDriver::record(EventRef event, StreamRef stream) const noexcept {
    return device_->call(
        [&](const detail::CudaApi& api) { return api.event_record(detail::native(event), detail::native(stream)); });
}

MEMSAVER_INLINE Status CudaDriver::record_device(EventRef event) const noexcept {
    return device_->call([&](const detail::CudaApi& api) {
        if (api.ctx_record_event != nullptr) return api.ctx_record_event(device_->context(), detail::native(event));
        return api.ctx_synchronize();
    });
}

MEMSAVER_INLINE Status CudaDriver::follow(StreamRef stream, EventRef event) const noexcept {
    return device_->call([&](const detail::CudaApi& api) {
        return api.stream_wait_event(detail::native(stream), detail::native(event), 0);
    });
}

MEMSAVER_INLINE Status CudaDriver::query(EventRef event, bool& passed) const noexcept {
    return device_->call([&](const detail::CudaApi& api) {
        const detail::cuda::Result result = api.event_query(detail::native(event));
        if (result == detail::cuda::success || result == detail::cuda::error_not_ready)
            passed = result == detail::cuda::success;
        return result == detail::cuda::error_not_ready ? detail::cuda::success : result;
    });
}

MEMSAVER_INLINE Status CudaDriver::wait(EventRef event) const noexcept {
    return device_->call([&](const detail::CudaApi& api) { return api.event_wait(detail::native(event)); });
}

MEMSAVER_INLINE Status CudaDriver::drain() const noexcept { return device_->drain(); }

MEMSAVER_INLINE Status CudaDriver::capturing(StreamRef stream, bool& yes) const noexcept {
    return device_->call([&](const detail::CudaApi& api) {
        int status = detail::cuda::capture_none;
        const detail::cuda::Result result = api.stream_capturing(detail::native(stream), &status);
        const bool implicit = result == detail::cuda::error_capture_implicit;
        if (result == detail::cuda::success || implicit) yes = implicit || status != detail::cuda::capture_none;
        return implicit ? detail::cuda::success : result;
    });
}

MEMSAVER_INLINE Status CudaDriver::copy_to_host(void* host, Address from, std::size_t bytes,
                                                StreamRef stream) const noexcept {
    return device_->call(
        [&](const detail::CudaApi& api) { return api.copy_to_host(host, from, bytes, detail::native(stream)); });
}

MEMSAVER_INLINE Status CudaDriver::copy_to_device(Address to, const void* host, std::size_t bytes,
                                                  StreamRef stream) const noexcept {
    return device_->call(
        [&](const detail::CudaApi& api) { return api.copy_to_device(to, host, bytes, detail::native(stream)); });
}

MEMSAVER_INLINE Status CudaDriver::fill(Address to, unsigned char byte, std::size_t bytes,
                                        StreamRef stream) const noexcept {
    return device_->call([&](const detail::CudaApi& api) { return api.fill(to, byte, bytes, detail::native(stream)); });
}

MEMSAVER_INLINE Neighbours* CudaDriver::neighbours() const noexcept { return &device_->neighbours(); }

MEMSAVER_INLINE Status CudaDriver::lane(Direction direction, StreamRef& stream) const noexcept {
    return device_->call([&](const detail::CudaApi&) { return device_->lane(direction, stream); });
}

MEMSAVER_INLINE Status CudaDriver::reach_peer(Address address, std::size_t bytes) const noexcept {
    // The first access descriptor is that of the device itself.
    return device_->call(
        [&](const detail::CudaApi& api) { return api.mem_set_access(address, bytes, device_->access().data(), 1); });
}

MEMSAVER_INLINE Status CudaDriver::copy_peer(Address to, Address from, std::size_t bytes,
                                             StreamRef stream) const noexcept {
    return device_->call(
        [&](const detail::CudaApi& api) { return api.copy_on_devices(to, from, bytes, detail::native(stream)); });
}

MEMSAVER_INLINE Status CudaDriver::copy_many(Direction direction, const CopyPart* parts, std::size_t count,
                                             StreamRef stream) const noexcept {
    std::size_t begun = 0;
    const Status status = device_->call(
        [&](const detail::CudaApi&) { return device_->copy_many(direction, parts, count, stream, begun); });
    if (status.code != detail::cuda::error_not_supported) return status;
    return {begun == 0 ? StatusKind::unsupported : StatusKind::other, status.code, status.name};
}

MEMSAVER_INLINE Status CudaDriver::copy_by_kernel(Address to, Address from, std::size_t bytes,
                                                  StreamRef stream) const noexcept {
    const Status status =
        device_->call([&](const detail::CudaApi&) { return device_->copy_by_kernel(to, from, bytes, stream); });
    if (status.code != detail::cuda::error_not_supported) return status;
    return {StatusKind::unsupported, status.code, status.name};
}

MEMSAVER_INLINE Status CudaDriver::pin_host(void* pages, std::size_t bytes) const noexcept {
    const Status status = device_->call([&](const detail::CudaApi& api) {
        return api.host_register(pages, bytes, detail::cuda::host_register_portable);
    });
    if (status.kind != StatusKind::out_of_memory) return status;
    return {StatusKind::out_of_host_memory, status.code, status.name}; // the host, not the device, is out of memory
}

MEMSAVER_INLINE Status CudaDriver::unpin_host(void* pages) const noexcept {
    return device_->call([&](const detail::CudaApi& api) { return api.host_unregister(pages); });
}

MEMSAVER_INLINE Status CudaDriver::allocate_plain(std::size_t bytes, Address& address) const noexcept {
    return device_->call([&](const detail::CudaApi& api) {
        detail::cuda::DevicePtr allocated = 0;
        const detail::cuda::Result result = api.mem_alloc(&allocated, bytes);
        if (result == detail::cuda::success) address = allocated;
        return result;
    });
}

MEMSAVER_INLINE Status CudaDriver::free_plain(Address address) const noexcept {
    return device_->call([&](const detail::CudaApi& api) { return api.mem_free(address); });
}

MEMSAVER_INLINE Status CudaDriver::owns_stream(StreamRef stream, bool& yes) const noexcept {
    return device_->owns_stream(stream, yes);
}

MEMSAVER_INLINE Status CudaDriver::pool_memory(PoolRef pool, std::size_t& bytes) const noexcept {
    return device_->pool_memory(pool, bytes);
}

MEMSAVER_INLINE Status CudaDriver::trim_pool(PoolRef pool, std::size_t keep) const noexcept {
    return device_->trim_pool(pool, keep);
}

MEMSAVER_INLINE Status CudaDriver::begin_capture(StreamRef stream, CaptureMode mode) const noexcept {
    return device_->call(
        [&](const detail::CudaApi& api) { return api.begin_capture(detail::native(stream), detail::native(mode)); });
}

MEMSAVER_INLINE Status CudaDriver::end_capture(StreamRef stream, GraphRef& graph) const noexcept {
    return device_->call([&](const detail::CudaApi& api) {
        detail::cuda::Graph recorded = nullptr;
        detail::cuda::Result result = api.end_capture(detail::native(stream), &recorded);
        if (recorded == nullptr) return result;
        detail::cuda::GraphExec ready = nullptr;
        if (result == detail::cuda::success) result = api.graph_instantiate(&ready, recorded, 0);
        // The executable graph is a copy. If this fails, a graph without memory of its own is leaked.
        static_cast<void>(api.graph_destroy(recorded));
        if (result == detail::cuda::success) graph.native = ready;
        return result;
    });
}

MEMSAVER_INLINE Status CudaDriver::update_graph(StreamRef stream, GraphRef& graph) const noexcept {
    return device_->call([&](const detail::CudaApi& api) {
        detail::cuda::Graph recorded = nullptr;
        detail::cuda::Result result = api.end_capture(detail::native(stream), &recorded);
        if (recorded == nullptr) return result;
        if (result == detail::cuda::success) {
            detail::cuda::GraphUpdateResult why{};
            detail::cuda::GraphExec fresh = nullptr;
            if (api.graph_exec_update == nullptr ||
                api.graph_exec_update(detail::native(graph), recorded, &why) != detail::cuda::success) {
                result = api.graph_instantiate(&fresh, recorded, 0);
            }
            if (fresh != nullptr) {
                static_cast<void>(api.graph_exec_destroy(detail::native(graph))); // if running, once it ends
                graph.native = fresh;
            }
        }
        static_cast<void>(api.graph_destroy(recorded));
        return result;
    });
}

MEMSAVER_INLINE Status CudaDriver::launch(GraphRef graph, StreamRef stream) const noexcept {
    return device_->call(
        [&](const detail::CudaApi& api) { return api.graph_launch(detail::native(graph), detail::native(stream)); });
}

MEMSAVER_INLINE Status CudaDriver::close_graph(GraphRef graph) const noexcept {
    return device_->call([&](const detail::CudaApi& api) { return api.graph_exec_destroy(detail::native(graph)); });
}

MEMSAVER_INLINE Status CudaDriver::follow_outside(StreamRef stream, EventRef event) const noexcept {
    return device_->call([&](const detail::CudaApi& api) {
        int status = detail::cuda::capture_none;
        const detail::cuda::Result result = api.stream_capturing(detail::native(stream), &status);
        if (result != detail::cuda::success) return result;
        return api.stream_wait_event(detail::native(stream), detail::native(event),
                                     status == detail::cuda::capture_none ? 0 : detail::cuda::event_wait_external);
    });
}

} // namespace memsaver::inline v0_3
