// No exception crosses the C interface: each one has a code.
#include "../../examples/torch_memory_saver/codes.hpp"
#include "support/machines.hpp"

namespace torch_memory_saver_codes_test {
using namespace tms;

template <class E>
Code code_of_throwing(const E& error, std::string* told = nullptr) {
    return as_code([&] { throw error; },
                   [&](const std::string& text) {
                       if (told != nullptr) *told = text;
                   });
}

TEST_CASE("each exception has its code") {
    using namespace memsaver;
    constexpr Status illegal{StatusKind::gone, 700, "CUDA_ERROR_ILLEGAL_ADDRESS"};
    constexpr Status full_disk{StatusKind::other, 28, "ENOSPC"};
    CHECK(as_code([] {}, [](const std::string&) {}) == success);
    CHECK(code_of_throwing(OutOfMemory{"full", 2, 1}) == memory_allocation);
    CHECK(code_of_throwing(OutOfHostMemory{"full"}) == memory_allocation);
    CHECK(code_of_throwing(std::bad_alloc{}) == memory_allocation);
    CHECK(code_of_throwing(Misuse{"no"}) == invalid_value);
    CHECK(code_of_throwing(Unavailable{"none"}) == no_device);
    CHECK(code_of_throwing(DeviceLost{"gone", illegal}) == 700);
    CHECK(code_of_throwing(DriverError{"disk", full_disk}) == unknown); // 28 is not a CUDA code here
    CHECK(code_of_throwing(std::runtime_error{"what"}) == unknown);
    CHECK(code_of_throwing(42) == unknown);
}

TEST_CASE("a failure is reported, and reporting may fail") {
    std::string told;
    CHECK(code_of_throwing(memsaver::Misuse{"the reason"}, &told) == invalid_value);
    CHECK(told == "the reason");
    const Code code = as_code([] { throw memsaver::Misuse{"no"}; }, [](const std::string&) { throw std::bad_alloc{}; });
    CHECK(code == invalid_value);
}
} // namespace torch_memory_saver_codes_test
