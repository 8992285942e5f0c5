// Definitions of thread_mark.hpp.
#pragma once

#include "memsaver/core/thread_mark.hpp"

#include "memsaver/core/pointers.hpp"

#include <atomic>
#include <new>
#include <sys/syscall.h>
#include <unistd.h>

namespace memsaver::inline v0_3::detail {

struct ThreadMark::Life {
    long number = ::syscall(SYS_gettid);
    std::atomic<bool> over{false};
};

MEMSAVER_INLINE ThreadMark ThreadMark::here() {
    struct Keeper {
        std::shared_ptr<Life> life;
        bool& ended;

        Keeper& operator=(Keeper&&) = delete;
        explicit Keeper(bool& flag) : life{new_shared<Life>()}, ended{flag} {}
        ~Keeper() {
            ended = true;
            if (life->number != ::getpid()) life->over.store(true);
        }
    };
    ThreadMark mark;
    mark.id_ = ::pthread_self();
    static thread_local bool ended = false; // needs no destructor: may be read after those of the thread have run
    if (ended) {
        mark.life_ = new_shared<const Life>();
        return mark;
    }
    static thread_local Keeper keeper{ended};
    mark.life_ = keeper.life;
    return mark;
}

MEMSAVER_INLINE ThreadMark ThreadMark::here_if_possible() noexcept {
    try {
        return here();
    } catch (const std::bad_alloc&) {
        return {};
    }
}

MEMSAVER_INLINE bool ThreadMark::running() const noexcept { return life_ != nullptr && !life_->over.load(); }

MEMSAVER_INLINE std::string ThreadMark::text() const {
    if (life_ == nullptr) return "no thread";
    return "thread " + std::to_string(life_->number) + (running() ? "" : ", which has ended");
}

} // namespace memsaver::inline v0_3::detail
