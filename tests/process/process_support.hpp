// A child process that runs one function, its exit status, and a check that calls on its parent's saver are refused.
// Limits of a process.
#pragma once

#include "memsaver/core/error.hpp"

#include <csignal>
#include <cstdlib>
#include <doctest/doctest.h>
#include <exception>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <sys/resource.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <system_error>
#include <type_traits>
#include <unistd.h>
#include <utility>

namespace process_test {

/// Runs `body` in a forked child, which exits with the returned code, or 0; captures its standard error.
struct Child {
    template <class F>
    explicit Child(F body) {
        REQUIRE(::pipe(pipe_) == 0);
        pid_ = ::fork();
        REQUIRE(pid_ >= 0);
        if (pid_ != 0) {
            (void)::close(pipe_[1]);
            return;
        }
        (void)::dup2(pipe_[1], STDERR_FILENO);
        int code = 125;
        try {
            if constexpr (std::is_void_v<std::invoke_result_t<F&>>)
                body(), code = 0;
            else
                code = body();
        } catch (const std::exception& error) {
            (void)!::write(STDERR_FILENO, error.what(), std::string{error.what()}.size());
        }
        ::_exit(code);
    }
    ~Child() {
        if (pid_ > 0 && std::uncaught_exceptions() != 0) (void)::kill(pid_, SIGKILL); // may wait to be told more
        if (pid_ > 0) (void)wait();
        (void)::close(pipe_[0]);
    }

    [[nodiscard]] pid_t pid() const { return pid_; }
    void kill(int signal) const { REQUIRE(::kill(pid_, signal) == 0); }

    /// Stops it, and waits until each of its threads stands: none is in the middle of something that others wait for.
    void stop() const {
        kill(SIGSTOP);
        int status = 0;
        REQUIRE(::waitpid(pid_, &status, WUNTRACED) == pid_);
        REQUIRE(WIFSTOPPED(status));
    }

    /// Ends it, and waits until it has ended.
    void kill_now() {
        kill(SIGKILL);
        CHECK(wait() == -SIGKILL);
    }

    /// Returns the next byte of its standard error, or -1 once it has ended.
    [[nodiscard]] int next() const {
        unsigned char byte = 0;
        return ::read(pipe_[0], &byte, 1) == 1 ? byte : -1;
    }
    /// Returns the rest of its standard error, until it ends.
    [[nodiscard]] std::string rest() const {
        std::string text;
        for (int byte = next(); byte >= 0; byte = next()) text.push_back(static_cast<char>(byte));
        return text;
    }
    /// Returns its exit code, or minus the signal that ended it.
    int wait() {
        int status = 0;
        REQUIRE(::waitpid(pid_, &status, 0) == pid_);
        pid_ = 0;
        return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    }
    /// Returns both, as in "text0".
    std::string outcome() {
        const std::string text = rest();
        return text + std::to_string(wait());
    }

private:
    int pipe_[2]{};
    pid_t pid_ = 0;
};

/// In a child: tells its parent that it has come so far; see Child::next.
inline void say(char byte) { (void)!::write(STDERR_FILENO, &byte, 1); }

/// A child that has said so.
struct Ready : Child {
    template <class F>
    explicit Ready(F body, char said = 'r') : Child{std::move(body)} {
        REQUIRE(next() == said);
    }
};

[[noreturn]] inline void wait_to_be_killed() {
    for (;;) (void)::pause();
}

/// In a child: tells its parent that it has come so far, and lives on.
[[noreturn]] inline void stay(char byte = 'r') {
    say(byte);
    wait_to_be_killed();
}

/// Returns whether `body` returns true in a child before a deadline. The caller must have no other thread that could
/// hold a lock that the child needs.
template <class F>
bool within_seconds(unsigned seconds, F body) {
    Child child{[&] {
        (void)::alarm(seconds);
        return body() ? 0 : 1;
    }};
    return child.wait() == 0;
}

/// The descriptors of a process, and what each is open to.
inline std::map<int, std::string> descriptors(pid_t process = ::getpid()) {
    std::map<int, std::string> found;
    for (const auto& each : std::filesystem::directory_iterator{"/proc/" + std::to_string(process) + "/fd"}) {
        std::error_code closed; // in the meantime
        const std::string target = std::filesystem::read_symlink(each.path(), closed).string();
        if (!closed) found.emplace(std::stoi(each.path().filename().string()), target);
    }
    return found;
}

/// Sets a limit of this process (ulimit). Returns what it was.
inline std::size_t set_limit(decltype(RLIMIT_AS) which, std::size_t most) {
    rlimit limit{};
    (void)::getrlimit(which, &limit);
    const std::size_t before = std::exchange(limit.rlim_cur, most);
    (void)::setrlimit(which, &limit);
    return before;
}

/// Another limit for as long as it lives.
struct Limit {
    Limit(decltype(RLIMIT_AS) which, std::size_t most) : which_{which}, before_{set_limit(which, most)} {}
    Limit(const Limit&) = delete;
    ~Limit() { (void)set_limit(which_, before_); }

private:
    decltype(RLIMIT_AS) which_;
    std::size_t before_;
};

/// Returns whether `use` is refused as a child's use of its parent's saver.
inline bool refused(const std::function<void()>& use) {
    try {
        use();
    } catch (const memsaver::Misuse& error) {
        return std::string{error.what()}.find("forked") != std::string::npos;
    }
    return false;
}
} // namespace process_test
