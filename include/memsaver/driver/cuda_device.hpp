// The machine of a CudaDriver: the loaded driver, the device's retained primary context, what was fixed when it was
// opened, and the calls.
#pragma once

#include "memsaver/core/error.hpp"
#include "memsaver/core/function_ref.hpp"
#include "memsaver/driver/cuda_api.hpp"
#include "memsaver/driver/device.hpp"
#include "memsaver/driver/neighbours.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {

class CudaDevice final : public Device {
public:
    /// Throws Misuse for a device number that does not exist, and Unavailable if the device cannot be used with these
    /// options.
    CudaDevice(int number, CudaDriverOptions options, const char* library);
    /// Ignores failures, because no caller could handle them; at process exit the driver is often already unloaded.
    MEMSAVER_INLINE ~CudaDevice() override;

    /// Returns whether the device can be used, without creating its context, which takes some hundred MiB.
    static CudaAvailability usable(const CudaApi& api, int number);

    /// The number of devices of the driver; false with a reason if there is none.
    static CudaAvailability count_devices(const CudaApi& api, int& count);

    [[nodiscard]] int device() const noexcept override { return number_; }
    /// "NVIDIA H200 (CUDA device 0)".
    [[nodiscard]] MEMSAVER_INLINE std::string name() const override;
    [[nodiscard]] MEMSAVER_INLINE Features features() const noexcept override;
    /// Equal if they name one device of one library with the same options.
    [[nodiscard]] MEMSAVER_INLINE bool equals(const Device& other) const noexcept override;
    /// The device's UUID, as nvidia-smi prints it.
    MEMSAVER_INLINE Status identity(std::string& text) const noexcept override;
    [[nodiscard]] MEMSAVER_INLINE int numa_node() const noexcept override;
    [[nodiscard]] Neighbours* neighbours() noexcept override { return &neighbours_; }
    MEMSAVER_INLINE Status with_context(FunctionRef<void()> work) noexcept override;

    /// The recommended granularity, or the minimum if that is larger.
    MEMSAVER_INLINE Status granularity(std::size_t& bytes) noexcept override;
    MEMSAVER_INLINE Status memory(DeviceMemory& memory) noexcept override;
    MEMSAVER_INLINE Status reserve(std::size_t bytes, std::size_t alignment, Address& address) noexcept override;
    MEMSAVER_INLINE Status unreserve(Address address, std::size_t bytes) noexcept override;
    MEMSAVER_INLINE Status create(std::size_t bytes, PageHandle& pages) noexcept override;
    MEMSAVER_INLINE Status release(PageHandle pages) noexcept override;
    MEMSAVER_INLINE Status map(Address address, std::size_t bytes, PageHandle pages) noexcept override;
    MEMSAVER_INLINE Status unmap(Address address, std::size_t bytes) noexcept override;
    MEMSAVER_INLINE Status allow_access(Address address, std::size_t bytes, Rights rights) noexcept override;
    /// As `create`, with file descriptors among the handle types, which are fixed here.
    MEMSAVER_INLINE Status create_shared(std::size_t bytes, PageHandle& pages) noexcept override;
    /// The driver closes the descriptor on exec. Fails for imported pages: keep the descriptor that they came with.
    MEMSAVER_INLINE Status export_pages(PageHandle pages, int& descriptor) noexcept override;
    MEMSAVER_INLINE Status import_pages(int descriptor, PageHandle& pages) noexcept override;

    // Null is the legacy default stream of this device, however the program was compiled.
    MEMSAVER_INLINE Status open_stream(StreamRef& stream) noexcept override;
    MEMSAVER_INLINE Status close_stream(StreamRef stream) noexcept override;
    /// An event can mark only streams of its own context; `near` may be a stream of another device.
    MEMSAVER_INLINE Status open_event(StreamRef near, EventRef& event) noexcept override;
    MEMSAVER_INLINE Status close_event(EventRef event) noexcept override;
    MEMSAVER_INLINE Status record(EventRef event, StreamRef stream) noexcept override;
    /// Covers the primary context and its green contexts. Drivers before CUDA 12.5 cannot mark a whole device; there
    /// the call waits instead, so that all the work it should mark, and any work the event marked before, has
    /// completed.
    MEMSAVER_INLINE Status record_device(EventRef event) noexcept override;
    MEMSAVER_INLINE Status follow(StreamRef stream, EventRef event) noexcept override;
    MEMSAVER_INLINE Status query(EventRef event, bool& passed) noexcept override;
    MEMSAVER_INLINE Status wait(EventRef event) noexcept override;
    /// Waits for the device by freeing memory: measured on an H200, cuMemFree waits for the whole primary context as
    /// cuCtxSynchronize does, but leaves open captures intact, and takes 1.8 us on an idle device. If the device is out
    /// of memory, so that there is nothing to free, it unpins a host page instead, which has the same effect in 0.1 ms.
    /// The first call keeps 512 bytes allocated as long as this object lives (of one device granule, if the program has
    /// no other small allocations); otherwise each call would create and release that granule.
    MEMSAVER_INLINE Status drain() noexcept override;
    /// The default stream counts as captured while a stream that synchronizes with it is captured: work on it would
    /// break that capture.
    MEMSAVER_INLINE Status capturing(StreamRef stream, bool& yes) noexcept override;
    /// Opened by the first caller.
    MEMSAVER_INLINE Status lane(Direction direction, StreamRef& stream) noexcept override;
    /// Whatever the stream's context.
    MEMSAVER_INLINE Status owns_stream(StreamRef stream, bool& yes) noexcept override;

    MEMSAVER_INLINE Status copy_to_host(void* host, Address from, std::size_t bytes, StreamRef) noexcept override;
    MEMSAVER_INLINE Status copy_to_device(Address to, const void*, std::size_t bytes, StreamRef) noexcept override;
    MEMSAVER_INLINE Status fill(Address to, unsigned char byte, std::size_t bytes, StreamRef) noexcept override;
    /// Over NVLink where available.
    MEMSAVER_INLINE Status reach_peer(Address address, std::size_t bytes) noexcept override;
    MEMSAVER_INLINE Status copy_peer(Address to, Address from, std::size_t bytes, StreamRef) noexcept override;
    /// Needs a CUDA driver of 13.0 or newer, and pinned pages with the same addresses on the device. Not for a stream
    /// that is being captured, nor for the legacy stream.
    MEMSAVER_INLINE Status copy_many(Direction, const CopyPart* parts, std::size_t count, StreamRef) noexcept override;
    /// Uses up to 64 blocks of 512 threads. Both addresses must be multiples of 16 bytes; otherwise unsupported.
    MEMSAVER_INLINE Status copy_by_kernel(Address to, Address from, std::size_t bytes, StreamRef) noexcept override;
    MEMSAVER_INLINE Status run_kernel(const KernelRun& run, StreamRef stream) noexcept override;

    MEMSAVER_INLINE Status allocate_plain(std::size_t bytes, Address& address) noexcept override;
    MEMSAVER_INLINE Status free_plain(Address address) noexcept override;

    /// The capture uses this mode; the thread's own mode is relaxed only during this call.
    MEMSAVER_INLINE Status begin_capture(StreamRef stream, CaptureMode mode) noexcept override;
    MEMSAVER_INLINE Status end_capture(StreamRef stream, GraphRef& graph) noexcept override;
    /// Updates in place with cuGraphExecUpdate; if that refuses, instantiates the graph again.
    MEMSAVER_INLINE Status update_graph(StreamRef stream, GraphRef& graph) noexcept override;
    MEMSAVER_INLINE Status launch(GraphRef graph, StreamRef stream) noexcept override;
    MEMSAVER_INLINE Status close_graph(GraphRef graph) noexcept override;
    /// While the stream is being captured, adds an event wait node (CU_EVENT_WAIT_EXTERNAL).
    MEMSAVER_INLINE Status follow_outside(StreamRef stream, EventRef event) noexcept override;

    /// A device without pools has 0 bytes.
    MEMSAVER_INLINE Status pool_memory(PoolRef pool, std::size_t& bytes) noexcept override;
    MEMSAVER_INLINE Status trim_pool(PoolRef pool, std::size_t keep) noexcept override;
    /// Pinned pages are portable: every device reaches them.
    MEMSAVER_INLINE Status pin_host(void* pages, std::size_t bytes) noexcept override;
    MEMSAVER_INLINE Status unpin_host(void* pages) noexcept override;

private:
    using Body = FunctionRef<cuda::Result(const CudaApi&)>;
    using PoolBody = FunctionRef<cuda::Result(const CudaApi&, cuda::MemPool)>;

    /// Runs `body(api)` with the thread set up for it (CudaScope); its cuda::Result is returned as a Status.
    Status call(Body body) const noexcept;
    Status with_pool(PoolRef pool, PoolBody body) const noexcept;

    /// Enqueues copies in batches; on return, `begun` of them have been enqueued. Call inside `call`, as the next ones.
    cuda::Result copy_batches(Direction direction, const CopyPart* parts, std::size_t count, StreamRef stream,
                              std::size_t& begun) const noexcept;
    cuda::Result launch_copy(Address to, Address from, std::size_t bytes, StreamRef stream) noexcept;
    cuda::Result unpin_a_page() const noexcept;
    struct LoadedKernel {
        const KernelCode* code = nullptr; // null: a free place
        cuda::Module module = nullptr;
        cuda::Function function = nullptr; // null: it cannot be loaded
    };
    /// Returns null if there is none. The driver compiles and loads the kernel, and may wait for the context to do so.
    cuda::Function kernel(const KernelCode& code) noexcept;
    [[nodiscard]] cuda::Result pinned_at_own_addresses() const noexcept;
    cuda::Result load_kernel(LoadedKernel& kernel, const KernelCode& code) noexcept;

    /// Distinguishes a lost context from an invalid handle: a lost context returns the same error for its own handles
    /// (seen on an H200 after an illegal address).
    [[nodiscard]] cuda::Result why_invalid() const noexcept;
    static CudaAvailability failed(const CudaApi& api, const std::string& who, cuda::Result result);

    [[nodiscard]] std::string label() const { return "CUDA device " + std::to_string(number_); }

    Status create(std::size_t bytes, int handle_types, PageHandle& pages) const noexcept;

    static void demand(const CudaAvailability& found);

    void must(cuda::Result result, const char* what) const;

    [[nodiscard]] bool has(int attribute) const;

    /// Makes the list of peers sorted and unique, and derives the access rights for allow_access from it.
    void choose_peers();

    /// Sets the properties passed to cuMemCreate, and the granularity that follows from them. Attributes that the
    /// headers of CUDA 12.0 lack are given by number.
    void describe_pages();

    CudaApi api_;
    std::string library_;
    int number_;
    CudaDriverOptions options_;
    cuda::Device device_ = 0;
    cuda::Context context_ = nullptr;
    cuda::AllocationProp pages_{};
    bool exports_ = false;                    // as file descriptors
    std::vector<cuda::AccessDesc> access_[2]; // by Rights: of the device itself, first, and of its peers
    std::size_t granularity_ = 0;
    std::string name_;
    Neighbours neighbours_;
    std::mutex lanes_mutex_;
    std::array<cuda::Stream, 2> lanes_{};
    cuda::DevicePtr drain_allocation_ = 0;
    std::mutex kernels_mutex_;
    std::array<LoadedKernel, 4> kernels_{}; // in the order of their first runs
};

} // namespace detail

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/driver/cuda_device.ipp"
#endif
