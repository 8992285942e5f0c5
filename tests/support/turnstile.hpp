// A thread that blocks inside a driver call until the test releases it, and a thread that the test joins. Uses no
// timeouts: code that wrongly waits for the blocked thread hangs instead of only being slow.
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
#include <vector>

namespace test {
using namespace memsaver;
using namespace memsaver::detail;

/// A gate that threads wait at, and the number of threads waiting.
struct Turnstile {
    void open() {
        const std::lock_guard lock{mutex_};
        open_ = true;
        changed_.notify_all();
    }
    /// Waits until the gate is open.
    void pass() {
        std::unique_lock lock{mutex_};
        ++arrived_;
        changed_.notify_all();
        changed_.wait(lock, [&] { return open_; });
    }
    /// Waits until `arrivals` threads have reached it.
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

/// Runs a function on its own thread, and keeps its exception for `join`.
struct Doing {
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

/// Runs `act(0)`, `act(1)`, ... each on its own thread. `join` throws what the first of them threw.
struct Threads {
    template <class Act>
    Threads(std::size_t count, Act act) {
        for (std::size_t i = 0; i < count; ++i) threads_.push_back(std::make_unique<Doing>([act, i] { act(i); }));
    }
    void join() {
        for (const auto& thread : std::exchange(threads_, {})) thread->join();
    }

private:
    std::vector<std::unique_ptr<Doing>> threads_;
};

/// Which threads' calls block: only the thread that runs the function, or also threads that it starts.
enum class Whose : unsigned char { own, anybodys };

/// Runs `act` on a thread that blocks inside its first call of a kind, from construction until `go_on`. No other thread
/// may call the driver during construction.
template <class D>
struct Stuck {
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
    ~Stuck() {
        gate_.open();
        doing_.reset();
        driver_.on_call({});
    }

    [[nodiscard]] bool over() const { return doing_->over(); }
    /// Releases the thread and joins it; throws what it threw.
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

/// Runs a function on another thread; construction returns once it waits for the device.
template <class D>
struct WaitingBeside {
    template <class Act>
    WaitingBeside(const FaultyDriver<D>& driver, Act act) : doing_{(watch(driver), std::move(act))} {
        waits_.await();
        driver.on_call({});
    }
    void join() { doing_.join(); }

private:
    void watch(const FaultyDriver<D>& driver) {
        waits_.open();
        driver.on_call([this](const CallRecord& made) {
            if (made.call == Call::wait || made.call == Call::drain) waits_.pass();
        });
    }
    Turnstile waits_;
    Doing doing_;
};
} // namespace test
