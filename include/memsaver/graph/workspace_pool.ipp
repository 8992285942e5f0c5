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

/// Addresses that the names of a group share: the pool's own, or lent memory.
struct WorkspacePlace {
    Arena arena; // declared before its memory, so that it is destroyed later
    std::string group;
    std::shared_ptr<ElasticRange> own{};
    std::shared_ptr<void> lent{};
    std::size_t lent_bytes = 0;

    WorkspacePlace& operator=(WorkspacePlace&&) = delete;
    ~WorkspacePlace() { arena.saver().end(arena.base(), std::move(own)); }

    /// Returns whether the memory exists: lent memory is released when its tag is dropped or its saver closed.
    [[nodiscard]] bool there() const {
        return own != nullptr || arena.saver().state().holds(arena.base(), data(), lent_bytes);
    }
    [[nodiscard]] void* data() const noexcept { return own ? pointer_of(own->address()) : lent.get(); }
    /// Bytes with memory.
    [[nodiscard]] std::size_t bytes() const noexcept { return own ? own->committed_bytes() : lent_bytes; }
    /// Maximum size in bytes.
    [[nodiscard]] std::size_t cap() const noexcept { return own ? own->bytes() : lent_bytes; }
    [[nodiscard]] bool can_grow() const noexcept {
        return own != nullptr && (bytes() == 0 || !arena.base().options().single_handle);
    }
};

/// What a WorkspacePool owns.
struct WorkspacePoolState {
    struct Name {
        std::string group;
        std::size_t cap;
        std::size_t most = 0; // the largest size requested
        WorkspacePlace* place = nullptr;
    };

    using Names = std::map<std::string, Name, std::less<>>;

    WorkspacePoolState(Arena from, WorkspacePoolOptions chosen) : arena{std::move(from)}, options{chosen} {}

    WorkspacePlace& get(std::string_view name, std::size_t bytes, const WorkspaceOptions& asked) {
        arena.base().require_open("get a workspace");
        const std::lock_guard lock{mutex};
        if (name.empty()) misuse({"a workspace needs a name"});
        if (!arena.base().owns_stream(asked.stream)) {
            refuse(name, bytes,
                   {"its pool's memory is on device ", in_digits(arena.device()),
                    ", the stream is not; create a pool for each device"});
        }
        const auto found = names.find(name);
        const bool known = found != names.end();
        Name wanted = known ? found->second : Name{std::string{asked.group}, asked.cap != 0 ? asked.cap : options.cap};
        if (!asked.group.empty() && asked.group != wanted.group)
            refuse(name, bytes, {"it belongs to group ", in_quotes(wanted.group), ", not ", in_quotes(asked.group)});
        if (asked.cap != 0 && asked.cap != wanted.cap)
            refuse(name, bytes, {"its cap is ", in_bytes(wanted.cap), ", not ", in_bytes(asked.cap)});
        if (bytes == 0) refuse(name, bytes, {"the size is 0"});
        if (bytes > wanted.cap) refuse(name, bytes, {"its cap is ", in_bytes(wanted.cap)});
        if (wanted.place != nullptr && bytes > wanted.place->bytes() && !wanted.place->can_grow())
            refuse(name, bytes,
                   {"its tag uses one handle per block (ArenaOptions::single_handle), so it can grow only once; "
                    "request the maximum size first"});
        if (wanted.place != nullptr && !wanted.place->there())
            refuse(name, bytes, {"the memory lent for it no longer exists: its tag was dropped or its saver closed"});

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
            wanted.place->own->commit(0, bytes);
            return true;
        }
        places.reserve(places.size() + 1);
        auto range = arena.saver().reserve(arena, wanted.cap, arena.base().granularity(), true);
        UniquePtr<WorkspacePlace> fresh{new WorkspacePlace{arena, wanted.group, std::move(range)}};
        fresh->own->commit(0, bytes);
        wanted.place = fresh.get();
        places.push_back(std::move(fresh));
        return true;
    }
    /// Finds the first suitable place that has memory for `bytes` or, if `growing`, can grow to it.
    [[nodiscard]] WorkspacePlace* find(const Name& name, std::size_t bytes, bool growing) const {
        for (const auto& each : places) {
            const bool fits = each->group == name.group && each->cap() >= name.cap &&
                              (each->bytes() >= bytes || (growing && each->can_grow()));
            if (fits && each->there()) return each.get();
        }
        return nullptr;
    }

    void lend(const Arena& from, std::shared_ptr<void> memory, std::size_t bytes, std::string_view group) {
        const auto fail = [&](Bits why) {
            misuse(
                {in_bytes(bytes), " at ", in_hex(memory.get()), " cannot be lent to a WorkspacePool: ", text_of(why)});
        };
        if (memory == nullptr || bytes == 0) fail({"the pointer is null or the size is 0"});
        if (reinterpret_cast<Address>(memory.get()) % 256 != 0) fail({"the address must be a multiple of 256 bytes"});
        if (from.device() != arena.device()) {
            fail({"the memory is on device ", in_digits(from.device()), ", the pool's memory on device ",
                  in_digits(arena.device())});
        }
        if (!from.saver().state().holds(from.base(), memory.get(), bytes))
            fail({"the range is not in live blocks of tag ", in_quotes(from.tag())});
        UniquePtr<WorkspacePlace> lent{new WorkspacePlace{from, std::string{group}, {}, std::move(memory), bytes}};
        const std::lock_guard lock{mutex};
        places.push_back(std::move(lent));
    }

    [[nodiscard]] WorkspaceStats stats() const {
        const std::lock_guard lock{mutex};
        WorkspaceStats sums = counts;
        sums.names = names.size();
        sums.places = places.size();
        for (const auto& [name, entry] : names) sums.asked_bytes += entry.most;
        for (const auto& each : places) (each->own ? sums.mapped_bytes : sums.lent_bytes) += each->bytes();
        return sums;
    }

    [[noreturn]] void refuse(std::string_view name, std::size_t bytes, Bits why) const {
        misuse({"workspace ", in_quotes(name), " of tag ", in_quotes(arena.tag()), ", ", in_bytes(bytes), ": ",
                text_of(why)});
    }

    Arena arena;
    WorkspacePoolOptions options;
    mutable std::mutex mutex; // guards the members below; held while growing, which waits for the tag's operation
    Vector<UniquePtr<WorkspacePlace>> places;
    Names names;
    WorkspaceStats counts;
};

} // namespace detail

MEMSAVER_INLINE const Arena& WorkspacePool::arena() const { return state().arena; }

MEMSAVER_INLINE WorkspacePool::WorkspacePool(Arena arena, WorkspacePoolOptions options)
    : state_{detail::translated(
          [&] { return detail::new_shared<detail::WorkspacePoolState>(std::move(arena), options); })} {
    (void)state_->arena.base();
    if (options.cap == 0) detail::misuse({"WorkspacePool: the cap must not be 0"});
}

MEMSAVER_INLINE void* WorkspacePool::get(std::string_view name, std::size_t bytes, const WorkspaceOptions& options) {
    detail::WorkspacePoolState& own = state();
    return own.arena.saver().boundary("get a workspace", own.arena.base(), [&] {
        detail::require_enumerator("WorkspaceOptions::reuse", options.reuse, 2);
        detail::WorkspacePlace* place = nullptr; // places live as long as the pool
        // Making room waits for the device and runs callbacks of the program, which may call the pool: its lock is not
        // held meanwhile.
        own.arena.saver().state().with_room(own.arena.base(), [&] { place = &own.get(name, bytes, options); });
        if (options.reuse == Reuse::zeroed) place->arena.base().zero(place->data(), bytes, options.stream);
        return place->data();
    });
}

MEMSAVER_INLINE void WorkspacePool::lend(const Arena& from, std::shared_ptr<void> memory, std::size_t bytes,
                                         std::string_view group) {
    detail::WorkspacePoolState& own = state();
    own.arena.saver().boundary("lend to a WorkspacePool", from.base(),
                               [&] { own.lend(from, std::move(memory), bytes, group); });
}

MEMSAVER_INLINE WorkspaceStats WorkspacePool::stats() const {
    return state().arena.saver().boundary("stats of a WorkspacePool", [&] { return state().stats(); });
}

MEMSAVER_INLINE detail::WorkspacePoolState& WorkspacePool::state() const {
    if (state_ == nullptr) detail::misuse({"a moved-from WorkspacePool was used"});
    return *state_;
}

} // namespace memsaver::inline v0_3
