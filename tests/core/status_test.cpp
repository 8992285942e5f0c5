// A status is a small value; equality is of kind and code, not of where the name's text lies.
#include "memsaver/core/status.hpp"

#include <doctest/doctest.h>

#include <initializer_list>
#include <type_traits>

namespace core_status_test {

using namespace memsaver;

static_assert(std::is_trivially_copyable_v<Status>);
static_assert(Status{}.ok());

TEST_CASE("only the kind decides whether a status is ok") {
    for (const StatusKind kind : {StatusKind::out_of_memory, StatusKind::out_of_host_memory, StatusKind::gone,
                                  StatusKind::unsupported, StatusKind::other}) {
        CHECK_FALSE(Status{.kind = kind}.ok());
    }
    CHECK(Status{.kind = StatusKind::ok, .code = 1}.ok());
}

TEST_CASE("two statuses are equal if kind and code are") {
    const Status one{.kind = StatusKind::other, .code = 1, .name = "A"};
    CHECK(one == Status{.kind = StatusKind::other, .code = 1, .name = "B"});
    CHECK(one != Status{.kind = StatusKind::other, .code = 2, .name = "A"});
    CHECK(one != Status{.kind = StatusKind::gone, .code = 1, .name = "A"});
}

} // namespace core_status_test
