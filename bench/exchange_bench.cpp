// The cost of an exchange of two tags, compared with both plain pinned copies at the same time, with a pause followed
// by a resume, and, if no bytes are kept, with the driver's own calls.
#include "backup_baselines.hpp"

#include <functional>

namespace {

using namespace bench;

/// Smaller sizes on a host machine.
template <Driver D>
constexpr std::size_t sized(std::size_t bytes) {
    return on_host<D> ? bytes / 64 : bytes;
}

/// Two tags with one block each, one of which is paused.
template <Driver D>
struct Pair {
    Pair(const D& driver, const AnyPolicy& policy, std::size_t bytes) : saver{driver} {
        (void)saver.arena("a", policy).allocate(bytes);
        saver.pause("a");
        (void)saver.arena("b", policy).allocate(bytes);
    }
    double exchange() {
        here = !here;
        return milliseconds([&] { last = here ? saver.exchange("b", "a") : saver.exchange("a", "b"); });
    }
    double in_turn() {
        here = !here;
        return milliseconds([&] {
            saver.pause(here ? "b" : "a");
            saver.resume(here ? "a" : "b");
        });
    }

    MemorySaver<D> saver;
    bool here = false; ///< whether "a" is resident
    Report last;
};

/// One plain pinned copy in each direction, both in flight at the same time.
template <Driver D>
class BothCopies {
public:
    BothCopies(const D& driver, std::size_t bytes)
        : driver_{driver}, bytes_{bytes}, saver_{driver}, here_{driver, bytes}, there_{driver, bytes} {
        const Arena arena = saver_.arena("copied");
        out_ = reinterpret_cast<Address>(arena.allocate(bytes));
        in_ = reinterpret_cast<Address>(arena.allocate(bytes));
        for (const auto i : {0, 1}) {
            check(streams_[i].open(driver_), "open a stream");
            check(events_[i].open(driver_, streams_[i].get()), "open an event");
        }
    }
    /// Waits for the slower one.
    double copy() {
        return milliseconds([&] {
            check(driver_.copy_to_host(here_.data(), out_, bytes_, streams_[0].get()), "copy out");
            check(driver_.copy_to_device(in_, there_.data(), bytes_, streams_[1].get()), "copy in");
            for (const auto i : {0, 1}) check(driver_.record(events_[i].get(), streams_[i].get()), "record");
            for (const auto i : {0, 1}) check(driver_.wait(events_[i].get()), "wait for a copy");
        });
    }

private:
    D driver_;
    std::size_t bytes_;
    MemorySaver<D> saver_;
    PinnedMemory here_;
    PinnedMemory there_;
    Address out_ = 0;
    Address in_ = 0;
    OwnedStream streams_[2];
    OwnedEvent events_[2];
};

/// Allocates all except `left` bytes of a device.
template <Driver D>
std::vector<PageHandle> fill_up(const D& driver, std::size_t left) {
    std::vector<PageHandle> handles;
    if constexpr (!on_host<D>) {
        for (PageHandle handle; memory_of(driver).free_bytes > left + 1_GiB && driver.create(1_GiB, handle).ok();)
            handles.push_back(handle);
    }
    return handles;
}

/// Both tags keep their bytes, and the device has memory for only one of them.
template <Driver D>
void kept(benchmark::State& state, const D& driver, std::size_t bytes) {
    std::vector<double> exchange;
    std::vector<double> copies;
    std::vector<double> in_turn;
    {
        BothCopies<D> plain{driver, bytes};
        for (int i = 0; i < 3; ++i) (void)plain.copy();
        for (int i = 0; i < 12; ++i) copies.push_back(plain.copy());
    }
    Pair<D> pair{driver, HostBackup{}, bytes};
    for (int i = 0; i < 4; ++i) (void)pair.exchange(); // allocates the host memory of both
    const auto beside = fill_up(driver, 1_GiB);
    for (auto _ : state) {
        exchange.push_back(pair.exchange());
        in_turn.push_back(pair.in_turn());
        state.SetIterationTime(exchange.back() / 1000);
    }
    for (const PageHandle handle : beside) check(driver.release(handle), "release pages");
    state.counters["bytes"] = static_cast<double>(bytes);
    state.counters["handed_bytes"] = static_cast<double>(pair.last.handed_bytes);
    state.counters["exchange_ms"] = median(exchange);
    state.counters["both_copies_ms"] = median(copies);
    state.counters["pause_then_resume_ms"] = median(in_turn);
    state.counters["over_copies"] = median(exchange) / median(copies);
    state.counters["over_pause_then_resume"] = median(exchange) / median(in_turn);
}

/// Neither tag keeps bytes: pages are only handed over. Compared with the driver's own calls on handles of 1 GiB.
template <Driver D>
void dropped(benchmark::State& state, const D& driver, std::size_t bytes) {
    use_up_fresh_pages(driver);
    Pair<D> pair{driver, Discard{}, bytes};
    std::vector<double> exchange;
    std::vector<double> in_turn;
    std::vector<double> raw;
    for (int i = 0; i < 4; ++i) (void)pair.exchange();

    const std::size_t each = std::min<std::size_t>(bytes, 1_GiB);
    Address places[2]{};
    std::vector<PageHandle> handles(bytes / each);
    for (Address& place : places) check(driver.reserve(bytes, 0, place), "reserve addresses");
    for (PageHandle& handle : handles) check(driver.create(each, handle), "create pages");
    const auto map = [&](Address place) {
        for (std::size_t i = 0; i < handles.size(); ++i) {
            check(driver.map(place + i * each, each, handles[i]), "map");
            check(driver.allow_access(place + i * each, each), "allow access");
        }
    };
    const auto unmap = [&](Address place) {
        for (std::size_t i = 0; i < handles.size(); ++i) check(driver.unmap(place + i * each, each), "unmap");
    };
    map(places[0]);
    bool first = true;
    for (auto _ : state) {
        exchange.push_back(pair.exchange());
        in_turn.push_back(pair.in_turn());
        raw.push_back(milliseconds([&] {
            unmap(places[first ? 0 : 1]);
            map(places[first ? 1 : 0]);
        }));
        first = !first;
        state.SetIterationTime(exchange.back() / 1000);
    }
    unmap(places[first ? 0 : 1]);
    for (const PageHandle handle : handles) check(driver.release(handle), "release pages");
    for (const Address place : places) check(driver.unreserve(place, bytes), "unreserve addresses");
    state.counters["bytes"] = static_cast<double>(bytes);
    state.counters["exchange_ms"] = median(exchange);
    state.counters["driver_ms"] = median(raw);
    state.counters["pause_then_resume_ms"] = median(in_turn);
    state.counters["over_driver"] = median(exchange) / median(raw);
}

template <Driver D>
void register_all(const D& driver) {
    const auto add = [&](const std::string& name, int iterations, auto measure, std::size_t bytes) {
        fixed(benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& s) { measure(s, driver, bytes); }),
              iterations);
    };
    add("exchange/kept/8GiB", 12, kept<D>, sized<D>(8_GiB));
    for (const std::size_t gib : {std::size_t{8}, std::size_t{32}}) {
        add("exchange/dropped/" + std::to_string(gib) + "GiB", 20, dropped<D>, sized<D>(gib * 1_GiB));
    }
}

} // namespace

int main(int argc, char** argv) {
    return bench::run(argc, argv, [](const auto& driver) { register_all(driver); });
}
