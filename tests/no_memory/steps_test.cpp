// Operations that run out of host memory: memory being returned to an arena is not lost, even if the arena grows
// concurrently.
#include "failing_new.hpp"
#include "memsaver/arena/arena.hpp"
#include "support/machines.hpp"

namespace no_memory_steps_test {
using namespace test;
using Machine = FaultyDriver<HostDriver>;

void pause(ArenaCore& core) {
    PauseStep step{core, core.take_turn(), std::nullopt};
    step.enqueue();
    step.wait();
    step.release();
    Status status;
    (void)step.commit(status);
    CHECK(status.ok());
}

TEST_CASE("PauseStep: undoing a pause needs no host memory") {
    const Machine driver{HostDriver{1_GiB}};
    ArenaCore core{driver, "tag", Discard{}, {}};
    (void)core.allocate({8_MiB});
    {
        const PauseStep step{core, core.take_turn(), std::nullopt};
        (void)core.allocate({8_MiB}); // uses the place that the first one left
        no_memory::countdown = 0;
    }
    no_memory::countdown = -1;
    CHECK(core.usage().mapped_bytes == driver.handle_bytes());
}

TEST_CASE("ResumeStep: undoing a resume needs no host memory") {
    const Machine driver{HostDriver{1_GiB}};
    ArenaCore core{driver, "tag", Discard{}, {}};
    (void)core.allocate({8_MiB});
    pause(core);
    ResumeStep step{core, core.take_turn()};
    step.create();
    step.map();
    step.enqueue();
    step.wait();
    for (std::size_t bytes = 8_MiB; bytes <= 128_MiB; bytes *= 2) (void)core.allocate({bytes});
    no_memory::countdown = 0;
    (void)step.commit();
    no_memory::countdown = -1;
    CHECK(core.usage().mapped_bytes == driver.handle_bytes());
}

TEST_CASE("ResumeStep: pages that cannot be released are used again, however often there is no room") {
    const Machine driver{HostDriver{1_GiB}};
    {
        ArenaCore core{driver, "tag", Discard{}, {}};
        (void)core.allocate({24_MiB});
        pause(core);
        driver.fail({.call = Call::release, .lasting = Lasting::onwards});
        {
            ResumeStep step{core, core.take_turn()};
            for (int i = 0; i < 4; ++i) {
                step.create();
                no_memory::countdown = 0;
                step.uncreate();
                no_memory::countdown = -1;
                CHECK(driver.handle_bytes() == 24_MiB);
            }
        }
        CHECK(core.usage().held_bytes == 24_MiB);
        CHECK(core.usage().mapped_bytes == driver.handle_bytes());
        driver.heal();
    }
    CHECK(driver.everything_given_back());
}
} // namespace no_memory_steps_test
