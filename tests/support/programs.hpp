// The design's programs, as users write them, for any machine: `device(n)` makes the driver of device n. Smaller, and
// with memory behind every name, so that they run.
#pragma once

#include "memsaver/backup/compressed.hpp"
#include "memsaver/memsaver.hpp"

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <ostream>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

namespace test {
using namespace memsaver;
using namespace memsaver::detail;
using namespace std::chrono_literals;

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

template <class Run>
void program_12_the_machine_at_hand(Run run) {
    with_default_driver([&](auto driver) {
        MemorySaver saver{driver};
        run(saver);
    });
}

/// Of program 13: a class holds a saver without naming its machine.
struct Engine {
    explicit Engine(AnyDriver driver = default_driver()) : saver_{std::move(driver)} {}
    MemorySaver<>& saver() { return saver_; }
    [[nodiscard]] const Arena& weights() const { return weights_; }

private:
    MemorySaver<> saver_;
    Arena weights_ = saver_.arena("weights", HostBackup{});
};

/// Compressed needs a codec: on a GPU nvCOMP.
template <class Device>
void program_19_compressed(Device device) {
    MemorySaver saver{device(0)};
    Arena packed = saver.arena("packed", Compressed<HostBackup>{});
    const Buffer<float> weights{packed, 1 << 20};
    saver.pause("packed");
    saver.resume("packed");
}

template <class Device>
void program_19_a_neighbours_memory(Device device) {
    MemorySaver saver{device(0)};
    Arena parked = saver.arena("parked", PeerBackup{device(1)});
    const Buffer<float> weights{parked, 1 << 20};
    saver.pause("parked");
    saver.resume("parked");
}

/// All of them, a block each, but 12, which looks for its device itself, and 19, whose two need a codec and a second
/// device.
template <class Driver, class Device>
void all_programs(Device device, StreamRef stream, std::ostream& out, const std::string& file) {
    { // 1: pause and resume
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
    { // 2: policies
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
    { // 3: raw allocation
        MemorySaver saver{device(0)};
        Arena weights = saver.arena("weights");
        auto region = saver.region("kv_cache");
        void* p = weights.allocate(64_MiB);
        void* q = saver.allocate(1_MiB);
        { auto plain = saver.outside(); }
        saver.deallocate(p);
        saver.deallocate(q, stream);
    }
    { // 4: many tags
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
    { // 5: order
        MemorySaver saver{device(0)};
        const Buffer<float> kv{saver.arena("kv_cache"), 1 << 20};
        saver.pause("kv_cache", {.order = after(stream), .timeout = std::chrono::seconds{5}});
    }
    { // 6: one arena
        TaggedArena<Driver, HostBackup> lora{device(0), "lora", HostBackup{}, {.capacity = 4_GiB}};
        void* r = lora.allocate(32_MiB);
        lora.pause();
        lora.resume();
        lora.deallocate(r);
    }
    { // 7: cuda graphs
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
    { // 8: workspaces
        MemorySaver saver{device(0)};
        WorkspacePool workspaces{saver.arena("workspace")};
        void* ws = workspaces.get("moe.gate", 48_MiB);
        (void)ws;
    }
    { // 9: what other allocators keep
        MemorySaver saver{device(0)};
        bool flushed = false;
        {
            Hook flush = saver.before_pause([&](PauseEvent&) { flushed = true; });
            Hook trim = saver.after_pause(trim_cuda_pools);
            saver.pause();
        }
        check(flushed ? Status{} : Status{StatusKind::other, 0, "not called"}, "run the hooks");
    }
    program_10_several_devices(device);
    { // 11: switched off
        MemorySaver off{device(0), {.enabled = false}};
        const Buffer<float> kv{off.arena("kv_cache"), 1 << 20};
        off.pause("kv_cache");
        off.resume();
    }
    { // 13: held by a class
        Engine engine{device(0)};
        const Buffer<float> layer{engine.weights(), 1 << 20};
        engine.saver().pause();
        engine.saver().resume();
        MemorySaver<> moved = MemorySaver{device(0)};
        moved.close();
    }
    { // 14: stream ordered
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
    { // 15: the life of a tag
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
    { // 16: saving ahead
        MemorySaver saver{device(0)};
        const Buffer<float> frozen{saver.arena("frozen", HostBackup{.refresh = Refresh::once}), 1 << 20};
        Arrival saved = saver.save("frozen");
        (void)saved.done();
        saved.wait();
        saver.pause("frozen");
    }
    { // 17: streamed resume
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
    { // 18: exchange
        MemorySaver saver{device(0)};
        const Buffer<float> a{saver.arena("model.a", HostBackup{}), 1 << 20};
        const Buffer<float> b{saver.arena("model.b", HostBackup{}), 1 << 20};
        const Buffer<float> kv_a{saver.arena("kv.a"), 1 << 20};
        const Buffer<float> kv_b{saver.arena("kv.b"), 1 << 20};
        saver.pause({"model.b", "kv.b"});
        saver.exchange({"model.a", "kv.a"}, {"model.b", "kv.b"});
    }
    { // 20: residency
        MemorySaver saver{device(0)};
        const Buffer<float> weights{saver.arena("model.a", HostBackup{}, {.evictable = true}), 1 << 20};
        const Buffer<float> kv{saver.arena("kv.a"), 1 << 20};
        const std::vector<std::string> tags{"model.a", "kv.a"};
        {
            Use use = saver.use({"model.a", "kv.a"});
            use.until(stream);
        }
        { Use use = saver.use(tags, {.room_within = 2s}); }
        (void)saver.reclaim(1_MiB);
        MemorySaver roomy{device(0), {.evict_for_allocations = true}};
        (void)roomy.arena("model.a").allocate(1_MiB);
    }
    { // 21: elastic memory
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
    { // 22: bytes of a file
        MemorySaver saver{device(0)};
        Arena model = saver.arena("model", FileSource{});
        void* w = model.allocate(1_MiB);
        model.load(w, 1_MiB, file, 4096);
        saver.pause("model");
        saver.resume("model");
    }
    { // 23: an update while away
        MemorySaver saver{device(0)};
        const std::vector<char> new_bytes(1_MiB, 'n');
        void* w = saver.arena("weights", HostBackup{}).allocate(1_MiB);
        saver.pause("weights");
        saver.write_backup(w, new_bytes.data(), new_bytes.size());
        saver.resume("weights");
    }
}

/// A file of 2 MiB, for program 22.
struct SomeFile {
    SomeFile() { std::ofstream{path_, std::ios::binary} << std::string(2_MiB, 'w'); }
    ~SomeFile() { (void)std::remove(path_.c_str()); }
    [[nodiscard]] const std::string& path() const { return path_; }

private:
    std::string path_ = "/var/tmp/memsaver-programs-" + std::to_string(::getpid());
};
} // namespace test
