// Bytes in flight while the program continues: streamed resumes, and saving ahead.
#include "backup/backup_support.hpp"
#include "graph/graph_support.hpp"
#include "memsaver/backup/verified.hpp"
#include "support/each_of.hpp"
#include "support/manual_backup.hpp"
#include "support/vanished.hpp"

namespace saver_arrival_test {
using namespace test;

constexpr std::size_t layer = 1_MiB;

/// A block of `count` layers.
template <class D>
struct Layers : Filled<D> {
    Layers(const D& on, const Arena& arena, std::size_t count, std::uint64_t first = 1)
        : Filled<D>{on, arena, count * layer, first} {}
    [[nodiscard]] unsigned char* at(std::size_t i) const { return this->data() + i * layer; }
    /// Returns whether stream work that waits only for this layer reads the correct bytes.
    [[nodiscard]] bool right_behind(const Arrival& arrival, std::size_t i) const {
        const OwnStream stream{this->driver};
        arrival.before(stream, at(i), layer);
        return bytes_behind(this->driver, stream, at(i), layer) ==
               part_of(pattern(this->size(), this->seed), i * layer, layer);
    }
};

/// A policy whose copies a case holds and fails.
struct OnManual : OnSaver {
    OnManual() { copies.held = false; }

    const ManualBackup policy{};
    ManualCopies& copies = *policy.copies;
};

TEST_CASE_FIXTURE(OnSaver, "resume_async: memory is there at once, a layer's bytes after its own wait" * on_machines) {
    std::uint64_t seed = 0;
    for (const NamedPolicy& keeper : keepers()) {
        const std::string tag = keeper.name;
        CAPTURE(tag);
        const Layers weights{machine.driver, saver.arena(tag, keeper.policy), 5, seed += 10};
        for (int round = 0; round < 2; ++round) {
            saver.pause(tag);
            const std::size_t need = saver.bytes_to_resume(tag);
            const Arrival coming =
                saver.resume_async(tag, {.first = {{weights.at(3), layer}, {weights.at(1), 2 * layer}}});
            CHECK(row_of(saver, tag).mapped_bytes == need);
            check_books(saver, machine.driver);
            for (const std::size_t l : {3U, 1U, 4U, 0U, 2U}) CHECK(weights.right_behind(coming, l));
            coming.wait(weights.at(2), layer);
            coming.wait();
            CHECK(coming.done());
            CHECK(coming.report().restored_bytes == 5 * layer);
            CHECK(coming.report().mapped_bytes == need);
            CHECK(row_of(saver, tag).state == "active");
            CHECK(weights.whole());
        }
        saver.pause(tag);
    }
    saver.resume();
    check_books(saver, machine.driver);
}

TEST_CASE_FIXTURE(OnSaver, "resume_async: bytes arrive in the order asked for") {
    const AnyPolicy verified = Verified<HostBackup>{{.threads = 1}};
    const AnyPolicy policy = each_of<AnyPolicy>({HostBackup{}, HostBackup{.storage = Storage::pageable, .threads = 1},
                                                 FileBackup{.directory = "/tmp", .threads = 1}, verified});
    const Layers one{machine.driver, saver.arena("one", policy), 4};
    const Layers two{machine.driver, saver.arena("two", policy), 2};
    saver.pause();
    std::mutex mutex;
    std::vector<Range> seen;
    machine.driver.on_call([&](const CallRecord& made) {
        if (made.call != Call::copy_to_device) return;
        const std::lock_guard lock{mutex};
        seen.push_back({made.address, made.bytes});
    });
    const std::vector<BytesAt> first{{two.at(1), layer}, {one.at(2), layer}, {one.at(0), 2 * layer}};
    saver.resume_async({"one", "two"}, {.first = first}).wait();
    machine.driver.on_call({});
    const auto when = [&](const void* at) { // the layer's first copy
        const auto begin = address_of(at);
        return std::find_if(seen.begin(), seen.end(),
                            [&](const Range& range) { return range.address < begin + layer && begin < range.end(); });
    };
    const bool cut = !(policy == verified); // otherwise by pages
    if (cut) CHECK(when(one.at(2)) < when(one.at(3)));
    CHECK(when(one.at(2)) <= when(one.at(0)));
    if (cut) CHECK(when(one.at(1)) <= when(one.at(3)));
    CHECK(when(two.at(1)) <= when(two.at(0)));
    if (policy == AnyPolicy{HostBackup{}}) CHECK(when(two.at(1)) < when(one.at(2))); // requested first, copied first
    CHECK((one.whole() && two.whole()));
}

TEST_CASE_FIXTURE(OnManual, "an arrival is done when its bytes are, and not before" * on_hosts) {
    const Arena arena = saver.arena("manual", policy);
    const Layers a{machine.driver, arena, 1, 1};
    const Layers b{machine.driver, arena, 1, 2};
    saver.pause("manual");
    copies.held = true;
    std::optional<Arrival> coming{saver.resume_async("manual", {.first = {{b.at(0), layer}}})};
    const auto on_the_way = [&] { return !coming->done() && row_of(saver, "manual").state == "arriving"; };
    CHECK(on_the_way());
    CHECK(saver.bytes_to_resume("manual") == 0);
    copies.finish(b.at(0));
    CHECK(b.right_behind(*coming, 0));
    CHECK(on_the_way());
    const auto on_another_thread = [&](const std::function<void()>& act) {
        Doing other{act};
        copies.finish();
        other.join();
    };

    SUBCASE("a pause that may not wait") {
        CHECK_THROWS_AS(saver.pause("manual", {.timeout = 1ms}), NotIdle);
        CHECK_FALSE(coming->done());
        copies.finish();
    }
    SUBCASE("a second arrival of the same bytes") {
        const Arrival joined = saver.resume_async("manual");
        CHECK_FALSE(joined.done());
        copies.finish();
        CHECK(a.right_behind(joined, 0));
        joined.wait();
        CHECK(joined.report().restored_bytes == 2 * layer);
        CHECK(copies.seen(Way::back).size() == 2);
    }
    SUBCASE("new blocks, and blocks that are freed, meanwhile") {
        const Layers more{machine.driver, arena, 1, 7};
        saver.deallocate(arena.allocate(layer));
        copies.finish();
        coming->wait();
        CHECK(more.whole());
    }
    SUBCASE("its end, on another thread") {
        on_another_thread([&] { coming.reset(); });
        CHECK(row_of(saver, "manual").state == "active");
    }
    SUBCASE("an operation ends it") {
        on_another_thread([&] { (void)saver.resume("manual"); });
        CHECK(row_of(saver, "manual").state == "active");
    }
    SUBCASE("an allocation of another tag without room waits, and the error says so") {
        const auto out = saver.arena("other");
        on_another_thread([&] { CHECK_THROWS_AS((void)out.allocate(3_GiB), OutOfMemory); });
    }
    coming.reset();
    CHECK((a.whole() && b.whole()));
    copies.held = false;
    pause_and_resume(saver, "manual");
    CHECK(a.whole());
}

TEST_CASE_FIXTURE(OnSaver, "the same thread holds an arrival and pauses, trims, drops, exchanges" * on_machines) {
    const Arena arena = saver.arena("weights", HostBackup{});
    std::optional<Layers<MachineDriver>> weights{std::in_place, machine.driver, arena, 4};
    const Layers other{machine.driver, saver.arena("other", HostBackup{}), 4, 50};
    saver.pause("weights");
    {
        const Arrival coming = saver.resume_async("weights");
        CHECK(saver.pause("weights").saved_bytes == 4 * layer);
        CHECK(coming.done());
        coming.wait();
        CHECK(row_of(saver, "weights").state == "paused");
        const OwnStream stream{machine.driver};
        for (const auto& ask : std::vector<std::function<void()>>{[&] { coming.wait(weights->at(1), layer); },
                                                                  [&] { coming.before(stream, weights->at(1), layer); },
                                                                  [&] { coming.before(stream); }})
            check_says<Misuse>("tag \"weights\" has been paused since", ask);
        saver.resume("weights");
        coming.wait(weights->at(1), layer); // another resume has restored it
        coming.before(stream);
        saver.pause("weights");
    }
    {
        const Arrival coming = saver.resume_async("weights");
        saver.trim("weights");
        CHECK(row_of(saver, "weights").state == "active");
        CHECK(weights->whole());
    }
    saver.pause("weights");
    {
        const Arrival coming = saver.resume_async("weights");
        saver.invalidate("weights");
        saver.prepare("weights");
    }
    saver.pause("other");
    {
        saver.pause("weights");
        const Arrival coming = saver.resume_async("weights");
        saver.exchange("weights", "other");
        CHECK(other.whole());
    }
    {
        saver.pause("other");
        saver.resume("weights");
        const Arrival coming = saver.resume_async("other");
        saver.exchange("weights", "other");
        CHECK(other.whole());
        CHECK(row_of(saver, "weights").state == "paused");
    }
    {
        const Arrival coming = saver.resume_async("weights");
        weights.reset();
        saver.drop("weights");
        CHECK(coming.done());
        check_says<Misuse>("has been dropped", [&] { coming.wait(); });
    }
    check_books(saver, machine.driver);
}

TEST_CASE_FIXTURE(OnMachine, "a use of arriving tags does not wait for the bytes, and keeps them") {
    const std::size_t room = machine.free_bytes();
    MemorySaver saver{machine.driver};
    const Layers weights{machine.driver, saver.arena("weights", HostBackup{}), 4};
    const Buffer<char> other{saver.arena("other"), room - 6_MiB - 4 * layer};
    saver.pause("weights");
    { const Use used = saver.use("other"); }
    std::optional<HeldLane> lane{std::in_place, machine.driver, Direction::in};
    const Arrival coming = saver.resume_async("weights");
    {
        const Use use = saver.use("weights", {.await_bytes = false}); // would hang
        CHECK_FALSE(coming.done());
        CHECK(saver.usage().residency().hits == 2);
        CHECK_THROWS_AS((void)saver.pause("weights", {.timeout = std::chrono::nanoseconds{0}}), NotIdle);
        CHECK(saver.reclaim(room).evicted_bytes == other.size());
        CHECK(row_of(saver, "weights").state == "arriving");
        saver.set_evictable("weights", true);
        lane.reset();
        coming.wait(weights.at(3), layer);
        CHECK(weights.right_behind(coming, 2));
        coming.wait();
        CHECK(weights.whole());
    }
    CHECK(saver.reclaim(4 * layer).evicted_bytes == 4 * layer);
    const Use brought = saver.use("weights", {.await_bytes = false}); // nothing is in flight: it restores everything
    CHECK(weights.whole());
    CHECK(brought.lost().empty());
}

TEST_CASE_FIXTURE(OnManual, "one of an arrival's tags is dropped: the others' bytes are waited for" * on_hosts) {
    const bool waited_for = either("waited for", "not waited for");
    const Layers stays{machine.driver, saver.arena("stays", policy), 1};
    (void)saver.arena("goes", HostBackup{}).allocate(layer);
    saver.pause();
    copies.held = true;
    std::optional<Arrival> coming{saver.resume_async()};
    CHECK_FALSE(coming->done());
    copies.finish(); // a drop waits for the device
    saver.drop("goes");
    CHECK(stays.right_behind(*coming, 0));
    const OwnStream stream{machine.driver};
    coming->before(stream);
    if (waited_for) CHECK(coming->report().restored_bytes == layer);
    coming.reset();
    CHECK(row_of(saver, "stays").state == "active");
    CHECK(stays.whole());
}

TEST_CASE_FIXTURE(OnTold, "a failed restore: pages stay, waits throw, the next resume recovers" * on_hosts) {
    const bool waits = either("a resume", "a streamed resume");
    const ManualBackup policy;
    ManualCopies& copies = *policy.copies;
    copies.held = false;
    const Layers a{machine.driver, saver.arena("manual", policy), 2};
    const OwnStream stream{machine.driver};
    const Graph graph = capture(saver, "manual", stream, [&] { fill_on(machine.driver, a.at(0), 1, 7, stream); });
    saver.pause("manual");
    copies.fails = true;
    {
        std::optional<Arrival> coming{saver.resume_async("manual")};
        if (waits) {
            check_says<DriverError>("manual", [&] { coming->wait(); });
            CHECK_THROWS_AS((void)coming->report(), DriverError);
            CHECK(coming->done());
        } else {
            coming.reset();
            const std::vector<Event> ignored = told.of(EventKind::ignored);
            REQUIRE(ignored.size() == 1);
            CHECK(ignored[0].tag == "manual");
        }
        CHECK(row_of(saver, "manual").state == "arriving");
        check_says<Misuse>("could not be restored", [&] { graph.launch(stream); });
        saver.trim();
        CHECK(row_of(saver, "manual").mapped_bytes != 0);
    }
    check_books(saver, machine.driver);
    copies.fails = false;
    if (waits) CHECK(saver.resume("manual").restored_bytes == 2 * layer);
    if (!waits) saver.resume_async("manual").wait();
    CHECK(a.whole());
    replay(machine.driver, graph, stream);
}

TEST_CASE_FIXTURE(
    OnManual, "after a failed restore: who gives its pages up reports them as released, and an eviction counts them") {
    const Layers a{machine.driver, saver.arena("manual", policy, {.evictable = true}), 2};
    const std::size_t released = saver.pause("manual").released_bytes;
    copies.fails = true;
    CHECK_THROWS_AS(saver.resume_async("manual").wait(), DriverError);
    copies.fails = false;
    SUBCASE("pause") { CHECK(saver.pause("manual").released_bytes == released); }
    SUBCASE("reclaim") { CHECK(saver.reclaim(1).evicted_bytes == released); }
    SUBCASE("resume") { CHECK(saver.resume("manual").released_bytes == released); }
    CHECK(row_of(saver, "manual").pauses == 1);
    saver.resume("manual");
    CHECK(a.whole());
}

TEST_CASE_FIXTURE(OnStream, "a graph's launch waits in its stream for its own tag" * on_machines) {
    Outbox outbox{machine.driver, layer};
    const Layers weights{machine.driver, saver.arena("graph", HostBackup{}), 1};
    Graph graph = capture(saver, "graph", stream, [&] { outbox.fetch(weights.at(0), stream); });
    saver.pause("graph");
    check_says<Misuse>("tag \"graph\" is paused", [&] { graph.launch(stream); });
    const Arrival coming = saver.resume_async("graph");
    graph.launch(stream);
    CHECK(machine.driver.drain().ok());
    CHECK(outbox.bytes() == pattern(layer, weights.seed));
}

TEST_CASE_FIXTURE(OnSaver, "misuse of arrivals") {
    const Layers weights{machine.driver, saver.arena("weights", HostBackup{}), 2};
    const Layers other{machine.driver, saver.arena("other", HostBackup{}), 1};
    saver.pause("weights");
    for (const BytesAt& wrong :
         std::vector<BytesAt>{{other.at(0), layer}, {weights.at(1), 2 * layer}, {weights.at(1), 0}, {nullptr, 4}})
        check_says<Misuse>("are not in live blocks", [&] { (void)saver.resume_async("weights", {.first = {wrong}}); });
    CHECK(row_of(saver, "weights").state == "paused");
    CHECK_THROWS_AS((void)saver.resume_async("weights", {.bytes = HostBackup{}}), Misuse);
    const OwnStream stream{machine.driver};
    Arrival coming = saver.resume_async("weights");
    check_says<Misuse>("tags concerned (\"weights\")", [&] { coming.before(stream, other.at(0), 4); });
    CHECK_THROWS_AS(coming.wait(weights.at(1), layer + 1), Misuse);
    const Arrival earlier = saver.resume_async("weights"); // joins the other
    coming.wait();
    const Arrival resident = saver.resume_async("weights");
    saver.pause("weights");
    coming = saver.resume_async("weights");
    {
        const OwnCapture open{machine.driver, stream};
        for (const Arrival* each : {&std::as_const(coming), &earlier, &resident})
            check_says<Misuse>("being captured", [&] { each->before(stream); });
    }
    const Arrival moved = std::move(coming);
    CHECK_THROWS_AS(coming.wait(), Misuse); // NOLINT(bugprone-use-after-move): that is what is tested
    CHECK_FALSE(static_cast<bool>(coming));
    moved.before(stream);
    coming = saver.resume_async({"weights", "other"}, {.first = {{other.at(0), layer}}}); // "other" is already resident
    coming.wait(other.at(0), layer);
    CHECK(coming.report().tags.size() == 1);
    check_says<Misuse>("saves at every pause", [&] { (void)saver.save("weights"); });
    (void)saver.arena("dropped", Discard{});
    check_says<Misuse>("keeps no bytes", [&] { (void)saver.save("dropped"); });
    saver.save().wait(); // of all tags that can be saved
}

TEST_CASE_FIXTURE(OnManual, "hooks around a streamed resume: those after it run once the bytes are here") {
    const Layers a{machine.driver, saver.arena("manual", policy), 1};
    saver.pause("manual");
    copies.held = true;
    int before = 0;
    int after = 0;
    const Hook first = saver.before_resume([&](ResumeEvent& event) {
        CHECK(event.tags == std::vector<std::string>{"manual"});
        ++before;
    });
    const Hook last = saver.after_resume([&](ResumeEvent& event) {
        CHECK(event.report.restored_bytes == layer);
        CHECK(a.whole());
        ++after;
    });
    {
        const Arrival coming = saver.resume_async("manual");
        CHECK((before == 1 && after == 0));
        copies.finish();
        coming.wait();
        CHECK(after == 1);
        coming.wait();
        (void)coming.report();
    }
    copies.held = false;
    saver.pause("manual");
    {
        const Arrival coming = saver.resume_async("manual");
        saver.pause("manual");
    }
    CHECK(after == 1); // it is paused again
    {
        const Arrival coming = saver.resume_async("manual");
        pause_and_resume(saver, "manual");
        coming.wait();
    }
    CHECK(after == 2); // the resume ran the hooks: the arrival's bytes have been paused since
}

TEST_CASE_FIXTURE(OnSaver, "saved ahead: the pause copies nothing" * on_machines) {
    const AnyPolicy once = each_of<AnyPolicy>(
        {HostBackup{.refresh = Refresh::once}, HostBackup{.storage = Storage::pageable, .refresh = Refresh::once},
         FileBackup{.directory = "/tmp", .refresh = Refresh::once}, Verified<HostBackup>{{.refresh = Refresh::once}}});
    const Arena arena = saver.arena("frozen", once);
    const Layers frozen{machine.driver, arena, 4};
    {
        const OwnStream stream{machine.driver};
        const Arrival saved = saver.save("frozen", {.order = after(stream)});
        CHECK(frozen.whole()); // it may be read the whole time
        saved.wait();
        CHECK(saved.report().saved_bytes == 4 * layer);
    }
    const auto cycle = [&] { // returns how many bytes the pause saved
        const std::size_t bytes = saver.pause().saved_bytes;
        saver.resume();
        CHECK(frozen.whole());
        return bytes;
    };
    CHECK(saver.save("frozen").report().saved_bytes == 0);
    CHECK(row_of(saver, "frozen").backed_up_bytes == 4 * layer);
    CHECK(cycle() == 0);
    const Layers more{machine.driver, arena, 1, 7}; // a new block is saved by the pause
    CHECK(cycle() == layer);
    CHECK(more.whole());
    const Arrival undone = saver.save("frozen");
    saver.invalidate("frozen");
    CHECK(cycle() == 5 * layer);
    check_books(saver, machine.driver);
}

TEST_CASE_FIXTURE(OnSaver, "saving ahead fails for one tag: of those before it nothing counts as saved") {
    const Layers first{machine.driver, saver.arena("first", HostBackup{.refresh = Refresh::once}), 2};
    const Buffer<char> second{arena_in_vanished_directory(saver, "second", Refresh::once), 1_MiB};
    CHECK_THROWS_AS((void)saver.save({"first", "second"}), Error);
    CHECK(saver.pause("first").saved_bytes == 2 * layer); // the program had no reason to call invalidate
    saver.resume("first");
    CHECK(first.whole());
}

TEST_CASE_FIXTURE(
    OnHostSaver,
    "pausing a tag that is being saved ahead: a timeout does not wait for an executor that never runs its task") {
    struct Never final : Executor {
        void submit(std::function<void()> task) override { tasks.push_back(std::move(task)); }
        std::vector<std::function<void()>> tasks;
    };
    const HostBackup policy{
        .storage = Storage::pageable, .refresh = Refresh::once, .executor = std::make_shared<Never>()};
    const Layers frozen{machine.driver, saver.arena("frozen", policy), 2};
    const Arrival saved = saver.save("frozen");
    CHECK_NOTHROW((void)saver.pause("frozen", {.timeout = std::chrono::minutes{1}}));
    saver.resume("frozen");
    CHECK(frozen.whole());
}

TEST_CASE_FIXTURE(OnSaver, "an arrival is done as soon as its bytes are, while another thread frees their backup") {
    const Layers layers{machine.driver, saver.arena("w", HostBackup{.retain = false, .threads = 1}), 2};
    (void)saver.pause("w");
    const Arrival coming = saver.resume_async("w");
    {
        Stuck first{machine.driver, Call::unpin_host, [&] { coming.wait(); }};
        CHECK(coming.done());
        coming.before(StreamRef{});
        first.go_on();
    }
    CHECK(layers.whole());
}

TEST_CASE_FIXTURE(OnTold, "the end of an arrival swallows whatever a hook throws") {
    const Layers layers{machine.driver, saver.arena("w", HostBackup{.threads = 1}), 2};
    (void)saver.pause("w");
    const Hook hook = saver.after_resume([](ResumeEvent&) { throw 7; });
    { const Arrival coming = saver.resume_async("w"); }
    REQUIRE(!told.texts().empty());
    CHECK(contains(told.texts()[0], "hook threw"));
    CHECK(layers.whole());
}

TEST_CASE_FIXTURE(OnHostSaver,
                  "saving ahead after a failed restore: its pages are released first, and the backup is whole") {
    const bool told = either("the arrival is kept", "it has ended");
    const Arena arena = saver.arena("frozen", HostBackup{.refresh = Refresh::once, .threads = 1});
    const Layers away{machine.driver, arena, 2};
    saver.pause("frozen");
    const Layers here{machine.driver, arena, 1, 9};
    machine.driver.fail({.call = Call::wait, .lasting = Lasting::onwards, .kind = StatusKind::other});
    std::optional<Arrival> coming{saver.resume_async("frozen")};
    CHECK_THROWS_AS(coming->wait(), DriverError);
    machine.driver.heal();
    if (!told) coming.reset();
    saver.save("frozen").wait();
    for (int i = 0; i < 2; ++i) {
        saver.resume("frozen");
        CHECK((away.whole() && here.whole()));
        coming.reset();
        CHECK(saver.pause("frozen").released_bytes > 0);
    }
}

TEST_CASE_FIXTURE(OnSaver, "forget_backup, write_backup: after a failed restore the memory is paused as before") {
    const Arena arena = saver.arena("w", Verified<HostBackup>{});
    const Layers a{machine.driver, arena, 2};
    saver.pause("w");
    const BackupView view = saver.backup_view(a.at(0), 2 * layer);
    const_cast<std::byte*>(view.data())[layer] ^= std::byte{1};
    CHECK_THROWS_AS(saver.resume_async("w").wait(), BackupDamaged);
    CHECK(row_of(saver, "w").state == "arriving");
    SUBCASE("forget_backup") {
        saver.forget_backup("w");
        CHECK(row_of(saver, "w").backed_up_bytes == 0);
        CHECK(saver.resume("w").restored_bytes == 0);
    }
    SUBCASE("write_backup") {
        const std::vector<unsigned char> bytes = pattern(2 * layer, a.seed);
        saver.write_backup(a.at(0), bytes.data(), bytes.size());
        CHECK(saver.resume("w").restored_bytes == 2 * layer);
        CHECK(a.whole());
    }
    check_books(saver, machine.driver);
}
} // namespace saver_arrival_test
