// Elastic memory: commits and releases anywhere in one range, and their interaction with all other operations.
#include "graph/graph_support.hpp"
#include "support/each_of.hpp"

namespace saver_elastic_test {
using namespace test;

constexpr std::size_t step = 4_MiB;
const ElasticOptions steps{.granularity = step};
using Steps = std::initializer_list<std::size_t>;

char* at(const Elastic& range, std::size_t n) { return static_cast<char*>(range.data()) + n * range.granularity(); }

/// Fills some steps of a range, and tells whether they have their bytes.
template <class D>
void fill(const D& driver, const Elastic& range, Steps which, std::uint64_t seed) {
    for (const std::size_t n : which) write_pattern(driver, at(range, n), range.granularity(), seed + n);
}
template <class D>
bool whole(const D& driver, const Elastic& range, Steps which, std::uint64_t seed) {
    return std::all_of(which.begin(), which.end(),
                       [&](std::size_t n) { return has_pattern(driver, at(range, n), range.granularity(), seed + n); });
}

/// A range of a tag that keeps its bytes.
struct OnRange : OnSaver {
    const Arena arena = saver.arena("kv", HostBackup{.threads = 1});
    Elastic kv = arena.elastic(64_GiB, steps);
};

TEST_CASE_FIXTURE(OnRange, "elastic: pages are committed and released anywhere, and the address stays" * on_machines) {
    CHECK(kv.granularity() == step);
    CHECK(kv.capacity() == 64_GiB);
    CHECK(kv.committed_bytes() + machine.driver.handle_bytes() == 0);
    CHECK(kv.arena() == arena);
    void* const data = kv.data();

    kv.commit(0, 4 * step);
    CHECK(kv.committed_bytes() == 4 * step);
    CHECK(machine.driver.handle_bytes() == 4 * step);
    fill(machine.driver, kv, {0, 1, 2, 3}, 1);
    kv.release(step, 2 * step, already_idle);
    CHECK(machine.driver.handle_bytes() == 2 * step);
    kv.commit(1000 * step, step);
    fill(machine.driver, kv, {1000}, 1);
    kv.commit(2 * step, step);
    fill(machine.driver, kv, {2}, 50);
    CHECK(whole(machine.driver, kv, {0, 3, 1000}, 1));
    CHECK(whole(machine.driver, kv, {2}, 50));
    CHECK(kv.data() == data);
    CHECK(row_of(saver, "kv").used_bytes == 4 * step);
    CHECK(contains(to_json(saver.usage()), "\"blocks\":4,\"elastic_bytes\":16777216"));
    CHECK(saver.owns(at(kv, 3)));
    CHECK_FALSE(saver.owns(at(kv, 1)));
    check_books(saver, machine.driver);

    Buffer<char> beside{arena, 3 * step}; // ordinary blocks of the tag are outside the range
    CHECK((beside.data() < data || beside.data() >= static_cast<char*>(data) + kv.capacity()));
    Elastic moved = std::move(kv);
    CHECK_FALSE(kv); // NOLINT(bugprone-use-after-move)
    CHECK_THROWS_AS(kv.commit(0, 1), Misuse);
    CHECK_THROWS_AS((void)kv.data(), Misuse);
    CHECK_THROWS_AS((void)kv.arena(), Misuse);
    CHECK(moved.data() == data);
    moved.release(0, 0 + step, already_idle);
    moved = {};
    (void)saver.trim();
    CHECK(machine.driver.handle_bytes() <= 8_MiB + beside.size());
    check_books(saver, machine.driver);
}

TEST_CASE_FIXTURE(OnSaver, "elastic: commits are rounded outward, releases inward, and resize works at the end") {
    Elastic kv = saver.arena("kv").elastic(10 * step - 1, {.granularity = step - 1});
    CHECK(kv.granularity() == step);
    CHECK(kv.capacity() == 10 * step);
    const auto there = [&] { // the committed steps
        std::string text;
        for (std::size_t n = 0; n < 10; ++n) text += saver.owns(at(kv, n)) ? '#' : '.';
        CHECK(kv.committed_bytes() == static_cast<std::size_t>(std::count(text.begin(), text.end(), '#')) * step);
        return text;
    };
    kv.commit(step - 1, 2);
    CHECK(there() == "##........");
    kv.commit(0, 3 * step); // existing memory stays
    CHECK(there() == "###.......");
    kv.release(1, 2 * step, already_idle); // one whole step
    kv.release(1, step, already_idle);     // no step
    CHECK(there() == "#.#.......");
    kv.resize(5 * step - 7); // beyond the end, which is 3: the hole stays
    CHECK(there() == "#.###.....");
    kv.resize(5 * step);
    CHECK(there() == "#.###.....");
    kv.resize(2 * step + 1, already_idle);
    CHECK(there() == "#.#.......");
    kv.resize(step, already_idle);
    CHECK(there() == "#.........");
    kv.resize(0, already_idle);
    CHECK(there() == "..........");
    kv.resize(10 * step);
    CHECK(there() == "##########");
    CHECK(machine.driver.handle_bytes() == 10 * step);
    CHECK(saver.arena("kv").elastic(1024_GiB).granularity() == 64_MiB); // unless told otherwise
}

TEST_CASE_FIXTURE(OnSaver, "elastic: each misuse says what was wrong and changes nothing" * on_machines) {
    const Arena arena = saver.arena("kv", HostBackup{.threads = 1}, ArenaOptions{.capacity = 6 * step});
    CHECK_THROWS_AS((void)arena.elastic(0), Misuse);
    CHECK_THROWS_AS((void)arena.elastic(1_GiB, {.granularity = 0}), Misuse);
    CHECK_THROWS_AS((void)arena.elastic(~std::size_t{0}), Misuse);
    CHECK_THROWS_AS((void)arena.elastic(std::size_t{1} << 62), Misuse);
    // Throws before it allocates a list of its steps.
    CHECK_THROWS_AS((void)arena.elastic(std::size_t{1} << 56, {.granularity = 2_MiB}), OutOfAddresses);
    CHECK_THROWS_AS((void)arena.elastic(1_GiB, {.granularity = ~std::size_t{0}}), Misuse);
    CHECK_THROWS_AS((void)Arena{}.elastic(1_GiB), Misuse);
    Elastic kv = arena.elastic(8 * step, steps); // more addresses than the capacity has bytes
    kv.commit(0, 4 * step);
    CHECK_THROWS_AS(kv.commit(0, 0), Misuse);
    CHECK_THROWS_AS(kv.release(0, 0), Misuse);
    CHECK_THROWS_AS(kv.commit(8 * step, 1), Misuse);
    CHECK_THROWS_AS(kv.commit(step, ~std::size_t{0}), Misuse);
    CHECK_THROWS_AS(kv.commit(~std::size_t{0}, 1), Misuse);
    CHECK_THROWS_AS(kv.release(8 * step, 1), Misuse);
    CHECK_THROWS_AS(kv.resize(8 * step + 1), Misuse);
    CHECK_THROWS_AS(kv.resize(~std::size_t{0}), Misuse);
    CHECK_THROWS_AS(kv.commit(0, 7 * step), Misuse); // the capacity
    CHECK(contains(text_of<Misuse>([&] { kv.release(3 * step, 2 * step); }), "part of it is not committed"));
    kv.release(3 * step, step, already_idle);
    CHECK_THROWS_AS(kv.release(3 * step, step), Misuse); // twice
    CHECK_THROWS_AS(arena.deallocate(kv.data()), Misuse);
    CHECK_THROWS_AS(arena.deallocate(at(kv, 5)), Misuse);
    kv.commit(5 * step, step); // the released step's identity is reused
    CHECK_FALSE(saver.owns(at(kv, 3)));
    CHECK_THROWS_AS(arena.deallocate(at(kv, 3)), Misuse);
    kv.release(5 * step, step, already_idle);
    CHECK(kv.committed_bytes() == 3 * step);
    (void)saver.pause("kv");
    CHECK(contains(text_of<Misuse>([&] { kv.commit(4 * step, step); }), "paused"));
    CHECK(machine.driver.handle_bytes() == 0);
    (void)saver.resume("kv");
    check_books(saver, machine.driver);

    Elastic lost = saver.arena("lost").elastic(8 * step, steps);
    lost.commit(0, step);
    saver.drop("lost");
    CHECK(contains(text_of<Misuse>([&] { lost.commit(0, step); }), "dropped"));
    CHECK_THROWS_AS(lost.release(0, step), Misuse);
    saver.close();
    CHECK(contains(text_of<Misuse>([&] { kv.commit(0, step); }), "closed"));
    CHECK_THROWS_AS(kv.resize(0), Misuse);
} // both destructors report nothing

TEST_CASE_FIXTURE(OnSaver, "elastic: exchange hands steps on, in both directions" * on_machines) {
    constexpr std::size_t large = 16_MiB; // smaller ones are not handed over
    const auto make = [&](const char* tag, Steps which, std::uint64_t seed) {
        Elastic range = saver.arena(tag, HostBackup{.threads = 1}).elastic(1_GiB, {.granularity = large});
        for (const std::size_t n : which) range.commit(n * large, large);
        fill(machine.driver, range, which, seed);
        return range;
    };
    const Elastic a = make("a", {0, 1, 5}, 10);
    (void)saver.pause("a");
    Elastic b = make("b", {1, 2, 3}, 20);
    for (int round = 0; round < 2; ++round) {
        CHECK(saver.exchange("b", "a").handed_bytes == 3 * large);
        CHECK(whole(machine.driver, a, {0, 1, 5}, 10));
        CHECK(saver.exchange("a", "b").handed_bytes == 3 * large);
        CHECK(whole(machine.driver, b, {1, 2, 3}, 20));
    }
    b.release(2 * large, large, already_idle);
    CHECK(machine.driver.handle_bytes() == 2 * large);
    (void)saver.exchange("b", "a");
    CHECK(whole(machine.driver, a, {0, 1, 5}, 10));
    check_books(saver, machine.driver);
}

TEST_CASE_FIXTURE(OnHost, "elastic: a release does not wait; its pages go back once the named streams have passed") {
    HeldStream one{machine.driver};
    HeldStream two{machine.driver};
    MemorySaver saver{machine.driver};
    Elastic kv = saver.arena("kv").elastic(1_GiB, steps);
    kv.commit(0, 4 * step);
    CHECK(machine.driver.fill(address_of(at(kv, 1)), 1, step, one.get()).ok());
    kv.release(step, step, after(one.get(), two.get()));
    CHECK(kv.committed_bytes() == 3 * step);
    CHECK(row_of(saver, "kv").held_bytes == step); // still being written
    one.finish();
    kv.release(2 * step, step, already_idle);
    CHECK(machine.driver.handle_bytes() == 3 * step); // the other one has not completed
    two.finish();
    kv.release(3 * step, step, already_idle); // any call on the tag
    CHECK(machine.driver.handle_bytes() == step);
    CHECK(row_of(saver, "kv").held_bytes == 0);
    {
        OwnedEvent event;
        REQUIRE(event.open(machine.driver, one.get()).ok());
        REQUIRE(machine.driver.record(event.get(), one.get()).ok());
        kv.release(0, step, after(event.get()));
    } // it may be closed
    (void)saver.trim();
    CHECK(machine.driver.handle_bytes() == 0);
    check_books(saver, machine.driver);
}

TEST_CASE_FIXTURE(OnRange, "elastic: a mark that cannot be queried prevents a commit there, and nothing else") {
    kv.commit(0, 2 * step);
    HeldStream stream{machine.driver};
    kv.release(0, step, after(stream.get()));
    stream.finish();
    machine.driver.fail({.call = Call::query, .lasting = Lasting::onwards});
    CHECK_THROWS_AS(kv.commit(0, step), DriverError);
    kv.commit(4 * step, step);
    machine.driver.heal();
    kv.commit(0, step);
    CHECK(kv.committed_bytes() == 3 * step);
    check_books(saver, machine.driver);
}

TEST_CASE_FIXTURE(OnRange, "elastic: by default released pages go back once something has waited for the device") {
    kv.commit(0, 6 * step);
    fill(machine.driver, kv, {0, 5}, 1);
    {
        HeldStream stream{machine.driver};
        CHECK(machine.driver.fill(address_of(at(kv, 1)), 1, step, stream.get()).ok());
        kv.release(step, step);                          // does not wait: the stream is held
        (void)saver.trim("kv", {.order = already_idle}); // does not wait either
        CHECK(machine.driver.handle_bytes() == 6 * step);
        (void)saver.pause("kv", {.order = already_idle});
        CHECK(machine.driver.handle_bytes() == step); // everything except the pages that the stream may touch
        CHECK(row_of(saver, "kv").held_bytes == step);
        (void)saver.resume("kv");
        CHECK(machine.driver.handle_bytes() == 6 * step);
    }
    CHECK(saver.trim("kv").released_bytes == step);
    kv.release(2 * step, step);
    CHECK(saver.pause("kv").released_bytes == 5 * step); // that waits
    CHECK(machine.driver.handle_bytes() == 0);
    kv.release(3 * step, step);
    (void)saver.resume("kv");
    kv.release(4 * step, step);
    CHECK(saver.reclaim(1).unused_bytes == step);
    kv.release(5 * step, step);
    kv.commit(5 * step, step); // waits for the work that may still touch it
    fill(machine.driver, kv, {5}, 3);
    CHECK((whole(machine.driver, kv, {5}, 3) && whole(machine.driver, kv, {0}, 1)));
    kv.resize(0);
    CHECK(saver.pause("kv").released_bytes == 2 * step); // only these are left to pause
    CHECK(machine.driver.handle_bytes() == 0);
    check_books(saver, machine.driver);
}

TEST_CASE_FIXTURE(OnRange, "elastic: a release inside a capture is misuse, a commit is not") {
    const OwnStream stream{machine.driver};
    kv.commit(0, step);
    (void)capture(saver, "graph", stream, [&] {
        kv.commit(step, step);
        CHECK_THROWS_AS(kv.release(0, step), Misuse);
        CHECK_THROWS_AS(kv.release(0, step, already_idle), Misuse);
        kv.resize(2 * step);
        kv.resize(3 * step);
        CHECK_THROWS_AS(kv.resize(2 * step), Misuse);
    });
    kv.resize(2 * step);
    const OwnCapture open{machine.driver, stream};
    CHECK_THROWS_AS(kv.release(0, step, after(stream)), Misuse);
    CHECK(kv.committed_bytes() == 2 * step);
}

TEST_CASE("elastic: a commit without room releases unused memory, then calls on_no_room, then changes nothing") {
    const HostDriver driver{48_MiB};
    int asked = 0;
    std::optional<Buffer<char>> victim;
    MemorySaver saver{driver, {.on_no_room = [&](const NoRoom& need) {
                          asked += 1;
                          CHECK(need.tag == "kv");
                          CHECK(need.bytes == 16_MiB);
                          victim.reset();
                          return asked == 1;
                      }}};
    Elastic kv = saver.arena("kv").elastic(1_GiB, steps);
    { const Buffer<char> unused{saver.arena("a"), 16_MiB}; }
    kv.commit(0, 32_MiB); // that was unused, but still mapped
    CHECK(asked == 0);
    victim.emplace(saver.arena("b"), 8_MiB);
    kv.commit(64_MiB, 16_MiB); // all or nothing: 8 MiB were free
    CHECK(asked == 1);
    CHECK(kv.committed_bytes() == 48_MiB);
    kv.release(0, 16_MiB); // may still be in use
    kv.commit(128_MiB, 16_MiB);
    CHECK(asked == 1);
    const auto error = thrown<OutOfMemory>([&] { kv.commit(256_MiB, 16_MiB); });
    CHECK(error.tag() == "kv");
    CHECK(error.needed_bytes() == 16_MiB);
    CHECK(kv.committed_bytes() == 48_MiB);
    CHECK(row_of(saver, "kv").mapped_bytes == 48_MiB);
    CHECK(driver.violations().empty());
}

TEST_CASE("elastic: the margin is left free, and the capacity counts what is mapped") {
    const HostDriver driver{64_MiB};
    MemorySaver saver{driver, {.margin = 16_MiB}};
    Elastic kv = saver.arena("kv", ArenaOptions{.capacity = 40_MiB}).elastic(1_GiB, steps);
    kv.commit(0, 40_MiB);
    CHECK_THROWS_AS(kv.commit(40_MiB, step), Misuse); // the capacity
    saver.set_capacity("kv", 0);
    kv.commit(40_MiB, 8_MiB);
    CHECK_THROWS_AS(kv.commit(48_MiB, step), OutOfMemory); // the margin
    kv.release(0, step);
    kv.commit(48_MiB, step); // freed pages are used first
    CHECK(kv.committed_bytes() == 48_MiB);
    saver.set_capacity("kv", 48_MiB);
    kv.release(step, step);
    kv.commit(60_MiB, step); // also if the capacity is the limit
    CHECK(kv.committed_bytes() == 48_MiB);
}

TEST_CASE_FIXTURE(OnSaver, "elastic: reclaim releases unused memory, then asks the owner, then pauses idle tags") {
    std::vector<std::size_t> wanted;
    std::function<std::size_t(std::size_t)> says = [](std::size_t) { return std::size_t{0}; };
    const auto ask = [&](std::size_t bytes) {
        wanted.push_back(bytes);
        return says(bytes);
    };
    Elastic kv = saver.arena("kv").elastic(1_GiB, {.granularity = step, .on_reclaim = ask});
    kv.commit(0, 10 * step);
    const Buffer<char> idle{saver.arena("idle", ArenaOptions{.evictable = true}), 2 * step};
    { const Buffer<char> gone{saver.arena("idle"), 2 * step}; }
    const auto reclaimed = [&](std::size_t bytes) { // from unused memory, the owner, and idle tags
        const Reclaimed got = saver.reclaim(bytes);
        CHECK(got.bytes() == got.unused_bytes + got.elastic_bytes + got.evicted_bytes);
        (void)saver.resume();
        return std::array{got.unused_bytes / step, got.elastic_bytes / step, got.evicted_bytes / step};
    };
    using Of = std::array<std::size_t, 3>;
    CHECK(reclaimed(2 * step) == Of{2, 0, 0});
    CHECK(wanted.empty());
    CHECK(contains(saver.reclaim(64 * step).why_not_more, "owners of elastic memory keep the rest"));
    (void)saver.resume();
    wanted.clear();
    CHECK(reclaimed(2 * step) == Of{0, 0, 2}); // it refuses
    CHECK(wanted == std::vector{2 * step});
    says = [](std::size_t bytes) { return bytes; };
    CHECK(reclaimed(step) == Of{0, 0, 2}); // it lies
    says = [&](std::size_t bytes) { return kv.resize(kv.committed_bytes() - bytes, already_idle), bytes; };
    CHECK(contains(printed(saver.reclaim(step)), "4.00 MiB of elastic memory"));
    CHECK(reclaimed(step) == Of{0, 1, 0});
    CHECK(row_of(saver, "kv").mapped_bytes == 8 * step);
    {
        const auto refuse = [&](std::size_t bytes) { return wanted.push_back(bytes), std::size_t{0}; };
        const Elastic other = saver.arena("other").elastic(step, {.granularity = step, .on_reclaim = refuse});
        says = [&](std::size_t) { return kv.resize(7 * step, already_idle), step; };
        wanted.clear();
        CHECK(reclaimed(3 * step) == Of{0, 1, 2});
        CHECK(wanted == std::vector{3 * step, 2 * step}); // who is asked next is asked for the rest
        kv.resize(8 * step);
    }
    says = [](std::size_t) -> std::size_t { throw std::runtime_error{"not now"}; };
    CHECK_THROWS_AS((void)saver.reclaim(step), std::runtime_error);
    says = [&](std::size_t) { return saver.pause("kv").released_bytes; }; // it is not a hook
    CHECK(reclaimed(step) == Of{0, 8, 0});
    says = [&](std::size_t) {
        return kv.resize(step), 7 * step;
    }; // more, after the device's work: reclaim waits for it
    CHECK(reclaimed(step) == Of{0, 7, 0});
    CHECK(machine.driver.handle_bytes() == 3 * step);
    wanted.clear();
    kv = {};
    (void)saver.reclaim(4 * step);
    CHECK(wanted.empty());
    check_books(saver, machine.driver);
}

TEST_CASE("elastic: any call without room asks the owners of other tags, and not its own") {
    const HostDriver driver{64_MiB};
    int asked = 0;
    MemorySaver saver{driver};
    Elastic kv;
    const auto give = [&](std::size_t bytes) {
        asked += 1;
        const std::size_t less = align_up(std::min(kv.committed_bytes(), bytes), step);
        kv.resize(kv.committed_bytes() - less, already_idle);
        return less;
    };
    kv = saver.arena("kv").elastic(1_GiB, {.granularity = step, .on_reclaim = give});
    kv.commit(0, 60_MiB);
    const Buffer<char> weights{saver.arena("weights", HostBackup{.threads = 1}), 20_MiB};
    CHECK(asked != 0);
    CHECK(kv.committed_bytes() <= 44_MiB);
    const std::function<void()> calls[] = {[&] { (void)saver.resume("weights"); }, [&] { (void)saver.use("weights"); }};
    for (const auto& call : calls) {
        (void)saver.pause("weights");
        kv.resize(64_MiB);
        asked = 0;
        call();
        CHECK(asked != 0);
    }
    asked = 0;
    CHECK_THROWS_AS(kv.commit(64_MiB, 64_MiB), OutOfMemory);
    CHECK(asked == 0);
    Elastic more = saver.arena("more").elastic(1_GiB, steps);
    more.commit(0, 16_MiB);
    CHECK(asked != 0);
    CHECK(driver.violations().empty());
}

TEST_CASE_FIXTURE(OnSaver, "elastic: a range is not made while its tag is dropped, and leaves no addresses") {
    const Arena arena = saver.arena("kv");
    (void)arena.allocate(step);
    Stuck dropping{machine.driver, Call::drain, [&] { saver.drop("kv"); }};
    check_says<Misuse>("is being dropped", [&] { (void)arena.elastic(1_GiB, steps); });
    dropping.go_on();
    CHECK(machine.driver.reserved_bytes() == 0);
}

TEST_CASE_FIXTURE(OnHostSaver,
                  "elastic: a range that ends in a capture stays for its replays, also with handles of blocks") {
    const bool single = either("a handle of its own for each", "shared handles");
    const OwnStream stream{machine.driver};
    const Arena arena = saver.arena("tag", HostBackup{.threads = 1}, ArenaOptions{.single_handle = single});
    Elastic kv = arena.elastic(4 * step, steps);
    kv.commit(0, step);
    const Graph graph = capture(saver, "tag", stream, [&] {
        fill_on(machine.driver, kv.data(), step, 1, stream);
        kv = {};
    });
    (void)saver.trim();
    CHECK(arena.usage().mapped_bytes >= step);
    replay(machine.driver, graph, stream);
}

TEST_CASE_FIXTURE(OnRange, "elastic: many threads commit and release their parts while another pauses and resumes") {
    kv.commit(60 * step, step);
    fill(machine.driver, kv, {60}, 5);
    std::atomic<bool> over{false};
    Threads threads{3, [&](std::size_t thread) {
                        for (std::size_t round = 0; round < 40; ++round) {
                            const std::size_t bytes = (1 + round % 4) * step;
                            try {
                                kv.commit(10 * thread * step, bytes);
                            } catch (const Misuse&) { // paused
                                std::this_thread::yield();
                                continue;
                            }
                            kv.release(10 * thread * step, bytes, round % 2 == 0 ? Order{} : already_idle);
                        }
                    }};
    Doing pauser{[&] {
        for (; !over; std::this_thread::yield()) pause_and_resume(saver, "kv");
    }};
    threads.join();
    over = true;
    pauser.join();
    CHECK(kv.committed_bytes() == step);
    CHECK(whole(machine.driver, kv, {60}, 5));
    (void)saver.trim();
    CHECK(machine.driver.handle_bytes() == step);
    check_books(saver, machine.driver);
}

TEST_CASE_FIXTURE(OnRange, "elastic: a commit that waited for a pause elsewhere is refused then; a release is done") {
    kv.commit(0, 2 * step);
    Stuck pausing{machine.driver, Call::unmap, [&] { (void)saver.pause("kv"); }};
    Doing commits{[&] { kv.commit(4 * step, step); }};
    Doing releases{[&] { kv.release(0, step, already_idle); }};
    CHECK_FALSE(commits.over());
    pausing.go_on();
    CHECK_THROWS_AS(commits.join(), Misuse);
    releases.join();
    CHECK(kv.committed_bytes() == step);
    CHECK(saver.bytes_to_resume("kv") == step);
}

TEST_CASE("elastic: the owner of a range whose tag has been dropped is not asked") {
    int asked = 0;
    int no_room = 0;
    MemorySaver saver{HostDriver{64_MiB}, {.on_no_room = [&](const NoRoom&) {
                          no_room += 1;
                          return false;
                      }}};
    Elastic kv;
    const auto drop = [&](std::size_t bytes) {
        asked += 1;
        saver.drop("kv"); // as another thread might do concurrently
        kv.resize(0);
        return bytes;
    };
    kv = saver.arena("kv").elastic(1_GiB, {.granularity = step, .on_reclaim = drop});
    kv.commit(0, 40_MiB);
    const Arena weights = saver.arena("weights");
    const Buffer<char> first{weights, 48_MiB};
    CHECK(asked == 1);
    CHECK(no_room == 0);
    CHECK_THROWS_AS((void)weights.allocate(48_MiB), OutOfMemory);
    CHECK(saver.reclaim(64_MiB).elastic_bytes == 0);
    CHECK(asked == 1);
    CHECK(no_room == 1);
}

TEST_CASE_FIXTURE(OnEither,
                  "elastic: switched off, and on plain memory, it works the same and is never paused" * on_machines) {
    int asked = 0;
    const Arena arena = enabled ? saver.outside().arena() : saver.arena("kv");
    const auto ask = [&](std::size_t) { return asked += 1, std::size_t{0}; };
    Elastic kv = arena.elastic(1_GiB, {.granularity = step, .on_reclaim = ask});
    kv.commit(1, 5 * step - 1);
    CHECK(machine.driver.handle_bytes() == 5 * step);
    fill(machine.driver, kv, {0, 4}, 1);
    (void)saver.pause();
    kv.release(step, step);
    kv.release(2 * step, step, already_idle);
    kv.release(3 * step, step, after(nullptr));
    CHECK(kv.committed_bytes() == 2 * step);
    CHECK(arena.usage().used_bytes == 2 * step);
    CHECK_THROWS_AS(kv.release(step, step), Misuse);
    CHECK_THROWS_AS(kv.commit(1_GiB, 1), Misuse);
    CHECK_THROWS_AS(arena.deallocate(kv.data()), Misuse);
    CHECK(whole(machine.driver, kv, {0, 4}, 1));
    const std::vector<char> nines(step, 9); // calls for memory that is paused change it where it is
    arena.write_backup(kv.data(), nines.data(), step);
    CHECK(all_are(machine.driver, kv.data(), step, 9));
    CHECK_THROWS_AS(arena.write_backup(kv.data(), nullptr, step), Misuse);
    CHECK_NOTHROW(saver.invalidate(kv.data(), step));
    CHECK_NOTHROW((void)saver.gate(kv.data(), step));
    CHECK_THROWS_AS(saver.invalidate(static_cast<char*>(kv.data()) + step, step), Misuse); // released
    kv.resize(8 * step);
    CHECK(kv.committed_bytes() == 5 * step);
    kv.resize(0);
    CHECK(saver.reclaim(0).bytes() + kv.committed_bytes() == 0);
    CHECK(asked == 0);
    const std::size_t released = machine.driver.handle_bytes(); // and not given back yet
    CHECK(saver.reclaim(1_GiB).bytes() == (enabled ? released : 0));
    CHECK(asked == (enabled ? 1 : 0));
    kv.commit(0, step);
    saver.close();
    CHECK_THROWS_AS(kv.commit(0, step), Misuse);
}

TEST_CASE_FIXTURE(OnEither,
                  "elastic: memory outside of tags that was released goes back, by a trim and for whoever needs it") {
    Elastic kv = saver.outside().arena().elastic(1_GiB, steps);
    const auto release = [&](std::size_t bytes) {
        kv.commit(0, bytes);
        kv.release(0, bytes);
    };
    release(256_MiB);
    const std::size_t released = saver.trim().released_bytes;
    CHECK(machine.driver.handle_bytes() == 0);
    if (enabled) CHECK(released == 256_MiB);
    release(256_MiB);
    const Buffer<char> needs{saver.arena("weights"), 384_MiB};
    CHECK(machine.driver.handle_bytes() == (enabled ? 384_MiB : 0));
    release(step);
    CHECK(saver.trim().released_bytes == (enabled ? step : 0));
    release(step);
    if (enabled) CHECK(saver.reclaim(step).unused_bytes == step);
}

TEST_CASE("elastic: an owner that ends its range when it is asked has given its bytes") {
    MemorySaver saver{HostDriver{16_MiB}};
    const Arena a = saver.arena("a");
    Elastic range;
    const auto end = [&](std::size_t bytes) { return range = {}, bytes; };
    const auto again = [&] {
        range = a.elastic(12_MiB, {.granularity = 2_MiB, .on_reclaim = end});
        range.commit(0, 12_MiB);
    };
    again();
    void* const block = saver.arena("b").allocate(12_MiB);
    saver.deallocate(block, already_idle);
    (void)saver.trim();
    again();
    CHECK(saver.reclaim(8_MiB).bytes() >= 8_MiB);
}

TEST_CASE_FIXTURE(OnHost, "elastic: close and drop wait for another device's work that may use what was released") {
    const bool drops = either("drop", "close");
    const HostDriver second{1_GiB, {.device = 1}};
    HeldStream stream{second};
    MemorySaver saver{machine.driver};
    (void)saver.arena("other", Discard{}, second);
    Elastic kv = saver.arena("kv").elastic(1_GiB, steps);
    kv.commit(0, step);
    kv.release(0, step, after(stream.get()));
    CHECK(machine.driver.handle_bytes() == step);
    Doing ending{[&] { drops ? saver.drop("kv") : saver.close(); }};
    std::this_thread::sleep_for(20ms);
    CHECK(machine.driver.handle_bytes() == step);
    stream.finish();
    ending.join();
    CHECK(machine.driver.handle_bytes() == 0);
}
} // namespace saver_elastic_test
