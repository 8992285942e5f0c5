// Do two devices pause and resume at the same time? Beside one of them alone, taking turns.
#include "bench.hpp"

#include <optional>
#include <vector>

namespace {

using namespace bench;

template <Driver D>
void devices(benchmark::State& state, const D& first) try {
    const std::optional<D> other = second_machine(first);
    if (!other) return state.SkipWithError("only one device here");
    use_up_fresh_pages(first);
    use_up_fresh_pages(*other);
    const std::size_t bytes = 8_GiB;
    MemorySaver<D> saver{first};
    (void)saver.arena("one").allocate(bytes);
    saver.pause("one");
    (void)saver.arena("two").allocate(bytes);
    (void)saver.arena("two", Discard{}, *other).allocate(bytes);
    saver.pause("two");

    std::vector<double> one;
    std::vector<double> two;
    const auto cycle = [&](const char* tag) {
        return milliseconds([&] {
            saver.resume(tag);
            saver.pause(tag);
        });
    };
    for (int i = 0; i < 3; ++i) (void)(cycle("one") + cycle("two"));
    bool one_first = true;
    for (auto _ : state) {
        if (one_first) one.push_back(cycle("one"));
        two.push_back(cycle("two"));
        if (!one_first) one.push_back(cycle("one"));
        one_first = !one_first;
        state.SetIterationTime(two.back() / 1000);
    }
    state.counters["bytes_each"] = static_cast<double>(bytes);
    state.counters["one_ms"] = median(one);
    state.counters["two_ms"] = median(two);
    state.counters["ratio"] = median(two) / median(one);
} catch (const std::exception& error) {
    state.SkipWithError(error.what());
}

} // namespace

int main(int argc, char** argv) {
    return bench::run(argc, argv, [](const auto& driver) {
        bench::fixed(benchmark::RegisterBenchmark("devices/two beside one",
                                                  [driver](benchmark::State& state) { devices(state, driver); }),
                     bench::on_host<std::remove_cvref_t<decltype(driver)>> ? 3 : 21);
    });
}
