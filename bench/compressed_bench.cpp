// The cost and the savings of a compressed backup of bf16 weights (normal, sigma 0.02), compared with the same tag with
// a plain HostBackup and with one plain pinned copy, in the same run. All run on a quiet device. First pauses, which
// allocate host memory and vary most, are the median of three of each kind.
#include "backup_baselines.hpp"
#include "bf16_weights.hpp"
#include "memsaver/backup/compressed.hpp"

#include <chrono>
#include <cstring>
#include <thread>

namespace {

using namespace bench;

struct Times {
    std::vector<double> first_pause;
    std::vector<double> pause;
    std::vector<double> resume;
    double kept = 0;
};

/// Waits until the device has cleared previously released pages, which it does with its copy engines.
void quiet() { std::this_thread::sleep_for(std::chrono::milliseconds{300}); }

/// A tag of weights that has never been paused.
template <Driver D>
class Weights {
public:
    Weights(const D& driver, const AnyPolicy& policy, std::size_t bytes, const std::vector<unsigned char>& content)
        : saver_{driver}, arena_{saver_.arena("weights", policy)}, block_{arena_.allocate(bytes)} {
        const PinnedMemory from{driver, content.size()};
        std::memcpy(from.data(), content.data(), content.size());
        for (std::size_t at = 0; at < bytes; at += content.size()) {
            const std::size_t part = std::min(content.size(), bytes - at);
            check(driver.copy_to_device(reinterpret_cast<Address>(block_) + at, from.data(), part, StreamRef{}),
                  "fill");
        }
        check(driver.drain(), "wait for the device");
    }
    [[nodiscard]] MemorySaver<D>& saver() noexcept { return saver_; }
    [[nodiscard]] void* block() const noexcept { return block_; }
    [[nodiscard]] double pause() {
        return milliseconds([&] { saver_.pause("weights"); });
    }

private:
    MemorySaver<D> saver_;
    Arena arena_;
    void* block_;
};

template <Driver D>
double first_pause(const D& driver, const AnyPolicy& policy, std::size_t bytes,
                   const std::vector<unsigned char>& content) {
    Weights<D> weights{driver, policy, bytes, content};
    quiet();
    return weights.pause();
}

/// Measures a first pause, then prepared ones.
template <Driver D>
Times measure(benchmark::State& state, const D& driver, const AnyPolicy& policy, std::size_t bytes,
              const std::vector<unsigned char>& content, std::vector<double>* out, std::vector<double>* in) {
    Times times;
    Weights<D> weights{driver, policy, bytes, content};
    MemorySaver<D>& saver = weights.saver();
    if (out != nullptr) {
        PlainCopy copy{driver, weights.block(), bytes};
        for (int i = 0; i < 6; ++i) {
            const double one_way = milliseconds([&] { copy.out(); });
            const double other_way = milliseconds([&] { copy.in(); });
            if (i == 0) continue; // discards the first sample as warm-up
            out->push_back(one_way);
            in->push_back(other_way);
        }
    }
    quiet();
    times.first_pause.push_back(weights.pause());
    times.kept = static_cast<double>(saver.usage().begin()->backed_up_bytes);
    saver.resume("weights");
    const auto cycle = [&] {
        saver.prepare("weights");
        quiet();
        times.pause.push_back(weights.pause());
        quiet();
        times.resume.push_back(milliseconds([&] { saver.resume("weights"); }));
    };
    if (out == nullptr) {
        for (int i = 0; i < 6; ++i) cycle();
        return times;
    }
    for (auto _ : state) {
        cycle();
        state.SetIterationTime((times.pause.back() + times.resume.back()) / 1000);
    }
    return times;
}

template <Driver D>
void compressed(benchmark::State& state, const D& driver, std::size_t bytes) {
    const std::vector<unsigned char> content = bf16_weights();
    warm_host_memory(driver, 3 * bytes);
    std::vector<double> out;
    std::vector<double> in;
    Times coded;
    try {
        coded = measure(state, driver, Compressed<HostBackup>{}, bytes, content, &out, &in);
    } catch (const Unavailable& error) {
        return state.SkipWithError(error.what());
    }
    Times plain = measure(state, driver, HostBackup{}, bytes, content, nullptr, nullptr);
    for (int i = 0; i < 2; ++i) {
        coded.first_pause.push_back(first_pause(driver, Compressed<HostBackup>{}, bytes, content));
        plain.first_pause.push_back(first_pause(driver, HostBackup{}, bytes, content));
    }
    state.counters["bytes"] = static_cast<double>(bytes);
    state.counters["kept_over_plain"] = coded.kept / static_cast<double>(bytes);
    state.counters["pause_ms"] = median(coded.pause);
    state.counters["resume_ms"] = median(coded.resume);
    state.counters["first_pause_ms"] = median(coded.first_pause);
    state.counters["copy_out_ms"] = median(out);
    state.counters["copy_in_ms"] = median(in);
    state.counters["pause_speed_over_copy"] = median(out) / median(coded.pause);
    state.counters["resume_speed_over_copy"] = median(in) / median(coded.resume);
    state.counters["first_pause_speed_over_copy"] = median(out) / median(coded.first_pause);
    state.counters["plain_pause_ms"] = median(plain.pause);
    state.counters["plain_resume_ms"] = median(plain.resume);
    state.counters["plain_first_pause_ms"] = median(plain.first_pause);
}

template <Driver D>
void register_all(const D& driver) {
    for (const std::size_t gib : {std::size_t{8}, std::size_t{32}}) {
        const std::size_t bytes = on_host<D> ? gib * 16_MiB : gib * 1_GiB;
        const std::string name = "compressed/" + std::to_string(gib) + "GiB";
        fixed(benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& s) { compressed<D>(s, driver, bytes); }),
              8);
    }
}

} // namespace

int main(int argc, char** argv) {
    return bench::run(argc, argv, [](const auto& driver) { register_all(driver); });
}
