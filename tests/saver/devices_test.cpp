// One saver on several devices: which device streams and events belong to, which device was out of memory, which was
// waited for, and the loss of one. Uses any number of host machines.
#include "backup/backup_support.hpp"
#include "support/each_of.hpp"

namespace saver_devices_test {
using namespace test;
constexpr auto moment = 1ms;

/// Returns a device's row of a report.
TagReport row_on(const Report& report, int device) {
    for (const TagReport& row : report.tags) {
        if (row.device == device) return row;
    }
    FAIL("no row for device " << device);
    return {};
}

/// A machine that reports a nearby host node, and counts the queries.
struct Near : DeviceAround {
    Near(const MachineDriver& driver, std::atomic<int>& counter) : DeviceAround{driver}, asked{counter} {}
    [[nodiscard]] int numa_node() const noexcept override {
        ++asked;
        return 0;
    }
    std::atomic<int>& asked;
};

/// A machine that does not know whose a stream or an event is.
struct Untelling : DeviceAround {
    using DeviceAround::DeviceAround;
    Status owns_stream(StreamRef, bool&) noexcept override { return unsupported; }
    Status owns_event(EventRef, bool&) noexcept override { return unsupported; }
};

TEST_CASE("devices: after(...) takes streams and events of every device, whichever tags it is about") {
    const Checked first{0};
    const Checked second{1};
    const Checked third{2};
    MemorySaver saver{first.driver};
    (void)saver.arena("tag").allocate(2_MiB);
    (void)saver.arena("tag", Discard{}, second.driver).allocate(2_MiB);
    (void)saver.arena("other", Discard{}, third.driver).allocate(2_MiB);
    const auto mapped = [&] { return first.driver.handle_bytes() + second.driver.handle_bytes(); };
    const HeldStream a{first.driver};
    const HeldStream b{second.driver};
    const HeldStream c{third.driver};
    const HeldStream d{second.driver};
    OwnedEvent event;
    REQUIRE(event.open(second.driver.inner(), d.get()).ok());
    REQUIRE(second.driver.inner().record(event.get(), d.get()).ok());

    const Order order = after(event.get(), c.get(), b.get(), a.get());
    for (const HeldStream* const held : {&a, &b, &c, &d}) {
        CHECK_THROWS_AS((void)saver.pause("tag", {.order = order, .timeout = moment}), NotIdle);
        CHECK_THROWS_AS((void)saver.trim("tag", {.order = order, .timeout = moment}), NotIdle);
        CHECK(mapped() == 4_MiB);
        held->finish();
    }
    CHECK(saver.pause("tag", {.order = order}).released_bytes == 4_MiB);
    CHECK(mapped() == 0);
    (void)saver.resume("tag");
    (void)saver.trim("tag", {.order = order});

    // A tag on one device, a stream of another: work there may read the tag as a peer.
    CHECK(saver.pause("other", {.order = after(a.get())}).released_bytes == 2_MiB);
}

TEST_CASE("devices: a stream of machines that do not know whose it is counts as the first one's") {
    const Checked first{0};
    const Checked second{1};
    MemorySaver saver{AnyDriver{std::make_shared<Untelling>(first.driver)}};
    (void)saver.arena("tag").allocate(2_MiB);
    (void)saver.arena("tag", Discard{}, AnyDriver{std::make_shared<Untelling>(second.driver)}).allocate(2_MiB);
    const HeldStream held{first.driver};
    CHECK_THROWS_AS((void)saver.pause("tag", {.order = after(held.get()), .timeout = moment}), NotIdle);
    held.finish();
    CHECK(saver.pause("tag", {.order = after(held.get())}).released_bytes == 4_MiB);
}

TEST_CASE("devices: what a policy copies and codes is not on the device's default stream" * on_hosts) {
    const HostDriver host{256_MiB};
    MemorySaver saver{host};
    const Arena arena = saver.arena("tag", each_of(keepers()).policy);
    const Filled block{host, arena, 2_MiB};
    REQUIRE(host.hold({}).ok());
    REQUIRE(host.enqueue({}, [] {}).ok());
    (void)saver.pause({.order = already_idle, .timeout = 10s});
    saver.resume();
    CHECK(block.whole());
    REQUIRE(host.let_go({}).ok());
}

TEST_CASE_FIXTURE(OnTwo, "devices: the default stream is that of every device concerned") {
    (void)saver.arena("tag").allocate(2_MiB);
    (void)saver.arena("tag", Discard{}, second.driver).allocate(2_MiB);
    const HostDriver host = host_of(second.driver);
    std::atomic<bool> done{false};
    REQUIRE(host.hold({}).ok());
    REQUIRE(host.enqueue({}, [&] { done = true; }).ok());
    CHECK_THROWS_AS((void)saver.pause({.order = after(StreamRef{}), .timeout = moment}), NotIdle);
    REQUIRE(host.let_go({}).ok());
    (void)saver.pause({.order = after(StreamRef{})});
    CHECK(done);
}

TEST_CASE("devices: each one's work is done in order, the first's by the caller, the others' by threads near them") {
    std::atomic<int> asked[3]{};
    const Checked machines[3]{Checked{0}, Checked{1}, Checked{2}};
    std::vector<AnyDriver> near;
    for (std::size_t i = 0; i < 3; ++i) near.emplace_back(std::make_shared<Near>(machines[i].driver, asked[i]));
    MemorySaver saver{near[0]};
    std::map<Address, int> order; // of the blocks at these addresses
    for (const char* tag : {"a", "b", "c"}) {
        for (const AnyDriver& device : near) {
            void* const block = saver.arena(tag, Discard{}, device).allocate(2_MiB);
            order.emplace(address_of(block), static_cast<int>(order.size()));
        }
    }
    std::mutex mutex;
    std::vector<std::thread::id> threads[3];
    std::vector<int> unmapped[3];
    for (std::size_t i = 0; i < 3; ++i) {
        machines[i].driver.on_call([&, i](const CallRecord& made) {
            if (made.call != Call::unmap) return;
            const std::lock_guard lock{mutex};
            threads[i].push_back(std::this_thread::get_id());
            unmapped[i].push_back(order.at(made.address));
        });
    }
    (void)saver.pause();
    for (std::size_t i = 0; i < 3; ++i) {
        machines[i].driver.on_call({});
        const int first = static_cast<int>(i);
        CHECK(unmapped[i] == std::vector<int>{first, first + 3, first + 6});
        for (const std::thread::id thread : threads[i]) {
            CHECK(thread == threads[i].front());
            CHECK((thread == std::this_thread::get_id()) == (i == 0));
        }
    }
    CHECK(asked[0] == 0); // runs on the caller's thread
    CHECK(asked[1] != 0);
    CHECK(asked[2] != 0);
}

TEST_CASE_FIXTURE(OnTwo, "devices: a block cannot be freed with another device's stream, but after an event of it") {
    const Arena here = saver.arena("tag", Discard{}, {.capacity = 32_MiB});
    (void)saver.arena("tag", Discard{}, second.driver).allocate(2_MiB);
    const HeldStream there{second.driver};
    void* const block = here.allocate(32_MiB);
    for (const bool by_arena : {true, false}) {
        const std::string text = text_of<Misuse>(
            [&] { by_arena ? here.deallocate(block, there.get()) : saver.deallocate(block, there.get()); });
        CHECK(contains(text, "tag \"tag\""));
        CHECK(contains(text, "record an event in it, make a stream of device 0 wait for that event"));
        CHECK(here.usage().blocks == 1);
    }
    there.finish();
    saver.deallocate(block, already_idle);
}

TEST_CASE_FIXTURE(OnTwo, "devices: out of memory says what the device that refused needed, and what it has") {
    (void)saver.arena("a").allocate(64_MiB);
    (void)saver.arena("a", Discard{}, second.driver).allocate(256_MiB);
    (void)saver.arena("b", Discard{}, second.driver).allocate(32_MiB);
    (void)saver.arena("b", Discard{}, first.driver).allocate(128_MiB);
    (void)saver.pause();
    const auto refusal = [&] {
        const auto error = thrown<OutOfMemory>([&] { (void)saver.resume(); });
        const auto unused = thrown<OutOfMemory>([&] { (void)saver.use({"a", "b"}); });
        CHECK(unused.device() == error.device());
        const std::pair lacks{error.needed_bytes(), error.free_bytes()};
        CHECK(lacks == std::pair{unused.needed_bytes(), unused.free_bytes()});
        return lacks;
    };
    {
        const Ballast ballast{second.driver, 20_MiB};
        CHECK(refusal() == std::pair{288_MiB, 20_MiB});
    }
    {
        const Ballast ballast{first.driver, 130_MiB}; // enough for either of the two
        CHECK(refusal() == std::pair{192_MiB, 130_MiB});
    }
    CHECK(first.driver.handle_bytes() + second.driver.handle_bytes() == 0);
    CHECK_NOTHROW((void)saver.resume());
}

TEST_CASE_FIXTURE(OnTwo, "devices: a report says for each device how long it was waited for") {
    (void)saver.arena("tag").allocate(2_MiB);
    (void)saver.arena("tag", Discard{}, second.driver).allocate(2_MiB);
    second.driver.on_call([](const CallRecord& made) {
        if (made.call == Call::wait) std::this_thread::sleep_for(200ms);
    });
    for (const bool named : {false, true}) {
        CAPTURE(named);
        const OwnStream stream{second.driver};
        const Report report = saver.pause("tag", {.order = named ? after(stream) : Order{}});
        CHECK(row_on(report, 1).waited >= 200ms);
        CHECK(row_on(report, 0).waited < row_on(report, 1).waited);
        CHECK(report.elapsed >= row_on(report, 1).waited);
        (void)saver.resume();
    }
}

TEST_CASE_FIXTURE(OnTwo, "devices: NotIdle names the tags and the device that was still at work") {
    (void)saver.arena("kv").allocate(2_MiB);
    (void)saver.arena("weights", Discard{}, second.driver).allocate(2_MiB);
    (void)saver.arena("empty", Discard{}, second.driver);
    const HeldStream held{second.driver};
    const std::string text = text_of<NotIdle>([&] { (void)saver.pause({.timeout = moment}); });
    CHECK(text == "tags \"kv\", \"weights\": the timeout expired while device 1 was busy; nothing has changed");
    (void)saver.pause("kv", {.timeout = 1min}); // the other device is not involved
}

TEST_CASE("devices: usage shows the others when one is lost") {
    const HostDriver lost{2_GiB, {.device = 1}};
    const FaultyDriver second{lost};
    const Checked first{0};
    MemorySaver saver{first.driver};
    (void)saver.arena("here").allocate(6_MiB);
    (void)saver.arena("there", Discard{}, second).allocate(10_MiB);
    lost.lose();
    const Usage usage = saver.usage();
    REQUIRE(usage.devices().size() == 2);
    const DeviceUsage& well = usage.devices()[0];
    CHECK((well.known && well.total_bytes == 512_MiB && well.used_bytes == 6_MiB));
    const DeviceUsage& gone = usage.devices()[1];
    CHECK((!gone.known && gone.total_bytes == 0 && gone.used_bytes == 0 && gone.unexplained_bytes == 0));
    CHECK(gone.mapped_bytes == 10_MiB);
    CHECK(row_of(saver, "there").state == "active");
    const std::string text = printed(usage);
    CHECK(contains(text, "device 0: 6.00 MiB of 512.00 MiB used"));
    CHECK(contains(text, "device 1: memory query failed, 10.00 MiB used by these tags"));
    // The healthy device keeps working.
    const OwnStream stream{first.driver};
    CHECK(saver.pause("here", {.order = after(stream)}).released_bytes == 6_MiB);
    (void)saver.resume("here");
    saver.close();
}

TEST_CASE("devices: options set for a tag hold on devices that it uses later") {
    const HostDriver first{64_MiB};
    const HostDriver second{64_MiB, {.device = 1}};
    MemorySaver saver{first};
    (void)saver.arena("a");
    saver.set_capacity("a", 4_MiB);
    CHECK_THROWS_AS((void)saver.arena("a", Discard{}, AnyDriver{second}, {.evictable = true}), Misuse);
    CHECK_THROWS_AS((void)saver.arena("a", Discard{}, AnyDriver{second}, {.priority = 7}), Misuse);
    saver.set_evictable("a", true);
    const Arena there = saver.arena("a", Discard{}, AnyDriver{second}, {.evictable = true});
    CHECK(there.usage().evictable);
    CHECK_THROWS_AS((void)there.allocate(8_MiB), Misuse);
    CHECK(there.allocate(4_MiB) != nullptr);
}

/// Calls a function when the first memory of a tag is made on another device.
struct Meanwhile {
    std::function<void()>* act;

    [[nodiscard]] std::string_view name() const noexcept { return "meanwhile"; }
    [[nodiscard]] static constexpr bool keeps_bytes() noexcept { return false; }
    [[nodiscard]] auto open(const AnyDriver& driver) const {
        if (driver.device() != 0) std::exchange(*act, [] {})();
        return Zero{}.open(driver);
    }
    friend bool operator==(const Meanwhile&, const Meanwhile&) = default;
};

TEST_CASE("devices: a tag that comes to another device stays usable where it is, and may be dropped there meanwhile") {
    const bool drops = either("dropped meanwhile", "kept");
    MemorySaver<> saver{AnyDriver{HostDriver{64_MiB}}};
    std::function<void()> act = [&] {
        CHECK(saver.arena("a").allocate(1_MiB) != nullptr);
        if (drops) saver.drop("a");
    };
    (void)saver.arena("a", Meanwhile{&act});
    const Arena there = saver.arena("a", Meanwhile{&act}, AnyDriver{HostDriver{64_MiB, {.device = 1}}});
    CHECK(there.allocate(1_MiB) != nullptr);
    CHECK(saver.usage().size() == (drops ? 1 : 2));
    (void)saver.pause("a");
    (void)saver.use("a");
    saver.drop("a");
}

TEST_CASE("devices: a tag that cannot come to another device is used where it is") {
    const Checked near{host_machine};
    const Checked far{host_machine, 1};
    MemorySaver saver{near.driver};
    const Filled block{near.driver, saver.arena("a", HostBackup{.threads = 1}), 1_MiB};
    CHECK_THROWS_AS((void)saver.arena("a", HostBackup{.threads = 1}, far.driver, {.reserve = 600_MiB}), Error);
    saver.pause("a");
    (void)saver.use("a");
    CHECK(row_of(saver, "a").state == "active");
    CHECK(block.whole());
}

TEST_CASE("devices: a tag on two devices has one policy, and each device one driver") {
    const Checked first{host_machine, 0};
    const Checked second{nasty_machine, 1};
    const Checked twin{host_machine, 1};
    MemorySaver saver{first.driver};
    const Arena here = saver.arena("weights", Zero{});
    const Arena there = saver.arena("weights", Zero{}, second.driver);
    CHECK(!(here == there));
    CHECK(saver.arena("weights", Zero{}, second.driver) == there);
    CHECK_THROWS_AS((void)saver.arena("weights", Discard{}, second.driver), Misuse);
    CHECK_THROWS_AS((void)saver.arena("weights", Zero{}, twin.driver), Misuse);
    (void)here.allocate(4_MiB);
    void* const block = there.allocate(8_MiB);
    write_pattern(second.driver, block, 8_MiB, 2);
    CHECK(saver.pause("weights").tags.size() == 2);
    CHECK(first.driver.handle_bytes() + second.driver.handle_bytes() == 0);
    CHECK(saver.resume("weights").mapped_bytes == 12_MiB);
    CHECK(all_are(second.driver, block, 8_MiB, 0));
    check_books(saver, first.driver);
    check_books(saver, second.driver);
}
} // namespace saver_devices_test
