// Measures how much of a device's memory is in use, through a second process. Does not use CUDA.
#pragma once

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <mutex>
#include <stdexcept>
#include <string>

namespace engine {

/// Construct it before anything touches the device, so that its first reading is the memory of others. Thread-safe.
class DeviceMeter {
public:
    explicit DeviceMeter(int device) {
        std::array<int, 2> ends{};
        if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0)
            throw std::runtime_error{"cannot create a socket for the measuring process"};
        const std::string number = std::to_string(device);
        process_ = ::fork();
        if (process_ == 0) {
            (void)::dup2(ends[1], STDIN_FILENO); // exec does not close these two
            (void)::dup2(ends[1], STDOUT_FILENO);
            ::execl("/proc/self/exe", "engine_bench", "--watch", "--device", number.c_str(),
                    static_cast<char*>(nullptr));
            ::_exit(127);
        }
        (void)::close(ends[1]);
        socket_ = ends[0];
        if (process_ < 0) {
            (void)::close(socket_);
            throw std::runtime_error{"cannot start the measuring process"};
        }
        source_ = read_line();
    }
    DeviceMeter(const DeviceMeter&) = delete;
    DeviceMeter& operator=(const DeviceMeter&) = delete;
    ~DeviceMeter() {
        (void)::close(socket_); // the process ends when its input is closed
        while (::waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
        }
    }

    /// Returns the bytes in use on the whole device, by any process.
    [[nodiscard]] unsigned long long used_bytes() { return ask().used; }
    [[nodiscard]] unsigned long long total_bytes() { return ask().total; }
    /// Returns "nvml", "a context of its own", or "none" if it cannot measure.
    [[nodiscard]] const std::string& source() const noexcept { return source_; }

private:
    struct Answer {
        unsigned long long used = 0;
        unsigned long long total = 0;
    };

    Answer ask() {
        const std::lock_guard lock{mutex_};
        Answer answer;
        if (::send(socket_, "?", 1, MSG_NOSIGNAL) != 1) throw std::runtime_error{"the measuring process has ended"};
        if (std::sscanf(read_line().c_str(), "%llu %llu", &answer.used, &answer.total) != 2)
            throw std::runtime_error{"the measuring process sent no valid reply"};
        return answer;
    }
    std::string read_line() {
        std::string line;
        for (char c = 0; ::read(socket_, &c, 1) == 1 && c != '\n';) line += c;
        return line;
    }

    std::mutex mutex_;
    int process_ = -1;
    int socket_ = -1;
    std::string source_;
};

} // namespace engine
