// What does a quarantine add to a pause and to a resume, by the size of its shared blocks?
//
// Two savers with a tag of the same bytes take turns, one of them with a quarantine, and take turns in going first;
// each rests paused while the other is resumed, so that both meet the same pages.
#include "bench.hpp"

#include <vector>

namespace {

using namespace bench;

template <Driver D>
void quarantine(benchmark::State& state, const D& driver, std::size_t bytes, std::size_t block_bytes) try {
    use_up_fresh_pages(driver);
    MemorySaver<D> bare{driver};
    MemorySaver<D> covered{driver, {.quarantine = Quarantine{.block_bytes = block_bytes}}};
    const auto fill = [&](MemorySaver<D>& saver) {
        (void)saver.arena("tensors").allocate(bytes);
        saver.pause("tensors");
    };
    fill(bare);
    const double before = used_bytes(driver);
    fill(covered);
    const double shared = used_bytes(driver) - before;

    struct Times {
        std::vector<double> resume;
        std::vector<double> pause;
    } without, with;
    const auto cycle = [](MemorySaver<D>& saver, Times& times) {
        times.resume.push_back(milliseconds([&] { saver.resume("tensors"); }));
        times.pause.push_back(milliseconds([&] { saver.pause("tensors"); }));
    };
    for (Times warm_up; warm_up.pause.size() < 6;) {
        cycle(bare, warm_up);
        cycle(covered, warm_up);
    }
    bool bare_first = true;
    for (auto _ : state) {
        if (bare_first) cycle(bare, without);
        cycle(covered, with);
        if (!bare_first) cycle(bare, without);
        bare_first = !bare_first;
        state.SetIterationTime((with.resume.back() + with.pause.back()) / 1000);
    }
    auto& counters = state.counters;
    counters["bytes"] = static_cast<double>(bytes);
    counters["block_bytes"] = static_cast<double>(block_bytes);
    counters["shared_bytes"] = shared;
    counters["pause_ms"] = median(with.pause);
    counters["resume_ms"] = median(with.resume);
    counters["bare_pause_ms"] = median(without.pause);
    counters["bare_resume_ms"] = median(without.resume);
} catch (const std::exception& error) {
    state.SkipWithError(error.what());
}

template <Driver D>
void register_all(const D& driver) {
    const std::size_t bytes = 8_GiB;
    if (2 * bytes > memory_of(driver).free_bytes) return;
    for (const std::size_t block : {2_MiB, 16_MiB, 64_MiB, 256_MiB}) {
        const std::string name = "quarantine/" + format_bytes(bytes) + "/" + format_bytes(block);
        fixed(benchmark::RegisterBenchmark(name.c_str(),
                                           [=](benchmark::State& state) { quarantine(state, driver, bytes, block); }),
              on_host<D> ? 2 : 21);
    }
}

} // namespace

int main(int argc, char** argv) {
    return bench::run(argc, argv, [](const auto& driver) { register_all(driver); });
}
