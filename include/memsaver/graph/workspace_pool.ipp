// Definitions of workspace_pool.hpp.
#pragma once

#include "memsaver/arena/arena.hpp"
#include "memsaver/core/pointers.hpp"
#include "memsaver/graph/workspace_pool.hpp"
#include "memsaver/saver/saver_core.hpp"
#include "memsaver/saver/saver_state.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <mutex>
#include <ostream>
#include <string>
#include <utility>

namespace memsaver::inline v0_3 {

MEMSAVER_INLINE std::ostream& operator<<(std::ostream& out, const WorkspaceStats& stats) {
    return out << stats.names << (stats.names == 1 ? " workspace in " : " workspaces in ") << stats.places
               << (stats.places == 1 ? " place: " : " places: ") << format_bytes(stats.asked_bytes) << " requested, "
               << format_bytes(stats.mapped_bytes) << " allocated, " << format_bytes(stats.lent_bytes)
               << " lent, reuse saved " << format_bytes(stats.saved_bytes());
}

namespace detail {

class WorkspacePlace {
public:
    /// Reserves addresses of the arena. Throws as ArenaCore::reserve_elastic.
    WorkspacePlace(const Arena& arena, std::string group, std::size_t cap)
        : arena_{arena}, group_{std::move(group)}, own_{arena.saver().reserve(arena, cap, arena.base().granularity(),
                                                                              true)} {}
    /// Lent memory: `bytes` at `memory`, in `arena`.
    WorkspacePlace(const Arena& arena, std::string group, std::shared_ptr<void> memory, std::size_t bytes)
        : arena_{arena}, group_{std::move(group)}, lent_{std::move(memory)}, lent_bytes_{bytes} {}
    WorkspacePlace& operator=(WorkspacePlace&&) = delete;
    ~WorkspacePlace() { arena_.saver().end(arena_.base(), std::move(own_)); }

    [[nodiscard]] const std::string& group() const noexcept { return group_; }
    [[nodiscard]] bool lent() const noexcept { return own_ == nullptr; }
    /// Returns whether the memory exists: lent memory is released when its tag is dropped or its saver closed.
    [[nodiscard]] bool there() const {
        return !lent() || arena_.saver().state().holds(arena_.base(), data(), lent_bytes_);
    }
    [[nodiscard]] void* data() const noexcept {
        // NOLINTNEXTLINE(performance-no-int-to-ptr): device addresses are numbers
        return own_ ? reinterpret_cast<void*>(own_->address()) : lent_.get();
    }
    /// Bytes with memory.
    [[nodiscard]] std::size_t bytes() const noexcept { return own_ ? own_->committed_bytes() : lent_bytes_; }
    /// Maximum size in bytes.
    [[nodiscard]] std::size_t cap() const noexcept { return own_ ? own_->bytes() : lent_bytes_; }

    [[nodiscard]] bool can_grow() const noexcept {
        return own_ != nullptr && (bytes() == 0 || !arena_.base().options().single_handle);
    }

    /// Throws as ElasticRange::commit.
    void grow(std::size_t bytes) { own_->commit(0, bytes); }
    void zero(std::size_t bytes, StreamRef stream) { arena_.base().zero(data(), bytes, stream); }

private:
    Arena arena_; // declared before its block, so that it is destroyed later
    std::string group_;
    std::shared_ptr<ElasticRange> own_;
    std::shared_ptr<void> lent_;
    std::size_t lent_bytes_ = 0;
};

} // namespace detail

struct WorkspacePool::State {
    struct Name {
        std::string group;
        std::size_t cap;
        std::size_t most = 0; // the largest size requested
        detail::WorkspacePlace* place = nullptr;
    };

    using Names = std::map<std::string, Name, std::less<>>;

    State(Arena from, WorkspacePoolOptions chosen) : arena{std::move(from)}, options{chosen} {}

    detail::WorkspacePlace& get(std::string_view name, std::size_t bytes, const WorkspaceOptions& asked) {
        arena.base().require_open("get a workspace");
        const std::lock_guard lock{mutex};
        if (name.empty()) detail::misuse({"a workspace needs a name"});
        if (!arena.base().owns_stream(asked.stream)) {
            refuse(name, bytes,
                   "its pool's memory is on device " + std::to_string(arena.device()) +
                       ", the stream is not; create a pool for each device");
        }
        const auto found = names.find(name);
        const bool known = found != names.end();
        Name wanted = known ? found->second : Name{std::string{asked.group}, asked.cap != 0 ? asked.cap : options.cap};
        if (!asked.group.empty() && asked.group != wanted.group) {
            refuse(name, bytes,
                   detail::text_of({"it belongs to group ", detail::in_quotes(wanted.group), ", not ",
                                    detail::in_quotes(asked.group)}));
        }
        if (asked.cap != 0 && asked.cap != wanted.cap) {
            refuse(
                name, bytes,
                detail::text_of({"its cap is ", detail::in_bytes(wanted.cap), ", not ", detail::in_bytes(asked.cap)}));
        }
        if (bytes == 0) refuse(name, bytes, "the size is 0");
        if (bytes > wanted.cap) refuse(name, bytes, "its cap is " + format_bytes(wanted.cap));
        if (wanted.place != nullptr && bytes > wanted.place->bytes() && !wanted.place->can_grow())
            refuse(name, bytes,
                   "its tag uses one handle per block (ArenaOptions::single_handle), so it can grow only once; "
                   "request the maximum size first");
        if (wanted.place != nullptr && !wanted.place->there())
            refuse(name, bytes, "the memory lent for it no longer exists: its tag was dropped or its saver closed");

        wanted.most = std::max(wanted.most, bytes);
        Names fresh; // allocated before the device memory, so that nothing fails afterwards
        if (!known) fresh.emplace(name, wanted);
        const bool grown = place(wanted, bytes);
        if (known) {
            found->second.most = wanted.most;
        } else {
            fresh.begin()->second.place = wanted.place;
            names.merge(fresh);
        }
        counts.gets += 1;
        (grown ? counts.growths : counts.reuses) += 1;
        return *wanted.place;
    }

    /// Assigns `wanted` a place with memory for `bytes`. Returns whether memory was allocated.
    bool place(Name& wanted, std::size_t bytes) {
        if (wanted.place == nullptr) wanted.place = find(wanted, bytes, false);
        if (wanted.place == nullptr) wanted.place = find(wanted, bytes, true);
        if (wanted.place != nullptr) {
            if (wanted.place->bytes() >= bytes) return false;
            wanted.place->grow(bytes);
            return true;
        }
        places.reserve(places.size() + 1);
        auto own = detail::UniquePtr<detail::WorkspacePlace>::make(arena, wanted.group, wanted.cap);
        own->grow(bytes);
        wanted.place = own.get();
        places.push_back(std::move(own));
        return true;
    }
    /// Finds the first suitable place that has memory for `bytes` or, if `growing`, can grow to it.
    [[nodiscard]] detail::WorkspacePlace* find(const Name& name, std::size_t bytes, bool growing) const {
        for (const auto& each : places) {
            const bool fits = each->group() == name.group && each->cap() >= name.cap &&
                              (each->bytes() >= bytes || (growing && each->can_grow()));
            if (fits && each->there()) return each.get();
        }
        return nullptr;
    }

    void lend(const Arena& from, std::shared_ptr<void> memory, std::size_t bytes, std::string_view group) {
        const auto fail = [&](const std::string& why) {
            detail::misuse({detail::in_bytes(bytes), " at ", detail::in_hex(reinterpret_cast<Address>(memory.get())),
                            " cannot be lent to a WorkspacePool: ", why});
        };
        if (memory == nullptr || bytes == 0) fail("the pointer is null or the size is 0");
        if (reinterpret_cast<Address>(memory.get()) % 256 != 0) fail("the address must be a multiple of 256 bytes");
        if (from.device() != arena.device()) {
            fail("the memory is on device " + std::to_string(from.device()) + ", the pool's memory on device " +
                 std::to_string(arena.device()));
        }
        if (!from.saver().state().holds(from.base(), memory.get(), bytes))
            fail("the range is not in live blocks of tag \"" + from.tag() + '"');
        auto lent = detail::UniquePtr<detail::WorkspacePlace>::make(from, std::string{group}, std::move(memory), bytes);
        const std::lock_guard lock{mutex};
        places.push_back(std::move(lent));
    }

    [[nodiscard]] WorkspaceStats stats() const {
        const std::lock_guard lock{mutex};
        WorkspaceStats sums = counts;
        sums.names = names.size();
        sums.places = places.size();
        for (const auto& [name, entry] : names) sums.asked_bytes += entry.most;
        for (const auto& each : places) (each->lent() ? sums.lent_bytes : sums.mapped_bytes) += each->bytes();
        return sums;
    }

    [[noreturn]] void refuse(std::string_view name, std::size_t bytes, const std::string& why) const {
        detail::misuse({"workspace ", detail::in_quotes(name), " of tag ", detail::in_quotes(arena.tag()), ", ",
                        detail::in_bytes(bytes), ": ", why});
    }

    Arena arena;
    WorkspacePoolOptions options;
    mutable std::mutex mutex; // guards the members below; held while growing, which waits for the tag's operation
    detail::Vector<detail::UniquePtr<detail::WorkspacePlace>> places;
    Names names;
    WorkspaceStats counts;
};

MEMSAVER_INLINE WorkspacePool::WorkspacePool(WorkspacePool&&) noexcept = default;
MEMSAVER_INLINE WorkspacePool& WorkspacePool::operator=(WorkspacePool&&) noexcept = default;
MEMSAVER_INLINE WorkspacePool::~WorkspacePool() = default;

MEMSAVER_INLINE const Arena& WorkspacePool::arena() const { return state().arena; }

MEMSAVER_INLINE WorkspacePool::WorkspacePool(Arena arena, WorkspacePoolOptions options)
    : state_{detail::translated([&] { return detail::UniquePtr<State>::make(std::move(arena), options); })} {
    (void)state_->arena.base();
    if (options.cap == 0) detail::misuse({"WorkspacePool: the cap must not be 0"});
}

MEMSAVER_INLINE void* WorkspacePool::get(std::string_view name, std::size_t bytes, const WorkspaceOptions& options) {
    State& own = state();
    return own.arena.saver().boundary("get a workspace", own.arena.base(), [&] {
        detail::require_enumerator("WorkspaceOptions::reuse", options.reuse, 2);
        detail::WorkspacePlace* place = nullptr; // places live as long as the pool
        const auto get = [&] { place = &own.get(name, bytes, options); };
        // Making room waits for the device and runs callbacks of the program, which may call the pool: its lock is not
        // held meanwhile.
        own.arena.saver().state().with_room(own.arena.base(), [&] {
            try {
                get();
            } catch (const Misuse&) { // perhaps of the capacity, in which unused memory counts
                if (own.arena.base().capacity() == 0 || !own.arena.base().reclaim_unused()) throw;
                get();
            }
        });
        if (options.reuse == Reuse::zeroed) place->zero(bytes, options.stream);
        return place->data();
    });
}

MEMSAVER_INLINE void WorkspacePool::lend(const Arena& from, std::shared_ptr<void> memory, std::size_t bytes,
                                         std::string_view group) {
    State& own = state();
    own.arena.saver().boundary("lend to a WorkspacePool", from.base(),
                               [&] { own.lend(from, std::move(memory), bytes, group); });
}

MEMSAVER_INLINE WorkspaceStats WorkspacePool::stats() const {
    return state().arena.saver().boundary("stats of a WorkspacePool", [&] { return state().stats(); });
}

MEMSAVER_INLINE WorkspacePool::State& WorkspacePool::state() const {
    if (state_ == nullptr) detail::misuse({"a moved-from WorkspacePool was used"});
    return *state_;
}

} // namespace memsaver::inline v0_3
