// What an order contains, and that only streams and events can be given.
#include "support/machines.hpp"

namespace core_order_test {
using namespace test;

CUstream_st* stream(std::uintptr_t number) { return reinterpret_cast<CUstream_st*>(number); }
CUevent_st* event(std::uintptr_t number) { return reinterpret_cast<CUevent_st*>(number); }

template <class Mark>
concept CanBeNamed = requires(Mark mark) {
    StreamRef{mark};
}
|| requires(Mark mark) { EventRef{mark}; };
static_assert(CanBeNamed<CUstream_st*> && CanBeNamed<CUevent_st*> && CanBeNamed<StreamRef> && CanBeNamed<EventRef>);
static_assert(!CanBeNamed<int> && !CanBeNamed<void*>);

TEST_CASE("Order: after(...) takes streams and events in any mixture") {
    const StreamRef mine{stream(16)};
    const Order order = after(mine, event(32), stream(48), EventRef{event(64)}, nullptr);
    CHECK(order.kind() == Order::Kind::after);
    REQUIRE(order.streams().size() == 3);
    CHECK(order.streams()[0] == mine);
    CHECK(order.streams()[1] == StreamRef{stream(48)});
    CHECK(order.streams()[2] == StreamRef{}); // null is the default stream
    REQUIRE(order.events().size() == 2);
    CHECK(order.events()[0] == EventRef{event(32)});
    CHECK(order.events()[1] == EventRef{event(64)});
    CHECK_THROWS_AS((void)after(mine, EventRef{}), Misuse);
}

TEST_CASE("Order: after_all takes lists") {
    const Order order = Order::after_all({StreamRef{stream(16)}, StreamRef{}}, {EventRef{event(32)}});
    CHECK(order.kind() == Order::Kind::after);
    CHECK(order.streams() == std::vector<StreamRef>{StreamRef{stream(16)}, StreamRef{}});
    CHECK(order.events() == std::vector<EventRef>{EventRef{event(32)}});
    CHECK(Order::after_all({}, {EventRef{event(32)}}).streams().empty());
    CHECK_THROWS_AS((void)Order::after_all({}), Misuse);
    CHECK_THROWS_AS((void)Order::after_all({}, {EventRef{}}), Misuse);
}
} // namespace core_order_test
