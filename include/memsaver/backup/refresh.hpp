// When bytes are saved, and for how long they are kept.
#pragma once

#include "memsaver/core/form.hpp"

namespace memsaver::inline v0_3 {

/// When bytes are saved: at every pause; or once, and again after `invalidate`.
enum class Refresh : unsigned char { every_pause, once };

namespace detail {

/// Options of a StoredSlot.
struct StoredSlotOptions {
    Refresh refresh = Refresh::every_pause;
    bool retain = true; ///< keep the storage after a resume, for the next pause
    bool check = false; ///< with Refresh::once: every pause compares the bytes that it skips, and fails if they differ
};

} // namespace detail

} // namespace memsaver::inline v0_3
