// The hooks of a saver, and which functions of the program run now.
#pragma once

#include "memsaver/core/function_ref.hpp"
#include "memsaver/core/lists.hpp"
#include "memsaver/core/pointers.hpp"
#include "memsaver/core/vector.hpp"
#include "memsaver/driver/fork_check.hpp"
#include "memsaver/saver/hooks.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace memsaver::inline v0_3::detail {

/// Functions in the order in which they were added, of several kinds. Thread-safe; no lock is held while one runs.
/// Running them requires no host memory, so that a completed operation cannot fail for lack of it.
class HookTable {
public:
    /// `fork`: for handles that may be destroyed in a forked child.
    explicit HookTable(std::shared_ptr<const ForkCheck> fork) : state_{new_shared<State>(std::move(fork))} {}

    [[nodiscard]] Hook add(HookKind kind, std::shared_ptr<void> function) {
        const std::uint64_t key = state_->last_key.fetch_add(1) + 1;
        Hook hook{[weak = std::weak_ptr{state_}, key] {
            const auto state = weak.lock();
            if (state == nullptr || state->fork->forked()) return;
            std::shared_ptr<void> ending; // destroyed after unlocking: it may own hooks of this list
            const std::lock_guard lock{state->mutex};
            const auto entry = state->after(key - 1);
            if (entry == state->entries.end() || entry->key != key) return;
            ending = std::move(entry->function);
            state->entries.erase(entry);
        }};
        const std::lock_guard lock{state_->mutex};
        state_->entries.insert(state_->after(key), {key, kind, std::move(function)});
        return hook;
    }
    [[nodiscard]] bool empty(HookKind kind) const noexcept {
        const std::lock_guard lock{state_->mutex};
        return !any_in(state_->entries, [&](const State::Entry& each) { return each.kind == kind; });
    }
    /// Calls `run` for the functions of a kind that existed at the start and have not been removed since. With `all`,
    /// also after one threw, and then rethrows the first exception; otherwise until one throws.
    void each(HookKind kind, FunctionRef<void(void*)> run, bool all = false) const {
        std::exception_ptr first;
        const std::uint64_t last = state_->last_key.load();
        for (std::uint64_t key = 0;;) {
            std::shared_ptr<void> function; // keeps it alive while it runs
            {
                const std::lock_guard lock{state_->mutex};
                auto next = state_->after(key);
                while (next != state_->entries.end() && next->kind != kind) ++next;
                if (next == state_->entries.end() || next->key > last) break;
                key = next->key;
                function = next->function;
            }
            try {
                run(function.get());
            } catch (...) {
                if (!all) throw;
                if (!first) first = std::current_exception();
            }
        }
        if (first) std::rethrow_exception(first);
    }

private:
    struct State {
        struct Entry {
            std::uint64_t key;
            HookKind kind;
            std::shared_ptr<void> function;
        };
        using Entries = Vector<Entry>;

        explicit State(std::shared_ptr<const ForkCheck> check) : fork{std::move(check)} {}

        /// Returns the first entry whose key is larger.
        [[nodiscard]] Entries::iterator after(std::uint64_t key) {
            return std::partition_point(entries.begin(), entries.end(),
                                        [&](const Entry& each) { return each.key <= key; });
        }

        std::shared_ptr<const ForkCheck> fork; // checked before the lock is taken
        std::atomic<std::uint64_t> last_key{0};
        std::mutex mutex; // guards the members below
        Entries entries;  // by key
    };
    std::shared_ptr<State> state_;
};

/// The functions of the program that are running now, and what for. Thread-safe; allocates no host memory.
class Running {
public:
    enum class Kind : unsigned char { hook, on_no_room, on_reclaim, sink };

    explicit Running(std::shared_ptr<const ForkCheck> fork) : fork_{std::move(fork)} {}

    /// Lists this thread for the lifetime of this object. `tags`: those that a hook runs for.
    class Entry {
    public:
        Entry(Running& all, Kind kind, const std::vector<std::string>* tags = nullptr) noexcept
            : all_{all}, kind_{kind}, tags_{tags} {
            const std::lock_guard lock{all_.mutex_};
            all_.count_ += 1;
            next_ = std::exchange(all_.entries_, this);
        }
        Entry& operator=(Entry&&) = delete;
        ~Entry() {
            if (all_.fork_->forked()) return;
            const std::lock_guard lock{all_.mutex_};
            all_.count_ -= 1;
            Entry** link = &all_.entries_;
            while (*link != this) link = &(*link)->next_;
            *link = next_;
        }

    private:
        friend class Running;
        Running& all_;
        std::thread::id thread_ = std::this_thread::get_id();
        Kind kind_;
        const std::vector<std::string>* tags_;
        Entry* next_ = nullptr;
    };

    /// Returns whether any thread runs such a function; costs an atomic load.
    [[nodiscard]] bool any() const noexcept { return count_.load(std::memory_order_relaxed) != 0; }
    /// Returns whether this thread runs such a function; a hook: for one of `tags`, if given.
    [[nodiscard]] bool here(Kind kind, const std::vector<std::string>* tags = nullptr) {
        const std::lock_guard lock{mutex_};
        for (const Entry* entry = entries_; entry != nullptr; entry = entry->next_) {
            if (entry->thread_ != std::this_thread::get_id() || entry->kind_ != kind) continue;
            if (tags == nullptr || any_in(*tags, [&](const std::string& tag) { return is_in(*entry->tags_, tag); }))
                return true;
        }
        return false;
    }

private:
    std::shared_ptr<const ForkCheck> fork_; // checked before the lock is taken when an entry ends
    std::mutex mutex_;
    Entry* entries_ = nullptr; // linked list
    std::atomic<std::size_t> count_{0};
};

} // namespace memsaver::inline v0_3::detail
