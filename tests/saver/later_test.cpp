// Faults of earlier versions. What hung runs in a child process with a deadline.
#include "support/each_of.hpp"

namespace saver_later_test {
using namespace test;
using D = FaultyDriver<HostDriver>;

/// Tag "c" is being paused on another thread, which waits for work that only this thread lets go. Tag "b" is paused and
/// does not fit: tag "a" holds 24 of 32 MiB, and nobody pauses it.
struct Waiting {
    D driver{HostDriver{32_MiB, {.granularity = 64_KiB}}};
    MemorySaver<D> saver{driver};
    Arena a = saver.arena("a", HostBackup{.threads = 1});
    Arena b = saver.arena("b", HostBackup{.threads = 1});
    Arena c = saver.arena("c", HostBackup{.threads = 1});
    std::optional<WaitingBeside<HostDriver>> pausing{};
    std::optional<HeldStream> stream{}; // declared last: let go first

    Waiting() {
        (void)b.allocate(12_MiB);
        saver.pause(Tags{"b"});
        (void)a.allocate(24_MiB);
        (void)c.allocate(1_MiB);
        stream.emplace(driver);
        pausing.emplace(driver, [this] { saver.pause(Tags{"c"}); });
    }
};

/// Returns whether `act` on such a saver throws OutOfMemory, or any error if `any`, within a deadline.
bool gives_up(const std::function<void(Waiting&)>& act, bool any = false) {
    return within_seconds(30, [&] {
        Waiting w;
        try {
            act(w);
        } catch (const OutOfMemory&) {
            return true;
        } catch (const Error&) {
            return any;
        }
        return false;
    });
}

[[nodiscard]] std::size_t mappings() {
    std::ifstream maps{"/proc/self/maps"};
    std::size_t count = 0;
    for (std::string line; std::getline(maps, line);) ++count;
    return count;
}

/// Every wait for work fails from now on.
void refuse_to_wait(const D& driver) {
    for (const Call call : {Call::wait, Call::drain, Call::query})
        driver.fail({.call = call, .nth = 1, .lasting = Lasting::onwards});
}

TEST_CASE("a block freed during a pause with a policy of its own leaves no backup") {
    const D driver{HostDriver{64_MiB, {.granularity = 64_KiB}}};
    MemorySaver<D> saver{driver};
    const Arena a = saver.arena("a", HostBackup{.threads = 1});
    void* const block = a.allocate(1_MiB);
    (void)a.allocate(1_MiB);
    bool done = false;
    driver.on_call([&](const CallRecord& record) {
        if (done || record.call != Call::copy_to_host) return;
        done = true;
        a.deallocate(block);
    });
    (void)saver.pause(Tags{"a"}, {.bytes = HostBackup{.threads = 1}});
    driver.on_call({});
    REQUIRE(done);
    const ArenaUsage usage = a.usage();
    CHECK(usage.used_bytes == usage.backed_up_bytes);
}

TEST_CASE("calls without room obey their limits while another tag's pause waits for the program's work") {
    const HostBackup policy{.threads = 1};
    const std::function<void(Waiting&)> calls[] = {
        [](Waiting& w) { (void)w.saver.resume(Tags{"b"}, {.room_within = 50ms}); },
        [](Waiting& w) { (void)w.saver.resume_async(Tags{"b"}, {.room_within = 50ms}); },
        [](Waiting& w) { (void)w.saver.use(Tags{"b"}); },
        [](Waiting& w) { (void)w.b.allocate(12_MiB); },
        [&](Waiting& w) { w.saver.arena("d", policy).elastic(16_MiB, {.granularity = 64_KiB}).commit(0, 12_MiB); },
        [&](Waiting& w) { (void)WorkspacePool{w.saver.arena("d", policy)}.get("x", 12_MiB); },
    };
    for (const auto& call : calls) CHECK(gives_up(call));
    const auto exchange = [&](Waiting& w) {
        (void)w.saver.arena("d", policy).allocate(1_MiB);
        (void)w.saver.exchange(Tags{"d"}, Tags{"b"}, {.order = already_idle, .timeout = 50ms, .room_within = 50ms});
    };
    CHECK(gives_up(exchange, true));
}

TEST_CASE("pages are not unmapped under copies that could not be waited for") {
    const HostDriver host{64_MiB, {.granularity = 64_KiB, .survive_faults = true}};
    const D driver{host};
    MemorySaver<D> saver{driver};
    const Arena a = saver.arena("a", HostBackup{.threads = 1});
    Elastic elastic = a.elastic(1_MiB, {.granularity = 64_KiB});
    elastic.commit(0, 1_MiB);
    saver.prepare(Tags{"a"});
    const OwnStream stream{host};
    const HeldLane lane{host, Direction::out}; // the copies do not start yet
    refuse_to_wait(driver);
    CHECK_THROWS_AS((void)saver.pause(Tags{"a"}, {.order = already_idle}), Error);
    driver.heal();
    driver.fail({.call = Call::drain, .nth = 1}); // settling fails once more
    elastic.release(0, 1_MiB, after(StreamRef{stream}));
    driver.heal();
    lane.let_go();
    REQUIRE(host.drain().ok());
    CHECK(host.violations().empty());
}

TEST_CASE("no block is handed out while a failed load's copy may still write to it") {
    const std::string freed = each_of<std::string>({"as idle", "with a stream", "by default"});
    const Folder folder;
    const std::string file = (folder.path / "bytes").string();
    std::ofstream{file, std::ios::binary} << std::string(1_MiB, 'F');
    const HostDriver host{64_MiB, {.granularity = 64_KiB, .survive_faults = true}};
    const D driver{host};
    MemorySaver<D> saver{driver};
    const Arena a = saver.arena("a", FileSource{.threads = 1});
    void* const first = a.allocate(1_MiB);
    const OwnStream stream{host};
    const HeldLane lane{host, Direction::in};
    refuse_to_wait(driver);
    CHECK_THROWS_AS(a.load(first, 1_MiB, file), Error);
    driver.heal();
    if (freed == "as idle") a.deallocate(first, already_idle);
    if (freed == "with a stream") a.deallocate(first, stream);
    if (freed == "by default") a.deallocate(first);
    void* const next = freed == "with a stream" ? a.allocate(1_MiB, stream) : a.allocate(1_MiB);
    std::memset(next, 'N', 1_MiB);
    lane.let_go();
    REQUIRE(host.drain().ok());
    CHECK(filled_with(next, 1_MiB, 'N'));
}

TEST_CASE("a tag costs the process two mappings, its pages and the addresses around them; a prepared pause none") {
    constexpr std::size_t tags = 500;
    MemorySaver<> saver{AnyDriver{HostDriver{64_MiB, {.granularity = 4096}}}};
    (void)saver.arena("first", HostBackup{.threads = 1}).allocate(4096);
    const std::size_t before = mappings();
    for (std::size_t i = 0; i < tags; ++i)
        (void)saver.arena("session/" + std::to_string(i), HostBackup{.threads = 1}).allocate(4096);
    CHECK(mappings() <= before + 2 * tags + tags / 10); // other parts of the process need a few
    saver.prepare();
    const std::size_t prepared = mappings();
    (void)saver.pause();
    CHECK(mappings() <= prepared + tags / 10);
    (void)saver.resume();
    CHECK(mappings() <= prepared + tags / 10);
}
} // namespace saver_later_test
