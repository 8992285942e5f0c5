// The hooks of a saver, and which functions of the program run now.
#pragma once

#include "memsaver/core/function_ref.hpp"
#include "memsaver/driver/fork_check.hpp"
#include "memsaver/saver/hooks.hpp"

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {

/// Functions in the order in which they were added, of several kinds. Thread-safe; no lock is held while one runs.
/// Running them requires no host memory, so that a completed operation cannot fail for lack of it.
class HookTable {
public:
    /// `fork`: for handles that may be destroyed in a forked child.
    explicit HookTable(std::shared_ptr<const ForkCheck> fork);

    [[nodiscard]] Hook add(HookKind kind, std::shared_ptr<void> function);
    [[nodiscard]] bool empty(HookKind kind) const noexcept;
    /// Calls `run` for the functions of a kind that existed at the start and have not been removed since. With `all`,
    /// also after one threw, and then rethrows the first exception; otherwise until one throws.
    void each(HookKind kind, FunctionRef<void(void*)> run, bool all = false) const;

private:
    struct State;
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
        Entry(Running& all, Kind kind, const std::vector<std::string>* tags = nullptr) noexcept;
        Entry(const Entry&) = delete;
        Entry& operator=(const Entry&) = delete;
        ~Entry();

    private:
        friend class Running;
        Running& all_;
        std::thread::id thread_ = std::this_thread::get_id();
        Kind kind_;
        const std::vector<std::string>* tags_;
        Entry* before_ = nullptr;
        Entry* after_ = nullptr;
    };

    /// Returns whether any thread runs such a function; costs an atomic load.
    [[nodiscard]] bool any() const noexcept { return count_.load(std::memory_order_relaxed) != 0; }
    /// Returns whether this thread runs such a function.
    [[nodiscard]] bool here(Kind kind);
    /// Returns whether this thread runs a hook for one of these tags.
    [[nodiscard]] bool here_for(const std::vector<std::string>& tags);

private:
    std::shared_ptr<const ForkCheck> fork_; // checked before the lock is taken when an entry ends
    std::mutex mutex_;
    Entry* entries_ = nullptr; // linked list
    std::atomic<std::size_t> count_{0};
};

} // namespace detail

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/saver/hook_lists.ipp"
#endif
