// Which call is to fail, and how.
// Does not make any call.
#pragma once

#include "memsaver/core/core.hpp"
#include "memsaver/testing/call_log.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace memsaver::inline v0_2 {

/// For how long a driver fails.
enum class Lasting : unsigned char {
    once,    ///< the n-th call alone
    onwards, ///< the n-th call and all after it
};

/// One failure to come: `{.call = Call::map, .nth = 2}` fails the second map from now.
struct Failure {
    std::optional<Call> call{}; ///< calls of this kind count; empty: calls of every kind
    std::uint64_t nth = 1;      ///< 1 is the next one
    Lasting lasting = Lasting::once;
    StatusKind kind = StatusKind::other; ///< what the call answers; not `ok`

    /// "create call 2 and all after it answer out of memory"
    [[nodiscard]] std::string text() const {
        return (call ? call_name(*call) : "any") + (" call " + std::to_string(nth)) +
               (lasting == Lasting::onwards ? " and all after it answer " : " answers ") + answer().name;
    }

    /// The status that a call answers when it fails on purpose.
    [[nodiscard]] constexpr Status answer() const noexcept {
        switch (kind) {
        case StatusKind::out_of_memory: return {kind, injected_code, "injected out of memory"};
        case StatusKind::out_of_host_memory: return {kind, injected_code, "injected out of host memory"};
        case StatusKind::unsupported: return {kind, injected_code, "injected unsupported"};
        case StatusKind::gone: return {kind, injected_code, "injected loss of the device"};
        case StatusKind::ok:
        case StatusKind::other: break;
        }
        return {StatusKind::other, injected_code, "injected failure"};
    }

    /// No driver's native code.
    static constexpr int injected_code = -4242;
};

/// The failures that are planned, counting down. Not thread safe.
class FailurePlan {
public:
    /// Throws Misuse for a failure that could never be seen.
    void add(const Failure& failure) {
        if (failure.nth == 0) throw Misuse{"a failure's nth counts from 1"};
        if (failure.kind == StatusKind::ok) throw Misuse{"a failure cannot answer ok"};
        pending_.push_back(failure);
    }

    /// Forgets the failures that are still to come; what has been counted stays.
    void clear() noexcept { pending_.clear(); }

    /// How many calls have been failed so far.
    [[nodiscard]] std::uint64_t injected() const noexcept { return injected_; }
    /// The same for calls of one kind.
    [[nodiscard]] std::uint64_t injected(Call call) const noexcept { return by_kind_[static_cast<std::size_t>(call)]; }

    /// Counts a call; what it is to answer, if it is to fail. All failures count it, the first that is due answers.
    std::optional<Status> next(Call call) noexcept {
        std::optional<Status> answer;
        for (Failure& failure : pending_) {
            if (failure.call && *failure.call != call) continue;
            if (failure.nth == 0) continue; // was due once
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

} // namespace memsaver::inline v0_2
