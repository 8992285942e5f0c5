// Small algorithms on lists, as plain loops: a third of the code of the standard ones, which g++ unrolls four times
// wherever they are called.
#pragma once

#include "memsaver/core/form.hpp"
#include "memsaver/core/function_ref.hpp"

#include <cstddef>
#include <utility>

namespace memsaver::inline v0_3::detail {

template <class List, class Predicate>
[[nodiscard]] bool any_in(List&& list, Predicate holds) {
    for (auto&& each : list)
        if (holds(each)) return true;
    return false;
}

template <class List, class Predicate>
[[nodiscard]] bool all_in(List&& list, Predicate holds) {
    return !any_in(list, [&](auto&& each) { return !holds(each); });
}

template <class List, class T>
[[nodiscard]] bool is_in(const List& list, const T& value) {
    return any_in(list, [&](const auto& each) { return each == value; });
}

/// The first element for which the predicate holds, or null.
template <class List, class Predicate>
[[nodiscard]] auto* first_in(List&& list, Predicate holds) {
    for (auto& each : list)
        if (holds(each)) return &each;
    return static_cast<decltype(&*list.begin())>(nullptr);
}

/// Erases the elements for which the predicate holds; the others keep their order.
template <class List>
void erase_in(List& list, FunctionRef<bool(typename List::value_type&)> holds) {
    std::size_t kept = 0;
    for (std::size_t i = 0; i < list.size(); ++i) {
        if (holds(list[i])) continue;
        if (kept != i) list[kept] = std::move(list[i]);
        ++kept;
    }
    while (list.size() != kept) list.pop_back();
}

} // namespace memsaver::inline v0_3::detail
