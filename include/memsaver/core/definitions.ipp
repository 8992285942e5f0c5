// Definitions of definitions.hpp.
#pragma once

#include "memsaver/core/definitions.hpp"

namespace memsaver::inline v0_3::detail {

MEMSAVER_INLINE void include_memsaver_impl_hpp_in_one_source_file() noexcept {}

} // namespace memsaver::inline v0_3::detail
