// A pause and a resume on a GPU, with their 1st, 2nd, ... last driver call failing: no bytes are lost, and a retry
// continues. Uses the policy that makes the most calls; tests/failure covers all policies on host memory.
#include "gpu/gpu_support.hpp"
#include "support/machines.hpp"

namespace gpu_sweep_test {
using namespace gpu_test;

enum class Swept : unsigned char { pause, resume };

/// Two blocks whose bytes are kept, in active or paused memory.
struct World {
    World(const CudaDriver& device, Swept swept) : driver{device} {
        for (const std::size_t bytes : sizes) {
            blocks.push_back(arena.allocate(bytes));
            test::write_pattern(driver, blocks.back(), bytes, blocks.size());
        }
        if (swept == Swept::resume) saver.pause();
    }

    [[nodiscard]] bool whole() const {
        for (std::size_t i = 0; i < blocks.size(); ++i) {
            if (!test::has_pattern(driver, blocks[i], sizes[i], i + 1)) return false;
        }
        return true;
    }
    void operate(Swept swept) { swept == Swept::pause ? saver.pause() : saver.resume(); }

    static constexpr std::array<std::size_t, 2> sizes{3_MiB, 6912};

    Watched driver;
    MemorySaver<Watched> saver{driver};
    Arena arena = saver.arena("kept", HostBackup{.threads = 1});
    std::vector<void*> blocks{};
};

/// Checks what is still held after the end of the saver: at most the resources whose release failed.
void check_left(const Watched& driver) {
    Outstanding left = driver.outstanding();
    left.events -= std::min<std::size_t>(left.events, driver.injected(Call::close_event));
    left.streams -= std::min<std::size_t>(left.streams, driver.injected(Call::close_stream));
    CHECK_MESSAGE(left == Outstanding{}, driver.leaks()); // memory, addresses and pins are retried
    for (const std::string& violation : driver.violations()) FAIL_CHECK(violation);
}

TEST_CASE("each driver call of a pause and of a resume fails once, or it and all that follow") {
    Program program; // keeps the context
    const CudaDriver device{0};
    for (const Swept swept : {Swept::pause, Swept::resume}) {
        for (const Lasting lasting : {Lasting::once, Lasting::onwards}) {
            const auto make = [&] { return World{device, swept}; };
            const auto operate = [&](World& world) { world.operate(swept); };
            const auto verify = [&](World& world, const SweepPoint& point) {
                CAPTURE(point.text());
                program.synchronize(); // if even waiting failed, copies may still be in flight
                test::check_books(world.saver, world.driver);
                if (point.error) CHECK_NOTHROW(operate(world));
                if (swept == Swept::pause) {
                    CHECK(world.driver.handle_bytes() == 0);
                    CHECK_NOTHROW(world.saver.resume());
                }
                CHECK(world.saver.bytes_to_resume() == 0);
                CHECK(world.whole());
                test::check_books(world.saver, world.driver);
                CHECK_NOTHROW(world.saver.close());
                check_left(world.driver);
            };
            const std::uint64_t points = sweep({.lasting = lasting}, make, operate, verify, 1000);
            MESSAGE(std::string{swept == Swept::pause ? "pause: " : "resume: "} << points << " points");
            CHECK(points > 5);
        }
    }
}
} // namespace gpu_sweep_test
