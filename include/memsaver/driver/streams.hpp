// Queries about a program's stream before it is used.
#pragma once

#include "memsaver/core/form.hpp"
#include "memsaver/core/handles.hpp"
#include "memsaver/driver/any_driver.hpp"

namespace memsaver::inline v0_3 {

namespace detail {

/// Returns whether the stream is being captured. Throws the exception for a failing driver call; the text names the
/// stream and the device. Such a stream usually belongs to another device or is closed.
[[nodiscard]] bool being_captured(const AnyDriver& driver, StreamRef stream);

} // namespace detail

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/driver/streams.ipp"
#endif
