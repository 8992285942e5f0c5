// Threads that share one piece of work. Do not know what it is.
#pragma once

#include "memsaver/backup/executor.hpp"
#include "memsaver/core/pointers.hpp"
#include "memsaver/core/vector.hpp"

#include <sched.h>

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace memsaver::inline v0_3::detail {

/// The number of threads that a transfer may use, and where they come from.
struct CrewOptions {
    unsigned threads = 8;
    std::shared_ptr<Executor> executor{}; ///< if null, the transfer starts its own threads, which end with it
    int numa_node = -1;                   ///< NUMA node for its own threads, within the process's CPU set; -1: any
};

/// Runs one function on several threads. Each takes parts of the work until none is left, so fewer threads complete it
/// too. Keeps the first exception. The destructor joins; threads are never detached.
class Crew {
public:
    explicit Crew(CrewOptions options) : options_{std::move(options)} {}
    Crew& operator=(Crew&&) = delete;
    ~Crew() { join(); }

    /// Starts `work()` on at most `workers` threads and returns. If no thread can be started, runs it on the caller.
    /// Call once.
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

    [[nodiscard]] bool done() const noexcept {
        const std::lock_guard lock{shared_->mutex};
        return shared_->running == 0 && (shared_->over || shared_->to_come == 0);
    }

    /// Waits for all threads that have started. If none has, the executor's threads may all be waiting, the caller
    /// among them: the work then runs on the caller.
    void join() noexcept {
        for (std::thread& thread : threads_) {
            // After pthread_exit in main, the last thread that ends runs the program's exit, with its destructors.
            if (thread.get_id() == std::this_thread::get_id())
                thread.detach();
            else
                thread.join();
        }
        threads_.clear();
        help();
        std::unique_lock lock{shared_->mutex};
        shared_->over = true;
        shared_->ended.wait(lock, [&] { return shared_->running == 0; });
    }

    /// If an executor has not started the work, runs it on the caller, because the executor's threads may all be
    /// waiting for it.
    void help() noexcept {
        if (!options_.executor) return;
        {
            const std::lock_guard lock{shared_->mutex};
            if (shared_->to_come == 0 || shared_->begun || shared_->over) return;
            shared_->begun = true;
            shared_->running += 1;
        }
        shared_->work_here();
        const std::lock_guard lock{shared_->mutex};
        shared_->over = true; // no work is left for threads that have not started
    }

    [[nodiscard]] std::exception_ptr failure() noexcept {
        const std::lock_guard lock{shared_->mutex};
        return shared_->failure;
    }

private:
    /// State shared by the crew and its threads. An executor may run a task after the crew is destroyed.
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
            work_here();
        }
        /// For a thread that counts as running.
        void work_here() noexcept {
            run();
            const std::lock_guard lock{mutex};
            running -= 1;
            ended.notify_all();
        }

        std::function<void()> work;
        std::mutex mutex; // guards the members below
        std::condition_variable ended;
        std::size_t to_come = 0; ///< threads that were requested and have not started
        std::size_t running = 0;
        bool begun = false;
        bool over = false; ///< threads that have not started do not start any more
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
        } catch (...) { // cannot start a thread
            const std::lock_guard lock{shared_->mutex};
            shared_->to_come -= 1;
            return false;
        }
    }

    /// Restricts this thread to the processors of a node that the process may use. No-op if there are none.
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
    std::shared_ptr<Shared> shared_ = new_shared<Shared>();
    Vector<std::thread> threads_;
};

} // namespace memsaver::inline v0_3::detail
