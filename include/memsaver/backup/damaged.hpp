// What an error is called when kept bytes have changed.
#pragma once

#include "memsaver/core/error.hpp"

namespace memsaver::inline v0_2 {

/// Kept bytes are not those that were saved. The memory is still paused; nothing of it has been resumed.
class [[gnu::visibility("default")]] BackupDamaged : public detail::RuntimeError {
    using RuntimeError::RuntimeError;
};

} // namespace memsaver::inline v0_2
