// Definitions of streams.hpp.
#pragma once

#include "memsaver/core/error.hpp"
#include "memsaver/core/sizes.hpp"
#include "memsaver/driver/streams.hpp"

#include <cstdint>
#include <string>

namespace memsaver::inline v0_3 {

namespace detail {

MEMSAVER_INLINE bool being_captured(const AnyDriver& driver, StreamRef stream) {
    bool yes = false;
    if (const Status status = driver.capturing(stream, yes); !status.ok()) {
        raise_of(status, "query whether a stream is being captured",
                 {"stream ", in_hex(reinterpret_cast<std::uintptr_t>(stream.native())),
                  "; is it an open stream of device ", in_digits(driver.device()), "?"});
    }
    return yes;
}

} // namespace detail

} // namespace memsaver::inline v0_3
