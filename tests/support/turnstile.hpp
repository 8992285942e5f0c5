// A thread that stands still inside a driver call until the test lets it go on, and a thread that the test joins.
// There is no time in it: what must not wait for the thread that stands still would hang, and not merely be slow.
#pragma once

#include "memsaver/memsaver.hpp"
#include "memsaver/testing/testing.hpp"

#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

namespace test {

using namespace memsaver;

using namespace memsaver::detail;

/// A door, and who stands before it.
class Turnstile {
public:
    void open() {
        const std::lock_guard lock{mutex_};
        open_ = true;
        changed_.notify_all();
    }
    /// Stands here until it is open.
    void pass() {
        std::unique_lock lock{mutex_};
        ++arrived_;
        changed_.notify_all();
        changed_.wait(lock, [&] { return open_; });
    }
    /// Waits until so many have come to it.
    void await(int arrivals = 1) {
        std::unique_lock lock{mutex_};
        changed_.wait(lock, [&] { return arrived_ >= arrivals; });
    }

private:
    std::mutex mutex_;
    std::condition_variable changed_;
    int arrived_ = 0;
    bool open_ = false;
};

/// Runs something on a thread of its own, and keeps what it throws for `join`.
class Doing {
public:
    template <class Act>
    explicit Doing(Act act)
        : thread_{[this, act = std::move(act)]() mutable {
              try {
                  act();
              } catch (...) {
                  error_ = std::current_exception();
              }
              over_ = true;
          }} {}
    Doing(const Doing&) = delete;
    Doing& operator=(const Doing&) = delete;
    ~Doing() {
        if (thread_.joinable()) thread_.join();
    }
    [[nodiscard]] bool over() const { return over_; }
    [[nodiscard]] std::thread::id id() const { return thread_.get_id(); }
    void join() {
        thread_.join();
        if (error_) std::rethrow_exception(error_);
    }

private:
    std::exception_ptr error_;
    std::atomic<bool> over_{false};
    std::thread thread_;
};

/// Whose call stands still: the thread's that runs it, or also one of threads that it starts.
enum class Whose : unsigned char { own, anybodys };

/// Runs `act` on a thread that stands still inside its first call of a kind, from construction until `go_on`. Nobody
/// else calls the driver while this is constructed.
template <class D>
class Stuck {
public:
    template <class Act>
    Stuck(FaultyDriver<D> driver, Call call, Act act, Whose whose = Whose::own) : driver_{std::move(driver)} {
        driver_.on_call([this, call, whose](const CallRecord& made) {
            const bool concerned = whose == Whose::anybodys || std::this_thread::get_id() == thread_;
            if (made.call == call && concerned && !stood_.exchange(true)) gate_.pass();
        });
        doing_.emplace([this, act = std::move(act)]() mutable {
            thread_ = std::this_thread::get_id();
            act();
        });
        gate_.await();
    }
    Stuck(const Stuck&) = delete;
    Stuck& operator=(const Stuck&) = delete;
    ~Stuck() {
        gate_.open();
        doing_.reset();
        driver_.on_call({});
    }

    [[nodiscard]] bool over() const { return doing_->over(); }
    /// Lets it go on, and waits for its end; throws what it threw.
    void go_on() {
        gate_.open();
        doing_->join();
    }

private:
    FaultyDriver<D> driver_;
    Turnstile gate_;
    std::atomic<std::thread::id> thread_{};
    std::atomic<bool> stood_{false};
    std::optional<Doing> doing_;
};

} // namespace test
