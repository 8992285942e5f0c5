// The engine's table of memory owners, and the JSON format of results.
#include "../../bench/engine/release_table.hpp"
#include "support/machines.hpp"

namespace engine_release_table_test {
using engine::Bytes;
using engine::Json;
using engine::ReleaseTable;

constexpr Bytes MiB = 1 << 20;

ReleaseTable filled() {
    ReleaseTable table;
    table.set_totals(100 * MiB, 500 * MiB, 41'100 * MiB, 700 * MiB);
    table.add({"bare context", 500 * MiB, 500 * MiB, "making it"});
    table.add({"loaded modules", 60 * MiB, 60 * MiB, "running each"});
    table.add({"tag weights", 40'400 * MiB, 0, "pausing it"});
    return table;
}

TEST_CASE("memory that no holder explains is the rest of the whole") {
    const ReleaseTable table = filled();
    CHECK(table.unexplained_running() == 40 * MiB);
    CHECK(table.unexplained_paused() == 40 * MiB);
    CHECK(table.left_above_context() == 100 * MiB);
    CHECK(table.released_share() == doctest::Approx(40'400.0 / 40'500.0));
    CHECK(ReleaseTable{}.released_share() == 0);
}

TEST_CASE("the table is printed and written whole") {
    std::FILE* const file = std::tmpfile();
    REQUIRE(file != nullptr);
    filled().print(file);
    std::rewind(file);
    std::string text;
    for (int c = 0; (c = std::fgetc(file)) != EOF;) text += static_cast<char>(c);
    std::fclose(file);
    for (const char* const part : {"bare context", "tag weights", "40400.0 MiB", "what is left", "41000.0 MiB"}) {
        CAPTURE(part);
        CHECK(text.find(part) != std::string::npos);
    }
    CHECK(filled().json().text().find("\"left_above_context\": 104857600") != std::string::npos);
}

TEST_CASE("JSON keeps the order, escapes text, and has no invalid numbers") {
    Json inner;
    inner.put("x", 1);
    const Json all = Json{}
                         .put("text", "a \"b\"\\\n")
                         .put("yes", true)
                         .put("big", std::uint64_t{18446744073709551615u})
                         .put("real", 0.5)
                         .put("none", std::nan(""))
                         .put("list", std::vector<double>{1, 2.5})
                         .put("rows", std::vector<Json>{inner, inner})
                         .put("empty", Json{});
    CHECK(all.text() == R"({"text": "a \"b\"\\\u000a", "yes": true, "big": 18446744073709551615, "real": 0.5, )"
                        R"("none": null, "list": [1, 2.5], "rows": [{"x": 1}, {"x": 1}], "empty": {}})");
}
} // namespace engine_release_table_test
