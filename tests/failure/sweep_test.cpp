// Every operation with its 1st, 2nd, ... last driver call failing, once and from there on. After each: the books are
// true, the other tag's bytes are whole, addresses are the same, repeating the operation succeeds, nothing leaks.
#include "support/bytes.hpp"
#include "support/machines.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

using namespace test;

namespace {

constexpr std::size_t block_bytes = 2_MiB;
constexpr std::size_t looked_at = 64_KiB; // of each block

/// A saver with a tag that operations are done to, and one beside it that nothing may touch.
template <class M>
struct World {
    using Driver = typename M::Driver;

    World() : driver{M::driver()}, saver{std::in_place, driver, SaverOptions{.margin = 1_MiB}} {
        const Arena arena = saver->arena("swept", Zero{});
        const Arena poisoned = saver->arena("poisoned", Discard{.poison = static_cast<unsigned char>(0x5A)});
        const Arena bystander = saver->arena("bystander");
        for (int i = 0; i < 4; ++i) swept.push_back(arena.allocate(block_bytes));
        for (int i = 0; i < 5; ++i) small.push_back(arena.allocate(1000));
        dead = poisoned.allocate(block_bytes);
        other = bystander.allocate(block_bytes);
        for (std::size_t i = 0; i < swept.size(); ++i) write_pattern(driver, swept[i], looked_at, i);
        write_pattern(driver, other, looked_at, 99);
        REQUIRE(driver.open_stream(stream).ok());
    }
    World(World&&) = default;

    Driver driver;
    std::optional<MemorySaver<Driver>> saver;
    StreamRef stream;
    std::vector<void*> swept;
    std::vector<void*> small;
    void* dead = nullptr;  // in "poisoned"
    void* other = nullptr; // in "bystander"
    void* made = nullptr;  // by the operation
};

/// What must hold whatever failed.
template <class World>
void check_truth(World& world) {
    std::size_t mapped = 0;
    std::size_t blocks = 0;
    for (const ArenaUsage& row : world.saver->usage()) {
        mapped += row.mapped_bytes;
        blocks += row.blocks;
        CHECK(row.held_bytes <= row.mapped_bytes);
    }
    CHECK(mapped == world.driver.handle_bytes() + world.driver.plain_bytes());
    for (const std::string& text : world.driver.violations()) FAIL_CHECK(text);
    CHECK(blocks <= 13);
}

template <class M>
class Sweep {
public:
    using W = World<M>;
    using Act = std::function<void(W&)>;

    explicit Sweep(const char* name) : name_{name} {}

    /// `prepare` brings a world into the state in which `operate` is tried; `done` checks what it is to have done.
    /// `whole` says whether the bystander is to have kept its bytes.
    void run(const Act& prepare, const Act& operate, const Act& done, bool whole = true,
             const std::vector<StatusKind>& kinds = {StatusKind::other, StatusKind::out_of_memory,
                                                     StatusKind::out_of_host_memory}) {
        for (const StatusKind kind : kinds) {
            for (const Lasting lasting : {Lasting::once, Lasting::onwards}) {
                points_ += sweep(
                    {.lasting = lasting, .kind = kind},
                    [&] {
                        W world;
                        prepare(world);
                        return world;
                    },
                    operate, [&](W& world, const SweepPoint& point) { verify(world, point, operate, done, whole); });
            }
        }
    }
    /// The same for a device that is lost: nothing comes back, but the books stay true and close works.
    void run_lost(const Act& prepare, const Act& operate) {
        points_ += sweep(
            {.lasting = Lasting::onwards, .kind = StatusKind::gone},
            [&] {
                W world;
                prepare(world);
                return world;
            },
            operate,
            [&](W& world, const SweepPoint& point) {
                CAPTURE(name_);
                CAPTURE(point.text());
                check_truth(world);
                if (point.injected != 0) world.driver.fail({.lasting = Lasting::onwards, .kind = StatusKind::gone});
                CHECK_NOTHROW(world.saver->close());
                world.saver.reset(); // still lost: such a device does not come back
                world.driver.heal();
                (void)world.driver.close_stream(world.stream);
                for (const std::string& text : world.driver.violations()) FAIL_CHECK(text);
            });
    }
    ~Sweep() { MESSAGE(std::string{name_} << ": " << points_ << " points"); }
    Sweep(const Sweep&) = delete;
    Sweep& operator=(const Sweep&) = delete;

private:
    void verify(W& world, const SweepPoint& point, const Act& operate, const Act& done, bool whole) {
        CAPTURE(name_);
        CAPTURE(point.text());
        check_truth(world);
        if (whole) CHECK(has_pattern(world.driver, world.other, looked_at, 99));
        if (point.error) {
            CHECK_NOTHROW(operate(world)); // once failures stop, it goes on where it stopped
        }
        check_truth(world);
        done(world);
        if (whole) CHECK(has_pattern(world.driver, world.other, looked_at, 99));
        world.saver.reset();
        CHECK(world.driver.close_stream(world.stream).ok());
        Outstanding left = world.driver.outstanding();
        // An event or a stream whose closing failed in a destructor is the driver's: it cannot be closed twice.
        CHECK(left.events + left.streams <= point.injected);
        left.events = left.streams = 0;
        CHECK_MESSAGE(left == Outstanding{}, world.driver.leaks());
        for (const std::string& text : world.driver.violations()) FAIL_CHECK(text);
    }

    const char* name_;
    std::uint64_t points_ = 0;
};

template <class W>
void nothing(W&) {}

/// Paused or resumed, "swept" comes back at the same addresses, reading as zero and writable.
template <class W>
void check_swept_usable(W& world) {
    (void)world.saver->resume();
    for (std::size_t i = 0; i < world.swept.size(); ++i) {
        if (world.swept[i] == nullptr) continue;
        write_pattern(world.driver, world.swept[i], looked_at, 50 + i);
    }
    for (std::size_t i = 0; i < world.swept.size(); ++i) {
        if (world.swept[i] == nullptr) continue;
        CHECK(has_pattern(world.driver, world.swept[i], looked_at, 50 + i));
    }
    check_truth(world);
}

} // namespace

TEST_CASE_TEMPLATE("sweep: allocate", M, MEMSAVER_TEST_MACHINES) {
    using W = World<M>;
    struct Case {
        const char* tag;
        std::size_t bytes;
    };
    for (const auto& [tag, bytes] : {Case{"fresh", 1000}, Case{"fresh", 300'000}, Case{"swept", 24_MiB}}) {
        Sweep<M> sweeping{"allocate"};
        const auto with_tag = [](W& w) { (void)w.saver->arena("fresh"); };
        const auto operate = [&](W& w) { w.made = w.saver->arena(tag).allocate(bytes); };
        const auto done = [&](W& w) {
            REQUIRE(w.made != nullptr);
            write_pattern(w.driver, w.made, std::min(bytes, looked_at), 7);
            CHECK(has_pattern(w.driver, w.made, std::min(bytes, looked_at), 7));
            for (std::size_t i = 0; i < w.swept.size(); ++i) CHECK(has_pattern(w.driver, w.swept[i], looked_at, i));
        };
        sweeping.run(with_tag, operate, done);
        sweeping.run_lost(with_tag, operate);
    }
    Sweep<M> sweeping{"allocate what waits to be reused"};
    void* freed = nullptr;
    const auto prepare = [&](W& w) {
        const Arena arena = w.saver->arena("tight", Zero{}, {.capacity = 4_MiB});
        freed = arena.allocate(4_MiB);
        arena.deallocate(freed);
    };
    const auto operate = [&](W& w) { w.made = w.saver->arena("tight").allocate(3_MiB); };
    const auto done = [&](W& w) { CHECK(w.made == freed); };
    sweeping.run(prepare, operate, done);
    sweeping.run_lost(prepare, operate);
}

TEST_CASE_TEMPLATE("sweep: a new tag and its first block", M, MEMSAVER_TEST_MACHINES) {
    using W = World<M>;
    Sweep<M> sweeping{"new tag"};
    const auto operate = [](W& w) {
        w.made = w.saver->arena("new", Zero{}, {.capacity = 1_GiB, .reserve = 4_MiB}).allocate(1_MiB);
    };
    const auto done = [](W& w) {
        write_pattern(w.driver, w.made, 1_MiB, 7);
        CHECK(row_of(*w.saver, "new").blocks == 1);
    };
    sweeping.run(nothing<W>, operate, done);
    sweeping.run_lost(nothing<W>, operate);
}

TEST_CASE_TEMPLATE("sweep: deallocate", M, MEMSAVER_TEST_MACHINES) {
    using W = World<M>;
    const auto once = [](W& w, void*& block, auto... order) {
        if (block == nullptr) return;
        w.saver->deallocate(block, order...);
        block = nullptr;
    };
    const auto done = [](W& w) {
        CHECK(row_of(*w.saver, "swept").blocks == 7);
        check_swept_usable(w);
    };
    Sweep<M> sweeping{"deallocate"};
    for (const bool paused : {false, true}) {
        const auto prepare = [&](W& w) {
            if (paused) (void)w.saver->pause("swept");
        };
        const auto plainly = [&](W& w) { once(w, w.swept[1]), once(w, w.small[1]); };
        const auto on_stream = [&](W& w) { once(w, w.swept[1], w.stream), once(w, w.small[1], w.stream); };
        const auto idle = [&](W& w) { once(w, w.swept[1], already_idle), once(w, w.small[1], already_idle); };
        for (const std::function<void(W&)>& operate : std::vector<std::function<void(W&)>>{plainly, on_stream, idle}) {
            sweeping.run(prepare, operate, done);
            sweeping.run_lost(prepare, operate);
        }
    }
}

TEST_CASE_TEMPLATE("sweep: pause of one", M, MEMSAVER_TEST_MACHINES) {
    using W = World<M>;
    Sweep<M> sweeping{"pause one"};
    const auto operate = [](W& w) { (void)w.saver->pause("swept"); };
    const auto done = [](W& w) {
        CHECK(row_of(*w.saver, "swept").state == "paused");
        CHECK(row_of(*w.saver, "swept").mapped_bytes == 0);
        (void)w.saver->resume("swept");
        for (void* const block : w.swept) CHECK(all_are(w.driver, block, looked_at, 0));
        for (void* const block : w.small) CHECK(all_are(w.driver, block, 1000, 0));
        check_swept_usable(w);
    };
    sweeping.run(nothing<W>, operate, done);
    sweeping.run_lost(nothing<W>, operate);
    const auto some_paused = [](W& w) {
        (void)w.saver->pause("swept");
        w.small.push_back(w.saver->arena("swept").allocate(1000));
    };
    sweeping.run(some_paused, operate, done, true, {StatusKind::other});
    const auto on_stream = [](W& w) {
        (void)w.saver->pause("swept", {.order = after(w.stream), .timeout = std::chrono::minutes{5}});
    };
    sweeping.run(nothing<W>, on_stream, done, true, {StatusKind::other});
    sweeping.run(nothing<W>, [](W& w) { (void)w.saver->pause("swept", {.order = already_idle}); }, done, true,
                 {StatusKind::other});
    sweeping.run(nothing<W>, [](W& w) { (void)w.saver->pause("swept", {.bytes = Zero{}}); }, done, true,
                 {StatusKind::other});
}

TEST_CASE_TEMPLATE("sweep: pause of all", M, MEMSAVER_TEST_MACHINES) {
    using W = World<M>;
    Sweep<M> sweeping{"pause all"};
    const auto operate = [](W& w) { (void)w.saver->pause(); };
    const auto done = [](W& w) {
        CHECK(w.driver.handle_bytes() == 0);
        (void)w.saver->resume();
        for (void* const block : w.swept) CHECK(all_are(w.driver, block, looked_at, 0));
        CHECK(all_are(w.driver, w.dead, looked_at, 0x5A));
        write_pattern(w.driver, w.other, looked_at, 99);
        check_swept_usable(w);
    };
    sweeping.run(nothing<W>, operate, done, false);
    sweeping.run_lost(nothing<W>, operate);
}

TEST_CASE_TEMPLATE("sweep: resume of one", M, MEMSAVER_TEST_MACHINES) {
    using W = World<M>;
    Sweep<M> sweeping{"resume one"};
    const auto paused = [](W& w) { (void)w.saver->pause("swept"); };
    const auto operate = [](W& w) { (void)w.saver->resume("swept"); };
    const auto done = [](W& w) {
        CHECK(row_of(*w.saver, "swept").state == "active");
        for (void* const block : w.swept) {
            if (block != nullptr) CHECK(all_are(w.driver, block, looked_at, 0));
        }
        check_swept_usable(w);
    };
    sweeping.run(paused, operate, done);
    sweeping.run_lost(paused, operate);
    const auto with_gaps = [](W& w) { // dead extents, several batches, something active
        void* const large = w.saver->arena("swept").allocate(32_MiB);
        (void)w.saver->pause("swept");
        w.swept.push_back(w.saver->arena("swept").allocate(block_bytes));
        (void)w.saver->pause("swept");
        w.saver->deallocate(large);
        w.saver->deallocate(w.swept[1]);
        w.swept[1] = nullptr;
        w.made = w.saver->arena("swept").allocate(block_bytes);
        write_pattern(w.driver, w.made, looked_at, 77);
    };
    const auto done_and_kept = [&](W& w) {
        CHECK(has_pattern(w.driver, w.made, looked_at, 77));
        done(w);
    };
    sweeping.run(with_gaps, operate, done_and_kept);
}

TEST_CASE_TEMPLATE("sweep: resume of all", M, MEMSAVER_TEST_MACHINES) {
    using W = World<M>;
    Sweep<M> sweeping{"resume all"};
    const auto paused = [](W& w) { (void)w.saver->pause({"swept", "poisoned"}); };
    const auto operate = [](W& w) { (void)w.saver->resume(); };
    const auto done = [](W& w) {
        for (void* const block : w.swept) CHECK(all_are(w.driver, block, looked_at, 0));
        CHECK(all_are(w.driver, w.dead, looked_at, 0x5A));
        check_swept_usable(w);
    };
    sweeping.run(paused, operate, done);
    sweeping.run_lost(paused, operate);
}

TEST_CASE_TEMPLATE("sweep: trim", M, MEMSAVER_TEST_MACHINES) {
    using W = World<M>;
    Sweep<M> sweeping{"trim"};
    const auto prepare = [](W& w) {
        void* const large = w.saver->arena("swept").allocate(32_MiB);
        void* const streamed = w.saver->arena("poisoned").allocate(32_MiB);
        w.saver->deallocate(large);
        w.saver->deallocate(streamed, w.stream);
    };
    const auto operate = [](W& w) { (void)w.saver->trim(); };
    const auto done = [](W& w) {
        (void)w.saver->trim(); // a mark that cannot be asked for is taken for one that has not passed
        CHECK(w.driver.handle_bytes() <= 24_MiB);
        for (std::size_t i = 0; i < w.swept.size(); ++i) CHECK(has_pattern(w.driver, w.swept[i], looked_at, i));
        check_swept_usable(w);
    };
    sweeping.run(prepare, operate, done);
    sweeping.run_lost(prepare, operate);
}

TEST_CASE_TEMPLATE("sweep: invalidate, bytes_to_resume and usage", M, MEMSAVER_TEST_MACHINES) {
    using W = World<M>;
    Sweep<M> sweeping{"invalidate"};
    const auto operate = [](W& w) {
        w.saver->invalidate("swept");
        CHECK(w.saver->bytes_to_resume("swept") > 0);
        (void)w.saver->usage();
    };
    sweeping.run([](W& w) { (void)w.saver->pause("swept"); }, operate, check_swept_usable<W>);
}

TEST_CASE_TEMPLATE("sweep: close", M, MEMSAVER_TEST_MACHINES) {
    using W = World<M>;
    Sweep<M> sweeping{"close"};
    const auto prepare = [](W& w) {
        (void)w.saver->pause("poisoned");
        const auto outside = w.saver->outside();
        (void)w.saver->allocate(1_MiB);
        w.saver->deallocate(w.swept[0], w.stream);
        w.saver->deallocate(w.swept[1]);
    };
    const auto operate = [](W& w) { w.saver->close(); };
    const auto done = [](W& w) {
        CHECK(w.driver.handle_bytes() == 0);
        CHECK(w.driver.plain_bytes() == 0);
        CHECK(w.driver.reserved_bytes() == 0);
    };
    sweeping.run(prepare, operate, done, false);
    sweeping.run_lost(prepare, operate);
}

TEST_CASE_TEMPLATE("sweep: a saver that dies", M, MEMSAVER_TEST_MACHINES) {
    using W = World<M>;
    std::uint64_t points = 0;
    for (const Lasting lasting : {Lasting::once, Lasting::onwards}) {
        points += sweep(
            {.lasting = lasting}, [] { return W{}; }, [](W& w) { w.saver.reset(); },
            [](W& w, const SweepPoint& point) {
                CHECK(!point.error);
                for (const std::string& text : w.driver.violations()) FAIL_CHECK(text);
                CHECK(w.driver.close_stream(w.stream).ok());
            });
    }
    MESSAGE("a saver that dies: " << points << " points");
}
