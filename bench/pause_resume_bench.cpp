// The cost of a pause and a resume, compared with the driver calls that they need at least.
//
// The floor is the driver itself on the same bytes: create, map, one set access over all; one unmap over all, release;
// with handles of the best size found, and without waiting for the device. memsaver and the floor alternate on the same
// pages, and alternate in going first.
#include "floor.hpp"

#include <memsaver/testing/testing.hpp>

#include <map>
#include <vector>

namespace {

using namespace bench;

struct Shape {
    std::string name;
    std::size_t tensors;
    std::size_t bytes_each;
};

struct Times {
    std::vector<double> resume;
    std::vector<double> pause;
    std::vector<double> both;

    template <class Resume, class Pause>
    void cycle(Resume&& do_resume, Pause&& do_pause) {
        resume.push_back(milliseconds(do_resume));
        pause.push_back(milliseconds(do_pause));
        both.push_back(resume.back() + pause.back());
    }
};

/// Returns the handle size with which the driver is fastest for `bytes` bytes; measured once for each.
template <Driver D>
std::size_t best_split(const D& driver, std::size_t bytes) {
    static std::map<std::size_t, std::size_t> known;
    if (const auto it = known.find(bytes); it != known.end()) return it->second;
    std::vector<std::size_t> splits;
    for (const std::size_t split : {256_MiB, 512_MiB, 1_GiB, 2_GiB, 4_GiB, 8_GiB}) {
        if (splits.empty() || splits.back() < bytes) splits.push_back(split);
    }
    std::vector<Times> times(splits.size());
    for (std::size_t round = 0; round < 6; ++round) {
        for (std::size_t i = 0; i < splits.size(); ++i) {
            const std::size_t turn = (i + round) % splits.size(); // rotates which one goes first
            Floor<D> floor{driver, bytes, splits[turn]};
            Times warm_up;
            (round == 0 ? warm_up : times[turn]).cycle([&] { floor.resume(); }, [&] { floor.pause(); });
        }
    }
    std::size_t best = 0;
    for (std::size_t i = 1; i < splits.size(); ++i) {
        if (median(times[i].both) < median(times[best].both)) best = i;
    }
    return known[bytes] = splits[best];
}

template <Driver D>
std::vector<void*> allocate_all(const Arena& arena, const Shape& shape) {
    std::vector<void*> tensors;
    tensors.reserve(shape.tensors);
    for (std::size_t i = 0; i < shape.tensors; ++i) tensors.push_back(arena.allocate(shape.bytes_each));
    return tensors;
}

/// Counts, without timing, the handles that a resume creates.
template <Driver D>
std::size_t count_handles(const D& driver, const Shape& shape) {
    const FaultyDriver<D> counted{driver};
    MemorySaver<FaultyDriver<D>> saver{counted};
    allocate_all<D>(saver.arena("tensors"), shape);
    saver.pause("tensors");
    const std::uint64_t before = counted.calls(Call::create);
    saver.resume("tensors");
    const std::uint64_t handles = counted.calls(Call::create) - before;
    saver.close();
    return handles;
}

template <Driver D>
void pause_resume(benchmark::State& state, const D& driver, const Shape& shape) try {
    use_up_fresh_pages(driver);
    const std::size_t bytes = shape.tensors * shape.bytes_each;
    Floor<D> floor{driver, bytes, best_split(driver, bytes)};
    state.counters["handles"] = static_cast<double>(count_handles(driver, shape));

    MemorySaver<D> saver{driver};
    allocate_all<D>(saver.arena("tensors"), shape);
    const double first_pause = milliseconds([&] { saver.pause("tensors"); }); // of extents as they grew

    Times ours;
    Times theirs;
    const auto cycle_ours = [&](Times& times) {
        times.cycle([&] { saver.resume("tensors"); }, [&] { saver.pause("tensors"); });
    };
    const auto cycle_floor = [&](Times& times) { times.cycle([&] { floor.resume(); }, [&] { floor.pause(); }); };
    for (Times warm_up; warm_up.both.size() < 6;) {
        cycle_ours(warm_up);
        cycle_floor(warm_up);
    }

    bool ours_first = true;
    for (auto _ : state) {
        if (ours_first) cycle_ours(ours);
        cycle_floor(theirs);
        if (!ours_first) cycle_ours(ours);
        ours_first = !ours_first;
        state.SetIterationTime(ours.both.back() / 1000);
    }

    std::vector<double> ratios;
    for (std::size_t i = 0; i < ours.both.size(); ++i) ratios.push_back(ours.both[i] / theirs.both[i]);
    auto& counters = state.counters;
    counters["bytes"] = static_cast<double>(bytes);
    counters["tensors"] = static_cast<double>(shape.tensors);
    counters["ours_first_pause_ms"] = first_pause;
    counters["ours_pause_ms"] = median(ours.pause);
    counters["ours_resume_ms"] = median(ours.resume);
    counters["floor_pause_ms"] = median(theirs.pause);
    counters["floor_resume_ms"] = median(theirs.resume);
    counters["floor_handles"] = static_cast<double>(floor.handles());
    counters["ratio"] = median(ours.both) / median(theirs.both);
    counters["ratio_paired"] = median(ratios);
} catch (const std::exception& error) {
    state.SkipWithError(error.what());
}

template <Driver D>
void register_all(const D& driver) {
    std::vector<Shape> shapes;
    for (const std::size_t bytes : {1_GiB, 8_GiB, 64_GiB}) {
        for (const auto tensors : {std::size_t{1}, std::size_t{256}, std::size_t{4096}}) {
            shapes.push_back({format_bytes(bytes) + "/" + std::to_string(tensors), tensors, bytes / tensors});
        }
    }
    const std::size_t many = on_host<D> ? 10'000 : 100'000;
    shapes.push_back({"64 KiB each/4096", 4096, 64_KiB});
    shapes.push_back({"4 KiB each/" + std::to_string(many), many, 4_KiB});
    for (const Shape& shape : shapes) {
        if (shape.tensors * shape.bytes_each > memory_of(driver).free_bytes) continue;
        fixed(benchmark::RegisterBenchmark(("pause_resume/" + shape.name).c_str(),
                                           [driver, shape](benchmark::State& s) { pause_resume(s, driver, shape); }),
              on_host<D> ? 3 : 21);
    }
}

} // namespace

int main(int argc, char** argv) {
    return bench::run(argc, argv, [](const auto& driver) { register_all(driver); });
}
