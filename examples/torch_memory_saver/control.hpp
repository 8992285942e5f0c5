// Pausing from outside the process: a named pipe that accepts commands, and a file that reports their results. Parses
// the commands; the caller executes them.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <utility>

namespace tms {

/// Lives as long as the process, like its thread. Accepts the lines "pause", "pause <tag>", "resume", "resume <tag>".
/// After each, `<path>.state` contains "<number of commands> <the line> <code>"; code 0 is success.
class Control {
public:
    /// Executes a command and returns its code.
    using Act = std::function<int(const std::string& verb, const std::string& tag)>;

    /// Replaces "%p" in a path with the process ID.
    static std::string expand(std::string path) {
        if (const auto at = path.find("%p"); at != std::string::npos) path.replace(at, 2, std::to_string(::getpid()));
        return path;
    }

    /// Returns an empty string on success, otherwise the reason for the failure.
    std::string open(const std::string& path, Act act) {
        path_ = expand(path);
        process_ = ::getpid();
        act_ = std::move(act);
        if (::mkfifo(path_.c_str(), 0600) != 0 && errno != EEXIST) return failure("create");
        // Read-write, so that reads never see end of file.
        const int pipe = ::open(path_.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
        if (pipe < 0) return failure("open");
        struct stat what {};
        if (::fstat(pipe, &what) != 0 || !S_ISFIFO(what.st_mode)) {
            ::close(pipe);
            return "MEMSAVER_CONTROL: " + path_ + " exists and is not a named pipe";
        }
        report("ready", 0);
        // Blocks all signals in the new thread: they are for the program's threads.
        sigset_t all;
        sigset_t before;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        std::string trouble;
        try {
            std::thread{[this, pipe] { serve(pipe); }}.detach();
        } catch (const std::exception& error) { // system error or out of memory
            trouble = std::string{"MEMSAVER_CONTROL: cannot start a thread: "} + error.what();
        }
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
        if (!trouble.empty()) {
            ::close(pipe);
            remove();
        }
        return trouble;
    }
    /// Removes pipe and file at process exit. A no-op in a forked child: both belong to the parent.
    void remove() const noexcept {
        if (process_ != ::getpid()) return;
        ::unlink(path_.c_str());
        ::unlink((path_ + ".state").c_str());
    }

private:
    [[nodiscard]] std::string failure(const char* what) const {
        return std::string{"MEMSAVER_CONTROL: cannot "} + what + ' ' + path_ + ": " + std::strerror(errno);
    }

    void serve(int pipe) {
        std::string pending;
        char bytes[512];
        struct stat opened {};
        if (::fstat(pipe, &opened) != 0) return;
        for (;;) {
            struct stat now {}; // the program may have closed the descriptor, and its number be another file's
            if (::fstat(pipe, &now) != 0 || now.st_dev != opened.st_dev || now.st_ino != opened.st_ino) return;
            const ssize_t count = ::read(pipe, bytes, sizeof bytes);
            if (count < 0 && errno == EINTR) continue;
            if (count <= 0) return;
            pending.append(bytes, static_cast<std::size_t>(count));
            for (auto end = pending.find('\n'); end != std::string::npos; end = pending.find('\n')) {
                const std::string line = pending.substr(0, end);
                pending.erase(0, end + 1);
                const auto space = line.find(' ');
                const std::string tag = space == std::string::npos ? "" : line.substr(space + 1);
                const int code = act_(line.substr(0, space), tag);
                ++done_;
                report(line, code);
            }
        }
    }
    /// Atomic: writes a temporary file and renames it.
    void report(const std::string& line, int code) const {
        const std::string fresh = path_ + ".state.new";
        const int file = ::open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (file < 0) return;
        const std::string text = std::to_string(done_) + ' ' + line + ' ' + std::to_string(code) + '\n';
        const bool whole = ::write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
        ::close(file);
        if (whole) (void)::rename(fresh.c_str(), (path_ + ".state").c_str());
    }

    std::string path_;
    pid_t process_ = 0;
    Act act_;
    unsigned long done_ = 0;
};

} // namespace tms
