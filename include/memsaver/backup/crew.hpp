// Threads that share one piece of work. Do not know what it is.
#pragma once

#include "memsaver/backup/executor.hpp"
#include "memsaver/core/form.hpp"

#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {

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
    Crew(const Crew&) = delete;
    Crew& operator=(const Crew&) = delete;
    ~Crew() { join(); }

    /// Starts `work()` on at most `workers` threads and returns. If no thread can be started, runs it on the caller.
    /// Call once.
    void start(std::size_t workers, std::function<void()> work);

    /// Returns whether all threads have returned.
    [[nodiscard]] bool done() const noexcept;

    /// Waits for all threads that have started. If none has, the executor's threads may all be waiting, the caller
    /// among them: the work then runs on the caller.
    void join() noexcept;

    /// If an executor has not started the work, runs it on the caller, because the executor's threads may all be
    /// waiting for it.
    void help() noexcept;

    /// Returns the first exception of the threads, or null.
    [[nodiscard]] std::exception_ptr failure() noexcept;

private:
    /// State shared by the crew and its threads. An executor may run a task after the crew is destroyed.
    struct Shared {
        void run() noexcept;
        void take_part() noexcept;
        void work_here() noexcept; ///< for a thread that counts as running

        std::function<void()> work;
        std::mutex mutex; // guards the members below
        std::condition_variable ended;
        std::size_t to_come = 0; ///< threads that were requested and have not started
        std::size_t running = 0;
        bool begun = false;
        bool over = false; ///< threads that have not started do not start any more
        std::exception_ptr failure;
    };

    bool start_one();

    /// Restricts this thread to the processors of a node that the process may use. No-op if there are none.
    static void stay_near(int node) noexcept;

    CrewOptions options_;
    std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
    std::vector<std::thread> threads_;
};

} // namespace detail

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/backup/crew.ipp"
#endif
