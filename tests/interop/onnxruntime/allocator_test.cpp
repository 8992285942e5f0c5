// The adapter for ONNX Runtime's API: tensors in an arena's memory. Runs on host memory, with the real library.
#include "memsaver/interop/onnxruntime.hpp"
#include "support/bytes.hpp"
#include "support/machines.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace interop_onnxruntime_allocator_test {
using namespace test;

const OrtApi& api() {
    const OrtApi* found = OrtGetApiBase()->GetApi(ORT_API_VERSION);
    REQUIRE(found != nullptr);
    return *found;
}

/// Returns the text of a status, empty for none, and releases the status.
std::string text_of_status(OrtStatus* status) {
    if (status == nullptr) return {};
    std::string text = api().GetErrorMessage(status);
    api().ReleaseStatus(status);
    return text;
}

/// Memory accessible to the host, as a HostDriver's is.
struct HostInfo {
    OrtMemoryInfo* info = nullptr;
    HostInfo() {
        REQUIRE(text_of_status(api().CreateCpuMemoryInfo(OrtDeviceAllocator, OrtMemTypeDefault, &info)) == "");
    }
    ~HostInfo() { api().ReleaseMemoryInfo(info); }
};

using Tensor = std::unique_ptr<OrtValue, void (*)(OrtValue*)>;
Tensor make_tensor(OrtAllocator& allocator, std::int64_t count) {
    OrtValue* value = nullptr;
    (void)text_of_status(
        api().CreateTensorAsOrtValue(&allocator, &count, 1, ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8, &value));
    return {value, [](OrtValue* dead) { api().ReleaseValue(dead); }};
}

TEST_CASE_FIXTURE(OnHost, "a tensor of ONNX Runtime's lives in an arena: the same address and bytes after a resume") {
    MemorySaver saver{machine.driver};
    const HostInfo host;
    OnnxRuntimeAllocator allocator{saver.arena("onnx", HostBackup{}), host.info};
    {
        const Tensor tensor = make_tensor(allocator, 3 << 20);
        REQUIRE(tensor != nullptr);
        void* data = nullptr;
        REQUIRE(text_of_status(api().GetTensorMutableData(tensor.get(), &data)) == "");
        CHECK(allocator.arena().usage().blocks == 1);
        CHECK(allocator.arena().usage().used_bytes >= 3 << 20);
        write_pattern(machine.driver, data, 3 << 20, 5);
        saver.pause("onnx");
        CHECK(row_of(saver, "onnx").state == "paused");
        saver.resume("onnx");
        void* again = nullptr;
        REQUIRE(text_of_status(api().GetTensorMutableData(tensor.get(), &again)) == "");
        CHECK(again == data);
        CHECK(has_pattern(machine.driver, data, 3 << 20, 5));
        saver.pause("onnx");
    } // may be destroyed while paused
    CHECK(allocator.arena().usage().blocks == 0);
}

TEST_CASE_FIXTURE(OnHost, "no room is null and an event instead of an exception; with room the next call succeeds") {
    MemorySaver saver{machine.driver};
    const HostInfo host;
    std::vector<std::string> told;
    OnnxRuntimeAllocator allocator{saver.arena("onnx", Discard{}, {.capacity = 64_MiB}), host.info,
                                   [&](const Event& event) { told.push_back(event.text); }};
    {
        // ONNX Runtime returns an error status, or a tensor without memory.
        const Tensor none = make_tensor(allocator, std::int64_t{1} << 30);
        void* data = nullptr;
        if (none != nullptr) CHECK(text_of_status(api().GetTensorMutableData(none.get(), &data)) == "");
        CHECK(data == nullptr);
    }
    REQUIRE(told.size() == 1);
    CHECK(contains(told.front(), "onnx"));
    CHECK(make_tensor(allocator, 1 << 20) != nullptr);
    CHECK(told.size() == 1);
    CHECK(allocator.arena().usage().blocks == 0);
}

TEST_CASE("the function table: null for 0 bytes and for functions that are not offered; the memory info it was given") {
    const Checked machine{host_machine};
    MemorySaver saver{machine.driver};
    const HostInfo host;
    OnnxRuntimeAllocator allocator{saver.arena("onnx"), host.info};
    CHECK(allocator.version == ORT_API_VERSION);
    CHECK(allocator.Info(&allocator) == host.info);
    CHECK(allocator.Alloc(&allocator, 0) == nullptr);
    allocator.Free(&allocator, nullptr);
#if ORT_API_VERSION >= 18
    CHECK(!allocator.Reserve);
#endif
    void* const block = allocator.Alloc(&allocator, 1);
    CHECK(address_of(block) % 256 == 0);
    allocator.Free(&allocator, block);
    CHECK(allocator.arena().usage().blocks == 0);
    void* const late = allocator.Alloc(&allocator, 1);
    saver.close();
    allocator.Free(&allocator, late); // reports nothing
    CHECK(allocator.Alloc(&allocator, 1) == nullptr);
}
} // namespace interop_onnxruntime_allocator_test
