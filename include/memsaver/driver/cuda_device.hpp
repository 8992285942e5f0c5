// The machine of a CudaDriver: the loaded driver, the device's retained primary context, what was fixed when it was
// opened, and the calls.
#pragma once

#include "memsaver/core/error.hpp"
#include "memsaver/core/function_ref.hpp"
#include "memsaver/core/lists.hpp"
#include "memsaver/core/ranges.hpp"
#include "memsaver/core/vector.hpp"
#include "memsaver/driver/cuda_api.hpp"
#include "memsaver/driver/cuda_copy_kernel.hpp"
#include "memsaver/driver/device.hpp"
#include "memsaver/driver/neighbours.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace memsaver::inline v0_3::detail {

class CudaDevice final : public Device {
public:
    /// Throws Misuse for a device number that does not exist, and Unavailable if the device cannot be used with these
    /// options.
    CudaDevice(int number, CudaDriverOptions options, const char* library)
        : api_{library}, library_{library}, number_{number}, options_{std::move(options)} {
        require_enumerator("CudaDriverOptions::export_handles", options_.export_handles, 3);
        demand(usable(api_, number_));
        must(api_.device_get(&device_, number_), "get the device");
        choose_peers();
        describe_pages();
        char name[256] = {};
        must(api_.device_name(name, static_cast<int>(sizeof name) - 1, device_), "query the device name");
        name_ = name;
        must(api_.primary_retain(&context_, device_), "retain the primary context"); // last: nothing throws after it
    }
    /// Ignores failures, because no caller could handle them; at process exit the driver is often already unloaded.
    ~CudaDevice() override {
        const bool loaded = kernels_.front().code != nullptr;
        if (drain_allocation_ != 0 || lanes_[0] != nullptr || lanes_[1] != nullptr || loaded) {
            const CudaScope scope{api_, context_};
            for (const cuda::Stream lane : lanes_) {
                if (lane != nullptr && scope.result() == cuda::success) static_cast<void>(api_.stream_destroy(lane));
            }
            if (drain_allocation_ != 0 && scope.result() == cuda::success)
                static_cast<void>(api_.mem_free(drain_allocation_));
            for (const LoadedKernel& each : kernels_) {
                if (each.module != nullptr && scope.result() == cuda::success)
                    static_cast<void>(api_.module_unload(each.module));
            }
        }
        static_cast<void>(api_.primary_release(device_));
    }

    /// Returns whether the device can be used, without creating its context, which takes some hundred MiB.
    static CudaAvailability usable(const CudaApi& api, int number) {
        int count = 0;
        CudaAvailability found = count_devices(api, count);
        if (!found) return found;
        if (number < 0 || number >= count) {
            return {
                CudaProblem::bad_device_number,
                text_of({"CUDA device ", in_digits(number), " does not exist; number of devices: ", in_digits(count)})};
        }
        cuda::Device device = 0;
        int supported = 0;
        cuda::Result result = api.device_get(&device, number);
        if (result == cuda::success) {
            result = api.device_attribute(&supported, cuda::attribute_virtual_memory, device);
        }
        if (result != cuda::success) return failed(api, text_of({"CUDA device ", in_digits(number)}), result);
        if (supported == 0) {
            return {CudaProblem::no_virtual_memory,
                    text_of({"CUDA device ", in_digits(number), " does not support virtual memory management"})};
        }
        return {};
    }

    /// The number of devices of the driver; false with a reason if there is none.
    static CudaAvailability count_devices(const CudaApi& api, int& count) {
        if (!api.library.state()) return api.library.state();
        cuda::Result result = api.init(0);
        if (result == cuda::success) result = api.device_count(&count);
        if (result == cuda::error_no_device || (result == cuda::success && count == 0)) {
            return {CudaProblem::no_device, "the CUDA driver reports no device"};
        }
        return result == cuda::success ? CudaAvailability{} : failed(api, "the CUDA driver", result);
    }

    [[nodiscard]] int device() const noexcept override { return number_; }
    /// "NVIDIA H200 (CUDA device 0)".
    [[nodiscard]] std::string name() const override {
        return text_of({name_, " (CUDA device ", in_digits(number_), ")"});
    }
    [[nodiscard]] Features features() const noexcept override {
        return {.context = true,
                .lanes = true,
                .stream_owners = true,
                .peers = true,
                .batch_copies = api_.copy_batch != nullptr,
                .kernel_copies = true,
                .kernels = true,
                .plain = true,
                .captures = true,
                .gates = true,
                .pools = true,
                .exports = exports_,
                .rdma = pages_.rdma_capable != 0};
    }
    /// Equal if they name one device of one library with the same options.
    [[nodiscard]] bool equals(const Device& other) const noexcept override {
        const auto* const same = dynamic_cast<const CudaDevice*>(&other);
        return same != nullptr && number_ == same->number_ && options_ == same->options_ && library_ == same->library_;
    }
    /// The device's UUID, as nvidia-smi prints it.
    Status identity(std::string& text) const noexcept override {
        if (api_.device_uuid == nullptr) return unsupported;
        cuda::Uuid uuid{};
        if (const cuda::Result result = api_.device_uuid(&uuid, device_); result != cuda::success)
            return api_.status(result);
        char made[] = "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";
        unsigned digit = 0;
        for (char& each : made) {
            if (each != 'x') continue;
            const auto byte = static_cast<unsigned char>(uuid.bytes[digit / 2]);
            each = "0123456789abcdef"[digit++ % 2 == 0 ? byte >> 4U : byte & 15U];
        }
        try {
            text = made;
            return {};
        } catch (...) {
            return {StatusKind::out_of_host_memory, 0, "no host memory for a text"};
        }
    }
    [[nodiscard]] int numa_node() const noexcept override {
        int node = -1;
        return api_.device_attribute(&node, cuda::attribute_host_numa_id, device_) == cuda::success ? node : -1;
    }
    [[nodiscard]] Neighbours* neighbours() noexcept override { return &neighbours_; }
    Status with_context(FunctionRef<void()> work) noexcept override {
        return scoped([&] {
            work();
            return cuda::success;
        });
    }

    /// The recommended granularity, or the minimum if that is larger.
    Status granularity(std::size_t& bytes) noexcept override {
        bytes = granularity_;
        return {};
    }
    Status memory(DeviceMemory& memory) noexcept override {
        return call(api_.mem_info, &memory.free_bytes, &memory.total_bytes);
    }
    Status reserve(std::size_t bytes, std::size_t alignment, Address& address) noexcept override {
        Status status = make(address, api_.mem_reserve, bytes, alignment, 0, 0);
        if (status.kind == StatusKind::out_of_memory)
            status.kind = StatusKind::out_of_addresses; // no memory is reserved with them
        return status;
    }
    Status unreserve(Address address, std::size_t bytes) noexcept override {
        return call(api_.mem_unreserve, address, bytes);
    }
    Status create(std::size_t bytes, PageHandle& handle) noexcept override { return create(bytes, 0, handle); }
    Status release(PageHandle handle) noexcept override { return call(api_.mem_release, handle.value); }
    Status map(Address address, std::size_t bytes, PageHandle handle) noexcept override {
        return call(api_.mem_map, address, bytes, 0, handle.value, 0);
    }
    Status unmap(Address address, std::size_t bytes) noexcept override { return call(api_.mem_unmap, address, bytes); }
    Status allow_access(Address address, std::size_t bytes, Rights rights) noexcept override {
        const Vector<cuda::AccessDesc>& access = access_[static_cast<std::size_t>(rights)];
        return call(api_.mem_set_access, address, bytes, access.data(), access.size());
    }
    /// As `create`, with file descriptors among the handle types, which are fixed here.
    Status create_shared(std::size_t bytes, PageHandle& handle) noexcept override {
        return exports_ ? create(bytes, cuda::handle_file_descriptor, handle) : unsupported;
    }
    /// The driver closes the descriptor on exec. Fails for imported pages: keep the descriptor that they came with.
    Status export_pages(PageHandle handle, int& descriptor) noexcept override {
        if (!exports_) return unsupported;
        int made = -1;
        const Status status = call(api_.mem_export, &made, handle.value, cuda::handle_file_descriptor, 0);
        if (status.ok()) descriptor = made;
        return status;
    }
    Status import_pages(int descriptor, PageHandle& handle) noexcept override {
        if (!exports_) return unsupported;
        // This type is passed by value, as a pointer.
        void* const shared = reinterpret_cast<void*>(static_cast<std::uintptr_t>(descriptor));
        return make(handle.value, api_.mem_import, shared, cuda::handle_file_descriptor);
    }

    // Null is the legacy default stream of this device, however the program was compiled.
    Status open_stream(StreamRef& stream) noexcept override {
        return make(stream, api_.stream_create, cuda::stream_non_blocking);
    }
    Status close_stream(StreamRef stream) noexcept override { return call(api_.stream_destroy, native(stream)); }
    /// An event can mark only streams of its own context; `near` may be a stream of another device.
    Status open_event(StreamRef near, EventRef& event) noexcept override {
        return scoped([&] {
            cuda::Context context = context_;
            cuda::Result result = near == StreamRef{} ? cuda::success : api_.stream_context(native(near), &context);
            if (result != cuda::success) return result;
            const CudaScope there{api_, context};
            cuda::Event opened = nullptr;
            result = there.result();
            if (result == cuda::success) result = api_.event_create(&opened, cuda::event_disable_timing);
            if (result == cuda::success) event = opened;
            return result;
        });
    }
    Status close_event(EventRef event) noexcept override { return call(api_.event_destroy, native(event)); }
    Status record(EventRef event, StreamRef stream) noexcept override {
        return call(api_.event_record, native(event), native(stream));
    }
    /// Covers the primary context and its green contexts. Drivers before CUDA 12.5 cannot mark a whole device; there
    /// the call waits instead, so that all the work it should mark, and any work the event marked before, has
    /// completed.
    Status record_device(EventRef event) noexcept override {
        return scoped([&] {
            if (api_.ctx_record_event != nullptr) return api_.ctx_record_event(context_, native(event));
            return api_.ctx_synchronize();
        });
    }
    Status follow(StreamRef stream, EventRef event) noexcept override {
        return call(api_.stream_wait_event, native(stream), native(event), 0);
    }
    Status query(EventRef event, bool& passed) noexcept override {
        return scoped([&] {
            const cuda::Result result = api_.event_query(native(event));
            if (result == cuda::success || result == cuda::error_not_ready) passed = result == cuda::success;
            return result == cuda::error_not_ready ? cuda::success : result;
        });
    }
    Status wait(EventRef event) noexcept override { return call(api_.event_wait, native(event)); }
    /// Waits for the device by freeing memory: measured on an H200, cuMemFree waits for the whole primary context as
    /// cuCtxSynchronize does, but leaves open captures intact, and takes 1.8 us on an idle device. If the device is out
    /// of memory, so that there is nothing to free, it unpins a host page instead, which has the same effect in 0.1 ms.
    /// The first call keeps 512 bytes allocated as long as this object lives (of one device granule, if the program has
    /// no other small allocations); otherwise each call would create and release that granule.
    Status drain() noexcept override {
        return scoped([&] {
            {
                const std::lock_guard lock{lanes_mutex_};
                if (drain_allocation_ == 0)
                    static_cast<void>(
                        api_.mem_alloc(&drain_allocation_, 512)); // on failure, later calls are only slower
            }
            cuda::DevicePtr crumb = 0;
            const cuda::Result result = api_.mem_alloc(&crumb, 512);
            if (result == cuda::error_out_of_memory) return unpin_a_page();
            return result == cuda::success ? api_.mem_free(crumb) : result;
        });
    }
    /// The default stream counts as captured while a stream that synchronizes with it is captured: work on it would
    /// break that capture.
    Status capturing(StreamRef stream, bool& yes) noexcept override {
        return scoped([&] {
            int status = cuda::capture_none;
            const cuda::Result result = api_.stream_capturing(native(stream), &status);
            const bool implicit = result == cuda::error_capture_implicit;
            if (result == cuda::success || implicit) yes = implicit || status != cuda::capture_none;
            return implicit ? cuda::success : result;
        });
    }
    /// Opened by the first caller.
    Status lane(Direction direction, StreamRef& stream) noexcept override {
        return scoped([&] {
            const std::lock_guard lock{lanes_mutex_};
            cuda::Stream& lane = lanes_[direction == Direction::out ? 0 : 1];
            const cuda::Result result =
                lane != nullptr ? cuda::success : api_.stream_create(&lane, cuda::stream_non_blocking);
            if (result == cuda::success) stream = lane;
            return result;
        });
    }
    /// Whatever the stream's context.
    Status owns_stream(StreamRef stream, bool& yes) noexcept override {
        return scoped([&] {
            cuda::Context context = context_;
            cuda::Device device = device_;
            cuda::Result result = stream == StreamRef{} ? cuda::success : api_.stream_context(native(stream), &context);
            if (result == cuda::success && context != context_) {
                const CudaScope there{api_, context};
                result = there.result() == cuda::success ? api_.ctx_device(&device) : there.result();
            }
            if (result == cuda::success) yes = device == device_;
            return result;
        });
    }

    Status copy_to_host(void* host, Address from, std::size_t bytes, StreamRef stream) noexcept override {
        return call(api_.copy_to_host, host, from, bytes, native(stream));
    }
    Status copy_to_device(Address to, const void* host, std::size_t bytes, StreamRef stream) noexcept override {
        return call(api_.copy_to_device, to, host, bytes, native(stream));
    }
    Status fill(Address to, unsigned char byte, std::size_t bytes, StreamRef stream) noexcept override {
        return call(api_.fill, to, byte, bytes, native(stream));
    }
    /// Over NVLink where available.
    Status reach_peer(Address address, std::size_t bytes) noexcept override {
        // The first access descriptor is that of the device itself.
        return call(api_.mem_set_access, address, bytes, access_[0].data(), 1);
    }
    Status copy_peer(Address to, Address from, std::size_t bytes, StreamRef stream) noexcept override {
        return call(api_.copy_on_devices, to, from, bytes, native(stream));
    }
    /// Needs a CUDA driver of 13.0 or newer, and pinned pages with the same addresses on the device. Not for a stream
    /// that is being captured, nor for the legacy stream.
    Status copy_many(Direction direction, const CopyPart* parts, std::size_t count,
                     StreamRef stream) noexcept override {
        std::size_t begun = 0;
        const Status status = scoped([&] { return copy_batches(direction, parts, count, stream, begun); });
        return begun == 0 ? unless_supported(status) : status;
    }
    /// Uses up to 64 blocks of 512 threads. Both addresses must be multiples of 16 bytes; otherwise unsupported.
    Status copy_by_kernel(Address to, Address from, std::size_t bytes, StreamRef stream) noexcept override {
        return unless_supported(scoped([&] { return launch_copy(to, from, bytes, stream); }));
    }
    Status run_kernel(const KernelRun& run, StreamRef stream) noexcept override {
        std::array<std::uint64_t, 3> numbers = run.arguments;
        void* arguments[] = {&numbers[0], &numbers[1], &numbers[2]};
        return unless_supported(
            scoped([&] { return launch_kernel(*run.code, run.blocks, run.threads, arguments, stream); }));
    }

    Status allocate_plain(std::size_t bytes, Address& address) noexcept override {
        return make(address, api_.mem_alloc, bytes);
    }
    Status free_plain(Address address) noexcept override { return call(api_.mem_free, address); }

    /// The capture uses this mode; the thread's own mode is relaxed only during this call.
    Status begin_capture(StreamRef stream, CaptureMode mode) noexcept override {
        return call(api_.begin_capture, native(stream), native(mode));
    }
    Status end_capture(StreamRef stream, GraphRef& graph) noexcept override {
        GraphRef made{};
        const Status status = update_graph(stream, made);
        if (status.ok()) graph = made;
        return status;
    }
    /// Updates in place with cuGraphExecUpdate; if that refuses, or there is no graph yet, instantiates another one.
    Status update_graph(StreamRef stream, GraphRef& graph) noexcept override {
        return scoped([&] {
            const cuda::GraphExec old = native(graph);
            cuda::Graph recorded = nullptr;
            cuda::Result result = api_.end_capture(native(stream), &recorded);
            if (recorded == nullptr) return result;
            cuda::GraphUpdateResult why{};
            cuda::GraphExec fresh = nullptr;
            if (result == cuda::success && (old == nullptr || api_.graph_exec_update == nullptr ||
                                            api_.graph_exec_update(old, recorded, &why) != cuda::success))
                result = api_.graph_instantiate(&fresh, recorded, 0);
            // The executable graph is a copy. If this fails, a graph without memory of its own is leaked.
            static_cast<void>(api_.graph_destroy(recorded));
            if (fresh == nullptr) return result;
            if (old != nullptr) static_cast<void>(api_.graph_exec_destroy(old)); // if running, once it ends
            graph.native = fresh;
            return result;
        });
    }
    Status launch(GraphRef graph, StreamRef stream) noexcept override {
        return call(api_.graph_launch, native(graph), native(stream));
    }
    Status close_graph(GraphRef graph) noexcept override { return call(api_.graph_exec_destroy, native(graph)); }
    /// While the stream is being captured, adds an event wait node (CU_EVENT_WAIT_EXTERNAL).
    Status follow_outside(StreamRef stream, EventRef event) noexcept override {
        return scoped([&] {
            int status = cuda::capture_none;
            const cuda::Result result = api_.stream_capturing(native(stream), &status);
            if (result != cuda::success) return result;
            return api_.stream_wait_event(native(stream), native(event),
                                          status == cuda::capture_none ? 0 : cuda::event_wait_external);
        });
    }

    /// A device without pools has 0 bytes.
    Status pool_memory(PoolRef pool, std::size_t& bytes) noexcept override {
        unsigned long long held = 0;
        const Status status = with_pool(pool, [&](cuda::MemPool found) {
            return pool.graphs() ? api_.graph_memory(device_, cuda::graph_reserved_memory, &held)
                                 : api_.pool_attribute(found, cuda::pool_reserved_memory, &held);
        });
        if (status.ok()) bytes = held;
        return status;
    }
    Status trim_pool(PoolRef pool, std::size_t keep) noexcept override {
        return with_pool(pool, [&](cuda::MemPool found) {
            return pool.graphs() ? api_.graph_memory_trim(device_) : api_.pool_trim(found, keep);
        });
    }
    /// Pinned pages are portable: every device reaches them.
    Status pin_host(void* pages, std::size_t bytes) noexcept override {
        Status status = call(api_.host_register, pages, bytes, cuda::host_register_portable);
        if (status.kind == StatusKind::out_of_memory) status.kind = StatusKind::out_of_host_memory; // not the device
        return status;
    }
    Status unpin_host(void* pages) noexcept override { return call(api_.host_unregister, pages); }

private:
    using Body = FunctionRef<cuda::Result()>;
    using PoolBody = FunctionRef<cuda::Result(cuda::MemPool)>;

    /// Runs `body()` with the thread set up for it (CudaScope); its cuda::Result is returned as a Status.
    Status scoped(Body body) const noexcept {
        const CudaScope scope{api_, context_};
        const cuda::Result result = scope.result() == cuda::success ? body() : scope.result();
        return api_.status(result == cuda::error_invalid_handle ? why_invalid() : result);
    }
    /// Calls an entry point likewise.
    template <class... P>
    Status call(cuda::Result (*entry)(P...), std::type_identity_t<P>... arguments) const noexcept {
        return scoped([=] { return entry(arguments...); });
    }
    /// Likewise; sets `to` to what the entry point has made.
    template <class To, class Made, class... P>
    Status make(To& to, cuda::Result (*entry)(Made*, P...), std::type_identity_t<P>... arguments) const noexcept {
        Made made{};
        const Status status = call(entry, &made, arguments...);
        if (status.ok()) to = made;
        return status;
    }
    Status with_pool(PoolRef pool, PoolBody body) const noexcept {
        return scoped([&] {
            cuda::MemPool found = native(pool);
            cuda::Result result = cuda::success;
            if (found == nullptr && !pool.graphs()) result = api_.default_pool(&found, device_);
            if (result == cuda::success) result = body(found);
            return result == cuda::error_not_supported ? cuda::success : result;
        });
    }

    static Status unless_supported(Status status) noexcept {
        if (status.code == cuda::error_not_supported) status.kind = StatusKind::unsupported;
        return status;
    }

    /// Enqueues copies in batches; on return, `begun` of them have been enqueued. Call inside `scoped`, as the next
    /// ones.
    cuda::Result copy_batches(Direction direction, const CopyPart* parts, std::size_t count, StreamRef stream,
                              std::size_t& begun) const noexcept {
        begun = 0;
        if (api_.copy_batch == nullptr) return cuda::error_not_supported;
        if (const cuda::Result result = pinned_at_own_addresses(); result != cuda::success) return result;
        constexpr std::size_t most = 64;
        std::array<cuda::DevicePtr, most> to;
        std::array<cuda::DevicePtr, most> from;
        std::array<std::size_t, most> bytes;
        const cuda::MemLocation here{cuda::location_device, device_};
        const cuda::MemLocation host{cuda::location_host, 0};
        cuda::CopyAttributes all{cuda::source_in_stream_order, here, host};
        if (direction == Direction::in) std::swap(all.from, all.to);
        std::size_t first = 0; // index of the first copy with these attributes
        while (begun < count) {
            const std::size_t these = std::min(count - begun, most);
            for (std::size_t i = 0; i < these; ++i) {
                to[i] = parts[begun + i].to;
                from[i] = parts[begun + i].from;
                bytes[i] = parts[begun + i].bytes;
            }
            const cuda::Result result =
                api_.copy_batch(to.data(), from.data(), bytes.data(), these, &all, &first, 1, native(stream));
            if (result != cuda::success) return result;
            begun += these;
        }
        return cuda::success;
    }
    cuda::Result launch_copy(Address to, Address from, std::size_t bytes, StreamRef stream) noexcept {
        if (((to | from) % copy_vector) != 0) return cuda::error_not_supported;
        if (bytes == 0) return kernel(copy_kernel) != nullptr ? cuda::success : cuda::error_not_supported;
        unsigned long long vectors = bytes / copy_vector;
        unsigned tail = static_cast<unsigned>(bytes % copy_vector);
        const auto blocks = static_cast<unsigned>(std::clamp<std::size_t>(vectors / copy_threads, 1, copy_blocks));
        void* arguments[] = {&to, &from, &vectors, &tail};
        return launch_kernel(copy_kernel, blocks, copy_threads, arguments, stream);
    }
    cuda::Result launch_kernel(const KernelCode& code, unsigned blocks, unsigned threads, void** arguments,
                               StreamRef stream) noexcept {
        const cuda::Function found = kernel(code);
        if (found == nullptr) return cuda::error_not_supported;
        return api_.launch_kernel(found, blocks, 1, 1, threads, 1, 1, 0, native(stream), arguments, nullptr);
    }
    cuda::Result unpin_a_page() const noexcept {
        constexpr std::size_t bytes = 4096;
        void* const page = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (page == MAP_FAILED) return cuda::error_out_of_memory;
        cuda::Result result = api_.host_register(page, bytes, cuda::host_register_portable);
        if (result == cuda::success) result = api_.host_unregister(page);
        static_cast<void>(::munmap(page, bytes));
        return result;
    }
    struct LoadedKernel {
        const KernelCode* code = nullptr; // null: a free place
        cuda::Module module = nullptr;
        cuda::Function function = nullptr; // null: it cannot be loaded
    };
    /// Returns null if there is none. The driver compiles and loads the kernel, and may wait for the context to do so.
    cuda::Function kernel(const KernelCode& code) noexcept {
        const std::lock_guard lock{kernels_mutex_};
        for (LoadedKernel& each : kernels_) {
            if (each.code == &code) return each.function;
            if (each.code != nullptr) continue;
            // On a full device there may be no memory for the kernel: then a later call retries.
            if (load_kernel(each, code) != cuda::error_out_of_memory) each.code = &code;
            return each.function;
        }
        return nullptr;
    }
    [[nodiscard]] cuda::Result pinned_at_own_addresses() const noexcept {
        int reaches = 0;
        const cuda::Result result = api_.device_attribute(&reaches, cuda::attribute_host_pointers, device_);
        return result == cuda::success && reaches == 0 ? cuda::error_not_supported : result;
    }
    cuda::Result load_kernel(LoadedKernel& kernel, const KernelCode& code) noexcept {
        cuda::Result result = pinned_at_own_addresses();
        cuda::Module loaded = nullptr;
        if (result == cuda::success) result = api_.module_load(&loaded, code.ptx);
        if (result != cuda::success) return result;
        cuda::Function found = nullptr;
        result = api_.module_function(&found, loaded, code.name);
        // Load everything now rather than at the first launch: CUDA loads kernels lazily.
        if (result == cuda::success && api_.function_load != nullptr) result = api_.function_load(found);
        if (result != cuda::success) {
            static_cast<void>(api_.module_unload(loaded));
            return result;
        }
        kernel.module = loaded;
        kernel.function = found;
        return result;
    }

    /// Distinguishes a lost context from an invalid handle: a lost context returns the same error for its own handles
    /// (seen on an H200 after an illegal address).
    [[nodiscard]] cuda::Result why_invalid() const noexcept {
        std::size_t bytes[2] = {};
        const cuda::Result lost = api_.mem_info(&bytes[0], &bytes[1]);
        return api_.status(lost).kind == StatusKind::gone ? lost : cuda::error_invalid_handle;
    }
    static CudaAvailability failed(const CudaApi& api, const std::string& who, cuda::Result result) {
        const Status status = api.status(result);
        return {CudaProblem::driver_failed,
                text_of({who, " cannot be used: ", status.name, " (", in_digits(status.code), ")"})};
    }

    [[nodiscard]] std::string label() const { return text_of({"CUDA device ", in_digits(number_)}); }

    Status create(std::size_t bytes, int handle_types, PageHandle& handle) const noexcept {
        cuda::AllocationProp pages = pages_;
        pages.handle_types |= handle_types;
        return make(handle.value, api_.mem_create, bytes, &pages, 0);
    }

    static void demand(const CudaAvailability& found) {
        if (found.problem == CudaProblem::bad_device_number) misuse({found.reason});
        if (!found) unavailable({found.reason});
    }

    void must(cuda::Result result, const char* what) const {
        const Status status = api_.status(result);
        if (!status.ok()) throw Unavailable{failure_text(status, Attempt{what}, label()), status};
    }

    [[nodiscard]] bool has(int attribute) const {
        int value = 0;
        must(api_.device_attribute(&value, attribute, device_), "query a device attribute");
        return value != 0;
    }

    /// Makes the list of peers sorted and unique, and derives the access rights for allow_access from it.
    void choose_peers() {
        std::vector<int>& peers = options_.peers;
        sort_by(peers, [](int peer) { return key_of(peer); });
        int last = number_;
        erase_in(peers, [&](int peer) { return peer == number_ || std::exchange(last, peer) == peer; });
        const auto add = [&](int number) {
            for (const Rights rights : {Rights::read_write, Rights::read}) {
                cuda::AccessDesc access{};
                access.location.type = cuda::location_device;
                access.location.id = number;
                access.flags = rights == Rights::read ? cuda::access_read : cuda::access_read_write;
                access_[static_cast<std::size_t>(rights)].push_back(access);
            }
        };
        add(number_);
        for (const int peer : peers) {
            demand(usable(api_, peer));
            cuda::Device device = 0;
            int can = 0;
            must(api_.device_get(&device, peer), "get a peer device");
            must(api_.can_access_peer(&can, device, device_), "query peer access");
            if (can == 0) {
                unavailable({"CUDA device ", in_digits(peer), " cannot access the memory of ", label()});
            }
            add(peer);
        }
    }

    /// Sets the properties passed to cuMemCreate, and the granularity that follows from them. Attributes that the
    /// headers of CUDA 12.0 lack are given by number.
    void describe_pages() {
        pages_.type = cuda::allocation_pinned;
        pages_.location.type = cuda::location_device;
        pages_.location.id = number_;
        exports_ = has(cuda::attribute_export_file_descriptor);
        bool can_export = true;
        switch (options_.export_handles) {
        case ExportHandles::none: break;
        case ExportHandles::file_descriptor:
            can_export = exports_;
            pages_.handle_types = cuda::handle_file_descriptor;
            break;
        case ExportHandles::fabric:
            can_export = has(cuda::attribute_export_fabric);
            pages_.handle_types = cuda::handle_fabric;
            break;
        }
        if (!can_export) unavailable({label(), " cannot export pages as handles of the requested type"});
        if (options_.rdma && has(cuda::attribute_rdma_with_virtual_memory)) {
            pages_.rdma_capable = 1;
        }
        std::size_t minimum = 0;
        std::size_t recommended = 0;
        must(api_.mem_granularity(&minimum, &pages_, cuda::granularity_minimum), "query the granularity");
        must(api_.mem_granularity(&recommended, &pages_, cuda::granularity_recommended), "query the granularity");
        granularity_ = std::max(minimum, recommended);
    }

    CudaApi api_;
    std::string library_;
    int number_;
    CudaDriverOptions options_;
    cuda::Device device_ = 0;
    cuda::Context context_ = nullptr;
    cuda::AllocationProp pages_{};
    bool exports_ = false;               // as file descriptors
    Vector<cuda::AccessDesc> access_[2]; // by Rights: of the device itself, first, and of its peers
    std::size_t granularity_ = 0;
    std::string name_;
    Neighbours neighbours_;
    std::mutex lanes_mutex_;
    std::array<cuda::Stream, 2> lanes_{};
    cuda::DevicePtr drain_allocation_ = 0;
    std::mutex kernels_mutex_;
    std::array<LoadedKernel, 4> kernels_{}; // in the order of their first runs
};

} // namespace memsaver::inline v0_3::detail
