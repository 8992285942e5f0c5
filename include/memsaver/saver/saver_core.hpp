// `SaverCore`: the implementation shared by a MemorySaver and its handles. Manages tags and operations over several
// tags.
#pragma once

#include "memsaver/arena/options.hpp"
#include "memsaver/core/pointers.hpp"
#include "memsaver/core/report.hpp"
#include "memsaver/core/tags.hpp"
#include "memsaver/core/usage.hpp"
#include "memsaver/core/vector.hpp"
#include "memsaver/driver/any_driver.hpp"
#include "memsaver/fwd.hpp"
#include "memsaver/saver/hooks.hpp"
#include "memsaver/saver/options.hpp"

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

namespace memsaver::inline v0_3::detail {

/// Shared by a MemorySaver and all its handles; lives as long as the last of them. In a forked child it is never
/// destroyed.
///
/// Its public methods are the library's boundary: each checks once for a forked child and for a call by an event sink,
/// translates the host's bad_alloc once, and adds the tag's name to errors that concern one arena. See MemorySaver for
/// what they do.
class SaverCore final : public std::enable_shared_from_this<SaverCore> {
public:
    [[nodiscard]] static std::shared_ptr<SaverCore> make(AnyDriver driver, SaverOptions options);

    // --- allocation ---

    Arena arena(const WantedTag& wanted);
    Arena arena(TagName tag, std::optional<AnyPolicy> policy = {}, std::optional<AnyDriver> driver = {},
                std::optional<ArenaOptions> options = {});
    Arena outside();

    void leave(const ArenaCore& arena, const void* region) noexcept;

    /// Allocates in this thread's innermost region.
    void* allocate(const Request& request);
    void* allocate(ArenaCore& arena, const Request& request);
    void deallocate(void* pointer, FreeOrder order);
    void deallocate(ArenaCore& arena, void* pointer, FreeOrder order);

    /// See ArenaCore::reserve_elastic. The range keeps its arena.
    std::shared_ptr<ElasticRange> reserve(const Arena& arena, std::size_t bytes, std::size_t step, bool whole);
    /// The owner gives it up. In a capture, the graph owns it from now on.
    void end(ArenaCore& arena, std::shared_ptr<ElasticRange> range) noexcept;

    [[nodiscard]] bool owns(const void* pointer);
    /// Returns whether any of these bytes of live blocks are paused or being paused. False for other memory, and for
    /// bytes that are arriving.
    [[nodiscard]] bool any_paused(const void* pointer, std::size_t bytes);
    /// Returns whether `bytes` at `pointer` lie in live blocks of the arena and are resident.
    [[nodiscard]] bool here(ArenaCore& arena, const void* pointer, std::size_t bytes);
    /// Returns the arena whose live blocks contain these bytes. Throws Misuse, beginning with `what`, if there is none.
    [[nodiscard]] std::shared_ptr<ArenaCore> holder(const char* what, const void* pointer, std::size_t bytes);
    /// Returns the arena that contains a pointer. Throws Misuse with the call's arguments if there is none.
    [[nodiscard]] Arena owner(const char* call, const void* pointer, std::size_t bytes, std::string_view path = {});

    // --- operations ---

    Report pause(const Tags& tags, const PauseOptions& options);
    Report resume(const Tags& tags, const ResumeOptions& options);
    // Defined in arrival.ipp: resume_async, save.
    Arrival resume_async(const Tags& tags, const ResumeAsyncOptions& options);
    Arrival save(const Tags& tags, const SaveOptions& options);
    Report exchange(const Tags& out, const Tags& in, const ExchangeOptions& options);
    Report trim(const Tags& tags, const TrimOptions& options);
    void prepare(const Tags& tags);
    void invalidate(const Tags& tags);
    void forget_backup(const Tags& tags);
    void drop(const Tags& tags);
    std::size_t bytes_to_resume(const Tags& tags);
    Usage usage();
    void set_capacity(const Tags& tags, std::size_t bytes);
    void set_retain(const Tags& tags, bool yes);
    void set_margin(std::size_t bytes);
    void close();

    // --- residency ---

    Use use(const Tags& tags, const UseOptions& options);
    Reclaimed reclaim(std::size_t bytes, const ReclaimOptions& options);
    void set_evictable(const Tags& tags, bool yes);
    void set_priority(const Tags& tags, int priority);

    // --- hooks ---

    Hook add_hook(HookKind kind, std::function<void(PauseEvent&)> function);

    // --- for graphs, workspaces and adapters ---

    [[nodiscard]] const AnyDriver& driver() const noexcept;
    [[nodiscard]] bool enabled() const noexcept;
    [[nodiscard]] const EventSink& events() const noexcept;
    /// Returns the saver's driver and those of its tags, one per device.
    [[nodiscard]] Vector<AnyDriver> drivers();
    /// Returns whether this process is a forked child, which must not touch the parent's objects.
    [[nodiscard]] bool forked() const noexcept;
    /// For the code behind the saver's handles: see saver_state.hpp.
    [[nodiscard]] SaverState& state() const noexcept { return *state_; }
    /// Reports an error that a destructor cannot throw as `ignored`.
    void ignore(const ArenaCore& arena, const Status& status, const char* what) const noexcept;

    /// Returns `act()`. Exceptions are translated to those a program may see.
    template <class Act>
    decltype(auto) boundary(const char* what, Act&& act) const {
        require_may_call(what);
        return translated(std::forward<Act>(act));
    }
    /// As above, for one arena, or for tags: errors name its tag, or the only one.
    template <class About, class Act>
    decltype(auto) boundary(const char* what, const About& about, Act&& act) const {
        require_may_call(what);
        try {
            return act();
        } catch (...) {
            rethrow_about(about);
        }
    }

private:
    SaverCore(AnyDriver driver, SaverOptions options);
    ~SaverCore();

    /// Throws Misuse in a forked child, and inside an event sink.
    void require_may_call(const char* what) const;
    /// Throw the exception that is being handled again: translated, and with the arena's tag or the only one of the
    /// tags. An OutOfMemory that does not yet say who holds memory, such as that of a peer's backup, says so.
    [[noreturn, gnu::cold]] static void rethrow_about(const ArenaCore& arena);
    [[noreturn, gnu::cold]] void rethrow_about(const Tags& tags) const;

    UniquePtr<SaverState> state_; // the data members, and the parts of the operations
};

/// Returns the core of a MemorySaver; throws Misuse if the saver was moved from. For code that builds on savers.
[[nodiscard]] SaverCore& used(const std::shared_ptr<SaverCore>& core);

} // namespace memsaver::inline v0_3::detail

#ifndef MEMSAVER_COMPILED
#include "memsaver/saver/saver_core.ipp"
#endif
