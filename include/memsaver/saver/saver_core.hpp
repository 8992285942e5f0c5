// What a saver is behind its door: its tags, and the operations over several of them.
#pragma once

#include "memsaver/arena/options.hpp"
#include "memsaver/core/function_ref.hpp"
#include "memsaver/core/report.hpp"
#include "memsaver/core/tags.hpp"
#include "memsaver/core/usage.hpp"
#include "memsaver/driver/any_driver.hpp"
#include "memsaver/fwd.hpp"
#include "memsaver/saver/hooks.hpp"
#include "memsaver/saver/options.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace memsaver::inline v0_2 {

namespace detail {

class ArenaBase;
class ArrivalState;
class ElasticRange;
class GrowingBlock;
class OpenCaptures;
class UseRecord;
class SaverState; // what a saver has, and what its operations are made of
struct WantedTag;

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

    Arena arena(const WantedTag& wanted);
    Arena arena(TagName tag, std::optional<AnyPolicy> policy = {}, std::optional<AnyDriver> driver = {},
                std::optional<ArenaOptions> options = {});
    Arena outside();

    void enter(ArenaBase& arena, const void* region);
    void leave(const ArenaBase& arena, const void* region) noexcept;

    /// From this thread's innermost region.
    void* allocate(const Request& request);
    void* allocate(ArenaBase& arena, const Request& request);
    void deallocate(void* pointer, FreeOrder order);
    void deallocate(ArenaBase& arena, void* pointer, FreeOrder order);
    void deallocate_quietly(ArenaBase& arena, void* pointer) noexcept;

    std::unique_ptr<GrowingBlock> reserve_block(ArenaBase& arena, std::size_t cap);
    /// Does something that takes memory; where there is no room, makes some as for an allocation. With no lock held.
    void with_room(ArenaBase& arena, FunctionRef<void()> act);
    void end(ArenaBase& arena, std::unique_ptr<GrowingBlock> block) noexcept;

    Elastic elastic(const Arena& arena, std::size_t bytes, const ElasticOptions& options);
    void commit(ArenaBase& arena, ElasticRange& range, std::size_t offset, std::size_t bytes);
    void release(ArenaBase& arena, ElasticRange& range, std::size_t offset, std::size_t bytes, const Order& order);
    void resize(ArenaBase& arena, ElasticRange& range, std::size_t bytes, const Order& order);
    void end(ArenaBase& arena, std::shared_ptr<ElasticRange> range) noexcept;

    [[nodiscard]] bool owns(const void* pointer);
    /// Where these bytes of live blocks are. `what` is wanted: Misuse if they are nowhere.
    [[nodiscard]] std::shared_ptr<ArenaBase> holder(const char* what, const void* pointer, std::size_t bytes);
    BackupView backup_view(const void* pointer, std::size_t bytes);
    BackupView backup_view(ArenaBase& arena, const void* pointer, std::size_t bytes);
    void write_backup(void* pointer, const void* from, std::size_t bytes);
    void write_backup(ArenaBase& arena, void* pointer, const void* from, std::size_t bytes);

    void load(void* pointer, const FileRange& from);
    void load(ArenaBase& arena, void* pointer, const FileRange& from);
    void invalidate(const void* pointer, std::size_t bytes);
    void invalidate(ArenaBase& arena, const void* pointer, std::size_t bytes);
    Gate gate(const void* pointer, std::size_t bytes);
    Gate gate(std::shared_ptr<ArenaBase> arena, const void* pointer, std::size_t bytes);

    // --- operations ---

    Report pause(const Tags& tags, const PauseOptions& options);
    Report resume(const Tags& tags, const ResumeOptions& options);
    Arrival resume_async(const Tags& tags, const ResumeAsyncOptions& options); // these two: arrival.ipp
    Arrival save(const Tags& tags, const SaveOptions& options);
    void run_after_resume(ResumeEvent& event);
    Report exchange(const Tags& out, const Tags& in, const ExchangeOptions& options);
    Report trim(const Tags& tags, const TrimOptions& options);
    void prepare(const Tags& tags);
    void invalidate(const Tags& tags);
    void forget_backup(const Tags& tags);
    void drop(const Tags& tags);
    std::size_t bytes_to_resume(const Tags& tags);
    /// Whether nothing of it is away.
    [[nodiscard]] bool all_there(const std::string& tag) noexcept;
    /// Whether nothing of one of these is away, or there are none of them. May throw bad_alloc.
    [[nodiscard]] bool any_is_there(const Tags& tags);
    Usage usage();
    ArenaUsage usage(ArenaBase& arena);
    void set_capacity(const Tags& tags, std::size_t bytes);
    void set_retain(const Tags& tags, bool yes);
    void set_margin(std::size_t bytes);
    void close();

    // --- residency ---

    Use use(const Tags& tags, const UseOptions& options);
    void until(UseRecord& use, StreamRef stream);
    void until(UseRecord& use, EventRef event);
    void end(std::unique_ptr<UseRecord> use) noexcept;
    Reclaimed reclaim(std::size_t bytes, const ReclaimOptions& options);
    void set_evictable(const Tags& tags, bool yes);
    void set_priority(const Tags& tags, int priority);

    // --- hooks ---

    Hook before_pause(std::function<void(PauseEvent&)> function);
    Hook after_pause(std::function<void(PauseEvent&)> function);
    Hook after_failed_pause(std::function<void(PauseEvent&)> function);
    Hook before_resume(std::function<void(ResumeEvent&)> function);
    Hook after_resume(std::function<void(ResumeEvent&)> function);
    /// One that comes as a whole, which adds what it wants to run.
    Hook install(const char* what, FunctionRef<Hook()> parts);

    // --- for graphs, workspaces and adapters ---

    [[nodiscard]] const AnyDriver& driver() const noexcept;
    [[nodiscard]] bool enabled() const noexcept;
    [[nodiscard]] const EventSink& events() const noexcept;
    /// The saver's own, and those that its tags live on: one for each device.
    /// The saver's own, and those that its tags live on: one for each device.
    [[nodiscard]] std::vector<AnyDriver> drivers();
    /// One for each device on which one of these tags lives.
    [[nodiscard]] std::vector<AnyDriver> drivers_of(const Tags& tags);
    /// Whether this process is a child of the saver's, which must not touch what is the parent's.
    [[nodiscard]] bool forked() const noexcept;
    [[nodiscard]] OpenCaptures& captures() noexcept;
    /// A graph is gone: what was given up while it was captured is as if given up now. 0 is none: who knows of what
    /// other captures keep?
    void let_go(std::uint64_t graph) noexcept;
    /// Physical bytes of an arena, for `keep_free`; 0 where there is no pressure.
    [[nodiscard]] std::size_t bytes_of(const ArenaBase& arena) const noexcept;
    /// Sees to SaverOptions::pressure, if an arena has more than it had `before`. Called without any lock.
    void keep_free(const ArenaBase& arena, std::size_t before) noexcept;
    /// What a destructor ignores.
    void ignore(const ArenaBase& arena, const Status& status, const char* what) const noexcept;

    /// Answers what `act()` answers. What throws here throws what a program may see.
    template <class Act>
    decltype(auto) boundary(const char* what, Act&& act) const {
        require_parent(what);
        return translated(std::forward<Act>(act));
    }
    /// The same of one arena's, whose tag an error names.
    template <class Act>
    decltype(auto) boundary(const char* what, const ArenaBase& arena, Act&& act) const {
        require_parent(what);
        try {
            return translated(std::forward<Act>(act));
        } catch (Error& error) {
            name_tag_of(arena, error);
            throw;
        }
    }
    /// The same of tags': where it is one, an error names it.
    template <class Act>
    decltype(auto) boundary(const char* what, const Tags& tags, Act&& act) const {
        require_parent(what);
        try {
            return translated(std::forward<Act>(act));
        } catch (Error& error) {
            name_tag_of(tags, error);
            throw;
        }
    }

private:
    SaverCore(AnyDriver driver, SaverOptions options);
    ~SaverCore();

    /// Throws Misuse in a forked child.
    void require_parent(const char* what) const;
    static void name_tag_of(const ArenaBase& arena, Error& error) noexcept;
    static void name_tag_of(const Tags& tags, Error& error) noexcept;

    std::unique_ptr<SaverState> state_;
};

/// What works for a copy of a MemorySaver, for what is built on savers.
[[nodiscard]] SaverCore& used(const std::shared_ptr<SaverCore>& core);

} // namespace detail

} // namespace memsaver::inline v0_2

#ifndef MEMSAVER_COMPILED
#include "memsaver/saver/saver_core.ipp"
#endif
