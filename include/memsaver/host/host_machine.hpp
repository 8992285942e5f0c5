// The machine of a HostDriver: the calls, on its engine and its memory.
#pragma once

#include "memsaver/core/function_ref.hpp"
#include "memsaver/core/time_limit.hpp"
#include "memsaver/driver/device.hpp"
#include "memsaver/driver/fork_check.hpp"
#include "memsaver/driver/neighbours.hpp"
#include "memsaver/host/host_engine.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {

/// See HostDriver.
class HostMachine final : public Device {
public:
    HostMachine(std::size_t capacity, const HostDriverOptions& options)
        : device_{options.device}, machine_{options.machine.text()}, pins_{options.pin_limit}, engine_{capacity,
                                                                                                       options} {}

    /// Throws what HostDriver's constructor throws.
    static std::shared_ptr<HostMachine> make(std::size_t capacity, const HostDriverOptions& options);

    [[nodiscard]] int device() const noexcept override { return device_; }
    [[nodiscard]] MEMSAVER_INLINE std::string name() const override;
    MEMSAVER_INLINE Status identity(std::string& text) const noexcept override;
    [[nodiscard]] MEMSAVER_INLINE Features features() const noexcept override;
    [[nodiscard]] Neighbours* neighbours() noexcept override { return &neighbours_; }
    MEMSAVER_INLINE void name_addresses(Address address, std::size_t bytes, const char* name) noexcept override;

    MEMSAVER_INLINE Status granularity(std::size_t& bytes) noexcept override;
    MEMSAVER_INLINE Status memory(DeviceMemory& memory) noexcept override;
    MEMSAVER_INLINE Status reserve(std::size_t bytes, std::size_t alignment, Address& address) noexcept override;
    MEMSAVER_INLINE Status unreserve(Address address, std::size_t bytes) noexcept override;
    MEMSAVER_INLINE Status create(std::size_t bytes, PageHandle& pages) noexcept override;
    MEMSAVER_INLINE Status release(PageHandle pages) noexcept override;
    MEMSAVER_INLINE Status create_shared(std::size_t bytes, PageHandle& pages) noexcept override;
    MEMSAVER_INLINE Status export_pages(PageHandle pages, int& descriptor) noexcept override;
    MEMSAVER_INLINE Status import_pages(int descriptor, PageHandle& pages) noexcept override;
    MEMSAVER_INLINE Status map(Address address, std::size_t bytes, PageHandle pages) noexcept override;
    MEMSAVER_INLINE Status unmap(Address address, std::size_t bytes) noexcept override;
    MEMSAVER_INLINE Status allow_access(Address address, std::size_t bytes, Rights rights) noexcept override;

    MEMSAVER_INLINE Status open_stream(StreamRef& out) noexcept override;
    MEMSAVER_INLINE Status close_stream(StreamRef ref) noexcept override;
    MEMSAVER_INLINE Status open_event(StreamRef near, EventRef& out) noexcept override;
    MEMSAVER_INLINE Status close_event(EventRef ref) noexcept override;
    MEMSAVER_INLINE Status record(EventRef ref, StreamRef stream_ref) noexcept override;
    MEMSAVER_INLINE Status record_device(EventRef ref) noexcept override;
    MEMSAVER_INLINE Status follow(StreamRef stream_ref, EventRef ref) noexcept override;
    MEMSAVER_INLINE Status query(EventRef ref, bool& passed) noexcept override;
    MEMSAVER_INLINE Status wait(EventRef ref) noexcept override;
    MEMSAVER_INLINE Status drain() noexcept override;
    MEMSAVER_INLINE Status capturing(StreamRef ref, bool& yes) noexcept override;
    /// The first call opens it; it does not count as an open stream.
    MEMSAVER_INLINE Status lane(Direction direction, StreamRef& out) noexcept override;
    /// Never a violation; also works on a lost machine, as the next one.
    MEMSAVER_INLINE Status owns_stream(StreamRef stream, bool& yes) noexcept override;
    /// Whether this machine opened `event` and it has not been closed.
    MEMSAVER_INLINE Status owns_event(EventRef event, bool& yes) noexcept override;

    MEMSAVER_INLINE Status copy_to_host(void* host, Address from, std::size_t bytes, StreamRef) noexcept override;
    MEMSAVER_INLINE Status copy_to_device(Address to, const void*, std::size_t bytes, StreamRef) noexcept override;
    MEMSAVER_INLINE Status fill(Address to, unsigned char byte, std::size_t bytes, StreamRef) noexcept override;
    MEMSAVER_INLINE Status reach_peer(Address address, std::size_t bytes) noexcept override;
    MEMSAVER_INLINE Status copy_peer(Address to, Address from, std::size_t bytes, StreamRef) noexcept override;
    MEMSAVER_INLINE Status copy_many(Direction, const CopyPart* parts, std::size_t count, StreamRef) noexcept override;
    /// One end must be accessible device memory and the other pinned, else HOST_ERROR_INVALID_VALUE. The first call
    /// loads the kernel, which waits while the copy engines are stalled.
    MEMSAVER_INLINE Status copy_by_kernel(Address to, Address from, std::size_t bytes, StreamRef) noexcept override;
    MEMSAVER_INLINE Status run_kernel(const KernelRun& run, StreamRef stream) noexcept override;

    MEMSAVER_INLINE Status allocate_plain(std::size_t bytes, Address& out) noexcept override;
    MEMSAVER_INLINE Status free_plain(Address address) noexcept override;

    MEMSAVER_INLINE Status begin_capture(StreamRef ref, CaptureMode mode) noexcept override;
    MEMSAVER_INLINE Status end_capture(StreamRef ref, GraphRef& out) noexcept override;
    MEMSAVER_INLINE Status update_graph(StreamRef ref, GraphRef& graph) noexcept override;
    MEMSAVER_INLINE Status launch(GraphRef ref, StreamRef stream_ref) noexcept override;
    MEMSAVER_INLINE Status close_graph(GraphRef ref) noexcept override;
    /// Launching a graph that waits for a closed event is a violation.
    MEMSAVER_INLINE Status follow_outside(StreamRef stream_ref, EventRef ref) noexcept override;

    MEMSAVER_INLINE Status pool_memory(PoolRef pool, std::size_t& bytes) noexcept override;
    MEMSAVER_INLINE Status trim_pool(PoolRef pool, std::size_t keep) noexcept override;
    /// Pinning has no effect here, but its rules are checked.
    MEMSAVER_INLINE Status pin_host(void* pages, std::size_t bytes) noexcept override;
    MEMSAVER_INLINE Status unpin_host(void* pages) noexcept override;

    // What only a simulated machine has; see HostDriver.

    Status enqueue(StreamRef stream, HostRange range, std::function<void()> kernel) noexcept;
    Status synchronize(StreamRef ref) noexcept;
    Status hold(StreamRef ref, bool yes) noexcept;
    Status stall_copies(const TimeLimit& duration) noexcept;
    Status put_in_pool(PoolRef pool, std::size_t bytes) noexcept;
    Status free_pool(PoolRef pool) noexcept;
    void lose() noexcept { engine_.lose(); }
    Status call_unrelaxed() noexcept;
    std::vector<std::string> violations();
    HostCounts counts() noexcept;

private:
    Status stranger(const char* what) noexcept;

    template <class F>
    Status with_stream(StreamRef ref, F f) noexcept {
        return engine_.guarded([&](auto&) {
            const std::shared_ptr<HostStream> stream = engine_.find(ref.native());
            return stream == nullptr ? stranger("use of a stream that does not exist") : f(stream);
        });
    }

    template <class F>
    Status with_event(EventRef ref, StreamRef stream_ref, F f) noexcept {
        return with_stream(stream_ref, [&](const auto& stream) {
            const auto found = events_.find(ref.native());
            return found == events_.end() ? stranger("use of a CUDA event that does not exist")
                                          : f(found->second, stream);
        });
    }

    /// Ends a capture and calls `keep(recorded)` unless it was broken. If `keep` throws, the capture stays open.
    template <class Keep>
    Status finish_capture(StreamRef ref, Keep keep) noexcept {
        std::vector<HostWork> recorded; // what remains of it is destroyed after the lock is released
        return with_stream(ref, [&](const auto& stream) {
            if (const Status status = HostCaptures::may_end(*stream); !status.ok()) return status;
            const std::shared_ptr<HostCapture> capture = stream->capture;
            if (!capture->broken) keep(capture->calls);
            recorded = std::move(capture->calls);
            captures_.end(*capture);
            return capture->broken ? HostStatus::capture_invalidated : HostStatus::ok;
        });
    }

    /// Calls `f(memory)` under the lock.
    Status with_memory(FunctionRef<Status(HostMemory&)> f) noexcept;
    /// Simulates loading a kernel: the first call waits while the copy engines are stalled, because they transfer the
    /// kernel to the device.
    void load_kernel() noexcept;
    /// Enqueues or records `work`. If `checked`, as for copies and fills, its memory must be accessible now, as with
    /// CUDA. Memory of kernels and graphs is checked when they run.
    Status submit(StreamRef ref, HostWork work, bool checked) noexcept;
    void put(HostStream& stream, HostWork work);

    const ForkCheck fork_;
    int device_;
    std::string machine_; // its name, if it has one
    HostPins pins_;
    HostPools pools_; // guarded by the engine's lock
    Neighbours neighbours_;
    HostEngine engine_;
    std::unordered_map<const void*, std::shared_ptr<HostEvent>> events_;
    HostGraphs graphs_;
    HostCaptures captures_;
    StreamRef lanes_[2];
    std::atomic<bool> kernel_loaded_{false};
};

} // namespace detail

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/host/host_machine.ipp"
#endif
