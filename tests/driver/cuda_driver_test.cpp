// CudaDriver and its loader without a GPU: with a stub libcuda.so.1 (stub_libcuda.cpp), whose path the build passes as
// MEMSAVER_STUB_LIBCUDA.
#include "memsaver/driver/cuda_api.hpp"
#include "stub_libcuda.hpp"
#include "support/machines.hpp"

namespace driver_cuda_driver_test {
using namespace test;
using namespace cuda_names;

static_assert(Driver<CudaDriver>);

static_assert(cuda_status_kind(0) == StatusKind::ok);
static_assert(cuda_status_kind(1) == StatusKind::other);
static_assert(cuda_status_kind(2) == StatusKind::out_of_memory);
static_assert(cuda_status_kind(4) == StatusKind::gone);
static_assert(cuda_status_kind(600) == StatusKind::other);
static_assert(cuda_status_kind(700) == StatusKind::gone);
static_assert(cuda_status_kind(900) == StatusKind::other);
static_assert(cuda_status_kind(999) == StatusKind::other);

constexpr const char* stub_file = MEMSAVER_STUB_LIBCUDA;

template <class F>
F* stub_symbol(const char* name) {
    void* library = ::dlopen(stub_file, RTLD_NOW | RTLD_LOCAL);
    REQUIRE(library != nullptr);
    void* symbol = ::dlsym(library, name);
    REQUIRE(symbol != nullptr);
    return reinterpret_cast<F*>(symbol);
}

// A reset stub, and the calls that a test made through it.
struct Stub {
    StubState& state = *stub_symbol<StubState*()>("memsaver_stub_state")();
    StubThread& thread = *stub_symbol<StubThread*()>("memsaver_stub_thread")();

    Stub() { state.reset(); }
    ~Stub() { state.reset(); }

    CudaDriver driver(int device = 0, CudaDriverOptions options = {}) const {
        return CudaDriver{device, std::move(options), stub_file};
    }
    CudaAvailability available(int device = 0) const { return CudaDriver::available(device, stub_file); }

    // Returns the text of the last call of that name, "no call" if there was none.
    std::string last(const std::string& name) const {
        const std::vector<std::string> texts = all(name);
        return texts.empty() ? "no call" : texts.back();
    }
    bool called(const std::string& name) const { return last(name) != "no call"; }
    std::vector<std::string> all(const std::string& name) const {
        std::vector<std::string> texts;
        for (const StubCall& call : state.calls) {
            if (call.name == name) texts.push_back(call.text);
        }
        return texts;
    }
};

struct OnStub {
    Stub stub{};
};

struct OnGpu : OnStub {
    const CudaDriver driver = stub.driver();
};

StreamRef stream(std::uintptr_t number) { return reinterpret_cast<CUstream_st*>(number); }
EventRef event(std::uintptr_t number) { return reinterpret_cast<CUevent_st*>(number); }

TEST_CASE("CudaDriver: a missing library, and one that is no CUDA driver, are a reason, not a crash") {
    const char* nowhere = "libmemsaver-has-no-such-driver.so.1";
    for (const auto& [library, problem, part] :
         {std::tuple{nowhere, CudaProblem::no_library, nowhere},
          {"libm.so.6", CudaProblem::missing_entry_point, "cuDriverGetVersion"}}) {
        const CudaAvailability found = CudaDriver::available(0, library);
        CHECK(found.problem == problem);
        CHECK(contains(found.reason, part));
        CHECK(CudaDriver::device_count(library) == 0);
        CHECK(text_of<Unavailable>([name = library] { CudaDriver{0, {}, name}; }) == found.reason);
    }
}

TEST_CASE_FIXTURE(OnStub,
                  "CudaDriver: entry points have fixed versions, legacy default stream; each missing one is named") {
    CHECK(static_cast<bool>(stub.available()));
    const auto asked = stub.state.asked;
    CHECK(asked.size() > 40);
    for (const unsigned long long flavour : stub.state.flavours) CHECK(flavour == CU_GET_PROC_ADDRESS_LEGACY_STREAM);
    for (const auto& entry : asked) {
        const auto& name = entry.first;
        const auto version = entry.second;
        CAPTURE(name);
        CHECK_FALSE(contains(name, "_")); // plain names, and versions that stay
        CHECK(version >= 2000);
        CHECK(version <= (name == "cuMemcpyBatchAsync" ? 13000 : 12050));
        stub.state.missing = name;
        const CudaAvailability found = stub.available();
        if (name == "cuCtxRecordEvent" || name == "cuDeviceGetUuid" || name == "cuFuncLoad" ||
            name == "cuGraphExecUpdate" || name == "cuMemcpyBatchAsync") {
            CHECK(static_cast<bool>(found)); // a driver may lack it
        } else {
            CHECK(found.problem == CudaProblem::missing_entry_point);
            CHECK(contains(found.reason, name));
            CHECK(text_of<Unavailable>([&] { stub.driver(); }) == found.reason);
        }
    }
}

TEST_CASE_FIXTURE(OnStub, "CudaDriver: many copies go in batches, or not at all where the driver is too old") {
    const std::vector<CopyPart> parts(130, CopyPart{0x10, 0x20, 4});
    {
        const CudaDriver driver = stub.driver(0);
        CHECK(driver.copy_many(Direction::in, parts.data(), parts.size(), {}).ok());
        CHECK(stub.all("cuMemcpyBatchAsync").size() == 3);
        CHECK(driver.copy_many(Direction::in, parts.data(), 0, {}).ok());
        CHECK(stub.all("cuMemcpyBatchAsync").size() == 3);
        stub.state.fails["cuMemcpyBatchAsync"] = CUDA_ERROR_INVALID_VALUE;
        CHECK(driver.copy_many(Direction::in, parts.data(), parts.size(), {}).kind == StatusKind::other);
        CHECK(stub.all("cuMemcpyBatchAsync").size() == 4);
    }
    stub.state.fails["cuMemcpyBatchAsync"] = CUDA_ERROR_NOT_SUPPORTED;
    CHECK(stub.driver(0).copy_many(Direction::in, parts.data(), 1, {}).kind == StatusKind::unsupported);
    stub.state.fails.clear();
    stub.state.attributes[CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM] = 0;
    CHECK(stub.driver(0).copy_many(Direction::in, parts.data(), 1, {}).kind == StatusKind::unsupported);
    stub.state.attributes[CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM] = 1;
    CHECK(stub.driver(0).copy_many(Direction::in, parts.data(), 1, {}).ok());
    stub.state.version = 12090; // its batches have another argument
    CHECK(stub.driver(0).copy_many(Direction::in, parts.data(), 1, {}).kind == StatusKind::unsupported);
    stub.state.version = 13000;
    stub.state.missing = "cuMemcpyBatchAsync";
    CHECK(stub.driver(0).copy_many(Direction::in, parts.data(), 1, {}).kind == StatusKind::unsupported);
}

TEST_CASE("CudaDriver: why there is none: what is missing, and what the driver answers") {
    struct Why {
        void (*set)(StubState&);
        CudaProblem problem;
        const char* text;
        int devices; // that are counted
    };
    const Why all[] = {
        {[](StubState& state) { state.devices = 0; }, CudaProblem::no_device, "no device", 0},
        {[](StubState& state) { state.fails["cuInit"] = CUDA_ERROR_NO_DEVICE; }, CudaProblem::no_device, "no device",
         0},
        {[](StubState& state) { state.fails["cuInit"] = CUDA_ERROR_SYSTEM_DRIVER_MISMATCH; },
         CudaProblem::driver_failed, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803)", 0},
        {[](StubState& state) { state.attributes[CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED] = 0; },
         CudaProblem::no_virtual_memory, "device 1 does not support virtual memory management", 2},
        {[](StubState& state) { state.version = 11080; }, CudaProblem::driver_too_old, "11.8", 0},
        {[](StubState& state) { state.version = 11080; }, CudaProblem::driver_too_old, "12.0 or newer", 0}};
    for (const Why& why : all) {
        CAPTURE(why.text);
        Stub stub;
        CHECK(static_cast<bool>(stub.available(1)));
        why.set(stub.state);
        const CudaAvailability found = stub.available(1);
        CHECK(found.problem == why.problem);
        CHECK(contains(found.reason, why.text));
        CHECK(CudaDriver::device_count(stub_file) == why.devices);
        CHECK(text_of<Unavailable>([&] { stub.driver(1); }) == found.reason);
    }
    Stub stub;
    stub.state.version = 12000;
    CHECK(static_cast<bool>(stub.available()));
}

TEST_CASE_FIXTURE(OnStub, "CudaDriver: a number that no device has is misuse") {
    for (const int number : {-1, 2}) {
        const CudaAvailability found = stub.available(number);
        CHECK(found.problem == CudaProblem::bad_device_number);
        CHECK(contains(found.reason, std::to_string(number).c_str()));
        CHECK(text_of<Misuse>([&] { stub.driver(number); }) == found.reason);
        CHECK(text_of<Misuse>([&] { stub.driver(0, {.peers = {number}}); }) == found.reason);
    }
}

TEST_CASE_FIXTURE(OnStub, "CudaDriver: `available` makes no context, and copies share one") {
    CHECK(static_cast<bool>(stub.available()));
    CHECK_FALSE(stub.called("cuDevicePrimaryCtxRetain"));
    {
        const CudaDriver first = stub.driver();
        CHECK(stub.state.retained[0] == 1);
        CudaDriver second = first;
        const CudaDriver third = std::move(second);
        CHECK(second == third); // NOLINT(bugprone-use-after-move): a moved-from driver is valid
        CHECK(stub.state.retained[0] == 1);
        CHECK(first.device() == 0);
        CHECK(first.name() == "Stub GPU (CUDA device 0)");
    }
    CHECK(stub.state.retained[0] == 0);
    stub.state.calls.clear();
    stub.state.fails["cuDevicePrimaryCtxRetain"] = CUDA_ERROR_OUT_OF_MEMORY; // Unavailable, and nothing is kept
    const std::string text = text_of<Unavailable>([&] { stub.driver(); });
    CHECK(contains(text, "CUDA_ERROR_OUT_OF_MEMORY"));
    CHECK(contains(text, "CUDA device 0"));
    CHECK_FALSE(stub.called("cuDevicePrimaryCtxRelease"));
}

TEST_CASE_FIXTURE(OnStub,
                  "CudaDriver: equal are drivers of one device with the same options, also behind an AnyDriver") {
    const CudaDriver plain = stub.driver();
    CHECK(plain == stub.driver());
    CHECK(plain == stub.driver(0, {.peers = {0}}));
    CHECK(plain != stub.driver(1));
    CHECK(plain != stub.driver(0, {.peers = {1}}));
    CHECK(stub.driver(0, {.peers = {1, 1}}) == stub.driver(0, {.peers = {1}}));
    CHECK(plain != stub.driver(0, {.export_handles = ExportHandles::file_descriptor}));
    CHECK(plain != stub.driver(0, {.rdma = true}));
    const AnyDriver any = stub.driver(1);
    REQUIRE(any.as<CudaDriver>());
    CHECK(*any.as<CudaDriver>() == stub.driver(1));
    CHECK_FALSE(any.as<HostDriver>());
    CHECK(FaultyDriver{any}.as<FaultyDriver<CudaDriver>>());
    CHECK_FALSE(FaultyDriver{any}.as<CudaDriver>());
}

TEST_CASE_FIXTURE(OnStub, "CudaDriver: its identity is the UUID; features and NUMA node are what the driver says") {
    stub.state.devices = 16;
    std::string text = "before";
    CHECK(stub.driver(15).identity(text).ok());
    CHECK(text == "GPU-f0f1f2f3-f4f5-f6f7-f8f9-fafbfcfdfeff");
    CHECK(stub.driver().features().batch_copies);
    CHECK_FALSE(stub.driver().host_addressable());
    stub.state.missing = "cuMemcpyBatchAsync";
    CHECK_FALSE(stub.driver().features().batch_copies);
    stub.state.missing = "cuDeviceGetUuid";
    CHECK(stub.driver().identity(text).kind == StatusKind::unsupported);
    stub.state.missing.clear();
    stub.state.fails["cuDeviceGetUuid"] = 1;
    CHECK_FALSE(stub.driver().identity(text).ok());
    CHECK(text == "GPU-f0f1f2f3-f4f5-f6f7-f8f9-fafbfcfdfeff");

    const AnyDriver any = stub.driver(1); // the host's NUMA node next to it: where a backup's threads run
    for (const int node : {0, 3, -1}) {
        stub.state.attributes[CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID] = node;
        CHECK(any.numa_node() == node);
    }
    stub.state.fails["cuDeviceGetAttribute"] = CUDA_ERROR_INVALID_VALUE; // a driver older than the attribute
    CHECK(any.numa_node() == -1);
    CHECK(AnyDriver{HostDriver{64_MiB}}.numa_node() == -1);
}

TEST_CASE_FIXTURE(OnStub, "CudaDriver: options apply to everything that it creates") {
    PageHandle handle;
    CHECK(stub.driver().create(4_MiB, handle).ok());
    CHECK(handle.value == 77);
    CHECK(stub.last("cuMemCreate") == "4194304 device 0 handles 0 rdma 0");
    CHECK(stub.driver(1, {.export_handles = ExportHandles::file_descriptor, .rdma = true}).create(2_MiB, handle).ok());
    CHECK(stub.last("cuMemCreate") == "2097152 device 1 handles 1 rdma 1");
    CHECK(stub.last("cuMemGetAllocationGranularity") == "device 1 handles 1 rdma 1");
    CHECK(stub.driver(0, {.export_handles = ExportHandles::fabric}).create(2_MiB, handle).ok());
    CHECK(stub.last("cuMemCreate") == "2097152 device 0 handles 8 rdma 0");

    stub.state.attributes[CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED] = 0;
    CHECK(stub.driver(0, {.rdma = true}).create(2_MiB, handle).ok());
    CHECK(stub.last("cuMemCreate") == "2097152 device 0 handles 0 rdma 0");
    stub.state.attributes[CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED] = 0;
    CHECK(contains(text_of<Unavailable>([&] { stub.driver(0, {.export_handles = ExportHandles::fabric}); }),
                   "cannot export"));
}

TEST_CASE_FIXTURE(OnStub, "CudaDriver: pages for other processes are created as such, where they can be exported") {
    const CudaDriver driver = stub.driver(1, {.rdma = true});
    CHECK(driver.features().exports);
    PageHandle handle;
    CHECK(driver.create_shared(4_MiB, handle).ok());
    CHECK(handle.value == 77);
    CHECK(stub.last("cuMemCreate") == "4194304 device 1 handles 1 rdma 1");
    CHECK(driver.create(4_MiB, handle).ok());
    CHECK(stub.last("cuMemCreate") == "4194304 device 1 handles 0 rdma 1");
    CHECK(stub.driver(1, {.export_handles = ExportHandles::fabric}).create_shared(4_MiB, handle).ok());
    CHECK(stub.last("cuMemCreate") == "4194304 device 1 handles 9 rdma 0");

    stub.state.fails["cuMemExportToShareableHandle"] = CUDA_ERROR_INVALID_VALUE; // pages that were imported
    stub.state.fails["cuMemImportFromShareableHandle"] = CUDA_ERROR_INVALID_VALUE;
    int descriptor = -77;
    CHECK(driver.export_pages({78}, descriptor).kind == StatusKind::other);
    CHECK(descriptor == -77);
    CHECK(driver.import_pages(2, handle).kind == StatusKind::other);
    CHECK(handle.value == 77);

    stub.state.attributes[CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED] = 0;
    const CudaDriver alone = stub.driver(0);
    CHECK_FALSE(alone.features().exports);
    CHECK(alone.create_shared(4_MiB, handle).kind == StatusKind::unsupported);
    CHECK(alone.export_pages({77}, descriptor).kind == StatusKind::unsupported);
    CHECK(alone.import_pages(55, handle).kind == StatusKind::unsupported);
}

TEST_CASE("CudaDriver: copies by a kernel load it once, and are unsupported where it cannot be loaded") {
    {
        Stub stub;
        const CudaDriver driver = stub.driver(0);
        CHECK(driver.copy_by_kernel(0x18, 0x20, 32, {}).kind == StatusKind::unsupported); // not aligned to a vector
        CHECK(driver.copy_by_kernel(0x20, 0x18, 32, {}).kind == StatusKind::unsupported);
        CHECK(stub.all("cuModuleLoadData").size() == 0);
        CHECK(driver.copy_by_kernel(0, 0, 0, {}).ok()); // ahead of the first copy
        CHECK(stub.all("cuFuncLoad").size() == 1);
        CHECK(stub.all("cuLaunchKernel").size() == 0);
        CHECK(driver.copy_by_kernel(0x20, 0x40, 16, {}).ok());
        CHECK(driver.copy_by_kernel(0x20, 0x40, 16, {}).ok());
        CHECK(stub.all("cuModuleLoadData").size() == 1);
        stub.state.fails["cuLaunchKernel"] = CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
        CHECK(driver.copy_by_kernel(0x20, 0x40, 16, {}).kind == StatusKind::other);
    }
    for (const char* call : {"cuDeviceGetAttribute", "cuModuleLoadData", "cuModuleGetFunction", "cuFuncLoad"}) {
        CAPTURE(call);
        Stub stub;
        const CudaDriver driver = stub.driver(0);
        stub.state.fails[call] = CUDA_ERROR_INVALID_PTX;
        CHECK(driver.copy_by_kernel(0x20, 0x40, 16, {}).kind == StatusKind::unsupported);
        stub.state.fails.erase(call);
        CHECK(driver.copy_by_kernel(0x20, 0x40, 16, {}).kind == StatusKind::unsupported); // the failure is permanent
    }
    for (const char* call : {"cuModuleLoadData", "cuModuleGetFunction", "cuFuncLoad"}) { // except for a full device
        CAPTURE(call);
        Stub stub;
        const CudaDriver driver = stub.driver(0);
        stub.state.fails[call] = CUDA_ERROR_OUT_OF_MEMORY;
        CHECK(driver.copy_by_kernel(0, 0, 0, {}).kind == StatusKind::unsupported);
        stub.state.fails.erase(call);
        CHECK(driver.copy_by_kernel(0x20, 0x40, 16, {}).ok());
        CHECK(stub.all("cuModuleUnload").size() ==
              stub.all("cuModuleLoadData").size() - 1 - (std::string{call} == "cuModuleLoadData" ? 1 : 0));
    }
    Stub stub;
    stub.state.attributes[CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM] = 0;
    CHECK(stub.driver(0).copy_by_kernel(0x20, 0x40, 16, {}).kind == StatusKind::unsupported);
}

TEST_CASE("CudaDriver: each kernel is loaded once, beside the one that copies") {
    static constexpr KernelCode codes[] = {
        {"one", "a", nullptr}, {"two", "b", nullptr}, {"three", "c", nullptr}, {"more", "d", nullptr}};
    Stub stub;
    {
        const CudaDriver driver = stub.driver(0);
        const auto run = [&](const KernelCode& code) {
            return driver.run_kernel({.code = &code, .arguments = {1, 2, 3}, .blocks = 2, .threads = 64}, {});
        };
        stub.state.fails["cuModuleLoadData"] = CUDA_ERROR_OUT_OF_MEMORY;
        CHECK(run(codes[0]).kind == StatusKind::unsupported);
        stub.state.fails["cuModuleLoadData"] = CUDA_ERROR_INVALID_PTX;
        CHECK(run(codes[1]).kind == StatusKind::unsupported);
        stub.state.fails.clear();
        CHECK(run(codes[1]).kind == StatusKind::unsupported); // the failure is permanent
        for (int i = 0; i < 2; ++i) CHECK(run(codes[0]).ok());
        CHECK(stub.last("cuLaunchKernel") == "0x920 2 x 64 0x0: 0x1 0x2 3");
        CHECK(driver.copy_by_kernel(0x20, 0x40, 16, {}).ok());
        CHECK(run(codes[2]).ok());
        CHECK(run(codes[3]).kind == StatusKind::unsupported); // no place is left
        CHECK(stub.all("cuLaunchKernel").size() == 4);
        stub.state.fails["cuLaunchKernel"] = CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
        CHECK(run(codes[0]).kind == StatusKind::other);
    }
    CHECK(stub.all("cuModuleUnload").size() == 3);
}

TEST_CASE_FIXTURE(OnStub, "CudaDriver: peers are granted access with the device itself") {
    stub.state.devices = 4;
    CHECK(stub.driver(1).allow_access(0x10000, 2_MiB).ok());
    CHECK(stub.last("cuMemSetAccess") == "2097152 at 0x10000 for 1");
    CHECK(stub.driver(1, {.peers = {3, 0, 3, 1}}).allow_access(0x10000, 2_MiB).ok());
    CHECK(stub.last("cuMemSetAccess") == "2097152 at 0x10000 for 1 0 3");
    CHECK(stub.last("cuDeviceCanAccessPeer") == "3 to 1"); // the peer accesses our memory, not the other way round
    CHECK(stub.driver(1, {.peers = {0}}).allow_access(0x10000, 2_MiB, Rights::read).ok());
    CHECK(stub.last("cuMemSetAccess") == "2097152 at 0x10000 to read for 1 0");
    stub.state.peers_can_access = false;
    CHECK(contains(text_of<Unavailable>([&] { stub.driver(1, {.peers = {0}}); }),
                   "CUDA device 0 cannot access the memory of CUDA device 1"));
}

TEST_CASE_FIXTURE(OnStub, "CudaDriver: granularity is what is recommended, never less than the minimum") {
    std::size_t bytes = 0;
    stub.state.recommended = 4_MiB;
    CHECK(stub.driver().granularity(bytes).ok());
    CHECK(bytes == 4_MiB);
    stub.state.minimum = 8_MiB;
    CHECK(stub.driver().granularity(bytes).ok());
    CHECK(bytes == 8_MiB);
}

TEST_CASE_FIXTURE(OnStub, "CudaDriver: each call has its arguments, context and relaxed mode, and leaves no trace") {
    const CudaDriver driver = stub.driver(1);
    stub.state.calls.clear();
    stub.thread.capture_mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL; // a program's own setting

    const auto expect = [&](const Status& status, const char* name, const std::string& text) {
        CAPTURE(name);
        CHECK(status.ok());
        CHECK(stub.last(name) == text);
        CHECK(stub.thread.contexts.empty());
        CHECK(stub.thread.capture_mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    };
    char host[4] = {};
    const std::string host_text = format_address(address_of(host));
    DeviceMemory memory;
    Address address = 0;
    StreamRef opened;
    EventRef mark;
    GraphRef graph;
    bool yes = false;

    CHECK(driver.memory(memory).ok());
    CHECK(memory.free_bytes == 1000);
    CHECK(memory.total_bytes == 2000);
    expect(driver.reserve(8_MiB, 2_MiB, address), "cuMemAddressReserve", "8388608 aligned 2097152");
    CHECK(address == 0x700000000000);
    expect(driver.unreserve(address, 8_MiB), "cuMemAddressFree", "0x700000000000 8388608");
    expect(driver.map(address, 2_MiB, PageHandle{5}), "cuMemMap", "0x700000000000 2097152 0 0x5 0x0");
    expect(driver.unmap(address, 4_MiB), "cuMemUnmap", "0x700000000000 4194304");
    expect(driver.release(PageHandle{5}), "cuMemRelease", "0x5");
    PageHandle pages;
    int descriptor = -1;
    expect(driver.create_shared(2_MiB, pages), "cuMemCreate", "2097152 device 1 handles 1 rdma 0");
    CHECK(pages.value == 77);
    expect(driver.export_pages(pages, descriptor), "cuMemExportToShareableHandle", "77 as 1 flags 0");
    CHECK(descriptor == 55);
    expect(driver.import_pages(descriptor, pages), "cuMemImportFromShareableHandle", "55 as 1");
    CHECK(pages.value == 78);

    expect(driver.open_stream(opened), "cuStreamCreate", std::to_string(CU_STREAM_NON_BLOCKING));
    CHECK(opened == stream(0x100));
    expect(driver.close_stream(opened), "cuStreamDestroy", "0x100");
    expect(driver.open_event(nullptr, mark), "cuEventCreate", std::to_string(CU_EVENT_DISABLE_TIMING));
    CHECK(mark == event(0x200));
    CHECK_FALSE(stub.called("cuStreamGetCtx"));
    expect(driver.record(mark, opened), "cuEventRecord", "0x200 0x100");
    expect(driver.record_device(mark), "cuCtxRecordEvent", "1 0x200");
    expect(driver.follow(opened, mark), "cuStreamWaitEvent", "0x100 0x200 0");
    expect(driver.query(mark, yes), "cuEventQuery", "0x200");
    expect(driver.wait(mark), "cuEventSynchronize", "0x200");
    expect(driver.close_event(mark), "cuEventDestroy", "0x200");
    expect(driver.capturing(opened, yes), "cuStreamIsCapturing", "0x100");

    expect(driver.follow_outside(opened, mark), "cuStreamWaitEvent", "0x100 0x200 0");
    stub.state.capture_status = 1;
    expect(driver.follow_outside(opened, mark), "cuStreamWaitEvent",
           "0x100 0x200 " + std::to_string(CU_EVENT_WAIT_EXTERNAL));
    stub.state.capture_status = 0;

    expect(driver.copy_to_host(host, 0x10, 4, opened), "cuMemcpyDtoHAsync", host_text + " 0x10 4 0x100");
    expect(driver.copy_to_device(0x10, host, 4, opened), "cuMemcpyHtoDAsync", "0x10 " + host_text + " 4 0x100");
    expect(driver.copy_peer(0x10, 0x20, 4, opened), "cuMemcpyDtoDAsync", "0x10 0x20 4 0x100");
    CHECK(driver.copy_by_kernel(0x10, 0x20, 35, opened).ok()); // two vectors of 16 bytes, and three bytes
    CHECK(stub.last("cuModuleLoadData") == "the copy");
    CHECK(stub.last("cuModuleGetFunction") == "0x900 memsaver_copy");
    expect({}, "cuLaunchKernel", "0x910 1 x 512 0x100: 0x10 0x20 2 3");
    const CopyPart two[]{{0x10, 0x1000, 4}, {0x20, 0x3000, 8}};
    expect(driver.copy_many(Direction::in, two, 2, opened), "cuMemcpyBatchAsync",
           "0x100 order 1 2:0 to 1:1 flags 0 1 at 0, 0x10 0x1000 4, 0x20 0x3000 8");
    expect(driver.copy_many(Direction::out, two, 1, opened), "cuMemcpyBatchAsync",
           "0x100 order 1 1:1 to 2:0 flags 0 1 at 0, 0x10 0x1000 4");
    expect(driver.fill(0x10, 0xA5, 4, opened), "cuMemsetD8Async", "0x10 165 4 0x100");
    expect(driver.allocate_plain(99, address), "cuMemAlloc", "99");
    CHECK(address == 0x7000);
    expect(driver.free_plain(address), "cuMemFree", "0x7000");

    expect(driver.pin_host(host, 4), "cuMemHostRegister",
           host_text + " 4 " + std::to_string(CU_MEMHOSTREGISTER_PORTABLE));
    expect(driver.unpin_host(host), "cuMemHostUnregister", host_text);

    // The capture has the mode given by the caller, whatever the thread's mode was.
    expect(driver.begin_capture(opened, CaptureMode::relaxed), "cuStreamBeginCapture", "0x100 2");
    expect(driver.begin_capture(opened, CaptureMode::thread_local_), "cuStreamBeginCapture", "0x100 1");
    expect(driver.begin_capture(opened, CaptureMode::global), "cuStreamBeginCapture", "0x100 0");
    expect(driver.end_capture(opened, graph), "cuGraphInstantiateWithFlags", "0x300 0");
    CHECK(graph.native == reinterpret_cast<void*>(0x400));
    expect({}, "cuGraphDestroy", "0x300");
    expect(driver.update_graph(opened, graph), "cuGraphExecUpdate", "0x400 0x300");
    CHECK(graph.native == reinterpret_cast<void*>(0x400));
    expect(driver.launch(graph, opened), "cuGraphLaunch", "0x400 0x100");
    expect(driver.close_graph(graph), "cuGraphExecDestroy", "0x400");

    std::size_t held = 0;
    expect(driver.pool_memory({}, held), "cuDeviceGetDefaultMemPool", "1");
    CHECK(held == 5000);
    expect({}, "cuMemPoolGetAttribute", "0x500 " + std::to_string(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT));
    expect(driver.trim_pool({}, 7), "cuMemPoolTrimTo", "0x500 7");
    expect(driver.trim_pool(reinterpret_cast<CUmemPoolHandle_st*>(std::uintptr_t{0x510}), 8), "cuMemPoolTrimTo",
           "0x510 8");
    expect(driver.pool_memory(PoolRef::of_graphs(), held), "cuDeviceGetGraphMemAttribute",
           "1 " + std::to_string(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT));
    CHECK(held == 6000);
    expect(driver.trim_pool(PoolRef::of_graphs(), 9), "cuDeviceGraphMemTrim", "1");

    yes = true;
    CHECK(driver.owns_stream(reinterpret_cast<CUstream_st*>(std::uintptr_t{0x100}), yes).ok()); // the stub's device 0
    CHECK(!yes);
    stub.state.calls.pop_back(); // queried in the stream's own context
    CHECK(driver.owns_stream(reinterpret_cast<CUstream_st*>(std::uintptr_t{0x1000}), yes).ok());
    CHECK(yes);
    yes = false;
    CHECK(driver.owns_stream({}, yes).ok());
    CHECK(yes);
    for (const char* call : {"cuDeviceGetDefaultMemPool", "cuDeviceGetGraphMemAttribute", "cuDeviceGraphMemTrim"}) {
        stub.state.fails[call] = CUDA_ERROR_NOT_SUPPORTED; // a device without pools
    }
    for (const PoolRef pool : {PoolRef{}, PoolRef::of_graphs()}) {
        held = 1;
        CHECK(driver.pool_memory(pool, held).ok());
        CHECK(held == 0);
        CHECK(driver.trim_pool(pool, 0).ok());
    }
    stub.state.fails["cuDeviceGraphMemTrim"] = CUDA_ERROR_INVALID_VALUE;
    CHECK(driver.trim_pool(PoolRef::of_graphs(), 0).code == CUDA_ERROR_INVALID_VALUE);
    stub.state.fails.clear();

    CHECK(stub.state.calls.size() >= 28);
    for (const StubCall& call : stub.state.calls) {
        CAPTURE(call.name);
        CHECK(call.context_device == 1);
        CHECK(call.capture_mode == CU_STREAM_CAPTURE_MODE_RELAXED);
    }
    stub.thread.capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
}

TEST_CASE_FIXTURE(OnStub, "CudaDriver: works on a thread that is new to CUDA, over a context of the program's own") {
    const CudaDriver driver = stub.driver(0);
    const CudaDriver other = stub.driver(1);
    stub.state.calls.clear();
    std::size_t left = 99;
    std::thread{[&] {
        DeviceMemory memory;
        StubThread& mine = *stub_symbol<StubThread*()>("memsaver_stub_thread")();
        CHECK(driver.memory(memory).ok());
        mine.contexts.push_back(nullptr); // as a program may leave it
        CHECK(other.memory(memory).ok());
        left = mine.contexts.size();
        cuda::Context context = nullptr;
        REQUIRE(CudaApi{stub_file}.primary_retain(&context, 0) == cuda::success);
        mine.contexts.push_back(context);
        stub.state.fails["cuCtxPushCurrent"] = CUDA_ERROR_INVALID_VALUE; // is not called if it is current
        CHECK(driver.memory(memory).ok());
        CHECK(other.memory(memory).code == CUDA_ERROR_INVALID_VALUE);
        CHECK(CudaApi{stub_file}.primary_release(0) == cuda::success);
        mine.contexts.clear();
    }}.join();
    CHECK(left == 1);
    REQUIRE(stub.state.calls.size() >= 2);
    CHECK(stub.state.calls[0].context_device == 0);
    CHECK(stub.state.calls[1].context_device == 1);
}

TEST_CASE_FIXTURE(OnStub, "CudaDriver: an event near another device's stream is opened in that stream's context") {
    const CudaDriver driver = stub.driver(0);
    EventRef mark;
    stub.state.calls.clear();
    CHECK(driver.open_event(stream(0x1000), mark).ok());
    REQUIRE(stub.state.calls.size() == 2);
    CHECK(stub.state.calls[0].name == "cuStreamGetCtx");
    CHECK(stub.state.calls[1].name == "cuEventCreate");
    CHECK(stub.state.calls[1].context_device == 1);
    CHECK(stub.state.calls[1].capture_mode == CU_STREAM_CAPTURE_MODE_RELAXED);
    CHECK(stub.thread.contexts.empty());
    CHECK(stub.thread.capture_mode == CU_STREAM_CAPTURE_MODE_GLOBAL);

    stub.state.fails["cuStreamGetCtx"] = CUDA_ERROR_INVALID_VALUE;
    EventRef none;
    CHECK(driver.open_event(stream(0x1000), none).code == CUDA_ERROR_INVALID_VALUE);
    CHECK(none == EventRef{});
}

TEST_CASE_FIXTURE(OnGpu, "CudaDriver: query and capturing tell apart an answer and a failure") {
    bool yes = false;
    CHECK(driver.query(event(1), yes).ok());
    CHECK(yes);
    stub.state.fails["cuEventQuery"] = CUDA_ERROR_NOT_READY;
    CHECK(driver.query(event(1), yes).ok());
    CHECK_FALSE(yes);
    stub.state.fails["cuEventQuery"] = CUDA_ERROR_ILLEGAL_ADDRESS;
    CHECK(driver.query(event(1), yes).kind == StatusKind::gone);
    stub.state.fails["cuEventQuery"] = CUDA_ERROR_INVALID_HANDLE;
    CHECK(driver.query(event(1), yes).code == CUDA_ERROR_INVALID_HANDLE);
    stub.state.fails["cuMemGetInfo"] = CUDA_ERROR_ILLEGAL_ADDRESS; // the context is lost, including its handles
    CHECK(driver.query(event(1), yes).kind == StatusKind::gone);

    CHECK(driver.capturing(stream(1), yes).ok());
    CHECK_FALSE(yes);
    for (const int status : {1, 2}) { // active, and invalidated but not yet ended
        stub.state.capture_status = status;
        yes = false;
        CHECK(driver.capturing(stream(1), yes).ok());
        CHECK(yes);
    }
    stub.state.capture_status = 0;
    stub.state.fails["cuStreamIsCapturing"] = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    yes = false;
    CHECK(driver.capturing(nullptr, yes).ok());
    CHECK(yes);
    stub.state.fails["cuStreamIsCapturing"] = CUDA_ERROR_INVALID_VALUE;
    CHECK_FALSE(driver.capturing(nullptr, yes).ok());
}

TEST_CASE_FIXTURE(OnGpu, "CudaDriver: drain frees, or unpins a page if nothing can be allocated: captures stay whole") {
    CHECK(driver.drain().ok());
    CHECK(stub.last("cuMemFree") == "0x7000");
    CHECK_FALSE(stub.called("cuCtxSynchronize"));
    stub.state.calls.clear();
    stub.state.fails["cuMemAlloc"] = CUDA_ERROR_OUT_OF_MEMORY;
    CHECK(driver.drain().ok());
    const std::string page = stub.last("cuMemHostUnregister");
    CHECK(stub.last("cuMemHostRegister") == page + " 4096 " + std::to_string(CU_MEMHOSTREGISTER_PORTABLE));
    CHECK_FALSE(stub.called("cuCtxSynchronize"));
    CHECK_FALSE(stub.called("cuMemFree"));
    stub.state.fails["cuMemHostUnregister"] = CUDA_ERROR_ILLEGAL_ADDRESS;
    CHECK(driver.drain().kind == StatusKind::gone);
    stub.state.calls.clear();
    stub.state.fails["cuMemHostRegister"] = CUDA_ERROR_INVALID_VALUE;
    CHECK_FALSE(driver.drain().ok());
    CHECK_FALSE(stub.called("cuMemHostUnregister"));
    CHECK_FALSE(stub.called("cuCtxSynchronize"));
    stub.state.calls.clear();
    stub.state.fails["cuMemAlloc"] = CUDA_ERROR_ILLEGAL_ADDRESS;
    CHECK(driver.drain().kind == StatusKind::gone);
    CHECK_FALSE(stub.called("cuMemHostRegister"));
    stub.state.version = 12040; // before CUDA 12.5 a driver waits where it cannot mark the device
    CHECK(stub.driver().record_device(event(1)).ok());
    CHECK(stub.called("cuCtxSynchronize"));
    CHECK_FALSE(stub.called("cuCtxRecordEvent"));
}

TEST_CASE_FIXTURE(OnGpu, "CudaDriver: a broken capture leaves no graph") {
    GraphRef graph;
    stub.state.fails["cuStreamEndCapture"] = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    CHECK(driver.end_capture(stream(1), graph).code == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    CHECK(graph == GraphRef{});
    CHECK_FALSE(stub.called("cuGraphDestroy"));
    stub.state.fails.clear();
    stub.state.fails["cuGraphInstantiateWithFlags"] = CUDA_ERROR_OUT_OF_MEMORY;
    CHECK(driver.end_capture(stream(1), graph).kind == StatusKind::out_of_memory);
    CHECK(graph == GraphRef{});
    CHECK(stub.last("cuGraphDestroy") == "0x300");
}

TEST_CASE_FIXTURE(OnGpu, "CudaDriver: a graph that does not fit is instantiated anew, and all are without updates") {
    GraphRef graph{reinterpret_cast<void*>(0x500)};
    stub.state.fails["cuStreamEndCapture"] = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    CHECK(driver.update_graph(stream(1), graph).code == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    CHECK_FALSE(stub.called("cuGraphExecUpdate"));
    stub.state.fails.clear();
    stub.state.fails["cuGraphExecUpdate"] = CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    stub.state.fails["cuGraphInstantiateWithFlags"] = CUDA_ERROR_OUT_OF_MEMORY;
    CHECK(driver.update_graph(stream(1), graph).kind == StatusKind::out_of_memory);
    CHECK(graph.native == reinterpret_cast<void*>(0x500)); // unchanged
    CHECK_FALSE(stub.called("cuGraphExecDestroy"));
    CHECK(stub.last("cuGraphDestroy") == "0x300");
    stub.state.fails.erase("cuGraphInstantiateWithFlags");
    CHECK(driver.update_graph(stream(1), graph).ok());
    CHECK(graph.native == reinterpret_cast<void*>(0x400));
    CHECK(stub.last("cuGraphExecDestroy") == "0x500");
    stub.state.missing = "cuGraphExecUpdate"; // a driver that cannot update any
    stub.state.fails.clear();
    graph = GraphRef{reinterpret_cast<void*>(0x600)};
    CHECK(stub.driver().update_graph(stream(1), graph).ok());
    CHECK(graph.native == reinterpret_cast<void*>(0x400));
    CHECK(stub.last("cuGraphExecDestroy") == "0x600");
}

TEST_CASE_FIXTURE(OnGpu, "CudaDriver: a failed call leaves its results unchanged, and has a kind, a code and a name") {
    PageHandle handle{3};
    const auto fail_with = [&](int code) {
        stub.state.fails["cuMemCreate"] = code;
        return driver.create(2_MiB, handle);
    };
    const Status full = fail_with(CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(full.kind == StatusKind::out_of_memory);
    CHECK(full.code == 2);
    CHECK(std::string{full.name} == "CUDA_ERROR_OUT_OF_MEMORY");
    CHECK(handle == PageHandle{3});
    CHECK(fail_with(CUDA_ERROR_INVALID_VALUE).kind == StatusKind::other);
    CHECK(fail_with(CUDA_ERROR_ILLEGAL_ADDRESS).kind == StatusKind::gone);
    CHECK(std::string{fail_with(12345).name} == "unknown CUDA error");
    CHECK(stub.thread.contexts.empty());
    CHECK(stub.thread.capture_mode == CU_STREAM_CAPTURE_MODE_GLOBAL);
}

TEST_CASE_FIXTURE(OnGpu, "CudaDriver: if the thread cannot be set up the call is not made") {
    DeviceMemory memory;
    stub.state.fails["cuCtxPushCurrent"] = CUDA_ERROR_DEINITIALIZED; // the result in an exiting process
    CHECK(driver.memory(memory).kind == StatusKind::gone);
    CHECK(stub.thread.contexts.empty());
    stub.state.fails.clear();
    stub.state.fails["cuThreadExchangeStreamCaptureMode"] = CUDA_ERROR_INVALID_VALUE;
    CHECK(driver.memory(memory).kind == StatusKind::other);
    CHECK(stub.thread.contexts.empty());
    CHECK(stub.thread.capture_mode == CU_STREAM_CAPTURE_MODE_GLOBAL);
    CHECK_FALSE(stub.called("cuMemGetInfo"));
}

TEST_CASE_FIXTURE(OnGpu, "CudaDriver: pages that cannot be pinned are the host's shortage, not the device's") {
    char host[4] = {};
    stub.state.fails["cuMemHostRegister"] = CUDA_ERROR_OUT_OF_MEMORY;
    const Status full = driver.pin_host(host, 4);
    CHECK(full.kind == StatusKind::out_of_host_memory);
    CHECK(full.code == CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(std::string{full.name} == "CUDA_ERROR_OUT_OF_MEMORY");
    stub.state.fails["cuMemHostRegister"] = CUDA_ERROR_INVALID_VALUE;
    CHECK(driver.pin_host(host, 4).kind == StatusKind::other);
    stub.state.fails["cuMemHostUnregister"] = CUDA_ERROR_ILLEGAL_ADDRESS;
    CHECK(driver.unpin_host(host).kind == StatusKind::gone);
}

TEST_CASE_FIXTURE(OnStub, "CudaDriver: one lane for each direction, opened once and closed with the last copy") {
    {
        const CudaDriver driver = stub.driver(1);
        const CudaDriver copy = driver; // NOLINT(performance-unnecessary-copy-initialization): it shares the lanes
        CHECK_FALSE(stub.called("cuStreamCreate"));
        StreamRef out;
        StreamRef in;
        StreamRef again;
        CHECK(driver.lane(Direction::out, out).ok());
        CHECK(driver.lane(Direction::in, in).ok());
        CHECK(copy.lane(Direction::out, again).ok());
        CHECK(again == out);
        CHECK(copy.lane(Direction::in, again).ok());
        CHECK(again == in);
        CHECK(out == stream(0x100));
        CHECK(in == stream(0x200));
        const std::string non_blocking = std::to_string(CU_STREAM_NON_BLOCKING);
        CHECK(stub.all("cuStreamCreate") == std::vector{non_blocking, non_blocking});
        CHECK_FALSE(stub.called("cuStreamDestroy"));
    }
    CHECK(stub.all("cuStreamDestroy") == std::vector<std::string>{"0x100", "0x200"});
    for (const StubCall& call : stub.state.calls) {
        if (call.name == "cuStreamDestroy") CHECK(call.context_device == 1);
    }
    CHECK(stub.state.calls.back().name == "cuDevicePrimaryCtxRelease"); // a stream does not outlive its context
    CHECK(stub.thread.contexts.empty());
    stub.state.calls.clear();
    { // opening one is retried after a failure; one that was never opened is not closed
        const CudaDriver driver = stub.driver();
        StreamRef lane = stream(0x77);
        stub.state.fails["cuStreamCreate"] = CUDA_ERROR_OUT_OF_MEMORY;
        CHECK(driver.lane(Direction::in, lane).kind == StatusKind::out_of_memory);
        CHECK(lane == stream(0x77));
        stub.state.fails.clear();
        CHECK(driver.lane(Direction::in, lane).ok());
        CHECK(lane == stream(0x300));
    }
    CHECK(stub.all("cuStreamDestroy") == std::vector<std::string>{"0x300"});
}

TEST_CASE_FIXTURE(OnStub, "CudaDriver: closing after the driver has been unloaded is silent") {
    {
        const CudaDriver driver = stub.driver();
        StreamRef lane;
        CHECK(driver.lane(Direction::out, lane).ok());
        stub.state.fails["cuDevicePrimaryCtxRelease"] = CUDA_ERROR_DEINITIALIZED;
        stub.state.fails["cuCtxPushCurrent"] = CUDA_ERROR_DEINITIALIZED;
    }
    CHECK(stub.called("cuDevicePrimaryCtxRelease"));
    CHECK_FALSE(stub.called("cuStreamDestroy"));
}
} // namespace driver_cuda_driver_test
