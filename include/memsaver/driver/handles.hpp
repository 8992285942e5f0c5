// The small values that drivers and programs exchange: addresses, page handles, streams, events, graphs.
// Nothing here owns anything.
#pragma once

#include <cstddef>
#include <cstdint>

struct CUstream_st; // cudaStream_t and CUstream point to it
struct CUevent_st;  // cudaEvent_t and CUevent
struct CUgraphExec_st;
struct CUmemPoolHandle_st; // cudaMemPool_t and CUmemoryPool

namespace memsaver::inline v0_1 {

struct HostStream; // what a HostDriver's streams and events point to
struct HostEvent;
struct HostPool;

/// A device address. On every machine here it is also what a pointer to it holds.
using Address = std::uintptr_t;

/// One physical allocation: a number that only its driver can read.
struct PageHandle {
    std::uint64_t value = 0;
    friend constexpr bool operator==(const PageHandle&, const PageHandle&) = default;
};

/// A stream of work that somebody else owns. Converts from cudaStream_t, CUstream and HostDriver's streams; null, the
/// default, is the device's default stream.
class StreamRef {
public:
    constexpr StreamRef() noexcept = default;
    constexpr StreamRef(std::nullptr_t) noexcept {}
    StreamRef(CUstream_st* stream) noexcept : native_{stream} {}
    StreamRef(HostStream* stream) noexcept : native_{stream} {}

    [[nodiscard]] void* native() const noexcept { return native_; }
    friend bool operator==(const StreamRef&, const StreamRef&) = default;

private:
    void* native_ = nullptr;
};

/// A mark in a stream that somebody else owns. Converts from cudaEvent_t, CUevent and HostDriver's events.
class EventRef {
public:
    constexpr EventRef() noexcept = default;
    EventRef(CUevent_st* event) noexcept : native_{event} {}
    EventRef(HostEvent* event) noexcept : native_{event} {}

    [[nodiscard]] void* native() const noexcept { return native_; }
    [[nodiscard]] explicit operator bool() const noexcept { return native_ != nullptr; }
    friend bool operator==(const EventRef&, const EventRef&) = default;

private:
    void* native_ = nullptr;
};

/// A captured piece of work, ready to be launched, in the hands of its driver.
struct GraphRef {
    void* native = nullptr;
    friend bool operator==(const GraphRef&, const GraphRef&) = default;
};

/// Memory that the machine's own allocators keep: a stream-ordered pool that somebody else owns (converts from
/// cudaMemPool_t and CUmemoryPool), the device's default pool, or what graphs with allocations of their own keep.
class PoolRef {
public:
    constexpr PoolRef() noexcept = default; ///< the device's default pool
    PoolRef(CUmemPoolHandle_st* pool) noexcept : native_{pool} {}
    PoolRef(HostPool* pool) noexcept : native_{pool} {}
    [[nodiscard]] static constexpr PoolRef of_graphs() noexcept {
        PoolRef graphs;
        graphs.graphs_ = true;
        return graphs;
    }

    [[nodiscard]] void* native() const noexcept { return native_; }
    [[nodiscard]] constexpr bool graphs() const noexcept { return graphs_; }
    friend bool operator==(const PoolRef&, const PoolRef&) = default;

private:
    void* native_ = nullptr;
    bool graphs_ = false;
};

/// An open file, in the hands of its driver.
struct FileRef {
    int descriptor = -1;
    bool direct = false; ///< reads and writes bypass the page cache and want multiples of 4096 bytes
    friend constexpr bool operator==(const FileRef&, const FileRef&) = default;
};

/// Which way bytes are copied, seen from the device.
enum class Direction : unsigned char { out, in };

/// How a stream capture treats calls that could wait, as cudaStreamCaptureMode.
enum class CaptureMode : unsigned char { global, thread_local_, relaxed };

/// Physical memory of a whole device, whoever holds it, in bytes.
struct DeviceMemory {
    std::size_t free_bytes = 0;
    std::size_t total_bytes = 0;
};

} // namespace memsaver::inline v0_1
