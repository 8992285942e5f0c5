// The options of a saver.
#pragma once

#include "memsaver/backup/policy.hpp"
#include "memsaver/core/event.hpp"

#include <cstddef>
#include <functional>
#include <optional>
#include <string>

namespace memsaver::inline v0_3 {

/// Argument of SaverOptions::on_no_room: a call found too little memory even after unused memory was released.
struct NoRoom {
    std::size_t bytes = 0; ///< requested by the call from the device; 0 if the failed call was not a request for bytes
    int device = 0;
    std::size_t free_bytes = 0;    ///< free on the device when it was queried; the margin counts as free
    std::string tag;               ///< the tag that needs the memory; empty if several tags do
    std::size_t missing_bytes = 0; ///< that the device lacks for the call and the margin; at least 1
};

/// Which calls with an unknown name create a tag.
enum class NewTags : unsigned char {
    allowed,     ///< any call
    with_policy, ///< only a call that names a policy; others throw Misuse, because the name may be misspelled
};

/// Options of a MemorySaver, written as `{.margin = 1_GiB, .events = stderr_sink()}`.
struct SaverOptions {
    /// If false, the same program runs with plain allocations: pause and resume check their tags and do nothing else.
    bool enabled = true;
    /// Bytes of each device's memory that this saver's allocations and resumes must leave free; otherwise they fail.
    std::size_t margin = 0;
    /// Bytes of each device's memory to keep free for others; 0: none. Unlike `margin`, it never makes a call fail.
    /// Checked whenever this saver has taken device memory: after an allocation, resume, use, exchange or commit. If
    /// less is free, memory is released on the same thread, as `reclaim` does, but without waiting for the device or
    /// for work marked by uses. The tags that took the memory are not evicted, and their call succeeds regardless;
    /// failures are reported to `events`. As a consequence, pause hooks and owners of elastic memory may run inside an
    /// allocation, and the allocation may save bytes of other tags. Those callbacks may allocate. Such allocations,
    /// allocations in `on_no_room`, and those of a capturing thread release nothing.
    std::size_t pressure = 0;
    /// The policy of a new tag that names none. Empty: `Discard{}`, and the tag's first pause reports `warned`.
    std::optional<AnyPolicy> default_policy{};
    /// With `NewTags::with_policy`, `arena`, `region` and `capture` throw Misuse for an unknown tag without a policy.
    /// The message suggests similar tag names.
    NewTags new_tags = NewTags::allowed;
    /// Called before OutOfMemory is thrown, on the thread that needs the memory, with no lock held. It may free, pause
    /// and drop (inside a hook, only free). Returning true means that memory may be available now: the call is retried,
    /// and if there is still no room, this function is asked again, up to 100 times for one call. Exceptions propagate
    /// out of the call.
    std::function<bool(const NoRoom&)> on_no_room{};
    /// Receives errors that could not be thrown, retries and the progress of copies.
    EventSink events{};
};

} // namespace memsaver::inline v0_3
