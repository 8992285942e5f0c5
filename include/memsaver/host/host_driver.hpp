// HostDriver: the handle of a simulated GPU in host memory, for tests, for computers without a GPU, and for engines on
// the CPU. Independent of tags, policies and CUDA.
#pragma once

#include "memsaver/core/sizes.hpp"
#include "memsaver/core/time_limit.hpp"
#include "memsaver/driver/any_driver.hpp"
#include "memsaver/host/host_options.hpp"

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {
class HostMachine;
}

/// A simulated device in host memory: stable addresses, pages that are really mapped and released, limited capacity,
/// streams with threads of their own, captures. Device addresses are pointers that the CPU may also use. Touching
/// paused memory is a segmentation fault.
///
/// The machine is strict. Work on memory without pages or access, and unmapping under unfinished work, lose the
/// machine, as an illegal address loses a CUDA context. Bookkeeping errors that a CUDA driver ignores return an error.
/// All of these are also recorded, see `violations()`. HostDriverOptions has more.
///
/// Copies are cheap, compare equal, and refer to the same machine, which is destroyed with its last copy; work that has
/// not started is then dropped. Everything except construction is thread-safe. A kernel may refer to the driver, but
/// must not own a copy of it: the machine would wait for its own thread to end.
class HostDriver : public AnyDriver {
public:
    /// Creates a machine with `capacity_bytes` of memory, 1 GiB by default. Throws Misuse if the granularity is not a
    /// power of two or less than the system's page size, and Unavailable if the system has no anonymous files.
    explicit HostDriver(std::size_t capacity_bytes = 1_GiB, HostDriverOptions options = {});

    /// The driver as a HostDriver, if its machine is one; see AnyDriver::as.
    [[nodiscard]] static std::optional<HostDriver> from(const AnyDriver& driver);

    // What a GPU does not have.

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
    explicit HostDriver(const AnyDriver& driver) : AnyDriver{driver} {}
    [[nodiscard]] detail::HostMachine& host() const noexcept;
};

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/host/host_driver.ipp"
#endif
