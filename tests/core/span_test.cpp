// A span reports its beginning and its end, once each.
#include "memsaver/core/event.hpp"

#include <doctest/doctest.h>

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace core_span_test {

using namespace memsaver;
using namespace memsaver::detail;

namespace {

struct Told {
    std::vector<std::string> lines;
    EventSink sink = [this](const Event& event) {
        lines.push_back((event.kind == EventKind::began ? "began " : "ended ") + event.text + ' ' + event.tag + ' ' +
                        std::to_string(event.device));
    };
};

} // namespace

TEST_CASE("a span reports its beginning and its end") {
    Told told;
    {
        const Span span{told.sink, "tag", 3, "save"};
        CHECK(told.lines == std::vector<std::string>{"began save tag 3"});
    }
    CHECK(told.lines == std::vector<std::string>{"began save tag 3", "ended save tag 3"});
}

TEST_CASE("a span that is moved, ended or left by an exception ends once") {
    Told told;
    {
        Span first{told.sink, "a", 0, "pause"};
        Span second{std::move(first)};
        Span third;
        third = std::move(second);
        CHECK(told.lines.size() == 1);
        third.end();
        CHECK(told.lines.size() == 2);
        third.end();
        third = Span{told.sink, "b", 0, "resume"};
        third = Span{told.sink, "c", 0, "trim"};
        CHECK(told.lines.back() == "ended resume b 0");
    }
    CHECK(told.lines.size() == 6);
    try {
        const Span span{told.sink, "d", 0, "capture"};
        throw std::runtime_error{"midway"};
    } catch (const std::runtime_error&) {
    }
    CHECK(told.lines.back() == "ended capture d 0");
}

TEST_CASE("without a listener, and with one that throws, nothing happens") {
    const EventSink none;
    { const Span span{none, "tag", 0, "save"}; }
    const EventSink throws = [](const Event&) { throw std::runtime_error{"trouble"}; };
    { const Span span{throws, "tag", 0, "save"}; }
    static_assert(std::is_nothrow_move_constructible_v<Span> && std::is_nothrow_destructible_v<Span>);
}

} // namespace core_span_test
