// CudaDriver options beyond plain pages: export, RDMA, and the topology of the host.
#include "gpu/gpu_support.hpp"
#include "support/machines.hpp"

namespace gpu_driver_options_test {
using namespace gpu_test;

/// The calls of a program that shares pages.
struct Sharing {
    explicit Sharing(Program& program) : library{program.native.library} {}
    CudaLibrary& library;

    CUresult (*attribute)(int*, CUdevice_attribute, CUdevice) = library.entry("cuDeviceGetAttribute", 2000);
    CUresult (*retain)(CUmemGenericAllocationHandle*, void*) = library.entry("cuMemRetainAllocationHandle", 11000);
    CUresult (*release)(CUmemGenericAllocationHandle) = library.entry("cuMemRelease", 10020);
    CUresult (*properties)(CUmemAllocationProp*,
                           CUmemGenericAllocationHandle) = library.entry("cuMemGetAllocationPropertiesFromHandle",
                                                                         10020);
    CUresult (*export_handle)(void*, CUmemGenericAllocationHandle, CUmemAllocationHandleType,
                              unsigned long long) = library.entry("cuMemExportToShareableHandle", 10020);
    CUresult (*pointer_attribute)(void*, CUpointer_attribute, CUdeviceptr) = library.entry("cuPointerGetAttribute",
                                                                                           4000);

    [[nodiscard]] int ask(CUdevice_attribute which) const {
        int value = 0;
        must(attribute(&value, which, 0), "cuDeviceGetAttribute");
        return value;
    }
    /// Returns the properties with which the pages under a pointer were created.
    [[nodiscard]] CUmemAllocationProp made(void* pointer) const {
        CUmemGenericAllocationHandle handle = 0;
        CUmemAllocationProp props{};
        must(retain(&handle, pointer), "cuMemRetainAllocationHandle");
        const CUresult asked = properties(&props, handle);
        must(release(handle), "cuMemRelease");
        must(asked, "cuMemGetAllocationPropertiesFromHandle");
        return props;
    }
    /// Returns whether a network card can access the pages under a pointer, as reported by the driver in two ways.
    [[nodiscard]] bool reachable(void* pointer) const {
        unsigned capable = 0; // large enough for any size of the driver's boolean
        const CUresult asked = pointer_attribute(&capable, CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE,
                                                 reinterpret_cast<CUdeviceptr>(pointer));
        return made(pointer).allocFlags.gpuDirectRDMACapable != 0 || (asked == CUDA_SUCCESS && capable != 0);
    }
    /// Returns a file descriptor of the pages under a pointer, or nothing.
    [[nodiscard]] std::optional<int> exported(void* pointer) const {
        CUmemGenericAllocationHandle handle = 0;
        int descriptor = -1;
        must(retain(&handle, pointer), "cuMemRetainAllocationHandle");
        const CUresult result = export_handle(&descriptor, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
        must(release(handle), "cuMemRelease");
        return result == CUDA_SUCCESS ? std::optional{descriptor} : std::nullopt;
    }
};

/// Another mapping of exported pages, as in an importing process.
struct Imported {
    Imported(const CudaDriver& driver, int descriptor, std::size_t bytes) : driver_{driver}, bytes_{bytes} {
        REQUIRE(driver_.import_pages(descriptor, handle_).ok());
        REQUIRE(driver_.reserve(bytes_, 0, address_).ok());
        REQUIRE(driver_.map(address_, bytes_, handle_).ok());
        REQUIRE(driver_.allow_access(address_, bytes_).ok());
    }
    ~Imported() {
        CHECK(driver_.unmap(address_, bytes_).ok());
        CHECK(driver_.release(handle_).ok());
        CHECK(driver_.unreserve(address_, bytes_).ok());
    }
    [[nodiscard]] const void* data() const { return reinterpret_cast<const void*>(address_); }

private:
    CudaDriver driver_;
    std::size_t bytes_;
    PageHandle handle_{};
    Address address_ = 0;
};

/// Checks that bytes are restored over two cycles.
template <class D>
void check_cycles(const D& driver, MemorySaver<D>& saver, void* block, std::size_t bytes) {
    for (std::uint64_t cycle = 0; cycle < 2; ++cycle) {
        CAPTURE(cycle);
        test::write_pattern(driver, block, bytes, cycle);
        test::pause_and_resume(saver);
        CHECK(test::has_pattern(driver, block, bytes, cycle));
    }
}

constexpr std::size_t bytes = 64_MiB;

struct OnSharing {
    Program program{};
    const Sharing calls{program};
};

TEST_CASE_FIXTURE(OnSharing,
                  "pages for RDMA: the flag is on them before a pause and after, where the device supports it") {
    const bool supported = calls.ask(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED) != 0;
    MESSAGE("RDMA to such pages is supported: " << supported);
    const CudaDriver driver{0, {.rdma = true}};
    MemorySaver saver{driver};
    void* const block = saver.arena("registered", HostBackup{.threads = 2}).allocate(bytes);
    CHECK(calls.reachable(block) == supported);
    check_cycles(driver, saver, block, bytes);
    CHECK(calls.reachable(block) == supported);

    MemorySaver plain{CudaDriver{0}};
    CHECK(calls.made(plain.arena("plain").allocate(bytes)).allocFlags.gpuDirectRDMACapable == 0);
    CHECK_FALSE(driver == plain.driver());
    plain.close();
    saver.close();
}

TEST_CASE_FIXTURE(OnSharing,
                  "exported pages: another mapping sees the bytes, and a pause releases them once it has gone") {
    if (calls.ask(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED) == 0) {
        CHECK_THROWS_AS((CudaDriver{0, {.export_handles = ExportHandles::file_descriptor}}), Unavailable);
        return;
    }
    const CudaDriver driver{0, {.export_handles = ExportHandles::file_descriptor}};
    MemorySaver saver{driver};
    void* const block = saver.arena("shared", HostBackup{.threads = 2}).allocate(bytes);
    for (std::uint64_t cycle = 0; cycle < 2; ++cycle) { // new pages after a resume can be exported as well
        CAPTURE(cycle);
        test::write_pattern(driver, block, bytes, cycle);
        CHECK(calls.made(block).requestedHandleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
        const std::optional<int> descriptor = calls.exported(block);
        REQUIRE(descriptor);
        {
            const Imported other{driver, *descriptor, bytes};
            CHECK(test::has_pattern(driver, other.data(), bytes, cycle));
            test::write_pattern(driver, block, bytes, 50 + cycle);
            CHECK(test::has_pattern(driver, other.data(), bytes, 50 + cycle)); // the same pages
        }
        CHECK(::close(*descriptor) == 0);
        const std::size_t before = program.free_bytes();
        CHECK(saver.pause().released_bytes == bytes);
        CHECK(program.free_bytes() >= before + bytes - 8_MiB); // no reference keeps them
        saver.resume();
        CHECK(test::has_pattern(driver, block, bytes, 50 + cycle));
    }

    MemorySaver plain{CudaDriver{0}};
    CHECK_FALSE(calls.exported(plain.arena("plain").allocate(bytes))); // the type is fixed when pages are created
    plain.close();
    saver.close();
}

TEST_CASE_FIXTURE(OnSharing, "fabric handles: pages are made with them, or the driver says at once that it cannot") {
    constexpr auto fabric_supported = static_cast<CUdevice_attribute>(128);
    int supported = 0;
    // The driver may be older than the attribute.
    if (calls.attribute(&supported, fabric_supported, 0) != CUDA_SUCCESS) supported = 0;
    const auto make = [] { return CudaDriver{0, {.export_handles = ExportHandles::fabric}}; };
    if (supported == 0) {
        CHECK_THROWS_AS(make(), Unavailable);
        return;
    }
    std::optional<CudaDriver> driver;
    try {
        driver.emplace(make());
    } catch (const Unavailable& error) {
        MESSAGE(error.what());
        return;
    }
    MemorySaver saver{*driver};
    const Arena arena = saver.arena("fabric", HostBackup{.threads = 2});
    try {
        check_cycles(*driver, saver, arena.allocate(bytes), bytes);
    } catch (const DriverError& error) { // not available to this process: no service, or no permission
        MESSAGE(error.what());
        CHECK(arena.usage().mapped_bytes == 0);
    }
    saver.close();
}

TEST_CASE_FIXTURE(OnSharing, "the host's NUMA node next to the device is one that there is, or none") {
    const CudaDriver driver{0};
    const int node = driver.numa_node();
    MESSAGE("node " << node);
    CHECK(AnyDriver{driver}.numa_node() == node);
    CHECK(node >= -1);
    if (node >= 0) CHECK(std::filesystem::exists("/sys/devices/system/node/node" + std::to_string(node)));
    // Threads pinned near the device copy correctly, like any others.
    MemorySaver saver{driver};
    void* const block = saver.arena("near", HostBackup{.threads = 4}).allocate(bytes);
    check_cycles(driver, saver, block, bytes);
    saver.close();
}
} // namespace gpu_driver_options_test
