// Counts of calls, and the latest calls. Knows nothing about the meaning of the calls.
#pragma once

#include "memsaver/driver/calls.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace memsaver::inline v0_3 {

/// Counts of calls begun, and the latest completed calls. Allocates only to print. Not thread-safe.
class CallLog {
public:
    /// Number of latest calls that are kept.
    static constexpr std::size_t kept = 256;

    /// Counts a call and returns its number.
    std::uint64_t begin(Call call) noexcept {
        ++counts_[static_cast<std::size_t>(call)];
        return ++total_;
    }

    /// Records a completed call, replacing the oldest record.
    void end(const CallRecord& record) noexcept {
        latest_[ended_ % kept] = record;
        ++ended_;
    }

    /// Number of calls of one kind that have begun.
    [[nodiscard]] std::uint64_t count(Call call) const noexcept { return counts_[static_cast<std::size_t>(call)]; }
    /// Number of calls of all kinds that have begun.
    [[nodiscard]] std::uint64_t total() const noexcept { return total_; }

    /// Returns one line for each of the latest calls, in the order of completion.
    [[nodiscard]] std::string text() const {
        const std::uint64_t first = ended_ > kept ? ended_ - kept : 0;
        std::string text = first > 0 ? std::to_string(first) + " earlier calls\n" : "";
        for (std::uint64_t i = first; i < ended_; ++i) text += latest_[i % kept].text() + '\n';
        return text;
    }

private:
    std::array<std::uint64_t, call_kinds> counts_{};
    std::uint64_t total_ = 0;
    std::array<CallRecord, kept> latest_{};
    std::uint64_t ended_ = 0;
};

} // namespace memsaver::inline v0_3
