// How an exception names the tags concerned.
#include "memsaver/arena/tag_names.hpp"

#include <doctest/doctest.h>

namespace arena_tag_names_test {

using namespace memsaver;

TEST_CASE("quoted_tags: none, one, several") {
    CHECK(quoted_tags({}) == "every tag");
    CHECK(quoted_tags({"weights"}) == "tag \"weights\"");
    CHECK(quoted_tags({"weights", "kv cache", ""}) == "tags \"weights\", \"kv cache\", \"\"");
}

} // namespace arena_tag_names_test
