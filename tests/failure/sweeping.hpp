// Sweeps an operation over every policy: its 1st, 2nd, ... last call fails, in each way, or a sample of them
// (support/sampling.hpp). Checks the invariants of all operations; each operation checks its own effects.
#pragma once

#include "failure/populated.hpp"
#include "support/sampling.hpp"

namespace test {

/// One operation of the public interface.
struct Operation {
    using Act = std::function<void(Populated&)>;

    const char* name;
    Act prepare; ///< brings a new world to the state in which the operation is tried
    Act operate; ///< may be repeated, and then continues where it stopped
    Act done;    ///< checks the operation's effects
    enum class About : unsigned char { swept, all, the_end } about = About::swept;
    Act tidy{}; ///< runs right after a failure: cleanup that no library can do
};

inline void nothing(Populated&) {}

/// Ends everything that the world owns, the saver last.
inline void end(Populated& world) {
    world.hooks.clear();
    world.registered.clear();
    world.registrations.reset();
    world.graph.reset();
    world.another.reset();
    world.pool.reset();
    world.buffer.reset();
    world.handle = {};
    world.elastic = {};
    world.coming = {};
    world.saver.reset();
}

/// Tries the operation once with the failures that were planned, and stops them.
inline void attempt(Populated& world, const Operation& operation, SweepPoint& point) {
    point.error = nullptr;
    try {
        operation.operate(world);
    } catch (const Error&) {
        point.error = std::current_exception();
    }
    world.driver.heal();
    if (operation.tidy) operation.tidy(world);
    point.injected = world.driver.injected();
}

/// Call after failures have stopped: repeats the operation, and checks that the result is as if nothing had failed.
inline void verify(Populated& world, const SweepPoint& point, const Operation& operation) {
    const bool swept = operation.about == Operation::About::swept;
    if (operation.tidy) operation.tidy(world);
    world.check_books_are_true();
    if (world.saver && !world.closed()) {
        if (swept) world.check_others();
        if (point.error && world.counted) {
            for (const auto& [name, tag] : world.tags) world.check_bytes(name);
        }
    }
    if (world.setting.then != Setting::Then::retries) {
        if (world.saver && world.setting.then == Setting::Then::closes) {
            world.saver->close();
            CHECK(world.driver.handle_bytes() + world.driver.plain_bytes() + world.driver.pinned_bytes() == 0);
        }
        end(world);
        return world.check_nothing_left();
    }
    if (point.error) CHECK_NOTHROW(operation.operate(world));
    world.check_books_are_true();
    operation.done(world);
    if (world.saver && !world.closed()) {
        if (swept) world.check_others();
        world.check_usable();
    }
    end(world);
    world.check_nothing_left();
}

/// Call after the device was lost for good: checks that usage is correct, backups can be read, memory on another device
/// stays usable, closing reports no error, and no host memory or file is left.
inline void verify_lost(Populated& world, const SweepPoint& point, const Operation& operation) {
    if (operation.tidy) operation.tidy(world);
    world.lost = point.injected != 0;
    if (world.lost) lose(world.driver);
    world.check_books_are_true();
    if (world.saver && !world.closed()) {
        world.check_bytes("away");
        if (world.counted) world.check_bytes("swept");
        if (world.setting.well == Setting::Well::own && operation.about == Operation::About::swept) {
            CHECK_NOTHROW(world.pause("beside"));
            CHECK_NOTHROW(world.resume("beside"));
            world.check_others();
        }
    }
    if (world.saver) CHECK_NOTHROW(world.saver->close());
    end(world);
    world.driver.heal();
    world.check_nothing_left();
}

/// Counts the points that a sweep tried, and prints the number when destroyed.
struct Points {
    explicit Points(std::string what) : what_{std::move(what)} {}
    ~Points() { MESSAGE(what_ << ": " << tried_ << " points"); }
    void add(std::uint64_t points) { tried_ += points; }

private:
    std::string what_;
    std::uint64_t tried_ = 0;
};

/// As the number of a failing call: none fails.
inline constexpr std::uint64_t never = 1'000'000;

/// Runs one operation under one policy once, with this failure. Returns the number of calls that it made.
inline std::uint64_t run_point(const Operation& operation, const SweptPolicy& policy, const Failure& failure,
                               const Setting& setting, Points& points) {
    std::uint64_t calls = 0;
    const auto make = [&] { return Populated{policy, setting, operation.prepare}; };
    const auto operate = [&](Populated& world) {
        const std::uint64_t before = world.driver.calls();
        operation.operate(world);
        calls = world.driver.calls() - before;
    };
    const auto verified = [&](Populated& world, const SweepPoint& point) {
        CAPTURE(std::string{operation.name});
        CAPTURE(policy.name);
        CAPTURE(setting.nasty);
        CAPTURE(point.text());
        if (failure.kind == StatusKind::gone) return verify_lost(world, point, operation);
        verify(world, point, operation);
    };
    points.add(detail::sweep_point(failure, make, operate, verified) == 0 ? 0 : 1);
    return calls;
}

/// The parameters of a sweep, besides operations.
struct Sweep {
    // One thread, so that the n-th call is the same each time.
    std::vector<SweptPolicy> policies = every_policy(1);
    std::vector<StatusKind> kinds{StatusKind::other, StatusKind::out_of_memory, StatusKind::out_of_host_memory,
                                  StatusKind::gone};
    Setting setting{};
};

/// Example: "pause: the first, switched off"
inline std::string name_of(const std::string& operation, const std::string& setting) {
    if (setting.empty()) return operation;
    return operation + (contains(operation, ": ") ? ", " : ": ") + setting;
}

/// A compressed backup needs additional device memory during a resume. Unused plain memory has been freed already.
inline bool has_room(const Operation& operation, const SweptPolicy& policy, const Setting& setting = {}) {
    return !contains(operation.name, "with room only") || (setting.enabled && !contains(policy.name, "compressed"));
}

/// Tries one operation with the failures that `sampled` takes, and once under each policy without any.
inline void sweep_one(const Operation& operation, const Sweep& through, const Sampling& sampled, Points& points) {
    std::uint64_t index = 0;
    for (const SweptPolicy& policy : through.policies) {
        if (!has_room(operation, policy, through.setting)) continue;
        Setting setting = through.setting;
        setting.nasty = !setting.nasty && sampled.takes(index);
        const std::uint64_t calls = run_point(operation, policy, {.nth = never}, setting, points);
        REQUIRE(calls < never);
        for (const StatusKind kind : through.kinds) {
            if (kind == StatusKind::gone && policy.elsewhere) continue;
            // Late work and garbage in fresh pages are independent of the kind of failure, so one kind suffices.
            setting.nasty = kind == StatusKind::other;
            for (const Lasting lasting : {Lasting::once, Lasting::onwards}) {
                for (std::uint64_t nth = 1; nth <= calls; ++nth) {
                    if (!sampled.takes(index++)) continue;
                    (void)run_point(operation, policy, {.nth = nth, .lasting = lasting, .kind = kind}, setting, points);
                }
            }
        }
    }
}

/// An operation with a failure among its samples is tried again with all.
inline void sweep_all(const std::vector<Operation>& operations, const Sweep& through = {}) {
    MESSAGE(sampling().text());
    for (const Operation& operation : operations) {
        const std::string name = name_of(operation.name, through.setting.name);
        Points points{name};
        const std::uint64_t before = failed_checks();
        std::exception_ptr thrown;
        try {
            sweep_one(operation, through, sampling().of(name), points);
        } catch (...) { // a REQUIRE
            thrown = std::current_exception();
        }
        if (!sampling().all() && (thrown || failed_checks() != before)) {
            MESSAGE("failed: " << name << "; now all of its points");
            sweep_one(operation, through, {1, 0}, points);
        }
        if (thrown) std::rethrow_exception(thrown);
    }
}
} // namespace test
