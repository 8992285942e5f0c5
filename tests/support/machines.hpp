// The machines that the tests of arenas and savers run on. Test bodies are templates over one of these: the same bodies
// run on host memory, or, compiled with MEMSAVER_TEST_GPU, on a GPU. Every driver is a FaultyDriver, for its books.
#pragma once

#include "memsaver/memsaver.hpp"
#include "memsaver/testing/testing.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

namespace test {

using namespace memsaver;

using namespace memsaver::detail;

/// A polite machine of 2 GiB.
struct HostMachine2G {
    using Driver = FaultyDriver<HostDriver>;
    static Driver driver(int device = 0) { return Driver{HostDriver{2_GiB, {.device = device}}}; }
};

/// Fresh pages are full of rubbish, and work starts only once somebody waits for it.
struct NastyHostMachine {
    using Driver = FaultyDriver<HostDriver>;
    static Driver driver(int device = 0) {
        return Driver{HostDriver{2_GiB, {.device = device, .poison = true, .late = true}}};
    }
};

/// A GPU. Its memory is shared with others, so nothing here may depend on how much there is.
struct CudaMachine {
    using Driver = FaultyDriver<CudaDriver>;
    static Driver driver(int device = 0) { return Driver{CudaDriver{device}}; }
};

#ifdef MEMSAVER_TEST_GPU
#define MEMSAVER_TEST_MACHINES test::CudaMachine
#define MEMSAVER_TEST_QUICK_MACHINE test::CudaMachine
#else
#define MEMSAVER_TEST_MACHINES test::HostMachine2G, test::NastyHostMachine
#define MEMSAVER_TEST_QUICK_MACHINE test::HostMachine2G // for what moves more memory than poisoning allows
#endif

/// Everything went back, and nothing was misused. For the end of a test, when all that used `driver` is gone.
template <class D>
void check_given_back(const FaultyDriver<D>& driver) {
    CHECK_MESSAGE(driver.everything_given_back(), driver.leaks());
    for (const std::string& text : driver.violations()) FAIL_CHECK(text);
    if constexpr (requires { driver.inner().violations(); }) {
        for (const std::string& text : driver.inner().violations()) FAIL_CHECK(text);
        CHECK(driver.inner().counts().held_bytes == 0);
    }
}

/// A driver that is checked when it dies: declare it before whatever uses it.
template <class Machine>
class Checked {
public:
    using Driver = typename Machine::Driver;

    explicit Checked(int device = 0) : driver{Machine::driver(device)} {}
    Checked(const Checked&) = delete;
    Checked& operator=(const Checked&) = delete;
    ~Checked() { check_given_back(driver); }

    [[nodiscard]] std::size_t free_bytes() const {
        DeviceMemory memory;
        REQUIRE(driver.inner().memory(memory).ok());
        return memory.free_bytes;
    }

    const Driver driver;
};

/// Bytes that wait in the only shard of large blocks of an arena before it waits for the device (decision 29).
template <class D>
std::size_t small_change(const FaultyDriver<D>& driver) {
    DeviceMemory memory;
    REQUIRE(driver.inner().memory(memory).ok());
    return std::clamp<std::size_t>(memory.total_bytes / 512, 32_MiB, 128_MiB);
}

/// Two readings of a device's free memory, equal but for what its driver takes for itself.
inline bool about(std::size_t a, std::size_t b) { return (a > b ? a - b : b - a) <= 16_MiB; }

/// Holds the device's memory, but for `leave` bytes, until it dies. Not in the books of a FaultyDriver.
template <class D>
class Ballast {
public:
    Ballast(const FaultyDriver<D>& driver, std::size_t leave) : driver_{driver.inner()} {
        std::size_t granularity = 0;
        REQUIRE(driver_.granularity(granularity).ok());
        // A device's last bytes are not always to be had: ask for less until it gives them.
        for (std::size_t spare = leave; handle_ == PageHandle{};) {
            DeviceMemory memory;
            REQUIRE(driver_.memory(memory).ok());
            REQUIRE(memory.free_bytes > spare + granularity);
            if (!driver_.create(align_down(memory.free_bytes - spare, granularity), handle_).ok()) spare += 32_MiB;
        }
    }
    Ballast(const Ballast&) = delete;
    Ballast& operator=(const Ballast&) = delete;
    ~Ballast() { CHECK(driver_.release(handle_).ok()); }

private:
    D driver_;
    PageHandle handle_{};
};

/// The physical bytes that a saver's rows show are those of the handles and plain blocks that live, always.
template <class Saver, class D>
void check_books(Saver& saver, const FaultyDriver<D>& driver) {
    std::size_t mapped = 0;
    for (const ArenaUsage& row : saver.usage()) mapped += row.device == driver.device() ? row.mapped_bytes : 0;
    CHECK(mapped == driver.handle_bytes() + driver.plain_bytes());
}

/// The row of a tag, the first one if there are several.
template <class Saver>
ArenaUsage row_of(Saver& saver, const std::string& tag) {
    for (const ArenaUsage& row : saver.usage()) {
        if (row.tag == tag) return row;
    }
    FAIL("no row for tag " << tag);
    return {};
}

/// The text of the exception of type `E` that `act` throws.
template <class E, class Act>
std::string text_of(Act&& act) {
    try {
        act();
    } catch (const E& error) {
        return error.what();
    }
    FAIL_CHECK("nothing was thrown");
    return {};
}

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

} // namespace test
