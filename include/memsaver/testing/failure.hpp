// Planned failures: which call fails, and how. Makes no calls.
#pragma once

#include "memsaver/core/core.hpp"
#include "memsaver/driver/calls.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace memsaver::inline v0_3 {

/// How long a failure lasts.
enum class Lasting : unsigned char {
    once,    ///< only the n-th call
    onwards, ///< the n-th call and all later ones
};

/// A planned failure: `{.call = Call::map, .nth = 2}` fails the second map from now.
struct Failure {
    std::optional<Call> call{}; ///< count only calls of this kind; empty: calls of every kind
    std::uint64_t nth = 1;      ///< 1 is the next call
    Lasting lasting = Lasting::once;
    StatusKind kind = StatusKind::other; ///< what the call returns; not `ok`

    /// "create call 2 and all later ones return injected out of memory"
    [[nodiscard]] std::string text() const {
        return (call ? call_name(*call) : "any") + (" call " + std::to_string(nth)) +
               (lasting == Lasting::onwards ? " and all later ones return " : " returns ") + answer().name;
    }

    /// Returns the status of the failed call.
    [[nodiscard]] constexpr Status answer() const noexcept {
        switch (kind) {
        case StatusKind::out_of_memory: return {kind, injected_code, "injected out of memory"};
        case StatusKind::out_of_host_memory: return {kind, injected_code, "injected out of host memory"};
        case StatusKind::out_of_addresses: return {kind, injected_code, "injected out of addresses"};
        case StatusKind::unsupported: return {kind, injected_code, "injected unsupported"};
        case StatusKind::gone: return {kind, injected_code, "injected loss of the device"};
        case StatusKind::ok:
        case StatusKind::other: break;
        }
        return {StatusKind::other, injected_code, "injected failure"};
    }

    /// A code that no driver uses.
    static constexpr int injected_code = -4242;
};

/// The planned failures and their countdown. Not thread-safe.
class FailurePlan {
public:
    /// Adds a failure. Throws Misuse if `nth` is 0 or the kind is `ok`.
    void add(const Failure& failure) {
        if (failure.nth == 0) throw Misuse{"Failure::nth must be at least 1"};
        if (failure.kind == StatusKind::ok) throw Misuse{"Failure::kind must not be ok"};
        pending_.push_back(failure);
    }

    /// Removes all planned failures; counts are kept.
    void clear() noexcept { pending_.clear(); }

    /// Number of failures injected so far.
    [[nodiscard]] std::uint64_t injected() const noexcept { return injected_; }
    /// Number of failures injected into calls of one kind.
    [[nodiscard]] std::uint64_t injected(Call call) const noexcept { return by_kind_[static_cast<std::size_t>(call)]; }

    /// Counts a call and returns the status to inject, if any. Every planned failure counts the call; the first that is
    /// due determines the status.
    std::optional<Status> next(Call call) noexcept {
        std::optional<Status> answer;
        for (Failure& failure : pending_) {
            if (failure.call && *failure.call != call) continue;
            if (failure.nth == 0) continue; // a one-time failure that has already occurred
            const bool due = failure.nth == 1;
            if (due && !answer) answer = failure.answer();
            if (!due || failure.lasting == Lasting::once) --failure.nth;
        }
        if (answer) {
            ++injected_;
            ++by_kind_[static_cast<std::size_t>(call)];
        }
        return answer;
    }

private:
    std::vector<Failure> pending_;
    std::uint64_t injected_ = 0;
    std::array<std::uint64_t, call_kinds> by_kind_{};
};

} // namespace memsaver::inline v0_3
