// Threads whose ids the system reuses: regions, uses and captures of a thread that has ended are nobody's.
#include "support/machines.hpp"

namespace saver_thread_identity_test {
using namespace test;

/// Runs `first` on a thread, and then, if there is one, `then` on another one that the system gives the same id.
/// Returns whether there was one.
bool on_one_id(const std::function<void()>& first, const std::function<void()>& then) {
    std::thread::id id;
    std::thread{[&] {
        id = std::this_thread::get_id();
        first();
    }}.join();
    bool found = false;
    for (int i = 0; i < 1000 && !found; ++i) {
        std::thread{[&] {
            found = std::this_thread::get_id() == id;
            if (found) then();
        }}.join();
    }
    WARN_MESSAGE(found, "no thread got the id of an ended one: nothing was tested");
    return found;
}

TEST_CASE("thread identity: a region that a thread left open is no region of a later thread with its id") {
    Told told;
    MemorySaver<> saver{AnyDriver{HostDriver{64_MiB}}, {.events = told.sink()}};
    std::unique_ptr<Region> kept;
    std::string opener;
    on_one_id(
        [&] {
            kept.reset(new Region{saver.region("init")});
            opener = ThreadMark::here().text();
        },
        [&] {
            const std::string text = text_of<Misuse>([&] { (void)saver.allocate(1_MiB); });
            CHECK(contains(text, "this thread has no open region"));
            CHECK(contains(text, "other threads have 1 open"));
            const Region own = saver.region("own");
            (void)saver.allocate(1_MiB);
        });
    CHECK(row_of(saver, "init").used_bytes == 0);
    CHECK(told.all().empty()); // the later thread's region ended in order
    kept.reset();
    const std::vector<Event> events = told.all();
    REQUIRE(events.size() == 1);
    CHECK(events[0].kind == EventKind::ignored);
    CHECK(events[0].tag == "init");
    for (const std::string& part : {std::string{"another thread"}, opener + ", which has ended"})
        CHECK(contains(events[0].text, part));
}

TEST_CASE("thread identity: a region that ends on a later thread with the id of its opener is reported") {
    Told told;
    MemorySaver<> saver{AnyDriver{HostDriver{64_MiB}}, {.events = told.sink()}};
    std::unique_ptr<Region> kept;
    const bool found = on_one_id([&] { kept.reset(new Region{saver.region("init")}); }, [&] { kept.reset(); });
    if (!found) return;
    REQUIRE(told.all().size() == 1);
    CHECK(contains(told.all()[0].text, "which has ended"));
}

TEST_CASE("thread identity: a use that a thread left is not held by a later thread with its id") {
    CHECK(within_seconds(60, [] {
        MemorySaver<> saver{AnyDriver{HostDriver{64_MiB}}};
        (void)saver.arena("a", HostBackup{.threads = 1}).allocate(1_MiB);
        Use left;
        bool good = true;
        on_one_id([&] { left = saver.use("a"); },
                  [&] {
                      std::thread ending{[&] {
                          std::this_thread::sleep_for(std::chrono::milliseconds{50});
                          left.release();
                      }};
                      try {
                          (void)saver.pause("a"); // waits for the use instead of refusing to wait for itself
                      } catch (const Misuse&) {
                          good = false;
                      }
                      ending.join();
                  });
        return good;
    }));
}
} // namespace saver_thread_identity_test
