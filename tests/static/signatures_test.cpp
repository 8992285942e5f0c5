// Overload resolution: lines of a program that could be read in two ways, and those that must not compile.
#include "memsaver/memsaver.hpp"

#include <array>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

using namespace memsaver;
using namespace std::chrono_literals;

namespace {

using Runtime = CUstream_st*;

struct TorchStream {
    operator Runtime() const { return nullptr; }
};

class Engine {
    MemorySaver<> saver_{default_driver()};
    Arena weights_ = saver_.arena("weights", HostBackup{});
};

using Host = MemorySaver<HostDriver>;

static_assert(std::same_as<decltype(MemorySaver{CudaDriver{0}}), MemorySaver<CudaDriver>>);
static_assert(std::same_as<decltype(MemorySaver{default_driver()}), MemorySaver<>>);
static_assert(std::same_as<decltype(MemorySaver{std::declval<Host>()}), Host>);
static_assert(std::same_as<decltype(std::declval<const Host&>().driver()), const HostDriver&>);
static_assert(std::same_as<decltype(std::declval<const MemorySaver<>&>().driver()), const AnyDriver&>);

static_assert(std::movable<Host> && std::movable<MemorySaver<>>);
static_assert(!std::copy_constructible<Host> && !std::copy_constructible<MemorySaver<>>);
static_assert(std::convertible_to<Host, MemorySaver<>> && std::convertible_to<Host&&, MemorySaver<>>);
static_assert(!std::constructible_from<MemorySaver<>, Host&>);

// One name where one is expected.
static_assert(std::convertible_to<const char*, TagName> && std::convertible_to<std::string, TagName>);
static_assert(!std::constructible_from<TagName, const char*, const char*>);
template <class S>
concept TakesAListForOneName = requires(S saver) {
    saver.arena({"weights", "kv_cache"});
};
static_assert(!TakesAListForOneName<Host>);
template <class S>
concept TakesAListForOneRegion = requires(S saver) {
    saver.region({"weights", "kv_cache"});
};
static_assert(!TakesAListForOneRegion<Host>);

// Lists.
static_assert(std::convertible_to<const char*, Tags> && std::convertible_to<std::string, Tags>);
static_assert(std::convertible_to<std::vector<std::string>, Tags> && std::convertible_to<std::set<std::string>&, Tags>);
static_assert(std::convertible_to<std::array<const char*, 2>, Tags> &&
              std::convertible_to<std::vector<std::string_view>, Tags>);
static_assert(!std::convertible_to<int, Tags> && !std::convertible_to<std::vector<int>, Tags>);

// Streams: pointers to memory do not convert.
static_assert(std::convertible_to<Runtime, StreamRef> && std::convertible_to<HostStream*, StreamRef>);
static_assert(std::convertible_to<TorchStream, StreamRef> && std::convertible_to<std::nullptr_t, StreamRef>);
static_assert(!std::convertible_to<void*, StreamRef> && !std::convertible_to<float*, StreamRef>);
template <class S>
concept FreesWithAPointer = requires(S saver, void* p, void* q) {
    saver.deallocate(p, q);
};
static_assert(!FreesWithAPointer<Host>);

[[maybe_unused]] void calls(Host& saver, MemorySaver<>& any, Runtime stream) {
    MemorySaver<> made = MemorySaver{HostDriver{}};
    MemorySaver<> made_too{CudaDriver{0}};
    saver = MemorySaver{HostDriver{8_GiB}};
    MemorySaver strict{HostDriver{8_GiB}, {.default_policy = HostBackup{}, .on_no_room = [](const NoRoom& need) {
                                               return need.bytes != 0;
                                           }}};
    MemorySaver off{CudaDriver{0}, {.enabled = false}};
    MemorySaver roomy{CudaDriver{0}, {.evict_for_allocations = true}};

    saver.pause();
    saver.pause({.timeout = 5s});
    saver.pause("a");
    saver.pause({"a"});
    saver.pause({"a", "b"});
    saver.pause({"a", "b"}, {.timeout = 5s});
    saver.pause("weights", {.bytes = Discard{}});
    saver.resume("w", {.bytes = Discard{}});
    saver.resume({"a", "b"}, {.room_within = 5s});
    saver.resume({.room_within = 5s});
    const float* layer = nullptr;
    Arrival coming = saver.resume_async({.first = {{layer, 4_KiB}}, .room_within = 5s});
    coming = saver.resume_async({"a", "b"}, {.first = {{layer, 4_KiB}, {nullptr, 1}}, .bytes = Discard{}});
    coming = saver.resume_async(Tags::under("a/"));
    coming = saver.save({"a", "b"}, {.order = already_idle, .timeout = 5s});
    coming = saver.save({.order = after(StreamRef{})});
    Gate gate = saver.gate(layer, 4_KiB);
    static_assert(std::is_copy_constructible_v<Gate> && std::is_nothrow_move_assignable_v<Gate>);
    static_assert(!std::is_copy_constructible_v<Arrival> && std::is_nothrow_move_assignable_v<Arrival>);
    saver.trim({"a", "b"});
    saver.trim("a", {.order = already_idle});
    saver.prepare({"a", "b"});
    saver.invalidate({"a", "b"});
    saver.forget_backup({"a", "b"});
    saver.drop({"a", "b"});
    (void)std::as_const(saver).bytes_to_resume({"a", "b"});
    (void)std::as_const(saver).usage();
    (void)std::as_const(saver).owns(nullptr);

    const std::string one = "x";
    const std::string two = "y";
    const std::vector<std::string> names{one, two};
    const std::set<std::string> sorted{one};
    const std::array<const char*, 2> literals{"p", "q"};
    const std::vector<std::string_view> views{one};
    const Tags tags = {"a", "b"};
    saver.pause({one, two});
    saver.pause(names);
    saver.pause(sorted);
    saver.pause(literals);
    saver.pause(views);
    saver.pause({one, "b", views[0]});
    saver.pause(tags, {.timeout = 2s});
    saver.pause({tags});
    saver.pause(Tags::under("model/"));

    (void)saver.arena("w");
    (void)saver.arena(one, HostBackup{.refresh = Refresh::once});
    (void)saver.arena("w", {.capacity = 4_GiB});
    (void)saver.arena("w", HostBackup{}, {.capacity = 4_GiB});
    (void)saver.arena("w", HostBackup{}, CudaDriver{1, {.peers = {0}}});
    (void)saver.arena("w", HostBackup{}, CudaDriver{1}, {.margin = 1_GiB});
    (void)any.arena("w", HostBackup{}, CudaDriver{1});
    auto region = saver.region("kv");
    std::optional<Region> later;
    later.emplace(saver.arena("x"));

    std::vector<void*> blocks;
    for (void* const block : {saver.allocate(1_MiB), saver.allocate(1_MiB, 512), saver.allocate(1_MiB, stream),
                              saver.allocate(1_MiB, nullptr), saver.allocate(1_MiB, TorchStream{}),
                              saver.allocate(1_MiB, StreamRef{}, 512), region.allocate(1_MiB, stream)}) {
        blocks.push_back(block);
    }
    saver.deallocate(blocks[0]);
    saver.deallocate(blocks[1], stream);
    saver.deallocate(blocks[2], already_idle);
    saver.deallocate(blocks[3], nullptr);
    const Buffer<float> floats{saver.arena("x"), 1 << 20, stream};
    const Buffer<float> more{region, 1 << 20, nullptr};
    Elastic range = saver.arena("x").elastic(64_GiB);
    range = saver.arena("x").elastic(64_GiB, {.granularity = 2_MiB});
    range.release(0, 1_MiB, already_idle);
    range.release(0, 1_MiB, after(stream));
    range.resize(0, already_idle);
    static_assert(!std::is_copy_constructible_v<Elastic> && std::is_nothrow_move_assignable_v<Elastic>);
}

} // namespace
