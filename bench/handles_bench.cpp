// The best handle size for a large block. Runs the driver's own calls with handles of several sizes in turn, with and
// without pauses between the calls, because the driver clears released pages in the background, and `create` waits for
// pages that are not yet cleared. Decision 3 draws the conclusion.
#include "bench.hpp"
#include "floor.hpp"

#include <algorithm>
#include <chrono>
#include <memory>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

namespace {

using namespace bench;

/// One handle size and its measured turns.
template <Driver D>
struct Turns {
    std::unique_ptr<Floor<D>> pages;
    std::size_t split = 0;
    std::vector<double> resumes{};
    std::vector<double> pauses{};
    std::vector<double> cycles{};
};

double mean(const std::vector<double>& values) {
    return std::accumulate(values.begin(), values.end(), 0.0) /
           static_cast<double>(std::max<std::size_t>(values.size(), 1));
}

/// Runs twice in a row, so that the second run finds the state that the same size leaves; only the second one counts.
template <Driver D>
void take_turn(const D& driver, Turns<D>& turns, std::chrono::milliseconds rest) {
    for (const bool counts : {false, true}) {
        check(driver.drain(), "drain the device");
        std::this_thread::sleep_for(rest);
        const double resume = milliseconds([&] { turns.pages->resume(); });
        check(driver.drain(), "drain the device");
        std::this_thread::sleep_for(rest);
        const double pause = milliseconds([&] { turns.pages->pause(); });
        if (!counts) continue;
        turns.resumes.push_back(resume);
        turns.pauses.push_back(pause);
        turns.cycles.push_back(resume + pause);
    }
}

template <Driver D>
void in_turn(benchmark::State& state, const D& driver, std::size_t bytes, std::chrono::milliseconds rest) try {
    std::vector<Turns<D>> all;
    for (const std::size_t split : {256_MiB, 1_GiB, 2_GiB, 4_GiB, 8_GiB, 64_GiB}) {
        if (split <= bytes) all.push_back({std::make_unique<Floor<D>>(driver, bytes, split), split});
    }
    std::mt19937 random{1}; // NOLINT(cert-msc51-cpp): the same order each time
    for (auto _ : state) {
        std::shuffle(all.begin(), all.end(), random);
        for (Turns<D>& turns : all) take_turn(driver, turns, rest);
        state.SetIterationTime(all.front().cycles.back() / 1000);
    }
    state.counters["bytes"] = static_cast<double>(bytes);
    state.counters["rest_ms"] = static_cast<double>(rest.count());
    for (const Turns<D>& turns : all) {
        const std::string of = std::to_string(turns.split >> 20) + "_mib_";
        state.counters[of + "resume_mean_ms"] = mean(turns.resumes);
        state.counters[of + "pause_mean_ms"] = mean(turns.pauses);
        state.counters[of + "both_mean_ms"] = mean(turns.cycles);
        state.counters[of + "both_median_ms"] = median(turns.cycles);
    }
} catch (const std::exception& error) {
    state.SkipWithError(error.what());
}

template <Driver D>
void register_all(const D& driver) {
    for (const std::size_t bytes : {8_GiB, 64_GiB}) {
        if (bytes > memory_of(driver).free_bytes) continue;
        for (const auto rest :
             {std::chrono::milliseconds{0}, std::chrono::milliseconds{20}, std::chrono::milliseconds{200}}) {
            const std::string name = "handles/" + format_bytes(bytes) + "/rest " + std::to_string(rest.count()) + " ms";
            const int rounds = on_host<D> ? 1 : rest.count() > 100 ? 3 : bytes > 8_GiB ? 6 : 30;
            fixed(benchmark::RegisterBenchmark(name.c_str(),
                                               [=](benchmark::State& s) { in_turn(s, driver, bytes, rest); }),
                  rounds);
        }
    }
}

} // namespace

int main(int argc, char** argv) {
    return bench::run(argc, argv, [](const auto& driver) { register_all(driver); });
}
