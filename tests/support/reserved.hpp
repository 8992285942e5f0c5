// Addresses for tests that map memory themselves.
#pragma once

#include "memsaver/driver/owned.hpp"

#include <cstddef>
#include <doctest/doctest.h>

namespace test {

inline memsaver::detail::Reservation reserved(const memsaver::AnyDriver& driver, std::size_t bytes,
                                              std::size_t alignment) {
    memsaver::detail::Reservation addresses;
    REQUIRE(addresses.open(driver, bytes, alignment).ok());
    return addresses;
}
} // namespace test
