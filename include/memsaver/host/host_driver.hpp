// HostDriver: a simulated GPU in host memory, for tests, for computers without a GPU, and for engines on the CPU.
// Independent of tags, policies and CUDA.
#pragma once

#include "memsaver/core/sizes.hpp"
#include "memsaver/core/time_limit.hpp"
#include "memsaver/driver/concepts.hpp"
#include "memsaver/driver/system.hpp"
#include "memsaver/host/host_options.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {
class HostMachine;
}

/// A simulated device in host memory: stable addresses, pages that are really mapped and released, limited capacity,
/// streams with threads of their own, captures. Device addresses are pointers that the CPU may also use. Touching
/// paused memory is a segmentation fault, preceded by a line on stderr that names the tag
/// (HostDriverOptions::tell_faults).
///
/// The machine is strict. Work on memory without pages or access, and unmapping under unfinished work, lose the
/// machine, as an illegal address loses a CUDA context. Bookkeeping errors that a CUDA driver ignores return an error.
/// All of these are also recorded, see `violations()`. HostDriverOptions has more.
///
/// Copies are cheap, compare equal, and refer to the same machine, which is destroyed with its last copy; work that has
/// not started is then dropped. Everything except construction is thread-safe. A kernel may refer to the driver, but
/// must not own a copy of it: the machine would wait for its own thread to end.
class HostDriver : public detail::SystemMemory {
public:
    /// Creates a machine with `capacity_bytes` of memory, 1 GiB by default. Throws Misuse if the granularity is not a
    /// power of two or less than the system's page size, and Unavailable if the system has no anonymous files.
    explicit HostDriver(std::size_t capacity_bytes = 1_GiB, HostDriverOptions options = {});

    // Not movable: a handle always has its machine.
    HostDriver(const HostDriver&) = default;
    HostDriver& operator=(const HostDriver&) = default;
    ~HostDriver() = default;
    friend bool operator==(const HostDriver& a, const HostDriver& b) noexcept;

    [[nodiscard]] int device() const noexcept;
    [[nodiscard]] std::string name() const;
    /// Device memory is host memory.
    [[nodiscard]] static constexpr bool host_addressable() noexcept { return true; }

    // Pages
    Status granularity(std::size_t& out) const noexcept;
    Status memory(DeviceMemory& out) const noexcept;
    Status reserve(std::size_t bytes, std::size_t alignment, Address& out) const noexcept;
    Status unreserve(Address address, std::size_t bytes) const noexcept;
    Status create(std::size_t bytes, PageHandle& out) const noexcept;
    Status release(PageHandle handle) const noexcept;
    Status map(Address address, std::size_t bytes, PageHandle handle) const noexcept;
    Status unmap(Address address, std::size_t bytes) const noexcept;
    Status allow_access(Address address, std::size_t bytes) const noexcept;

    // Plain memory. Sizes are rounded up to multiples of 512 bytes.
    Status allocate_plain(std::size_t bytes, Address& out) const noexcept;
    Status free_plain(Address address) const noexcept;

    // Streams. The default stream does not synchronize with other streams.
    Status open_stream(StreamRef& out) const noexcept;
    Status close_stream(StreamRef stream) const noexcept;
    Status open_event(StreamRef near, EventRef& out) const noexcept;
    Status close_event(EventRef event) const noexcept;
    Status record(EventRef event, StreamRef stream) const noexcept;
    Status record_device(EventRef event) const noexcept;
    Status follow(StreamRef stream, EventRef event) const noexcept;
    Status query(EventRef event, bool& passed) const noexcept;
    Status wait(EventRef event) const noexcept;
    Status drain() const noexcept;
    Status capturing(StreamRef stream, bool& yes) const noexcept;

    Status lane(Direction direction, StreamRef& out) const noexcept;
    [[nodiscard]] Neighbours* neighbours() const noexcept;
    void name_addresses(Address address, std::size_t bytes, const char* name) const noexcept;

    Status owns_stream(StreamRef stream, bool& yes) const noexcept;
    /// Sets `yes` to whether this machine opened `event` and it has not been closed. Also works on a lost machine.
    Status owns_event(EventRef event, bool& yes) const noexcept;

    // Pools. They contain the memory added by `put_in_pool`.
    Status pool_memory(PoolRef pool, std::size_t& bytes) const noexcept;
    Status trim_pool(PoolRef pool, std::size_t keep) const noexcept;

    // Host pages, in addition to those of SystemMemory. Pinning has no effect here, but its rules are checked.
    Status pin_host(void* pages, std::size_t bytes) const noexcept;
    Status unpin_host(void* pages) const noexcept;

    // Copies. Device memory may be plain or mapped; without access they return HOST_ERROR_INVALID_VALUE.
    Status copy_to_host(void* host, Address from, std::size_t bytes, StreamRef stream) const noexcept;
    Status copy_to_device(Address to, const void* host, std::size_t bytes, StreamRef stream) const noexcept;
    Status reach_peer(Address address, std::size_t bytes) const noexcept;
    Status copy_peer(Address to, Address from, std::size_t bytes, StreamRef stream) const noexcept;
    Status copy_many(Direction direction, const CopyPart* parts, std::size_t count, StreamRef stream) const noexcept;
    /// One end must be accessible device memory and the other pinned, else HOST_ERROR_INVALID_VALUE. The first call
    /// loads the kernel, which waits while the copy engines are stalled.
    Status copy_by_kernel(Address to, Address from, std::size_t bytes, StreamRef stream) const noexcept;
    Status fill(Address to, unsigned char byte, std::size_t bytes, StreamRef stream) const noexcept;

    // Captures. A graph replays its calls one after another.
    Status begin_capture(StreamRef s, CaptureMode mode) const noexcept;
    Status end_capture(StreamRef s, GraphRef& out) const noexcept;
    Status update_graph(StreamRef s, GraphRef& graph) const noexcept;
    Status launch(GraphRef graph, StreamRef stream) const noexcept;
    Status close_graph(GraphRef graph) const noexcept;

    // Gates. Launching a graph that waits for a closed event is a violation.
    Status follow_outside(StreamRef stream, EventRef event) const noexcept;

    // Extensions that a GPU does not have.

    /// Enqueues `kernel` on `stream`. It may access `bytes` at `address` and no other device memory. If that range is
    /// not entirely mapped and accessible when the kernel is due, the kernel does not run, and that is a fault. It must
    /// not throw.
    Status enqueue(StreamRef stream, Address address, std::size_t bytes, std::function<void()> kernel) const noexcept;
    /// Enqueues a kernel that accesses no device memory.
    Status enqueue(StreamRef stream, std::function<void()> kernel) const noexcept;

    /// Waits for the work of `stream`, as cudaStreamSynchronize does: it fails and breaks the capture if the stream is
    /// captured, or another one, unless that capture is relaxed, or thread-local on another thread.
    Status synchronize(StreamRef stream) const noexcept;

    /// Holds back further work of `stream` until `let_go`, or until the stream is closed.
    Status hold(StreamRef stream) const noexcept;
    /// Lets work of `stream` start again.
    Status let_go(StreamRef stream) const noexcept;

    /// Stalls the copy engines for `duration`: copies start later, kernels and fills still run. This exaggerates a GPU
    /// that clears released memory.
    Status stall_copies(const TimeLimit& duration) const noexcept;

    /// Simulates allocations in a stream-ordered pool or in a graph: the pool holds `bytes` of pages (a multiple of the
    /// granularity), which are in use until `free_pool`.
    Status put_in_pool(PoolRef pool, std::size_t bytes) const noexcept;
    /// Frees everything in the pool, which keeps the memory until `trim_pool`.
    Status free_pool(PoolRef pool) const noexcept;

    /// Loses the machine: from now on every call returns `gone`, including calls that release resources. Exceptions are
    /// calls to the system (host pages except pinning, and files), `owns_stream` and `owns_event`. The memory is
    /// released with the last copy of the driver.
    void lose() const noexcept;

    /// Simulates a blocking call of the program (cudaEventQuery, cudaMalloc): breaks open captures and fails, except
    /// for captures that are relaxed, or thread-local on another thread.
    Status call_unrelaxed() const noexcept;

    /// Returns errors so far that a GPU would have reported or silently mishandled, as text. Also works on a lost
    /// machine.
    [[nodiscard]] std::vector<std::string> violations() const;

    /// Returns the counts of live resources. Also works on a lost machine.
    [[nodiscard]] HostCounts counts() const noexcept;

private:
    int device_;
    std::shared_ptr<detail::HostMachine> machine_;
};

static_assert(Driver<HostDriver> && Plain<HostDriver> && Captures<HostDriver> && Gates<HostDriver>);

static_assert(Trims<HostDriver> && StreamOwners<HostDriver> && Named<HostDriver>);

static_assert(KernelCopies<HostDriver> && Lanes<HostDriver> && HostPages<HostDriver> && Files<HostDriver>);

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/host/host_driver.ipp"
#endif
