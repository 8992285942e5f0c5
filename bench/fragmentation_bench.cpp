// Fragmentation over a thousand cycles, and the memory overhead of many small tensors.
#include "bench.hpp"

#include <cmath>
#include <random>
#include <vector>

namespace {

using namespace bench;

/// Keeps a given number of bytes in blocks of random sizes, and frees them in random order.
class Program {
public:
    Program(Arena arena, std::size_t wanted, std::size_t largest)
        : arena_{std::move(arena)}, wanted_{wanted}, log_largest_{std::log2(static_cast<double>(largest))} {}

    /// Frees a share of the live blocks, then allocates until `wanted` bytes are live.
    void churn(double share) {
        for (auto n = static_cast<std::size_t>(share * static_cast<double>(blocks_.size())); n != 0; --n) free_one();
        while (live_ < wanted_) {
            const auto bytes =
                static_cast<std::size_t>(std::exp2(std::uniform_real_distribution{8.0, log_largest_}(random_)));
            blocks_.push_back({arena_.allocate(bytes), bytes});
            live_ += bytes;
        }
    }
    void free_all() {
        while (!blocks_.empty()) free_one();
    }
    [[nodiscard]] std::size_t blocks() const { return blocks_.size(); }

private:
    struct Block {
        void* address;
        std::size_t bytes;
    };

    void free_one() {
        std::swap(blocks_[random_() % blocks_.size()], blocks_.back());
        arena_.deallocate(blocks_.back().address);
        live_ -= blocks_.back().bytes;
        blocks_.pop_back();
    }

    Arena arena_;
    std::size_t wanted_;
    double log_largest_;
    std::size_t live_ = 0;
    std::vector<Block> blocks_;
    std::mt19937_64 random_{20260701};
};

double mapped_over_used(const Arena& arena) {
    const ArenaUsage usage = arena.usage();
    return static_cast<double>(usage.mapped_bytes) / static_cast<double>(usage.used_bytes);
}

template <Driver D>
void cycles(benchmark::State& state, const D& driver) try {
    const int count = on_host<D> ? 200 : 1000;
    const double device_before = used_bytes(driver);
    MemorySaver<D> saver{driver};
    const Arena arena = saver.arena("random");
    Program program{arena, 4_GiB, 64_MiB};
    std::vector<double> ratios;
    double device_first = 0;
    double device_last = 0;
    double resident_first = 0;
    double resident_last = 0;
    for (auto _ : state) {
        const double elapsed = milliseconds([&] {
            for (int i = 0; i < count; ++i) {
                program.churn(0.2);
                saver.pause();
                device_last = used_bytes(driver);
                resident_last = resident_bytes();
                if (i == count / 20) { // the tables of program and driver have reached their size
                    device_first = device_last;
                    resident_first = resident_last;
                }
                program.churn(0.1); // while paused
                saver.resume();
                ratios.push_back(mapped_over_used(arena));
            }
        });
        state.SetIterationTime(elapsed / 1000);
    }
    auto& counters = state.counters;
    counters["cycles"] = count;
    counters["blocks"] = static_cast<double>(program.blocks());
    counters["device_paused_first_mib"] = device_first / 0x1p20;
    counters["device_paused_last_mib"] = device_last / 0x1p20;
    counters["resident_first_mib"] = resident_first / 0x1p20;
    counters["resident_last_mib"] = resident_last / 0x1p20;
    counters["mapped_over_used_worst"] = quantile(ratios, 1);
    counters["mapped_over_used_median"] = median(ratios);
    counters["mapped_over_used_last"] = ratios.back();
    saver.trim();
    counters["mapped_over_used_trimmed"] = mapped_over_used(arena);
    program.free_all();
    saver.trim();
    counters["device_left_mib"] = (used_bytes(driver) - device_before) / 0x1p20;
} catch (const std::exception& error) {
    state.SkipWithError(error.what());
}

template <Driver D>
void small_tensors(benchmark::State& state, const D& driver) try {
    constexpr std::size_t tensors = 4096;
    constexpr std::size_t bytes = 64_KiB;
    for (auto _ : state) {
        MemorySaver<D> saver{driver};
        const Arena arena = saver.arena("small");
        const double before = used_bytes(driver);
        state.SetIterationTime(milliseconds([&] {
                                   for (std::size_t i = 0; i < tensors; ++i) (void)arena.allocate(bytes);
                               }) /
                               1000);
        const double taken = used_bytes(driver) - before;
        state.counters["asked_mib"] = static_cast<double>(tensors * bytes) / 0x1p20;
        state.counters["taken_mib"] = taken / 0x1p20;
        saver.pause();
        state.counters["taken_paused_mib"] = (used_bytes(driver) - before) / 0x1p20;
        saver.resume();
        state.counters["taken_resumed_mib"] = (used_bytes(driver) - before) / 0x1p20;
    }
} catch (const std::exception& error) {
    state.SkipWithError(error.what());
}

} // namespace

int main(int argc, char** argv) {
    return bench::run(argc, argv, [](const auto& driver) {
        bench::fixed(benchmark::RegisterBenchmark("fragmentation/random cycles",
                                                  [driver](benchmark::State& state) { cycles(state, driver); }),
                     1);
        bench::fixed(benchmark::RegisterBenchmark("fragmentation/4096 x 64 KiB",
                                                  [driver](benchmark::State& state) { small_tensors(state, driver); }),
                     1);
    });
}
