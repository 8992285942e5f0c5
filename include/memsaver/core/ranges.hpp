// Arithmetic on lists of address ranges.
#pragma once

#include "memsaver/core/form.hpp"
#include "memsaver/core/handles.hpp"

#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {

void sort_by_address(std::vector<Range>& ranges) noexcept;

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
