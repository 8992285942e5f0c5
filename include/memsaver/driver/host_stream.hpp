// The parts of a host machine's order: work, streams that run it one after another, marks in them, events, captures and
// graphs. Plain data: the machine's lock guards it, and host_engine.hpp runs it.
#pragma once

#include "memsaver/driver/host_mappings.hpp"
#include "memsaver/driver/host_range.hpp"

#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <thread>
#include <vector>

namespace memsaver::inline v0_1 {

/// A point in a stream: passed when so many pieces of work are complete.
struct HostMark {
    std::shared_ptr<HostStream> stream;
    std::uint64_t position = 0;
};

/// One piece of work, and the device memory that it touches.
struct HostWork {
    enum class Kind : unsigned char { copy_to_host, copy_to_device, fill, kernel, follow };

    Kind kind = Kind::kernel;
    unsigned char byte = 0;
    bool doomed = false; // its memory was unmapped before it ran
    HostRange range;
    void* to_host = nullptr;
    const void* from_host = nullptr;
    std::shared_ptr<std::function<void()>> kernel; // shared with the graphs that replay it
    std::vector<HostMark> marks;                   // of a follow
    std::uint64_t pinned = 0;

    /// What it does with its memory; of a kernel, what it may.
    [[nodiscard]] HostAccess access() const noexcept {
        return kind == Kind::copy_to_host ? HostAccess::read : HostAccess::write;
    }
    /// Whether it ended well: a kernel must not throw.
    [[nodiscard]] bool run() const noexcept {
        void* const device = reinterpret_cast<void*>(range.address);
        switch (kind) {
        case Kind::copy_to_host: std::memcpy(to_host, device, range.bytes); break;
        case Kind::copy_to_device: std::memcpy(device, from_host, range.bytes); break;
        case Kind::fill: std::memset(device, byte, range.bytes); break;
        case Kind::follow: break;
        case Kind::kernel: try { (*kernel)();
            } catch (...) {
                return false;
            }
        }
        return true;
    }
};

/// What was recorded between begin and end of a capture. Streams join it by following an event recorded in it; that
/// they come back before its end is not checked.
struct HostCapture {
    HostStream* origin = nullptr;
    CaptureMode mode = CaptureMode::global;
    std::thread::id thread;
    bool open = true;
    bool broken = false;
    std::vector<HostStream*> streams;
    std::vector<HostWork> calls; // one after another, which is an order that every stream concerned can live with
};

struct HostGraph {
    std::vector<HostWork> calls;
};

/// A queue and the thread that runs it, from the first work on.
struct HostStream {
    static constexpr std::uint64_t all = std::numeric_limits<std::uint64_t>::max();

    std::condition_variable wake;
    std::deque<HostWork> queue; // the first is number `completed` + 1
    std::uint64_t submitted = 0;
    std::uint64_t completed = 0;
    std::uint64_t allowed = all; // up to which number work may start
    bool busy = false;           // the first is running
    bool held = false;
    bool closing = false;
    bool finished = false; // the thread has nothing more to do
    std::shared_ptr<HostCapture> capture;
    std::thread worker;

    [[nodiscard]] bool can_run() const noexcept { return !queue.empty() && !held && completed < allowed; }
    [[nodiscard]] bool copying() const noexcept { return busy && queue.front().kind != HostWork::Kind::kernel; }
};

/// Points in one or more streams; none is passed.
struct HostEvent {
    std::vector<HostMark> marks;
    std::shared_ptr<HostCapture> captured; // recorded in a capture: a node of a graph and no point in time
};

} // namespace memsaver::inline v0_1
