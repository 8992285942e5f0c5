// A second failure during the recovery from the first: while the same call rolls back, or while it is retried. There
// are too many pairs to try all; they are sampled over all operations and policies, from seeds.
#include "failure/operations.hpp"
#include "support/random.hpp"

namespace failure_pairs_test {
using namespace test;

constexpr StatusKind kinds[] = {StatusKind::other, StatusKind::out_of_memory, StatusKind::out_of_host_memory};
constexpr Lasting lastings[] = {Lasting::once, Lasting::onwards};

/// One sample of two failures.
struct Pair {
    explicit Pair(std::uint64_t seed) : random_{seed} {}

    /// Returns the number of failed calls.
    std::uint64_t run(const Operation& operation, const SweptPolicy& policy, std::uint64_t calls) {
        Populated world{policy, {.nasty = random_.below(2) == 0}, operation.prepare};
        SweepPoint point;
        if (random_.below(2) == 0) { // from the start: the second one comes any number of calls later
            const Failure first = failure(calls, Lasting::once);
            Failure second = failure(calls, lastings[random_.below(2)]);
            second.nth += first.nth;
            world.driver.fail(first);
            world.driver.fail(second);
            point.failure = first;
            attempt(world, operation, point);
        } else {
            point.failure = failure(calls, lastings[random_.below(2)]);
            world.driver.fail(point.failure);
            attempt(world, operation, point);
            world.check_books_are_true();
            if (point.error) {
                world.driver.fail(failure(calls, lastings[random_.below(2)]));
                attempt(world, operation, point);
            }
        }
        verify(world, point, operation);
        return point.injected;
    }

private:
    Failure failure(std::uint64_t calls, Lasting lasting) {
        return {.nth = 1 + random_.below(calls), .lasting = lasting, .kind = kinds[random_.below(std::size(kinds))]};
    }

    Random random_;
};

TEST_CASE("pairs: a second failure during the recovery from the first") {
    const std::vector<Operation> operations = repeatable();
    const std::vector<SweptPolicy> policies = every_policy(2);
    std::map<std::pair<std::size_t, std::size_t>, std::uint64_t> calls;
    const std::uint64_t seeds = 6000;
    const std::uint64_t step = sampling().stride(24);
    MESSAGE(sampling().text());
    Points alone{"pairs: operations without a failure"};
    std::uint64_t tried = 0;
    std::uint64_t failed = 0;
    for (std::uint64_t seed = 1 + sampling().first(24); seed <= seeds; seed += step) {
        Random random{seed};
        const std::size_t which = random.below(operations.size());
        const std::size_t how = random.below(policies.size());
        if (!has_room(operations[which], policies[how])) continue;
        const auto [known, fresh] = calls.try_emplace({which, how}, 0);
        if (fresh) known->second = run_point(operations[which], policies[how], {.nth = never}, {}, alone);
        if (known->second == 0) continue; // makes no calls, so nothing can fail
        CAPTURE(seed);
        CAPTURE(std::string{operations[which].name});
        CAPTURE(policies[how].name);
        const std::uint64_t injected = Pair{seed}.run(operations[which], policies[how], known->second);
        failed += injected;
        tried += injected > 1 ? 1 : 0;
    }
    CHECK(tried > seeds / step / 3); // two calls did fail
    MESSAGE("pairs: " << tried << " points, seeds 1 to " << seeds << (step > 1 ? ", sampled, " : ", ") << failed
                      << " calls failed");
}
} // namespace failure_pairs_test
