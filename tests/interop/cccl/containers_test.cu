// Containers of Thrust and CCCL, and the temporary memory of algorithms, in memory that is paused and resumed. Compiled
// by nvcc with the headers of each available generation of CCCL, and run on a GPU.
#include "gpu/gpu_support.hpp"
#include "memsaver/interop/cccl.hpp"
#include "memsaver/interop/thrust.hpp"

#include <thrust/device_vector.h>
#include <thrust/execution_policy.h>
#include <thrust/functional.h>
#include <thrust/reduce.h>
#include <thrust/scan.h>
#include <thrust/sequence.h>
#include <thrust/sort.h>

#if CCCL_VERSION >= 3002000
#include <cuda/buffer>
#endif

#include <utility>

namespace interop_cccl_containers_test {
using namespace gpu_test; // not global: nvcc emits `cuda::` at the end of a unit, which would become ambiguous

template <class T>
using Vector = thrust::device_vector<T, ThrustAllocator<T>>;

constexpr int count = 1 << 20;
constexpr long long sum_below(long long n) { return n * (n - 1) / 2; }

std::string state_of(const Arena& arena) { return arena.usage().state; }

TEST_CASE_FIXTURE(OnGpu, "a thrust vector in paused memory: the same address and values after the resume") {
    MemorySaver saver{books.driver};
    const Arena arena = saver.arena("thrust", HostBackup{});
    {
        Vector<int> vector(count, ThrustAllocator<int>{arena});
        thrust::sequence(vector.begin(), vector.end());
        const int* const address = vector.data().get();
        for (int cycle = 0; cycle < 2; ++cycle) {
            saver.pause("thrust");
            CHECK(state_of(arena) == "paused");
            CHECK(books.driver.handle_bytes() == 0);
            saver.resume("thrust");
            CHECK(vector.data().get() == address);
            CHECK(thrust::reduce(vector.begin(), vector.end(), 0LL) == sum_below(count));
        }
    }
    CHECK(arena.usage().blocks == 0);
    saver.close();
}

TEST_CASE_FIXTURE(OnGpu, "what thrust vectors do with their allocators: copy, move, swap, grow, and die while paused") {
    MemorySaver saver{books.driver};
    const Arena arena = saver.arena("one", HostBackup{});
    const Arena other = saver.arena("other");
    {
        Vector<int> first(count, 1, ThrustAllocator<int>{arena});
        Vector<int> copy{first};
        CHECK(arena.usage().blocks == 2);
        CHECK(thrust::reduce(copy.begin(), copy.end()) == count);
        Vector<int> moved{std::move(first)};
        CHECK(arena.usage().blocks == 2);
        Vector<int> elsewhere(16, 2, ThrustAllocator<int>{other});
        swap(moved, elsewhere); // swaps the memory too, wherever it is
        CHECK(moved.size() == 16);
        CHECK(thrust::reduce(elsewhere.begin(), elsewhere.end()) == count);
        moved = std::move(elsewhere);
        CHECK(thrust::reduce(moved.begin(), moved.end()) == count);
        moved.resize(2 * count, 3);
        CHECK(thrust::reduce(moved.begin(), moved.end()) == 4 * count);
        saver.pause("one");
    }
    CHECK(arena.usage().blocks == 0);
    CHECK(other.usage().blocks == 0);
    saver.resume("one");
    saver.close();
}

TEST_CASE_FIXTURE(OnGpu, "algorithms take their temporary memory from an arena, and leave it on their stream") {
    MemorySaver saver{books.driver};
    const Arena arena = saver.arena("data");
    const Arena scratch = saver.arena("scratch");
    const ThrustAllocator<char> temporary{scratch, program.stream};
    {
        Vector<int> keys(count, ThrustAllocator<int>{arena, program.stream});
        const auto on_stream = thrust::cuda::par(temporary).on(program.stream);
        thrust::sequence(on_stream, keys.begin(), keys.end(), count - 1, -1);
        thrust::sort(on_stream, keys.begin(), keys.end());
        CHECK(scratch.usage().mapped_bytes > 0); // was allocated here
        CHECK(scratch.usage().blocks == 0);      // and freed
        CHECK(program.read(keys.data().get(), 3) == std::vector<std::uint32_t>{0, 1, 2});
        saver.pause("scratch");
        saver.resume("scratch");
        thrust::sort(on_stream, keys.begin(), keys.end(), thrust::greater<int>{});
        CHECK(program.read(keys.data().get(), 1).front() == count - 1);
    }
    program.synchronize();
    saver.close();
}

TEST_CASE_FIXTURE(OnGpu, "no room: memsaver's exception comes through thrust") {
    MemorySaver saver{books.driver};
    const ThrustAllocator<double> allocator{saver.arena("tag")};
    books.driver.fail({.call = Call::create, .lasting = Lasting::onwards, .kind = StatusKind::out_of_memory});
    CHECK_THROWS_AS((Vector<double>(count * 16, allocator)), OutOfMemory);
    books.driver.heal();
    CHECK(Vector<double>(count, allocator).size() == count);
    CHECK(Vector<double>(allocator).empty());
    saver.close();
}

#if CCCL_VERSION >= 3002000
TEST_CASE_FIXTURE(OnGpu, "a ::cuda::buffer in paused memory: the same address and values after the resume") {
    MemorySaver saver{books.driver};
    const Arena arena = saver.arena("buffer", HostBackup{});
    const ::cuda::stream_ref stream{program.stream};
    {
        auto sevens = ::cuda::make_buffer<int>(stream, ArenaResource{arena}, count, ::cuda::no_init);
        program.fill(sevens.data(), 7, sevens.size() * sizeof(int));
        ::cuda::device_buffer<int> copy{stream, ArenaResource{arena}, count, ::cuda::no_init};
        program.fill(copy.data(), 8, copy.size() * sizeof(int));
        const int* const address = sevens.data();
        program.synchronize();
        CHECK(arena.usage().blocks == 2);
        saver.pause("buffer");
        CHECK(books.driver.handle_bytes() == 0);
        saver.resume("buffer");
        CHECK(sevens.data() == address);
        CHECK(program.read(sevens.data(), count) == std::vector<std::uint32_t>(count, 0x07070707));
        CHECK(program.read(copy.data(), count) == std::vector<std::uint32_t>(count, 0x08080808));
        saver.pause("buffer", {.order = after(program.stream)});
    } // destroyed while paused
    CHECK(arena.usage().blocks == 0);
    program.synchronize();
    saver.resume("buffer");
    saver.close();
}
#endif
} // namespace interop_cccl_containers_test
