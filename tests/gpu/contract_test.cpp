// CudaDriver keeps the contract of drivers on a real device.
#include "support/machines.hpp"

namespace gpu_contract_test {
using namespace test;

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
