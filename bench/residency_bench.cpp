// The cost of a use whose tags are resident, of allocating memory that must be reclaimed, and of eight models in memory
// for three.
//
// The floor of a reclaim is the driver's unmap and release of the same number of bytes in handles of the same size. The
// floor of the models is one plain pinned copy of the bytes that had to be restored: evictions of tags saved before
// (Refresh::once) copy nothing. Compressed weights cross the link in two thirds of their bytes, so they may be restored
// faster than the floor. A separate run compares every byte at every use.
#include "backup_baselines.hpp"
#include "bf16_weights.hpp"
#include "floor.hpp"
#include "memsaver/backup/compressed.hpp"

#include <array>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

namespace {

using namespace bench;

constexpr unsigned models = 8;
constexpr unsigned seed = 17;

/// Begins and ends uses of one tag, or of two, without contention.
template <Driver D>
void use_hit(benchmark::State& state, const D& driver, std::size_t tags) try {
    MemorySaver<D> saver{driver};
    std::vector<Buffer<char>> blocks;
    std::vector<std::string> names;
    for (std::size_t i = 0; i < tags; ++i) {
        names.push_back("model." + std::to_string(i));
        blocks.emplace_back(saver.arena(names.back()), 1_MiB);
    }
    const Tags wanted{names};
    constexpr int batch = 100;
    std::vector<double> nanoseconds;
    for (auto _ : state) {
        const double took = milliseconds([&] {
            for (int i = 0; i < batch; ++i) {
                const Use use = saver.use(wanted);
            }
        });
        state.SetIterationTime(took / 1000);
        nanoseconds.push_back(took * 1e6 / batch);
    }
    state.counters["use_ns"] = median(nanoseconds);
    state.counters["use_ns_p99"] = quantile(nanoseconds, 0.99);
} catch (const std::exception& error) {
    state.SkipWithError(error.what());
}

/// A tag that may be dropped, whose memory another allocation needs at once.
template <Driver D>
void reclaim(benchmark::State& state, const D& driver, std::size_t bytes) try {
    use_up_fresh_pages(driver);
    Floor<D> floor{driver, bytes, std::min(bytes, 1_GiB)}; // same handle size as the library
    MemorySaver<D> saver{driver};
    const Buffer<char> cache{saver.arena("cache", Discard{}, ArenaOptions{.evictable = true}), bytes};
    std::vector<double> ours;
    std::vector<double> calls;
    std::vector<double> ratios;
    const auto round = [&] {
        ours.push_back(milliseconds([&] {
            if (saver.reclaim(bytes).bytes() < bytes) throw std::runtime_error{"reclaim released too little"};
        }));
        saver.resume("cache");
        floor.resume();
        calls.push_back(milliseconds([&] { floor.pause(); }));
        ratios.push_back(ours.back() / calls.back());
    };
    round();
    for (std::vector<double>* times : {&ours, &calls, &ratios}) times->clear();
    for (auto _ : state) {
        round();
        state.SetIterationTime(ours.back() / 1000);
    }
    state.counters["bytes"] = static_cast<double>(bytes);
    state.counters["reclaim_ms"] = median(ours);
    state.counters["driver_ms"] = median(calls);
    state.counters["over_driver"] = median(ratios);
} catch (const std::exception& error) {
    state.SkipWithError(error.what());
}

/// Returns MEMSAVER_BENCH_REQUESTS, by default 2,000.
std::size_t requests_wanted() {
    const char* const told = std::getenv("MEMSAVER_BENCH_REQUESTS");
    const long count = told == nullptr ? 0 : std::strtol(told, nullptr, 10);
    return count > 0 ? static_cast<std::size_t>(count) : 2000;
}

/// Returns a sequence of requests with model frequencies proportional to 1 / (k + 1)^0.9.
std::vector<unsigned> requests(std::size_t count) {
    std::array<double, models> weights{};
    for (unsigned k = 0; k < models; ++k) weights[k] = std::pow(k + 1, -0.9);
    std::discrete_distribution<unsigned> zipf(weights.begin(), weights.end());
    std::mt19937 random{seed};
    std::vector<unsigned> row(count);
    for (unsigned& model : row) model = zipf(random);
    return row;
}

struct Models {
    std::size_t each;  ///< bytes
    std::size_t count; ///< requests
    bool compare;      ///< compare every byte at every use
    bool coded;
};

template <Driver D>
void eight_models(benchmark::State& state, const D& driver, const Models& wanted) try {
    const std::size_t each = wanted.each;
    const std::size_t count = wanted.count;
    const bool compare = wanted.compare;
    const bool coded = wanted.coded;
    const HostBackup once{.refresh = Refresh::once};
    const AnyPolicy policy = coded ? AnyPolicy{Compressed<HostBackup>{once}} : AnyPolicy{once};
    const std::size_t free = memory_of(driver).free_bytes;
    const std::size_t room = 3 * each + each / 2;
    std::optional<MemorySaver<D>> saver;
    saver.emplace(driver, SaverOptions{.margin = free - room, .on_no_room = [&](const NoRoom& need) {
                                           return saver->reclaim(need.bytes).bytes() != 0;
                                       }});
    std::vector<Buffer<unsigned char>> blocks;
    const std::vector<unsigned char> weights = coded ? bf16_weights() : std::vector<unsigned char>{};
    const auto pattern = [&](std::byte* to, std::size_t bytes, unsigned model) {
        const std::size_t period = weights.size() - std::min(weights.size(), models * 4_KiB);
        for (std::size_t at = 0; coded && at < bytes; at += period)
            std::memcpy(to + at, weights.data() + model * 4_KiB, std::min(period, bytes - at));
        for (std::size_t at = 0; !coded && at + 8 <= bytes; at += 8) {
            const std::uint64_t word = (at + model + 1) * 0x9E3779B97F4A7C15U;
            std::memcpy(to + at, &word, 8);
        }
    };
    double copy_ms = 0;
    {
        PinnedMemory host{driver, each};
        OwnedStream stream;
        check(stream.open(driver), "open a stream");
        for (unsigned model = 0; model < models; ++model) {
            blocks.emplace_back(saver->arena("model." + std::to_string(model), policy, ArenaOptions{.evictable = true}),
                                each);
            if (compare || (coded && model == 0)) pattern(host.data(), each, model);
            const auto to = reinterpret_cast<Address>(blocks.back().data());
            check(driver.copy_to_device(to, host.data(), each, stream.get()), "copy in");
            OwnedEvent event;
            check(event.open(driver, stream.get()), "open an event");
            check(driver.record(event.get(), stream.get()), "record");
            check(driver.wait(event.get()), "wait for a copy");
        }
    }
    for (unsigned model = 0; model < models; ++model) { // saves every model once before the timing starts
        const std::string name = "model." + std::to_string(model);
        { const Use use = saver->use(name); }
        saver->pause(name, {.order = already_idle});
    }
    { // measures the link
        const std::string name = "model.0";
        const Use use = saver->use(name);
        std::vector<double> times;
        PlainCopy<D> copy{driver, blocks[0].data(), each};
        copy.out(); // the same bytes are copied back
        for (int i = 0; i < 5; ++i) times.push_back(milliseconds([&] { copy.in(); }));
        copy_ms = median(times);
    }
    const std::vector<unsigned> row = requests(count);
    for (auto _ : state) {
        const ResidencyUsage before = saver->usage().residency();
        std::atomic<std::size_t> next{0};
        std::atomic<std::size_t> wrong{0};
        const double took = milliseconds([&] {
            std::vector<std::thread> threads;
            for (int i = 0; i < 4; ++i) {
                threads.emplace_back([&] {
                    std::optional<PinnedMemory> got;
                    std::vector<std::byte> expected(compare ? each : 0);
                    OwnedStream stream;
                    if (compare) {
                        got.emplace(driver, each);
                        check(stream.open(driver), "open a stream");
                    }
                    for (std::size_t n = next++; n < row.size(); n = next++) {
                        const Use use = saver->use("model." + std::to_string(row[n]));
                        if (!compare) continue;
                        const auto from = reinterpret_cast<Address>(blocks[row[n]].data());
                        check(driver.copy_to_host(got->data(), from, each, stream.get()), "copy out");
                        OwnedEvent event;
                        check(event.open(driver, stream.get()), "open an event");
                        check(driver.record(event.get(), stream.get()), "record");
                        check(driver.wait(event.get()), "wait for a copy");
                        pattern(expected.data(), each, row[n]);
                        wrong += std::memcmp(expected.data(), got->data(), each) == 0 ? 0 : 1;
                    }
                });
            }
            for (std::thread& thread : threads) thread.join();
        });
        state.SetIterationTime(took / 1000);
        const ResidencyUsage after = saver->usage().residency();
        const auto in = static_cast<double>(after.restored_bytes - before.restored_bytes);
        auto& counters = state.counters;
        counters["requests"] = static_cast<double>(count);
        counters["seed"] = seed;
        counters["coded"] = coded ? 1 : 0;
        counters["bytes_each"] = static_cast<double>(each);
        counters["hits"] = static_cast<double>(after.hits - before.hits);
        counters["misses"] = static_cast<double>(after.misses - before.misses);
        counters["evictions"] = static_cast<double>(after.evictions - before.evictions);
        counters["ours_ms"] = took;
        counters["floor_ms"] = in / static_cast<double>(each) * copy_ms;
        if (!compare) counters["ratio"] = took / (in / static_cast<double>(each) * copy_ms);
        if (wrong != 0) throw std::runtime_error{std::to_string(wrong) + " uses found wrong bytes"};
    }
} catch (const std::exception& error) {
    state.SkipWithError(error.what());
}

template <Driver D>
void register_all(const D& driver) {
    for (const std::size_t tags : {std::size_t{1}, std::size_t{2}}) {
        fixed(benchmark::RegisterBenchmark(("use_hit/" + std::to_string(tags)).c_str(),
                                           [driver, tags](benchmark::State& s) { use_hit(s, driver, tags); }),
              1001);
    }
    constexpr std::size_t cache = on_host<D> ? 640_MiB : 10_GiB;
    fixed(benchmark::RegisterBenchmark(("reclaim/" + format_bytes(cache)).c_str(),
                                       [driver](benchmark::State& s) { reclaim(s, driver, cache); }),
          21);
    const std::size_t large = on_host<D> ? 64_MiB : 12_GiB;
    const std::size_t small = on_host<D> ? 4_MiB : 256_MiB;
    const std::size_t requests = on_host<D> ? 200 : requests_wanted();
    for (const Models& size : {Models{large, requests, false, false}, Models{large, requests, false, true},
                               Models{small, 200, true, false}, Models{small, 200, true, true}}) {
        if (3 * size.each + size.each / 2 > memory_of(driver).free_bytes) continue;
        const std::string name = "eight_models/" + format_bytes(size.each) + " each" + (size.coded ? ", coded" : "") +
                                 (size.compare ? ", every byte compared" : "");
        fixed(benchmark::RegisterBenchmark(name.c_str(),
                                           [driver, size](benchmark::State& s) { eight_models(s, driver, size); }),
              1);
    }
}

} // namespace

int main(int argc, char** argv) {
    return bench::run(argc, argv, [](const auto& driver) { register_all(driver); });
}
