// HostDriver: a GPU's machine in host memory, for tests, for computers without a GPU, and for engines on the CPU.
// Does not know tags, policies or CUDA.
#pragma once

#include "memsaver/core/sizes.hpp"
#include "memsaver/driver/concepts.hpp"
#include "memsaver/driver/system_memory.hpp"
#include "memsaver/host/host_options.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace memsaver::inline v0_2 {

namespace detail {
class HostMachine;
}

/// A machine in host memory: addresses that stay, pages that really come and go, a capacity that runs out, streams that
/// run late on threads of their own, captures. Device addresses are pointers that the CPU may use as well; touching
/// paused memory is a segmentation fault, before which a line on stderr names the tag (HostDriverOptions::tell_faults).
///
/// It is not polite. Work on memory without pages or access, and unmapping under unfinished work, lose the machine as
/// an illegal address loses a CUDA context. Errors of bookkeeping that a CUDA driver lets pass are answered with an
/// error. All of these are also noted, see `violations()`. HostDriverOptions has more.
///
/// Copies are cheap, equal, and name the same machine, which ends with its last copy; work that has not begun by then
/// is dropped. Everything but construction is safe to call from any thread. A kernel may refer to the driver, but must
/// not own a copy of it: the machine would wait for its own thread to end.
class HostDriver : public detail::SystemMemory {
public:
    /// A machine with `capacity_bytes` of memory, 1 GiB unless told otherwise. Throws Misuse if the granularity is not
    /// a power of two or less than the system's page, and Unavailable if the system has no anonymous files.
    explicit HostDriver(std::size_t capacity_bytes = 1_GiB, HostDriverOptions options = {});

    // No move: a handle always has its machine.
    HostDriver(const HostDriver&) = default;
    HostDriver& operator=(const HostDriver&) = default;
    ~HostDriver() = default;
    friend bool operator==(const HostDriver& a, const HostDriver& b) noexcept;

    [[nodiscard]] int device() const noexcept;
    [[nodiscard]] std::string name() const;
    /// The device's memory is the host's own.
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

    // Plain. Counted in multiples of 512 bytes.
    Status allocate_plain(std::size_t bytes, Address& out) const noexcept;
    Status free_plain(Address address) const noexcept;

    // Streams. The default stream is one more stream and waits for no other.
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
    /// `yes`: whether this machine opened `event`, and it is not closed. Also on a lost machine.
    Status owns_event(EventRef event, bool& yes) const noexcept;

    // Pools: they hold what `put_in_pool` put there.
    Status pool_memory(PoolRef pool, std::size_t& bytes) const noexcept;
    Status trim_pool(PoolRef pool, std::size_t keep) const noexcept;

    // Host pages, but for what is the system's. Pinning changes nothing here; its rules are kept all the same.
    Status pin_host(void* pages, std::size_t bytes) const noexcept;
    Status unpin_host(void* pages) const noexcept;

    // Copies. Both may be plain or mapped device memory; without access they answer HOST_ERROR_INVALID_VALUE.
    Status copy_to_host(void* host, Address from, std::size_t bytes, StreamRef stream) const noexcept;
    Status copy_to_device(Address to, const void* host, std::size_t bytes, StreamRef stream) const noexcept;
    Status reach_peer(Address address, std::size_t bytes) const noexcept;
    Status copy_peer(Address to, Address from, std::size_t bytes, StreamRef stream) const noexcept;
    Status copy_many(Direction direction, const CopyPart* parts, std::size_t count, StreamRef stream) const noexcept;
    /// One end is device memory with access, the other pinned: else HOST_ERROR_INVALID_VALUE. The kernel is loaded
    /// once, which waits while the copy engines stand still.
    Status copy_by_kernel(Address to, Address from, std::size_t bytes, StreamRef stream) const noexcept;
    Status fill(Address to, unsigned char byte, std::size_t bytes, StreamRef stream) const noexcept;

    // Captures. A graph is its calls one after another.
    Status begin_capture(StreamRef s, CaptureMode mode) const noexcept;
    Status end_capture(StreamRef s, GraphRef& out) const noexcept;
    Status update_graph(StreamRef s, GraphRef& graph) const noexcept;
    Status launch(GraphRef graph, StreamRef stream) const noexcept;
    Status close_graph(GraphRef graph) const noexcept;

    // Gates. A launch of a graph that waits for an event which has been closed is noted as a violation. A word must lie
    // in pinned pages.
    Status follow_outside(StreamRef stream, EventRef event) const noexcept;
    Status wait_word(StreamRef stream, const std::atomic<std::uint32_t>& word, std::uint32_t value) const noexcept;

    // What a GPU does not have.

    /// Runs `kernel` in the order of `stream`. It may touch the `bytes` at `address` and no other device memory; were
    /// they not all mapped and accessible when its turn comes, it does not run and that is a fault. It must not throw.
    Status enqueue(StreamRef stream, Address address, std::size_t bytes, std::function<void()> kernel) const noexcept;
    /// The same for a kernel that touches no device memory.
    Status enqueue(StreamRef stream, std::function<void()> kernel) const noexcept;

    /// No further work of `stream` starts until `let_go`, or until the stream is closed.
    Status hold(StreamRef stream) const noexcept;
    /// Work of `stream` starts again as it may.
    Status let_go(StreamRef stream) const noexcept;

    /// The copy engines stand still for `duration`, more than a GPU's do while it clears memory that was given back:
    /// copies begin later, kernels and fills run.
    Status stall_copies(std::chrono::nanoseconds duration) const noexcept;

    /// Stands for allocations in a stream-ordered pool or in a graph: `bytes` of pages (a multiple of the granularity)
    /// that it holds, in use until `free_pool`.
    Status put_in_pool(PoolRef pool, std::size_t bytes) const noexcept;
    /// Everything in the pool is freed, and kept until `trim_pool`.
    Status free_pool(PoolRef pool) const noexcept;

    /// Loses the machine: from here on every call answers `gone`, also those that give back. Not so what is the
    /// system's (host pages, but for pinning, and files), and `owns_stream` and `owns_event`. Its memory goes with the
    /// last copy of the driver.
    void lose() const noexcept;

    /// What a program's own call that may wait (cudaEventQuery, cudaMalloc) does to captures that are open: breaks
    /// them and fails, unless they are relaxed, or thread-local and of another thread.
    Status call_unrelaxed() const noexcept;

    /// What a GPU would have punished or silently got wrong so far, as text. Also on a lost machine.
    [[nodiscard]] std::vector<std::string> violations() const;

    /// What is live now. Also on a lost machine.
    [[nodiscard]] HostCounts counts() const noexcept;

private:
    int device_;
    std::shared_ptr<detail::HostMachine> machine_;
};

static_assert(Driver<HostDriver> && Plain<HostDriver> && Captures<HostDriver> && Gates<HostDriver>);

static_assert(Trims<HostDriver> && StreamOwners<HostDriver> && Named<HostDriver>);

static_assert(KernelCopies<HostDriver> && Lanes<HostDriver> && HostPages<HostDriver> && Files<HostDriver>);

} // namespace memsaver::inline v0_2

#ifndef MEMSAVER_COMPILED
#include "memsaver/host/host_driver.ipp"
#endif
