// What the benchmarks of several processes share: a place where they meet, and children that do what they are told.
#pragma once

#include <memsaver/memsaver.hpp>
#include <memsaver/share/share.hpp>

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <string>
#include <vector>

namespace processes {

using namespace memsaver;

/// Since a time that is the same in all processes.
inline double milliseconds() {
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

template <class Act>
double timed(Act&& act) {
    const double from = milliseconds();
    act();
    return milliseconds() - from;
}

inline double median(std::vector<double> all) {
    if (all.empty()) return 0;
    std::sort(all.begin(), all.end());
    return all[all.size() / 2];
}

/// The first GPU, or without one a simulated device; and a new folder for the share.
struct Place {
    explicit Place(std::size_t simulated_bytes)
        : gpu{std::filesystem::exists("/dev/nvidiactl")}, bytes{simulated_bytes} {
        char name[] = "/tmp/memsaver-bench-XXXXXX";
        if (::mkdtemp(name) == nullptr) std::exit(2);
        folder = name;
        machine = "bench-" + folder.substr(folder.size() - 6);
    }
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;
    ~Place() {
        std::filesystem::remove_all(folder);
        if (!gpu) (void)device(); // the last one removes the simulated device
    }

    [[nodiscard]] AnyDriver device() const {
        if (gpu) return CudaDriver{0};
        return HostDriver{bytes, {.machine = machine}};
    }

    std::string folder;
    std::string machine;
    bool gpu;
    std::size_t bytes;
};

inline std::size_t free_bytes(const AnyDriver& device) {
    DeviceMemory memory;
    check(device.memory(memory), "query the memory");
    return memory.free_bytes;
}

/// Fills device memory and waits.
inline void fill(const AnyDriver& device, Address at, unsigned char byte, std::size_t bytes) {
    StreamRef stream;
    check(device.open_stream(stream), "open a stream");
    check(device.fill(at, byte, bytes, stream), "fill");
    check(device.drain(), "drain");
    check(device.close_stream(stream), "close a stream");
}

/// Takes all but `rest` bytes of a device, for as long as the process lives.
inline void hold_all_but(const AnyDriver& device, std::size_t rest) {
    for (std::size_t part = 8_GiB; part >= 64_MiB; part /= 2)
        while (free_bytes(device) >= rest + part) {
            PageHandle pages;
            check(device.create(part, pages), "create");
        }
}

/// Pinned host memory, for as long as the process lives.
inline void* pinned(const AnyDriver& device, std::size_t bytes) {
    void* host = nullptr;
    check(device.map_host(bytes, host), "map host memory");
    check(device.populate_host(host, bytes), "allocate host memory");
    check(device.pin_host(host, bytes), "pin host memory");
    return host;
}

/// Runs `body` in a process, which ends with it.
template <class Body>
pid_t start(Body body) {
    (void)std::fflush(stdout);
    const pid_t process = ::fork();
    if (process != 0) return process;
    try {
        body();
    } catch (const std::exception& error) {
        (void)std::fprintf(stderr, "failed: %s\n", error.what());
        ::_exit(1);
    }
    (void)std::fflush(stdout);
    ::_exit(0);
}

inline void kill(pid_t process) {
    (void)::kill(process, SIGKILL);
    (void)::waitpid(process, nullptr, 0);
}

/// Both ends of a conversation between the parent and a child, in whole structures.
struct Wire {
    Wire() {
        if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) std::exit(1);
    }
    int ends[2];
};

struct Command {
    char what = 0;
    int value = 0;
};

struct Answer {
    double began = 0;
    double ended = 0;
    double value = 0;
};

template <class T>
void put(int to, const T& what) {
    if (::write(to, &what, sizeof what) != static_cast<ssize_t>(sizeof what)) std::exit(1);
}

template <class T>
T get(int from) {
    T what;
    if (::recv(from, &what, sizeof what, MSG_WAITALL) != static_cast<ssize_t>(sizeof what)) std::exit(1);
    return what;
}

} // namespace processes
