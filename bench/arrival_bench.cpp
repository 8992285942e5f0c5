// The benefit of not waiting: the first layer of a streamed resume, compared with the necessary driver calls and one
// copy; all layers, compared with one plain copy of everything; and a pause after saving ahead, compared with a pause
// that drops the bytes. The cost of gates in a graph that is replayed with nothing in flight, initially and after a
// thousand resumes, compared with the same graph without gates. memsaver and the baseline alternate, and alternate in
// going first.
#include "backup_baselines.hpp"
#include "floor.hpp"

#include <utility>
#include <vector>

namespace {

using namespace bench;

constexpr std::size_t layers = 32;

/// Smaller sizes on a host machine.
template <Driver D>
constexpr std::size_t sized(std::size_t bytes) {
    return on_host<D> ? bytes / 256 : bytes;
}

/// A tag with one block that contains all layers, and a stream that computes.
template <Driver D>
struct Weights {
    Weights(const D& on, AnyPolicy policy, std::size_t size)
        : driver{on}, saver{on}, bytes{size}, block{saver.arena("weights", std::move(policy)), size} {
        check(stream.open(driver), "open a stream");
        check(event.open(driver, stream.get()), "open an event");
    }
    [[nodiscard]] std::size_t layer_bytes() const { return bytes / layers; }
    [[nodiscard]] const char* layer(std::size_t i) const { return block.data() + i * layer_bytes(); }
    [[nodiscard]] ResumeAsyncOptions in_order() const {
        ResumeAsyncOptions options;
        for (std::size_t i = 0; i < layers; ++i) options.first.push_back({layer(i), layer_bytes()});
        return options;
    }
    /// Enqueues a kernel that touches a layer, in stream order.
    void compute(const Arrival& coming, std::size_t i) {
        coming.before(stream.get(), layer(i), layer_bytes());
        check(driver.fill(reinterpret_cast<Address>(layer(i)), 1, 256, stream.get()), "compute");
    }
    void finish() {
        check(driver.record(event.get(), stream.get()), "record");
        check(driver.wait(event.get()), "wait for a kernel");
    }

    D driver;
    MemorySaver<D> saver;
    std::size_t bytes;
    Buffer<char> block;
    OwnedStream stream;
    OwnedEvent event;
};

/// Measures from the call to the end of the first layer's kernel, and to the end of the last one's.
template <Driver D>
void streamed_resume(benchmark::State& state, const D& driver, std::size_t bytes) try {
    use_up_fresh_pages(driver);
    warm_host_memory(driver, 2 * bytes);
    Weights<D> ours{driver, HostBackup{}, bytes};
    Weights<D> theirs{driver, Discard{}, bytes};
    PlainCopy<D> one{driver, theirs.block.data(), ours.layer_bytes()};
    PlainCopy<D> all{driver, theirs.block.data(), bytes};
    Floor<D> floor{driver, bytes, 1_GiB};
    const ResumeAsyncOptions options = ours.in_order();
    std::vector<double> first, last, mapped, pages, layer, plain;
    const auto stream_in = [&](bool counts) {
        ours.saver.pause("weights");
        Arrival coming;
        const auto start = Clock::now();
        const auto since = [&] { return std::chrono::duration<double, std::milli>(Clock::now() - start).count(); };
        coming = ours.saver.resume_async("weights", options);
        const double returned = since();
        ours.compute(coming, 0);
        ours.finish();
        const double began = since();
        for (std::size_t i = 1; i < layers; ++i) ours.compute(coming, i);
        ours.finish();
        const double ended = since();
        coming.wait();
        if (!counts) return;
        mapped.push_back(returned);
        first.push_back(began);
        last.push_back(ended);
    };
    const auto copy_in = [&](bool counts) {
        const double took = milliseconds([&] { floor.resume(); });
        floor.pause();
        all.in(); // waits until the device has cleared the released pages, which slows copies
        const double a_layer = milliseconds([&] { one.in(); });
        const double whole = milliseconds([&] { all.in(); });
        if (!counts) return;
        pages.push_back(took);
        layer.push_back(a_layer);
        plain.push_back(whole);
    };
    for (int warm_up = 0; warm_up < 2; ++warm_up) {
        stream_in(false);
        copy_in(false);
    }
    bool ours_first = true;
    for (auto _ : state) {
        if (ours_first) stream_in(true);
        copy_in(true);
        if (!ours_first) stream_in(true);
        ours_first = !ours_first;
        state.SetIterationTime(last.back() / 1000);
    }
    auto& counters = state.counters;
    counters["bytes"] = static_cast<double>(bytes);
    counters["layers"] = static_cast<double>(layers);
    counters["returned_ms"] = median(mapped);
    counters["first_layer_ms"] = median(first);
    counters["all_layers_ms"] = median(last);
    counters["floor_ms"] = median(pages);
    counters["plain_layer_ms"] = median(layer);
    counters["plain_all_ms"] = median(plain);
    counters["first_layer_over_ms"] = median(first) - median(pages) - median(layer);
    counters["all_layers_ratio"] = median(last) / (median(pages) + median(plain));
} catch (const std::exception& error) {
    state.SkipWithError(error.what());
}

/// A pause of a tag saved while the engine computed, compared with a pause that drops the bytes.
template <Driver D>
void saved_ahead(benchmark::State& state, const D& driver, std::size_t bytes) try {
    use_up_fresh_pages(driver);
    warm_host_memory(driver, 3 * bytes);
    Weights<D> ours{driver, HostBackup{.refresh = Refresh::once}, bytes};
    Weights<D> theirs{driver, Discard{}, bytes};
    ours.saver.prepare("weights");
    std::vector<double> pause, drop, begun, saved, ratios;
    const auto pause_ours = [&](bool counts) {
        ours.saver.invalidate("weights");
        Arrival saving;
        const double returned = milliseconds([&] { saving = ours.saver.save("weights"); });
        const double waited = milliseconds([&] { saving.wait(); });
        const double paused = milliseconds([&] { ours.saver.pause("weights"); });
        ours.saver.resume("weights", {.bytes = Discard{}});
        if (!counts) return;
        begun.push_back(returned);
        saved.push_back(returned + waited);
        pause.push_back(paused);
    };
    PlainCopy<D> copy{driver, theirs.block.data(), bytes};
    const auto pause_theirs = [&](bool counts) {
        check(driver.fill(reinterpret_cast<Address>(theirs.block.data()), 1, bytes, theirs.stream.get()), "compute");
        theirs.finish(); // memory in use: pages of a host machine are mapped when touched
        copy.out();      // releasing pages takes longer on a device that has not cleared any for a while
        const double took = milliseconds([&] { theirs.saver.pause("weights"); });
        theirs.saver.resume("weights");
        if (counts) drop.push_back(took);
    };
    for (int warm_up = 0; warm_up < 2; ++warm_up) {
        pause_ours(false);
        pause_theirs(false);
    }
    bool ours_first = true;
    for (auto _ : state) {
        if (ours_first) pause_ours(true);
        pause_theirs(true);
        if (!ours_first) pause_ours(true);
        ours_first = !ours_first;
        ratios.push_back(pause.back() / drop.back());
        state.SetIterationTime(pause.back() / 1000);
    }
    auto& counters = state.counters;
    counters["bytes"] = static_cast<double>(bytes);
    counters["save_returned_ms"] = median(begun);
    counters["save_ms"] = median(saved);
    counters["pause_ms"] = median(pause);
    counters["discard_pause_ms"] = median(drop);
    counters["ratio"] = median(pause) / median(drop);
    counters["ratio_paired"] = median(ratios);
} catch (const std::exception& error) {
    state.SkipWithError(error.what());
}

/// A graph of 64 small kernels with a gate before each, and the same without gates.
template <Driver D>
void gates(benchmark::State& state, const D& driver) try {
    constexpr std::size_t count = 64;
    constexpr int replays = 200;
    Weights<D> weights{driver, HostBackup{}, count * 64_KiB};
    const auto at = [&](std::size_t i) { return weights.block.data() + i * 64_KiB; };
    std::vector<Gate> gates;
    for (std::size_t i = 0; i < count; ++i) gates.push_back(weights.saver.gate(at(i), 64_KiB));
    const auto captured = [&](bool gated) {
        return capture(weights.saver, "graph", weights.stream.get(), [&] {
            for (std::size_t i = 0; i < count; ++i) {
                if (gated) gates[i].before(weights.stream.get());
                check(driver.fill(reinterpret_cast<Address>(at(i)), 1, 256, weights.stream.get()), "compute");
            }
        });
    };
    const Graph with = captured(true);
    const Graph without = captured(false);
    const auto replay_us = [&](const Graph& graph) { // back-to-back replays, as in a decoder
        return 1000 / double{replays} * milliseconds([&] {
                   for (int i = 0; i < replays; ++i) {
                       graph.launch(weights.stream.get());
                       weights.finish();
                   }
               });
    };
    std::vector<double> gated, plain, per_gate, resuming;
    const auto measure = [&](bool ours_first) {
        double ours = ours_first ? replay_us(with) : 0;
        const double theirs = replay_us(without);
        if (!ours_first) ours = replay_us(with);
        gated.push_back(ours);
        plain.push_back(theirs);
        per_gate.push_back((ours - theirs) / double{count});
    };
    const auto cycle = [&] {
        weights.saver.pause("weights", {.order = already_idle});
        Arrival coming;
        resuming.push_back(1000 * milliseconds([&] { coming = weights.saver.resume_async("weights"); }));
        coming.wait();
    };
    for (int warm_up = 0; warm_up < 2; ++warm_up) cycle();
    measure(true);
    for (auto* const values : {&gated, &plain, &per_gate, &resuming}) values->clear();
    bool ours_first = true;
    for (auto _ : state) {
        measure(ours_first);
        ours_first = !ours_first;
        state.SetIterationTime(gated.back() / 1e6);
    }
    auto& counters = state.counters;
    counters["gates"] = static_cast<double>(count);
    counters["plain_us"] = median(plain);
    counters["gated_us"] = median(gated);
    counters["per_gate_us"] = median(per_gate);
    for (auto* const values : {&gated, &plain, &per_gate}) values->clear();
    for (int i = 0; i < 1000; ++i) cycle();
    for (int i = 0; i < state.max_iterations; ++i) measure(i % 2 == 0);
    counters["per_gate_us_after_1000_resumes"] = median(per_gate);
    counters["gated_us_after_1000_resumes"] = median(gated);
    counters["first_resumes_us"] = median({resuming.begin(), resuming.begin() + 100});
    counters["last_resumes_us"] = median({resuming.end() - 100, resuming.end()});
} catch (const std::exception& error) {
    state.SkipWithError(error.what());
}

template <Driver D>
void register_all(const D& driver) {
    fixed(benchmark::RegisterBenchmark("arrival/gates", [driver](benchmark::State& s) { gates(s, driver); }),
          on_host<D> ? 3 : 21);
    for (const std::size_t full : {8_GiB, 32_GiB}) {
        const std::size_t bytes = sized<D>(full);
        if (4 * bytes > memory_of(driver).free_bytes) continue;
        const std::string size = format_bytes(bytes);
        fixed(benchmark::RegisterBenchmark(("arrival/streamed_resume/" + size).c_str(),
                                           [driver, bytes](benchmark::State& s) { streamed_resume(s, driver, bytes); }),
              on_host<D> ? 3 : 11);
        fixed(benchmark::RegisterBenchmark(("arrival/saved_ahead/" + size).c_str(),
                                           [driver, bytes](benchmark::State& s) { saved_ahead(s, driver, bytes); }),
              on_host<D> ? 3 : 11);
    }
}

} // namespace

int main(int argc, char** argv) {
    return bench::run(argc, argv, [](const auto& driver) { register_all(driver); });
}
