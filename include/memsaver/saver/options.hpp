// The options of a saver.
#pragma once

#include "memsaver/backup/policy.hpp"
#include "memsaver/core/event.hpp"
#include "memsaver/saver/evictions.hpp"
#include "memsaver/saver/plain_memory.hpp"

#include <concepts>
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

/// Whether a saver is switched on; converts from and to bool. A program that never says so compiles no plain memory.
class Enabled {
public:
    Enabled() noexcept = default;
    template <std::same_as<bool> B>
    Enabled(B yes) noexcept : plain_{yes ? nullptr : &detail::make_plain_memory} {}

    [[nodiscard]] operator bool() const noexcept { return plain_ == nullptr; }
    /// Makes what allocates the blocks of a saver that is switched off; null if it is on.
    [[nodiscard]] detail::MakePlainMemory plain() const noexcept { return plain_; }

private:
    detail::MakePlainMemory plain_ = nullptr;
};

/// Options of a MemorySaver, written as `{.margin = 1_GiB, .events = stderr_sink()}`.
struct SaverOptions {
    /// If false, the same program runs with plain allocations: pause and resume check their tags and do nothing else.
    /// Plain memory has no capacity, and is aligned to at most 256 bytes.
    Enabled enabled{};
    /// Bytes of each device's memory that this saver's allocations and resumes must leave free; otherwise they fail.
    std::size_t margin = 0;
    /// The policy of a new tag that names none. Empty: `Discard{}`, and the tag's first pause reports `warned`.
    std::optional<AnyPolicy> default_policy{};
    /// With `NewTags::with_policy`, `arena`, `region` and `capture` throw Misuse for an unknown tag without a policy.
    /// The message suggests similar tag names.
    NewTags new_tags = NewTags::allowed;
    /// If true, allocations and resumes make room as MemorySaver::use does: after unused memory, they pause idle tags
    /// that were named in a `use` or made evictable, lowest priority first and, at equal priority, least recently used
    /// first; none if all of them together do not suffice. Never paused are tags in use, the tag that allocates and
    /// those that are resumed. An eviction waits for the work that the tag's uses marked with `until`, for at most 10 s
    /// and no longer than `room_within`, and never for a use. Hooks run on the calling thread; if a before-hook throws,
    /// its tag stays resident. Inside a hook and while a capture is open, nothing is evicted.
    EvictForAllocations evict_for_allocations{};
    /// Called before OutOfMemory is thrown, on the thread that needs the memory, with no lock held. It may free, pause
    /// and drop (inside a hook, only free). Returning true means that memory may be available now: the call is retried,
    /// and if there is still no room, this function is asked again, up to 100 times for one call. Exceptions propagate
    /// out of the call.
    std::function<bool(const NoRoom&)> on_no_room{};
    /// Receives errors that could not be thrown, retries and the progress of copies.
    EventSink events{};
};

} // namespace memsaver::inline v0_3
