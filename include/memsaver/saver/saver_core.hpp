// What a saver is behind its door: its tags, and the operations over several of them.
#pragma once

#include "memsaver/arena/run_steps.hpp"
#include "memsaver/fwd.hpp"
#include "memsaver/saver/hooks.hpp"
#include "memsaver/saver/open_captures.hpp"
#include "memsaver/saver/region_stacks.hpp"
#include "memsaver/saver/tag_table.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace memsaver::inline v0_2 {

namespace detail {

/// Shared by a MemorySaver and all its handles; lives as long as the last of them, but is nobody's in a forked child.
///
/// Its public methods are the library's boundary: each asks once whether this is a forked child, translates the host's
/// bad_alloc once, and has errors of one arena name its tag. See MemorySaver for what they do.
class SaverCore final : public std::enable_shared_from_this<SaverCore> {
public:
    [[nodiscard]] static std::shared_ptr<SaverCore> make(AnyDriver driver, SaverOptions options);
    SaverCore(const SaverCore&) = delete;
    SaverCore& operator=(const SaverCore&) = delete;

    // --- where memory comes from ---

    Arena arena(TagTable::Wanted wanted);
    Arena arena(TagName tag, std::optional<AnyPolicy> policy = {}, std::optional<AnyDriver> driver = {},
                std::optional<ArenaOptions> options = {});
    Arena outside();

    void enter(ArenaBase& arena, const void* region);
    void leave(const ArenaBase& arena, const void* region) noexcept;

    /// From this thread's innermost region.
    void* allocate(const Request& request);
    void* allocate(ArenaBase& arena, const Request& request);
    void deallocate(void* pointer, const FreeOrder& order);
    void deallocate(ArenaBase& arena, void* pointer, const FreeOrder& order);
    void deallocate_quietly(ArenaBase& arena, void* pointer) noexcept;

    std::unique_ptr<GrowingBlock> reserve_block(ArenaBase& arena, std::size_t cap);
    void grow(ArenaBase& arena, GrowingBlock& block, std::size_t bytes);
    void end(ArenaBase& arena, std::unique_ptr<GrowingBlock> block) noexcept;

    [[nodiscard]] bool owns(const void* pointer);
    BackupView backup_view(const void* pointer, std::size_t bytes);
    BackupView backup_view(ArenaBase& arena, const void* pointer, std::size_t bytes);

    // --- operations ---

    Report pause(const Tags& tags, const PauseOptions& options);
    Report resume(const Tags& tags, const ResumeOptions& options);
    Report trim(const Tags& tags, const TrimOptions& options);
    void prepare(const Tags& tags);
    void invalidate(const Tags& tags);
    void forget_backup(const Tags& tags);
    void drop(const Tags& tags);
    std::size_t bytes_to_resume(const Tags& tags);
    Usage usage();
    ArenaUsage usage(ArenaBase& arena);
    void set_capacity(const Tags& tags, std::size_t bytes);
    void set_retain(const Tags& tags, bool yes);
    void set_margin(std::size_t bytes);
    void close();

    // --- hooks ---

    Hook before_pause(std::function<void(PauseEvent&)> function);
    Hook after_pause(std::function<void(PauseEvent&)> function);
    Hook before_resume(std::function<void(ResumeEvent&)> function);
    Hook after_resume(std::function<void(ResumeEvent&)> function);
    /// One that comes as a whole: `parts.install_after_pause(core)`, or `install_after_resume`.
    template <class Parts>
    Hook install_after_pause(const Parts& parts) {
        return boundary("after_pause", [&] { return parts.install_after_pause(*this); });
    }
    template <class Parts>
    Hook install_after_resume(const Parts& parts) {
        return boundary("after_resume", [&] { return parts.install_after_resume(*this); });
    }

    // --- for graphs, workspaces and adapters ---

    [[nodiscard]] const AnyDriver& driver() const noexcept { return driver_; }
    [[nodiscard]] bool enabled() const noexcept { return options_.enabled; }
    [[nodiscard]] const EventSink& events() const noexcept { return options_.events; }
    /// The saver's own, and those that its tags live on: one for each device.
    [[nodiscard]] std::vector<AnyDriver> drivers();
    /// Whether this process is a child of the saver's, which must not touch what is the parent's.
    [[nodiscard]] bool forked() const noexcept { return fork_->forked(); }
    [[nodiscard]] OpenCaptures& captures() noexcept { return captures_; }
    /// A graph is gone: what was given up while it was captured is as if given up now. 0 is none: who knows of what
    /// other captures keep?
    void let_go(std::uint64_t graph) noexcept;
    /// What a destructor ignores.
    void ignore(const ArenaBase& arena, const Status& status, const char* what) const noexcept;

    /// Answers what `act()` answers. What throws here throws what a program may see.
    template <class Act>
    decltype(auto) boundary(const char* what, Act&& act) const {
        fork_->require_parent(what);
        return translated(std::forward<Act>(act));
    }
    /// The same of one arena's, whose tag an error names.
    template <class Act>
    decltype(auto) boundary(const char* what, const ArenaBase& arena, Act&& act) const {
        fork_->require_parent(what);
        try {
            return translated(std::forward<Act>(act));
        } catch (Error& error) {
            name_tag(error, arena.tag());
            throw;
        }
    }

private:
    using Member = TagTable::Member;
    using Members = TagTable::Members;
    using Turns = std::vector<std::optional<Turn::Hold>>; ///< one for each member; none for one that was dropped

    SaverCore(AnyDriver driver, SaverOptions options);
    ~SaverCore() = default;

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
            } catch (const OutOfMemory& error) {
                if (relief.again([&](bool wait) { return make_room(arena.device(), wait, {}, seen); },
                                 [&] { return wait_for_others(arena.device()); })) {
                    continue;
                }
                if (!ask_for_room(error, arena.device(), arena.tag(), asked++)) throw;
                relief = {}; // what the program has freed may have to be waited for
            }
        }
    }
    /// Gives back memory that nobody uses on a device. `busy`: arenas whose turns the caller holds. Whether there was
    /// any since `seen` was read.
    bool make_room(int device, bool wait, const Members& busy, std::uint64_t seen);
    /// What nobody uses of other savers and arenas on the same machine; the bytes that they gave back.
    std::size_t room_of_others(int device, bool wait);
    /// Waits for the operations that other threads have under way on a device: what they have in hand may be what is
    /// missing. Whether there were any. Called without any lock or turn.
    bool wait_for_others(int device);
    /// Whether the program has made room, `asked` times before. Called without any lock or turn.
    bool ask_for_room(const OutOfMemory& error, int device, const std::string& tag, unsigned asked);

    // --- operations ---

    /// The turns of all, taken in the order that all operations keep.
    Turns take_turns(const Members& members, const Deadline& deadline, const char* what);
    Report pause_now(const Tags& tags, const PauseOptions& options);
    Report resume_with_room(const Tags& tags, const ResumeOptions& options);
    /// `refused_by`: the device that had no room, where it throws OutOfMemory.
    Report resume_now(const Tags& tags, const ResumeOptions& options, int& refused_by);
    /// Counts what a report says of the arenas concerned.
    static void note(const Members& members, const Report& report) noexcept;
    void warn_of_lost_bytes(const Report& report, const PauseOptions& options);
    /// Inside a handler: keeps the exception, with the tag's name, if it is the first.
    static void remember(std::exception_ptr& first, const Member& member);
    /// The arenas whose policies keep bytes; Misuse for a tag that was named and whose policy does not.
    Members keeping(const char* what, const Tags& tags);
    FreeOrder order_now(const ArenaBase& arena, FreeOrder order);
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
    HookThreads asking_{fork_}; // threads that run on_no_room
    HookList<PauseEvent> before_pause_{fork_};
    HookList<PauseEvent> after_pause_{fork_};
    HookList<ResumeEvent> before_resume_{fork_};
    HookList<ResumeEvent> after_resume_{fork_};
    Turn room_turn_; // one thread looks for room at a time: what it holds nobody else finds
    std::atomic<std::uint64_t> room_made_{0};
    TagTable tags_;
};

/// What works for a copy of a MemorySaver, for what is built on savers.
[[nodiscard]] SaverCore& used(const std::shared_ptr<SaverCore>& core);

} // namespace detail

} // namespace memsaver::inline v0_2

#include "memsaver/saver/arena_handle.hpp" // Arena, which it answers; it includes saver_core.ipp
