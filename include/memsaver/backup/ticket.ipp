// Definitions of ticket.hpp.
#pragma once

#include "memsaver/backup/ticket.hpp"

namespace memsaver::inline v0_3 {

namespace detail {

MEMSAVER_INLINE void Progress::add(std::size_t bytes) noexcept {
    const std::size_t done = done_.fetch_add(bytes) + bytes;
    if (!sink_) return;
    try {
        sink_(done, total_);
    } catch (...) { // a failing sink must not fail the transfer
    }
}

} // namespace detail

MEMSAVER_INLINE Status Ticket::Work::wait_in_turn() {
    struct Turn {
        explicit Turn(Work& own) : work{own} {
            while (work.waiting_.exchange(true)) work.waiting_.wait(true);
        }
        Turn& operator=(Turn&&) = delete;
        ~Turn() {
            work.waited_.store(true);
            work.waiting_.store(false);
            work.waiting_.notify_one();
        }
        Work& work;
    };
    const Turn turn{*this};
    return wait();
}

MEMSAVER_INLINE Status Ticket::wait() { return work_ ? work_->wait_in_turn() : Status{}; }

MEMSAVER_INLINE Ticket& Ticket::operator=(Ticket&& other) noexcept {
    if (this != &other) {
        wait_quietly();
        work_ = std::move(other.work_);
        bytes_ = std::exchange(other.bytes_, 0);
    }
    return *this;
}

MEMSAVER_INLINE Status Ticket::query(bool& done) noexcept {
    done = true;
    return work_ ? work_->query(done) : Status{};
}

MEMSAVER_INLINE void Ticket::wait_quietly() noexcept {
    try {
        (void)wait();
    } catch (...) { // the caller did not ask for the result
    }
}

} // namespace memsaver::inline v0_3
