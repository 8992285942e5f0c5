// Runs an operation repeatedly, failing its 1st, 2nd, ... last driver call. Independent of the operation, of the checks
// afterwards, and of the test framework.
#pragma once

#include "memsaver/core/core.hpp"
#include "memsaver/testing/failure.hpp"

#include <cstdint>
#include <exception>
#include <string>

namespace memsaver::inline v0_3 {

/// One run of a sweep.
struct SweepPoint {
    Failure failure{};          ///< the failure planned for this run
    std::uint64_t injected = 0; ///< number of injected failures; 0 in the last run, which is undisturbed
    std::exception_ptr error{}; ///< exception of the operation, if any

    /// "map call 2 returns injected failure, 1 failed, the operation threw"
    [[nodiscard]] std::string text() const {
        return failure.text() + ", " + std::to_string(injected) + " failed, the operation " +
               (error ? "threw" : "returned");
    }
};

namespace detail {

/// One run of a sweep. Returns the number of calls that were failed.
template <class Make, class Operate, class Verify>
std::uint64_t sweep_point(const Failure& failure, Make& make, Operate& operate, Verify& verify) {
    auto fixture = make();
    SweepPoint point{failure, 0, nullptr};
    const std::uint64_t before = fixture.driver.injected();
    fixture.driver.fail(failure);
    try {
        operate(fixture);
    } catch (const Error&) {
        point.error = std::current_exception();
    }
    fixture.driver.heal();
    point.injected = fixture.driver.injected() - before;
    verify(fixture, static_cast<const SweepPoint&>(point));
    return point.injected;
}

} // namespace detail

/// Injects a failure into each call of an operation, one run per call. Returns the number of calls that were failed.
///
/// Each run makes a fixture, plans `failure` with `nth` 1, 2, 3, ... on it, runs the operation, removes the failure,
/// and verifies. The last run is the first one in which no call fails; it is verified as well.
/// - `make()` returns a fresh fixture: anything with a FaultyDriver named `driver`. It need not be movable.
/// - `operate(fixture)` is the operation under test. An Error that it throws is stored in the point; any other
///   exception ends the sweep.
/// - `verify(fixture, point)` checks the state after the failure has been removed, and reports in any way it likes.
///
/// Throws Misuse if there are more than `limit` points, as for an operation that polls without end.
template <class Make, class Operate, class Verify>
std::uint64_t sweep(Failure failure, Make make, Operate operate, Verify verify, std::uint64_t limit = 100'000) {
    for (failure.nth = 1; failure.nth <= limit; ++failure.nth) {
        if (detail::sweep_point(failure, make, operate, verify) == 0) return failure.nth - 1;
    }
    throw Misuse{"the sweep did not end after " + std::to_string(limit) + " points: " + failure.text()};
}

} // namespace memsaver::inline v0_3
