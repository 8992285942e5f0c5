// What all copies of one CudaDriver share: the loaded driver, the device's retained primary context, and what was
// fixed when it was opened. Immutable once open. Knows nothing of the calls that CudaDriver makes with it.
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

namespace memsaver::inline v0_2 {

namespace detail {

class CudaDevice {
public:
    /// Throws Misuse for a number that no device has, Unavailable for whatever else keeps the device from being used as
    /// the options say.
    CudaDevice(int number, CudaDriverOptions options, const char* library);
    CudaDevice(const CudaDevice&) = delete;
    CudaDevice& operator=(const CudaDevice&) = delete;
    /// Nobody could act on a failure here; at process exit the driver is often gone already.
    ~CudaDevice();

    /// Whether the device can be used, without making a context on it: some hundred MiB that a question must not cost.
    static CudaAvailability usable(const CudaApi& api, int number);

    /// How many devices the driver has; false with a reason where that is none.
    static CudaAvailability count_devices(const CudaApi& api, int& count);

    /// Runs `body(api)` with the thread set up for it (CudaScope); its cuda::Result becomes the Status.
    template <class Body>
    Status call(const Body& body) const noexcept {
        const CudaScope scope{api_, context_};
        const cuda::Result result = scope.result() == cuda::success ? body(api_) : scope.result();
        return api_.status(result == cuda::error_invalid_handle ? why_invalid() : result);
    }

    /// The stream for copies in one direction, opened by whoever asks first. Inside `call`.
    cuda::Result lane(Direction direction, StreamRef& stream) const noexcept;

    /// Enqueues copies between the device and pinned host pages, in batches; `begun` of them were when it answers.
    /// cuda::error_not_supported where the CUDA driver is too old, and where pinned pages do not have their own
    /// addresses on the device. Inside `call`.
    cuda::Result copy_many(Direction direction, const CopyPart* parts, std::size_t count, StreamRef stream,
                           std::size_t& begun) const noexcept;
    /// Enqueues a copy by a kernel of the library's; of no bytes: only loads it. cuda::error_not_supported where the
    /// driver, the device or the alignment of an address does not allow for it, and while it cannot be loaded because
    /// streams wait for words. Inside `call`.
    cuda::Result copy_by_kernel(Address to, Address from, std::size_t bytes, StreamRef stream) const noexcept;

    /// By freeing: measured on an H200, cuMemFree waits for the whole primary context as cuCtxSynchronize does, but
    /// leaves open captures whole; 1.8 us on an idle device. On a full one, where there is nothing to free, a page of
    /// the host's is unpinned, which does the same in 0.1 ms. The first call keeps 512 bytes for as long as this lives
    /// (of a granule of the device's, if the program has no other small allocations), for otherwise each call would
    /// make and unmake that granule.
    Status drain() const noexcept;

    /// Whether a stream is of this device, whatever its context.
    Status owns_stream(StreamRef stream, bool& yes) const noexcept;

    /// What a pool holds, and giving back what it can. A device without pools holds nothing.
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
    /// Null where there is none. The driver compiles and loads it, and may wait for the context meanwhile.
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

    /// So a lost context answers too, for handles of its own; seen on an H200 after an illegal address.
    [[nodiscard]] cuda::Result why_invalid() const noexcept;
    static CudaAvailability failed(const CudaApi& api, const std::string& who, cuda::Result result);

    [[nodiscard]] std::string label() const { return "CUDA device " + std::to_string(number_); }

    static void demand(const CudaAvailability& found);

    void must(cuda::Result result, const char* what) const;

    [[nodiscard]] bool has(int attribute) const;

    /// Makes the list of peers sorted and unique, and the access rights of allow_access from it.
    void choose_peers();

    static cuda::AccessDesc access_of(int number, int flags = cuda::access_read_write) noexcept;

    /// Fixes what cuMemCreate is asked for, and the granularity that follows from it. By number what the headers of
    /// CUDA 12.0 do not name.
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
    mutable cuda::DevicePtr crumb_ = 0;
    mutable std::mutex copier_mutex_;
    mutable std::atomic<bool> copier_tried_{false};
    mutable cuda::Module copier_ = nullptr;
    mutable cuda::Function copy_kernel_ = nullptr;
};

} // namespace detail

} // namespace memsaver::inline v0_2

#ifndef MEMSAVER_COMPILED
#include "memsaver/driver/cuda_device.ipp"
#endif
