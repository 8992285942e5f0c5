// Events are created only if there is a listener, and a listener's exceptions do not propagate.
#include "memsaver/core/event.hpp"

#include <doctest/doctest.h>

#include <new>
#include <stdexcept>
#include <vector>

namespace core_event_test {

using namespace memsaver;
using namespace memsaver::detail;

TEST_CASE("tell: without a sink no event is made") {
    bool made = false;
    emit({}, [&] {
        made = true;
        return Event{};
    });
    CHECK_FALSE(made);
}

TEST_CASE("tell: a sink gets the event as it was made") {
    std::vector<Event> events;
    const EventSink sink = [&](const Event& event) { events.push_back(event); };
    emit(sink, [] { return Event{EventKind::retried, "tag", 3, "text", 1, 2}; });
    REQUIRE(events.size() == 1);
    CHECK(events[0].kind == EventKind::retried);
    CHECK(events[0].tag == "tag");
    CHECK(events[0].device == 3);
    CHECK(events[0].text == "text");
    CHECK(events[0].bytes_done == 1);
    CHECK(events[0].bytes_total == 2);
}

TEST_CASE("tell: exceptions of a sink, or of making an event, are swallowed") {
    static_assert(noexcept(emit(EventSink{}, [] { return Event{}; })));
    int calls = 0;
    const EventSink sink = [&](const Event&) {
        ++calls;
        throw std::runtime_error{"trouble"};
    };
    emit(sink, [] { return Event{}; });
    CHECK(calls == 1);
    emit(sink, []() -> Event { throw std::bad_alloc{}; });
    CHECK(calls == 1);
}

} // namespace core_event_test
