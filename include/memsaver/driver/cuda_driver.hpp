// CudaDriver: an NVIDIA GPU as a Driver, through the CUDA driver's virtual memory calls. Loads the CUDA driver at run
// time and never links against it. Knows nothing about tags, policies or the CUDA runtime.
#pragma once

#include "memsaver/core/function_ref.hpp"
#include "memsaver/driver/concepts.hpp"
#include "memsaver/driver/cuda_options.hpp"
#include "memsaver/driver/system.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace memsaver::inline v0_3 {

namespace detail {
class CudaDevice;
}

/// A CUDA device, by its number. A cheap handle: copies share one retained primary context, the one that the CUDA
/// runtime also uses, and the last copy releases it. Two drivers are equal if they name one device with the same
/// options.
///
/// Every method may be called from any thread, with any context current or none, also while streams are being captured.
/// It leaves the thread's context and capture mode unchanged. No method throws or allocates on the host. The concepts
/// document each method; this header adds only what is specific to CUDA.
class CudaDriver : public detail::SystemMemory {
public:
    /// Throws Misuse if no device has this number (also for a peer), and Unavailable, with the text of `available()`,
    /// if there is no usable device. Allocates the device's context if it has none yet.
    explicit CudaDriver(int device, CudaDriverOptions options = {}, const char* library = default_cuda_library);

    // Copied only, never emptied by a move: a driver is always valid.
    CudaDriver(const CudaDriver&) noexcept = default;
    CudaDriver& operator=(const CudaDriver&) noexcept = default;
    ~CudaDriver() = default;

    /// Reports whether `CudaDriver{device}` would find a driver and a device, and if not, why. Does not create a
    /// context.
    [[nodiscard]] static CudaAvailability available(int device = 0, const char* library = default_cuda_library);
    /// The number of devices that the driver reports, usable or not; 0 if there is no driver.
    [[nodiscard]] static int device_count(const char* library = default_cuda_library);

    [[nodiscard]] int device() const noexcept;
    /// "NVIDIA H200 (CUDA device 0)".
    [[nodiscard]] std::string name() const;
    /// The host's NUMA node next to the device, or -1 if unknown.
    [[nodiscard]] int numa_node() const noexcept;
    /// Runs `work`, which must not throw, with the device's context current on this thread and the capture mode
    /// relaxed, for libraries that launch kernels. Callable from any thread.
    Status with_context(detail::FunctionRef<void()> work) const noexcept;
    friend bool operator==(const CudaDriver& a, const CudaDriver& b) noexcept;

    // Pages

    /// The recommended granularity, or the minimum if that is larger.
    Status granularity(std::size_t& bytes) const noexcept;
    Status memory(DeviceMemory& memory) const noexcept;
    Status reserve(std::size_t bytes, std::size_t alignment, Address& address) const noexcept;
    Status unreserve(Address address, std::size_t bytes) const noexcept;
    Status create(std::size_t bytes, PageHandle& handle) const noexcept;
    Status release(PageHandle handle) const noexcept;
    Status map(Address address, std::size_t bytes, PageHandle handle) const noexcept;
    Status unmap(Address address, std::size_t bytes) const noexcept;
    Status allow_access(Address address, std::size_t bytes) const noexcept;

    // Streams. Null is the legacy default stream of this device, however the program was compiled.

    Status open_stream(StreamRef& stream) const noexcept;
    Status close_stream(StreamRef stream) const noexcept;
    /// An event can mark only streams of its own context; `near` may be a stream of another device.
    Status open_event(StreamRef near, EventRef& event) const noexcept;
    Status close_event(EventRef event) const noexcept;
    Status record(EventRef event, StreamRef stream) const noexcept;
    /// Covers the primary context and its green contexts. Drivers before CUDA 12.5 cannot mark a whole device; there
    /// the call waits instead, so that all the work it should mark, and any work the event marked before, has
    /// completed.
    Status record_device(EventRef event) const noexcept;
    Status follow(StreamRef stream, EventRef event) const noexcept;
    Status query(EventRef event, bool& passed) const noexcept;
    Status wait(EventRef event) const noexcept;
    Status drain() const noexcept;
    /// The default stream counts as captured while a stream that synchronizes with it is captured: work on it would
    /// break that capture.
    Status capturing(StreamRef stream, bool& yes) const noexcept;

    // Copies

    Status copy_to_host(void* host, Address from, std::size_t bytes, StreamRef stream) const noexcept;
    Status copy_to_device(Address to, const void* host, std::size_t bytes, StreamRef stream) const noexcept;
    Status fill(Address to, unsigned char byte, std::size_t bytes, StreamRef stream) const noexcept;

    Status lane(Direction direction, StreamRef& stream) const noexcept;

    // Peers, over NVLink where available

    Status reach_peer(Address address, std::size_t bytes) const noexcept;
    Status copy_peer(Address to, Address from, std::size_t bytes, StreamRef stream) const noexcept;

    /// Needs a CUDA driver of 13.0 or newer. Not for a stream that is being captured, nor for the legacy stream.
    Status copy_many(Direction direction, const CopyPart* parts, std::size_t count, StreamRef stream) const noexcept;

    /// Uses up to 64 blocks of 512 threads. Both addresses must be multiples of 16 bytes; otherwise unsupported.
    Status copy_by_kernel(Address to, Address from, std::size_t bytes, StreamRef stream) const noexcept;

    [[nodiscard]] Neighbours* neighbours() const noexcept;

    // Host pages, in addition to those of SystemMemory. Pinned pages are portable: every device reaches them.

    Status pin_host(void* pages, std::size_t bytes) const noexcept;
    Status unpin_host(void* pages) const noexcept;

    // Plain

    Status allocate_plain(std::size_t bytes, Address& address) const noexcept;
    Status free_plain(Address address) const noexcept;

    Status owns_stream(StreamRef stream, bool& yes) const noexcept;
    Status pool_memory(PoolRef pool, std::size_t& bytes) const noexcept;
    Status trim_pool(PoolRef pool, std::size_t keep) const noexcept;

    // Captures

    /// The capture uses this mode; the thread's own mode is relaxed only during this call.
    Status begin_capture(StreamRef stream, CaptureMode mode) const noexcept;
    Status end_capture(StreamRef stream, GraphRef& graph) const noexcept;
    /// Updates in place with cuGraphExecUpdate; if that refuses, instantiates the graph again.
    Status update_graph(StreamRef stream, GraphRef& graph) const noexcept;
    Status launch(GraphRef graph, StreamRef stream) const noexcept;
    Status close_graph(GraphRef graph) const noexcept;

    // Gates

    /// While the stream is being captured, adds an event wait node (CU_EVENT_WAIT_EXTERNAL).
    Status follow_outside(StreamRef stream, EventRef event) const noexcept;

private:
    std::shared_ptr<const detail::CudaDevice> device_;
};

static_assert(Driver<CudaDriver> && Plain<CudaDriver> && Captures<CudaDriver> && Gates<CudaDriver>);

static_assert(Trims<CudaDriver> && StreamOwners<CudaDriver>);

static_assert(Shared<CudaDriver> && Lanes<CudaDriver> && HostPages<CudaDriver> && Files<CudaDriver>);

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/driver/cuda_driver.ipp"
#endif
