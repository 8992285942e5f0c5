// AnyDriver and DeviceAround forward every call; what a machine lacks is unsupported.
#include "support/gullible.hpp"
#include "support/machines.hpp"

namespace driver_any_driver_test {
using namespace test;
using Faulty = FaultyDriver<Gullible>;

/// The calls that a machine must have, and no others.
struct PoorMachine final : Device {
    [[nodiscard]] int device() const noexcept override { return 2; }
    [[nodiscard]] std::string name() const override { return "poor"; }

    Status granularity(std::size_t& bytes) noexcept override { return all_.granularity(bytes); }
    Status memory(DeviceMemory& memory) noexcept override { return all_.memory(memory); }
    Status reserve(std::size_t n, std::size_t m, Address& a) noexcept override { return all_.reserve(n, m, a); }
    Status unreserve(Address a, std::size_t n) noexcept override { return all_.unreserve(a, n); }
    Status create(std::size_t n, PageHandle& pages) noexcept override { return all_.create(n, pages); }
    Status release(PageHandle pages) noexcept override { return all_.release(pages); }
    Status map(Address a, std::size_t n, PageHandle pages) noexcept override { return all_.map(a, n, pages); }
    Status unmap(Address a, std::size_t n) noexcept override { return all_.unmap(a, n); }
    Status allow_access(Address a, std::size_t n, Rights r) noexcept override { return all_.allow_access(a, n, r); }
    Status open_stream(StreamRef& stream) noexcept override { return all_.open_stream(stream); }
    Status close_stream(StreamRef stream) noexcept override { return all_.close_stream(stream); }
    Status open_event(StreamRef near, EventRef& event) noexcept override { return all_.open_event(near, event); }
    Status close_event(EventRef event) noexcept override { return all_.close_event(event); }
    Status record(EventRef event, StreamRef stream) noexcept override { return all_.record(event, stream); }
    Status record_device(EventRef event) noexcept override { return all_.record_device(event); }
    Status follow(StreamRef stream, EventRef event) noexcept override { return all_.follow(stream, event); }
    Status query(EventRef event, bool& passed) noexcept override { return all_.query(event, passed); }
    Status wait(EventRef event) noexcept override { return all_.wait(event); }
    Status drain() noexcept override { return all_.drain(); }
    Status capturing(StreamRef stream, bool& yes) noexcept override { return all_.capturing(stream, yes); }
    Status copy_to_host(void* p, Address a, std::size_t n, StreamRef s) noexcept override {
        return all_.copy_to_host(p, a, n, s);
    }
    Status copy_to_device(Address a, const void* p, std::size_t n, StreamRef s) noexcept override {
        return all_.copy_to_device(a, p, n, s);
    }
    Status fill(Address a, unsigned char byte, std::size_t n, StreamRef s) noexcept override {
        return all_.fill(a, byte, n, s);
    }

private:
    Gullible all_;
};

/// Answers what is not a call in a way of its own.
struct TalkativeMachine final : DeviceAround {
    using DeviceAround::DeviceAround;
    Status identity(std::string& text) const noexcept override { return text = "GPU-7", Status{}; }
    [[nodiscard]] Neighbours* neighbours() noexcept override { return &neighbours_; }
    [[nodiscard]] std::string holders() const override { return "a neighbour"; }
    Status with_context(FunctionRef<void()> work) noexcept override { return work(), Status{}; }

private:
    Neighbours neighbours_;
};

static_assert(Driver<AnyDriver> && Driver<CudaDriver> && Driver<HostDriver> && Driver<FaultyDriver<HostDriver>>);
static_assert(!Driver<PoorMachine> && !Driver<std::shared_ptr<Device>> && !Driver<int>);
static_assert(!std::is_convertible_v<std::shared_ptr<Device>, AnyDriver>);
static_assert(std::is_nothrow_copy_constructible_v<AnyDriver> && std::is_nothrow_copy_assignable_v<AnyDriver>);
static_assert(!std::is_constructible_v<AnyDriver, int> && !std::is_default_constructible_v<AnyDriver>);

TEST_CASE("every call passes through each layer with its arguments, and its results come back") {
    const Faulty direct{Gullible{}};
    const OneOfEach expected = one_of_each(direct);
    CHECK(expected.failed.empty());
    CHECK(direct.calls() == calls_of_each);
    for (std::size_t i = 0; i < call_kinds; ++i)
        CHECK_MESSAGE(direct.calls(static_cast<Call>(i)) > 0, call_name(static_cast<Call>(i)));
    const Faulty inside{Gullible{}};
    const AnyDriver any{std::make_shared<DeviceAround>(inside)};
    const OneOfEach made = one_of_each(any);
    CHECK(made.failed.empty());
    CHECK(made.outputs == expected.outputs);
    CHECK(inside.log() == direct.log());
    CHECK(inside.inner().state().heard == direct.inner().state().heard);
}

TEST_CASE("properties that are not calls pass through each layer too") {
    const Gullible gullible;
    const AnyDriver talkative{std::make_shared<TalkativeMachine>(gullible)};
    const FaultyDriver faulty{AnyDriver{std::make_shared<DeviceAround>(talkative)}};
    CHECK(faulty.device() == 3);
    CHECK(faulty.name() == "gullible");
    CHECK(faulty.numa_node() == 5);
    CHECK(faulty.features() == gullible.features());
    CHECK(faulty.features().captures);
    std::string identity;
    CHECK(faulty.identity(identity).ok());
    CHECK(identity == "GPU-7");
    CHECK(faulty.neighbours() == talkative.neighbours());
    CHECK(faulty.neighbours() != nullptr);
    CHECK(faulty.holders() == "a neighbour");
    bool ran = false;
    CHECK(faulty.with_context([&] { ran = true; }).ok());
    CHECK(ran);
    faulty.name_addresses(page, 3 * page, "weights");
    CHECK(gullible.state().heard == "name " + std::to_string(3 * page) + '\n');
    bool yes = false;
    CHECK(faulty.owns_event({}, yes).ok());
    CHECK(yes);
    CHECK(faulty.calls(Call::owns_stream) == 1);
    CHECK(faulty.calls() == 1);
}

TEST_CASE("AnyDriver: returns what the driver returns") {
    const Faulty inside{Gullible{}};
    const AnyDriver any{inside};
    inside.fail({.lasting = Lasting::onwards, .kind = StatusKind::gone});
    CHECK(one_of_each(any).failed.size() == calls_of_each);
    CHECK(any.drain().code == Failure::injected_code);
    CHECK(any.drain().kind == StatusKind::gone);
}

TEST_CASE("AnyDriver: features that a machine lacks are unsupported, those of the system work") {
    const AnyDriver any{std::make_shared<PoorMachine>()};
    CHECK(any.features() == Features{});
    CHECK(any.numa_node() == -1);
    CHECK(any.neighbours() == nullptr);
    CHECK(any.holders().empty());
    CHECK_FALSE(any.host_addressable());
    StreamRef stream;
    EventRef event;
    GraphRef graph;
    PageHandle pages;
    Address address = 0;
    std::size_t bytes = 0;
    std::string text;
    int descriptor = 0;
    bool yes = false;
    const Status lacked[] = {any.reach_peer(0, 0),
                             any.copy_peer(0, 0, 0, {}),
                             any.copy_many(Direction::in, nullptr, 0, {}),
                             any.copy_by_kernel(0, 0, 0, {}),
                             any.run_kernel({.code = nullptr}, {}),
                             any.allocate_plain(1, address),
                             any.free_plain(address),
                             any.begin_capture({}, CaptureMode::relaxed),
                             any.end_capture({}, graph),
                             any.update_graph({}, graph),
                             any.launch(graph, {}),
                             any.close_graph(graph),
                             any.follow_outside({}, event),
                             any.lane(Direction::in, stream),
                             any.owns_stream({}, yes),
                             any.owns_event({}, yes),
                             any.pool_memory({}, bytes),
                             any.trim_pool({}, 0),
                             any.take(page, pages, bytes),
                             any.ask_for_room(page, 0),
                             any.create_shared(page, pages),
                             any.export_pages(pages, descriptor),
                             any.import_pages(0, pages),
                             any.identity(text),
                             any.with_context([] {})};
    for (const Status& each : lacked) CHECK(each.kind == StatusKind::unsupported);
    CHECK_THROWS_AS(check(lacked[0], "reach a peer"), Unavailable);
    any.name_addresses(page, page, "nobody"); // a no-op

    void* host = nullptr;
    REQUIRE(any.map_host(page, host).ok());
    CHECK(any.populate_host(host, page).ok());
    CHECK(any.pin_host(host, page).ok());
    CHECK(any.unpin_host(host).ok());
    CHECK(any.host_available(bytes).ok());
    CHECK(bytes > 0);
    FileRef file;
    REQUIRE(any.open_file("/tmp", file).ok());
    CHECK(any.allocate_file(file, 0, 4096).ok());
    CHECK(any.write_file(file, host, 4096, 0).ok());
    CHECK(any.read_file(file, host, 4096, 0).ok());
    FileFacts facts;
    CHECK(any.file_facts(file, facts).ok());
    CHECK(facts.bytes == 4096);
    CHECK(any.file_cached(file, 4096, 0, yes).ok());
    CHECK(any.punch_file(file, 0, 4096).ok());
    CHECK(any.close_file(file).ok());
    CHECK(any.unmap_host(host, page).ok());
    CHECK_FALSE(any.open_source("/tmp/there-is-no-such-file", false, file).ok());
}

TEST_CASE("AnyDriver: equal if the machine is, and found again as the type it was made from") {
    const Gullible one;
    const Gullible other;
    const Faulty faulty{one};
    const AnyDriver any{one};
    const AnyDriver copy = any;
    CHECK(any == copy);
    CHECK(any == AnyDriver{one});
    CHECK(any != AnyDriver{other});
    CHECK(any != AnyDriver{faulty});
    CHECK(any == one); // arguments accept drivers directly
    CHECK(&any.machine() == &one.machine());
    REQUIRE(any.as<Gullible>());
    CHECK(*any.as<Gullible>() == one);
    CHECK(any.as<AnyDriver>() == any);
    CHECK_FALSE(any.as<Faulty>());
    CHECK_FALSE(any.as<HostDriver>());
    REQUIRE(AnyDriver{faulty}.as<Faulty>());
    CHECK(*AnyDriver{faulty}.as<Faulty>() == faulty);
    CHECK(AnyDriver{faulty}.as<Faulty>()->inner() == one);
    CHECK_FALSE(AnyDriver{faulty}.as<Gullible>());
    CHECK_FALSE(AnyDriver{faulty}.as<FaultyDriver<HostDriver>>());
    CHECK(AnyDriver{faulty}.as<FaultyDriver<AnyDriver>>());
}

TEST_CASE("AnyDriver: a moved-from one still works, and there is none without a machine") {
    CHECK_THROWS_AS(AnyDriver{std::shared_ptr<Device>{}}, Misuse);
    AnyDriver any{Gullible{}};
    const AnyDriver moved = std::move(any);
    CHECK(any == moved); // NOLINT(bugprone-use-after-move): a move copies
    CHECK(any.drain().ok());
}
} // namespace driver_any_driver_test
