// Threads of the program's for the library's work.
#pragma once

#include "memsaver/core/form.hpp"

#include <functional>

namespace memsaver::inline v0_2 {

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

} // namespace memsaver::inline v0_2
