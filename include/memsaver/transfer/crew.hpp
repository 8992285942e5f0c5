// A few threads for one transfer. Does not know what they move.
#pragma once

#include "memsaver/base/base.hpp"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <sched.h>

namespace memsaver::inline v0_1 {

/// An engine's own threads, in the place of the library's.
class Executor {
public:
    Executor() = default;
    Executor(const Executor&) = delete;
    Executor& operator=(const Executor&) = delete;
    virtual ~Executor() = default;
    /// Runs `task` once, on any thread, soon. If it throws, the task will not run.
    virtual void submit(std::function<void()> task) = 0;
};

/// How many threads a transfer may use, and whose.
struct CrewOptions {
    unsigned threads = 8;
    std::shared_ptr<Executor> executor{}; ///< none: threads of the transfer's own, which end with it
    int numa_node = -1;                   ///< where own threads stay, within the process's own set; -1: anywhere
};

/// Runs one function on several threads at once. What they throw is kept. Joins when it dies; never detaches.
class Crew {
public:
    explicit Crew(CrewOptions options) : options_{std::move(options)} {}
    Crew(const Crew&) = delete;
    Crew& operator=(const Crew&) = delete;
    ~Crew() { join(); }

    /// Starts `work()` on at most `workers` threads, and returns. Where no thread can be had, runs it here. Once.
    void start(std::size_t workers, std::function<void()> work) {
        work_ = std::move(work);
        workers = std::clamp<std::size_t>(workers, 1, std::max(1U, options_.threads));
        for (std::size_t i = 0; i < workers; ++i) {
            if (!start_one()) {
                if (i == 0) run();
                return;
            }
        }
    }

    /// Whether all have returned.
    [[nodiscard]] bool done() const noexcept { return running_.load() == 0; }

    /// Waits until all have returned.
    void join() noexcept {
        for (std::thread& thread : threads_) thread.join();
        threads_.clear();
        std::unique_lock lock{mutex_};
        ended_.wait(lock, [&] { return running_.load() == 0; });
    }

    /// What the first of them threw, if any did.
    [[nodiscard]] std::exception_ptr failure() noexcept {
        const std::lock_guard lock{mutex_};
        return failure_;
    }

private:
    bool start_one() {
        running_ += 1;
        try {
            if (options_.executor) {
                options_.executor->submit([this] {
                    run();
                    end();
                });
            } else {
                threads_.emplace_back([this] {
                    stay_near(options_.numa_node);
                    run();
                    end();
                });
            }
            return true;
        } catch (...) { // no thread to be had
            running_ -= 1;
            return false;
        }
    }
    void run() noexcept {
        try {
            work_();
        } catch (...) {
            const std::lock_guard lock{mutex_};
            if (!failure_) failure_ = std::current_exception();
        }
    }
    void end() noexcept {
        const std::lock_guard lock{mutex_}; // under it: the crew may be gone as soon as it is the last's
        running_ -= 1;
        ended_.notify_all();
    }

    /// Keeps this thread on the processors of a node that the process may use; on all of them where there are none.
    static void stay_near(int node) noexcept {
        if (node < 0) return;
        char name[96];
        std::snprintf(name, sizeof name, "/sys/devices/system/node/node%d/cpulist", node);
        std::FILE* file = std::fopen(name, "re");
        if (file == nullptr) return;
        cpu_set_t allowed;
        cpu_set_t near;
        CPU_ZERO(&near);
        int first = 0;
        while (sched_getaffinity(0, sizeof allowed, &allowed) == 0 && std::fscanf(file, "%d", &first) == 1) {
            int last = first;
            int mark = std::fgetc(file);
            if (mark == '-') {
                if (std::fscanf(file, "%d", &last) != 1) break;
                mark = std::fgetc(file);
            }
            for (int cpu = first; cpu <= last && cpu < CPU_SETSIZE; ++cpu) {
                if (CPU_ISSET(static_cast<unsigned>(cpu), &allowed)) CPU_SET(static_cast<unsigned>(cpu), &near);
            }
            if (mark != ',') break;
        }
        std::fclose(file);
        if (CPU_COUNT(&near) != 0) (void)sched_setaffinity(0, sizeof near, &near);
    }

    CrewOptions options_;
    std::function<void()> work_;
    std::vector<std::thread> threads_;
    std::atomic<std::size_t> running_{0};
    std::mutex mutex_;
    std::condition_variable ended_;
    std::exception_ptr failure_;
};

} // namespace memsaver::inline v0_1
