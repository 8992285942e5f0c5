// A status is a small value, and each kind of it becomes its exception, with the attempted operation, the native code,
// and the source line of the call.
#include "support/machines.hpp"

namespace core_error_test {
using namespace test;

Status failed(StatusKind kind) { return {.kind = kind, .code = 7, .name = "NATIVE_NAME"}; }

SourcePlace called_from(SourcePlace place = SourcePlace::here()) { return place; }

template <class E, class Standard>
void check_thrown(StatusKind kind, const std::string& rest = " [") {
    const auto act = [kind] { check(failed(kind), "map pages"); };
    for (const std::string& text :
         {text_of<E>(act), text_of<Standard>(act), text_of<Error>(act), text_of<std::exception>(act)})
        CHECK_MESSAGE(contains(text, "map pages failed: NATIVE_NAME (7)" + rest), text);
}

TEST_CASE("each kind of failure has its exception, which derives from one of the standard's, with the same text") {
    check_thrown<OutOfMemory, std::bad_alloc>(StatusKind::out_of_memory);
    check_thrown<OutOfHostMemory, std::runtime_error>(StatusKind::out_of_host_memory);
    check_thrown<OutOfAddresses, std::runtime_error>( // memory does not help
        StatusKind::out_of_addresses, "; the process is out of addresses, whatever memory is free [");
    check_thrown<DeviceLost, std::runtime_error>(StatusKind::gone, ": the device is lost");
    check_thrown<Unavailable, std::runtime_error>(StatusKind::unsupported);
    check_thrown<DriverError, std::runtime_error>(StatusKind::other);
    static_assert(!std::is_base_of_v<std::runtime_error, OutOfMemory>);
    static_assert(!std::is_base_of_v<std::bad_alloc, OutOfAddresses>);
}

TEST_CASE("details of an exception are shared by its copies, and the first tag stays") {
    const OutOfMemory error{"text", 1, 2};
    OutOfMemory copy = error;
    Report report;
    report.released_bytes = 5;
    copy.attach(report);
    copy.attach_tag("first");
    copy.attach_tag("second");
    CHECK(error.report().released_bytes == 5);
    CHECK(error.tag() == "first");
    CHECK(std::string{error.what()} == "text");
    static_assert(std::is_nothrow_copy_constructible_v<OutOfMemory> && std::is_nothrow_copy_constructible_v<Misuse>);
}

TEST_CASE("the text says what was attempted, with which bytes, what the driver answered, and the line of the call") {
    const unsigned line = static_cast<unsigned>(__LINE__) + 1;
    const auto error = thrown<DriverError>([] { check(failed(StatusKind::other), "map pages", 2_MiB, 0x1000); });
    const std::string text = error.what();
    CAPTURE(text);
    CHECK(contains(text, "map pages (2.00 MiB at 0x1000) failed: NATIVE_NAME (7)"));
    CHECK(contains(text, "error_test.cpp:" + std::to_string(line)));
    CHECK(error.status() == failed(StatusKind::other));
}

TEST_CASE("a default argument notes the line, file and function of the call") {
    const SourcePlace place = called_from();
    CHECK(place.line == static_cast<unsigned>(__LINE__) - 1);
    CHECK(std::string{place.file} == __FILE__);
    CHECK(std::string{place.function} == __func__);
}

TEST_CASE("a location in the library is reported without the folders that lead to it") {
    CHECK(SourcePlace{"engine.cpp", "f", 17}.text() == "engine.cpp:17");
    const SourcePlace inside{"/home/me/memsaver/include/memsaver/core/error.ipp", "f", 5};
    CHECK(inside.text() == "memsaver/core/error.ipp:5");
    CHECK(SourcePlace{}.text().empty());

    // Texts show the program's own lines; the library's lines are available on request.
    CHECK(inside.internal());
    CHECK(SourcePlace{"/usr/include/memsaver/interop/nvtx.hpp", "f", 5}.internal());
    CHECK(!SourcePlace{"/home/me/memsaver/examples/demo.cpp", "f", 5}.internal());
    const Status refused{StatusKind::other, 7, "REFUSED"};
    for (const bool own : {true, false}) {
        const SourcePlace at = own ? called_from() : inside;
        try {
            raise(refused, {"map pages", at});
        } catch (const DriverError& error) {
            CHECK(std::string{error.what()} ==
                  "map pages failed: REFUSED (7)" + (own ? " [" + at.text() + "]" : std::string{}));
            CHECK(error.place() == at.text());
        }
    }
    CHECK(Misuse{"no"}.place().empty());
}

static_assert(std::is_trivially_copyable_v<Status>);
static_assert(Status{}.ok());

TEST_CASE("a status is printed in the form that ends error texts, also without a name or a code") {
    const Status failed{.kind = StatusKind::other, .code = 1, .name = "CUDA_ERROR_INVALID_VALUE"};
    CHECK(to_string(failed) == "CUDA_ERROR_INVALID_VALUE (1)");
    CHECK(detail::failure_text(failed, "map pages").starts_with("map pages failed: " + to_string(failed)));
    CHECK(to_string(Status{}) == "ok");
    CHECK(to_string(Status{.kind = StatusKind::ok, .code = 7, .name = "CUDA_SUCCESS"}) == "ok");
    CHECK(to_string(Status{.kind = StatusKind::gone, .name = "lost"}) == "lost");
    std::ostringstream out;
    out << failed << ", " << Status{};
    CHECK(out.str() == "CUDA_ERROR_INVALID_VALUE (1), ok");
    // Without a name, what its kind means.
    CHECK(to_string(Status{.kind = StatusKind::out_of_memory, .code = 2}) == "out of memory (2)");
    CHECK(to_string(Status{.kind = StatusKind::out_of_host_memory}) == "out of host memory");
    CHECK(to_string(Status{.kind = StatusKind::out_of_addresses}) == "out of addresses");
    CHECK(to_string(Status{.kind = StatusKind::gone, .name = nullptr}) == "device lost");
    CHECK(to_string(Status{.kind = StatusKind::unsupported}) == "unsupported");
    CHECK(to_string(Status{.kind = StatusKind::other, .code = 5}) == "error (5)");
    CHECK(contains(failure_text({.kind = StatusKind::other, .code = 3}, "x"), "x failed: error (3) ["));
    CHECK(contains(failure_text({.kind = StatusKind::other, .name = "NAME"}, "x"), "x failed: NAME ["));
}
} // namespace core_error_test
