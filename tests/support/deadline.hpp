// Runs what may hang in a child process with a deadline.
#pragma once

#include <exception>
#include <functional>
#include <sys/wait.h>
#include <unistd.h>

namespace test {

/// Returns whether `body` returns true in a forked child before the deadline. The caller must have no other thread that
/// could hold a lock that the child needs.
inline bool within_seconds(unsigned seconds, const std::function<bool()>& body) {
    const pid_t child = ::fork();
    if (child == 0) {
        ::alarm(seconds);
        bool good = false;
        try {
            good = body();
        } catch (const std::exception&) {
        }
        ::_exit(good ? 0 : 1);
    }
    int status = 0;
    return child > 0 && ::waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}
} // namespace test
