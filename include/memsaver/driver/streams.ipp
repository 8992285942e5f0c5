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
        raise(status, "query whether a stream is being captured",
              "stream " + format_address(reinterpret_cast<std::uintptr_t>(stream.native())) +
                  "; is it an open stream of device " + std::to_string(driver.device()) + '?');
    }
    return yes;
}

} // namespace detail

} // namespace memsaver::inline v0_3
