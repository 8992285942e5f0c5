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

namespace memsaver::inline v0_2 {

namespace detail {

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
    void start(std::size_t workers, std::function<void()> work);

    /// Whether all have returned.
    [[nodiscard]] bool done() const noexcept;

    /// Waits until all have returned that have begun. Where none has, an executor's threads may all be waiting, this
    /// one among them: then the work is done here.
    void join() noexcept;

    /// Where an executor is to run it and has not begun, does the work here: its threads may all wait for it.
    void help() noexcept;

    /// What the first of them threw, if any did.
    [[nodiscard]] std::exception_ptr failure() noexcept;

private:
    /// What the crew and its threads share. An executor may run a task when the crew is gone.
    struct Shared {
        void run() noexcept;
        void take_part() noexcept;
        void work_here() noexcept; ///< for who counts as running

        std::function<void()> work;
        std::mutex mutex; // over what follows
        std::condition_variable ended;
        std::size_t to_come = 0; ///< threads that have been asked for and have not begun
        std::size_t running = 0;
        bool begun = false;
        bool over = false; ///< whoever has not begun does not begin any more
        std::exception_ptr failure;
    };

    bool start_one();

    /// Keeps this thread on the processors of a node that the process may use; on all of them where there are none.
    static void stay_near(int node) noexcept;

    CrewOptions options_;
    std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
    std::vector<std::thread> threads_;
};

} // namespace detail

} // namespace memsaver::inline v0_2

#ifndef MEMSAVER_COMPILED
#include "memsaver/backup/crew.ipp"
#endif
