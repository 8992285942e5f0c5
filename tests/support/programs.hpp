// The design's programs, as users write them, for any machine: `device(n)` makes the driver of device n. Smaller, and
// with memory behind every name, so that they run.
#pragma once

#include "memsaver/memsaver.hpp"

#include <chrono>
#include <cstddef>
#include <iostream>
#include <ostream>
#include <utility>

namespace test {

using namespace memsaver;

using namespace memsaver::detail;

template <class Device>
void program_1_pause_and_resume(Device device) {
    MemorySaver saver{device(0)};
    Buffer<float> kv;
    {
        auto region = saver.region("kv_cache");
        kv = Buffer<float>{region, 1 << 24};
    }
    Report paused = saver.pause("kv_cache");
    saver.resume("kv_cache");
    (void)paused;
}

template <class Device>
void program_2_policies(Device device) {
    MemorySaver saver{device(0)};
    Arena weights = saver.arena("weights", HostBackup{});
    Arena frozen = saver.arena("frozen", HostBackup{.refresh = Refresh::once});
    Arena scratch = saver.arena("scratch", Zero{});
    Arena cold = saver.arena("cold", FileBackup{.directory = "/var/tmp"});
    for (const Arena& arena : {weights, frozen, scratch, cold}) (void)arena.allocate(1_MiB);
    saver.pause();
    saver.resume();
    saver.invalidate("frozen");
    saver.pause("weights", {.bytes = Discard{}});
}

template <class Device>
void program_3_raw_allocation(Device device, StreamRef stream) {
    MemorySaver saver{device(0)};
    Arena weights = saver.arena("weights");
    auto region = saver.region("kv_cache");
    void* p = weights.allocate(64_MiB);
    void* q = saver.allocate(1_MiB);
    { auto out = saver.outside(); }
    saver.deallocate(p);
    saver.deallocate(q, stream);
}

template <class Device>
void program_4_many_tags(Device device, std::ostream& out) {
    MemorySaver saver{device(0)};
    const Buffer<float> weights{saver.arena("weights"), 1 << 20};
    const Buffer<float> kv{saver.arena("kv_cache"), 1 << 20};
    const Report paused = saver.pause({"weights", "kv_cache"});
    saver.resume("weights");
    std::size_t need = saver.bytes_to_resume({"kv_cache"});
    saver.trim();
    out << saver.usage();
    out << paused;
    for (const ArenaUsage& row : saver.usage()) need += row.mapped_bytes;
    out << need;
}

template <class Device>
void program_5_order(Device device, StreamRef stream) {
    MemorySaver saver{device(0)};
    const Buffer<float> kv{saver.arena("kv_cache"), 1 << 20};
    saver.pause("kv_cache", {.order = after(stream), .timeout = std::chrono::seconds{5}});
}

template <class Driver, class Device>
void program_6_one_arena(Device device) {
    TaggedArena<Driver, HostBackup> lora{device(0), "lora", HostBackup{}, {.capacity = 4_GiB}};
    void* r = lora.allocate(32_MiB);
    lora.pause();
    lora.resume();
    lora.deallocate(r);
}

template <class Device>
void program_7_cuda_graphs(Device device, StreamRef stream) {
    MemorySaver saver{device(0)};
    const auto decode_step = [&](StreamRef on) {
        void* const workspace = saver.allocate(1_MiB);
        check(saver.driver().fill(reinterpret_cast<Address>(workspace), 1, 1_MiB, on), "decode");
    };
    Graph graph = capture(saver, "graph", stream, [&] { decode_step(stream); });
    saver.pause("graph");
    saver.resume("graph");
    graph.launch(stream);
}

template <class Device>
void program_8_workspaces(Device device) {
    MemorySaver saver{device(0)};
    WorkspacePool workspaces{saver.arena("workspace")};
    void* ws = workspaces.get("moe.gate", 48_MiB);
    (void)ws;
}

template <class Device>
void program_9_what_other_allocators_keep(Device device) {
    MemorySaver saver{device(0)};
    bool flushed = false;
    {
        Hook flush = saver.before_pause([&](PauseEvent&) { flushed = true; });
        Hook trim = saver.after_pause(trim_cuda_pools);
        saver.pause();
    }
    check(flushed ? Status{} : Status{StatusKind::other, 0, "not called"}, "run the hooks");
}

template <class Device>
void program_10_several_devices(Device device) {
    MemorySaver saver{device(0)};
    Arena first = saver.arena("weights", HostBackup{});
    Arena second = saver.arena("weights", HostBackup{}, device(1));
    const Buffer<float> a{first, 1 << 20};
    const Buffer<float> b{second, 1 << 20};
    saver.pause("weights");
    saver.resume("weights");
}

template <class Device>
void program_11_switched_off(Device device) {
    MemorySaver off{device(0), {.enabled = false}};
    const Buffer<float> kv{off.arena("kv_cache"), 1 << 20};
    off.pause("kv_cache");
    off.resume();
}

template <class Run>
void program_12_the_machine_at_hand(Run run) {
    with_default_driver([&](auto driver) {
        MemorySaver saver{driver};
        run(saver);
    });
}

/// Program 13: a class holds a saver without naming its machine.
class Engine {
public:
    explicit Engine(AnyDriver driver = default_driver()) : saver_{std::move(driver)} {}
    MemorySaver<>& saver() { return saver_; }
    [[nodiscard]] const Arena& weights() const { return weights_; }

private:
    MemorySaver<> saver_;
    Arena weights_ = saver_.arena("weights", HostBackup{});
};

template <class Device>
void program_13_held_by_a_class(Device device) {
    Engine engine{device(0)};
    const Buffer<float> layer{engine.weights(), 1 << 20};
    engine.saver().pause();
    engine.saver().resume();
    MemorySaver<> moved = MemorySaver{device(0)};
    moved.close();
}

template <class Device>
void program_14_stream_ordered(Device device, StreamRef stream) {
    MemorySaver saver{device(0)};
    Arena weights = saver.arena("weights");
    void* t = weights.allocate(1_MiB, stream);
    weights.deallocate(t, stream);
    auto region = saver.region("weights");
    saver.deallocate(saver.allocate(1_MiB, stream), stream);
    saver.deallocate(region.allocate(1_MiB, stream), stream);
    Buffer<float> buffer{region, 1 << 20, stream};
    buffer.reset(stream);
}

template <class Device>
void program_15_the_life_of_a_tag(Device device) {
    using namespace std::chrono_literals;
    MemorySaver saver{device(0)};
    const Buffer<float> lora{saver.arena("lora.17"), 1 << 20};
    const Buffer<float> weights{saver.arena("weights", HostBackup{}), 1 << 20};
    saver.drop("lora.17");
    saver.pause("weights");
    saver.resume("weights", {.bytes = Discard{}});
    saver.pause("weights");
    saver.resume("weights", {.room_within = 5s});
    const auto make_room = [](std::size_t bytes) { return bytes == 0; };
    MemorySaver strict{device(0), {.default_policy = HostBackup{}, .on_no_room = [&](const NoRoom& need) {
                                       return make_room(need.bytes);
                                   }}};
    const Buffer<float> kept{strict.arena("kept"), 1 << 20};
}

template <class Device>
void program_16_saving_ahead(Device device) {
    MemorySaver saver{device(0)};
    const Buffer<float> frozen{saver.arena("frozen", HostBackup{.refresh = Refresh::once}), 1 << 20};
    Arrival saved = saver.save("frozen");
    (void)saved.done();
    saved.wait();
    saver.pause("frozen");
}

template <class Device>
void program_17_streamed_resume(Device device, StreamRef stream) {
    MemorySaver saver{device(0)};
    Arena weights = saver.arena("weights", HostBackup{});
    const std::size_t bytes0 = 1_MiB;
    const std::size_t bytes1 = 2_MiB;
    float* layer0 = static_cast<float*>(weights.allocate(bytes0));
    void* layer1 = weights.allocate(bytes1);
    saver.pause("weights");
    Arrival coming = saver.resume_async("weights", {.first = {{layer0, bytes0}, {layer1, bytes1}}});
    coming.before(stream, layer0, bytes0);
    coming.wait(layer0, bytes0);
    Gate gate = saver.gate(layer1, bytes1);
    gate.before(stream);
}

template <class Device>
void program_21_elastic_memory(Device device) {
    MemorySaver saver{device(0)};
    Elastic kv = saver.arena("kv_cache").elastic(64_GiB);
    kv.commit(0, 256_MiB);
    kv.release(128_MiB, 128_MiB);
    kv.resize(512_MiB);
    (void)kv.data();
    (void)kv.granularity();
    (void)kv.committed_bytes();
    (void)kv.capacity();
    Elastic told = saver.arena("told").elastic(
        1_GiB, {.granularity = 2_MiB, .on_reclaim = [](std::size_t wanted) { return wanted - wanted; }});
    (void)saver.reclaim(64_MiB);
}

} // namespace test
