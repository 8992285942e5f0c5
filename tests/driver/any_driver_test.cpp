// AnyDriver and DeviceAround forward every call; what a machine does not override is unsupported, or the system's.
#include "support/gullible.hpp"
#include "support/machines.hpp"

namespace driver_any_driver_test {
using namespace test;
using Faulty = FaultyDriver<Gullible>;

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
static_assert(!Driver<GullibleMachine> && !Driver<std::shared_ptr<Device>> && !Driver<int>);
static_assert(!std::is_convertible_v<std::shared_ptr<Device>, AnyDriver>);
static_assert(std::is_nothrow_copy_constructible_v<AnyDriver> && std::is_nothrow_copy_assignable_v<AnyDriver>);
static_assert(!std::is_constructible_v<AnyDriver, int> && !std::is_default_constructible_v<AnyDriver>);

TEST_CASE("every call passes through each layer with its arguments, and its results come back") {
    const Faulty direct{Gullible{}};
    const OneOfEach expected = one_of_each(direct);
    CHECK(expected.failed.empty());
    CHECK(direct.calls() == call_kinds);
    const Faulty inside{Gullible{}};
    const AnyDriver any{std::make_shared<DeviceAround>(inside)};
    const OneOfEach made = one_of_each(any);
    CHECK(made.failed.empty());
    CHECK(made.results == expected.results);
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
    CHECK(gullible.state().heard == std::to_string(3 * page) + ' ');
    bool yes = false;
    CHECK(faulty.owns_event({}, yes).ok());
    CHECK(yes);
    CHECK(faulty.calls(Call::owns_stream) == 1);
    CHECK(faulty.calls() == 1);
}

TEST_CASE("Device: by default features are unsupported") {
    GullibleMachine machine; // what it inherits, without what it overrides
    CHECK(machine.Device::features() == Features{});
    CHECK(machine.Device::numa_node() == -1);
    CHECK(machine.Device::neighbours() == nullptr);
    CHECK(machine.Device::holders().empty());
    StreamRef stream;
    EventRef event;
    GraphRef graph;
    PageHandle pages;
    Address address = 0;
    std::size_t bytes = 0;
    std::string text;
    int descriptor = 0;
    bool yes = false;
    const Status lacked[] = {machine.Device::reach_peer(0, 0),
                             machine.Device::copy_peer(0, 0, 0, {}),
                             machine.Device::copy_many(Direction::in, nullptr, 0, {}),
                             machine.Device::copy_by_kernel(0, 0, 0, {}),
                             machine.Device::run_kernel({.code = nullptr}, {}),
                             machine.Device::allocate_plain(1, address),
                             machine.Device::free_plain(address),
                             machine.Device::begin_capture({}, CaptureMode::relaxed),
                             machine.Device::end_capture({}, graph),
                             machine.Device::update_graph({}, graph),
                             machine.Device::launch(graph, {}),
                             machine.Device::close_graph(graph),
                             machine.Device::follow_outside({}, event),
                             machine.Device::lane(Direction::in, stream),
                             machine.Device::owns_stream({}, yes),
                             machine.Device::owns_event({}, yes),
                             machine.Device::pool_memory({}, bytes),
                             machine.Device::trim_pool({}, 0),
                             machine.Device::take(page, pages, bytes),
                             machine.Device::ask_for_room(page, 0),
                             machine.Device::create_shared(page, pages),
                             machine.Device::export_pages(pages, descriptor),
                             machine.Device::import_pages(0, pages),
                             machine.Device::identity(text),
                             machine.Device::with_context([] {})};
    for (const Status& each : lacked) CHECK(each.kind == StatusKind::unsupported);
    CHECK_THROWS_AS(check(lacked[0], "reach a peer"), Unavailable);
    CHECK_THROWS_AS(AnyDriver{std::shared_ptr<Device>{}}, Misuse);
    machine.Device::name_addresses(page, page, "nobody"); // a no-op
}
} // namespace driver_any_driver_test
