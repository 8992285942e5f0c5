// Texts are their parts; sizes: what can be rounded up without overflow, and formatting.
#include "support/machines.hpp"

namespace core_text_test {
using namespace test;

static_assert(std::is_trivially_copyable_v<Bit> && sizeof(Bit) == 16);

TEST_CASE("a text is its parts") {
    const std::string name = "weights";
    CHECK(text_of({}).empty());
    CHECK(text_of({"tag ", in_quotes(name), ": ", in_bytes(3 << 20), " at ", in_hex(0x7f00), ", ", in_digits(-2),
                   " of ", std::string_view{"two words", 3}, name}) ==
          "tag \"weights\": 3.00 MiB at 0x7f00, -2 of twoweights");
    CHECK(text_of({in_digits(std::numeric_limits<std::int64_t>::max())}) == "9223372036854775807");
    CHECK(text_of({in_digits(~std::uint64_t{0})}) == "18446744073709551615");
    CHECK(text_of({in_quotes("")}) == "\"\"");
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
    CHECK(seen[0].kind == EventKind::trimmed);
    CHECK(seen[0].tag == "weights");
    CHECK(seen[0].device == 1);
    CHECK(seen[0].text == "trimmed 4.00 KiB");
    CHECK(seen[0].bytes_done == 1);
    CHECK(seen[0].bytes_total == 2);
    CHECK(seen[1].kind == EventKind::ignored);
    CHECK(seen[1].text.find("close a file failed: NINE (9)") == 0);
    { const Span span{sink, "weights", 1, "save"}; }
    CHECK(seen.size() == 4);
}

constexpr std::size_t largest = std::numeric_limits<std::size_t>::max();

TEST_CASE("sizes that cannot be rounded up are detected before they overflow") {
    CHECK(can_align_up(largest, 1));
    CHECK(can_align_up(largest - 255, 256));
    CHECK_FALSE(can_align_up(largest - 254, 256));
    CHECK_FALSE(can_align_up(largest, 2_MiB));
}

TEST_CASE("sizes are printed in the largest unit that keeps them at one or more") {
    CHECK(format_bytes(0) == "0 B");
    CHECK(format_bytes(1023) == "1023 B");
    CHECK(format_bytes(1_KiB) == "1.00 KiB");
    CHECK(format_bytes(1_GiB + 512_MiB) == "1.50 GiB");
    CHECK(format_bytes(std::numeric_limits<std::uint64_t>::max()) == "16.00 EiB");
}
} // namespace core_text_test
