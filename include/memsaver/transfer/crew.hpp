// A few threads for one transfer. Does not know what they move.
#pragma once

#include "memsaver/base/base.hpp"

#include <algorithm>
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
    ///
    /// The executor's own threads may pause and resume: nobody waits for a task that has not begun, since who waits for
    /// a transfer that nobody has begun does the work himself. A task that comes late does nothing, also when the
    /// transfer is gone.
    virtual void submit(std::function<void()> task) = 0;
};

/// How many threads a transfer may use, and whose.
struct CrewOptions {
    unsigned threads = 8;
    std::shared_ptr<Executor> executor{}; ///< none: threads of the transfer's own, which end with it
    int numa_node = -1;                   ///< where own threads stay, within the process's own set; -1: anywhere
};

/// Runs one function on several threads at once: each takes a part of the work until there is none left, so that fewer
/// threads do all of it as well. What they throw is kept. Joins when it dies; never detaches.
class Crew {
public:
    explicit Crew(CrewOptions options) : options_{std::move(options)} {}
    Crew(const Crew&) = delete;
    Crew& operator=(const Crew&) = delete;
    ~Crew() { join(); }

    /// Starts `work()` on at most `workers` threads, and returns. Where no thread can be had, runs it here. Once.
    void start(std::size_t workers, std::function<void()> work) {
        shared_->work = std::move(work);
        workers = std::clamp<std::size_t>(workers, 1, std::max(1U, options_.threads));
        for (std::size_t i = 0; i < workers; ++i) {
            if (!start_one()) {
                if (i == 0) shared_->run();
                return;
            }
        }
    }

    /// Whether all have returned.
    [[nodiscard]] bool done() const noexcept {
        const std::lock_guard lock{shared_->mutex};
        return shared_->running == 0 && (shared_->over || shared_->to_come == 0);
    }

    /// Waits until all have returned that have begun. Where none has, an executor's threads may all be waiting, this
    /// one among them: then the work is done here.
    void join() noexcept {
        for (std::thread& thread : threads_) thread.join();
        threads_.clear();
        std::unique_lock lock{shared_->mutex};
        if (shared_->to_come != 0 && !shared_->begun && !shared_->over) {
            lock.unlock();
            shared_->run();
            lock.lock();
        }
        shared_->over = true;
        shared_->ended.wait(lock, [&] { return shared_->running == 0; });
    }

    /// What the first of them threw, if any did.
    [[nodiscard]] std::exception_ptr failure() noexcept {
        const std::lock_guard lock{shared_->mutex};
        return shared_->failure;
    }

private:
    /// What the crew and its threads share. An executor may run a task when the crew is gone.
    struct Shared {
        void run() noexcept {
            try {
                work();
            } catch (...) {
                const std::lock_guard lock{mutex};
                if (!failure) failure = std::current_exception();
            }
        }
        void take_part() noexcept {
            {
                const std::lock_guard lock{mutex};
                to_come -= 1;
                if (over) return;
                begun = true;
                running += 1;
            }
            run();
            const std::lock_guard lock{mutex};
            running -= 1;
            ended.notify_all();
        }

        std::function<void()> work;
        std::mutex mutex; // over what follows
        std::condition_variable ended;
        std::size_t to_come = 0; ///< threads that have been asked for and have not begun
        std::size_t running = 0;
        bool begun = false;
        bool over = false; ///< whoever has not begun does not begin any more
        std::exception_ptr failure;
    };

    bool start_one() {
        {
            const std::lock_guard lock{shared_->mutex};
            shared_->to_come += 1;
        }
        try {
            if (options_.executor) {
                options_.executor->submit([shared = shared_] { shared->take_part(); });
            } else {
                threads_.emplace_back([shared = shared_, node = options_.numa_node] {
                    stay_near(node);
                    shared->take_part();
                });
            }
            return true;
        } catch (...) { // no thread to be had
            const std::lock_guard lock{shared_->mutex};
            shared_->to_come -= 1;
            return false;
        }
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
    std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
    std::vector<std::thread> threads_;
};

} // namespace memsaver::inline v0_1
