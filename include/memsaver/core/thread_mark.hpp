// A thread, told apart from later threads that the system gives its id.
#pragma once

#include "memsaver/core/form.hpp"

#include <memory>
#include <pthread.h>
#include <string>

namespace memsaver::inline v0_3::detail {

/// Refers to the thread that made it. A thread's id is reused once it has ended; a mark then refers to no thread any
/// more. Each copy of the library in a process notices the end of a thread on its own, so that marks need no state that
/// copies would have to share. The main thread counts as running for as long as the process does.
class ThreadMark {
public:
    /// Refers to no thread.
    ThreadMark() noexcept = default;
    /// Refers to this thread. May throw bad_alloc, the first time in a thread.
    [[nodiscard]] static ThreadMark here();
    /// As above, but refers to no thread if there is no host memory.
    [[nodiscard]] static ThreadMark here_if_possible() noexcept;

    /// Returns whether the thread has not ended.
    [[nodiscard]] bool running() const noexcept;
    /// Returns whether it is this thread.
    [[nodiscard]] bool is_here() const noexcept { return is(::pthread_self()); }
    /// Returns whether it is the running thread with this id; std::thread::id holds the same.
    [[nodiscard]] bool is(pthread_t thread) const noexcept { return running() && ::pthread_equal(id_, thread) != 0; }
    /// "thread 4711", or "thread 4711, which has ended", with the number that the system's tools show.
    [[nodiscard]] std::string text() const;

    struct Life; ///< of a thread; thread_mark.ipp

private:
    pthread_t id_{};
    std::shared_ptr<const Life> life_{};
};

} // namespace memsaver::inline v0_3::detail

#ifndef MEMSAVER_COMPILED
#include "memsaver/core/thread_mark.ipp"
#endif
