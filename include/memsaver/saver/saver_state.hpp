// What is behind a SaverCore, for those who work on it.
#pragma once

#include "memsaver/arena/exchange.hpp"
#include "memsaver/arena/run_steps.hpp"
#include "memsaver/fwd.hpp"
#include "memsaver/saver/hook_lists.hpp"
#include "memsaver/saver/open_captures.hpp"
#include "memsaver/saver/region_stacks.hpp"
#include "memsaver/saver/tag_table.hpp"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace memsaver::inline v0_2 {

namespace detail {

class ArrivalState;

/// What the owners of elastic memory are asked for, one after the other.
struct WantedRoom {
    int device;
    const std::vector<std::string>& tags; ///< for which; their owners are not asked
    std::size_t bytes;
    std::size_t got; ///< physical memory that the device has back, or soon will have if nothing may be waited for
    bool may_wait;   ///< for the device, where pages wait for work that may still touch them
};

/// What a SaverCore has, and what its operations are made of.
class SaverState {
    friend class SaverCore;
    friend class Residency;

    SaverState(AnyDriver driver, SaverOptions options);

    using Member = TagTable::Member;
    using Members = TagTable::Members;
    using Turns = std::vector<std::optional<Turn::Hold>>; ///< one for each member; none for one that was dropped

    // --- room ---

    /// Answers what `act()` answers. Where that finds no room on the arena's device: tries again once memory that
    /// nobody uses was given back, once the device was waited for, and for as long as the program makes room.
    template <class Act>
    decltype(auto) with_room(const ArenaBase& arena, Act&& act) {
        struct Noted { // whatever comes of it
            TagTable& tags;
            const ArenaBase& arena;
            ~Noted() { tags.note_use(arena); }
        };
        const Noted noted{tags_, arena};
        Relief relief;
        for (unsigned asked = 0;;) {
            const std::uint64_t seen = room_made_.load();
            try {
                return act();
            } catch (OutOfMemory& error) {
                if (relief.again([&](bool wait) { return make_room(arena.device(), wait, {}, seen); },
                                 [&] { return wait_for_others(arena.device()); })) {
                    continue;
                }
                if (!ask_for_room(error, arena.device(), {arena.tag()}, asked++)) {
                    say_who_holds(error);
                    throw;
                }
                relief = {}; // what the program has freed may have to be waited for
            }
        }
    }
    /// Gives back memory that nobody uses on a device. `busy`: arenas whose turns the caller holds. Whether there was
    /// any since `seen` was read.
    bool make_room(int device, bool wait, const Members& busy, std::uint64_t seen);
    /// The same; the bytes that it gave back.
    std::size_t give_unused(int device, bool wait, const Members& busy, const ResidentList& spared = {});
    /// What was released on a device and goes once work has passed.
    std::size_t waiting_bytes(int device);
    /// What nobody uses of other savers and arenas on the same machine; the bytes that they gave back.
    std::size_t room_of_others(int device, bool wait);
    /// Waits for the operations that other threads have under way on a device: what they have in hand may be what is
    /// missing. Whether there were any. Called without any lock or turn.
    bool wait_for_others(int device);
    /// Whether the program has made room, `asked` times before. `tags`: whose memory it would be. Called without any
    /// lock or turn.
    bool ask_for_room(const OutOfMemory& error, int device, const std::vector<std::string>& tags, unsigned asked);
    /// Those of these tags of which something is away.
    [[nodiscard]] std::vector<std::string> away(const Tags& tags);

    /// Asks the owners of elastic memory of other tags, and answers what the device got back, see `got`. Throws what
    /// they throw. Called without any lock or turn.
    std::size_t ask_elastic(int device, const std::vector<std::string>& tags, std::size_t bytes, bool may_wait);

    /// Memory was taken for these tags: gives back what SaverOptions::pressure wants, one thread at a time; who comes
    /// meanwhile leaves it to that one. Called without any lock or turn.
    void keep_free(const ResidentList& taker) noexcept;
    void keep_free(const Tags& takers, const Report& report) noexcept;
    /// Whether this saver, on this thread, gives anything back for it.
    [[nodiscard]] bool under_pressure() noexcept;

    // --- operations ---

    /// The turns of all, taken in the order that all operations keep.
    /// `join`: see ArenaCore::take_turn.
    Turns take_turns(const Members& members, const Deadline& deadline, const char* what, bool join = false);
    Report pause_now(const Tags& tags, const PauseOptions& options);
    /// What finds no room for tags that come is tried again for as long as somebody makes some: `act(device)`, which
    /// sets the device that had none where it throws OutOfMemory.
    template <class Act>
    decltype(auto) with_patience(const Tags& in, const std::optional<std::chrono::nanoseconds>& room_within,
                                 Act&& act) {
        unsigned asked = 0;
        bool waited = false;
        for (RoomWithin patience{room_within};;) {
            int device = driver_.device();
            try {
                return act(device);
            } catch (OutOfMemory& error) {
                if (!std::exchange(waited, true) && wait_for_others(device)) continue;
                if (ask_for_room(error, device, away(in), asked++)) continue;
                if (patience.over()) {
                    say_who_holds(error);
                    throw;
                }
            }
            patience.sleep(); // others may make room: no turn is held
        }
    }
    void resume_async_now(ArrivalState& arrival, const Tags& tags, const ResumeAsyncOptions& options,
                          const std::vector<std::string>& told, int& refused_by);
    /// Throws Misuse for ranges that are not in live blocks of these.
    static void require_parts_of(const char* what, const Members& members, const std::vector<BytesAt>& ranges);
    /// `refused_by` and `may_wait` as for `resume_now`.
    Report exchange_now(const Tags& out, const Tags& in, const ExchangeOptions& options, int& refused_by,
                        bool may_wait = true);
    /// `refused_by`: the device that had no room, where it throws OutOfMemory. `may_wait`: for the device, rather than
    /// find no room.
    Report resume_now(const Tags& tags, const ResumeOptions& options, int& refused_by, bool may_wait = true,
                      const Deadline& deadline = {});
    /// The devices among those of a use's tags, or else of the saver's, whose a stream or an event is; of the default
    /// stream, all those of the tags. None where the saver is switched off.
    template <class Mark>
    std::vector<AnyDriver> owners_of(const UseRecord& use, const Mark& mark) {
        const std::vector<AnyDriver> drivers = tags_.residents().drivers_of(use);
        if (drivers.empty() || mark == Mark{} || !tags_.several_devices()) return drivers;
        const std::vector<AnyDriver> all = tags_.drivers();
        Status unknown;
        for (const std::vector<AnyDriver>* const some : {&drivers, &all}) {
            if (const AnyDriver* const owner = owner_among(*some, mark, unknown)) return {*owner};
        }
        check(unknown, "ask whose stream or event it is");
        return {drivers.front()};
    }
    /// Each tag once.
    [[nodiscard]] static ResidentList residents_of(const Members& members);
    /// Notes whose bytes a pause or a resume has dropped, where `once` or the tag's policy keeps none.
    void note_losses(const Members& members, const Report& report, const std::optional<AnyPolicy>& once,
                     const std::vector<std::uint64_t>& before) noexcept;
    /// How often memory of each has gone away, for `note_losses`.
    [[nodiscard]] static std::vector<std::uint64_t> pauses_of(const Members& members);
    /// Who holds memory now: a row for each tag and device.
    [[nodiscard]] std::vector<Holder> holders();
    /// Attaches that, and a line of it where residency is in play, as it is for a use of the tags `wanted`. Needs host
    /// memory, or does nothing.
    void say_who_holds(Error& error, const Tags& wanted = {}) noexcept;
    /// Counts what a report says of the arenas concerned.
    static void note(const Members& members, const Report& report) noexcept;
    void warn_of_lost_bytes(const Report& report, const PauseOptions& options);
    /// Inside a handler: keeps the exception, with the tag's name, if it is the first.
    static void remember(std::exception_ptr& first, const Member& member);
    /// The arenas whose policies keep bytes; Misuse for a tag that was named and whose policy does not.
    Members keeping(const char* what, const Tags& tags);
    /// What giving up a block of an arena so comes to now, captures and devices considered.
    void look_at(FreeOrder& order, const ArenaBase& arena);
    /// The same where the program names no order.
    FreeOrder order_now(const ArenaBase& arena);
    /// When elastic memory that is released now may go.
    FreeOrder release_order(const ArenaBase& arena, const Order& order);
    /// The devices that an order may name besides those of the tags concerned.
    std::vector<AnyDriver> others_for(const Order& order);
    template <class What>
    void run_hooks(const HookList<What>& hooks, What& event, bool all) {
        const HookThreads::Mark mark{hook_threads_};
        if (all) {
            hooks.run_all(event);
        } else {
            hooks.run_until_throw(event);
        }
    }

    /// Whether anybody is told of a pause.
    [[nodiscard]] bool pause_hooks() const noexcept {
        return !before_pause_.empty() || !after_pause_.empty() || !after_failed_pause_.empty();
    }
    /// Runs the hooks of a pause that came to nothing after hooks before it had begun to run. What they throw is told.
    void tell_failed(PauseEvent& event) noexcept;
    /// `act()`, which runs the hooks before a pause, and the pause.
    template <class Act>
    void or_tell_failed(PauseEvent& event, Act&& act) {
        try {
            act();
        } catch (...) {
            tell_failed(event);
            throw;
        }
    }

    /// The names, if somebody listens.
    [[nodiscard]] std::vector<std::string> names_for(const Tags& tags, bool hooks);
    /// An operation on these tags, for those who listen.
    [[nodiscard]] Span span_of(const std::vector<std::string>& names, const char* what) const;
    static std::string listed(const std::vector<std::string>& names);

    std::shared_ptr<const ForkMark> fork_ = std::make_shared<const ForkMark>(); // asked before any lock
    AnyDriver driver_;
    SaverOptions options_;
    RegionStacks regions_;
    OpenCaptures captures_{fork_};
    HookThreads hook_threads_{fork_};
    HookThreads asking_{fork_};         // threads that run on_no_room
    HookThreads asking_elastic_{fork_}; // and those that run an on_reclaim
    HookList<WantedRoom> elastic_{fork_};
    HookList<PauseEvent> before_pause_{fork_};
    HookList<PauseEvent> after_pause_{fork_};
    HookList<PauseEvent> after_failed_pause_{fork_};
    HookList<ResumeEvent> before_resume_{fork_};
    HookList<ResumeEvent> after_resume_{fork_};
    Turn room_turn_; // one thread looks for room at a time: what it holds nobody else finds
    std::atomic<std::uint64_t> room_made_{0};
    std::atomic<unsigned> looks_{0}; // for SaverOptions::pressure: not 0 while a thread is at it
    TagTable tags_;

public:
    ~SaverState() = default;
};

} // namespace detail

} // namespace memsaver::inline v0_2
