// Brings tags for as long as they are used, and evicts what nobody uses: `use` and `reclaim`.
// Does not know how a tag is paused or resumed, nor who waits for whom.
#pragma once

#include "memsaver/core/order.hpp"
#include "memsaver/core/report.hpp"
#include "memsaver/core/tags.hpp"
#include "memsaver/saver/residents.hpp"
#include "memsaver/saver/saver_state.hpp"
#include "memsaver/saver/use_options.hpp"

#include <cstddef>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace memsaver::inline v0_2 {

namespace detail {

/// What one call of `use` or `reclaim` has to hand. Not thread safe.
class Residency {
public:
    explicit Residency(SaverState& state) : state_{state}, books_{state.tags_.residents()} {}
    Residency(const Residency&) = delete;
    Residency& operator=(const Residency&) = delete;
    ~Residency() { tell_unneeded(); }

    /// These tags, all of them here. Throws as MemorySaver::use says.
    [[nodiscard]] std::unique_ptr<UseRecord> use(const Tags& tags, const ResidentList& residents,
                                                 const UseOptions& options);
    [[nodiscard]] Reclaimed reclaim(std::size_t bytes, const ReclaimOptions& options);
    /// The same, for those who take memory: nothing of theirs goes, and the device's work is not waited for.
    void relieve(std::size_t bytes, int device, const ResidentList& takers);

    /// Exchanges the tags of `out`, all claimed by this thread, for those of `in`. No lock is held, and no hook runs.
    /// `at_last`: waits for the device rather than find no room. Where it throws, what is in `moved` has been done.
    struct Moved {
        Report out;
        Report in;
    };
    void make_way(const Tags& out, const Tags& in, const Order& order, const Deadline& deadline, bool at_last,
                  Moved& moved);

private:
    [[nodiscard]] Reclaimed give_back(std::size_t bytes, const ReclaimOptions& options, bool wait_for_device);
    /// What a device lacks.
    struct Shortage {
        int device;
        std::size_t bytes;
    };
    struct Brought {
        bool done;
        bool refused = false;               ///< by a device, time and again, though it said that it has room
        int device = 0;                     ///< that had no room
        std::optional<OutOfMemory> error{}; ///< what it said, where it was asked at last
    };

    /// A tag's memory on a device.
    struct Held {
        std::shared_ptr<Resident> resident;
        int device;
        std::size_t bytes;
    };

    /// Brings what is away of `in`, evicting what has to go. Not done and not refused: the idle tags do not make enough
    /// room. `at_last`: evicts nothing, and waits for the device, if that is what it takes.
    Brought bring(const Tags& in, const Deadline& deadline, const Order& order, bool at_last);
    /// Runs the before-hooks of what comes, once.
    void tell_coming(const Tags& in);
    /// One try of it: these go, then those come; then `let_go()`, and after-hooks. Answers what a device without room
    /// said.
    std::optional<OutOfMemory> move(const ResidentList& out, const Tags& in, const Order& order,
                                    const Deadline& deadline, bool at_last, FunctionRef<void()> let_go);
    /// What nobody holds goes, waiting for the device if that is what it takes; if there is none, elastic memory, whose
    /// owners are asked once. Whether anything did.
    bool make_room_anew(const Tags& in);
    /// What the devices lack for bringing these, or nothing.
    [[nodiscard]] std::vector<Shortage> shortages(const Tags& in);
    /// Idle tags, in their order, that make up for all shortages together; those that are not needed for it are left
    /// out. Empty if there are not enough.
    [[nodiscard]] ResidentList choose(const std::vector<Shortage>& shortages, bool all_or_none);
    /// Whether the memory of all evictable tags, in use or not, makes up for it.
    [[nodiscard]] bool others_could_make_room(const Tags& in, const ResidentList& residents);
    /// Runs the before-hooks of each that was not asked yet. Those whose throw are passed by from now on: then false.
    [[nodiscard]] bool hooks_agree(const ResidentList& chosen);
    [[nodiscard]] OutOfMemory no_room(const Tags& in, const char* why);
    /// Runs the after-hooks of what was done, all of them; keeps the first exception.
    template <class What>
    void tell(const HookList<What>& hooks, What& event, std::exception_ptr& first);
    /// What is mapped now, but for tags that were passed by; the rows of a tag side by side.
    [[nodiscard]] std::vector<Held> held_now();
    [[nodiscard]] static ResidentList each_once(const std::vector<Held>& held);

    /// These are told that they went. What comes back meanwhile and has to go again is asked again.
    void note_told(const std::vector<std::string>& tags) noexcept;
    /// Tells the tags whose before-hooks have run, and that this one did not take.
    void tell_unneeded() noexcept;

    SaverState& state_;
    Residents& books_;
    ResidentList passed_by_;
    std::vector<std::string> takers_; ///< whose elastic memory stays
    ResidentList asked_;              ///< whose before-hooks have run, and no hooks after a pause since
    bool resume_hooks_ran_ = false;
    bool elastic_asked_ = false;
    int refused_by_ = 0;
    std::vector<Shortage> mispredicted_; ///< what was free, and could not be had
};

/// Names of tags, for those who ask by name.
[[nodiscard]] Tags tags_of(const ResidentList& residents);

} // namespace detail

} // namespace memsaver::inline v0_2

#ifndef MEMSAVER_COMPILED
#include "memsaver/saver/residency.ipp"
#endif
