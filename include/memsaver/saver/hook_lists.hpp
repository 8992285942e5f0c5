// The hooks of a saver, and which functions of the program run now.
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
#include <string>
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
    /// Adds the rows that a hook has added to its copy of the report. Without host memory, they are missing.
    static void add_rows(Report& report, const Report& seen) noexcept {
        try {
            for (std::size_t i = report.tags.size(); i < seen.tags.size(); ++i) report.add(seen.tags[i]);
        } catch (const std::bad_alloc&) {
        }
    }

    /// What a hook does to its event, except for rows that it adds, concerns nobody else. Without host memory for a
    /// copy, it sees the original.
    void run_on_copies(What& what, bool all) const {
        table_.each(
            [&](void* function) {
                std::optional<What> copy;
                try {
                    copy.emplace(what);
                } catch (const std::bad_alloc&) {
                }
                (*static_cast<Function*>(function))(copy ? *copy : what);
                if constexpr (requires { what.report; }) {
                    if (copy) add_rows(what.report, copy->report);
                }
            },
            all);
    }

    HookTable table_;
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
