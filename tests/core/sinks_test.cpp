// The predefined event sinks.
#include "memsaver/core/core.hpp"

#include <doctest/doctest.h>

#include <cstdio>
#include <string>

namespace core_sinks_test {

using namespace memsaver;

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

} // namespace core_sinks_test
