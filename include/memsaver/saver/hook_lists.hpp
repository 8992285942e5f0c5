// The hooks of a saver, and the threads that run them.
#pragma once

#include "memsaver/core/error.hpp"
#include "memsaver/core/tags.hpp"
#include "memsaver/driver/fork_check.hpp"
#include "memsaver/saver/hooks.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {

/// The hooks of one kind, in the order in which they were added. Thread-safe; no lock is held while a hook runs.
/// Running them requires no host memory, so that a completed operation cannot fail for lack of it.
template <class What>
class HookList {
public:
    using Function = std::function<void(What&)>;

    /// `fork`: for handles that may be destroyed in a forked child.
    explicit HookList(std::shared_ptr<const ForkCheck> fork = std::make_shared<const ForkCheck>())
        : state_{std::make_shared<State>(std::move(fork))} {}

    Hook add(Function function) {
        if (!function) misuse({"an empty function cannot be a hook"});
        auto kept = std::make_shared<Function>(std::move(function));
        const std::uint64_t key = state_->last_key.fetch_add(1) + 1;
        Hook hook{[weak = std::weak_ptr{state_}, key] {
            const auto state = weak.lock();
            if (state == nullptr || state->fork->forked()) return;
            typename Functions::node_type ending; // destroyed after unlocking: it may own hooks of this list
            const std::lock_guard lock{state->mutex};
            ending = state->functions.extract(key);
        }};
        const std::lock_guard lock{state_->mutex};
        state_->functions.emplace(key, std::move(kept));
        return hook;
    }

    [[nodiscard]] bool empty() const noexcept {
        const std::lock_guard lock{state_->mutex};
        return state_->functions.empty();
    }
    /// Runs the hooks on `what` itself until one throws; the exception propagates.
    void run_on(What& what) const {
        each([&](Function& function) { function(what); });
    }
    /// Runs the hooks, each on a copy of its own, until one throws; the exception propagates.
    void run_until_throw(What& what) const {
        each([&](Function& function) { run_on_copy(function, what); });
    }
    /// Runs all hooks, each on a copy of its own, then rethrows the first exception.
    void run_all(What& what) const {
        std::exception_ptr first;
        each([&](Function& function) {
            try {
                run_on_copy(function, what);
            } catch (...) {
                if (!first) first = std::current_exception();
            }
        });
        if (first) std::rethrow_exception(first);
    }

private:
    using Functions = std::map<std::uint64_t, std::shared_ptr<Function>>;

    struct State {
        explicit State(std::shared_ptr<const ForkCheck> check) : fork{std::move(check)} {}
        std::shared_ptr<const ForkCheck> fork; // checked before the lock is taken
        std::atomic<std::uint64_t> last_key{0};
        std::mutex mutex; // guards the members below
        Functions functions;
    };

    /// What a hook does to its event concerns nobody else. Without host memory for a copy, it sees the original.
    static void run_on_copy(Function& function, What& what) {
        std::optional<What> copy;
        try {
            copy = what;
        } catch (const std::bad_alloc&) {
        }
        function(copy ? *copy : what);
    }

    /// Calls `run` for the hooks that existed at the start and have not been removed since.
    template <class Run>
    void each(Run&& run) const {
        const std::uint64_t last = state_->last_key.load();
        for (std::uint64_t key = 0;;) {
            std::shared_ptr<Function> function; // keeps it alive while it runs
            {
                const std::lock_guard lock{state_->mutex};
                const auto next = state_->functions.upper_bound(key);
                if (next == state_->functions.end() || next->first > last) return;
                key = next->first;
                function = next->second;
            }
            run(*function);
        }
    }

    std::shared_ptr<State> state_;
};

/// The threads that are running functions of the program. Thread-safe; allocates no host memory.
class HookThreads {
public:
    explicit HookThreads(std::shared_ptr<const ForkCheck> fork = std::make_shared<const ForkCheck>())
        : fork_{std::move(fork)} {}

    /// Lists this thread for the lifetime of this object.
    class Entry {
    public:
        explicit Entry(HookThreads& threads) noexcept;
        Entry(const Entry&) = delete;
        Entry& operator=(const Entry&) = delete;
        ~Entry();

    private:
        friend class HookThreads;
        HookThreads& threads_;
        std::thread::id thread_ = std::this_thread::get_id();
        Entry* before_ = nullptr;
        Entry* after_ = nullptr;
    };

    /// Returns whether any thread is marked; costs an atomic load.
    [[nodiscard]] bool any() const noexcept { return count_.load(std::memory_order_relaxed) != 0; }
    /// Returns whether this thread is marked.
    [[nodiscard]] bool here();
    /// Throws Misuse if this thread is running a hook. `what` and `tags`: the refused operation, for the message.
    void refuse(const char* what, const Tags& tags);

private:
    std::shared_ptr<const ForkCheck> fork_; // checked before the lock is taken when an entry ends
    std::mutex mutex_;
    Entry* running_ = nullptr; // linked list of entries
    std::atomic<std::size_t> count_{0};
};

} // namespace detail

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/saver/hook_lists.ipp"
#endif
