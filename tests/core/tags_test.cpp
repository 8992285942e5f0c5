// Names of tags: how lists are formed, and how texts show them.
#include "support/machines.hpp"

namespace core_tags_test {
using namespace test;
using Names = std::vector<std::string>;

TEST_CASE("tags: one name, a list, and any range of names are owned") {
    Tags tags = "nothing";
    {
        std::string one(64, 'a');
        const std::string two(64, 'b');
        tags = {one, two, "c"};
        one = "changed";
    }
    CHECK(tags.names() == Names{std::string(64, 'a'), std::string(64, 'b'), "c"});
    CHECK(Tags{"a"}.names() == Names{"a"});
    CHECK(Tags{"a", "b"}.names() == Names{"a", "b"}); // not a string_view of the bytes between two literals
    CHECK(Tags{std::set<std::string>{"b", "a"}}.names() == Names{"a", "b"});
    CHECK(Tags{std::array<std::string_view, 2>{"p", "q"}}.names() == Names{"p", "q"});
    CHECK(Tags{tags}.size() == 3);
    CHECK(Tags{Names{}}.kind() == Tags::Kind::named);
    CHECK(Tags{Names{}}.size() == 0);
    CHECK(Tags::under("model/").kind() == Tags::Kind::under);
    CHECK(Tags::under("model/")[0] == "model/");
    CHECK(Tags::all().kind() == Tags::Kind::all);
}

TEST_CASE("tags: as a text shows them") {
    CHECK(quoted_tags("a") == "tag \"a\"");
    CHECK(quoted_tags({"a", "b"}) == "tags \"a\", \"b\"");
    CHECK(quoted_tags(Tags::all()) == "every tag");
    CHECK(quoted_tags(Tags::under("m/")) == "every tag under \"m/\"");
    CHECK(quoted_tags(Names{}) == "no tag");
}

TEST_CASE("tags: similar names") {
    CHECK(edit_distance("", "abc") == 3);
    CHECK(edit_distance("weights", "weights") == 0);
    CHECK(edit_distance("weigths", "weights") == 2);
    CHECK(edit_distance("kitten", "sitting") == 3);
    const Names known{"kv_cache", "lora.1", "lora.2", "weight", "weights"};
    CHECK(did_you_mean("weigths", known) == ": did you mean \"weight\", \"weights\"?");
    CHECK(did_you_mean("kv-cache", known) == ": did you mean \"kv_cache\"?");
    CHECK(did_you_mean("activations", known).empty());
    CHECK(did_you_mean("x", {"y"}).empty()); // too short for a suggestion
}
} // namespace core_tags_test
