// Waiting for work that may still touch host memory.
#pragma once

#include "memsaver/driver/concepts.hpp"

namespace memsaver::inline v0_1 {

/// Waits for all of the device's work if `unsettled` says that some could not be waited for, and then takes it back.
/// A lost device works no more. On failure the memory is not to be given back, nor to be used anew. `Flag` is a bool,
/// or an atomic one.
template <HostPages D, class Flag>
Status settle(const D& driver, Flag& unsettled) noexcept {
    if constexpr (Streams<D>) {
        if (!unsettled) return {};
        const Status drained = driver.drain();
        if (!drained.ok() && drained.kind != StatusKind::gone) return drained;
        unsettled = false;
    }
    return {};
}

} // namespace memsaver::inline v0_1
