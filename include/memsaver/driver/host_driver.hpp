// HostDriver: a GPU's machine in host memory, for tests, for computers without a GPU, and for engines on the CPU.
// This is the handle; host_machine.hpp is the machine. Does not know tags, policies or CUDA.
#pragma once

#include "memsaver/driver/concepts.hpp"
#include "memsaver/driver/host_machine.hpp"
#include "memsaver/driver/host_options.hpp"
#include "memsaver/driver/host_pins.hpp"
#include "memsaver/driver/host_pools.hpp"
#include "memsaver/driver/system_memory.hpp"

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace memsaver::inline v0_1 {

/// A machine in host memory: addresses that stay, pages that really come and go, a capacity that runs out, streams that
/// run late on threads of their own, captures. Device addresses are pointers that the CPU may use as well; touching
/// paused memory is a segmentation fault.
///
/// It is not polite. Work on memory without pages or access, and unmapping under unfinished work, lose the machine as
/// an illegal address loses a CUDA context. Errors of bookkeeping that a CUDA driver lets pass are answered with an
/// error. All of these are also noted, see `violations()`. HostDriverOptions has more.
///
/// Copies are cheap, equal, and name the same machine, which ends with its last copy; work that has not begun by then
/// is dropped. Everything but construction is safe to call from any thread. A kernel may refer to the driver, but must
/// not own a copy of it: the machine would wait for its own thread to end.
class HostDriver : public SystemMemory {
public:
    /// A machine with `capacity_bytes` of memory. Throws Misuse if the granularity is not a power of two or less than
    /// the system's page, and Unavailable if the system has no anonymous files.
    explicit HostDriver(std::size_t capacity_bytes, HostDriverOptions options = {}) : device_{options.device} {
        const std::size_t unit = options.granularity;
        if ((unit & (unit - 1)) != 0 || unit < static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)))
            throw Misuse{"HostDriver: granularity of " + format_bytes(unit) +
                         " is not a power of two of at least the system's page"};
        machine_ = std::make_shared<HostMachine>(capacity_bytes, options);
        pins_ = std::make_shared<HostPins>(options.pin_limit);
        pools_ = std::make_shared<HostPools>();
    }

    // No move: a handle always has its machine.
    HostDriver(const HostDriver&) = default;
    HostDriver& operator=(const HostDriver&) = default;
    ~HostDriver() = default;
    friend bool operator==(const HostDriver& a, const HostDriver& b) noexcept { return a.machine_ == b.machine_; }

    [[nodiscard]] int device() const noexcept { return device_; }
    [[nodiscard]] std::string name() const { return "host memory"; }

    // Pages
    Status granularity(std::size_t& out) const noexcept {
        return with_memory([&](HostMemory& m) {
            out = m.granularity();
            return HostStatus::ok;
        });
    }
    Status memory(DeviceMemory& out) const noexcept {
        return with_memory([&](HostMemory& m) {
            out = m.memory();
            return HostStatus::ok;
        });
    }
    Status reserve(std::size_t bytes, std::size_t alignment, Address& out) const noexcept {
        return with_memory([&](HostMemory& m) { return m.reserve(bytes, alignment, out); });
    }
    Status unreserve(Address address, std::size_t bytes) const noexcept {
        return with_memory([&](HostMemory& m) { return m.unreserve({address, bytes}); });
    }
    Status create(std::size_t bytes, PageHandle& out) const noexcept {
        return with_memory([&](HostMemory& m) { return m.create(bytes, out); });
    }
    Status release(PageHandle handle) const noexcept {
        return with_memory([&](HostMemory& m) { return m.release(handle); });
    }
    Status map(Address address, std::size_t bytes, PageHandle handle) const noexcept {
        return with_memory([&](HostMemory& m) { return m.map({address, bytes}, handle); });
    }
    Status unmap(Address address, std::size_t bytes) const noexcept { return machine_->unmap({address, bytes}); }
    Status allow_access(Address address, std::size_t bytes) const noexcept {
        return with_memory([&](HostMemory& m) { return m.allow({address, bytes}, HostAccess::write); });
    }
    Status allow_reading(Address address, std::size_t bytes) const noexcept {
        return with_memory([&](HostMemory& m) { return m.allow({address, bytes}, HostAccess::read); });
    }

    // Plain. Counted in multiples of 512 bytes.
    Status allocate_plain(std::size_t bytes, Address& out) const noexcept {
        return with_memory([&](HostMemory& m) { return m.allocate_plain(bytes, out); });
    }
    Status free_plain(Address address) const noexcept { return machine_->free_plain(address); }

    // Streams. The default stream is one more stream and waits for no other.
    Status open_stream(StreamRef& out) const noexcept { return machine_->open_stream(out); }
    Status close_stream(StreamRef stream) const noexcept { return machine_->close_stream(stream); }
    Status open_event(StreamRef near, EventRef& out) const noexcept { return machine_->open_event(near, out); }
    Status close_event(EventRef event) const noexcept { return machine_->close_event(event); }
    Status record(EventRef event, StreamRef stream) const noexcept { return machine_->record(event, stream); }
    Status record_device(EventRef event) const noexcept { return machine_->record_device(event); }
    Status follow(StreamRef stream, EventRef event) const noexcept { return machine_->follow(stream, event); }
    Status query(EventRef event, bool& passed) const noexcept { return machine_->query(event, passed); }
    Status wait(EventRef event) const noexcept { return machine_->wait(event); }
    Status drain() const noexcept { return machine_->drain(); }
    Status capturing(StreamRef stream, bool& yes) const noexcept { return machine_->capturing(stream, yes); }

    Status lane(Direction direction, StreamRef& out) const noexcept { return machine_->lane(direction, out); }

    Status owns_stream(StreamRef stream, bool& yes) const noexcept {
        yes = machine_->owns(stream.native()); // a question: no violation
        return {};
    }
    Status owns_event(EventRef event, bool& yes) const noexcept {
        yes = machine_->owns(event.native());
        return {};
    }

    // Pools: they hold what `put_in_pool` put there.
    Status pool_memory(PoolRef pool, std::size_t& bytes) const noexcept {
        return with_memory([&](auto&) {
            bytes = pools_->bytes(pool);
            return HostStatus::ok;
        });
    }
    Status trim_pool(PoolRef pool, std::size_t keep) const noexcept {
        return with_memory([&](HostMemory& m) {
            pools_->trim(m, pool, keep);
            return HostStatus::ok;
        });
    }

    // Host pages, but for what is the system's. Pinning changes nothing here; its rules are kept all the same.
    Status pin_host(void* pages, std::size_t bytes) const noexcept {
        return with_memory([&](auto&) { return pins_->pin(pages, bytes); });
    }
    Status unpin_host(void* pages) const noexcept {
        return with_memory([&](auto&) { return pins_->unpin(pages); });
    }

    // Copies. Both may be plain or mapped device memory; without access they answer HOST_ERROR_INVALID_VALUE.
    Status copy_to_host(void* host, Address from, std::size_t bytes, StreamRef stream) const noexcept {
        if (!pins_->whole(host, bytes)) return HostStatus::invalid_value;
        HostWork work = on({from, bytes}, HostWork::Kind::copy_to_host);
        work.to_host = host;
        return machine_->submit(stream, std::move(work), true);
    }
    Status copy_to_device(Address to, const void* host, std::size_t bytes, StreamRef stream) const noexcept {
        if (!pins_->whole(host, bytes)) return HostStatus::invalid_value;
        HostWork work = on({to, bytes}, HostWork::Kind::copy_to_device);
        work.from_host = host;
        return machine_->submit(stream, std::move(work), true);
    }
    Status fill(Address to, unsigned char byte, std::size_t bytes, StreamRef stream) const noexcept {
        HostWork work = on({to, bytes}, HostWork::Kind::fill);
        work.byte = byte;
        return machine_->submit(stream, std::move(work), true);
    }

    // Captures. A graph is its calls one after another.
    Status begin_capture(StreamRef s, CaptureMode mode) const noexcept { return machine_->begin_capture(s, mode); }
    Status end_capture(StreamRef s, GraphRef& out) const noexcept { return machine_->end_capture(s, out); }
    Status update_graph(StreamRef s, GraphRef& graph) const noexcept { return machine_->update_graph(s, graph); }
    Status launch(GraphRef graph, StreamRef stream) const noexcept { return machine_->launch(graph, stream); }
    Status close_graph(GraphRef graph) const noexcept { return machine_->close_graph(graph); }

    // What a GPU does not have.

    /// Runs `kernel` in the order of `stream`. It may touch the `bytes` at `address` and no other device memory; were
    /// they not all mapped and accessible when its turn comes, it does not run and that is a fault. It must not throw.
    Status enqueue(StreamRef stream, Address address, std::size_t bytes, std::function<void()> kernel) const noexcept {
        if (!kernel) return HostStatus::invalid_value;
        try {
            HostWork work = on({address, bytes}, HostWork::Kind::kernel);
            work.kernel = std::make_shared<std::function<void()>>(std::move(kernel));
            return machine_->submit(stream, std::move(work), false);
        } catch (...) {
            return HostStatus::out_of_host_memory;
        }
    }
    /// The same for a kernel that touches no device memory.
    Status enqueue(StreamRef stream, std::function<void()> kernel) const noexcept {
        return enqueue(stream, 0, 0, std::move(kernel));
    }

    /// No further work of `stream` starts until `let_go`, or until the stream is closed.
    Status hold(StreamRef stream) const noexcept { return machine_->hold(stream, true); }
    Status let_go(StreamRef stream) const noexcept { return machine_->hold(stream, false); }

    /// Stands for allocations in a stream-ordered pool or in a graph: `bytes` of pages (a multiple of the granularity)
    /// that it holds, in use until `free_pool`.
    Status put_in_pool(PoolRef pool, std::size_t bytes) const noexcept {
        return with_memory([&](HostMemory& m) { return pools_->add(m, pool, bytes); });
    }
    /// Everything in the pool is freed, and kept until `trim_pool`.
    Status free_pool(PoolRef pool) const noexcept {
        return with_memory([&](auto&) {
            pools_->free(pool);
            return HostStatus::ok;
        });
    }

    /// Loses the machine: from here on every call answers `gone`, also those that give back. Its memory goes with the
    /// last copy of the driver.
    void lose() const noexcept { machine_->lose(); }

    /// What a program's own call that may wait (cudaEventQuery, cudaMalloc) does to captures that are open: breaks
    /// them and fails, unless they are relaxed, or thread-local and of another thread.
    Status call_unrelaxed() const noexcept { return machine_->call_unrelaxed(); }

    /// What a GPU would have punished or silently got wrong so far, as text. Also on a lost machine.
    [[nodiscard]] std::vector<std::string> violations() const { return machine_->violations(); }

    /// What is live now. Also on a lost machine.
    [[nodiscard]] HostCounts counts() const noexcept {
        HostCounts counts = machine_->counts();
        counts.pinned_bytes = pins_->pinned_bytes();
        return counts;
    }

private:
    template <class F>
    Status with_memory(F f) const noexcept {
        return machine_->with_memory(f);
    }

    static HostWork on(HostRange range, HostWork::Kind kind) noexcept {
        HostWork work;
        work.kind = kind;
        work.range = range;
        return work;
    }

    int device_;
    std::shared_ptr<HostMachine> machine_;
    std::shared_ptr<HostPins> pins_;
    std::shared_ptr<HostPools> pools_; // guarded by the machine's lock
};

static_assert(Driver<HostDriver> && Plain<HostDriver> && Captures<HostDriver>);
static_assert(Trims<HostDriver> && StreamOwners<HostDriver>);
static_assert(Lanes<HostDriver> && HostPages<HostDriver> && Files<HostDriver>);

} // namespace memsaver::inline v0_1
