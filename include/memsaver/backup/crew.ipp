// Definitions of crew.hpp.
#pragma once

#include "memsaver/backup/crew.hpp"

#include <sched.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace memsaver::inline v0_3 {

namespace detail {

MEMSAVER_INLINE void Crew::start(std::size_t workers, std::function<void()> work) {
    shared_->work = std::move(work);
    workers = std::clamp<std::size_t>(workers, 1, std::max(1U, options_.threads));
    for (std::size_t i = 0; i < workers; ++i) {
        if (!start_one()) {
            if (i == 0) shared_->run();
            return;
        }
    }
}

MEMSAVER_INLINE bool Crew::done() const noexcept {
    const std::lock_guard lock{shared_->mutex};
    return shared_->running == 0 && (shared_->over || shared_->to_come == 0);
}

MEMSAVER_INLINE void Crew::join() noexcept {
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

MEMSAVER_INLINE void Crew::help() noexcept {
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

MEMSAVER_INLINE std::exception_ptr Crew::failure() noexcept {
    const std::lock_guard lock{shared_->mutex};
    return shared_->failure;
}

MEMSAVER_INLINE void Crew::Shared::run() noexcept {
    try {
        work();
    } catch (...) {
        const std::lock_guard lock{mutex};
        if (!failure) failure = std::current_exception();
    }
}

MEMSAVER_INLINE void Crew::Shared::take_part() noexcept {
    {
        const std::lock_guard lock{mutex};
        to_come -= 1;
        if (over) return;
        begun = true;
        running += 1;
    }
    work_here();
}

MEMSAVER_INLINE void Crew::Shared::work_here() noexcept {
    run();
    const std::lock_guard lock{mutex};
    running -= 1;
    ended.notify_all();
}

MEMSAVER_INLINE bool Crew::start_one() {
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

MEMSAVER_INLINE void Crew::stay_near(int node) noexcept {
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

} // namespace detail

} // namespace memsaver::inline v0_3
