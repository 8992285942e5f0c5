// Lets the program supply the threads for the library's work.
#pragma once

#include <functional>

namespace memsaver::inline v0_3 {

/// The program's own threads, used instead of the library's.
class Executor {
public:
    Executor& operator=(Executor&&) = delete;
    virtual ~Executor() = default;
    /// Runs `task` once, soon, on any thread. If `submit` throws, the task must not run.
    ///
    /// The executor's own threads may call pause and resume. No thread waits for a task that has not started: a thread
    /// that waits for a transfer that has not started does the work itself. A task that starts late does nothing, even
    /// if the transfer no longer exists.
    virtual void submit(std::function<void()> task) = 0;
};

} // namespace memsaver::inline v0_3
