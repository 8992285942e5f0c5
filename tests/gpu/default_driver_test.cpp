// A saver on the default driver, and in threads with contexts of their own. That memory is released and comes back is
// in saver/programs_test.cpp, which also runs on a GPU; that kernels can use it then is in capture_test.cpp.
#include "gpu/gpu_support.hpp"

#include <type_traits>

namespace gpu_default_driver_test {
using namespace gpu_test;

TEST_CASE("the default driver is the GPU") {
    CHECK(with_default_driver(
        [](const auto& driver) { return std::is_same_v<std::remove_cvref_t<decltype(driver)>, CudaDriver>; }));
}

TEST_CASE("a thread without a current context, and one with a context of the program's own, can use the saver") {
    const Native native;
    CUcontext before = nullptr;
    must(native.ctx_get(&before), "cuCtxGetCurrent");
    must(native.ctx_set(nullptr), "cuCtxSetCurrent");
    {
        const Ledgered books;
        MemorySaver saver{books.driver};
        const Buffer<int> buffer{saver.arena("tag"), 1 << 20};
        saver.pause();
        saver.resume();
        saver.close();
        CUcontext current = nullptr;
        must(native.ctx_get(&current), "cuCtxGetCurrent");
        CHECK(current == nullptr); // unchanged
    }
    must(native.ctx_set(before), "cuCtxSetCurrent");
}
} // namespace gpu_default_driver_test
