// If the copy engines are stopped, a kernel copies the bytes; otherwise, and where a kernel must not be used, the
// engines do.
#include "backup/backup_support.hpp"
#include "memsaver/backup/copy_lane.hpp"
#include "support/each_of.hpp"

namespace backup_kernel_copies_test {
using namespace test;

/// Late enough for an unobstructed copy on a busy machine.
constexpr KernelCopyOptions soon{.after = 1ms, .slower = 0, .least_bytes = 4_MiB};
constexpr KernelCopyOptions never{.after = 0ns, .least_bytes = 1};

/// A saver with a block that has been saved and restored once, so that its host pages are pinned and the kernel is
/// loaded.
struct World {
    explicit World(const KernelCopyOptions& options)
        : block{driver, saver.arena("weights", HostBackup{.threads = 2, .kernel_copies = options}), 8_MiB + 4096} {
        pause_and_resume(saver, "weights");
        (void)driver.inner().copy_by_kernel(0, 0, 0, {});
        before = driver.calls(Call::copy_by_kernel);
    }
    [[nodiscard]] std::uint64_t kernels() const { return driver.calls(Call::copy_by_kernel) - before; }
    /// Holds the copy engine until this call is made.
    [[nodiscard]] HeldLane stall(Direction direction, Call until = Call::copy_by_kernel) const {
        const HostDriver host = host_of(driver);
        StreamRef lane;
        REQUIRE(host.lane(direction, lane).ok());
        driver.on_call([=](const CallRecord& made) {
            if (made.call == until) (void)host.let_go(lane);
        });
        return HeldLane{host, direction};
    }

    const Checked machine{HostDriver{64_MiB}};
    const MachineDriver& driver = machine.driver;
    MemorySaver<MachineDriver> saver{driver};
    Filled<MachineDriver> block;
    std::uint64_t before = 0;
};

/// A block of 2 MiB, a pinned one on the host, and a stream between them.
struct OnBoth : OnStream {
    OnBoth() { REQUIRE(host.take(AnyDriver{driver}, 2_MiB).ok()); }

    const MachineDriver& driver = machine.driver;
    std::byte* const device = static_cast<std::byte*>(saver.arena("block").allocate(2_MiB));
    PinnedBuffer host{};
};

TEST_CASE_FIXTURE(OnBoth, "copy_by_kernel: both ways, any number of bytes, and none beside them" * on_machines) {
    const Address at = address_of(device) + 32;
    const Address pages = address_of(host.data()) + 64;
    for (const std::size_t bytes : {std::size_t{1}, std::size_t{15}, std::size_t{16}, std::size_t{4097}, 1_MiB + 7}) {
        CAPTURE(bytes);
        write_pattern(driver, device, 2_MiB, bytes);
        const auto from = pattern(2_MiB, bytes);
        std::vector<unsigned char> expected(2_MiB, 9);
        std::copy_n(from.begin() + 32, bytes, expected.begin() + 64);
        std::memset(host.data(), 9, 2_MiB);
        REQUIRE(driver.copy_by_kernel(pages, at, bytes, stream).ok());
        REQUIRE(driver.drain().ok());
        CHECK(std::memcmp(host.data(), expected.data(), 2_MiB) == 0);

        write_pattern(driver, device, 2_MiB, 77);
        expected = pattern(2_MiB, 77);
        std::copy_n(from.begin() + 32, bytes, expected.begin() + 32);
        REQUIRE(driver.copy_by_kernel(at, pages, bytes, stream).ok());
        REQUIRE(driver.drain().ok());
        CHECK(read_bytes(driver, device, 2_MiB) == expected);
    }
}

TEST_CASE_FIXTURE(OnBoth, "copy_many: both ways, more than the machine takes at once" * on_machines) {
    constexpr std::size_t count = 150;
    constexpr std::size_t step = 2_MiB / count / 4 * 4;
    for (const Direction direction : {Direction::out, Direction::in}) {
        const bool out = direction == Direction::out;
        const auto bytes = pattern(2_MiB, out ? 1 : 2);
        std::vector<unsigned char> expected(2_MiB, 9);
        std::vector<CopyPart> parts; // in reverse order on the other side, with gaps
        for (std::size_t i = 0; i < count; ++i) {
            const std::size_t to = i * step;
            const std::size_t from = (count - 1 - i) * step;
            const void* const target = (out ? host.data() : device) + to;
            const void* const source = (out ? device : host.data()) + from;
            parts.push_back({address_of(target), address_of(source), step - i});
            std::memcpy(expected.data() + to, bytes.data() + from, step - i);
        }
        write_bytes(driver, device, out ? bytes : std::vector<unsigned char>(2_MiB, 9));
        std::memcpy(host.data(), bytes.data(), 2_MiB);
        if (out) std::memset(host.data(), 9, 2_MiB);
        REQUIRE(driver.copy_many(direction, parts.data(), parts.size(), stream).ok());
        REQUIRE(driver.drain().ok());
        std::vector<unsigned char> got = read_bytes(driver, device, 2_MiB);
        if (out) std::memcpy(got.data(), host.data(), 2_MiB);
        CHECK(got == expected);
    }
}

TEST_CASE("kernel copies: a restore and a save use a kernel while the copy engines are stalled") {
    World world{soon};
    (void)world.saver.pause("weights");
    // Zero, unless the machine is so busy that a millisecond was too short.
    const std::uint64_t before = world.kernels();
    const auto begin = std::chrono::steady_clock::now();
    REQUIRE(host_of(world.driver).stall_copies(200ms).ok());
    Arrival arrival = [&] {
        const HeldLane lane{world.driver, Direction::in};
        return world.saver.resume_async("weights", {});
    }();
    CHECK(world.kernels() > before);
    arrival.wait(); // also waits for the bytes that were sent ahead, which are late
    CHECK(std::chrono::steady_clock::now() - begin >= 200ms);
    CHECK(world.block.whole());
    world.block.write(2);
    const std::uint64_t inwards = world.kernels();
    const HeldLane lane = world.stall(Direction::out);
    (void)world.saver.pause("weights");
    CHECK(world.kernels() > inwards);
    (void)world.saver.resume("weights");
    CHECK(world.block.whole());
}

TEST_CASE("kernel copies: the kernel is loaded with the first save or ahead of it, not while the engines are stalled") {
    const bool prepared = either("ahead", "with the first save");
    const MachineDriver driver{HostDriver{128_MiB}};
    MemorySaver saver{driver};
    const Arena arena = saver.arena("weights", HostBackup{.threads = 2, .kernel_copies = soon});
    void* const block = arena.allocate(72_MiB); // more than is pinned at once
    write_pattern(driver, block, 8_MiB, 1);
    if (prepared) saver.prepare("weights");
    CHECK(driver.calls(Call::copy_by_kernel) == (prepared ? 1 : 0));
    (void)saver.pause("weights");
    const std::uint64_t before = driver.calls(Call::copy_by_kernel);
    CHECK(before >= 1);
    const HeldLane lane{driver, Direction::in};
    const Arrival arrival = saver.resume_async("weights", {});
    CHECK(driver.calls(Call::copy_by_kernel) > before);
    lane.let_go();
    arrival.wait();
    CHECK(has_pattern(driver, block, 8_MiB, 1));
}

/// A mark that is the number n passes after n ms.
struct Paced final : DeviceAround {
    using DeviceAround::DeviceAround;
    Status query(EventRef mark, bool& passed) noexcept override {
        passed = std::chrono::steady_clock::now() - begin >= std::chrono::milliseconds{address_of(mark.native())};
        return {};
    }
    const std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now();
};

TEST_CASE("kernel copies: an engine that also clears memory is told from one that only copies") {
    const std::uintptr_t second = each_of({std::uintptr_t{40}, std::uintptr_t{820}});
    const AnyDriver driver{std::make_shared<Paced>(HostDriver{16_MiB})};
    detail::CopyLane lane{driver, Direction::in};
    std::vector<detail::CopyLane::Sent> sent;
    for (const std::uintptr_t over : {std::uintptr_t{20}, second, second + 20, second + 40})
        sent.push_back({reinterpret_cast<HostEvent*>(over), 16_MiB});
    REQUIRE(lane.to_be_watched());
    REQUIRE(lane.watch(sent, {.after = 10s, .slower = 1.3}).ok());
    CHECK(driver.neighbours()->lane(Direction::in).stalled == (second == 820));
}

TEST_CASE("kernel copies: not if they are switched off, nor for few bytes, nor without pinned pages") {
    for (const KernelCopyOptions& options : {never, KernelCopyOptions{.after = 1ns, .least_bytes = 8_MiB + 8192}}) {
        World world{options};
        (void)world.saver.pause("weights");
        REQUIRE(host_of(world.driver).stall_copies(30ms).ok());
        (void)world.saver.resume("weights");
        CHECK(world.kernels() == 0);
        CHECK(world.block.whole());
    }
    const MachineDriver driver{HostDriver{64_MiB}};
    driver.fail({.call = Call::pin_host, .lasting = Lasting::onwards});
    MemorySaver saver{driver};
    Filled block{driver, saver.arena("weights", HostBackup{.threads = 2, .kernel_copies = by_kernel}), 4_MiB};
    for (std::uint64_t cycle = 0; cycle < 2; ++cycle) {
        block.write(cycle);
        pause_and_resume(saver, "weights");
        CHECK(block.whole());
    }
    CHECK(driver.calls(Call::copy_by_kernel) == 0);
}

TEST_CASE("kernel copies: a finished transfer that nobody waited for does not delay others") {
    World world{soon};
    const Arena arena = world.saver.arena("more", HostBackup{.threads = 2, .kernel_copies = never});
    const Filled more{world.driver, arena, 8_MiB, 5};
    (void)world.saver.pause({"weights", "more"});
    const Arrival kept = world.saver.resume_async("more", {});
    while (!kept.done()) std::this_thread::sleep_for(1ms);
    std::this_thread::sleep_for(600ms);
    const HeldLane lane = world.stall(Direction::in);
    const std::uint64_t before = world.kernels();
    (void)world.saver.resume("weights");
    CHECK(world.kernels() > before);
    CHECK(world.block.whole());
    kept.wait();
    CHECK(more.whole());
}

TEST_CASE("kernel copies: whatever fails, the tag stays paused and is restored whole") {
    // Without a stream for the kernels, the copies use the engines.
    const Call call =
        each_of({Call::copy_by_kernel, Call::query, Call::copy_to_device, Call::record, Call::wait, Call::open_stream});
    World world{soon};
    (void)world.saver.pause("weights");
    const std::uint64_t before = world.kernels();
    const HeldLane lane = world.stall(Direction::in, call);
    world.driver.fail({.call = call});
    if (call != Call::open_stream) {
        CHECK_THROWS_AS((void)world.saver.resume("weights"), Error);
        world.driver.heal();
        CHECK(row_of(world.saver, "weights").state == "paused");
    }
    (void)world.saver.resume("weights");
    if (call == Call::open_stream) CHECK(world.kernels() == before);
    CHECK(world.block.whole());
}

TEST_CASE("kernel copies: options are compared and described") {
    CHECK(HostBackup{} == HostBackup{});
    CHECK(!(HostBackup{} == HostBackup{.kernel_copies = {.after = 1ms}}));
    CHECK(contains(HostBackup{}.describe(), "copies of 256.00 MiB by a kernel after 10000 us"));
    CHECK(contains(HostBackup{.kernel_copies = {.after = 0ns}}.describe(), "no copies by a kernel"));
}
} // namespace backup_kernel_copies_test
