// The data members of a SaverCore and the helpers of its operations. Not for public headers.
#pragma once

#include "memsaver/arena/arena.hpp"
#include "memsaver/core/lists.hpp"
#include "memsaver/core/ranges.hpp"
#include "memsaver/core/vector.hpp"
#include "memsaver/fwd.hpp"
#include "memsaver/saver/hook_lists.hpp"
#include "memsaver/saver/open_captures.hpp"
#include "memsaver/saver/plain_memory.hpp"
#include "memsaver/saver/region_stacks.hpp"
#include "memsaver/saver/stream_mark.hpp"
#include "memsaver/saver/tag_table.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace memsaver::inline v0_3::detail {

/// A request to the owners of elastic memory, who are asked one after the other.
struct WantedRoom {
    int device;
    const std::vector<std::string>& tags; ///< tags that need the memory; owners of these tags are not asked
    std::size_t bytes;
    std::size_t got; ///< physical bytes that the device has regained
};

/// The data members of a SaverCore and the helpers of its operations.
class SaverState {
public:
    SaverState(AnyDriver driver, SaverOptions options) : driver_{std::move(driver)}, options_{std::move(options)} {
        require_enumerator("SaverOptions::new_tags", options_.new_tags, 2);
        options_.events = watched(std::move(options_.events));
        if (!options_.enabled) use_plain(options_.enabled.plain());
    }

    SaverState& operator=(SaverState&&) = delete;
    ~SaverState() {
        if (PlainMemory* const plain = plain_.load()) plain->destroy(plain);
    }

    /// Returns a sink that notes which threads run it.
    [[nodiscard]] EventSink watched(EventSink sink) const {
        if (!sink) return sink;
        return [threads = in_sink_, sink = std::move(sink)](const Event& event) {
            const Running::Entry mark{*threads, Running::Kind::sink};
            sink(event);
        };
    }

    // --- plain memory ---

    /// Returns what allocates the arena's blocks, or null if the arena does.
    [[nodiscard]] PlainMemory* plain_of(const ArenaCore& arena) noexcept {
        PlainMemory* const plain = plain_.load();
        return plain != nullptr && (!options_.enabled || arena.arena_serial == 0) ? plain : nullptr;
    }
    /// Returns whether `bytes` at `pointer` lie in live blocks of the arena.
    [[nodiscard]] bool holds(ArenaCore& arena, const void* pointer, std::size_t bytes) {
        PlainMemory* const plain = plain_of(arena);
        return (plain != nullptr && plain->holds(*plain, arena, pointer, bytes)) || arena.holds(pointer, bytes);
    }
    /// Returns what allocates the arena's blocks, if these are live bytes that are never paused, or null if the arena
    /// does, or is closed and will say so. Throws Misuse, beginning with `what`, for other bytes of an arena of plain
    /// memory.
    PlainMemory* always_there(const char* what, ArenaCore& arena, const void* pointer, std::size_t bytes) {
        PlainMemory* const plain = plain_of(arena);
        if (plain == nullptr || arena.closed()) return nullptr;
        if (bytes != 0 && holds(arena, pointer, bytes)) return plain;
        misuse({what, "(", in_hex(pointer), ", ", in_bytes(bytes), ") in tag ", in_quotes(arena.tag()),
                ": these are not bytes of a live block"});
    }
    void use_plain(MakePlainMemory make) {
        const std::lock_guard lock{plain_mutex_};
        if (plain_ == nullptr) plain_ = make(tags_.directory());
    }
    /// Returns the arena's row, with its plain blocks.
    [[nodiscard]] ArenaUsage usage_of(ArenaCore& arena) {
        ArenaUsage row = arena.usage();
        if (PlainMemory* const plain = plain_of(arena)) plain->fill(*plain, arena, row);
        return row;
    }

    using Member = TagTable::Member;
    using Members = TagTable::Members;
    using Turns = Vector<Turn::Hold>; ///< one per member; null for a dropped member

    // --- making room ---

    /// A call that needs room, and what was tried. With room_within, it sleeps between attempts until that is over.
    struct Tried : LackOfRoom {
        Tried(ArenaCore& allocating) : LackOfRoom{.arena = &allocating} {}
        Tried(const Tags* pausing, const Tags* resuming, const TimeLimit& room_within)
            : LackOfRoom{.out = pausing, .in = resuming, .until = deadline_after(room_within)},
              sleeps{room_within.has_value()} {}

        /// Returns the time that is left in nanoseconds; 0 if it does not sleep, negative without a limit.
        [[nodiscard]] std::int64_t left() const noexcept {
            if (!sleeps) return 0;
            if (!until) return -1;
            return std::max<std::int64_t>((*until - std::chrono::steady_clock::now()).count(), 0);
        }
        /// Sleeps, longer each time. Returns false if it does not, or once the time is over.
        bool sleep() {
            if (left() == 0) return false;
            const auto next = std::chrono::steady_clock::now() + std::exchange(pause, std::min(2 * pause, longest));
            std::this_thread::sleep_until(*earlier(until, next));
            return true;
        }

        static constexpr std::chrono::microseconds longest{20'000};
        bool sleeps = false;
        bool of_use = false; ///< of a use, which evicts by itself
        std::chrono::microseconds pause{200};
        int stage = 0;               ///< of `relieve`
        bool awaited_copies = false; ///< since others made room: their copies may give back more
        std::uint64_t seen = 0;      ///< `room_made_` before the last attempt
        ArenaCore::Reclaims own{};   ///< of the allocating arena's unused memory
    };
    /// Calls `act()`, which takes memory, again while it fails and room may still be made. Called with no lock held.
    void with_room(Tried tried, FunctionRef<void()> act) {
        for (;;) {
            tried.seen = room_made_.load();
            if (tried.arena != nullptr) tried.arena->note_attempt(tried.own);
            try {
                return act();
            } catch (Error& error) {
                if (!may_retry(error, tried)) throw;
            }
        }
    }
    /// As above, for an operation of many tags, which may have done some of them when it throws. Returns the report of
    /// all tries; an exception carries that too.
    Report with_room_for_all(const Tried& tried, FunctionRef<Report()> act) {
        Report earlier; // of tries that failed later for lack of room
        Report report;
        try {
            with_room(tried, [&] {
                for (TagReport& row : earlier.tags) row.held_bytes = 0; // this try reports what is held now
                earlier.held_bytes = 0;
                try {
                    translated([&] { report = act(); });
                } catch (const Error& error) {
                    earlier.add(error.report());
                    throw;
                }
            });
        } catch (Error& error) { // including exceptions of on_reclaim
            if (!earlier.tags.empty()) error.attach(std::move(earlier));
            throw;
        }
        report.add(earlier);
        return report;
    }
    /// Makes room without the help of the program: releases unused memory; then waits for the device, and releases what
    /// is unused now; then waits for other threads' copies, once. Called with no lock or turn held. Returns whether
    /// there may be room now.
    bool relieve(int device, Tried& tried) {
        while (tried.stage < 2) {
            if (make_room(device, tried.stage++ == 1, tried.seen)) return true;
        }
        tried.stage = 0; // what is freed from here on may have to be waited for
        if (std::exchange(tried.awaited_copies, true)) return false;
        bool any = false; // operations that have only their own copies left may release the missing memory
        for (const auto& member : tags_.members(Tags::all())) {
            if (member->driver.device() != device) continue;
            any = member->arena->wait_for_copies(tried.until) || any;
        }
        return any || make_room(device, false, tried.seen); // of one that ended just before
    }
    /// Makes room: in the allocating arena; then with `relieve`; then evicts, asks the program, or waits a while.
    /// Returns false, and says in an OutOfMemory who holds the memory, once there is no more to try.
    bool may_retry(Error& failed, Tried& tried) {
        if (tried.arena != nullptr && tried.arena->reclaim(failed.status(), tried.own)) return true;
        auto* const lacking = dynamic_cast<OutOfMemory*>(&failed);
        if (lacking == nullptr) return false;
        OutOfMemory& error = *lacking;
        if (error.device() < 0)
            error.attach_device((tried.arena != nullptr ? tried.arena->driver() : driver_).device());
        const int device = error.device();
        if (relieve(device, tried)) return true;
        const std::vector<std::string> tags =
            tried.arena != nullptr ? std::vector<std::string>{tried.arena->tag()} : away(*tried.in);
        const bool evicted = !tried.of_use && evict(error, device, tried);
        if (evicted || ask_for_room(error, device, tags, tried.asked, tried.left())) {
            tried.asked += 1;
            tried.awaited_copies = false;
            return true;
        }
        if (tried.sleep()) return true; // no turn is held, so other threads can make room
        say_no_room(error, device, tags, tried.asked, tried.of_use ? *tried.in : Tags{});
        return false;
    }
    /// Releases unused memory of a device. Returns whether any memory was released since `seen` was read.
    bool make_room(int device, bool wait, std::uint64_t seen) {
        const std::size_t released = release_unused(device, wait);
        if (released == 0) return room_made_.load() != seen;
        room_made_ += 1;
        tell(options_.events, EventKind::retried, "", device,
             {"out of memory: released ", in_bytes(released), " of unused memory, retrying"});
        return true;
    }
    /// As above; returns the bytes released.
    std::size_t release_unused(int device, bool wait) {
        Members members = tags_.members(Tags::all(), true);
        erase_in(members, [&](const auto& member) { return member->driver.device() != device; });
        if (wait) {
            for (const auto& member : members) member->arena->wait_for_frees();
        }
        const auto turn = room_turn_.take();
        std::size_t released = wait ? tags_.retry_ends(device) : 0;
        for (const auto& member : members) released += member->arena->release_unused(wait);
        return released;
    }
    /// Asks the program to make room, after `asked` earlier requests; returns whether it did. `tags`: the tags that
    /// need the memory. Called with no lock or turn held.
    bool ask_for_room(const OutOfMemory& error, int device, const std::vector<std::string>& tags, unsigned asked,
                      std::int64_t within = 0) {
        const std::string tag = tags.size() == 1 ? tags.front() : std::string{};
        std::size_t margin = tags.empty() ? tags_.margin_of(tag) : 0;
        for (const std::string& each : tags) margin = std::max(margin, tags_.margin_of(each));
        const std::size_t needed = error.needed_bytes();
        const std::size_t wanted = needed + std::min(margin, ~std::size_t{0} - needed);
        const std::size_t missing = std::max<std::size_t>(wanted - std::min(error.free_bytes(), wanted), 1);
        if (asked < most_asked && ask_elastic(device, tags, missing) != 0) return true;
        for (const AnyDriver& driver : tags_.drivers()) { // whoever else holds memory of the device
            if (driver.device() == device && asked < most_asked && driver.ask_for_room(wanted, within).ok())
                return true;
        }
        if (!options_.on_no_room || asked >= most_asked || running_.here(Running::Kind::on_no_room)) return false;
        const Running::Entry mark{running_, Running::Kind::on_no_room};
        return options_.on_no_room(NoRoom{error.needed_bytes(), device, error.free_bytes(), tag, missing});
    }
    /// Pauses idle tags if the program wants that for allocations and resumes. Returns whether there may be room now.
    bool evict(const OutOfMemory& error, int device, const LackOfRoom& lack) {
        const Evictions* const how = options_.evict_for_allocations.how();
        return options_.enabled && how != nullptr && lack.asked < most_asked &&
               how->make_room(*this, error, device, lack);
    }
    static constexpr unsigned most_asked = 100; // stops a program that always says yes and never frees anything
    /// Returns those of these tags that are at least partly paused.
    [[nodiscard]] std::vector<std::string> away(const Tags& tags) {
        std::vector<std::string> names;
        for (const auto& member : tags_.members(tags)) {
            if (member->arena->all_resident()) continue;
            if (!is_in(names, member->tag)) names.push_back(member->tag);
        }
        return names;
    }

    /// Asks the owners of other tags' elastic memory to release some, and returns the bytes that the device regained;
    /// see WantedRoom::got. Throws what they throw. Called with no lock or turn held.
    std::size_t ask_elastic(int device, const std::vector<std::string>& tags, std::size_t bytes) {
        const auto ask = ask_owners_.load(); // linked by the first owner
        return ask == nullptr ? 0 : ask(*this, device, tags, bytes);
    }
    static std::size_t ask_owners(SaverState& state, int device, const std::vector<std::string>& tags,
                                  std::size_t bytes) {
        if (state.hooks_.empty(HookKind::on_reclaim) || state.running_.here(Running::Kind::on_reclaim)) return 0;
        const Running::Entry mark{state.running_, Running::Kind::on_reclaim};
        WantedRoom wanted{device, tags, bytes, 0};
        state.hooks_.each(HookKind::on_reclaim,
                          [&](void* function) { (*static_cast<std::function<void(WantedRoom&)>*>(function))(wanted); });
        return wanted.got;
    }

    // --- operations ---

    /// Takes the turns of all members that are not null, in the order that all operations use. `join`: see
    /// ArenaCore::take_turn.
    Turns take_turns(const Members& members, const Deadline& deadline, const char* what, bool join = false) {
        Vector<std::size_t> order;
        for (std::size_t i = 0; i < members.size(); ++i) {
            if (members[i] != nullptr) order.push_back(i);
        }
        sort_by(order, [&](std::size_t i) { return members[i]->serial; });
        Turns turns(members.size());
        for (const std::size_t i : order) {
            try {
                turns[i] = members[i]->arena->take_turn(deadline, what, join);
            } catch (Error& error) {
                const bool dropped = members[i]->arena->dropped.load(); // in the meantime: nothing to do
                if (dropped && dynamic_cast<Misuse*>(&error) != nullptr) continue;
                name_tag(error, members[i]->tag);
                throw;
            }
        }
        return turns;
    }
    /// See ArenaCore::await_copies.
    static void await_copies(const Members& members, const Turns& turns, const Deadline& deadline) {
        for (std::size_t i = 0; i < members.size(); ++i) {
            if (turns[i]) naming(members[i]->tag, [&] { members[i]->arena->await_copies(deadline); });
        }
    }
    /// Begins a step with these options for each of the members `from` to `to` - 1 whose turn was taken.
    template <class Step, class... Options>
    static void begin_steps(Vector<Step>& steps, const Members& members, Turns& turns, std::size_t from, std::size_t to,
                            const Options&... options) {
        steps.reserve(to - from);
        for (std::size_t i = from; i < to; ++i) {
            if (turns[i]) steps.emplace_back(*members[i]->arena, std::move(turns[i]), options...);
        }
    }
    /// Throws Misuse if this thread runs a hook for one of these tags: an operation on them would run it again, for
    /// ever.
    void refuse_in_hook(const char* what, const Tags& tags) {
        const std::vector<std::string> names = tags_.names(tags);
        if (!running_.here(Running::Kind::hook, &names)) return;
        misuse({what, " of ", quoted_tags(tags), " inside a hook that runs for it is not allowed"});
    }
    /// Throws Misuse if this thread runs a hook, for which other threads may be waiting.
    void refuse_in_any_hook(const char* what, const Tags& tags) {
        if (running_.here(Running::Kind::hook))
            misuse({what, " of ", quoted_tags(tags), " inside a hook is not allowed"});
    }
    /// For a saver that is switched off, whose memory is never paused: tries again to give back what could not be.
    void release_leftovers(const Tags& tags) {
        // Only elastic ranges and workspaces have pages.
        for (const auto& member : tags_.members(tags, true)) {
            member->arena->wait_for_frees();
            (void)member->arena->release_unused(true);
        }
    }
    /// Adds an owner of an elastic range, to be asked for room until the result ends.
    Hook add_owner(const std::shared_ptr<const Arena>& arena, ArenaCore& base,
                   const std::shared_ptr<ElasticRange>& range, const std::function<std::size_t(std::size_t)>& ask) {
        ask_owners_.store(&SaverState::ask_owners);
        const auto asked = [this, owner = std::weak_ptr{arena}, weak = std::weak_ptr{range}, &base,
                            ask](WantedRoom& wanted) {
            const std::shared_ptr<const Arena> kept = owner.lock();
            std::shared_ptr<ElasticRange> held = weak.lock();
            if (held == nullptr || base.closed()) return;
            if (wanted.device != base.device() || wanted.got >= wanted.bytes || is_in(wanted.tags, base.tag())) return;
            ask_owner(base, std::move(held), ask, wanted);
        };
        return hooks_.add(HookKind::on_reclaim, new_shared<std::function<void(WantedRoom&)>>(asked));
    }
    /// Calls `ask`, the owner of an elastic range, which it keeps, and adds what the device has gained.
    void ask_owner(ArenaCore& arena, std::shared_ptr<ElasticRange> range,
                   const std::function<std::size_t(std::size_t)>& ask, WantedRoom& wanted) {
        const std::size_t before = range->physical_bytes();
        const std::size_t free_before = memory_of(wanted.device).free_bytes;
        std::size_t released = 0;
        try {
            released = ask(wanted.bytes - wanted.got);
            if (released == 0) return;
        } catch (const Misuse&) {
            if (!arena.dropped.load()) throw; // else dropped during the call, which the owner could not know
        }
        if (range.use_count() == 1) { // its owner has destroyed it
            range.reset();
            wanted.got += release_unused(arena.device(), true);
            return;
        }
        range->collect();
        std::size_t gained = before - std::min(before, range->physical_bytes());
        if (free_before != 0) { // it may also have freed memory elsewhere: what the device has gained counts
            const std::size_t free = memory_of(wanted.device).free_bytes;
            gained = std::max(gained, std::min(released, free - std::min(free, free_before)));
        }
        wanted.got += gained;
    }
    /// Returns a device's memory; zeros if it cannot be queried.
    [[nodiscard]] DeviceMemory memory_of(int device) {
        DeviceMemory memory;
        for (const AnyDriver& driver : tags_.drivers()) {
            if (driver.device() == device && !driver.memory(memory).ok()) memory = {};
        }
        return memory;
    }
    // Members are listed before hooks run, so that tags made meanwhile are left to the next operation. `deadline`
    // replaces the timeout of the options.
    Report pause_now(Members members, const PauseOptions& options, const Deadline& deadline) {
        erase_in(members, [](const auto& member) { return member->arena->idle_for_pause(); });
        const Residents::Claim unused{tags_.residents(), TagTable::residents_of(members), deadline, "pause"};
        const OpenCaptures::KeepOut no_captures{captures_, "pause"}; // after the claim: users of a tag may capture
        Turns turns = take_turns(members, deadline, "pause");
        if (options.order.kind() != Order::Kind::after) await_copies(members, turns, deadline);
        Vector<PauseStep> steps;
        begin_steps(steps, members, turns, 0, members.size(), options.bytes);
        return warn_of_lost_bytes(run_release(steps, options.order, deadline, others_for(options.order)),
                                  options.bytes);
    }
    Report exchange_now(Members out, Members in, const ExchangeOptions& options, const Deadline& deadline) {
        Members members = std::move(out);
        erase_in(members, [](const auto& member) { return member->arena->idle_for_pause(); });
        const Residents::Claim unused{tags_.residents(), TagTable::residents_of(members), deadline, "exchange"};
        const OpenCaptures::KeepOut no_captures{captures_, "exchange"}; // after the claim: users of a tag may capture
        const std::size_t going = members.size();
        erase_in(in, [](const auto& member) { return member->arena->nothing_paused(); });
        members.append(in.begin(), in.end());
        Turns turns = take_turns(members, deadline, "exchange");
        if (options.order.kind() != Order::Kind::after) await_copies(members, turns, deadline);
        Vector<PauseStep> pauses;
        Vector<ResumeStep> resumes; // declared after `pauses`, so that it is destroyed first: it maps pages of theirs
        begin_steps(pauses, members, turns, 0, going, options.bytes_out);
        begin_steps(resumes, members, turns, going, members.size(), options.bytes_in);
        return warn_of_lost_bytes(run_exchange(pauses, resumes, options.order, deadline, others_for(options.order)),
                                  options.bytes_out);
    }
    Report resume_now(Members members, const ResumeOptions& options, const Deadline& deadline = {}) {
        erase_in(members, [](const auto& member) { return member->arena->nothing_paused(); });
        Turns turns = take_turns(members, deadline, "resume");
        Vector<ResumeStep> steps;
        begin_steps(steps, members, turns, 0, members.size(), options.bytes);
        return run_resume(steps);
    }
    /// Returns the driver that owns a stream or event, among those of the use's tags first, then among the saver's. For
    /// the default stream, returns all drivers of the tags. Empty if the saver is switched off.
    template <class Mark>
    Vector<AnyDriver> owners_of(const UseRecord& use, const Mark& mark) {
        if (!options_.enabled) return {};
        Vector<AnyDriver> drivers = tags_.residents().drivers_of(use);
        if (drivers.empty() || mark == Mark{} || !tags_.several_devices()) return drivers;
        return {owner_among(drivers, tags_.drivers(), mark)};
    }
    /// Returns the current holders of memory, one row per tag and device. A tag of `wanted`, which a use names, is
    /// "wanted" rather than "idle".
    [[nodiscard]] std::vector<Holder> holders(const Tags& wanted = {}) {
        std::vector<Holder> rows;
        for (const auto& member : tags_.members(Tags::all())) {
            const std::size_t bytes =
                options_.enabled ? member->arena->mapped_bytes() : usage_of(*member->arena).mapped_bytes;
            if (bytes == 0) continue;
            Holder& row = rows.emplace_back(tags_.residents().holder_of(*member->resident));
            row.device = member->driver.device();
            row.bytes = bytes;
            if (row.state == "idle" && is_in(wanted.names(), row.tag)) row.state = "wanted";
        }
        return rows;
    }
    /// Attaches the holders to an error, and a line of text for an OutOfMemory, for a use of the tags `wanted`, and if
    /// residency is in play.
    void say_who_holds(Error& error, const Tags& wanted = {}) noexcept {
        try {
            std::vector<Holder> rows = holders(wanted);
            const bool say = tags_.residents().in_play() || !wanted.names().empty() ||
                             dynamic_cast<const OutOfMemory*>(&error) != nullptr;
            const std::string line = say ? line_of(rows) : std::string{};
            error.attach(std::move(rows));
            if (!line.empty()) error.append("; " + line);
        } catch (const std::bad_alloc&) { // then the error has no holders
        }
    }
    /// Attaches the holders to an error, and who holds that device's memory to its text; unless a use failed
    /// (`wanted`), also what the program can do. `tags` need the memory; `asked`: how often room was made for them.
    void say_no_room(OutOfMemory& error, int device, const std::vector<std::string>& tags, unsigned asked,
                     const Tags& wanted = {}) noexcept {
        const Evictions* const how = options_.evict_for_allocations.how();
        try {
            std::vector<Holder> rows = holders(wanted);
            std::vector<Holder> there;
            std::size_t mapped = 0;
            bool could_pause = false;
            for (const Holder& row : rows) {
                if (row.device != device) continue;
                there.push_back(Holder{row}); // the same function as in holders()
                if (!tags_.residents().in_play() && wanted.names().empty() && how == nullptr)
                    there.back().state.clear();
                mapped += row.bytes;
                if (!options_.enabled) continue; // plain memory is never paused
                could_pause = could_pause || !is_in(tags, row.tag);
            }
            DeviceMemory memory;
            std::string others;
            for (const AnyDriver& driver : tags_.drivers()) {
                if (driver.device() != device || !driver.memory(memory).ok()) continue;
                others = driver.holders();
                break;
            }
            const std::size_t used = memory.total_bytes - std::min(memory.free_bytes, memory.total_bytes);
            std::string text = line_of(there, used - std::min(mapped, used));
            if (!text.empty()) text.insert(0, "; ");
            if (!others.empty()) text += "; " + others;
            if (asked >= most_asked) {
                text += text_of(
                    {"; room was made ", in_digits(asked), " times, the most for one call, and did not suffice"});
            } else if (could_pause && wanted.names().empty()) {
                text += how != nullptr ? how->advice
                                       : "; allocations and resumes pause no other tag by themselves, only uses do: "
                                         "pause one, call reclaim, set evict_for_allocations, or ";
                text += options_.on_no_room ? "free memory in on_no_room" : "set on_no_room";
            }
            error.attach(std::move(rows));
            error.append(text);
        } catch (const std::bad_alloc&) { // then the error has no holders
        }
    }
    /// Returns the report of a pause, and warns of bytes that it discarded because nobody named a policy.
    Report warn_of_lost_bytes(Report report, const std::optional<AnyPolicy>& once) {
        if (!options_.events || once || options_.default_policy) return report;
        for (const TagReport& row : report.tags) {
            if (row.released_bytes == 0 || !tags_.policy_unsaid(row.tag)) continue;
            tell(options_.events, EventKind::warned, row.tag, row.device,
                 {"the bytes of tag ", in_quotes(row.tag),
                  " are discarded, because no policy was named: name one, such as Discard{} or HostBackup{}, when the "
                  "tag "
                  "is made, or set SaverOptions::default_policy"});
        }
        return report;
    }
    /// Called inside a catch handler: adds the tag's name to the exception and keeps it if it is the first.
    static void remember(std::exception_ptr& first, const Member& member) {
        try {
            throw;
        } catch (Error& error) {
            name_tag(error, member.tag);
        } catch (...) { // the host's bad_alloc, which the boundary translates
        }
        if (!first) first = std::current_exception();
    }
    /// Returns the arenas whose policies keep bytes. Throws Misuse if a tag was named whose policy does not.
    Members keeping(const char* what, const Tags& tags) {
        tags_.require(what, tags);
        Members members = tags_.members(tags);
        if (tags.kind() == Tags::Kind::named) {
            for (const auto& member : members) {
                if (member->policy.keeps_bytes()) continue;
                misuse_of(member->tag, {what, ": tag ", in_quotes(member->tag), " has the policy ",
                                        in_quotes(member->policy.name()), ", which keeps no bytes"});
            }
        }
        erase_in(members, [](const auto& member) { return !member->policy.keeps_bytes(); });
        return members;
    }
    /// Calls `act` for the arenas of these members, without those that are dropped before or meanwhile. Errors name the
    /// tag.
    void for_each_left(const Members& members, FunctionRef<void(ArenaCore&)> act) {
        for (const auto& member : members) {
            if (!options_.enabled || member->arena->closed()) continue; // a drop in progress may yet fail
            try {
                act(*member->arena);
            } catch (Error& error) {
                if (dynamic_cast<Misuse*>(&error) != nullptr && member->arena->dropped.load()) continue;
                name_tag(error, member->tag);
                throw;
            }
        }
    }
    /// Adjusts `order`, by which a block of this arena is freed, for open captures and for streams of other devices.
    /// Returns what the graph keeps that it belongs to, or null.
    std::shared_ptr<GraphKeeps> adjust_free_order(FreeOrder& order, const ArenaCore& arena) {
        std::shared_ptr<GraphKeeps> graph = captures_.adjust_free_order(order);
        if (order.kind != FreeOrder::Kind::stream || !tags_.several_devices() || arena.owns_stream(order.stream))
            return graph;
        misuse({"deallocate in tag ", in_quotes(arena.tag()), " after a stream that is not of device ",
                in_digits(arena.device()), ": record an event in it, make a stream of device ",
                in_digits(arena.device()), " wait for that event, and free after this stream"});
    }
    /// Frees a block of the arena.
    void free(ArenaCore& arena, void* pointer, FreeOrder order) {
        const auto graph = adjust_free_order(order, arena);
        PlainMemory* const plain = arena.contains(pointer) ? nullptr : plain_of(arena);
        plain != nullptr ? plain->deallocate(*plain, arena, pointer, order, graph)
                         : arena.deallocate(pointer, order, graph);
    }
    /// Returns when the pages of elastic memory released now may be unmapped.
    FreeOrder release_order(const ArenaCore& arena, const Order& order) {
        if (captures_.here()) {
            misuse({"release of elastic memory of tag ", in_quotes(arena.tag()),
                    " inside a capture: replays may touch it; release it after the graph is destroyed"});
        }
        if (order.kind() == Order::Kind::idle) return {FreeOrder::Kind::idle};
        if (order.kind() == Order::Kind::device) return {};
        const Vector<AnyDriver> drivers = tags_.drivers();
        const auto whose = [&](const auto& mark) -> const AnyDriver& {
            for (const AnyDriver& driver : drivers) { // the default stream is that of the range's own device
                if (driver.device() == arena.device() &&
                    (mark == std::decay_t<decltype(mark)>{} || drivers.size() == 1))
                    return driver;
            }
            return owner_among(drivers, {}, mark);
        };
        Vector<std::shared_ptr<const WorkMark>> marks;
        for (const StreamRef stream : order.streams()) {
            const AnyDriver& driver = whose(stream);
            if (being_captured(driver, stream))
                misuse({"after(stream): the stream is being captured, so its work cannot be waited for"});
            marks.push_back(new_shared<StreamMark>(driver, stream));
        }
        for (const EventRef event : order.events()) marks.push_back(new_shared<StreamMark>(whose(event), event));
        return {FreeOrder::Kind::device, {}, new_shared<AllMarks>(std::move(marks))};
    }
    /// Returns the devices that an order may name in addition to those of the tags concerned.
    Vector<AnyDriver> others_for(const Order& order) {
        const bool named = order.kind() == Order::Kind::after && tags_.several_devices();
        return named ? tags_.drivers() : Vector<AnyDriver>{};
    }
    /// Runs the hooks of a kind, each on a copy of the event: until one throws, or with `all` every one; then rethrows
    /// the first exception.
    void run_hooks(HookKind kind, PauseEvent& event, bool all) {
        const Running::Entry mark{running_, Running::Kind::hook, &event.tags};
        // What a hook does to its event, except for rows that it adds, concerns nobody else. Without host memory for a
        // copy, it sees the original.
        const auto run = [&](void* function) {
            std::optional<PauseEvent> copy;
            try {
                copy.emplace(event);
            } catch (const std::bad_alloc&) {
            }
            (*static_cast<std::function<void(PauseEvent&)>*>(function))(copy ? *copy : event);
            if (!copy) return;
            try {
                for (std::size_t i = event.report.tags.size(); i < copy->report.tags.size(); ++i)
                    event.report.add(std::move(copy->report.tags[i]));
            } catch (const std::bad_alloc&) { // these rows are missing
            }
        };
        hooks_.each(kind, run, all);
    }
    /// Runs all hooks; keeps the first exception in `first`.
    void run_after(HookKind kind, PauseEvent& event, std::exception_ptr& first) noexcept {
        try {
            run_hooks(kind, event, true);
        } catch (...) {
            if (!first) first = std::current_exception();
        }
    }
    /// Throws the first exception of the hooks that ran last, if any, with the report of what was done before them.
    static void rethrow_done(const std::exception_ptr& first, Report& done) {
        if (!first) return;
        try {
            translated([&] { std::rethrow_exception(first); });
        } catch (Error& error) {
            if (error.report().tags.empty()) error.attach(std::move(done));
            throw;
        }
    }
    /// Runs all hooks, an operation's last.
    void run_last_hooks(HookKind kind, PauseEvent& event) {
        std::exception_ptr first;
        run_after(kind, event, first);
        rethrow_done(first, event.report);
    }
    /// Runs the hooks for a failed or unneeded pause whose before-hooks had started. Their exceptions are reported.
    [[gnu::cold]] void run_failed_pause_hooks(PauseEvent& event) noexcept {
        if (hooks_.empty(HookKind::after_failed_pause)) return;
        const auto ignored = [&](const char* text) { tell_of(event.tags, EventKind::ignored, {text}); };
        try {
            run_hooks(HookKind::after_failed_pause, event, true);
        } catch (const std::exception& error) {
            ignored(error.what());
        } catch (...) {
            ignored("an after_failed_pause hook threw an object that is not a std::exception");
        }
    }
    /// Returns the report of `act()`, which pauses the tags of `going` and resumes those of `coming`, with the hooks of
    /// both and what these add to the report. One of the events may be null; the report is that of the last one.
    /// Not inlined into each of the three operations: it has a kilobyte.
    [[gnu::noinline]] Report& with_hooks(PauseEvent* going, ResumeEvent* coming, FunctionRef<Report()> act) {
        PauseEvent& one = going != nullptr ? *going : *coming;
        PauseEvent& last = coming != nullptr ? *coming : *going;
        try {
            if (going != nullptr) run_hooks(HookKind::before_pause, *going, false);
            if (coming != nullptr) run_hooks(HookKind::before_resume, *coming, false);
            one.report = act();
        } catch (...) {
            if (going != nullptr) run_failed_pause_hooks(*going);
            throw;
        }
        std::exception_ptr first; // all hooks run
        if (going != nullptr) run_after(HookKind::after_pause, *going, first);
        if (&last != &one) last.report = std::move(one.report); // moved: a copy would need host memory
        if (coming != nullptr) run_after(HookKind::after_resume, *coming, first);
        rethrow_done(first, last.report);
        return last.report;
    }

    /// Reports the begin and end of an operation on these tags to the event sink.
    [[nodiscard]] Span span_of(const std::vector<std::string>& names, const char* what) const {
        return {options_.events, options_.events ? listed(names) : std::string{}, driver_.device(), what};
    }
    /// Reports an event that concerns these tags.
    void tell_of(const std::vector<std::string>& names, EventKind kind, Bits text) const noexcept {
        if (!options_.events) return;
        try {
            tell(options_.events, kind, listed(names), driver_.device(), text);
        } catch (const std::bad_alloc&) { // as an exception of the sink
        }
    }
    static std::string listed(const std::vector<std::string>& names) {
        std::string all;
        for (const std::string& name : names) all.append(all.empty() ? "" : ", ").append(name);
        return all;
    }

    std::shared_ptr<const ForkCheck> fork_ = new_shared<const ForkCheck>(); // checked before any lock is taken
    AnyDriver driver_;
    std::shared_ptr<Running> in_sink_ = new_shared<Running>(fork_); // shared with arenas' sinks
    SaverOptions options_;
    RegionStacks regions_;
    OpenCaptures captures_{fork_};
    Running running_{fork_};
    HookTable hooks_{fork_};
    std::atomic<decltype(&SaverState::ask_owners)> ask_owners_{nullptr}; // set once there are owners
    Turn room_turn_; // one thread releases memory at a time, because others cannot find what it holds
    std::atomic<std::uint64_t> room_made_{0};
    TagTable tags_{driver_, options_};
    std::mutex plain_mutex_; // for the first use
    std::atomic<PlainMemory*> plain_{nullptr};
};

} // namespace memsaver::inline v0_3::detail
