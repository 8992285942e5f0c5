// The machine on which a test runs is a value, chosen when the program starts (chosen_machine.hpp): a well-behaved
// host, a nasty one, or a GPU. All have one driver type. It is a FaultyDriver, because that tracks what is held.
// Tests that include this rely on the headers below: what nearly all of them need.
#pragma once

#include "memsaver/memsaver.hpp"
#include "memsaver/testing/testing.hpp"
#include "process/process_support.hpp"
#include "support/bytes.hpp"
#include "support/chosen_machine.hpp"
#include "support/folder.hpp"
#include "support/held_stream.hpp"
#include "support/host_inside.hpp"
#include "support/host_with.hpp"
#include "support/sanitized.hpp"
#include "support/told.hpp"
#include "support/turnstile.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <doctest/doctest.h>
#include <exception>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <numeric>
#include <optional>
#include <random>
#include <sched.h>
#include <set>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <system_error>
#include <thread>
#include <tuple>
#include <type_traits>
#include <unistd.h>
#include <utility>
#include <vector>

namespace test {
using namespace std::chrono_literals;
using MachineDriver = FaultyDriver<AnyDriver>;
using process_test::within_seconds;

/// A well-behaved machine of 512 MiB.
inline constexpr MachineKind host_machine = MachineKind::host;
/// Fresh pages contain garbage, and work runs only once a call waits for it.
inline constexpr MachineKind nasty_machine = MachineKind::nasty;
/// A GPU. Its memory is shared with other processes, so no test may depend on how much is free.
inline constexpr MachineKind cuda_machine = MachineKind::cuda;

/// Whether the run is for a GPU.
[[nodiscard]] inline bool on_cuda() noexcept { return chosen_machine() == cuda_machine; }

[[nodiscard]] inline MachineDriver driver_of(MachineKind kind, int device = 0) {
    if (kind == cuda_machine) return MachineDriver{CudaDriver{device}};
    const bool nasty = kind == nasty_machine;
    return MachineDriver{HostDriver{512_MiB, {.device = device, .poison = nasty, .late = nasty}}};
}

/// Checks that everything was released and no call was invalid. Call at the end of a test, after all users of `driver`
/// are destroyed.
template <class D>
void check_given_back(const FaultyDriver<D>& driver) {
    CHECK_MESSAGE(driver.everything_given_back(), driver.leaks());
    for (const std::string& text : driver.violations()) FAIL_CHECK(text);
    if (const auto host = host_inside(driver.inner())) {
        for (const std::string& text : host->violations()) FAIL_CHECK(text);
        CHECK(host->counts().held_bytes == 0);
    }
}

/// A driver that is checked in its destructor. Declare it before its users.
struct Checked {
    /// The machine that the program was started for.
    explicit Checked(int device = 0) : Checked{chosen_machine(), device} {}
    explicit Checked(MachineKind kind, int device = 0) : driver{driver_of(kind, device)} {}
    explicit Checked(HostDriver host) : driver{std::move(host)} {}
    ~Checked() { check_given_back(driver); }

    [[nodiscard]] std::size_t free_bytes() const { return memory_of(driver.inner()).free_bytes; }

    const MachineDriver driver;
};

/// What most cases begin with, as TEST_CASE_FIXTURE: a machine, and a saver on it.
struct OnMachine {
    const Checked machine{};
};

struct OnSaver : OnMachine {
    MemorySaver<MachineDriver> saver{machine.driver};
};

/// The same with the events of the saver.
struct OnTold : OnMachine {
    Told told{};
    MemorySaver<MachineDriver> saver{machine.driver, {.events = told.sink()}};
};

/// A saver on the first of two machines.
struct OnTwo {
    const Checked first{0};
    const Checked second{1};
    MemorySaver<MachineDriver> saver{first.driver};
};

/// The same on a well-behaved host, whatever the program was started for.
struct OnHost {
    const Checked machine{host_machine};
};

struct OnHostSaver : OnHost {
    MemorySaver<MachineDriver> saver{machine.driver};
};

/// A stream of the program.
template <class D>
struct OwnStream {
    explicit OwnStream(const D& driver) : driver_{driver} { REQUIRE(driver_.open_stream(stream_).ok()); }
    ~OwnStream() { CHECK(driver_.close_stream(stream_).ok()); }

    operator StreamRef() const noexcept { return stream_; } // NOLINT(google-explicit-constructor): as users pass theirs
    [[nodiscard]] bool capturing() const {
        bool yes = false;
        CHECK(driver_.capturing(stream_, yes).ok());
        return yes;
    }

private:
    D driver_;
    StreamRef stream_;
};

/// A saver, and a stream of the program.
struct OnStream : OnSaver {
    const OwnStream<MachineDriver> stream{machine.driver};
};

/// A block of a tag with known bytes: a pattern, or what another function makes of a seed.
template <class D>
struct Filled : Buffer<unsigned char> {
    using Content = std::vector<unsigned char>(std::size_t count, std::uint64_t seed);

    Filled(const D& on, const Arena& arena, std::size_t bytes, std::uint64_t first = 1, Content* made_by = pattern)
        : Buffer{arena, bytes}, driver{on}, content{made_by} {
        write(first);
    }
    void write(std::uint64_t next) { write_bytes(driver, data(), content(size(), seed = next)); }
    [[nodiscard]] bool whole() const { return read_bytes(driver, data(), size()) == content(size(), seed); }

    D driver;
    Content* content;
    std::uint64_t seed = 0;
};

/// Compares two readings of a device's free memory, allowing for the driver's own allocations.
inline bool about(std::size_t a, std::size_t b) { return (a > b ? a - b : b - a) <= 16_MiB; }

/// Holds all of the device's memory except `leave` bytes as long as it lives. Not counted by a FaultyDriver.
template <class D>
struct Ballast {
    Ballast(const FaultyDriver<D>& driver, std::size_t leave) : driver_{driver.inner()} {
        std::size_t granularity = 0;
        REQUIRE(driver_.granularity(granularity).ok());
        const auto to_take = [&] {
            return memory_of(driver_).free_bytes - std::min(memory_of(driver_).free_bytes, leave);
        };
        REQUIRE(to_take() > granularity);
        // A device's last bytes cannot always be allocated in one piece: smaller pieces until none is left to take.
        for (std::size_t piece = align_down(to_take(), granularity); piece != 0;) {
            PageHandle pages;
            if (driver_.create(piece, pages).ok()) {
                handles_.push_back(pages);
                piece = align_down(std::min(piece, to_take()), granularity);
            } else {
                piece = align_down(piece / 2, granularity);
            }
        }
    }
    ~Ballast() {
        for (const PageHandle pages : handles_) CHECK(driver_.release(pages).ok());
    }

private:
    D driver_;
    std::vector<PageHandle> handles_;
};

/// Checks that the physical bytes in a saver's usage equal those of the live handles and plain blocks.
template <class Saver, class D>
void check_books(Saver& saver, const FaultyDriver<D>& driver) {
    std::size_t mapped = 0;
    for (const ArenaUsage& row : saver.usage()) mapped += row.device == driver.device() ? row.mapped_bytes : 0;
    CHECK(mapped == driver.handle_bytes() + driver.plain_bytes());
}

/// Returns the row of a tag, the first one if there are several.
template <class Saver>
ArenaUsage row_of(Saver& saver, const std::string& tag) {
    for (const ArenaUsage& row : saver.usage()) {
        if (row.tag == tag) return row;
    }
    FAIL("no row for tag " << tag);
    return {};
}

/// Returns the text of the exception of type `E` that `act` throws.
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

/// Returns whether `act` throws no `E`.
template <class E, class Act>
bool succeeds(Act&& act) {
    try {
        act();
        return true;
    } catch (const E&) {
        return false;
    }
}

/// Returns the exception of type `E` that `act` throws.
template <class E, class Act>
E thrown(Act&& act) {
    try {
        act();
    } catch (const E& error) {
        return error;
    }
    throw std::logic_error{"nothing was thrown"}; // fails the test
}

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// Checks that `act` throws an `E` whose text has this part.
template <class E, class Act>
void check_says(const std::string& part, Act&& act) {
    const std::string text = text_of<E>(act);
    CHECK_MESSAGE(contains(text, part), part, " in: ", text);
}

/// Pauses and resumes these tags of a saver, or all; or an arena.
template <class Paused, class... Tags>
void pause_and_resume(Paused& paused, const Tags&... tags) {
    (void)paused.pause(tags...);
    (void)paused.resume(tags...);
}

/// Returns what `shown` is printed as.
template <class Shown>
std::string printed(const Shown& shown) {
    std::ostringstream text;
    text << shown;
    return text.str();
}
} // namespace test
