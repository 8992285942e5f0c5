// CudaDriver keeps the contract of drivers on a real device.
#include "memsaver/memsaver.hpp"
#include "memsaver/testing/testing.hpp"

#include <doctest/doctest.h>

#include <string>

namespace gpu_contract_test {

using namespace memsaver;

TEST_CASE("contract: CudaDriver") {
    const FaultyDriver driver{CudaDriver{0}};
    for (const std::string& rule : check_driver_contract(driver)) FAIL_CHECK(rule);
    CHECK_MESSAGE(driver.everything_given_back(), driver.leaks());
    for (const std::string& text : driver.violations()) FAIL_CHECK(text);
    std::string identity;
    CHECK(driver.identity(identity).ok());
    CHECK(identity.rfind("GPU-", 0) == 0);
}

} // namespace gpu_contract_test
