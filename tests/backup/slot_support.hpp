// Pages that a slot can fill, on a machine whose work runs only once it is waited for.
#pragma once

#include "memsaver/backup/policy.hpp"
#include "memsaver/host/host_driver.hpp"
#include "memsaver/testing/testing.hpp"
#include "support/reserved.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <doctest/doctest.h>
#include <vector>

namespace slot_test {
using namespace memsaver;
using namespace memsaver::detail;
using Faulty = FaultyDriver<HostDriver>;

struct Pages {
    static constexpr std::size_t bytes = 128_KiB;

    Pages() {
        REQUIRE(extent.create(driver).ok());
        REQUIRE(extent.map(driver).ok());
        std::fill_n(data(), bytes, static_cast<unsigned char>(1));
    }
    [[nodiscard]] unsigned char* data() const { return reinterpret_cast<unsigned char*>(addresses.get().address); }
    [[nodiscard]] std::size_t count(unsigned char byte) const {
        return static_cast<std::size_t>(std::count(data(), data() + bytes, byte));
    }
    /// All of it, as two adjacent extents; the blocks must not be queried.
    [[nodiscard]] LiveSet live() const {
        return {{{addresses.get().address, bytes / 2}, {addresses.get().address + bytes / 2, bytes / 2}}, [] {
                    FAIL_CHECK("asked for the blocks");
                    return std::vector<LiveBlock>{};
                }};
    }

    Faulty driver{HostDriver{64_MiB, {.granularity = 64_KiB, .late = true}}};
    Reservation addresses = test::reserved(driver, bytes, 64_KiB);
    test::Backed extent{addresses.get().address, bytes};
};
} // namespace slot_test
