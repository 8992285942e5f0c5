// The cost of committing and releasing elastic memory, compared with the driver's own calls on handles of the same
// size.
#include "bench.hpp"

#include <string>
#include <vector>

namespace {

using namespace bench;

/// The necessary driver calls, with one handle per step.
template <Driver D>
class Raw {
public:
    Raw(const D& driver, std::size_t bytes, std::size_t step) : driver_{driver}, bytes_{bytes}, step_{step} {
        handles_.resize(bytes / step);
        check(driver_.reserve(bytes_, 0, base_), "reserve addresses");
    }
    Raw(const Raw&) = delete;
    Raw& operator=(const Raw&) = delete;
    ~Raw() { (void)driver_.unreserve(base_, bytes_); }

    void commit() {
        for (PageHandle& handle : handles_) check(driver_.create(step_, handle), "create pages");
        for (std::size_t i = 0; i < handles_.size(); ++i) {
            check(driver_.map(base_ + i * step_, step_, handles_[i]), "map");
            check(driver_.allow_access(base_ + i * step_, step_), "allow access");
        }
    }
    void release() {
        for (std::size_t i = 0; i < handles_.size(); ++i) {
            check(driver_.unmap(base_ + i * step_, step_), "unmap");
            check(driver_.release(handles_[i]), "release pages");
        }
    }

private:
    D driver_;
    std::size_t bytes_;
    std::size_t step_;
    Address base_ = 0;
    std::vector<PageHandle> handles_;
};

/// Commits and releases everything in one call each, or with one call per step.
template <Driver D>
void cycle(benchmark::State& state, const D& driver, std::size_t bytes, std::size_t step, bool step_by_step) {
    use_up_fresh_pages(driver);
    MemorySaver<D> saver{driver};
    Elastic range = saver.arena("kv").elastic(bytes, {.granularity = step});
    Raw<D> calls{driver, bytes, step};
    std::vector<double> commit;
    std::vector<double> release;
    std::vector<double> raw_commit;
    std::vector<double> raw_release;
    const std::size_t each = step_by_step ? step : bytes;
    const auto round = [&] {
        commit.push_back(milliseconds([&] {
            for (std::size_t at = 0; at < bytes; at += each) range.commit(at, each);
        }));
        release.push_back(milliseconds([&] {
            for (std::size_t at = 0; at < bytes; at += each) range.release(at, each, already_idle);
        }));
        raw_commit.push_back(milliseconds([&] { calls.commit(); }));
        raw_release.push_back(milliseconds([&] { calls.release(); }));
    };
    round();
    for (std::vector<double>* times : {&commit, &release, &raw_commit, &raw_release}) times->clear();
    for (auto _ : state) {
        round();
        state.SetIterationTime((commit.back() + release.back()) / 1000);
    }
    state.counters["bytes"] = static_cast<double>(bytes);
    state.counters["step_bytes"] = static_cast<double>(step);
    state.counters["commit_ms"] = median(commit);
    state.counters["release_ms"] = median(release);
    state.counters["driver_commit_ms"] = median(raw_commit);
    state.counters["driver_release_ms"] = median(raw_release);
    state.counters["over_driver"] = (median(commit) + median(release)) / (median(raw_commit) + median(raw_release));
}

template <Driver D>
void register_all(const D& driver) {
    for (const std::size_t step : {64_MiB, 2_MiB}) {
        for (const bool step_by_step : {false, true}) {
            const std::size_t bytes = on_host<D> ? 1_GiB : 8_GiB;
            const std::string name = "elastic/" + std::to_string(step >> 20U) + "MiB" + (step_by_step ? "/each" : "");
            fixed(benchmark::RegisterBenchmark(
                      name.c_str(), [=](benchmark::State& s) { cycle(s, driver, bytes, step, step_by_step); }),
                  on_host<D> ? 5 : 20);
        }
    }
}

} // namespace

int main(int argc, char** argv) {
    return bench::run(argc, argv, [](const auto& driver) { register_all(driver); });
}
