// What mutants.py writes in the place of operators: each works as before, unless its mutant is chosen when the program
// is started. Only operators are replaced, by some of the same precedence, and never an operand: places may contain
// others.
#pragma once

#include <algorithm>
#include <functional>
#include <type_traits>
#include <utility>

namespace mutant {

enum class Place : unsigned char { unreached, reached, fixed };

extern int chosen;    // 0: none
extern Place* places; // what this process and its children have reached

/// Whether the mutant is chosen; never in what the compiler computes.
constexpr bool on(int number, Place place = Place::reached) {
    if (std::is_constant_evaluated()) return false;
    places[number] = std::max(places[number], place);
    return number == chosen && place == Place::reached;
}

template <class Was, class Is, class... Operands>
constexpr auto either(int number, Operands&... operands) -> std::invoke_result_t<Was, Operands&...> {
    using Result = std::invoke_result_t<Was, Operands&...>;
    if constexpr (std::is_invocable_r_v<Result, Is, Operands&...>) {
        if (on(number)) return Is{}(operands...);
    } else {
        on(number, Place::fixed); // for these types the mutant would not compile
    }
    return Was{}(operands...);
}

/// One operand of a changed operator.
template <class Was, class Is, class T>
struct Held {
    T& operand;
    int number;
};

/// Stands for an operator: `a << Change << b` for a comparison, `a + Change + b`, `a += Change += b`, `Change ->* a`.
template <class Was, class Is>
struct Change {
    int number;

    template <class T>
    using OfOne = Held<Was, Is, std::remove_reference_t<T>>;
    template <class T>
    friend constexpr OfOne<T> operator<<(T&& left, Change change) {
        return {left, change.number};
    }
    template <class T>
    friend constexpr OfOne<T> operator+(T&& left, Change change) {
        return {left, change.number};
    }
    template <class T>
    constexpr OfOne<T> operator+=(T&& right) const {
        return {right, number};
    }
    template <class T>
    constexpr decltype(auto) operator->*(T&& operand) const {
        return either<Was, Is>(number, operand);
    }
    template <class T>
    constexpr decltype(auto) operator()(T& operand) const {
        return either<Was, Is>(number, operand);
    }
};

template <class Was, class Is, class L, class R>
constexpr auto operator<<(Held<Was, Is, L> left, R&& right) {
    return either<Was, Is>(left.number, left.operand, right);
}

template <class Was, class Is, class L, class R>
constexpr auto operator+(Held<Was, Is, L> left, R&& right) {
    return either<Was, Is>(left.number, left.operand, right);
}

template <class Was, class Is, class L, class R>
constexpr decltype(auto) operator+=(L& left, Held<Was, Is, R> right) {
    return either<Was, Is>(right.number, left, right.operand);
}

// What std:: has no function objects for.
inline constexpr auto add = [](auto& a, const auto& b) -> decltype(a += b) { return a += b; };
inline constexpr auto subtract = [](auto& a, const auto& b) -> decltype(a -= b) { return a -= b; };
inline constexpr auto up = [](auto& a) -> decltype(++a) { return ++a; };
inline constexpr auto down = [](auto& a) -> decltype(--a) { return --a; };
inline constexpr auto up_after = [](auto& a) -> decltype(a++) { return a++; };
inline constexpr auto down_after = [](auto& a) -> decltype(a--) { return a--; };
inline constexpr auto no = [](auto& a) -> decltype(!a) { return !a; };
inline constexpr auto yes = [](auto& a) -> decltype(static_cast<bool>(a)) { return static_cast<bool>(a); };

/// `a && b` and `a || b` are written `a && first || then && b`. `first` is asked if `a` is true: for `&&` it is false,
/// and `then`, asked next, goes on to `b`. `then` goes on also if `a` is false, for `||`. So a longer expression is
/// grouped as the changed text would be.
inline constinit thread_local bool left_is_true = false;

inline bool first(int number, bool both) { return !(left_is_true = both != on(number)); }
inline bool then(int number, bool both) { return both == on(number) || std::exchange(left_is_true, false); }

} // namespace mutant
