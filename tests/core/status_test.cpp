// A status is a small value; equality compares kind and code, not the address of the name.
#include "memsaver/core/error.hpp"

#include <doctest/doctest.h>

#include <initializer_list>
#include <sstream>
#include <string>
#include <type_traits>

namespace core_status_test {

using namespace memsaver;

static_assert(std::is_trivially_copyable_v<Status>);
static_assert(Status{}.ok());

TEST_CASE("only the kind decides whether a status is ok") {
    for (const StatusKind kind :
         {StatusKind::out_of_memory, StatusKind::out_of_host_memory, StatusKind::out_of_addresses, StatusKind::gone,
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

TEST_CASE("a status is printed in the form that ends error texts") {
    const Status failed{.kind = StatusKind::other, .code = 1, .name = "CUDA_ERROR_INVALID_VALUE"};
    CHECK(to_string(failed) == "CUDA_ERROR_INVALID_VALUE (1)");
    CHECK(detail::failure_text(failed, "map pages").starts_with("map pages failed: " + to_string(failed)));
    CHECK(to_string(Status{}) == "ok");
    CHECK(to_string(Status{.kind = StatusKind::ok, .code = 7, .name = "CUDA_SUCCESS"}) == "ok");
    CHECK(to_string(Status{.kind = StatusKind::gone, .name = "lost"}) == "lost");
    std::ostringstream out;
    out << failed << ", " << Status{};
    CHECK(out.str() == "CUDA_ERROR_INVALID_VALUE (1), ok");
}

TEST_CASE("a status without a name says what its kind means") {
    CHECK(to_string(Status{.kind = StatusKind::out_of_memory, .code = 2}) == "out of memory (2)");
    CHECK(to_string(Status{.kind = StatusKind::out_of_host_memory}) == "out of host memory");
    CHECK(to_string(Status{.kind = StatusKind::out_of_addresses}) == "out of addresses");
    CHECK(to_string(Status{.kind = StatusKind::gone, .name = nullptr}) == "device lost");
    CHECK(to_string(Status{.kind = StatusKind::unsupported}) == "unsupported");
    CHECK(to_string(Status{.kind = StatusKind::other, .code = 5}) == "error (5)");
}

} // namespace core_status_test
