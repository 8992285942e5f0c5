// The exception for backup bytes that have changed.
#pragma once

#include "memsaver/core/error.hpp"

namespace memsaver::inline v0_3 {

/// Thrown if backup bytes are not the bytes that were saved. The memory is still paused; no part of it was resumed.
class [[gnu::visibility("default")]] BackupDamaged : public detail::RuntimeError {
    using RuntimeError::RuntimeError;
};

} // namespace memsaver::inline v0_3
