// Bytes in flight while the program continues: streamed resumes, and saving ahead.
#include "backup/backup_support.hpp"
#include "graph/graph_support.hpp"
#include "memsaver/backup/verified.hpp"
#include "support/machines.hpp"
#include "support/manual_backup.hpp"
#include "support/vanished.hpp"

namespace saver_arrival_test {
using namespace test;

constexpr std::size_t layer = 1_MiB;

/// A block of `count` layers, each with its own pattern.
template <class D>
struct Layers {
    Layers(const D& on, const Arena& arena, std::size_t count, std::uint64_t seed = 1)
        : driver{on}, first{seed}, block{arena, count * layer} {
        for (std::size_t i = 0; i < count; ++i) write_bytes(driver, at(i), pattern(layer, first + i));
    }
    [[nodiscard]] char* at(std::size_t i) const { return block.data() + i * layer; }
    [[nodiscard]] std::size_t count() const { return block.size() / layer; }
    [[nodiscard]] bool whole() const {
        for (std::size_t i = 0; i < count(); ++i) {
            if (read_bytes(driver, at(i), layer) != pattern(layer, first + i)) return false;
        }
        return true;
    }
    /// Returns whether stream work that waits only for this layer reads the correct bytes.
    [[nodiscard]] bool right_behind(const Arrival& arrival, std::size_t i) const {
        const OwnStream stream{driver};
        arrival.before(stream, at(i), layer);
        return bytes_behind(driver, stream, at(i), layer) == pattern(layer, first + i);
    }

    const D& driver;
    std::uint64_t first;
    Buffer<char> block;
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
    for (const AnyPolicy& policy :
         {AnyPolicy{HostBackup{}}, AnyPolicy{HostBackup{.storage = Storage::pageable, .threads = 1}},
          AnyPolicy{FileBackup{.directory = "/tmp", .threads = 1}}, AnyPolicy{Verified<HostBackup>{{.threads = 1}}}}) {
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
        const Arrival coming = saver.resume_async({"one", "two"}, {.first = first});
        coming.wait();
        machine.driver.on_call({});
        const auto when = [&](const char* at) { // the layer's first copy
            return std::find_if(seen.begin(), seen.end(),
                                [&](const Range& range) {
                                    return range.address < address_of(at) + layer && address_of(at) < range.end();
                                }) -
                   seen.begin();
        };
        const bool cut = !(policy == AnyPolicy{Verified<HostBackup>{{.threads = 1}}}); // otherwise by pages
        if (cut) CHECK(when(one.at(2)) < when(one.at(3)));
        CHECK(when(one.at(2)) <= when(one.at(0)));
        if (cut) CHECK(when(one.at(1)) <= when(one.at(3)));
        CHECK(when(two.at(1)) <= when(two.at(0)));
        if (policy == AnyPolicy{HostBackup{}})
            CHECK(when(two.at(1)) < when(one.at(2))); // requested first, copied first
        CHECK(one.whole());
        CHECK(two.whole());
        saver.drop({"one", "two"});
    }
}

TEST_CASE_FIXTURE(OnSaver, "an arrival is done when its bytes are, and not before" * on_hosts) {
    const ManualBackup policy;
    const Arena arena = saver.arena("manual", policy);
    const Layers a{machine.driver, arena, 1, 1};
    const Layers b{machine.driver, arena, 1, 2};
    policy.copies->held = false;
    saver.pause("manual");
    policy.copies->held = true;
    std::optional<Arrival> coming{saver.resume_async("manual", {.first = {{b.at(0), layer}}})};
    CHECK_FALSE(coming->done());
    CHECK(row_of(saver, "manual").state == "arriving");
    CHECK(saver.bytes_to_resume("manual") == 0);
    policy.copies->finish(b.at(0));
    CHECK(b.right_behind(*coming, 0));
    CHECK_FALSE(coming->done());
    CHECK(row_of(saver, "manual").state == "arriving");

    SUBCASE("a pause that may not wait") {
        CHECK_THROWS_AS(saver.pause("manual", {.timeout = std::chrono::milliseconds{1}}), NotIdle);
        CHECK_FALSE(coming->done());
        policy.copies->finish();
    }
    SUBCASE("a second arrival of the same bytes") {
        const Arrival joined = saver.resume_async("manual");
        CHECK_FALSE(joined.done());
        policy.copies->finish();
        CHECK(a.right_behind(joined, 0));
        joined.wait();
        CHECK(joined.report().restored_bytes == 2 * layer);
        CHECK(policy.copies->seen(Way::back).size() == 2);
    }
    SUBCASE("new blocks, and blocks that are freed, meanwhile") {
        void* const more = arena.allocate(1_MiB);
        write_bytes(machine.driver, more, pattern(1_MiB, 7));
        void* const gone = arena.allocate(layer);
        saver.deallocate(gone);
        policy.copies->finish();
        coming->wait();
        CHECK(read_bytes(machine.driver, more, 1_MiB) == pattern(1_MiB, 7));
        saver.deallocate(more);
    }
    SUBCASE("its end, on another thread") {
        std::thread other{[&] { coming.reset(); }};
        policy.copies->finish();
        other.join();
        CHECK(row_of(saver, "manual").state == "active");
    }
    SUBCASE("an operation ends it") {
        std::thread other{[&] { (void)saver.resume("manual"); }};
        policy.copies->finish();
        other.join();
        CHECK(row_of(saver, "manual").state == "active");
    }
    SUBCASE("an allocation of another tag without room waits, and the error says so") {
        const auto out = saver.arena("other");
        std::thread other{[&] { CHECK_THROWS_AS((void)out.allocate(3_GiB), OutOfMemory); }};
        policy.copies->finish();
        other.join();
    }
    coming.reset();
    CHECK(a.whole());
    CHECK(b.whole());
    policy.copies->held = false;
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
            CHECK(contains(text_of<Misuse>(ask), "tag \"weights\" has been paused since"));
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
        CHECK(contains(text_of<Misuse>([&] { coming.wait(); }), "has been dropped"));
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

TEST_CASE_FIXTURE(OnSaver, "one of an arrival's tags is dropped: the others' bytes are waited for" * on_hosts) {
    const ManualBackup policy;
    const Layers stays{machine.driver, saver.arena("stays", policy), 1};
    (void)saver.arena("goes", HostBackup{}).allocate(layer);
    policy.copies->held = false;
    saver.pause();
    policy.copies->held = true;
    std::optional<Arrival> coming{saver.resume_async()};
    CHECK_FALSE(coming->done());
    policy.copies->finish(); // a drop waits for the device
    saver.drop("goes");
    CHECK(stays.right_behind(*coming, 0));
    const OwnStream stream{machine.driver};
    coming->before(stream);
    SUBCASE("waited for") { CHECK(coming->report().restored_bytes == layer); }
    SUBCASE("not waited for") {}
    coming.reset();
    CHECK(row_of(saver, "stays").state == "active");
    CHECK(stays.whole());
    policy.copies->held = false;
}

TEST_CASE("a failed restore: pages stay, waits throw, the next resume recovers" * on_hosts) {
    const Checked machine;
    Told told_events;
    MemorySaver saver{machine.driver, {.events = told_events.sink()}};
    const ManualBackup policy;
    const Layers a{machine.driver, saver.arena("manual", policy), 2};
    const OwnStream stream{machine.driver};
    Graph graph = capture(saver, "manual", stream,
                          [&] { check(machine.driver.fill(address_of(a.at(0)), 7, 1, stream), "fill"); });
    policy.copies->held = false;
    saver.pause("manual");
    policy.copies->fails = true;
    bool told = true;
    SUBCASE("a resume") {}
    SUBCASE("a streamed resume") { told = false; }
    {
        std::optional<Arrival> coming{saver.resume_async("manual")};
        if (told) {
            CHECK(contains(text_of<DriverError>([&] { coming->wait(); }), "manual"));
            CHECK_THROWS_AS((void)coming->report(), DriverError);
            CHECK(coming->done());
        }
        if (!told) { // nothing waited for it
            coming.reset();
            const std::vector<Event> ignored = told_events.of(EventKind::ignored);
            REQUIRE(ignored.size() == 1);
            CHECK(ignored[0].tag == "manual");
        }
        CHECK(row_of(saver, "manual").state == "arriving");
        CHECK(row_of(saver, "manual").mapped_bytes != 0);
        CHECK(contains(text_of<Misuse>([&] { graph.launch(stream); }), "could not be restored"));
        saver.trim();
        CHECK(row_of(saver, "manual").mapped_bytes != 0);
    }
    check_books(saver, machine.driver);
    policy.copies->fails = false;
    if (told) CHECK(saver.resume("manual").restored_bytes == 2 * layer);
    if (!told) saver.resume_async("manual").wait();
    CHECK(a.whole());
    graph.launch(stream);
    CHECK(machine.driver.drain().ok());
}

TEST_CASE("after a failed restore: who gives its pages up reports them as released, and an eviction counts them") {
    const Checked machine{host_machine};
    MemorySaver saver{machine.driver};
    const ManualBackup policy;
    policy.copies->held = false;
    const Layers a{machine.driver, saver.arena("manual", policy, {.evictable = true}), 2};
    const std::size_t released = saver.pause("manual").released_bytes;
    policy.copies->fails = true;
    CHECK_THROWS_AS(saver.resume_async("manual").wait(), DriverError);
    policy.copies->fails = false;
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
    CHECK_THROWS_AS(graph.launch(stream), Misuse);
    const Arrival coming = saver.resume_async("graph");
    graph.launch(stream);
    CHECK(machine.driver.drain().ok());
    CHECK(outbox.bytes() == pattern(layer, weights.first));
}

TEST_CASE_FIXTURE(OnSaver, "misuse of arrivals") {
    const Layers weights{machine.driver, saver.arena("weights", HostBackup{}), 2};
    const Layers other{machine.driver, saver.arena("other", HostBackup{}), 1};
    saver.pause("weights");
    const auto first = [&](const void* at, std::size_t bytes) {
        return text_of<Misuse>([&] { (void)saver.resume_async("weights", {.first = {{at, bytes}}}); });
    };
    CHECK(contains(first(other.at(0), layer), "are not in live blocks"));
    CHECK(contains(first(weights.at(1), 2 * layer), "are not in live blocks"));
    CHECK(contains(first(weights.at(1), 0), "are not in live blocks"));
    CHECK(contains(first(nullptr, 4), "are not in live blocks"));
    CHECK(row_of(saver, "weights").state == "paused");
    CHECK_THROWS_AS((void)saver.resume_async("weights", {.bytes = HostBackup{}}), Misuse);
    const OwnStream stream{machine.driver};
    Arrival coming = saver.resume_async("weights");
    CHECK(contains(text_of<Misuse>([&] { coming.before(stream, other.at(0), 4); }), "tags concerned (\"weights\")"));
    CHECK_THROWS_AS(coming.wait(weights.at(1), layer + 1), Misuse);
    const Arrival earlier = saver.resume_async("weights"); // joins the other
    coming.wait();
    const Arrival resident = saver.resume_async("weights");
    saver.pause("weights");
    coming = saver.resume_async("weights");
    REQUIRE(machine.driver.begin_capture(stream, CaptureMode::relaxed).ok());
    for (const Arrival* each : {&std::as_const(coming), &earlier, &resident})
        CHECK(contains(text_of<Misuse>([&] { each->before(stream); }), "being captured"));
    GraphRef graph;
    REQUIRE(machine.driver.end_capture(stream, graph).ok());
    REQUIRE(machine.driver.close_graph(graph).ok());
    const Arrival moved = std::move(coming);
    CHECK_THROWS_AS(coming.wait(), Misuse); // NOLINT(bugprone-use-after-move): that is what is tested
    CHECK_FALSE(static_cast<bool>(coming));
    moved.before(stream);
    coming = saver.resume_async({"weights", "other"}, {.first = {{other.at(0), layer}}}); // "other" is already resident
    coming.wait(other.at(0), layer);
    CHECK(coming.report().tags.size() == 1);
    CHECK(contains(text_of<Misuse>([&] { (void)saver.save("weights"); }), "saves at every pause"));
    (void)saver.arena("dropped", Discard{});
    CHECK(contains(text_of<Misuse>([&] { (void)saver.save("dropped"); }), "keeps no bytes"));
    saver.save().wait(); // of all tags that can be saved
}

TEST_CASE_FIXTURE(OnSaver, "hooks around a streamed resume: those after it run once the bytes are here") {
    const ManualBackup policy;
    const Layers a{machine.driver, saver.arena("manual", policy), 1};
    policy.copies->held = false;
    saver.pause("manual");
    policy.copies->held = true;
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
        policy.copies->finish();
        coming.wait();
        CHECK(after == 1);
        coming.wait();
        (void)coming.report();
    }
    policy.copies->held = false;
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
    const std::vector<AnyPolicy> once{
        HostBackup{.refresh = Refresh::once}, HostBackup{.storage = Storage::pageable, .refresh = Refresh::once},
        FileBackup{.directory = "/tmp", .refresh = Refresh::once}, Verified<HostBackup>{{.refresh = Refresh::once}}};
    for (std::size_t i = 0; i < once.size(); ++i) {
        const std::string tag = "frozen" + std::to_string(i);
        CAPTURE(tag);
        const Arena arena = saver.arena(tag, once[i]);
        const Layers frozen{machine.driver, arena, 4, 10 * i};
        {
            const OwnStream stream{machine.driver};
            const Arrival saved = saver.save(tag, {.order = after(stream)});
            CHECK(frozen.whole()); // it may be read the whole time
            saved.wait();
            CHECK(saved.report().saved_bytes == 4 * layer);
        }
        CHECK(saver.save(tag).report().saved_bytes == 0);
        CHECK(row_of(saver, tag).backed_up_bytes == 4 * layer);
        CHECK(saver.pause(tag).saved_bytes == 0);
        saver.resume(tag);
        CHECK(frozen.whole());

        const Layers more{machine.driver, arena, 1, 10 * i + 7}; // a new block is saved by the pause
        CHECK(saver.pause(tag).saved_bytes == layer);
        saver.resume(tag);
        CHECK(more.whole());
        const Arrival undone = saver.save(tag);
        saver.invalidate(tag);
        CHECK(saver.pause(tag).saved_bytes == 5 * layer);
        saver.resume(tag);
        CHECK(frozen.whole());
        saver.pause(tag);
    }
    saver.resume();
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

TEST_CASE("pausing a tag that is being saved ahead: a timeout does not wait for an executor that never runs its task") {
    struct Never final : Executor {
        void submit(std::function<void()> task) override { tasks.push_back(std::move(task)); }
        std::vector<std::function<void()>> tasks;
    };
    const Checked machine{host_machine};
    MemorySaver saver{machine.driver};
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

TEST_CASE("saving ahead after a failed restore: its pages are released first, and the backup is whole") {
    for (const bool told : {false, true}) {
        CAPTURE(told);
        const Checked machine{host_machine};
        MemorySaver saver{machine.driver};
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
        saver.resume("frozen");
        CHECK(away.whole());
        CHECK(here.whole());
        coming.reset();
        CHECK(saver.pause("frozen").released_bytes > 0);
        saver.resume("frozen");
        CHECK(away.whole());
        CHECK(here.whole());
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
        std::vector<unsigned char> bytes = pattern(layer, 1);
        const std::vector<unsigned char> second = pattern(layer, 2);
        bytes.insert(bytes.end(), second.begin(), second.end());
        saver.write_backup(a.at(0), bytes.data(), bytes.size());
        CHECK(saver.resume("w").restored_bytes == 2 * layer);
        CHECK(a.whole());
    }
    check_books(saver, machine.driver);
}
} // namespace saver_arrival_test
