// The state shared by all copies of one CudaDriver: the loaded driver, the device's retained primary context, and
// everything that was fixed when it was opened. Immutable once open. Knows nothing about the calls made with it.
#pragma once

#include "memsaver/core/error.hpp"
#include "memsaver/driver/cuda_api.hpp"
#include "memsaver/driver/neighbours.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <mutex>
#include <string>
#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {

class CudaDevice {
public:
    /// Throws Misuse for a device number that does not exist, and Unavailable if the device cannot be used with these
    /// options.
    CudaDevice(int number, CudaDriverOptions options, const char* library);
    CudaDevice(const CudaDevice&) = delete;
    CudaDevice& operator=(const CudaDevice&) = delete;
    /// Ignores failures, because no caller could handle them; at process exit the driver is often already unloaded.
    ~CudaDevice();

    /// Returns whether the device can be used, without creating its context, which takes some hundred MiB.
    static CudaAvailability usable(const CudaApi& api, int number);

    /// The number of devices of the driver; false with a reason if there is none.
    static CudaAvailability count_devices(const CudaApi& api, int& count);

    /// Runs `body(api)` with the thread set up for it (CudaScope); its cuda::Result is returned as a Status.
    template <class Body>
    Status call(const Body& body) const noexcept {
        const CudaScope scope{api_, context_};
        const cuda::Result result = scope.result() == cuda::success ? body(api_) : scope.result();
        return api_.status(result == cuda::error_invalid_handle ? why_invalid() : result);
    }

    /// The stream for copies in one direction, opened by the first caller. Call inside `call`.
    cuda::Result lane(Direction direction, StreamRef& stream) const noexcept;

    /// Enqueues copies between the device and pinned host pages, in batches; on return, `begun` of them have been
    /// enqueued. Returns cuda::error_not_supported if the CUDA driver is too old, or if pinned pages do not have the
    /// same addresses on the device. Call inside `call`.
    cuda::Result copy_many(Direction direction, const CopyPart* parts, std::size_t count, StreamRef stream,
                           std::size_t& begun) const noexcept;
    /// Enqueues a copy by the library's kernel; with zero bytes, only loads the kernel. Returns
    /// cuda::error_not_supported if the driver, the device or the alignment of an address does not support it.
    /// Call inside `call`.
    cuda::Result copy_by_kernel(Address to, Address from, std::size_t bytes, StreamRef stream) const noexcept;

    /// Waits for the device by freeing memory: measured on an H200, cuMemFree waits for the whole primary context as
    /// cuCtxSynchronize does, but leaves open captures intact, and takes 1.8 us on an idle device. If the device is out
    /// of memory, so that there is nothing to free, it unpins a host page instead, which has the same effect in 0.1 ms.
    /// The first call keeps 512 bytes allocated as long as this object lives (of one device granule, if the program has
    /// no other small allocations); otherwise each call would create and release that granule.
    Status drain() const noexcept;

    /// Reports whether a stream belongs to this device, whatever its context.
    Status owns_stream(StreamRef stream, bool& yes) const noexcept;

    /// Query and trim a pool. A device without pools reports 0 bytes.
    Status pool_memory(PoolRef pool, std::size_t& bytes) const noexcept;
    Status trim_pool(PoolRef pool, std::size_t keep) const noexcept;

    [[nodiscard]] int numa_node() const noexcept;
    [[nodiscard]] int number() const noexcept { return number_; }
    [[nodiscard]] cuda::Context context() const noexcept { return context_; }
    [[nodiscard]] std::size_t granularity() const noexcept { return granularity_; }
    [[nodiscard]] const cuda::AllocationProp& pages() const noexcept { return pages_; }
    [[nodiscard]] const std::vector<cuda::AccessDesc>& access() const noexcept { return access_; }
    [[nodiscard]] const std::string& name() const noexcept { return name_; }
    [[nodiscard]] Neighbours& neighbours() const noexcept { return neighbours_; }

    friend bool operator==(const CudaDevice& a, const CudaDevice& b) noexcept;

private:
    cuda::Result unpin_a_page() const noexcept;
    /// Returns null if there is none. The driver compiles and loads the kernel, and may wait for the context to do so.
    cuda::Function copy_kernel() const noexcept;
    [[nodiscard]] cuda::Result pinned_at_own_addresses() const noexcept;
    cuda::Result load_copy_kernel() const noexcept;

    template <class Act>
    Status with_pool(PoolRef pool, const Act& act) const noexcept {
        return call([&](const CudaApi& api) {
            cuda::MemPool found = native(pool);
            cuda::Result result = cuda::success;
            if (found == nullptr && !pool.graphs()) result = api.default_pool(&found, device_);
            if (result == cuda::success) result = act(api, found);
            return result == cuda::error_not_supported ? cuda::success : result;
        });
    }

    /// Distinguishes a lost context from an invalid handle: a lost context returns the same error for its own handles
    /// (seen on an H200 after an illegal address).
    [[nodiscard]] cuda::Result why_invalid() const noexcept;
    static CudaAvailability failed(const CudaApi& api, const std::string& who, cuda::Result result);

    [[nodiscard]] std::string label() const { return "CUDA device " + std::to_string(number_); }

    static void demand(const CudaAvailability& found);

    void must(cuda::Result result, const char* what) const;

    [[nodiscard]] bool has(int attribute) const;

    /// Makes the list of peers sorted and unique, and derives the access rights for allow_access from it.
    void choose_peers();

    static cuda::AccessDesc access_of(int number, int flags = cuda::access_read_write) noexcept;

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
    std::vector<cuda::AccessDesc> access_;
    std::size_t granularity_ = 0;
    std::string name_;
    mutable Neighbours neighbours_;
    mutable std::mutex lanes_mutex_;
    mutable std::array<cuda::Stream, 2> lanes_{};
    mutable cuda::DevicePtr drain_allocation_ = 0;
    mutable std::mutex copier_mutex_;
    mutable std::atomic<bool> copier_tried_{false};
    mutable cuda::Module copier_ = nullptr;
    mutable cuda::Function copy_kernel_ = nullptr;
};

} // namespace detail

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/driver/cuda_device.ipp"
#endif
