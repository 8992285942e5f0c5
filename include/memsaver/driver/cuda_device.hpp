// What all copies of one CudaDriver share: the loaded driver, the device's retained primary context, and what was
// fixed when it was opened. Immutable once open. Knows nothing of the calls that CudaDriver makes with it.
#pragma once

#include "memsaver/driver/cuda_api.hpp"
#include "memsaver/driver/cuda_native.hpp"
#include "memsaver/driver/cuda_scope.hpp"
#include "memsaver/driver/handles.hpp"

#if MEMSAVER_HAS_CUDA_HEADERS

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <mutex>
#include <string>
#include <vector>

namespace memsaver::inline v0_1 {

class CudaDevice {
public:
    /// Throws Misuse for a number that no device has, Unavailable for whatever else keeps the device from being used as
    /// the options say.
    CudaDevice(int number, CudaDriverOptions options, const char* library)
        : api_{library}, library_{library}, number_{number}, options_{std::move(options)} {
        demand(usable(api_, number_));
        must(api_.device_get(&device_, number_), "find it");
        choose_peers();
        describe_pages();
        char name[256] = {};
        must(api_.device_name(name, static_cast<int>(sizeof name) - 1, device_), "ask its name");
        name_ = name;
        must(api_.primary_retain(&context_, device_), "retain its primary context"); // last: nothing throws after it
    }
    CudaDevice(const CudaDevice&) = delete;
    CudaDevice& operator=(const CudaDevice&) = delete;
    /// Nobody could act on a failure here; at process exit the driver is often gone already.
    ~CudaDevice() {
        if (crumb_ != 0 || lanes_[0] != nullptr || lanes_[1] != nullptr) {
            const CudaScope scope{api_, context_};
            for (const CUstream lane : lanes_) {
                if (lane != nullptr && scope.result() == CUDA_SUCCESS) static_cast<void>(api_.stream_destroy(lane));
            }
            if (crumb_ != 0 && scope.result() == CUDA_SUCCESS) static_cast<void>(api_.mem_free(crumb_));
        }
        static_cast<void>(api_.primary_release(device_));
    }

    /// Whether the device can be used, without making a context on it: some hundred MiB that a question must not cost.
    static CudaAvailability usable(const CudaApi& api, int number) {
        int count = 0;
        CudaAvailability found = count_devices(api, count);
        if (!found) return found;
        if (number < 0 || number >= count) {
            return {CudaProblem::bad_device_number,
                    "there is no CUDA device " + std::to_string(number) + ": there are " + std::to_string(count)};
        }
        CUdevice device = 0;
        int supported = 0;
        CUresult result = api.device_get(&device, number);
        if (result == CUDA_SUCCESS) {
            result = api.device_attribute(&supported, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device);
        }
        if (result != CUDA_SUCCESS) return failed(api, "CUDA device " + std::to_string(number), result);
        if (supported == 0) {
            return {CudaProblem::no_virtual_memory,
                    "CUDA device " + std::to_string(number) + " does not support virtual memory management"};
        }
        return {};
    }

    /// How many devices the driver has; false with a reason where that is none.
    static CudaAvailability count_devices(const CudaApi& api, int& count) {
        if (!api.library.state()) return api.library.state();
        CUresult result = api.init(0);
        if (result == CUDA_SUCCESS) result = api.device_count(&count);
        if (result == CUDA_ERROR_NO_DEVICE || (result == CUDA_SUCCESS && count == 0)) {
            return {CudaProblem::no_device, "the CUDA driver finds no device"};
        }
        return result == CUDA_SUCCESS ? CudaAvailability{} : failed(api, "the CUDA driver", result);
    }

    /// Runs `body(api)` with the thread set up for it (CudaScope); its CUresult becomes the Status.
    template <class Body>
    Status call(const Body& body) const noexcept {
        const CudaScope scope{api_, context_};
        const CUresult result = scope.result() == CUDA_SUCCESS ? body(api_) : scope.result();
        return api_.status(result == CUDA_ERROR_INVALID_HANDLE ? why_invalid() : result);
    }

    /// The stream for copies in one direction, opened by whoever asks first. Inside `call`.
    CUresult lane(Direction direction, StreamRef& stream) const noexcept {
        const std::lock_guard lock{lanes_mutex_};
        CUstream& lane = lanes_[direction == Direction::out ? 0 : 1];
        const CUresult result = lane != nullptr ? CUDA_SUCCESS : api_.stream_create(&lane, CU_STREAM_NON_BLOCKING);
        if (result == CUDA_SUCCESS) stream = lane;
        return result;
    }

    /// By freeing: measured on an H200, cuMemFree waits for the whole primary context as cuCtxSynchronize does, but
    /// leaves open captures whole; 1.8 us on an idle device. On a full one, where there is nothing to free, a page of
    /// the host's is unpinned, which does the same in 0.1 ms. The first call keeps 512 bytes for as long as this lives
    /// (of a granule of the device's, if the program has no other small allocations), for otherwise each call would
    /// make and unmake that granule.
    Status drain() const noexcept {
        return call([&](const CudaApi& api) {
            {
                const std::lock_guard lock{lanes_mutex_};
                if (crumb_ == 0) static_cast<void>(api.mem_alloc(&crumb_, 512)); // without one it is only slower
            }
            CUdeviceptr crumb = 0;
            const CUresult result = api.mem_alloc(&crumb, 512);
            if (result == CUDA_ERROR_OUT_OF_MEMORY) return unpin_a_page();
            return result == CUDA_SUCCESS ? api.mem_free(crumb) : result;
        });
    }

    /// Whether a stream is of this device, whatever its context.
    Status owns_stream(StreamRef stream, bool& yes) const noexcept {
        return call([&](const CudaApi& api) {
            CUcontext context = context_;
            CUdevice device = device_;
            CUresult result = stream == StreamRef{} ? CUDA_SUCCESS : api.stream_context(native(stream), &context);
            if (result == CUDA_SUCCESS && context != context_) {
                const CudaScope there{api, context};
                result = there.result() == CUDA_SUCCESS ? api.ctx_device(&device) : there.result();
            }
            if (result == CUDA_SUCCESS) yes = device == device_;
            return result;
        });
    }

    /// What a pool holds, and giving back what it can. A device without pools holds nothing.
    Status pool_memory(PoolRef pool, std::size_t& bytes) const noexcept {
        cuuint64_t held = 0;
        const Status status = with_pool(pool, [&](const CudaApi& api, CUmemoryPool found) {
            return pool.graphs() ? api.graph_memory(device_, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &held)
                                 : api.pool_attribute(found, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &held);
        });
        if (status.ok()) bytes = held;
        return status;
    }
    Status trim_pool(PoolRef pool, std::size_t keep) const noexcept {
        return with_pool(pool, [&](const CudaApi& api, CUmemoryPool found) {
            return pool.graphs() ? api.graph_memory_trim(device_) : api.pool_trim(found, keep);
        });
    }

    [[nodiscard]] int numa_node() const noexcept {
        constexpr auto host_numa_id =
            static_cast<CUdevice_attribute>(134); // CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, CUDA 12.2
        int node = -1;
        return api_.device_attribute(&node, host_numa_id, device_) == CUDA_SUCCESS ? node : -1;
    }
    [[nodiscard]] int number() const noexcept { return number_; }
    [[nodiscard]] CUcontext context() const noexcept { return context_; }
    [[nodiscard]] std::size_t granularity() const noexcept { return granularity_; }
    [[nodiscard]] const CUmemAllocationProp& pages() const noexcept { return pages_; }
    [[nodiscard]] const std::vector<CUmemAccessDesc>& access() const noexcept { return access_; }
    /// For pages that the device itself may read.
    [[nodiscard]] CUmemAccessDesc reading() const noexcept { return access_of(number_, CU_MEM_ACCESS_FLAGS_PROT_READ); }
    [[nodiscard]] const std::string& name() const noexcept { return name_; }

    friend bool operator==(const CudaDevice& a, const CudaDevice& b) noexcept {
        return a.number_ == b.number_ && a.options_ == b.options_ && a.library_ == b.library_;
    }

private:
    CUresult unpin_a_page() const noexcept {
        constexpr std::size_t bytes = 4096;
        void* const page = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (page == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
        CUresult result = api_.host_register(page, bytes, CU_MEMHOSTREGISTER_PORTABLE);
        if (result == CUDA_SUCCESS) result = api_.host_unregister(page);
        static_cast<void>(::munmap(page, bytes));
        return result;
    }

    template <class Act>
    Status with_pool(PoolRef pool, const Act& act) const noexcept {
        return call([&](const CudaApi& api) {
            CUmemoryPool found = native(pool);
            CUresult result = CUDA_SUCCESS;
            if (found == nullptr && !pool.graphs()) result = api.default_pool(&found, device_);
            if (result == CUDA_SUCCESS) result = act(api, found);
            return result == CUDA_ERROR_NOT_SUPPORTED ? CUDA_SUCCESS : result;
        });
    }

    /// So a lost context answers too, for handles of its own; seen on an H200 after an illegal address.
    [[nodiscard]] CUresult why_invalid() const noexcept {
        std::size_t bytes[2] = {};
        const CUresult lost = api_.mem_info(&bytes[0], &bytes[1]);
        return api_.status(lost).kind == StatusKind::gone ? lost : CUDA_ERROR_INVALID_HANDLE;
    }
    static CudaAvailability failed(const CudaApi& api, const std::string& who, CUresult result) {
        const Status status = api.status(result);
        return {CudaProblem::driver_failed,
                who + " cannot be used: " + status.name + " (" + std::to_string(status.code) + ")"};
    }

    [[nodiscard]] std::string label() const { return "CUDA device " + std::to_string(number_); }

    static void demand(const CudaAvailability& found) {
        if (found.problem == CudaProblem::bad_device_number) throw Misuse{found.reason};
        if (!found) throw Unavailable{found.reason};
    }

    void must(CUresult result, const char* what) const {
        const Status status = api_.status(result);
        if (!status.ok()) throw Unavailable{failure_text(status, Attempt{what}, label()), status};
    }

    [[nodiscard]] bool has(int attribute) const {
        int value = 0;
        must(api_.device_attribute(&value, static_cast<CUdevice_attribute>(attribute), device_), "ask its attributes");
        return value != 0;
    }

    /// Makes the list of peers sorted and unique, and the access rights of allow_access from it.
    void choose_peers() {
        std::vector<int>& peers = options_.peers;
        std::sort(peers.begin(), peers.end());
        peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
        peers.erase(std::remove(peers.begin(), peers.end(), number_), peers.end());
        access_.push_back(access_of(number_));
        for (const int peer : peers) {
            demand(usable(api_, peer));
            CUdevice device = 0;
            int can = 0;
            must(api_.device_get(&device, peer), "find its peer");
            must(api_.can_access_peer(&can, device, device_), "ask its peer");
            if (can == 0) {
                throw Unavailable{"CUDA device " + std::to_string(peer) + " cannot access the memory of " + label()};
            }
            access_.push_back(access_of(peer));
        }
    }

    static CUmemAccessDesc access_of(int number,
                                     CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE) noexcept {
        CUmemAccessDesc access{};
        access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        access.location.id = number;
        access.flags = flags;
        return access;
    }

    /// Fixes what cuMemCreate is asked for, and the granularity that follows from it. By number what the headers of
    /// CUDA 12.0 do not name.
    void describe_pages() {
        constexpr int fabric_supported = 128;
        constexpr int fabric = 8;
        pages_.type = CU_MEM_ALLOCATION_TYPE_PINNED;
        pages_.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        pages_.location.id = number_;
        bool can_export = true;
        switch (options_.export_handles) {
        case ExportHandles::none: break;
        case ExportHandles::file_descriptor:
            can_export = has(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
            pages_.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
            break;
        case ExportHandles::fabric:
            can_export = has(fabric_supported);
            pages_.requestedHandleTypes = static_cast<CUmemAllocationHandleType>(fabric);
            break;
        }
        if (!can_export) throw Unavailable{label() + " cannot export its pages as handles of the type asked for"};
        if (options_.rdma && has(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED)) {
            pages_.allocFlags.gpuDirectRDMACapable = 1;
        }
        std::size_t minimum = 0;
        std::size_t recommended = 0;
        must(api_.mem_granularity(&minimum, &pages_, CU_MEM_ALLOC_GRANULARITY_MINIMUM), "ask its granularity");
        must(api_.mem_granularity(&recommended, &pages_, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED), "ask its granularity");
        granularity_ = std::max(minimum, recommended);
    }

    CudaApi api_;
    std::string library_;
    int number_;
    CudaDriverOptions options_;
    CUdevice device_ = 0;
    CUcontext context_ = nullptr;
    CUmemAllocationProp pages_{};
    std::vector<CUmemAccessDesc> access_;
    std::size_t granularity_ = 0;
    std::string name_;
    mutable std::mutex lanes_mutex_;
    mutable std::array<CUstream, 2> lanes_{};
    mutable CUdeviceptr crumb_ = 0;
};

} // namespace memsaver::inline v0_1

#endif // MEMSAVER_HAS_CUDA_HEADERS
