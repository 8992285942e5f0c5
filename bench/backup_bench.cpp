// The cost of backups, compared with moving the same bytes without them. Each function below answers one question.
// memsaver and the baseline alternate, and alternate in going first. GB are 10^9 bytes.
//
// MEMSAVER_BENCH_DIR is the directory for files (default /var/tmp).
#include "backup_baselines.hpp"

#include <cstdlib>
#include <functional>

namespace {

using namespace bench;

/// Smaller sizes on a host machine.
template <Driver D>
constexpr std::size_t sized(std::size_t bytes) {
    return on_host<D> ? bytes / 256 : bytes;
}
double gbps(std::size_t bytes, double ms) { return ms > 0 ? static_cast<double>(bytes) / 1e6 / ms : 0; }

/// Blocks of one tag of one saver.
struct Shape {
    std::size_t tensors = 1;
    std::size_t bytes_each = 0;
    [[nodiscard]] std::size_t bytes() const { return tensors * bytes_each; }
};

/// A saver with one tag full of blocks.
template <Driver D>
struct Tag {
    Tag(const D& driver, AnyPolicy policy, const Shape& shape) : saver{driver} {
        const Arena arena = saver.arena("tag", std::move(policy));
        for (std::size_t i = 0; i < shape.tensors; ++i) {
            void* block = arena.allocate(shape.bytes_each);
            if (i == 0) first = block;
        }
    }
    double pause() {
        return milliseconds([&] { saver.pause("tag"); });
    }
    double resume() {
        return milliseconds([&] { saver.resume("tag"); });
    }

    MemorySaver<D> saver;
    void* first = nullptr;
};

/// The times of one side of a comparison.
struct Times {
    std::vector<double> out;
    std::vector<double> in;
};

/// The first pause without preparation: host memory is allocated, pinned and filled.
template <Driver D>
void first_pause(benchmark::State& state, const D& driver, std::size_t bytes, unsigned threads) {
    std::vector<double> out;
    for (auto _ : state) {
        Tag<D> ours{driver, HostBackup{.threads = threads}, {1, bytes}};
        warm_host_memory(driver, align_up(bytes + bytes / 2, 1_GiB));
        out.push_back(ours.pause());
        state.SetIterationTime(out.back() / 1000);
        ours.saver.close();
    }
    state.counters["bytes"] = static_cast<double>(bytes);
    state.counters["crew"] = threads;
    state.counters["out_ms"] = median(out);
    state.counters["out_gbps"] = gbps(bytes, median(out));
    state.counters["worst_gbps"] = gbps(bytes, quantile(out, 1));
}

#if MEMSAVER_BENCH_CUDART
void first_pause_elsewhere(benchmark::State& state, const CudaDriver& driver, std::size_t bytes) {
    Tag<CudaDriver> device{driver, Discard{}, {1, bytes}};
    for (auto _ : state) {
        const double took = allocate_and_copy(device.first, bytes);
        state.counters["bytes"] = static_cast<double>(bytes);
        state.counters["out_gbps"] = gbps(bytes, took);
        state.SetIterationTime(took / 1000);
    }
}
#endif

/// Host memory that already exists, because it was prepared (every sample has its own saver) or retained from the
/// previous pause. Compared with one pinned copy, and with a pause or resume that drops the bytes.
template <Driver D>
void ready_memory(benchmark::State& state, const D& driver, const Shape& shape, bool prepared) {
    use_up_fresh_pages(driver);
    Tag<D> copied{driver, Discard{}, {1, shape.bytes()}};
    PlainCopy<D> copy{driver, copied.first, shape.bytes()};
    std::optional<Tag<D>> ours;
    std::optional<Tag<D>> dropped;
    std::vector<double> prepare;
    const auto make = [&] {
        ours.reset();
        dropped.reset();
        ours.emplace(driver, HostBackup{}, shape);
        dropped.emplace(driver, Discard{}, shape);
        prepare.push_back(milliseconds([&] { ours->saver.prepare("tag"); }));
    };
    Times mine;
    Times baseline;
    Times link;
    const auto cycle_ours = [&](Times& times) {
        times.out.push_back(ours->pause());
        times.in.push_back(ours->resume());
    };
    const auto cycle_baseline = [&](Times& times) {
        link.out.push_back(milliseconds([&] { copy.out(); }));
        times.out.push_back(link.out.back() + dropped->pause());
        const double resumed = dropped->resume();
        link.in.push_back(milliseconds([&] { copy.in(); }));
        times.in.push_back(resumed + link.in.back());
    };
    make();
    for (Times warm_up; !prepared && warm_up.out.size() < 4;) {
        cycle_ours(warm_up);
        cycle_baseline(warm_up);
    }
    link = {};
    bool ours_first = true;
    for (auto _ : state) {
        if (prepared) make();
        if (ours_first) cycle_ours(mine);
        cycle_baseline(baseline);
        if (!ours_first) cycle_ours(mine);
        ours_first = !ours_first;
        state.SetIterationTime((mine.out.back() + mine.in.back()) / 1000);
    }
    auto& counters = state.counters;
    counters["bytes"] = static_cast<double>(shape.bytes());
    counters["tensors"] = static_cast<double>(shape.tensors);
    counters["out_gbps"] = gbps(shape.bytes(), median(mine.out));
    counters["in_gbps"] = gbps(shape.bytes(), median(mine.in));
    counters["baseline_out_gbps"] = gbps(shape.bytes(), median(baseline.out));
    counters["baseline_in_gbps"] = gbps(shape.bytes(), median(baseline.in));
    counters["link_out_gbps"] = gbps(shape.bytes(), median(link.out));
    counters["link_in_gbps"] = gbps(shape.bytes(), median(link.in));
    counters["ratio_out"] = median(baseline.out) / median(mine.out);
    counters["ratio_in"] = median(baseline.in) / median(mine.in);
    if (prepared) counters["prepare_ms"] = median(prepare);
}

/// Bytes that are saved once: later pauses copy nothing. Compared with a pause that drops them.
template <Driver D>
void saved_once(benchmark::State& state, const D& driver, const Shape& shape) {
    use_up_fresh_pages(driver);
    Tag<D> ours{driver, HostBackup{.refresh = Refresh::once}, shape};
    Tag<D> dropped{driver, Discard{}, shape};
    const double first = ours.pause();
    ours.resume();
    (void)(dropped.pause() + dropped.resume());
    Times mine;
    Times baseline;
    const auto cycle = [](Tag<D>& tag, Times& times) {
        times.out.push_back(tag.pause());
        times.in.push_back(tag.resume());
    };
    for (auto _ : state) {
        if (mine.out.size() % 2 == 0) {
            cycle(ours, mine);
            cycle(dropped, baseline);
        } else {
            cycle(dropped, baseline);
            cycle(ours, mine);
        }
        state.SetIterationTime(mine.out.back() / 1000);
    }
    state.counters["bytes"] = static_cast<double>(shape.bytes());
    state.counters["tensors"] = static_cast<double>(shape.tensors);
    state.counters["first_ms"] = first;
    state.counters["later_ms"] = median(mine.out);
    state.counters["discard_ms"] = median(baseline.out);
    state.counters["times_discard"] = median(mine.out) / median(baseline.out);
}

/// Pageable host memory behind a ring of at most 512 MiB of pinned memory.
template <Driver D>
void ring(benchmark::State& state, const D& driver, std::size_t bytes) {
    std::vector<double> cold;
    Times warm;
    for (auto _ : state) {
        Tag<D> ours{driver, HostBackup{.storage = Storage::pageable, .threads = 8, .ring_bytes = 512_MiB}, {1, bytes}};
        warm_host_memory(driver, align_up(bytes + bytes / 2, 1_GiB));
        cold.push_back(ours.pause());
        warm.in.push_back(ours.resume());
        warm.out.push_back(ours.pause());
        warm.in.push_back(ours.resume());
        state.SetIterationTime(cold.back() / 1000);
        ours.saver.close();
    }
    state.counters["bytes"] = static_cast<double>(bytes);
    state.counters["out_cold_gbps"] = gbps(bytes, median(cold));
    state.counters["out_warm_gbps"] = gbps(bytes, median(warm.out));
    state.counters["in_gbps"] = gbps(bytes, median(warm.in));
}

/// A new file each time, with preallocated space, compared with a file that the same threads only write and read.
template <Driver D>
void file(benchmark::State& state, const D& driver, std::size_t bytes) {
    const char* asked = std::getenv("MEMSAVER_BENCH_DIR");
    const std::string directory = asked != nullptr && *asked != '\0' ? asked : "/var/tmp";
    const FileBackup policy{.directory = directory};
    const std::size_t part = std::min<std::size_t>(32_MiB, policy.ring_bytes / policy.threads / 2);
    RawFile<D> raw{driver, directory, bytes, policy.threads, part};
    Times mine;
    Times baseline;
    const auto cycle_ours = [&] {
        Tag<D> ours{driver, policy, {1, bytes}};
        mine.out.push_back(ours.pause());
        mine.in.push_back(ours.resume());
        ours.saver.close();
    };
    const auto cycle_raw = [&] {
        baseline.out.push_back(milliseconds([&] { raw.write(); }));
        baseline.in.push_back(milliseconds([&] { raw.read(); }));
        state.counters["direct"] = raw.direct() ? 1 : 0;
        raw.close();
    };
    bool ours_first = false;
    for (auto _ : state) {
        if (ours_first) cycle_ours();
        cycle_raw();
        if (!ours_first) cycle_ours();
        ours_first = !ours_first;
        state.SetIterationTime((mine.out.back() + mine.in.back()) / 1000);
    }
    auto& counters = state.counters;
    counters["bytes"] = static_cast<double>(bytes);
    counters["out_gbps"] = gbps(bytes, median(mine.out));
    counters["in_gbps"] = gbps(bytes, median(mine.in));
    counters["raw_out_gbps"] = gbps(bytes, median(baseline.out));
    counters["raw_in_gbps"] = gbps(bytes, median(baseline.in));
    counters["ratio_out"] = median(baseline.out) / median(mine.out);
    counters["ratio_in"] = median(baseline.in) / median(mine.in);
}

/// Host memory that is freed after each resume: whether all of it is freed, and what freeing costs.
template <Driver D>
void given_back(benchmark::State& state, const D& driver, std::size_t bytes) {
    use_up_fresh_pages(driver);
    Tag<D> retained{driver, HostBackup{}, {1, bytes}};
    Tag<D> ours{driver, HostBackup{.retain = false}, {1, bytes}};
    (void)(retained.pause() + retained.resume());
    std::vector<double> kept;
    std::vector<double> gave;
    double before = 0;
    double paused = 0;
    double grown = -1e18;
    for (auto _ : state) {
        before = resident_bytes();
        (void)ours.pause();
        paused = resident_bytes();
        gave.push_back(ours.resume());
        grown = std::max(grown, resident_bytes() - before);
        (void)retained.pause();
        kept.push_back(retained.resume());
        state.SetIterationTime(gave.back() / 1000);
    }
    const double mib = 1 << 20;
    auto& counters = state.counters;
    counters["bytes"] = static_cast<double>(bytes);
    counters["resident_before_mib"] = before / mib;
    counters["resident_paused_mib"] = paused / mib;
    counters["resident_grown_mib"] = grown / mib; // the worst of all cycles
    counters["resume_ms"] = median(gave);
    counters["resume_retained_ms"] = median(kept);
    counters["give_back_ms"] = median(gave) - median(kept);
}

template <Driver D>
void register_all(const D& driver) {
    const std::size_t most = sized<D>(64_GiB);
    const auto add = [&](const std::string& name, int samples, std::function<void(benchmark::State&)> act) {
        fixed(benchmark::RegisterBenchmark(("backup/" + name).c_str(),
                                           [driver, act](benchmark::State& state) {
                                               try {
                                                   act(state);
                                               } catch (const std::exception& error) {
                                                   state.SkipWithError(error.what());
                                               }
                                           }),
              on_host<D> ? std::min(samples, 3) : samples);
    };
    const auto first = [&](std::size_t bytes, unsigned threads, int samples) {
        add("first pause of " + format_bytes(bytes) + ", " + std::to_string(threads) + " threads", samples,
            [driver, bytes, threads](benchmark::State& state) { first_pause(state, driver, bytes, threads); });
    };
    first(sized<D>(16_GiB), 8, 7);
    first(sized<D>(16_GiB), 16, 7);
    first(most, 16, 1);
#if MEMSAVER_BENCH_CUDART
    if constexpr (!on_host<D>) {
        add("cudaMallocHost and a copy of " + format_bytes(16_GiB), 1,
            [driver](benchmark::State& state) { first_pause_elsewhere(state, driver, 16_GiB); });
    }
#endif
    const std::size_t bytes = sized<D>(8_GiB);
    const std::size_t many = bytes / 2_MiB;
    for (const bool prepared : {true, false}) {
        for (const Shape shape : {Shape{1, bytes}, Shape{many, 2_MiB}}) {
            add((prepared ? "prepared/" : "retained/") + std::to_string(shape.tensors), prepared ? 5 : 11,
                [=](benchmark::State& state) { ready_memory(state, driver, shape, prepared); });
        }
    }
    for (const Shape shape : {Shape{1, bytes}, Shape{many, 2_MiB}}) {
        add("once/" + std::to_string(shape.tensors), 11,
            [=](benchmark::State& state) { saved_once(state, driver, shape); });
    }
    add("ring", 5, [=](benchmark::State& state) { ring(state, driver, bytes); });
    add("file", 5, [=](benchmark::State& state) { file(state, driver, bytes / 2); });
    add("given back", 5, [=](benchmark::State& state) { given_back(state, driver, bytes); });
}

} // namespace

int main(int argc, char** argv) {
    return bench::run(argc, argv, [](const auto& driver) { register_all(driver); });
}
