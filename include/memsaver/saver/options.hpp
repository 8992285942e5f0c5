// The options of a saver.
#pragma once

#include "memsaver/backup/policy.hpp"
#include "memsaver/core/event.hpp"

#include <cstddef>
#include <functional>
#include <optional>
#include <string>

namespace memsaver::inline v0_2 {

/// What SaverOptions::on_no_room is told: a call found no room, though memory that nobody uses was given back first.
struct NoRoom {
    std::size_t bytes = 0; ///< that the call wants to take, of the device; 0 where what failed was no request for bytes
    int device = 0;
    std::size_t free_bytes = 0;    ///< of the device, when it was asked; the margin counts as free
    std::string tag;               ///< whose memory it would be; empty where it is that of several
    std::size_t missing_bytes = 0; ///< that the device lacks for the call, and its margin; at least 1
};

/// Which uses of a name that no tag has make a tag.
enum class NewTags : unsigned char {
    allowed,     ///< every use
    with_policy, ///< one that names a policy; any other is Misuse, for the name may be mistyped
};

/// Options of a MemorySaver, written as `{.margin = 1_GiB, .events = stderr_sink()}`.
struct SaverOptions {
    /// Off: the same program runs with plain allocations; pause and resume check their tags and do nothing.
    bool enabled = true;
    /// Bytes of each device's memory that this saver's allocations and resumes leave free.
    std::size_t margin = 0;
    /// Bytes of each device's memory to keep free for others. Looked at whenever this saver has taken memory of a
    /// device: by an allocation, a resume, a use, an exchange, a commit. What is missing then is given back as
    /// `reclaim` gives it, on the same thread, but nothing that would have to wait for the device, or for what uses
    /// marked. The tags that took the memory stay, and their call succeeds whatever comes of it: what fails goes to
    /// `events`. So hooks of pauses and owners of elastic memory may run inside an allocation, which may save bytes of
    /// other tags. They may allocate; that, and what is allocated in `on_no_room` or by a thread that captures, gives
    /// nothing back. 0: nothing is kept free. `margin` is what allocations leave free or else fail; this one refuses
    /// nothing.
    std::size_t pressure = 0;
    /// What a new tag gets that names no policy. None: `Discard{}`, and a tag that has it so is told of as `warned` at
    /// its first pause.
    std::optional<AnyPolicy> default_policy{};
    /// With `NewTags::with_policy`, `arena`, `region` and `capture` of an unknown tag that name no policy are Misuse,
    /// whose text says which tags are near.
    NewTags new_tags = NewTags::allowed;
    /// Called before OutOfMemory is thrown, on the thread that wants the memory, with no lock held: it may free, pause
    /// and drop. True: something was done, try again. What it throws comes out of the call.
    std::function<bool(const NoRoom&)> on_no_room{};
    /// Told what could not be thrown, what was tried again, and how far copies have come.
    EventSink events{};
};

} // namespace memsaver::inline v0_2
