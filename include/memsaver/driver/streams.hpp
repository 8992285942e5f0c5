// What is asked of a program's stream before it is used.
#pragma once

#include "memsaver/core/form.hpp"
#include "memsaver/core/handles.hpp"
#include "memsaver/driver/any_driver.hpp"

namespace memsaver::inline v0_2 {

namespace detail {

/// Whether the stream is being captured. Throws what a failing driver call stands for, which names the stream and the
/// device: as a rule it is another device's, or closed.
[[nodiscard]] bool being_captured(const AnyDriver& driver, StreamRef stream);

} // namespace detail

} // namespace memsaver::inline v0_2

#ifndef MEMSAVER_COMPILED
#include "memsaver/driver/streams.ipp"
#endif
