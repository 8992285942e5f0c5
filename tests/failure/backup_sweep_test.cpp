// Each policy that keeps bytes, with the 1st, 2nd, ... last driver call of an operation failing, once and from there
// on. After each: no byte is lost, the books are true, repeating the operation succeeds, and nothing leaks.
#include "backup/backup_support.hpp"

#include <functional>
#include <optional>
#include <utility>

using namespace test;

namespace {

template <class M>
struct World {
    using Driver = typename M::Driver;

    explicit World(const AnyBackup<Driver>& policy) : driver{M::driver()}, saver{std::in_place, driver} {
        const Arena arena = saver->arena("swept", policy);
        // Small ones share an extent; large ones span several that are neighbours, at odd places.
        for (const std::size_t bytes : {std::size_t{6912}, 3_MiB + 1, std::size_t{300'000}, 2_MiB + 6912}) {
            blocks.push_back({arena.allocate(bytes), bytes});
        }
        write(1);
    }
    void write(std::uint64_t seed) {
        seed_ = seed;
        for (const auto& [at, bytes] : blocks) write_pattern(driver, at, bytes, seed + bytes);
    }
    [[nodiscard]] bool whole() const {
        return std::all_of(blocks.begin(), blocks.end(), [&](const auto& block) {
            return has_pattern(driver, block.first, block.second, seed_ + block.second);
        });
    }

    Driver driver;
    std::optional<MemorySaver<Driver>> saver;
    std::vector<std::pair<void*, std::size_t>> blocks;

private:
    std::uint64_t seed_ = 0;
};

template <class M>
class Sweep {
public:
    using W = World<M>;
    using Act = std::function<void(W&)>;

    explicit Sweep(std::string name) : name_{std::move(name)} {}
    Sweep(const Sweep&) = delete;
    Sweep& operator=(const Sweep&) = delete;
    ~Sweep() { MESSAGE(name_ << ": " << points_ << " points"); }

    /// In every sort of policy: `prepare` brings a world into a state, `operate` is swept.
    void run(const Act& prepare, const Act& operate) {
        // Those left out take the ways of others through the code.
        const std::vector<std::string> left_out{"pageable, given back", "pageable, once", "pageable, verified", "file",
                                                "file, once"};
        for (const auto& [policy_name, policy] : keepers<typename M::Driver>()) {
            if (std::find(left_out.begin(), left_out.end(), policy_name) != left_out.end()) continue;
            struct Way {
                Lasting lasting;
                StatusKind kind;
            };
            for (const auto& [lasting, kind] :
                 {Way{Lasting::once, StatusKind::other}, Way{Lasting::onwards, StatusKind::other},
                  Way{Lasting::once, StatusKind::out_of_memory},
                  Way{Lasting::onwards, StatusKind::out_of_host_memory}}) {
                points_ += sweep(
                    {.lasting = lasting, .kind = kind},
                    [&, &how = policy] {
                        W world{how};
                        prepare(world);
                        return world;
                    },
                    operate,
                    [&, named = policy_name](W& world, const SweepPoint& point) {
                        CAPTURE(name_);
                        CAPTURE(named);
                        CAPTURE(point.text());
                        verify(world, point, operate);
                    });
            }
            points_ += sweep(
                {.lasting = Lasting::onwards, .kind = StatusKind::gone},
                [&, &how = policy] {
                    W world{how};
                    prepare(world);
                    return world;
                },
                operate,
                [&, named = policy_name](W& world, const SweepPoint& point) {
                    CAPTURE(name_);
                    CAPTURE(named);
                    CAPTURE(point.text());
                    lost(world, point);
                });
        }
    }

private:
    static void check_truth(W& world) {
        check_books(*world.saver, world.driver);
        for (const std::string& text : world.driver.violations()) FAIL_CHECK(text);
    }

    void verify(W& world, const SweepPoint& point, const Act& operate) {
        check_truth(world);
        if (point.error) CHECK_NOTHROW(operate(world)); // once failures stop, it goes on where it stopped
        check_truth(world);
        if (!closed(world)) {
            CHECK_NOTHROW((void)world.saver->resume());
            CHECK(world.whole());
            world.write(7); // and it can be done once more, with fresh bytes
            world.saver->invalidate("swept");
            CHECK_NOTHROW((void)world.saver->pause());
            CHECK(world.driver.handle_bytes() == 0);
            CHECK_NOTHROW((void)world.saver->resume());
            CHECK(world.whole());
            check_truth(world);
        }
        world.saver.reset();
        Outstanding left = world.driver.outstanding();
        // What failed to close in a destructor is the driver's: nobody can close it twice.
        CHECK(left.events + left.streams + left.files + left.host_pages + left.pins <= 2 * point.injected);
        left.events = left.streams = left.files = left.host_pages = left.pins = 0;
        CHECK_MESSAGE(left == Outstanding{}, world.driver.leaks());
        for (const std::string& text : world.driver.violations()) FAIL_CHECK(text);
        if constexpr (requires { world.driver.inner().violations(); }) {
            for (const std::string& text : world.driver.inner().violations()) FAIL_CHECK(text);
        }
    }

    /// The device does not come back: the kept bytes can be read, what can be closed is.
    void lost(W& world, const SweepPoint& point) {
        check_truth(world);
        if (point.injected != 0) world.driver.fail({.lasting = Lasting::onwards, .kind = StatusKind::gone});
        CHECK_NOTHROW(world.saver->close());
        world.saver.reset();
        world.driver.heal();
        for (const std::string& text : world.driver.violations()) FAIL_CHECK(text);
    }
    static bool closed(W& world) { return row_of(*world.saver, "swept").state == "closed"; }

    std::string name_;
    std::uint64_t points_ = 0;
};

template <class W>
void nothing(W&) {}
template <class W>
void pause(W& world) {
    (void)world.saver->pause();
}
template <class W>
void resume(W& world) {
    (void)world.saver->resume();
}
template <class W>
void cycle(W& world) {
    pause(world), resume(world);
}

} // namespace

TEST_CASE_TEMPLATE("backup sweep: the first pause", M, MEMSAVER_TEST_QUICK_MACHINE) {
    Sweep<M>{"first pause"}.run(nothing<World<M>>, pause<World<M>>);
}

TEST_CASE_TEMPLATE("backup sweep: a later pause", M, MEMSAVER_TEST_QUICK_MACHINE) {
    const auto changed = [](World<M>& world) {
        cycle(world);
        world.write(3);
        world.saver->invalidate("swept");
    };
    Sweep<M>{"later pause"}.run(changed, pause<World<M>>);
}

TEST_CASE_TEMPLATE("backup sweep: resume", M, MEMSAVER_TEST_QUICK_MACHINE) {
    Sweep<M>{"resume"}.run(pause<World<M>>, resume<World<M>>);
}

TEST_CASE_TEMPLATE("backup sweep: resume of several batches, some blocks gone", M, MEMSAVER_TEST_QUICK_MACHINE) {
    const auto batches = [](World<M>& world) {
        pause(world);
        const Arena arena = world.saver->arena("swept");
        world.blocks.emplace_back(arena.allocate(2_MiB + 1), 2_MiB + 1);
        write_pattern(world.driver, world.blocks.back().first, 2_MiB + 1, 1 + 2_MiB + 1);
        pause(world);
        world.saver->deallocate(world.blocks[0].first);
        world.blocks.erase(world.blocks.begin());
    };
    Sweep<M>{"resume batches"}.run(batches, resume<World<M>>);
}

TEST_CASE_TEMPLATE("backup sweep: prepare", M, MEMSAVER_TEST_QUICK_MACHINE) {
    Sweep<M>{"prepare"}.run(nothing<World<M>>, [](World<M>& world) { world.saver->prepare("swept"); });
}

TEST_CASE_TEMPLATE("backup sweep: invalidate and backup_view, while paused", M, MEMSAVER_TEST_QUICK_MACHINE) {
    Sweep<M>{"invalidate, view"}.run(pause<World<M>>, [](World<M>& world) {
        world.saver->invalidate("swept");
        for (const auto& [at, bytes] : world.blocks) {
            const BackupView view = world.saver->backup_view(at, bytes);
            const auto expected = pattern(bytes, 1 + bytes);
            CHECK(std::equal(expected.begin(), expected.end(), reinterpret_cast<const unsigned char*>(view.data())));
        }
    });
}

TEST_CASE_TEMPLATE("backup sweep: deallocate while paused", M, MEMSAVER_TEST_QUICK_MACHINE) {
    Sweep<M>{"deallocate"}.run(pause<World<M>>, [](World<M>& world) {
        if (world.blocks.size() < 4) return;
        world.saver->deallocate(world.blocks[1].first);
        world.blocks.erase(world.blocks.begin() + 1);
    });
}

TEST_CASE_TEMPLATE("backup sweep: close", M, MEMSAVER_TEST_QUICK_MACHINE) {
    const auto close = [](World<M>& world) { world.saver->close(); };
    Sweep<M>{"close, active"}.run(cycle<World<M>>, close);
    Sweep<M>{"close, paused"}.run(pause<World<M>>, close);
}

TEST_CASE_TEMPLATE("planted: the n-th copy of a save or a restore fails", M, MEMSAVER_TEST_QUICK_MACHINE) {
    for (const auto& [name, policy] : keepers<typename M::Driver>()) {
        for (const Call call : {Call::copy_to_host, Call::copy_to_device, Call::write_file, Call::read_file}) {
            const bool out = call == Call::copy_to_host || call == Call::write_file;
            for (std::uint64_t nth = 1; nth <= 3; ++nth) {
                CAPTURE(name);
                CAPTURE(call_name(call));
                CAPTURE(nth);
                World<M> world{policy};
                if (!out) pause(world);
                world.driver.fail({.call = call, .nth = nth, .lasting = Lasting::onwards});
                try {
                    (void)(out ? world.saver->pause() : world.saver->resume());
                } catch (const DriverError&) {
                    CHECK(row_of(*world.saver, "swept").state == (out ? "active" : "paused"));
                }
                world.driver.heal();
                if (out) {
                    resume(world);
                    CHECK(world.whole());
                    pause(world);
                }
                resume(world);
                CHECK(world.whole());
                world.saver.reset();
                check_given_back(world.driver);
            }
        }
    }
}
