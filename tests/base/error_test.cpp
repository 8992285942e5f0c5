// Each kind of status becomes its exception, with what was attempted, the native code, and the line that wanted it.
#include "memsaver/base/error.hpp"

#include <doctest/doctest.h>

#include <string>

namespace base_error_test {

using namespace memsaver;

namespace {

Status failed(StatusKind kind) { return {.kind = kind, .code = 7, .name = "NATIVE_NAME"}; }

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

} // namespace

TEST_CASE("a status that is ok throws nothing") { CHECK_NOTHROW(check(Status{}, "map pages")); }

TEST_CASE("each kind of failure has its exception") {
    CHECK_THROWS_AS(check(failed(StatusKind::out_of_memory), "x"), OutOfMemory);
    CHECK_THROWS_AS(check(failed(StatusKind::out_of_host_memory), "x"), OutOfHostMemory);
    CHECK_THROWS_AS(check(failed(StatusKind::gone), "x"), DeviceLost);
    CHECK_THROWS_AS(check(failed(StatusKind::other), "x"), DriverError);
    CHECK_THROWS_AS(check(failed(StatusKind::other), "x"), Error);
}

TEST_CASE("the text says what was attempted, with which bytes, and what the driver answered") {
    try {
        check(failed(StatusKind::other), "map pages", 2_MiB, 0x1000);
        FAIL("nothing was thrown");
    } catch (const Error& error) {
        const std::string text = error.what();
        CAPTURE(text);
        CHECK(contains(text, "map pages (2.00 MiB at 0x1000) failed: NATIVE_NAME (7)"));
        CHECK(error.status() == failed(StatusKind::other));
    }
}

TEST_CASE("the place is the line that called check") {
    unsigned line = 0;
    try {
        line = static_cast<unsigned>(__LINE__) + 1;
        check(failed(StatusKind::other), "map pages");
        FAIL("nothing was thrown");
    } catch (const Error& error) {
        const std::string text = error.what();
        CAPTURE(text);
        CHECK(contains(text, "error_test.cpp:" + std::to_string(line)));
    }
}

TEST_CASE("a code without a name is still reported") {
    CHECK(contains(failure_text({.kind = StatusKind::other, .code = 3}, "x"), "x failed: error (3)"));
}

TEST_CASE("out of memory carries what was needed and what was free") {
    try {
        raise(failed(StatusKind::out_of_memory), "create pages", "tag kv", 8_GiB, 1_GiB);
    } catch (const OutOfMemory& error) {
        CHECK(error.needed_bytes() == 8_GiB);
        CHECK(error.free_bytes() == 1_GiB);
        CHECK(contains(error.what(), "(tag kv)"));
    }
}

} // namespace base_error_test
