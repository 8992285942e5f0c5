// If the copy engines are stopped, a kernel copies the bytes; otherwise, and where a kernel must not be used, the
// engines do.
#include "backup/backup_support.hpp"
#include "memsaver/backup/copy_lane.hpp"

namespace backup_kernel_copies_test {
using namespace test;

/// Late enough for an unobstructed copy on a busy machine.
constexpr KernelCopyOptions soon{.after = 1ms, .slower = 0, .least_bytes = 4_MiB};
constexpr KernelCopyOptions never{.after = 0ns, .least_bytes = 1};

using Machine = MachineDriver;

/// A saver with a block that has been saved and restored once, so that its host pages are pinned and the kernel is
/// loaded.
struct World {
    explicit World(const KernelCopyOptions& options, std::size_t bytes = 8_MiB + 4096)
        : size{bytes}, block{
                           saver.arena("weights", HostBackup{.threads = 2, .kernel_copies = options}).allocate(bytes)} {
        write_pattern(driver, block, size, 1);
        pause_and_resume(saver, "weights");
        (void)driver.inner().copy_by_kernel(0, 0, 0, {});
        before = driver.calls(Call::copy_by_kernel);
    }
    [[nodiscard]] std::uint64_t kernels() const { return driver.calls(Call::copy_by_kernel) - before; }
    [[nodiscard]] bool whole(std::uint64_t seed = 1) const { return has_pattern(driver, block, size, seed); }
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
    void check_clean() {
        saver.close();
        CHECK(driver.violations().empty());
        CHECK(host_of(driver).violations().empty());
        CHECK(driver.everything_given_back());
    }

    Machine driver{HostDriver{64_MiB}};
    MemorySaver<Machine> saver{driver};
    std::size_t size;
    void* block;
    std::uint64_t before = 0;
};

TEST_CASE_FIXTURE(OnMachine, "copy_by_kernel: both ways, any number of bytes, and none beside them" * on_machines) {
    const auto& driver = machine.driver;
    MemorySaver saver{driver};
    auto* const device = static_cast<std::byte*>(saver.arena("block").allocate(2_MiB));
    const auto at = reinterpret_cast<Address>(device);
    {
        PinnedBuffer host;
        REQUIRE(host.take(AnyDriver{driver}, 2_MiB).ok());
        const auto pages = reinterpret_cast<Address>(host.data());
        OwnedStream stream;
        REQUIRE(stream.open(AnyDriver{driver}).ok());
        for (const std::size_t bytes :
             {std::size_t{1}, std::size_t{15}, std::size_t{16}, std::size_t{4097}, 1_MiB + 7}) {
            CAPTURE(bytes);
            write_pattern(driver, device, 2_MiB, bytes);
            std::memset(host.data(), 9, 2_MiB);
            REQUIRE(driver.copy_by_kernel(pages + 64, at + 32, bytes, stream.get()).ok());
            REQUIRE(driver.drain().ok());
            const auto expected = pattern(2_MiB, bytes);
            const auto* const got = reinterpret_cast<const unsigned char*>(host.data());
            CHECK(std::equal(got + 64, got + 64 + bytes, expected.begin() + 32));
            CHECK(std::all_of(got, got + 64, [](unsigned char c) { return c == 9; }));
            CHECK(std::all_of(got + 64 + bytes, got + 2_MiB, [](unsigned char c) { return c == 9; }));

            write_pattern(driver, device, 2_MiB, 77);
            REQUIRE(driver.copy_by_kernel(at + 32, pages + 64, bytes, stream.get()).ok());
            REQUIRE(driver.drain().ok());
            std::vector<unsigned char> mixed = pattern(2_MiB, 77);
            std::copy(expected.begin() + 32, expected.begin() + 32 + static_cast<std::ptrdiff_t>(bytes),
                      mixed.begin() + 32);
            CHECK(read_bytes(driver, device, 2_MiB) == mixed);
        }
    }
}

TEST_CASE_FIXTURE(OnMachine, "copy_many: both ways, more than the machine takes at once" * on_machines) {
    const auto& driver = machine.driver;
    MemorySaver saver{driver};
    auto* const device = static_cast<std::byte*>(saver.arena("block").allocate(2_MiB));
    PinnedBuffer host;
    REQUIRE(host.take(AnyDriver{driver}, 2_MiB).ok());
    OwnedStream stream;
    REQUIRE(stream.open(AnyDriver{driver}).ok());
    constexpr std::size_t count = 150;
    constexpr std::size_t step = 2_MiB / count / 4 * 4;
    for (const Direction direction : {Direction::out, Direction::in}) {
        const bool out = direction == Direction::out;
        std::vector<CopyPart> parts; // in reverse order on the other side, with gaps
        for (std::size_t i = 0; i < count; ++i) {
            const auto here = reinterpret_cast<Address>(host.data() + (count - 1 - i) * step);
            const auto there = reinterpret_cast<Address>(device + i * step);
            parts.push_back({out ? here : there, out ? there : here, step - i});
        }
        const auto bytes = pattern(2_MiB, out ? 1 : 2);
        write_bytes(driver, device, out ? bytes : std::vector<unsigned char>(2_MiB, 9));
        std::memcpy(host.data(), bytes.data(), 2_MiB);
        if (out) std::memset(host.data(), 9, 2_MiB);
        REQUIRE(driver.copy_many(direction, parts.data(), parts.size(), stream.get()).ok());
        REQUIRE(driver.drain().ok());
        std::vector<unsigned char> got = read_bytes(driver, device, 2_MiB);
        if (out) std::memcpy(got.data(), host.data(), 2_MiB);
        std::vector<unsigned char> expected(2_MiB, 9);
        for (std::size_t i = 0; i < count; ++i) {
            const std::size_t from = (out ? i : count - 1 - i) * step;
            const std::size_t to = (out ? count - 1 - i : i) * step;
            std::memcpy(expected.data() + to, bytes.data() + from, step - i);
        }
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
    CHECK(world.whole());
    write_pattern(world.driver, world.block, world.size, 2);
    const std::uint64_t inwards = world.kernels();
    const HeldLane lane = world.stall(Direction::out);
    (void)world.saver.pause("weights");
    CHECK(world.kernels() > inwards);
    (void)world.saver.resume("weights");
    CHECK(world.whole(2));
    world.check_clean();
}

TEST_CASE("kernel copies: the kernel is loaded with the first save or ahead of it, not while the engines are stalled") {
    constexpr std::size_t bytes = 72_MiB; // more than is pinned at once
    for (const bool prepared : {false, true}) {
        CAPTURE(prepared);
        const Machine driver{HostDriver{128_MiB}};
        MemorySaver saver{driver};
        void* const block = saver.arena("weights", HostBackup{.threads = 2, .kernel_copies = soon}).allocate(bytes);
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
    for (const std::uintptr_t second : {std::uintptr_t{40}, std::uintptr_t{820}}) {
        CAPTURE(second);
        const AnyDriver driver{std::make_shared<Paced>(HostDriver{16_MiB})};
        detail::CopyLane lane{driver, Direction::in};
        std::vector<detail::CopyLane::Sent> sent;
        for (const std::uintptr_t over : {std::uintptr_t{20}, second, second + 20, second + 40})
            sent.push_back({reinterpret_cast<HostEvent*>(over), 16_MiB});
        REQUIRE(lane.to_be_watched());
        REQUIRE(lane.watch(sent, {.after = 10s, .slower = 1.3}).ok());
        CHECK(driver.neighbours()->lane(Direction::in).stalled == (second == 820));
    }
}

TEST_CASE("kernel copies: not if they are switched off, nor for few bytes, nor without pinned pages") {
    for (const KernelCopyOptions& options : {never, KernelCopyOptions{.after = 1ns, .least_bytes = 8_MiB + 8192}}) {
        World world{options};
        (void)world.saver.pause("weights");
        REQUIRE(host_of(world.driver).stall_copies(30ms).ok());
        (void)world.saver.resume("weights");
        CHECK(world.kernels() == 0);
        CHECK(world.whole());
        world.check_clean();
    }
    const Machine driver{HostDriver{64_MiB}};
    driver.fail({.call = Call::pin_host, .lasting = Lasting::onwards});
    {
        MemorySaver saver{driver};
        void* const block =
            saver.arena("weights", HostBackup{.threads = 2, .kernel_copies = by_kernel}).allocate(4_MiB);
        for (std::uint64_t cycle = 0; cycle < 2; ++cycle) {
            write_pattern(driver, block, 4_MiB, cycle);
            pause_and_resume(saver, "weights");
            CHECK(has_pattern(driver, block, 4_MiB, cycle));
        }
    }
    CHECK(driver.calls(Call::copy_by_kernel) == 0);
}

TEST_CASE("kernel copies: a finished transfer that nobody waited for does not delay others") {
    World world{soon};
    void* const more = world.saver.arena("more", HostBackup{.threads = 2, .kernel_copies = never}).allocate(8_MiB);
    write_pattern(world.driver, more, 8_MiB, 5);
    (void)world.saver.pause({"weights", "more"});
    const Arrival kept = world.saver.resume_async("more", {});
    while (!kept.done()) std::this_thread::sleep_for(1ms);
    std::this_thread::sleep_for(600ms);
    const HeldLane lane = world.stall(Direction::in);
    const std::uint64_t before = world.kernels();
    (void)world.saver.resume("weights");
    CHECK(world.kernels() > before);
    CHECK(world.whole());
    kept.wait();
    CHECK(has_pattern(world.driver, more, 8_MiB, 5));
    world.check_clean();
}

TEST_CASE("kernel copies: whatever fails, the tag stays paused and is restored whole") {
    for (const Call call : {Call::copy_by_kernel, Call::query, Call::copy_to_device, Call::record, Call::wait}) {
        CAPTURE(call_name(call));
        World world{soon};
        (void)world.saver.pause("weights");
        const HeldLane lane = world.stall(Direction::in, call);
        world.driver.fail({.call = call});
        CHECK_THROWS_AS((void)world.saver.resume("weights"), Error);
        world.driver.heal();
        CHECK(row_of(world.saver, "weights").state == "paused");
        (void)world.saver.resume("weights");
        CHECK(world.whole());
        world.check_clean();
    }
    World world{soon}; // without a stream for the kernels, the copies use the engines
    (void)world.saver.pause("weights");
    world.before = world.driver.calls(Call::copy_by_kernel);
    const HeldLane lane = world.stall(Direction::in, Call::open_stream);
    world.driver.fail({.call = Call::open_stream});
    (void)world.saver.resume("weights");
    CHECK(world.kernels() == 0);
    CHECK(world.whole());
    world.driver.heal();
    world.check_clean();
}

TEST_CASE("kernel copies: options are compared and described") {
    CHECK(HostBackup{} == HostBackup{});
    CHECK(!(HostBackup{} == HostBackup{.kernel_copies = {.after = 1ms}}));
    CHECK(contains(HostBackup{}.describe(), "copies of 256.00 MiB by a kernel after 10000 us"));
    CHECK(contains(HostBackup{.kernel_copies = {.after = 0ns}}.describe(), "no copies by a kernel"));
}
} // namespace backup_kernel_copies_test
