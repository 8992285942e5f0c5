// RMM's containers in memory that is paused and resumed. Uses RMM as its wheel ships it, with its own CCCL headers.
#include "gpu/gpu_support.hpp"
#include "memsaver/interop/cccl.hpp"

#include <rmm/device_buffer.hpp>
#include <rmm/device_uvector.hpp>
#include <rmm/exec_policy.hpp>
#include <rmm/mr/limiting_resource_adaptor.hpp>
#include <rmm/mr/per_device_resource.hpp>
#include <rmm/resource_ref.hpp>
#include <thrust/reduce.h>
#include <thrust/sequence.h>
#include <utility>

namespace interop_rmm_containers_test {
using namespace gpu_test; // not global: nvcc emits `cuda::` at the end of a unit, which would become ambiguous

static_assert(std::is_constructible_v<rmm::device_async_resource_ref, ArenaResource&>);
static_assert(std::is_constructible_v<rmm::device_resource_ref, ArenaResource&>);

TEST_CASE_FIXTURE(OnGpu, "RMM's vector and buffer in paused memory: the same address and values after the resume") {
    constexpr int count = 1 << 20;
    MemorySaver saver{books.driver};
    const Arena arena = saver.arena("rmm", HostBackup{});
    const ::cuda::stream_ref stream{program.stream};
    {
        rmm::device_uvector<int> vector{count, stream, ArenaResource{arena}};
        const rmm::device_buffer buffer{1_MiB, stream, ArenaResource{arena}};
        CHECK(arena.usage().blocks == 2);
        thrust::sequence(rmm::exec_policy(stream, ArenaResource{arena}), vector.begin(), vector.end());
        const int* const address = vector.data();
        saver.pause("rmm");
        CHECK(arena.usage().state == "paused");
        CHECK(books.driver.handle_bytes() == 0);
        saver.resume("rmm");
        CHECK(vector.data() == address);
        const long long sum =
            thrust::reduce(rmm::exec_policy(stream, ArenaResource{arena}), vector.begin(), vector.end(), 0LL);
        CHECK(sum == (static_cast<long long>(count) * (count - 1)) / 2);
        vector.resize(2 * count, stream);
        CHECK(program.read(vector.data(), 3) == std::vector<std::uint32_t>{0, 1, 2});
        saver.pause("rmm");
    } // destroyed while paused
    CHECK(arena.usage().blocks == 0);
    program.synchronize();
    saver.close();
}

TEST_CASE_FIXTURE(OnGpu, "an arena as RMM's resource of the device, and under one of its adaptors") {
    MemorySaver saver{books.driver};
    const Arena arena = saver.arena("rmm");
    const ::cuda::stream_ref stream{program.stream};
    auto before = rmm::mr::set_current_device_resource(ArenaResource{arena});
    {
        const rmm::device_buffer buffer{1_MiB, stream};
        CHECK(arena.usage().used_bytes == 1_MiB);
        rmm::mr::limiting_resource_adaptor limited{ArenaResource{arena}, 2_MiB};
        const rmm::device_buffer within{1_MiB, stream, limited};
        CHECK(arena.usage().used_bytes == 2_MiB);
        CHECK_THROWS((rmm::device_buffer{2_MiB, stream, limited}));
    }
    rmm::mr::set_current_device_resource(std::move(before));
    CHECK(arena.usage().blocks == 0);
    program.synchronize();
    saver.close();
}
} // namespace interop_rmm_containers_test
