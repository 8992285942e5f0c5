// Arithmetic on lists of address ranges.
#pragma once

#include "memsaver/core/form.hpp"
#include "memsaver/core/handles.hpp"

#include <vector>

namespace memsaver::inline v0_2 {

namespace detail {

void sort_by_address(std::vector<Range>& ranges) noexcept;

/// What is left of `ranges` without `holes`; both sorted and without overlap. Neighbours are joined.
std::vector<Range> without(const std::vector<Range>& ranges, const std::vector<Range>& holes);

/// The parts of `ranges` that lie in `mask`; both sorted and without overlap.
std::vector<Range> intersection(const std::vector<Range>& ranges, const std::vector<Range>& mask);

/// Whether every byte of `range` lies in `ranges`, which are sorted and without overlap. Needs no memory.
bool covers(const std::vector<Range>& ranges, Range range) noexcept;

} // namespace detail

} // namespace memsaver::inline v0_2

#ifndef MEMSAVER_COMPILED
#include "memsaver/core/ranges.ipp"
#endif
