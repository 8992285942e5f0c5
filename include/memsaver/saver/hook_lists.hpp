// The hooks of a saver, and the threads that run them.
#pragma once

#include "memsaver/core/error.hpp"
#include "memsaver/core/function_ref.hpp"
#include "memsaver/core/tags.hpp"
#include "memsaver/driver/fork_check.hpp"
#include "memsaver/saver/hooks.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {

/// Functions in the order in which they were added, whatever they take. Thread-safe; no lock is held while one runs.
/// Running them requires no host memory, so that a completed operation cannot fail for lack of it.
class HookTable {
public:
    /// `fork`: for handles that may be destroyed in a forked child.
    explicit HookTable(std::shared_ptr<const ForkCheck> fork);

    [[nodiscard]] Hook add(std::shared_ptr<void> function);
    [[nodiscard]] bool empty() const noexcept;
    /// Calls `run` for the functions that existed at the start and have not been removed since. With `all`, also after
    /// one threw, and then rethrows the first exception; otherwise until one throws.
    void each(FunctionRef<void(void*)> run, bool all = false) const;

private:
    struct State;
    std::shared_ptr<State> state_;
};

/// The hooks of one kind.
template <class What>
class HookList {
public:
    using Function = std::function<void(What&)>;

    explicit HookList(std::shared_ptr<const ForkCheck> fork = std::make_shared<const ForkCheck>())
        : table_{std::move(fork)} {}

    Hook add(Function function) {
        if (!function) misuse({"an empty function cannot be a hook"});
        return table_.add(std::make_shared<Function>(std::move(function)));
    }

    [[nodiscard]] bool empty() const noexcept { return table_.empty(); }
    /// Runs the hooks on `what` itself until one throws; the exception propagates.
    void run_on(What& what) const {
        table_.each([&](void* function) { (*static_cast<Function*>(function))(what); });
    }
    /// Runs the hooks, each on a copy of its own, until one throws; the exception propagates.
    void run_until_throw(What& what) const { run_on_copies(what, false); }
    /// Runs all hooks, each on a copy of its own, then rethrows the first exception.
    void run_all(What& what) const { run_on_copies(what, true); }

private:
    /// What a hook does to its event concerns nobody else. Without host memory for a copy, it sees the original.
    void run_on_copies(What& what, bool all) const {
        table_.each(
            [&](void* function) {
                std::optional<What> copy;
                try {
                    copy = what;
                } catch (const std::bad_alloc&) {
                }
                (*static_cast<Function*>(function))(copy ? *copy : what);
            },
            all);
    }

    HookTable table_;
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
