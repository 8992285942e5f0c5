// A claim on bytes that are on their way. Does not know what moves them.
#pragma once

#include "memsaver/base/base.hpp"
#include "memsaver/driver/handles.hpp"
#include "memsaver/transfer/range.hpp"

#include <cstddef>
#include <memory>
#include <utility>

namespace memsaver::inline v0_1 {

/// Work that has been enqueued and goes on by itself. Move-only; its destructor waits, so that no byte moves behind
/// the back of whoever holds the memory. A default Ticket stands for nothing to do, and is done.
class Ticket {
public:
    /// What moves the bytes. `wait` may be called more than once, from one thread at a time, and answers the same.
    class Work {
    public:
        Work() = default;
        Work(const Work&) = delete;
        Work& operator=(const Work&) = delete;
        virtual ~Work() = default;
        /// Whether all of it has arrived; never waits.
        virtual Status query(bool& done) noexcept = 0;
        /// Waits until all of it has arrived, or until what has not never will. May throw an Error, where no status
        /// says what is wrong.
        virtual Status wait() = 0;
        /// Makes later work of `stream` start after the bytes of `range` have arrived; does not wait for the rest.
        virtual Status follow(StreamRef stream, Range range) noexcept = 0;
    };

    Ticket() = default;
    /// `bytes`: how many are moved or filled, for the report.
    Ticket(std::unique_ptr<Work> work, std::size_t bytes) noexcept : work_{std::move(work)}, bytes_{bytes} {}

    Ticket(Ticket&& other) noexcept : work_{std::move(other.work_)}, bytes_{std::exchange(other.bytes_, 0)} {}
    Ticket& operator=(Ticket&& other) noexcept {
        if (this != &other) {
            wait_quietly();
            work_ = std::move(other.work_);
            bytes_ = std::exchange(other.bytes_, 0);
        }
        return *this;
    }
    ~Ticket() { wait_quietly(); }

    [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
    Status query(bool& done) noexcept {
        done = true;
        return work_ ? work_->query(done) : Status{};
    }
    Status wait() { return work_ ? work_->wait() : Status{}; }
    Status follow(StreamRef stream, Range range) noexcept { return work_ ? work_->follow(stream, range) : Status{}; }

private:
    void wait_quietly() noexcept {
        try {
            if (work_) (void)work_->wait();
        } catch (...) { // nobody asked how it went
        }
    }

    std::unique_ptr<Work> work_;
    std::size_t bytes_ = 0;
};

} // namespace memsaver::inline v0_1
