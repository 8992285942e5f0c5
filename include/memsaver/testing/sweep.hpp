// Runs an operation again and again, failing its 1st, 2nd, ... last driver call.
// Does not know the operation, nor what is to hold afterwards, nor a test framework.
#pragma once

#include "memsaver/core/core.hpp"
#include "memsaver/testing/failure.hpp"

#include <cstdint>
#include <exception>
#include <string>

namespace memsaver::inline v0_2 {

/// One run of a sweep.
struct SweepPoint {
    Failure failure{};          ///< what was planned for this run
    std::uint64_t injected = 0; ///< how many calls failed on purpose; 0 in the last run, which is undisturbed
    std::exception_ptr error{}; ///< what the operation threw, if anything

    /// "map call 2 answers injected failure, 1 failed, the operation threw"
    [[nodiscard]] std::string text() const {
        return failure.text() + ", " + std::to_string(injected) + " failed, the operation " +
               (error ? "threw" : "returned");
    }
};

/// Sweeps a failure over an operation; returns how many of its calls were failed, each in a run of its own.
///
/// Each run makes a fixture, plans `failure` with `nth` 1, 2, 3, ... on it, operates, heals, and verifies. The last run
/// is the first one in which no call is left to fail. It is verified as well.
/// - `make()` gives a fresh fixture: anything with a FaultyDriver named `driver`. It need not be movable.
/// - `operate(fixture)` is what is tested. An Error that it throws is kept in the point; anything else ends the sweep.
/// - `verify(fixture, point)` checks the whole state, failures being over; it tells by whatever means it likes.
///
/// Throws Misuse if there are more than `limit` points: an operation that waits by asking again and again has no end.
template <class Make, class Operate, class Verify>
std::uint64_t sweep(Failure failure, Make make, Operate operate, Verify verify, std::uint64_t limit = 100'000) {
    for (failure.nth = 1; failure.nth <= limit; ++failure.nth) {
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
        if (point.injected == 0) return failure.nth - 1;
    }
    throw Misuse{"a sweep found no end after " + std::to_string(limit) + " points: " + failure.text()};
}

} // namespace memsaver::inline v0_2
