// FaultyDriver around a driver that accepts everything, so that only FaultyDriver can detect errors.
#include "support/gullible.hpp"
#include "support/machines.hpp"

namespace testing_faulty_driver_test {
using namespace test;
using Faulty = FaultyDriver<Gullible>;

/// A reservation of four pages with the first mapped and accessible.
struct Mapped {
    Faulty driver{Gullible{}};
    Address address = 0;
    PageHandle handle{};

    Mapped() {
        REQUIRE(driver.reserve(4 * page, page, address).ok());
        REQUIRE(driver.create(page, handle).ok());
        REQUIRE(driver.map(address, page, handle).ok());
        REQUIRE(driver.allow_access(address, page).ok());
    }

    PageHandle bigger() const {
        PageHandle made;
        REQUIRE(driver.create(2 * page, made).ok());
        return made;
    }
    /// Returns the only violation so far; empty if there is none or more than one.
    std::string violation() const {
        const auto all = driver.violations();
        return all.size() == 1 ? all.front() : std::string{};
    }
};

void* at(void* pages, std::size_t offset) { return static_cast<char*>(pages) + offset; }

TEST_CASE("copies share everything, and only copies are equal") {
    const Faulty driver{Gullible{}};
    Faulty copy = driver;
    CHECK(copy == driver);
    CHECK(copy != Faulty{driver.inner()});
    copy.fail({.call = Call::drain});
    CHECK_FALSE(driver.drain().ok());
    CHECK(copy.calls(Call::drain) == 1);
    const Faulty moved = std::move(copy);
    CHECK(copy == moved); // NOLINT(bugprone-use-after-move): still a valid handle
    CHECK(copy.drain().ok());
}

TEST_CASE("each kind of call can be failed, and is not forwarded then; without failures all are") {
    const Faulty working{Gullible{}};
    CHECK(one_of_each(working).failed.empty());
    CHECK(working.inner().state().made == static_cast<int>(call_kinds));
    CHECK(working.injected() == 0);
    for (std::size_t i = 0; i < call_kinds; ++i) {
        const auto call = static_cast<Call>(i);
        INFO(call_name(call));
        CHECK(working.calls(call) == 1);
        const Faulty driver{Gullible{}};
        driver.fail({.call = call});
        CHECK(one_of_each(driver).failed == std::vector{call});
        CHECK(driver.inner().state().made == static_cast<int>(call_kinds - 1));
        CHECK(driver.injected() == 1);
    }
}

TEST_CASE("the n-th call fails, counted from the plan on, once or from there on") {
    const Faulty driver{Gullible{}};
    REQUIRE(driver.drain().ok());
    const auto answers = [&] {
        std::string text;
        for (int i = 0; i < 5; ++i) text += driver.drain().ok() ? '.' : 'X';
        return text;
    };
    driver.fail({.call = Call::drain, .nth = 2});
    CHECK(answers() == ".X...");
    driver.fail({.call = Call::drain, .nth = 3, .lasting = Lasting::onwards});
    CHECK(answers() == "..XXX");
    CHECK(driver.wait(EventRef{}).ok());
    driver.heal();
    CHECK(answers() == ".....");
    CHECK(driver.injected() == 4);

    SUBCASE("calls of any kind") {
        driver.fail({.nth = 3, .lasting = Lasting::onwards});
        CHECK(driver.drain().ok());
        CHECK(driver.wait(EventRef{}).ok());
        CHECK_FALSE(driver.drain().ok());
        CHECK_FALSE(driver.wait(EventRef{}).ok());
    }
    SUBCASE("several failures count side by side") {
        driver.fail({.call = Call::drain, .nth = 2});
        driver.fail({.call = Call::drain, .nth = 4});
        driver.fail({.call = Call::drain, .nth = 4, .kind = StatusKind::gone});
        CHECK(answers() == ".X.X.");
        driver.fail({.call = Call::drain, .kind = StatusKind::out_of_memory});
        driver.fail({.call = Call::drain, .kind = StatusKind::gone});
        CHECK(driver.drain().kind == StatusKind::out_of_memory); // the first planned failure
        CHECK(driver.drain().ok());
    }
    SUBCASE("heal cancels a failure that has not happened yet") {
        driver.fail({.call = Call::drain, .nth = 2});
        CHECK(driver.drain().ok());
        driver.heal();
        CHECK(driver.drain().ok());
    }
}

TEST_CASE("a failure that could never be seen is misuse") {
    const Faulty driver{Gullible{}};
    CHECK_THROWS_AS(driver.fail({.nth = 0}), Misuse);
    CHECK_THROWS_AS(driver.fail({.kind = StatusKind::ok}), Misuse);
    CHECK(driver.drain().ok());
}

TEST_CASE("the records show what is held") {
    Mapped m;
    CHECK(m.driver.outstanding() == Outstanding{.reservations = 1, .handles = 1, .mappings = 1});
    CHECK(m.driver.reserved_bytes() == 4 * page);
    CHECK(m.driver.handle_bytes() == page);
    CHECK(m.driver.mapped_bytes() == page);
    CHECK(m.driver.plain_bytes() == 0);
    CHECK_FALSE(m.driver.everything_given_back());
    CHECK(contains(m.driver.leaks(), ("mappings: " + format_address(m.address) + " (2.00 MiB)").c_str()));
    CHECK_FALSE(contains(m.driver.leaks(), "streams"));
    std::ostringstream out;
    out << m.driver.outstanding();
    CHECK(contains(out.str(), "1 reservations, 1 handles, 1 mappings, 0 streams"));

    // A handle may be released before it is unmapped.
    REQUIRE(m.driver.release(m.handle).ok());
    CHECK(m.driver.handle_bytes() == 0);
    CHECK(m.driver.mapped_bytes() == page);
    REQUIRE(m.driver.unmap(m.address, page).ok());
    CHECK(m.driver.outstanding() == Outstanding{.reservations = 1});
    REQUIRE(m.driver.unreserve(m.address, 4 * page).ok());
    CHECK(m.driver.everything_given_back());
    CHECK(m.driver.violations().empty());
}

TEST_CASE("host pages, pins and files are recorded, lanes are not") {
    const Faulty driver{Gullible{}};
    StreamRef lane;
    void* pages = nullptr;
    FileRef file;
    REQUIRE(driver.lane(Direction::out, lane).ok());
    CHECK(driver.everything_given_back());
    REQUIRE(driver.map_host(4 * page, pages).ok());
    REQUIRE(driver.pin_host(pages, page).ok());
    REQUIRE(driver.pin_host(at(pages, page), 2 * page).ok());
    REQUIRE(driver.open_file("/", file).ok());
    CHECK(driver.outstanding() == Outstanding{.host_pages = 1, .pins = 2, .files = 1});
    CHECK(driver.host_bytes() == 4 * page);
    CHECK(driver.pinned_bytes() == 3 * page);
    CHECK(contains(driver.leaks(), "1 host pages: "));
    CHECK(contains(driver.leaks(), "2 pins: "));
    CHECK(contains(driver.leaks(), "1 files: "));
    std::ostringstream out;
    out << driver.outstanding();
    CHECK(contains(out.str(), "1 ranges of host pages, 2 pins, 1 files"));

    CHECK(driver.unpin_host(at(pages, page)).ok());
    CHECK(driver.pinned_bytes() == page);
    CHECK(driver.unpin_host(pages).ok());
    CHECK(driver.unmap_host(pages, 4 * page).ok());
    CHECK(driver.close_file(file).ok());
    CHECK_MESSAGE(driver.everything_given_back(), driver.leaks());
    CHECK(driver.violations().empty());
}

TEST_CASE("misuse of host pages and files is noticed") {
    struct Machine : Mapped {
        void* pages = nullptr; // of the four, the second and third are pinned
        FileRef file;          // closed
        char host[16] = {};

        Machine() {
            REQUIRE(driver.map_host(4 * page, pages).ok());
            REQUIRE(driver.pin_host(at(pages, page), page).ok());
            REQUIRE(driver.pin_host(at(pages, 2 * page), page).ok());
            REQUIRE(driver.open_file("/", file).ok());
            REQUIRE(driver.close_file(file).ok());
            REQUIRE(driver.violations().empty());
        }
        Status out(std::size_t from, std::size_t bytes) const {
            return driver.copy_to_host(at(pages, from), address, bytes, {});
        }
        Status in(std::size_t from, std::size_t bytes) const {
            return driver.copy_to_device(address, at(pages, from), bytes, {});
        }
    };
    using M = const Machine&;
    char to[1];
    FileFacts facts;
    bool yes = false;
    const char* const pinned = "pin_host of pages that are already pinned";
    // clang-format off
    const std::pair<const char*, std::function<Status(M)>> all[] = {
        {"unpin_host of a resource that is not held", [](M m) { return m.driver.unpin_host(m.pages); }},
        {pinned, [](M m) { return m.driver.pin_host(at(m.pages, page), 1); }},
        {pinned, [](M m) { return m.driver.pin_host(m.pages, page + 1); }},
        {pinned, [](M m) { return m.driver.pin_host(at(m.pages, 3 * page - 1), 2); }},
        {pinned, [](M m) { return m.driver.pin_host(m.pages, 4 * page); }},
        {"unmap_host of pinned pages", [](M m) { return m.driver.unmap_host(m.pages, 4 * page); }},
        {"unmap_host of a resource that is not held", [](M m) { return m.driver.unmap_host(at(m.pages, 1), page); }},
        {"copy_to_host across the boundary of a pinned range", [](M m) { return m.out(2 * page - 1, 2); }},
        {"copy_to_device across the boundary of a pinned range", [](M m) { return m.in(2 * page - 1, 2); }},
        {"copy_to_host across the boundary of a pinned range", [](M m) { return m.out(page - 1, 2); }},
        {"copy_to_device across the boundary of a pinned range", [](M m) { return m.in(3 * page - 1, 2); }},
        {"write_file of a file that is not open", [](M m) { return m.driver.write_file(m.file, m.host, 1, 0); }},
        {"read_file of a file that is not open", [&](M m) { return m.driver.read_file(m.file, to, 1, 4096); }},
        {"allocate_file of a file that is not open", [](M m) { return m.driver.allocate_file(m.file, 0, 1); }},
        {"punch_file of a file that is not open", [](M m) { return m.driver.punch_file(m.file, 0, 1); }},
        {"file_facts of a file that is not open", [&](M m) { return m.driver.file_facts(m.file, facts); }},
        {"file_cached of a file that is not open", [&](M m) { return m.driver.file_cached(m.file, 1, 0, yes); }},
        {"close_file of a resource that is not held", [](M m) { return m.driver.close_file(m.file); }},
    };
    // clang-format on
    for (const auto& each : all) {
        const Machine m;
        INFO(each.first);
        CHECK(each.second(m).ok());
        REQUIRE_FALSE(m.driver.violations().empty());
        CHECK(contains(m.driver.violations().front(), each.first));
    }
    const Machine m;
    for (const auto& [from, bytes] :
         {std::pair{0 * page, page}, {page, page}, {page + 5, page - 5}, {3 * page, page}}) {
        CHECK(m.out(from, bytes).ok()); // pageable, all of a pin, a part of one, pageable again
        CHECK(m.in(from, bytes).ok());
    }
    CHECK(m.driver.pin_host(m.pages, page).ok()); // adjacent
    CHECK(m.driver.violations().empty());
    (void)m.driver.unpin_host(m.pages);
    (void)m.driver.unpin_host(at(m.pages, page));
    (void)m.driver.unpin_host(at(m.pages, 2 * page));
    (void)m.driver.unmap_host(m.pages, page);
    CHECK(contains(m.violation(), "unmap_host with a size that differs from the mapped range's"));
}

TEST_CASE("one unmap may span whole mappings") {
    Mapped m;
    PageHandle second;
    REQUIRE(m.driver.create(page, second).ok());
    REQUIRE(m.driver.map(m.address + page, page, second).ok());
    SUBCASE("both") {
        REQUIRE(m.driver.unmap(m.address, 2 * page).ok());
        CHECK(m.driver.mapped_bytes() == 0);
        CHECK(m.driver.violations().empty());
    }
    SUBCASE("a failing one leaves both") {
        m.driver.inner().state().answer = {StatusKind::other, 1, "no"};
        CHECK_FALSE(m.driver.unmap(m.address, 2 * page).ok());
        CHECK(m.driver.mapped_bytes() == 2 * page);
    }
    SUBCASE("with a hole behind them") {
        REQUIRE(m.driver.unmap(m.address, 3 * page).ok());
        CHECK(contains(m.violation(), "of a range that does not consist of whole mappings"));
    }
    SUBCASE("half of one") {
        REQUIRE(m.driver.unmap(m.address, page + page / 2).ok());
        CHECK(contains(m.violation(), "of a range that does not consist of whole mappings"));
        CHECK(m.driver.mapped_bytes() == page);
    }
}

TEST_CASE("misuse is noticed even if the driver would not notice it") {
    using Misuse = void (*)(Mapped&);
    // clang-format off
    const std::pair<const char*, Misuse> all[] = {
        {"unmap of addresses that are not mapped", [](Mapped& m) {
            (void)m.driver.unmap(m.address, page);
            REQUIRE(m.driver.violations().empty());
            (void)m.driver.unmap(m.address, page);
        }},
        {"release of a resource that is not held", [](Mapped& m) {
            (void)m.driver.release(m.handle);
            REQUIRE(m.driver.violations().empty());
            (void)m.driver.release(m.handle);
        }},
        {"release of a resource that is not held", [](Mapped& m) { (void)m.driver.release(PageHandle{999}); }},
        {"map of a handle that is not held", [](Mapped& m) {
            (void)m.driver.release(m.handle);
            (void)m.driver.map(m.address + page, page, m.handle);
        }},
        {"map with a size that differs from the handle's", [](Mapped& m) {
            (void)m.driver.map(m.address + page, page, m.bigger());
        }},
        {"map over a live mapping", [](Mapped& m) {
            const PageHandle big = m.bigger();
            (void)m.driver.map(m.address + 2 * page, 2 * page, big);
            REQUIRE(m.driver.violations().empty());
            (void)m.driver.map(m.address + page, 2 * page, big);
        }},
        {"map outside a reservation", [](Mapped& m) {
            (void)m.driver.map(m.address + 3 * page, 2 * page, m.bigger());
        }},
        {"unreserve with live mappings", [](Mapped& m) { (void)m.driver.unreserve(m.address, 4 * page); }},
        {"unreserve with a size that differs from the reservation's", [](Mapped& m) {
            (void)m.driver.unmap(m.address, page);
            (void)m.driver.unreserve(m.address, page);
        }},
        {"fill where nothing is mapped", [](Mapped& m) { (void)m.driver.fill(m.address + page - 1, 0, 2, {}); }},
        {"copy_to_host where no access was allowed", [](Mapped& m) {
            char host[2] = {};
            (void)m.driver.map(m.address + page, page, m.handle);
            (void)m.driver.copy_to_host(host, m.address + page - 1, 2, {});
        }},
        {"copy_to_device where no access was allowed", [](Mapped& m) {
            char host[2] = {};
            (void)m.driver.map(m.address + page, page, m.handle);
            m.driver.fail({.call = Call::allow_access});
            (void)m.driver.allow_access(m.address + page, page);
            (void)m.driver.copy_to_device(m.address + page, host, 2, {});
            (void)m.driver.allow_access(m.address, 2 * page);
            (void)m.driver.copy_to_device(m.address + page - 1, host, 2, {}); // now it is accessible
        }},
        {"fill where no access was allowed", [](Mapped& m) { // the next mapping does not inherit it
            (void)m.driver.unmap(m.address, page);
            (void)m.driver.map(m.address, page, m.handle);
            (void)m.driver.fill(m.address, 0, 1, {});
        }},
        {"allow_access of addresses that are not mapped", [](Mapped& m) {
            (void)m.driver.allow_access(m.address + page, page);
        }},
        {"close_stream of a resource that is not held", [](Mapped& m) { (void)m.driver.close_stream({}); }},
        {"close_event of a resource that is not held", [](Mapped& m) { (void)m.driver.close_event({}); }},
        {"close_graph of a resource that is not held", [](Mapped& m) { (void)m.driver.close_graph({}); }},
        {"free_plain of a resource that is not held", [](Mapped& m) { (void)m.driver.free_plain(12); }},
    };
    // clang-format on
    for (const auto& each : all) {
        Mapped m;
        INFO(each.first);
        each.second(m);
        CHECK_MESSAGE(contains(m.violation(), each.first), m.violation());
    }
    Mapped m;
    for (int i = 0; i < 500; ++i) (void)m.driver.release(PageHandle{999});
    CHECK(m.driver.violations().size() == 100); // no more are recorded
    CHECK(m.driver.handle_bytes() == page);
}

TEST_CASE("the log has the latest calls") {
    Mapped m;
    m.driver.fail({.call = Call::create, .kind = StatusKind::out_of_memory});
    PageHandle handle;
    CHECK_FALSE(m.driver.create(page, handle).ok());
    CHECK(contains(m.driver.log(), ("#3 map 2.00 MiB at " + format_address(m.address)).c_str()));
    CHECK(contains(m.driver.log(), "#5 create 2.00 MiB: injected out of memory (-4242)\n"));
    CHECK_FALSE(contains(m.driver.log(), "earlier"));
    for (std::size_t i = 0; i < CallLog::kept; ++i) REQUIRE(m.driver.drain().ok());
    CHECK(contains(m.driver.log(), "5 earlier calls\n#6 drain: ok"));
}

TEST_CASE("an observer sees each call before it is made") {
    const Faulty driver{Gullible{}};
    std::vector<CallRecord> seen;
    int forwarded = -1;
    driver.on_call([&](const CallRecord& call) {
        seen.push_back(call);
        forwarded = driver.inner().state().made;
    });
    REQUIRE(driver.map(16, page, PageHandle{5}).ok());
    REQUIRE(seen.size() == 1);
    CHECK(seen[0].call == Call::map);
    CHECK(seen[0].number == 1);
    CHECK(seen[0].address == 16);
    CHECK(seen[0].bytes == page);
    CHECK(seen[0].handle == PageHandle{5});
    CHECK(forwarded == 0);
    driver.on_call({});
    REQUIRE(driver.drain().ok());
    CHECK(seen.size() == 1);

    SUBCASE("it may fail this very call, and call the driver") {
        driver.on_call([&](const CallRecord& call) {
            if (call.call != Call::create) return;
            driver.fail({.call = Call::create, .kind = StatusKind::gone});
            CHECK(driver.drain().ok());
        });
        PageHandle handle;
        CHECK(driver.create(page, handle).kind == StatusKind::gone);
    }
    SUBCASE("its exception fails the call and is not propagated") {
        const int before = driver.inner().state().made;
        driver.on_call([](const CallRecord&) { throw std::runtime_error{"observer"}; });
        CHECK(driver.drain().kind == StatusKind::other);
        driver.on_call([](const CallRecord&) { throw std::bad_alloc{}; });
        CHECK(driver.drain().kind == StatusKind::out_of_host_memory);
        CHECK(driver.inner().state().made == before);
    }
}

TEST_CASE("a call held up by the observer does not hold up others") {
    const Faulty driver{Gullible{}};
    Stuck waiting{driver, Call::wait, [&] { CHECK(driver.wait(EventRef{}).ok()); }};
    CHECK(driver.drain().ok());
    CHECK(driver.calls(Call::wait) == 1);
    CHECK(driver.inner().state().made == 1); // only the drain
    waiting.go_on();
    CHECK(driver.inner().state().made == 2);
}

// --- Sweep ---

struct Fixture {
    Faulty driver{Gullible{}};
    Address address = 0;
    PageHandle handle{};
    Fixture() = default;
    Fixture(const Fixture&) = delete; // sweeps do not move fixtures
};

void take_and_give_back(Fixture& f) {
    check(f.driver.reserve(page, page, f.address), "reserve");
    const Status created = f.driver.create(page, f.handle);
    check(f.driver.unreserve(f.address, page), "unreserve");
    check(created, "create");
    check(f.driver.release(f.handle), "release");
}

TEST_CASE("a sweep fails every call in turn, then none") {
    std::vector<std::uint64_t> failed_at;
    std::vector<std::uint64_t> forwarded;
    const auto verify = [&](Fixture& f, const SweepPoint& point) {
        INFO(point.text());
        CHECK(static_cast<bool>(point.error) == (point.injected > 0));
        CHECK(f.driver.drain().ok()); // healed
        if (point.injected > 0) failed_at.push_back(point.failure.nth);
        forwarded.push_back(static_cast<std::uint64_t>(f.driver.inner().state().made));
    };
    const auto make = [] { return Fixture{}; };
    SUBCASE("once") {
        CHECK(sweep({}, make, take_and_give_back, verify) == 4);
        CHECK(failed_at == std::vector<std::uint64_t>{1, 2, 3, 4});
        CHECK(forwarded == std::vector<std::uint64_t>{1, 3, 3, 4, 5}); // and the drain
    }
    SUBCASE("from there on") {
        CHECK(sweep({.lasting = Lasting::onwards}, make, take_and_give_back, verify) == 4);
        CHECK(forwarded == std::vector<std::uint64_t>{1, 2, 3, 4, 5});
    }
    SUBCASE("one kind alone") {
        CHECK(sweep({.call = Call::create, .kind = StatusKind::out_of_memory}, make, take_and_give_back,
                    [&](Fixture& f, const SweepPoint& point) {
                        if (point.error) CHECK_THROWS_AS(std::rethrow_exception(point.error), OutOfMemory);
                        CHECK(f.driver.everything_given_back());
                    }) == 1);
    }
}

TEST_CASE("a sweep ends after the last call") {
    const auto nothing = [](Fixture&, const SweepPoint&) {};
    const auto make = [] { return Fixture{}; };
    const auto forever = [](Fixture& f) {
        for (int i = 0; i < 100; ++i) (void)f.driver.drain();
    };
    CHECK_THROWS_AS(sweep({}, make, forever, nothing, 10), Misuse);
    CHECK(sweep({}, make, forever, nothing, 101) == 100);
    CHECK(sweep(
              {}, make, [](Fixture&) {}, nothing) == 0);
    CHECK_THROWS_AS(sweep(
                        {}, make, [](Fixture&) { throw std::logic_error{"a bug"}; }, nothing),
                    std::logic_error);
}
} // namespace testing_faulty_driver_test
