// A crew runs one function on several threads, its own or an engine's, and is finished once all have returned.
#include "memsaver/backup/crew.hpp"
#include "support/machines.hpp"

#include <latch>

namespace backup_crew_test {
using namespace test;

/// Tasks wait until they are run.
struct Engine final : Executor {
    void submit(std::function<void()> task) override { tasks.push_back(std::move(task)); }
    std::vector<std::function<void()>> tasks;
};

TEST_CASE("Crew: at most as many threads as are wanted and allowed, at the same time") {
    for (const std::size_t wanted : {std::size_t{1}, std::size_t{3}, std::size_t{100}}) {
        const std::size_t expected = std::min<std::size_t>(wanted, 4);
        std::latch all{static_cast<std::ptrdiff_t>(expected)};
        std::atomic<std::size_t> others{0};
        Crew crew{{.threads = 4}};
        CHECK(crew.done());
        crew.start(wanted, [&, here = std::this_thread::get_id()] {
            if (std::this_thread::get_id() != here) ++others;
            all.arrive_and_wait();
        });
        crew.join();
        CHECK(crew.done());
        CHECK(others == expected);
        CHECK(!crew.failure());
        crew.join(); // again
    }
}

TEST_CASE("Crew: an executor's tasks are over once all have run, and a wait is for those that have begun") {
    const auto engine = std::make_shared<Engine>();
    Crew crew{{.threads = 3, .executor = engine}};
    int ran = 0;
    crew.start(3, [&] { ++ran; });
    CHECK(engine->tasks.size() == 3);
    CHECK(ran == 0);
    for (const auto& task : engine->tasks) {
        CHECK(!crew.done());
        task();
    }
    CHECK(crew.done());
    crew.join();
    CHECK(ran == 3);

    std::atomic<bool> begun{false};
    std::atomic<bool> ended{false};
    Crew slow{{.threads = 1, .executor = engine}};
    slow.start(1, [&] {
        begun = true;
        std::this_thread::sleep_for(50ms);
        ended = true;
    });
    std::thread thread{engine->tasks.back()};
    while (!begun) std::this_thread::yield();
    slow.join();
    CHECK(ended);
    thread.join();
}

TEST_CASE(
    "Crew: the thread that waits does the work that nobody has begun; a task that comes after that does nothing") {
    const auto engine = std::make_shared<Engine>();
    int ran = 0;
    {
        Crew crew{{.threads = 2, .executor = engine}};
        crew.start(2, [&] { ++ran; });
        REQUIRE(engine->tasks.size() == 2);
        crew.join();
        engine->tasks.front()();
        CHECK(crew.done());
    }
    engine->tasks.back()(); // the crew is destroyed
    CHECK(ran == 1);
}

TEST_CASE("Crew: a node's processors are used if possible") {
    const auto processors = [] {
        cpu_set_t some;
        return ::sched_getaffinity(0, sizeof some, &some) == 0 ? CPU_COUNT(&some) : 0;
    };
    const int all = processors();
    const bool several_nodes = std::filesystem::exists("/sys/devices/system/node/node1");
    for (const int node : {-1, 0, 4711}) {
        std::atomic<int> ran{0};
        std::atomic<int> on_all{0};
        Crew crew{{.threads = 2, .numa_node = node}};
        crew.start(2, [&] {
            ++ran;
            if (processors() == all) ++on_all;
        });
        crew.join();
        CHECK(ran == 2);
        CHECK((on_all == 2 || several_nodes));
    }
    Crew none{{.threads = 0}}; // means one
    int ran = 0;
    none.start(0, [&] { ++ran; });
    none.join();
    CHECK(ran == 1);
}
} // namespace backup_crew_test
