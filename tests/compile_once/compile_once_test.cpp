// Two files that share what here.cpp has compiled: this one, and the second unit, which has all of its own.
#include "memsaver/compile_once.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <filesystem>

namespace compile_once_compile_once_test {

using namespace memsaver;

TEST_CASE("compile_once.hpp: a saver whose parts another file has compiled") {
    if (!CudaDriver::available()) {
        CHECK_THROWS_AS(CudaDriver{0}, Unavailable);
        return;
    }
    MemorySaver<CudaDriver> saver{CudaDriver{0}};
    const auto goes_and_comes = [&](Region region, const char* tag) {
        const Buffer<std::byte> bytes{region, 3_MiB};
        CHECK(saver.pause(tag).released_bytes >= 3_MiB);
        CHECK(saver.resume(tag).mapped_bytes >= 3_MiB);
    };
    goes_and_comes(saver.region("dropped"), "dropped");
    goes_and_comes(saver.region("kept", HostBackup{}), "kept");
    goes_and_comes(saver.region("filed", FileBackup{std::filesystem::temp_directory_path().string()}), "filed");
    CHECK(saver.trim().released_bytes >= 9_MiB);
    saver.close();
}

} // namespace compile_once_compile_once_test
