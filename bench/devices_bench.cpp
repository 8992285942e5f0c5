// Whether two devices pause and resume concurrently, compared with one of them alone, and with the driver's own calls
// on two devices from two threads. All alternate.
#include "floor.hpp"

#include "memsaver/driver/owned.hpp"

#include <array>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace bench;

/// `cycle(one)` resumes and pauses one device, or both.
void compare(benchmark::State& state, std::size_t bytes_each, const std::function<void(bool one)>& cycle) {
    std::vector<double> one;
    std::vector<double> two;
    const auto sample = [&](bool alone) { (alone ? one : two).push_back(milliseconds([&] { cycle(alone); })); };
    for (int i = 0; i < 3; ++i) {
        cycle(true);
        cycle(false);
    }
    bool one_first = true;
    for (auto _ : state) {
        sample(one_first);
        sample(!one_first);
        one_first = !one_first;
        state.SetIterationTime(two.back() / 1000);
    }
    state.counters["bytes_each"] = static_cast<double>(bytes_each);
    state.counters["one_ms"] = median(one);
    state.counters["two_ms"] = median(two);
    state.counters["ratio"] = median(two) / median(one);
}

template <Driver D>
void savers(benchmark::State& state, const D& first, const D& other, std::size_t bytes, const AnyPolicy& policy) {
    MemorySaver<D> saver{first};
    const auto fill = [&](const char* tag, const D& driver) {
        void* const block = saver.arena(tag, policy, driver).allocate(bytes);
        check(driver.fill(reinterpret_cast<Address>(block), 1, bytes, StreamRef{}), "fill");
    };
    fill("one", first);
    saver.pause("one");
    fill("two", first);
    fill("two", other);
    saver.pause("two");
    compare(state, bytes, [&](bool alone) {
        saver.resume(alone ? "one" : "two");
        saver.pause(alone ? "one" : "two");
    });
}

template <Driver D>
void driver_alone(benchmark::State& state, const D& first, const D& other, std::size_t bytes) {
    std::array<Floor<D>, 2> floors{Floor<D>{first, bytes, 1_GiB}, Floor<D>{other, bytes, 1_GiB}};
    compare(state, bytes, [&](bool alone) {
        const auto both = [&](auto act) {
            std::thread second;
            if (!alone) second = std::thread{[&] { act(floors[1]); }};
            act(floors[0]);
            if (second.joinable()) second.join();
        };
        both([](Floor<D>& floor) { floor.resume(); });
        both([](Floor<D>& floor) { floor.pause(); });
    });
}

/// Prepared backups on the other device, compared with plain copies of the same size between the two.
template <Driver D>
void peer_backup(benchmark::State& state, const D& first, const D& other, std::size_t bytes) {
    MemorySaver<D> saver{first};
    void* const block = saver.arena("parked", PeerBackup{other}).allocate(bytes);
    MemorySaver<D> there{other};
    void* const target = there.arena("target").allocate(bytes);
    check(first.reach_peer(reinterpret_cast<Address>(target), bytes), "enable peer access");
    memsaver::detail::OwnedStream stream;
    memsaver::detail::OwnedEvent event;
    check(stream.open(first), "open a stream");
    check(event.open(first, stream.get()), "open an event");
    const auto copy = [&](void* to, void* from) {
        return milliseconds([&] {
            check(first.copy_peer(reinterpret_cast<Address>(to), reinterpret_cast<Address>(from), bytes, stream.get()),
                  "copy to a peer");
            check(first.record(event.get(), stream.get()), "record");
            check(first.wait(event.get()), "wait for a copy");
        });
    };
    saver.prepare("parked");
    std::vector<double> out, in, plain_out, plain_in, pages;
    Floor<D> floor{first, bytes, 1_GiB}; // the cost of releasing and mapping the pages alone
    for (auto _ : state) {
        plain_out.push_back(copy(target, block));
        plain_in.push_back(copy(block, target));
        pages.push_back(milliseconds([&] { floor.resume(); }) + milliseconds([&] { floor.pause(); }));
        out.push_back(milliseconds([&] { saver.pause("parked"); }));
        in.push_back(milliseconds([&] { saver.resume("parked"); }));
        state.SetIterationTime((out.back() + in.back()) / 1000);
    }
    state.counters["bytes"] = static_cast<double>(bytes);
    state.counters["pause_ms"] = median(out);
    state.counters["resume_ms"] = median(in);
    state.counters["plain_out_ms"] = median(plain_out);
    state.counters["plain_in_ms"] = median(plain_in);
    state.counters["pages_ms"] = median(pages);
    state.counters["speed_ratio"] = (median(plain_out) + median(plain_in) + median(pages)) / (median(out) + median(in));
}

template <Driver D>
void register_all(const D& first) {
    constexpr std::size_t bytes = on_host<D> ? 64_MiB : 8_GiB;
    const auto add = [&](const std::string& name, auto act) {
        const auto run = [first, act](benchmark::State& state) {
            try {
                const std::optional<D> other = second_machine(first);
                if (!other) return state.SkipWithError("requires two devices");
                use_up_fresh_pages(first);
                use_up_fresh_pages(*other);
                act(state, first, *other);
            } catch (const std::exception& error) {
                state.SkipWithError(error.what());
            }
        };
        fixed(benchmark::RegisterBenchmark(("devices/" + name).c_str(), run), on_host<D> ? 3 : 21);
    };
    add("discard",
        [](benchmark::State& state, const D& one, const D& two) { savers<D>(state, one, two, bytes, Discard{}); });
    add("driver alone",
        [](benchmark::State& state, const D& one, const D& two) { driver_alone(state, one, two, bytes); });
    add("HostBackup",
        [](benchmark::State& state, const D& one, const D& two) { savers<D>(state, one, two, bytes, HostBackup{}); });
    add("PeerBackup", [](benchmark::State& state, const D& one, const D& two) { peer_backup(state, one, two, bytes); });
}

} // namespace

int main(int argc, char** argv) {
    return bench::run(argc, argv, [](const auto& driver) { register_all(driver); });
}
