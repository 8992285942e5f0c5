// Use: tags that are here for as long as it lives. And what `use` and `reclaim` are asked and answer.
#pragma once

#include "memsaver/arena/options.hpp"
#include "memsaver/core/report.hpp"
#include "memsaver/core/usage.hpp"

#include <chrono>
#include <cstddef>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace memsaver::inline v0_2 {

namespace detail {
class Residency;
class SaverCore;
class UseRecord;
} // namespace detail

/// Options of MemorySaver::use, written as `{.room_within = 2s}`.
struct UseOptions {
    /// How long to wait for room that other threads' uses hold; then OutOfMemory. None: as long as it takes. Where
    /// their ends cannot make enough, `use` does not wait at all.
    std::optional<std::chrono::nanoseconds> room_within{};
    /// How long to wait for everything else: pauses that are under way on these tags, and the work that uses of evicted
    /// tags marked; then NotIdle. None: as long as it takes.
    std::optional<std::chrono::nanoseconds> timeout{};
    /// What evictions wait for besides the ends of uses and what these marked. For programs whose work outside of every
    /// use may touch what is evicted.
    Order order = already_idle;
};

/// Options of MemorySaver::reclaim.
struct ReclaimOptions {
    /// The number of the device that is to have more; none: the saver's own.
    std::optional<int> device{};
    /// As UseOptions::order.
    Order order = already_idle;
    /// How long to wait for work that uses of evicted tags marked; then the tag is passed by. None: as long as it
    /// takes.
    std::optional<std::chrono::nanoseconds> timeout{};
};

/// What MemorySaver::reclaim got, and why not more. Bytes of physical memory. Printable.
struct Reclaimed {
    std::size_t wanted_bytes = 0;
    std::size_t unused_bytes = 0;  ///< given back of what nobody used
    std::size_t evicted_bytes = 0; ///< given back by pausing idle tags
    Report report;                 ///< of those pauses: a row for each tag and device
    std::vector<Holder> holders;   ///< who still holds the device's memory
    std::string why_not_more;      ///< empty where as much was got as was wanted

    /// What the device got back in all.
    [[nodiscard]] std::size_t bytes() const noexcept { return unused_bytes + evicted_bytes; }

    /// "reclaimed 8.00 GiB of 10.0 GiB: 2.00 GiB unused, 6.00 GiB of idle tags; held: ..."
    friend std::ostream& operator<<(std::ostream& out, const Reclaimed& what);
};

/// Tags that are in use, and so are not paused: their memory is here, at the addresses that it always had, from
/// MemorySaver::use until this ends and what `until` marked has passed. Move-only, may end on any thread. Held by the
/// thread that made it or moved it last, which does not wait for other uses meanwhile. A default one, one that was
/// moved from and one that was released hold nothing. Keeps the saver's core alive; after `close()`, and in a forked
/// child, its end is quiet.
class Use {
public:
    Use() noexcept;
    Use(Use&& other) noexcept;
    Use& operator=(Use&& other) noexcept;
    ~Use();

    /// The tags also stay until `stream`, of any device of theirs, has passed what it was given so far. Does not wait,
    /// and can be called for several. The stream may be closed afterwards. A stream that is being captured, and a use
    /// that holds nothing, are Misuse; throws what a failing driver call stands for, and then the use is as it was.
    void until(StreamRef stream);
    /// The same for an event that was recorded, which may be recorded anew or closed afterwards.
    void until(EventRef event);

    /// Those of its tags whose bytes were dropped (by a policy that keeps none, or for once) since a use that was told
    /// of it, or that came before, has ended: they have to be filled anew.
    [[nodiscard]] std::vector<std::string> lost() const;

    /// Ends it now. What was submitted and not marked by `until` must have passed. Of one that holds nothing, does
    /// nothing. Does not throw.
    void release() noexcept;

    /// Whether it holds its tags.
    [[nodiscard]] explicit operator bool() const noexcept { return record_ != nullptr; }

private:
    friend class detail::SaverCore;
    Use(std::shared_ptr<detail::SaverCore> saver, std::unique_ptr<detail::UseRecord> record) noexcept;

    std::shared_ptr<detail::SaverCore> saver_; // declared first, so that it dies last
    std::unique_ptr<detail::UseRecord> record_;
};

} // namespace memsaver::inline v0_2

#ifndef MEMSAVER_COMPILED
#include "memsaver/saver/use.ipp"
#endif
