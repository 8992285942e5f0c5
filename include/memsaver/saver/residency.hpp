// Implements `use`, `reclaim` and evictions for allocations: resumes tags that are used and evicts idle tags. Knows
// nothing about how a tag is paused or resumed, or which threads wait for which.
#pragma once

#include "memsaver/core/order.hpp"
#include "memsaver/core/report.hpp"
#include "memsaver/core/tags.hpp"
#include "memsaver/saver/evictions.hpp"
#include "memsaver/saver/residents.hpp"
#include "memsaver/saver/saver_state.hpp"
#include "memsaver/saver/use_options.hpp"

#include <cstddef>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {

/// The working state of one call of `use` or `reclaim`, or of one attempt to make room. Not thread-safe.
class Residency {
public:
    explicit Residency(SaverState& state) : state_{state}, residents_{state.tags_.residents()} {}
    Residency(const Residency&) = delete;
    Residency& operator=(const Residency&) = delete;
    ~Residency() { tell_unneeded(); }

    /// Returns a use of these tags, all resident. Throws as MemorySaver::use does.
    [[nodiscard]] std::unique_ptr<UseRecord> use(const Tags& tags, const ResidentList& residents,
                                                 const UseOptions& options);
    [[nodiscard]] Reclaimed reclaim(std::size_t bytes, const ReclaimOptions& options);
    /// Pauses idle tags for an allocation or a resume. Returns whether that call may find room now. Throws what a
    /// failed pause or a hook throws.
    [[nodiscard]] bool make_room(const OutOfMemory& error, int device, const LackOfRoom& lack);

private:
    struct Reclaiming; // the state of one reclaim, or of one attempt to make room
    /// Pauses idle tags, if there are any. Returns false if no more can be paused.
    [[nodiscard]] bool evict_some(Reclaiming& now);
    /// The bytes that a device lacks.
    struct Shortage {
        int device;
        std::size_t bytes;
    };
    enum class Tried { done, too_few, refused };

    /// Resumes the paused tags of `in`, evicting idle tags as needed. Returns `too_few` if the idle tags do not free
    /// enough memory, and `refused` if a device repeatedly refused memory that it reports as free. `room` limits waits
    /// for users, their marks and captures; `rest` limits everything else.
    Tried try_resume(const Tags& in, const Deadline& room, const Deadline& rest, const Order& order);
    /// Runs the before-resume hooks for `in`, once.
    void run_before_resume_hooks(const Tags& in);
    /// Makes one attempt: pauses `out`, all claimed by this thread, resumes `in`, calls `let_go()`, and runs
    /// after-hooks. Returns the error of a device without room.
    std::optional<OutOfMemory> move(const ResidentList& out, const Tags& in, const Order& order,
                                    const Deadline& deadline, FunctionRef<void()> let_go);
    /// Releases unused memory, waiting for the device if necessary; if there is none, asks the owners of elastic
    /// memory, once. Returns whether anything was released.
    bool make_room_anew(const Tags& in);
    /// Returns the bytes that each device lacks for resuming these tags; empty if there is enough.
    [[nodiscard]] std::vector<Shortage> shortages(const Tags& in);
    /// Returns idle tags, in eviction order, that together cover all shortages, without those that turn out not to be
    /// needed. If they do not suffice: empty if `all_or_none`, else all that help. With `but`, also tags that are in
    /// use, but none of these.
    [[nodiscard]] ResidentList choose_victims(const std::vector<Shortage>& shortages, bool all_or_none,
                                              const ResidentList* but = nullptr);
    /// Returns tags, in use or idle, whose memory would cover what `in` lacks; nothing if that of all would not.
    [[nodiscard]] std::optional<ResidentList> others_in_the_way(const Tags& in, const ResidentList& residents);
    /// Runs the before-pause hooks of each tag whose hooks have not run yet. A tag whose hook throws is skipped from
    /// now on, and the result is false.
    [[nodiscard]] bool hooks_agree(const ResidentList& chosen);
    [[nodiscard]] OutOfMemory no_room(const Tags& in, const char* why);
    /// Records that the after-pause hooks of these tags are about to run. If a tag is resumed and must be evicted
    /// again, its before-hooks run again.
    void note_hooks_ran(const std::vector<std::string>& tags) noexcept;
    /// Runs the failed-pause hooks of tags whose before-hooks have run but which were not paused, and forgets that the
    /// before-hooks ran.
    void tell_unneeded() noexcept;

    SaverState& state_;
    Residents& residents_;
    ResidentList passed_by_;
    std::size_t at_most_ = ~std::size_t{0}; // tags that would release more in all stay
    ResidentList asked_;                    ///< tags whose before-hooks have run, and no after-pause hooks since
    bool resume_hooks_ran_ = false;
    bool elastic_asked_ = false;
    bool moving_ = false;                ///< an exception comes from a move: not from a hook, nor for lack of room
    Report done_;                        ///< of all moves
    std::vector<Shortage> mispredicted_; ///< memory that was reported free but refused
};

/// Returns the names of the tags.
[[nodiscard]] Tags tags_of(const ResidentList& residents);

} // namespace detail

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/saver/residency.ipp"
#endif
