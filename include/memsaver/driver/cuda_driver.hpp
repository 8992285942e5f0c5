// CudaDriver: an NVIDIA GPU as a Driver, through the CUDA driver's virtual memory calls.
// Loads the driver at run time and never links against it. Knows nothing of tags, policies or the CUDA runtime.
#pragma once

#include "memsaver/driver/concepts.hpp"
#include "memsaver/driver/cuda_api.hpp"
#include "memsaver/driver/cuda_device.hpp"
#include "memsaver/driver/cuda_native.hpp"
#include "memsaver/driver/system_memory.hpp"

#if !MEMSAVER_HAS_CUDA_HEADERS
#include "memsaver/driver/cuda_absent.hpp"
#else

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

namespace memsaver::inline v0_1::inline with_cuda_headers {

/// A CUDA device, by its number. A cheap handle: copies share one retained primary context, the one that the CUDA
/// runtime uses too, and let it go with the last of them. Equal are drivers of one device with the same options.
///
/// Every method may be called from any thread, with any context current or none, also while streams are being
/// captured; it leaves the thread's context and capture mode as they were. None throws, none allocates on the host.
/// What each does is told by the concepts; only what is CUDA's own is said here.
class CudaDriver : public SystemMemory {
public:
    /// Throws Misuse for a number that no device has (of a peer too), and Unavailable, with the text of `available()`,
    /// where there is nothing to use. Takes the memory of the device's context if it has none yet.
    explicit CudaDriver(int device, CudaDriverOptions options = {}, const char* library = default_cuda_library)
        : device_{std::make_shared<const CudaDevice>(device, std::move(options), library)} {}

    // Only copied, never emptied by a move: a driver is always whole.
    CudaDriver(const CudaDriver&) noexcept = default;
    CudaDriver& operator=(const CudaDriver&) noexcept = default;
    ~CudaDriver() = default;

    /// Whether `CudaDriver{device}` would find a driver and a device, and if not, why. Makes no context.
    [[nodiscard]] static CudaAvailability available(int device = 0, const char* library = default_cuda_library) {
        return CudaDevice::usable(CudaApi{library}, device);
    }
    /// How many devices the driver shows, usable or not; 0 where there is no driver.
    [[nodiscard]] static int device_count(const char* library = default_cuda_library) {
        int count = 0;
        return CudaDevice::count_devices(CudaApi{library}, count) ? count : 0;
    }

    [[nodiscard]] int device() const noexcept { return device_->number(); }
    /// "NVIDIA H200 (CUDA device 0)".
    [[nodiscard]] std::string name() const {
        return device_->name() + " (CUDA device " + std::to_string(device_->number()) + ")";
    }
    /// The host's NUMA node next to the device, or -1 if nobody knows.
    [[nodiscard]] int numa_node() const noexcept { return device_->numa_node(); }
    friend bool operator==(const CudaDriver& a, const CudaDriver& b) noexcept {
        return a.device_ == b.device_ || *a.device_ == *b.device_;
    }

    // Pages

    /// What the driver recommends, at least what it demands.
    Status granularity(std::size_t& bytes) const noexcept {
        bytes = device_->granularity();
        return {};
    }
    Status memory(DeviceMemory& memory) const noexcept {
        return call([&](const CudaApi& api) { return api.mem_info(&memory.free_bytes, &memory.total_bytes); });
    }
    Status reserve(std::size_t bytes, std::size_t alignment, Address& address) const noexcept {
        return call([&](const CudaApi& api) {
            CUdeviceptr reserved = 0;
            const CUresult result = api.mem_reserve(&reserved, bytes, alignment, 0, 0);
            if (result == CUDA_SUCCESS) address = reserved;
            return result;
        });
    }
    Status unreserve(Address address, std::size_t bytes) const noexcept {
        return call([&](const CudaApi& api) { return api.mem_unreserve(address, bytes); });
    }
    Status create(std::size_t bytes, PageHandle& handle) const noexcept {
        return call([&](const CudaApi& api) {
            CUmemGenericAllocationHandle created = 0;
            const CUresult result = api.mem_create(&created, bytes, &device_->pages(), 0);
            if (result == CUDA_SUCCESS) handle.value = created;
            return result;
        });
    }
    Status release(PageHandle handle) const noexcept {
        return call([&](const CudaApi& api) { return api.mem_release(handle.value); });
    }
    Status map(Address address, std::size_t bytes, PageHandle handle) const noexcept {
        return call([&](const CudaApi& api) { return api.mem_map(address, bytes, 0, handle.value, 0); });
    }
    Status unmap(Address address, std::size_t bytes) const noexcept {
        return call([&](const CudaApi& api) { return api.mem_unmap(address, bytes); });
    }
    Status allow_access(Address address, std::size_t bytes) const noexcept {
        return call([&](const CudaApi& api) {
            return api.mem_set_access(address, bytes, device_->access().data(), device_->access().size());
        });
    }
    Status allow_reading(Address address, std::size_t bytes) const noexcept {
        return call([&](const CudaApi& api) {
            const auto access = device_->reading();
            return api.mem_set_access(address, bytes, &access, 1);
        });
    }

    // Streams. Null is the legacy default stream of this device, whatever the program was compiled with.

    Status open_stream(StreamRef& stream) const noexcept {
        return call([&](const CudaApi& api) {
            CUstream opened = nullptr;
            const CUresult result = api.stream_create(&opened, CU_STREAM_NON_BLOCKING);
            if (result == CUDA_SUCCESS) stream = opened;
            return result;
        });
    }
    Status close_stream(StreamRef stream) const noexcept {
        return call([&](const CudaApi& api) { return api.stream_destroy(native(stream)); });
    }
    /// An event marks streams of its own context only; `near` may be a stream of another device.
    Status open_event(StreamRef near, EventRef& event) const noexcept {
        return call([&](const CudaApi& api) {
            CUcontext context = device_->context();
            CUresult result = near == StreamRef{} ? CUDA_SUCCESS : api.stream_context(native(near), &context);
            if (result != CUDA_SUCCESS) return result;
            const CudaScope there{api, context};
            CUevent opened = nullptr;
            result = there.result();
            if (result == CUDA_SUCCESS) result = api.event_create(&opened, CU_EVENT_DISABLE_TIMING);
            if (result == CUDA_SUCCESS) event = opened;
            return result;
        });
    }
    Status close_event(EventRef event) const noexcept {
        return call([&](const CudaApi& api) { return api.event_destroy(native(event)); });
    }
    Status record(EventRef event, StreamRef stream) const noexcept {
        return call([&](const CudaApi& api) { return api.event_record(native(event), native(stream)); });
    }
    /// Of the primary context, that is, and of green contexts of it. Drivers before CUDA 12.5 cannot mark a whole
    /// device. There this waits instead: whatever the event marked before has then passed, and so has all that it
    /// should mark.
    Status record_device(EventRef event) const noexcept {
        return call([&](const CudaApi& api) {
            return api.ctx_record_event != nullptr ? api.ctx_record_event(device_->context(), native(event))
                                                   : api.ctx_synchronize();
        });
    }
    Status follow(StreamRef stream, EventRef event) const noexcept {
        return call([&](const CudaApi& api) { return api.stream_wait_event(native(stream), native(event), 0); });
    }
    Status query(EventRef event, bool& passed) const noexcept {
        return call([&](const CudaApi& api) {
            const CUresult result = api.event_query(native(event));
            if (result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_READY) passed = result == CUDA_SUCCESS;
            return result == CUDA_ERROR_NOT_READY ? CUDA_SUCCESS : result;
        });
    }
    Status wait(EventRef event) const noexcept {
        return call([&](const CudaApi& api) { return api.event_wait(native(event)); });
    }
    Status drain() const noexcept { return device_->drain(); }
    /// The default stream counts as captured while a stream that waits for it is: work on it would break that capture.
    Status capturing(StreamRef stream, bool& yes) const noexcept {
        return call([&](const CudaApi& api) {
            CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
            const CUresult result = api.stream_capturing(native(stream), &status);
            const bool implicit = result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
            if (result == CUDA_SUCCESS || implicit) yes = implicit || status != CU_STREAM_CAPTURE_STATUS_NONE;
            return implicit ? CUDA_SUCCESS : result;
        });
    }

    // Copies

    Status copy_to_host(void* host, Address from, std::size_t bytes, StreamRef stream) const noexcept {
        return call([&](const CudaApi& api) { return api.copy_to_host(host, from, bytes, native(stream)); });
    }
    Status copy_to_device(Address to, const void* host, std::size_t bytes, StreamRef stream) const noexcept {
        return call([&](const CudaApi& api) { return api.copy_to_device(to, host, bytes, native(stream)); });
    }
    Status fill(Address to, unsigned char byte, std::size_t bytes, StreamRef stream) const noexcept {
        return call([&](const CudaApi& api) { return api.fill(to, byte, bytes, native(stream)); });
    }

    Status lane(Direction direction, StreamRef& stream) const noexcept {
        return call([&](const CudaApi&) { return device_->lane(direction, stream); });
    }

    // Host pages, but for what is the system's. Portable: every device reaches them.

    Status pin_host(void* pages, std::size_t bytes) const noexcept {
        const Status status =
            call([&](const CudaApi& api) { return api.host_register(pages, bytes, CU_MEMHOSTREGISTER_PORTABLE); });
        if (status.kind != StatusKind::out_of_memory) return status;
        return {StatusKind::out_of_host_memory, status.code, status.name}; // it is the host's pages that are short
    }
    Status unpin_host(void* pages) const noexcept {
        return call([&](const CudaApi& api) { return api.host_unregister(pages); });
    }

    // Plain

    Status allocate_plain(std::size_t bytes, Address& address) const noexcept {
        return call([&](const CudaApi& api) {
            CUdeviceptr allocated = 0;
            const CUresult result = api.mem_alloc(&allocated, bytes);
            if (result == CUDA_SUCCESS) address = allocated;
            return result;
        });
    }
    Status free_plain(Address address) const noexcept {
        return call([&](const CudaApi& api) { return api.mem_free(address); });
    }

    Status owns_stream(StreamRef stream, bool& yes) const noexcept { return device_->owns_stream(stream, yes); }
    Status pool_memory(PoolRef pool, std::size_t& bytes) const noexcept { return device_->pool_memory(pool, bytes); }
    Status trim_pool(PoolRef pool, std::size_t keep) const noexcept { return device_->trim_pool(pool, keep); }

    // Captures

    /// The capture gets this mode; the thread's own is relaxed only while this call runs.
    Status begin_capture(StreamRef stream, CaptureMode mode) const noexcept {
        return call([&](const CudaApi& api) { return api.begin_capture(native(stream), native(mode)); });
    }
    Status end_capture(StreamRef stream, GraphRef& graph) const noexcept {
        return call([&](const CudaApi& api) {
            CUgraph recorded = nullptr;
            CUresult result = api.end_capture(native(stream), &recorded);
            if (recorded == nullptr) return result;
            CUgraphExec ready = nullptr;
            if (result == CUDA_SUCCESS) result = api.graph_instantiate(&ready, recorded, 0);
            // What can be launched is a copy. Should this fail, a graph without memory of its own is left behind.
            static_cast<void>(api.graph_destroy(recorded));
            if (result == CUDA_SUCCESS) graph.native = ready;
            return result;
        });
    }
    /// In place by cuGraphExecUpdate; whatever it refuses is instantiated anew.
    Status update_graph(StreamRef stream, GraphRef& graph) const noexcept {
        return call([&](const CudaApi& api) {
            CUgraph recorded = nullptr;
            CUresult result = api.end_capture(native(stream), &recorded);
            if (recorded == nullptr) return result;
            if (result == CUDA_SUCCESS) {
                CUgraphExecUpdateResultInfo why{};
                CUgraphExec fresh = nullptr;
                if (api.graph_exec_update == nullptr ||
                    api.graph_exec_update(native(graph), recorded, &why) != CUDA_SUCCESS) {
                    result = api.graph_instantiate(&fresh, recorded, 0);
                }
                if (fresh != nullptr) {
                    static_cast<void>(api.graph_exec_destroy(native(graph))); // if it runs, once it has ended
                    graph.native = fresh;
                }
            }
            static_cast<void>(api.graph_destroy(recorded));
            return result;
        });
    }
    Status launch(GraphRef graph, StreamRef stream) const noexcept {
        return call([&](const CudaApi& api) { return api.graph_launch(native(graph), native(stream)); });
    }
    Status close_graph(GraphRef graph) const noexcept {
        return call([&](const CudaApi& api) { return api.graph_exec_destroy(native(graph)); });
    }

private:
    template <class Body>
    Status call(const Body& body) const noexcept {
        return device_->call(body);
    }

    std::shared_ptr<const CudaDevice> device_;
};

static_assert(Driver<CudaDriver> && Plain<CudaDriver> && Captures<CudaDriver>);
static_assert(Trims<CudaDriver> && StreamOwners<CudaDriver>);
static_assert(Lanes<CudaDriver> && HostPages<CudaDriver> && Files<CudaDriver>);

} // namespace memsaver::inline v0_1::inline with_cuda_headers

#endif // MEMSAVER_HAS_CUDA_HEADERS
