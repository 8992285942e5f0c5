// The memory resource, called as both generations of CCCL's concepts call it, on host memory. Built with the headers of
// each available generation.
#include "memsaver/interop/cccl.hpp"
#include "support/each_of.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <functional>
#include <set>
#include <type_traits>
#include <utility>
#include <vector>

namespace interop_cccl_resource_test {
using namespace test;

// The requirements of each generation, by its own names.
#if CCCL_VERSION < 3001000
static_assert(::cuda::mr::resource<ArenaResource>);
static_assert(::cuda::mr::async_resource<ArenaResource>);
static_assert(!::cuda::mr::resource_with<ArenaResource, ::cuda::mr::host_accessible>);
static_assert(!::cuda::mr::async_resource<Arena>);
#else
static_assert(::cuda::mr::synchronous_resource<ArenaResource>);
static_assert(::cuda::mr::resource<ArenaResource>);
static_assert(!::cuda::mr::resource_with<ArenaResource, ::cuda::mr::host_accessible>);
static_assert(!::cuda::mr::resource<Arena>);
#endif

// And those of the other generation, so that both are checked although only one is available.
template <class R>
concept BothGenerations = std::equality_comparable<R> && std::copyable<R> &&
    requires(R& resource, void* pointer, std::size_t n, ::cuda::stream_ref stream) {
    { resource.allocate(n, n) } -> std::same_as<void*>;
    { resource.deallocate(pointer, n, n) }
    noexcept->std::same_as<void>;
    { resource.allocate_async(n, n, stream) } -> std::same_as<void*>;
    { resource.deallocate_async(pointer, n, n, stream) }
    noexcept->std::same_as<void>;
    { resource.allocate_sync(n, n) } -> std::same_as<void*>;
    { resource.deallocate_sync(pointer, n, n) }
    noexcept->std::same_as<void>;
    { resource.allocate(stream, n, n) } -> std::same_as<void*>;
    { resource.deallocate(stream, pointer, n, n) }
    noexcept->std::same_as<void>;
};
static_assert(BothGenerations<ArenaResource>);
static_assert(!BothGenerations<Arena>);

/// All stream-ordered ways to deallocate.
using Free = std::function<void(ArenaResource&, void*, std::size_t, ::cuda::stream_ref)>;
const std::vector<Free>& stream_ordered_frees() {
    static const std::vector<Free> frees{
        [](auto& r, void* p, std::size_t n, ::cuda::stream_ref s) { r.deallocate(s, p, n); },
        [](auto& r, void* p, std::size_t n, ::cuda::stream_ref s) { r.deallocate(s, p, n, 256); },
        [](auto& r, void* p, std::size_t n, ::cuda::stream_ref s) { r.deallocate_async(p, n, s); },
        [](auto& r, void* p, std::size_t n, ::cuda::stream_ref s) { r.deallocate_async(p, n, 256, s); }};
    return frees;
}

/// All ways to deallocate without naming a stream.
using PlainFree = std::function<void(ArenaResource&, void*, std::size_t)>;
const std::vector<PlainFree>& plain_frees() {
    static const std::vector<PlainFree> frees{[](auto& r, void* p, std::size_t n) { r.deallocate(p, n); },
                                              [](auto& r, void* p, std::size_t n) { r.deallocate_sync(p, n, 256); }};
    return frees;
}

TEST_CASE_FIXTURE(OnSaver, "every way to allocate and to deallocate" * on_machines) {
    ArenaResource resource{saver.arena("cccl", HostBackup{})};
    const ::cuda::stream_ref stream{cudaStream_t{}};

    std::vector<void*> blocks{resource.allocate(1_MiB),
                              resource.allocate(1_MiB, 4_KiB),
                              resource.allocate(stream, 1_MiB),
                              resource.allocate(stream, 1_MiB, 4_KiB),
                              resource.allocate_sync(1_MiB),
                              resource.allocate_async(1_MiB, stream),
                              resource.allocate_async(1_MiB, 4_KiB, stream)};
    CHECK(std::set<void*>(blocks.begin(), blocks.end()).size() == blocks.size());
    for (const std::size_t i : {1U, 3U, 6U}) CHECK(address_of(blocks[i]) % 4_KiB == 0);
    for (std::size_t i = 0; i < blocks.size(); ++i) write_pattern(machine.driver, blocks[i], 1_MiB, i);

    saver.pause("cccl");
    CHECK(row_of(saver, "cccl").state == "paused");
    saver.resume("cccl");
    for (std::size_t i = 0; i < blocks.size(); ++i) CHECK(has_pattern(machine.driver, blocks[i], 1_MiB, i));

    std::size_t next = 0;
    for (const Free& free : stream_ordered_frees()) free(resource, blocks[next++], 1_MiB, stream);
    for (const PlainFree& free : plain_frees()) free(resource, blocks[next++], 1_MiB);
    CHECK(row_of(saver, "cccl").blocks == 1);
    saver.pause("cccl");
    resource.deallocate(stream, blocks[next++], 1_MiB); // while it is paused
    CHECK(row_of(saver, "cccl").blocks == 0);
    CHECK(next == blocks.size());
}

TEST_CASE_FIXTURE(OnMachine, "copies are equal and keep the memory alive, beyond region and saver" * on_machines) {
    std::vector<ArenaResource> kept;
    {
        MemorySaver saver{machine.driver};
        const Region region = saver.region("cccl");
        kept.emplace_back(region);
        kept.push_back(kept.front());
        CHECK(kept[0] == kept[1]);
        CHECK(kept[0] == ArenaResource{saver.arena("cccl")});
        CHECK(kept[0] != ArenaResource{saver.arena("other")});
        CHECK(kept[0].arena() == region.arena());
    }
    void* const block = kept[0].allocate_sync(1_MiB);
    write_pattern(machine.driver, block, 1_MiB, 1);
    CHECK(has_pattern(machine.driver, block, 1_MiB, 1));
    kept[1].deallocate_sync(block, 1_MiB); // through the other copy
    CHECK(kept[0].arena().usage().blocks == 0);
    kept.clear();
    CHECK(machine.driver.everything_given_back());
}

TEST_CASE_FIXTURE(OnHost,
                  "a freed block can be reused at once by its own stream, and by others once that stream has passed") {
    const Free free = stream_ordered_frees()[each_of<std::size_t>({0, 1, 2, 3})];
    HeldStream mine{host_of(machine.driver)};
    HeldStream other{host_of(machine.driver)};
    MemorySaver saver{machine.driver};
    ArenaResource resource{saver.arena("cccl")};
    const ::cuda::stream_ref stream{mine.as_cuda()};
    void* const block = resource.allocate(stream, 2_MiB);
    free(resource, block, 2_MiB, stream);
    const ::cuda::stream_ref elsewhere{other.as_cuda()};
    for (int i = 0; i < 8; ++i) CHECK(resource.allocate(elsewhere, 2_MiB) != block);
    CHECK(resource.allocate(stream, 2_MiB) == block);
    free(resource, block, 2_MiB, stream);
    mine.finish();
    std::set<void*> later;
    for (int i = 0; i < 64; ++i) later.insert(resource.allocate(elsewhere, 2_MiB));
    CHECK(later.contains(block)); // while the other stream is still held
    other.finish();
}

TEST_CASE_FIXTURE(OnHost, "a block freed without a stream waits for the device, and freeing does not") {
    const PlainFree free = plain_frees()[each_of<std::size_t>({0, 1})];
    HeldStream busy{host_of(machine.driver)};
    MemorySaver saver{machine.driver};
    ArenaResource resource{saver.arena("cccl", Discard{}, {.reserve = 64_MiB})}; // so that waiting is not worthwhile
    void* const block = resource.allocate_sync(2_MiB);
    free(resource, block, 2_MiB); // returns although the device is busy
    CHECK(resource.arena().usage().blocks == 0);
    for (int i = 0; i < 8; ++i) CHECK(resource.allocate_sync(2_MiB) != block);
    busy.finish();
}

TEST_CASE_FIXTURE(OnSaver, "0 bytes, no room, an alignment that is no power of two" * on_machines) {
    ArenaResource resource{saver.arena("cccl")};
    const ::cuda::stream_ref stream{cudaStream_t{}};
    CHECK(resource.allocate(stream, 0) == nullptr);
    CHECK(resource.allocate_sync(0) == nullptr);
    resource.deallocate(stream, nullptr, 0);
    resource.deallocate_sync(nullptr, 0);
    CHECK_THROWS_AS((void)resource.allocate(stream, 64, 3), Misuse);
    machine.driver.fail({.call = Call::create, .lasting = Lasting::onwards, .kind = StatusKind::out_of_memory});
    CHECK_THROWS_AS((void)resource.allocate(stream, 32_MiB), OutOfMemory);
    CHECK_THROWS_AS((void)resource.allocate_sync(32_MiB), OutOfMemory);
    machine.driver.heal();
    CHECK(resource.allocate(stream, 32_MiB) != nullptr);
}

TEST_CASE_FIXTURE(OnMachine, "deallocation never throws" * on_machines) {
    int told = 0;
    MemorySaver saver{machine.driver,
                      {.events = [&](const Event& event) { told += event.kind == EventKind::ignored ? 1 : 0; }}};
    ArenaResource resource{saver.arena("cccl")};
    const ::cuda::stream_ref stream{cudaStream_t{}};
    void* const block = resource.allocate(stream, 1_MiB);

    // A stream in which no event can be recorded does not keep the memory.
    machine.driver.fail({.call = Call::open_event, .lasting = Lasting::onwards});
    resource.deallocate(stream, block, 1_MiB);
    machine.driver.heal();
    CHECK(resource.arena().usage().blocks == 0);
    CHECK(told == 0);

    resource.deallocate(stream, block, 1_MiB); // a second time
    CHECK(told == 1);
    resource.deallocate_sync(block, 1_MiB);
    CHECK(told == 2);
    void* const late = resource.allocate(stream, 1_MiB);
    saver.close();
    resource.deallocate(stream, late, 1_MiB);
    CHECK(told == 2);
    CHECK_THROWS_AS((void)resource.allocate(stream, 1_MiB), Misuse);
}

TEST_CASE_FIXTURE(OnSaver, "references and owners that hide the type" * on_machines) {
    ArenaResource resource{saver.arena("cccl")};
    const ::cuda::stream_ref stream{cudaStream_t{}};
#if CCCL_VERSION < 3001000
    ::cuda::mr::async_resource_ref<::cuda::mr::device_accessible> ref{resource};
    void* const block = ref.allocate_async(1_MiB, 256, stream);
    CHECK(resource.arena().usage().blocks == 1);
    ref.deallocate_async(block, 1_MiB, 256, stream);
#elif CCCL_VERSION >= 3002000
    ::cuda::mr::resource_ref<::cuda::mr::device_accessible> ref{resource};
    void* const block = ref.allocate(stream, 1_MiB, 256);
    CHECK(resource.arena().usage().blocks == 1);
    ref.deallocate(stream, block, 1_MiB, 256);
    ::cuda::mr::any_resource<::cuda::mr::device_accessible> owner{resource};
    void* const second = owner.allocate_sync(1_MiB, 256);
    CHECK(resource.arena().usage().blocks == 1);
    owner.deallocate_sync(second, 1_MiB, 256);
#endif
    CHECK(resource.arena().usage().blocks == 0);
}
} // namespace interop_cccl_resource_test
