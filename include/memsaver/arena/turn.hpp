// One operation at a time. Knows nothing of what is done in a turn.
#pragma once

#include "memsaver/arena/order.hpp"
#include "memsaver/base/base.hpp"

#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

namespace memsaver::inline v0_1 {

/// Like a mutex, but held across waits and copies, so nothing that must be quick ever asks for it.
class Turn {
public:
    /// Holds the turn until it dies. Move-only.
    class [[nodiscard]] Hold {
    public:
        explicit Hold(Turn& turn) noexcept : turn_{&turn} {}
        Hold(Hold&& other) noexcept : turn_{std::exchange(other.turn_, nullptr)} {}
        Hold& operator=(Hold&&) = delete;
        ~Hold() {
            if (turn_ == nullptr) return;
            const std::lock_guard lock{turn_->mutex_};
            turn_->taken_ = false;
            turn_->freed_.notify_one(); // under the lock: the turn may be gone as soon as it is given up
        }

    private:
        Turn* turn_;
    };

    /// Waits for the turn. Throws NotIdle, naming `tag`, once the deadline has passed.
    Hold take(const Deadline& deadline = {}, const std::string& tag = {}) {
        std::unique_lock lock{mutex_};
        const auto free = [&] { return !taken_; };
        if (!deadline) {
            freed_.wait(lock, free);
        } else if (!freed_.wait_until(lock, *deadline, free)) {
            throw NotIdle{"tag \"" + tag +
                          "\": another operation on it was still running when the time allowed ran out; nothing has "
                          "changed"};
        }
        taken_ = true;
        return Hold{*this};
    }

    /// The turn if it is to be had at once.
    std::optional<Hold> try_take() {
        const std::lock_guard lock{mutex_};
        if (taken_) return {};
        taken_ = true;
        return std::optional<Hold>{std::in_place, *this};
    }

private:
    std::mutex mutex_;
    std::condition_variable freed_;
    bool taken_ = false;
};

} // namespace memsaver::inline v0_1
