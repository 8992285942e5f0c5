// The data members of a SaverCore and the helpers of its operations. Not for public headers.
#pragma once

#include "memsaver/arena/exchange.hpp"
#include "memsaver/arena/run_steps.hpp"
#include "memsaver/fwd.hpp"
#include "memsaver/saver/hook_lists.hpp"
#include "memsaver/saver/open_captures.hpp"
#include "memsaver/saver/plain_memory.hpp"
#include "memsaver/saver/region_stacks.hpp"
#include "memsaver/saver/tag_table.hpp"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {

class ArrivalState;

/// A request to the owners of elastic memory, who are asked one after the other.
struct WantedRoom {
    int device;
    const std::vector<std::string>& tags; ///< tags that need the memory; owners of these tags are not asked
    std::size_t bytes;
    std::size_t got; ///< physical bytes that the device has regained
};

/// The data members of a SaverCore and the helpers of its operations.
class SaverState {
    friend class SaverCore;
    friend class Residency;

    SaverState(AnyDriver driver, SaverOptions options);

    /// Returns a sink that notes which threads run it.
    [[nodiscard]] EventSink watched(EventSink sink) const;

    // --- plain memory ---

    /// Returns what allocates the arena's blocks, or null if the arena does.
    [[nodiscard]] PlainMemory* plain_of(const ArenaCore& arena) noexcept {
        PlainMemory* const plain = plain_.load();
        return plain != nullptr && (!options_.enabled || &arena == outside_.load()) ? plain : nullptr;
    }
    /// As above, if it has a block that contains the pointer.
    [[nodiscard]] PlainMemory* plain_with(const ArenaCore& arena, const void* pointer) noexcept {
        PlainMemory* const plain = plain_of(arena);
        return plain != nullptr && plain->contains(arena, pointer) ? plain : nullptr;
    }
    [[nodiscard]] bool holds(ArenaCore& arena, const void* pointer, std::size_t bytes);
    /// Returns true for live bytes of plain memory, and false for memory with pages. Throws Misuse, beginning with
    /// `what`, for other bytes of an arena of plain memory.
    [[nodiscard]] bool always_there(const char* what, ArenaCore& arena, const void* pointer, std::size_t bytes);
    void use_plain(MakePlainMemory make);
    /// Returns the arena's row, with its plain blocks.
    [[nodiscard]] ArenaUsage usage_of(ArenaCore& arena);

    using Member = TagTable::Member;
    using Members = TagTable::Members;
    using Turns = std::vector<std::optional<Turn::Hold>>; ///< one per member; empty for a dropped member

    // --- making room ---

    /// A call that needs room, how long it waits for it, and what was tried.
    struct Tried : LackOfRoom {
        explicit Tried(const ArenaCore& allocating) : LackOfRoom{.arena = &allocating} {}
        Tried(const Tags* pausing, const Tags* resuming, const TimeLimit& room_within)
            : LackOfRoom{.out = pausing, .in = resuming}, within{room_within} {
            until = within.until();
        }
        RoomWithin within{TimeLimit{}};
        Relief relief{};
        std::uint64_t seen = 0; ///< `room_made_` before the last attempt
    };
    /// Calls `act()` again while it throws OutOfMemory and room may still be made.
    void with_room(Tried tried, FunctionRef<void()> act);
    /// Makes room without the help of the program: see Relief. Returns whether there may be room now.
    bool relieve(int device, Tried& tried);
    /// Makes room: also evicts, asks the program, or waits a while. Returns false, and says in the error who holds the
    /// memory, once there is no more to try.
    bool may_retry(OutOfMemory& error, Tried& tried);
    /// Releases unused memory of a device. Returns whether any memory was released since `seen` was read.
    bool make_room(int device, bool wait, std::uint64_t seen);
    /// As above; returns the bytes released.
    std::size_t release_unused(int device, bool wait);
    /// Asks the program to make room, after `asked` earlier requests; returns whether it did. `tags`: the tags that
    /// need the memory. Called with no lock or turn held.
    bool ask_for_room(const OutOfMemory& error, int device, const std::vector<std::string>& tags, unsigned asked,
                      std::int64_t within = 0);
    /// Pauses idle tags if the program wants that for allocations and resumes. Returns whether there may be room now.
    bool evict(const OutOfMemory& error, int device, const LackOfRoom& lack) {
        const Evictions* const how = options_.evict_for_allocations.how();
        return options_.enabled && how != nullptr && lack.asked < most_asked &&
               how->make_room(*this, error, device, lack);
    }
    static constexpr unsigned most_asked = 100; // stops a program that always says yes and never frees anything
    /// Returns those of these tags that are at least partly paused.
    [[nodiscard]] std::vector<std::string> away(const Tags& tags);

    /// Asks the owners of other tags' elastic memory to release some, and returns the bytes that the device regained;
    /// see WantedRoom::got. Throws what they throw. Called with no lock or turn held.
    std::size_t ask_elastic(int device, const std::vector<std::string>& tags, std::size_t bytes);
    static std::size_t ask_owners(SaverState& state, int device, const std::vector<std::string>& tags,
                                  std::size_t bytes);

    // --- operations ---

    /// Takes the turns of all members that are not null, in the order that all operations use. `join`: see
    /// ArenaCore::take_turn.
    Turns take_turns(const Members& members, const Deadline& deadline, const char* what, bool join = false);
    /// See ArenaCore::await_copies.
    static void await_copies(const Members& members, const Turns& turns, const Deadline& deadline);
    /// Begins a step with these options for each of the members `from` to `to` - 1 whose turn was taken.
    template <class Step, class... Options>
    static void begin_steps(FixedList<Step>& steps, const Members& members, Turns& turns, std::size_t from,
                            std::size_t to, const Options&... options) {
        for (std::size_t i = from; i < to; ++i) {
            if (turns[i]) steps.emplace_back(*members[i]->arena, std::move(*turns[i]), options...);
        }
    }
    /// Throws Misuse if this thread runs a hook for one of these tags: an operation on them would run it again, for
    /// ever.
    void refuse_in_hook(const char* what, const Tags& tags);
    /// Throws Misuse if this thread runs a hook, for which other threads may be waiting.
    void refuse_in_any_hook(const char* what, const Tags& tags);
    /// For a saver that is switched off, whose memory is never paused: tries again to give back what could not be.
    void release_leftovers(const Tags& tags);
    /// Calls `ask`, the owner of an elastic range, which it keeps, and adds what the device has gained.
    void ask_owner(ArenaCore& arena, std::shared_ptr<ElasticRange> range,
                   const std::function<std::size_t(std::size_t)>& ask, WantedRoom& wanted);
    /// Returns a device's memory; zeros if it cannot be queried.
    [[nodiscard]] DeviceMemory memory_of(int device);
    // Members are listed before hooks run, so that tags made meanwhile are left to the next operation.
    Report pause_now(Members members, const PauseOptions& options);
    void resume_async_now(ArrivalState& arrival, Members members, const ResumeAsyncOptions& options,
                          const std::vector<std::string>& told);
    /// Throws Misuse if a range is not inside live blocks of these members.
    void require_parts_of(const char* what, const Members& members, const std::vector<BytesAt>& ranges);
    Report exchange_now(Members out, Members in, const ExchangeOptions& options);
    Report resume_now(Members members, const ResumeOptions& options, const Deadline& deadline = {});
    /// Returns the driver that owns a stream or event, among those of the use's tags first, then among the saver's. For
    /// the default stream, returns all drivers of the tags. Empty if the saver is switched off.
    template <class Mark>
    std::vector<AnyDriver> owners_of(const UseRecord& use, const Mark& mark) {
        if (!options_.enabled) return {};
        const std::vector<AnyDriver> drivers = tags_.residents().drivers_of(use);
        if (mark == Mark{} || !tags_.several_devices()) return drivers;
        return {owner_among(drivers, tags_.drivers(), mark)};
    }
    /// Returns the current holders of memory, one row per tag and device. A tag of `wanted`, which a use names, is
    /// "wanted" rather than "idle".
    [[nodiscard]] std::vector<Holder> holders(const Tags& wanted = {});
    /// Attaches the holders to an error, and a line of text for an OutOfMemory, for a use of the tags `wanted`, and if
    /// residency is in play.
    void say_who_holds(Error& error, const Tags& wanted = {}) noexcept;
    /// Attaches the holders to an error, and who holds that device's memory to its text; unless a use failed
    /// (`wanted`), also what the program can do. `tags` need the memory; `asked`: how often room was made for them.
    void say_no_room(OutOfMemory& error, int device, const std::vector<std::string>& tags, unsigned asked,
                     const Tags& wanted = {}) noexcept;
    /// Returns the report of a pause, and warns of bytes that it discarded because nobody named a policy.
    Report warn_of_lost_bytes(Report report, const std::optional<AnyPolicy>& once);
    /// Called inside a catch handler: adds the tag's name to the exception and keeps it if it is the first.
    static void remember(std::exception_ptr& first, const Member& member);
    /// Returns the arenas whose policies keep bytes. Throws Misuse if a tag was named whose policy does not.
    Members keeping(const char* what, const Tags& tags);
    /// Calls `act` for the arenas of these members, without those that are dropped before or meanwhile. Errors name the
    /// tag.
    void for_each_left(const Members& members, FunctionRef<void(ArenaCore&)> act);
    /// Adjusts `order`, by which a block of this arena is freed, for open captures and for streams of other devices.
    /// Returns what the graph keeps that it belongs to, or null.
    std::shared_ptr<GraphKeeps> adjust_free_order(FreeOrder& order, const ArenaCore& arena);
    /// Returns when the pages of elastic memory released now may be unmapped.
    FreeOrder release_order(const ArenaCore& arena, const Order& order);
    /// Returns the devices that an order may name in addition to those of the tags concerned.
    std::vector<AnyDriver> others_for(const Order& order);
    /// Runs the hooks of a kind, each on a copy of the event: until one throws, or with `all` every one; then rethrows
    /// the first exception.
    void run_hooks(HookKind kind, PauseEvent& event, bool all);
    /// Runs all hooks; keeps the first exception in `first`.
    void run_after(HookKind kind, PauseEvent& event, std::exception_ptr& first) noexcept;
    /// Runs the hooks for a failed or unneeded pause whose before-hooks had started. Their exceptions are reported.
    void run_failed_pause_hooks(PauseEvent& event) noexcept;
    /// Runs `act()`, which runs the before-hooks and the pause; on failure calls `run_failed_pause_hooks`.
    template <class Act>
    void with_failed_pause_hooks(PauseEvent& event, Act&& act) {
        try {
            act();
        } catch (...) {
            run_failed_pause_hooks(event);
            throw;
        }
    }

    /// Reports the begin and end of an operation on these tags to the event sink.
    [[nodiscard]] Span span_of(const std::vector<std::string>& names, const char* what) const;
    /// Reports an event that concerns these tags.
    void tell_of(const std::vector<std::string>& names, EventKind kind, Bits text) const noexcept;
    static std::string listed(const std::vector<std::string>& names);

    std::shared_ptr<const ForkCheck> fork_ = std::make_shared<const ForkCheck>(); // checked before any lock is taken
    AnyDriver driver_;
    std::shared_ptr<Running> in_sink_ = std::make_shared<Running>(fork_); // shared with arenas' sinks
    SaverOptions options_;
    RegionStacks regions_;
    OpenCaptures captures_{fork_};
    Running running_{fork_};
    HookTable hooks_{fork_};
    std::atomic<decltype(&SaverState::ask_owners)> ask_owners_{nullptr}; // set once there are owners
    Turn room_turn_; // one thread releases memory at a time, because others cannot find what it holds
    std::atomic<std::uint64_t> room_made_{0};
    TagTable tags_{driver_, options_};
    std::mutex plain_mutex_; // guards `plain_memory_`
    PlainMemoryPtr plain_memory_;
    std::atomic<PlainMemory*> plain_{nullptr}; // the same
    std::atomic<const ArenaCore*> outside_{nullptr};

public:
    ~SaverState() = default;
};

} // namespace detail

} // namespace memsaver::inline v0_3
