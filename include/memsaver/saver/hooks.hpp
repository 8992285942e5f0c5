// Functions of the program that run before and after an operation. Do not know what the operation is.
#pragma once

#include "memsaver/arena/tag_names.hpp"
#include "memsaver/base/base.hpp"
#include "memsaver/driver/system_fork.hpp"

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace memsaver::inline v0_1 {

/// What a hook around a pause is told.
struct PauseEvent {
    std::vector<std::string> tags; ///< the tags concerned
    Report report;                 ///< what was done; empty before
};

/// What a hook around a resume is told.
struct ResumeEvent {
    std::vector<std::string> tags;
    Report report;
};

/// Keeps a hook in force. Move-only; the hook ends with it, or with the saver. A hook that is running when its handle
/// dies runs to its end.
class Hook {
public:
    Hook() = default;
    explicit Hook(std::function<void()> end) : end_{std::move(end)} {}
    /// Several in one: they end together.
    Hook(Hook first, Hook second)
        : end_{[both = std::make_shared<std::pair<Hook, Hook>>(std::move(first), std::move(second))]() mutable {
              both.reset();
          }} {}
    Hook(Hook&& other) noexcept : end_{std::exchange(other.end_, nullptr)} {}
    Hook& operator=(Hook&& other) noexcept {
        Hook ending{std::move(*this)};
        end_ = std::exchange(other.end_, nullptr);
        return *this;
    }
    ~Hook() {
        if (end_) end_();
    }

private:
    std::function<void()> end_;
};

/// The hooks of one moment, in the order in which they were added. Thread safe; no lock is held while one runs.
template <class What>
class HookList {
public:
    using Function = std::function<void(What&)>;

    Hook add(Function function) {
        if (!function) throw Misuse{"an empty function cannot be a hook"};
        state_->fork_mark.require_parent("add a hook");
        auto kept = std::make_shared<Function>(std::move(function));
        const std::uint64_t key = state_->last_key.fetch_add(1) + 1;
        Hook hook{[weak = std::weak_ptr{state_}, key] {
            const auto state = weak.lock();
            if (state == nullptr || state->fork_mark.forked()) return;
            typename Functions::node_type ending; // dies after the lock: what it owns may be hooks of this list
            const std::lock_guard lock{state->mutex};
            ending = state->functions.extract(key);
        }};
        const std::lock_guard lock{state_->mutex};
        state_->functions.emplace(key, std::move(kept));
        return hook;
    }

    /// Runs them until one throws, which is passed on.
    void run_until_throw(What& what) const {
        for (const auto& function : snapshot()) (*function)(what);
    }
    /// Runs them all, then throws the first exception again.
    void run_all(What& what) const {
        std::exception_ptr first;
        for (const auto& function : snapshot()) {
            try {
                (*function)(what);
            } catch (...) {
                if (!first) first = std::current_exception();
            }
        }
        if (first) std::rethrow_exception(first);
    }

private:
    using Functions = std::map<std::uint64_t, std::shared_ptr<Function>>;

    struct State {
        ForkMark fork_mark; // asked before the lock
        std::atomic<std::uint64_t> last_key{0};
        std::mutex mutex; // guards what follows
        Functions functions;
    };

    [[nodiscard]] std::vector<std::shared_ptr<Function>> snapshot() const {
        const std::lock_guard lock{state_->mutex};
        std::vector<std::shared_ptr<Function>> functions;
        for (const auto& [key, function] : state_->functions) functions.push_back(function);
        return functions;
    }

    std::shared_ptr<State> state_ = std::make_shared<State>();
};

/// The threads that run hooks at this moment. Thread safe.
class HookThreads {
public:
    /// Marks this thread until it dies.
    class Mark {
    public:
        explicit Mark(HookThreads& threads) : threads_{threads} {
            threads_.fork_mark_.require_parent("run hooks");
            const std::lock_guard lock{threads_.mutex_};
            threads_.running_.push_back(std::this_thread::get_id());
        }
        Mark(const Mark&) = delete;
        Mark& operator=(const Mark&) = delete;
        ~Mark() {
            if (threads_.fork_mark_.forked()) return;
            const std::lock_guard lock{threads_.mutex_};
            std::erase(threads_.running_, std::this_thread::get_id());
        }

    private:
        HookThreads& threads_;
    };

    /// Throws Misuse on a thread that is running a hook, and in a forked child. `what` is wanted of `tags`; none: of
    /// all.
    void refuse(const char* what, const std::vector<std::string>& tags) {
        fork_mark_.require_parent(what);
        const std::lock_guard lock{mutex_};
        for (const auto& id : running_) {
            if (id != std::this_thread::get_id()) continue;
            throw Misuse{std::string{what} + " of " + quoted_tags(tags) + " inside a hook"};
        }
    }

private:
    ForkMark fork_mark_; // asked before the lock
    std::mutex mutex_;
    std::vector<std::thread::id> running_;
};

} // namespace memsaver::inline v0_1
