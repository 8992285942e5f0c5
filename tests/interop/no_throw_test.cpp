// The functions that do not throw: they return null and send an event where an arena would throw.
#include "memsaver/interop/no_throw.hpp"
#include "support/machines.hpp"

namespace interop_no_throw_test {
using namespace test;

TEST_CASE_FIXTURE(OnSaver, "null instead of an exception, with the tag and the reason" * on_machines) {
    const Arena arena = saver.arena("weights");
    std::vector<Event> events;
    const EventSink sink = [&](const Event& event) { events.push_back(event); };
    CHECK(allocate_or_null(arena, 0, sink) == nullptr);
    CHECK(events.empty());
    CHECK(allocate_or_null(arena, std::numeric_limits<std::size_t>::max(), sink) == nullptr);
    CHECK(allocate_or_null(arena, 1, sink, 3) == nullptr); // not a power of two
    REQUIRE(events.size() == 2);
    for (const Event& event : events) {
        CHECK(event.kind == EventKind::ignored);
        CHECK(event.tag == "weights");
        CHECK(!event.text.empty());
    }
    CHECK(allocate_or_null(arena, 1, {}, 3) == nullptr); // no sink

    void* const block = allocate_or_null(arena, 1_MiB, sink, 64_KiB);
    REQUIRE(block != nullptr);
    CHECK(address_of(block) % 64_KiB == 0);
    deallocate_or_report(arena, block, {});
    CHECK(arena.usage().blocks == 0);
    CHECK(events.size() == 2);
}

TEST_CASE("a handle without an arena") {
    int told = 0;
    CHECK(allocate_or_null(Arena{}, 1, [&](const Event&) { ++told; }) == nullptr);
    CHECK(told == 1);
    deallocate_or_report(Arena{}, nullptr, {});
    int foreign = 0;
    deallocate_or_report(Arena{}, &foreign, {});
}
} // namespace interop_no_throw_test
