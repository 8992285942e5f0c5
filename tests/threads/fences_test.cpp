// Threads that want freed memory share waits for the device. There is no timer here; what fails, hangs.
#include "support/gate.hpp"
#include "support/machines.hpp"

#include <doctest/doctest.h>

#include <memory>
#include <vector>

namespace threads_fences_test {

using namespace test;

TEST_CASE("Fences: threads that come while one waits all go on, also if that wait fails") {
    for (const bool fails : {false, true}) {
        CAPTURE(fails);
        const Checked<HostMachine2G> machine;
        Fences fences;
        const auto pass = [&] { fences.pass(machine.driver); };
        if (fails) machine.driver.fail({.call = Call::drain});
        std::vector<std::unique_ptr<Doing>> others;
        {
            Stuck first{machine.driver, Call::drain, pass};
            for (int i = 0; i < 4; ++i) others.push_back(std::make_unique<Doing>(pass));
            if (fails) {
                CHECK_THROWS_AS(first.go_on(), DriverError);
            } else {
                first.go_on();
            }
        }
        for (const auto& other : others) CHECK_NOTHROW(other->join());
        CHECK(machine.driver.calls(Call::drain) <= 5);
        CHECK(fences.last_done() == fences.last_begun());
    }
}

} // namespace threads_fences_test
