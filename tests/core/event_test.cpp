// A span reports its beginning and its end, once each; and the predefined sinks. core/text_test.cpp tests `tell`.
#include "support/machines.hpp"

namespace core_event_test {
using namespace test;

struct Told {
    std::vector<std::string> lines;
    EventSink sink = [this](const Event& event) {
        lines.push_back((event.kind == EventKind::began ? "began " : "ended ") + event.text + ' ' + event.tag + ' ' +
                        std::to_string(event.device));
    };
};

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

std::string written(std::FILE* file) {
    std::rewind(file);
    std::string text(4096, '\0');
    text.resize(std::fread(text.data(), 1, text.size(), file));
    return text;
}

TEST_CASE("sinks: each event is one line of JSON") {
    std::FILE* const file = std::tmpfile();
    REQUIRE(file != nullptr);
    const EventSink sink = json_lines_sink(file);
    sink({EventKind::trimmed, "weights", 1, "trimmed 1.00 GiB", 2, 3});
    sink({EventKind::progress, "a\"b\\c", 0, "line\nbreak\ttab", 0, 0});
    CHECK(written(file) ==
          "{\"kind\":\"trimmed\",\"tag\":\"weights\",\"device\":1,\"text\":\"trimmed 1.00 GiB\",\"bytes_done\":2,"
          "\"bytes_total\":3}\n"
          "{\"kind\":\"progress\",\"tag\":\"a\\\"b\\\\c\",\"device\":0,\"text\":\"line\\u000abreak\\u0009tab\","
          "\"bytes_done\":0,\"bytes_total\":0}\n");
    (void)std::fclose(file);
}

TEST_CASE("sinks: every kind has a name") {
    for (const EventKind kind : {EventKind::ignored, EventKind::retried, EventKind::trimmed, EventKind::fell_back,
                                 EventKind::warned, EventKind::began, EventKind::ended, EventKind::progress}) {
        CHECK(std::string{name_of(kind)} != "unknown");
    }
}
} // namespace core_event_test
