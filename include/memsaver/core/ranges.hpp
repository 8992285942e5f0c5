// Arithmetic on lists of address ranges.
#pragma once

#include "memsaver/core/form.hpp"
#include "memsaver/core/function_ref.hpp"
#include "memsaver/core/handles.hpp"
#include "memsaver/core/vector.hpp"

#include <cstdint>
#include <utility>
#include <vector>

namespace memsaver::inline v0_3::detail {

/// Those with the same address by size.
void sort_by_address(std::vector<Range>& ranges) noexcept;

/// Sorts the items 0 .. count-1 of a list by their keys, by calls of `swap`; equal ones keep their order.
void sort_places(std::size_t count, FunctionRef<std::uint64_t(std::size_t)> key,
                 FunctionRef<void(std::size_t, std::size_t)> swap);

/// Sorts `items` by `key(item)`, an integer; equal ones keep their order. Sorting itself is compiled only once. Strong
/// exception guarantee: may throw std::bad_alloc.
template <class List, class Key>
void sort_by(List& items, Key key) {
    sort_places(
        items.size(), [&](std::size_t i) -> std::uint64_t { return key(items[i]); },
        [&](std::size_t i, std::size_t j) { std::swap(items[i], items[j]); });
}

/// A key for `sort_by` in the order of the numbers, or of the addresses.
[[nodiscard]] constexpr std::uint64_t key_of(std::int64_t number) noexcept {
    return static_cast<std::uint64_t>(number) ^ (std::uint64_t{1} << 63U);
}
[[nodiscard]] inline std::uint64_t key_of(const void* pointer) noexcept {
    return reinterpret_cast<std::uintptr_t>(pointer);
}

/// Adds a pointer to a sorted list unless it is there; returns whether it was added.
bool add_once(Vector<const void*>& seen, const void* pointer);

/// Returns `ranges` minus `holes`. Both must be sorted and non-overlapping. Adjacent results are joined.
std::vector<Range> without(const std::vector<Range>& ranges, const std::vector<Range>& holes);

/// Returns the parts of `ranges` that lie in `mask`. Both must be sorted and non-overlapping.
std::vector<Range> intersection(const std::vector<Range>& ranges, const std::vector<Range>& mask);

/// Returns whether every byte of `range` lies in `ranges`, which must be sorted and non-overlapping. Does not allocate.
bool covers(const std::vector<Range>& ranges, Range range) noexcept;

} // namespace memsaver::inline v0_3::detail

#ifndef MEMSAVER_COMPILED
#include "memsaver/core/ranges.ipp"
#endif
