// What a saver asks of evictions for allocations and resumes. Programs that want none compile nothing of them.
#pragma once

#include "memsaver/core/order.hpp"
#include "memsaver/fwd.hpp"

#include <concepts>

namespace memsaver::inline v0_3 {

namespace detail {

/// A call that may find no room. Its own tags are not evicted for it.
struct LackOfRoom {
    ArenaCore* arena = nullptr; ///< the call allocates in it; null: it resumes `in`
    const Tags* out = nullptr;  ///< the call pauses them; or null
    const Tags* in = nullptr;   ///< the call resumes them; or null
    Deadline until{};           ///< for how long it waits for room, if it says so
    unsigned asked = 0;         ///< how often room was made for it
};

/// How room is made by pausing idle tags.
struct Evictions {
    /// Returns whether the call may find room now.
    bool (*make_room)(SaverState&, const OutOfMemory& error, int device, const LackOfRoom&);
    /// The text for a call for which they did not suffice.
    const char* advice;
};

bool evict_for_room(SaverState& state, const OutOfMemory& error, int device, const LackOfRoom& lack);

inline constexpr Evictions evictions{
    &evict_for_room, "; allocations and resumes pause only tags that are idle and may be evicted, and those do not "
                     "suffice: end uses, call set_evictable, or "};

} // namespace detail

/// Whether allocations and resumes evict idle tags; converts from and to bool. A program that never says so compiles
/// no evictions into them.
class EvictForAllocations {
public:
    EvictForAllocations() noexcept = default;
    template <std::same_as<bool> B>
    EvictForAllocations(B yes) noexcept : how_{yes ? &detail::evictions : nullptr} {}

    [[nodiscard]] operator bool() const noexcept { return how_ != nullptr; }
    /// Returns null if nothing is evicted.
    [[nodiscard]] const detail::Evictions* how() const noexcept { return how_; }

private:
    const detail::Evictions* how_ = nullptr;
};

} // namespace memsaver::inline v0_3
