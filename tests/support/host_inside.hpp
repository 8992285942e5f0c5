// The HostDriver inside another driver: tests hold its streams, and read its counts and violations.
#pragma once

#include "memsaver/host/host.hpp"
#include "memsaver/testing/testing.hpp"

#include <doctest/doctest.h>
#include <optional>

namespace test {
using namespace memsaver;

/// Returns the HostDriver, also through machines around it, if there is one. The only place that asks a driver for it.
[[nodiscard]] inline std::optional<HostDriver> host_inside(const AnyDriver& driver) {
    if (const auto* const around = dynamic_cast<const DeviceAround*>(&driver.machine())) {
        return host_inside(around->inner());
    }
    return driver.as<HostDriver>();
}

/// The HostDriver that `driver` wraps. Fails the test if there is none.
template <class D>
[[nodiscard]] HostDriver host_of(const FaultyDriver<D>& driver) {
    const std::optional<HostDriver> host = host_inside(driver.inner());
    REQUIRE(host);
    return *host;
}
} // namespace test
