// The small values that drivers and programs exchange: addresses, page handles, streams, events, graphs. None of them
// owns a resource.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

struct CUstream_st; // cudaStream_t and CUstream point to it
struct CUevent_st;  // cudaEvent_t and CUevent
struct CUgraphExec_st;
struct CUmemPoolHandle_st; // cudaMemPool_t and CUmemoryPool

namespace memsaver::inline v0_3 {

struct HostStream; // the targets of a HostDriver's stream and event pointers
struct HostEvent;
struct HostPool;

/// A device address. On every supported machine it is also the value of a pointer to that memory.
using Address = std::uintptr_t;

/// One physical allocation: a number that only its driver can interpret.
struct PageHandle {
    std::uint64_t value = 0;
    friend constexpr bool operator==(const PageHandle&, const PageHandle&) = default;
};

/// A non-owning reference to a stream. Converts from cudaStream_t, CUstream, HostDriver's streams, and classes that
/// convert to the first. The default value, written `nullptr`, is the device's default stream. void* does not convert,
/// because a pointer to memory would then be accepted as a stream.
class StreamRef {
public:
    constexpr StreamRef() noexcept = default;
    constexpr StreamRef(std::nullptr_t) noexcept {}
    template <class S>
    requires(std::same_as<S, CUstream_st*> || std::same_as<S, HostStream*>) StreamRef(S stream)
    noexcept : native_{stream} {}
    template <class S>
    requires(!std::is_pointer_v<S> && std::convertible_to<const S&, CUstream_st*>) StreamRef(const S& stream)
    noexcept : native_{static_cast<CUstream_st*>(stream)} {}
    /// For callers that hold a stream as an untyped pointer, as C interfaces do.
    [[nodiscard]] static StreamRef from_native(void* stream) noexcept {
        StreamRef made;
        made.native_ = stream;
        return made;
    }

    /// The pointer that it was made from; null for the default stream.
    [[nodiscard]] void* native() const noexcept { return native_; }
    /// Returns whether it is CUDA's per-thread default stream (cudaStreamPerThread): one handle that names a different
    /// stream in each thread.
    [[nodiscard]] bool per_thread() const noexcept { return reinterpret_cast<std::uintptr_t>(native_) == 2; }
    friend bool operator==(const StreamRef&, const StreamRef&) = default;

private:
    void* native_ = nullptr;
};

/// A non-owning reference to an event. Converts from cudaEvent_t, CUevent and HostDriver's events.
class EventRef {
public:
    constexpr EventRef() noexcept = default;
    EventRef(CUevent_st* event) noexcept : native_{event} {}
    EventRef(HostEvent* event) noexcept : native_{event} {}

    /// The pointer that it was made from; null for no event.
    [[nodiscard]] void* native() const noexcept { return native_; }
    [[nodiscard]] explicit operator bool() const noexcept { return native_ != nullptr; }
    friend bool operator==(const EventRef&, const EventRef&) = default;

private:
    void* native_ = nullptr;
};

/// A captured graph that is ready to be launched; its driver owns it.
struct GraphRef {
    void* native = nullptr;
    friend bool operator==(const GraphRef&, const GraphRef&) = default;
};

/// A non-owning reference to memory kept by the machine's own allocators: a stream-ordered pool (converts from
/// cudaMemPool_t and CUmemoryPool), the device's default pool, or the memory kept by graphs with allocations of their
/// own.
class PoolRef {
public:
    constexpr PoolRef() noexcept = default; ///< the device's default pool
    PoolRef(CUmemPoolHandle_st* pool) noexcept : native_{pool} {}
    PoolRef(HostPool* pool) noexcept : native_{pool} {}
    /// The device memory that graphs with allocations of their own keep between launches.
    [[nodiscard]] static constexpr PoolRef of_graphs() noexcept {
        PoolRef graphs;
        graphs.graphs_ = true;
        return graphs;
    }

    /// The pointer that it was made from; null for the default pool and for graph memory.
    [[nodiscard]] void* native() const noexcept { return native_; }
    /// Returns whether it was made by `of_graphs()`.
    [[nodiscard]] constexpr bool graphs() const noexcept { return graphs_; }
    friend bool operator==(const PoolRef&, const PoolRef&) = default;

private:
    void* native_ = nullptr;
    bool graphs_ = false;
};

/// An open file descriptor; its driver owns it.
struct FileRef {
    int descriptor = -1;
    bool direct = false; ///< reads and writes bypass the page cache and require multiples of 4096 bytes
    // Which file it was when it was opened, if the driver says: a program may close a descriptor behind the library's
    // back, and the system then gives its number to another file.
    std::uint64_t device = 0;
    std::uint64_t inode = 0;
    std::int64_t made = 0; ///< time of its creation, in nanoseconds since 1970: the number of an inode is used again
    bool unnamed = false;  ///< it has no name in any directory, and will have none
    friend constexpr bool operator==(const FileRef&, const FileRef&) = default;
};

/// Identifies a version of a file: another file, or a change to this one, differs in at least one field.
struct FileFacts {
    std::uint64_t device = 0; ///< of the file system
    std::uint64_t inode = 0;
    std::uint64_t bytes = 0;
    std::int64_t changed = 0; ///< time of the last change of its bytes, in nanoseconds since 1970
    friend constexpr bool operator==(const FileFacts&, const FileFacts&) = default;
};

/// The direction of a copy, seen from the device.
enum class Direction : unsigned char { out, in };

/// What a device may do with mapped memory.
enum class Rights : unsigned char { read_write, read };

/// How a stream capture treats calls that could wait; see cudaStreamCaptureMode.
enum class CaptureMode : unsigned char { global, thread_local_, relaxed };

/// Physical memory of a whole device, whoever holds it, in bytes.
struct DeviceMemory {
    std::size_t free_bytes = 0;
    std::size_t total_bytes = 0;
};

/// A range of device addresses: `bytes` bytes starting at `address`.
struct Range {
    Address address = 0;
    std::size_t bytes = 0;

    /// The first address after the range.
    [[nodiscard]] constexpr Address end() const noexcept { return address + bytes; }
    friend constexpr bool operator==(const Range&, const Range&) = default;
};

/// One of several copies. Addresses are device or host addresses.
struct CopyPart {
    Address to = 0;
    Address from = 0;
    std::size_t bytes = 0;
};

/// Returns whether two ranges have a byte in common.
[[nodiscard]] constexpr bool overlap(const Range& a, const Range& b) noexcept {
    return a.address < b.end() && b.address < a.end();
}

} // namespace memsaver::inline v0_3
