// The HostDriver inside another driver: tests hold its streams, and read its counts and violations.
#pragma once

#include "memsaver/host/host.hpp"
#include "memsaver/testing/testing.hpp"

#include <doctest/doctest.h>

#include <optional>

namespace test {

using namespace memsaver;

/// Returns the HostDriver, also through a FaultyDriver, if the machine is one. The only place that asks a driver for
/// it.
[[nodiscard]] inline std::optional<HostDriver> host_inside(const AnyDriver& driver) {
    if (const auto* const host = driver.target<HostDriver>()) return *host;
    if (const auto* const faulty = driver.target<FaultyDriver<HostDriver>>()) return faulty->inner();
    if (const auto* const faulty = driver.target<FaultyDriver<AnyDriver>>()) return host_inside(faulty->inner());
    return std::nullopt;
}

/// The HostDriver that `driver` wraps. Fails the test if there is none.
template <class D>
[[nodiscard]] HostDriver host_of(const FaultyDriver<D>& driver) {
    const std::optional<HostDriver> host = host_inside(driver.inner());
    REQUIRE(host);
    return *host;
}

} // namespace test
