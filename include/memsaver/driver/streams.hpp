// Queries about a program's stream before it is used.
#pragma once

#include "memsaver/core/error.hpp"
#include "memsaver/core/form.hpp"
#include "memsaver/core/handles.hpp"
#include "memsaver/driver/any_driver.hpp"

#include <cstdint>

namespace memsaver::inline v0_3::detail {

/// Returns whether the stream is being captured. Throws the exception for a failing driver call; the text names the
/// stream and the device. Such a stream usually belongs to another device or is closed.
[[nodiscard]] inline bool being_captured(const AnyDriver& driver, StreamRef stream) {
    bool yes = false;
    if (const Status status = driver.capturing(stream, yes); !status.ok()) {
        raise_of(status, "query whether a stream is being captured",
                 {"stream ", in_hex(reinterpret_cast<std::uintptr_t>(stream.native())),
                  "; is it an open stream of device ", in_digits(driver.device()), "?"});
    }
    return yes;
}

} // namespace memsaver::inline v0_3::detail
