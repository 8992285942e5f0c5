// A program compiled with MEMSAVER_COMPILED needs the definitions: this makes the linker say how to get them.
#pragma once

#include "memsaver/core/form.hpp"

namespace memsaver::inline v0_3::detail {

/// Does nothing. Constructors that every program calls call it: where no file defines it, the linker's message is its
/// name.
void include_memsaver_impl_hpp_in_one_source_file() noexcept;

} // namespace memsaver::inline v0_3::detail

#ifndef MEMSAVER_COMPILED
#include "memsaver/core/definitions.ipp"
#endif
