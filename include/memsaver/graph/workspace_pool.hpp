// Workspaces by name, for graphs and kernels that never run at once. Does not know graphs, nor who runs when.
#pragma once

#include "memsaver/driver/system_fork.hpp"
#include "memsaver/graph/workspace_options.hpp"
#include "memsaver/graph/workspace_place.hpp"
#include "memsaver/graph/workspace_stats.hpp"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace memsaver::inline v0_1 {

/// Hands out workspaces of an arena's memory, which are paused and resumed with it. Names of one group exclude one
/// another: the program sees to it that no two of them are in use at the same time. So they share bytes; groups do not.
/// A name's address is the same for as long as the pool lives, paused or not, however much it grows: what was captured
/// with it stays good. Move-only, and of no use once moved from; every method may be called from any thread. Its memory
/// goes back to the arena when it dies, as `deallocate` gives it: inside a capture's body, when that graph ends.
///
/// A pool belongs to its arena's device. Switched off, or made on plain memory, it works the same and is never paused.
class WorkspacePool {
public:
    explicit WorkspacePool(Arena arena, WorkspacePoolOptions options = {})
        : state_{std::make_unique<State>(std::move(arena), options)} {
        (void)state_->arena.base();
        if (options.cap == 0) throw Misuse{"a WorkspacePool needs a cap"};
    }

    /// The address of the workspace `name`, good for at least `bytes` from now on, at a multiple of 256 bytes at least.
    ///
    /// A new name goes to the first place of its group that is large enough; else to the first that can grow in place
    /// up to the name's cap, and grows it; else to a place of its own. Growing takes whole pages and no more. May be
    /// called while streams are captured. Waits for nothing.
    ///
    /// Throws Misuse: `bytes` 0 or beyond the name's cap; another cap or group than the name has; a stream of another
    /// device; growing or zeroing what is paused or being paused; closed; in a forked child. OutOfMemory or
    /// OutOfHostMemory where there is no room, and what a failing driver call stands for. Then nothing has changed, but
    /// that memory taken for a workspace may stay when zeroing it failed.
    [[nodiscard]] void* get(std::string_view name, std::size_t bytes, const WorkspaceOptions& options = {}) {
        try {
            WorkspacePlace& place = state().get(name, bytes, options); // lives as long as the pool
            if (options.reuse == Reuse::zeroed) place.zero(bytes, options.stream);
            return place.data();
        } catch (const std::bad_alloc&) {
            throw OutOfHostMemory{"workspace \"" + std::string{name} + "\": no host memory for it"};
        }
    }

    /// Names of `group` may from now on also use `bytes` at `memory`, a block of `from` such as a captured graph's: by
    /// lending, its owner says that it is not in use while these names are. Names whose cap is at most `bytes` can be
    /// put there, for lent memory does not grow. The pool keeps `memory` alive for as long as it lives itself.
    /// Throws Misuse for what is not, as a whole, in a live block of `from`, or on another device than the pool's.
    void lend(const Arena& from, std::shared_ptr<void> memory, std::size_t bytes, std::string_view group = {}) {
        try {
            state().lend(from, std::move(memory), bytes, group);
        } catch (const std::bad_alloc&) {
            throw OutOfHostMemory{"lending to a WorkspacePool: no host memory for it"};
        }
    }

    /// What it holds, and what sharing saved.
    [[nodiscard]] WorkspaceStats stats() const { return state().stats(); }
    [[nodiscard]] const Arena& arena() const { return state().arena; }

private:
    struct Name {
        std::string group;
        std::size_t cap;
        std::size_t most = 0; // asked for
        WorkspacePlace* place = nullptr;
    };

    struct State {
        State(Arena from, WorkspacePoolOptions chosen) : arena{std::move(from)}, options{chosen} {}

        WorkspacePlace& get(std::string_view name, std::size_t bytes, const WorkspaceOptions& asked) {
            arena.base().require_open("a workspace"); // before the lock: a child may find it taken for ever
            const std::lock_guard lock{mutex};
            if (name.empty()) throw Misuse{"a workspace needs a name"};
            if (!arena.base().owns_stream(asked.stream)) {
                refuse(name, bytes,
                       "its pool's memory is on device " + std::to_string(arena.device()) +
                           ", the stream is not; make a pool for each device");
            }
            const auto found = names.find(name);
            const bool known = found != names.end();
            Name wanted =
                known ? found->second : Name{std::string{asked.group}, asked.cap != 0 ? asked.cap : options.cap};
            if (!asked.group.empty() && asked.group != wanted.group) {
                refuse(name, bytes,
                       "it is of the group \"" + wanted.group + "\", not \"" + std::string{asked.group} + '"');
            }
            if (asked.cap != 0 && asked.cap != wanted.cap) {
                refuse(name, bytes, "its cap is " + format_bytes(wanted.cap) + ", not " + format_bytes(asked.cap));
            }
            if (bytes == 0) refuse(name, bytes, "the size is 0");
            if (bytes > wanted.cap) refuse(name, bytes, "its cap is " + format_bytes(wanted.cap));

            wanted.most = std::max(wanted.most, bytes);
            Names fresh; // taken before any memory is, so that nothing fails after it
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

        /// Sees to it that `wanted` has a place with memory for `bytes`; whether any was taken.
        bool place(Name& wanted, std::size_t bytes) {
            if (wanted.place == nullptr) wanted.place = find(wanted, bytes);
            if (wanted.place == nullptr) wanted.place = find(wanted, 0);
            if (wanted.place != nullptr) {
                if (wanted.place->bytes() >= bytes) return false;
                wanted.place->grow(bytes);
                return true;
            }
            places.reserve(places.size() + 1);
            auto own = std::make_unique<WorkspacePlace>(arena, wanted.group, wanted.cap);
            own->grow(bytes);
            wanted.place = own.get();
            places.push_back(std::move(own));
            return true;
        }
        /// The first place that a name can have, with memory for `bytes`.
        [[nodiscard]] WorkspacePlace* find(const Name& name, std::size_t bytes) const {
            for (const auto& each : places) {
                if (each->group() == name.group && each->cap() >= name.cap && each->bytes() >= bytes) return each.get();
            }
            return nullptr;
        }

        void lend(const Arena& from, std::shared_ptr<void> memory, std::size_t bytes, std::string_view group) {
            fork_mark.require_parent("lend to a WorkspacePool");
            const auto fail = [&](const std::string& why) {
                throw Misuse{format_bytes(bytes) + " at " + format_address(reinterpret_cast<Address>(memory.get())) +
                             " cannot be lent to a WorkspacePool: " + why};
            };
            if (memory == nullptr || bytes == 0) fail("there is nothing to lend");
            if (from.device() != arena.device()) {
                fail("they are on device " + std::to_string(from.device()) + ", the pool's on device " +
                     std::to_string(arena.device()));
            }
            if (!from.base().holds(memory.get(), bytes)) fail("they are no block of tag \"" + from.tag() + '"');
            auto lent = std::make_unique<WorkspacePlace>(from, std::string{group}, std::move(memory), bytes);
            const std::lock_guard lock{mutex};
            places.push_back(std::move(lent));
        }

        [[nodiscard]] WorkspaceStats stats() const {
            fork_mark.require_parent("stats of a WorkspacePool");
            const std::lock_guard lock{mutex};
            WorkspaceStats sums = counts;
            sums.names = names.size();
            sums.places = places.size();
            for (const auto& [name, entry] : names) sums.asked_bytes += entry.most;
            for (const auto& each : places) (each->lent() ? sums.lent_bytes : sums.mapped_bytes) += each->bytes();
            return sums;
        }

        [[noreturn]] void refuse(std::string_view name, std::size_t bytes, const std::string& why) const {
            throw Misuse{"workspace \"" + std::string{name} + "\" of tag \"" + arena.tag() + "\", " +
                         format_bytes(bytes) + ": " + why};
        }

        using Names = std::map<std::string, Name, std::less<>>;

        Arena arena;
        WorkspacePoolOptions options;
        ForkMark fork_mark;
        mutable std::mutex mutex; // guards what follows; held over growth, which does not wait
        std::vector<std::unique_ptr<WorkspacePlace>> places;
        Names names;
        WorkspaceStats counts;
    };

    [[nodiscard]] State& state() const {
        if (state_ == nullptr) throw Misuse{"a WorkspacePool that was moved from was used"};
        return *state_;
    }

    std::unique_ptr<State> state_;
};

} // namespace memsaver::inline v0_1
