// Arithmetic on lists of address ranges.
#pragma once

#include "memsaver/core/form.hpp"
#include "memsaver/core/function_ref.hpp"
#include "memsaver/core/handles.hpp"

#include <cstdint>
#include <utility>
#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {

/// Those with the same address by size.
void sort_by_address(std::vector<Range>& ranges) noexcept;

/// Returns where the items of a list belong that has `count` items with these keys: for each place the key and the
/// item's index. Equal ones keep their order. Empty if the list is sorted already.
[[nodiscard]] std::vector<Range> places_of(std::size_t count, FunctionRef<std::uint64_t(std::size_t)> key);

/// Sorts `items` by `key(item)`, an integer; equal ones keep their order. Sorting itself is compiled only once.
template <class T, class Key>
void sort_by(std::vector<T>& items, Key key) {
    const std::vector<Range> places =
        places_of(items.size(), [&](std::size_t i) -> std::uint64_t { return key(items[i]); });
    if (places.empty()) return;
    std::vector<T> moved;
    moved.reserve(items.size());
    for (const Range& place : places) moved.push_back(std::move(items[place.bytes]));
    items.swap(moved);
}

/// A key for `sort_by` in the order of the numbers, or of the addresses.
[[nodiscard]] constexpr std::uint64_t key_of(std::int64_t number) noexcept {
    return static_cast<std::uint64_t>(number) ^ (std::uint64_t{1} << 63U);
}
[[nodiscard]] inline std::uint64_t key_of(const void* pointer) noexcept {
    return reinterpret_cast<std::uintptr_t>(pointer);
}

/// Adds a pointer to a sorted list unless it is there; returns whether it was added.
bool add_once(std::vector<const void*>& seen, const void* pointer);

/// Returns `ranges` minus `holes`. Both must be sorted and non-overlapping. Adjacent results are joined.
std::vector<Range> without(const std::vector<Range>& ranges, const std::vector<Range>& holes);

/// Returns the parts of `ranges` that lie in `mask`. Both must be sorted and non-overlapping.
std::vector<Range> intersection(const std::vector<Range>& ranges, const std::vector<Range>& mask);

/// Returns whether every byte of `range` lies in `ranges`, which must be sorted and non-overlapping. Does not allocate.
bool covers(const std::vector<Range>& ranges, Range range) noexcept;

} // namespace detail

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/core/ranges.ipp"
#endif
