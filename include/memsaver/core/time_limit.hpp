// How long an operation waits at most.
#pragma once

#include "memsaver/core/error.hpp"

#include <chrono>
#include <optional>
#include <ratio>

namespace memsaver::inline v0_3 {

/// The longest that an operation waits; empty if none was given. Converts from every duration of `std::chrono`. One
/// that is too long for nanoseconds, such as `hours::max()`, means to wait for ever; 0 or less means not to wait.
/// Throws Misuse for a time that is not a number.
class TimeLimit : public std::optional<std::chrono::nanoseconds> {
public:
    constexpr TimeLimit() noexcept = default;
    constexpr TimeLimit(std::nullopt_t) noexcept {}
    constexpr TimeLimit(const std::optional<std::chrono::nanoseconds>& time) noexcept
        : std::optional<std::chrono::nanoseconds>{time} {}
    template <class Rep, class Period>
    constexpr TimeLimit(const std::chrono::duration<Rep, Period>& time)
        : std::optional<std::chrono::nanoseconds>{in_nanoseconds(time)} {}

    friend constexpr bool operator==(const TimeLimit& a, const TimeLimit& b) noexcept {
        return a.has_value() == b.has_value() && (!a || *a == *b);
    }

private:
    template <class Rep, class Period>
    static constexpr std::chrono::nanoseconds in_nanoseconds(const std::chrono::duration<Rep, Period>& time) {
        using std::chrono::nanoseconds;
        // Compared before it is converted: a conversion that does not fit is undefined.
        const auto wide = std::chrono::duration_cast<std::chrono::duration<long double, std::nano>>(time).count();
        if (wide != wide) detail::misuse({"a time limit is not a number; valid: durations of 0 or more"});
        if (wide >= static_cast<long double>(nanoseconds::max().count())) return nanoseconds::max();
        if (wide <= static_cast<long double>(nanoseconds::min().count())) return nanoseconds::min();
        return std::chrono::duration_cast<nanoseconds>(time);
    }
};

} // namespace memsaver::inline v0_3
