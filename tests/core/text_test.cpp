#include "memsaver/core/error.hpp"
#include "memsaver/core/event.hpp"
#include "memsaver/core/text.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace core_text_test {

using namespace memsaver;
using namespace memsaver::detail;

static_assert(std::is_trivially_copyable_v<Bit> && sizeof(Bit) == 16);

TEST_CASE("a text is its parts") {
    const std::string name = "weights";
    CHECK(text_of({}).empty());
    CHECK(text_of({"tag ", in_quotes(name), ": ", in_bytes(3 << 20), " at ", in_hex(0x7f00), ", ", in_digits(-2),
                   " of ", std::string_view{"two words", 3}, name}) ==
          "tag \"weights\": 3.00 MiB at 0x7f00, -2 of twoweights");
    CHECK(text_of({in_digits(std::numeric_limits<std::int64_t>::max())}) == "9223372036854775807");
    CHECK(text_of({in_quotes("")}) == "\"\"");
}

TEST_CASE("errors are thrown with their text, and with the tag they are about") {
    CHECK_THROWS_WITH_AS(misuse({"size ", in_digits(0)}), "size 0", Misuse);
    CHECK_THROWS_WITH_AS(not_idle({"still ", "busy"}), "still busy", NotIdle);
    CHECK_THROWS_WITH_AS(out_of_host_memory({"no ", in_bytes(1)}), "no 1 B", OutOfHostMemory);
    CHECK_THROWS_WITH_AS(unavailable({"none"}), "none", Unavailable);
    try {
        misuse_of("weights", {"why"});
    } catch (const Misuse& error) {
        CHECK(error.tag() == "weights");
    }
    try {
        raise_of({StatusKind::out_of_memory, 2, "NO_MEMORY"}, "create pages", {in_bytes(2 << 20)}, 5, 3);
    } catch (const OutOfMemory& error) {
        CHECK(std::string{error.what()}.starts_with("create pages (2.00 MiB) failed: NO_MEMORY (2)"));
        CHECK(error.needed_bytes() == 5);
        CHECK(error.free_bytes() == 3);
    }
}

TEST_CASE("an exception that is rethrown is translated, or gets a tag") {
    CHECK_THROWS_AS(translated([] { throw std::bad_alloc{}; }), OutOfHostMemory);
    CHECK_THROWS_AS(translated([] { throw OutOfMemory{"x", 1, 0}; }), OutOfMemory); // a std::bad_alloc too
    CHECK_THROWS_AS(translated([] { throw std::logic_error{"a hook's"}; }), std::logic_error);
    CHECK_THROWS_AS(naming("weights", [] { throw 7; }), int);
    int value = 3;
    CHECK(&translated([&]() -> int& { return value; }) == &value);
    try {
        naming("weights", [] { naming("inner", [] { misuse({"why"}); }); });
    } catch (const Misuse& error) {
        CHECK(error.tag() == "inner");
    }
}

TEST_CASE("an event's text is built only for a sink, whose exceptions are swallowed") {
    std::vector<Event> seen;
    const EventSink sink = [&](const Event& event) {
        seen.push_back(event);
        throw std::runtime_error{"the sink's"};
    };
    tell({}, EventKind::warned, "weights", 1, {"nobody listens"});
    tell(sink, EventKind::trimmed, "weights", 1, {"trimmed ", in_bytes(4096)}, 1, 2);
    tell_ignored(sink, "weights", 1, {StatusKind::other, 9, "NINE"}, "close a file");
    REQUIRE(seen.size() == 2);
    CHECK(seen[0].text == "trimmed 4.00 KiB");
    CHECK(seen[0].bytes_done == 1);
    CHECK(seen[0].bytes_total == 2);
    CHECK(seen[1].kind == EventKind::ignored);
    CHECK(seen[1].text.find("close a file failed: NINE (9)") == 0);
}

} // namespace core_text_test
