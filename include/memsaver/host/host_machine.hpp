// The machine of a HostDriver: the calls, on its engine and its memory.
#pragma once

#include "memsaver/core/pointers.hpp"
#include "memsaver/core/vector.hpp"
#include "memsaver/driver/device.hpp"
#include "memsaver/driver/fork_check.hpp"
#include "memsaver/driver/neighbours.hpp"
#include "memsaver/host/host_engine.hpp"

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>

namespace memsaver::inline v0_3 {

class HostDriver;

namespace detail {

/// See HostDriver.
class HostMachine final : public Device {
public:
    HostMachine(std::size_t capacity, const HostDriverOptions& options)
        : device_{options.device}, machine_{options.machine.text()}, pins_{options.pin_limit}, engine_{capacity,
                                                                                                       options} {}

    /// Throws what HostDriver's constructor throws.
    static std::shared_ptr<HostMachine> make(std::size_t capacity, const HostDriverOptions& options) {
        const std::size_t unit = options.granularity;
        const auto least = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
        if ((unit & (unit - 1)) != 0 || unit < least)
            misuse({"HostDriver: .granularity is ", in_digits(unit), " bytes (", in_bytes(unit),
                    "); valid are powers of two of at least ", in_digits(least),
                    " bytes, the system's page size, such as 2_MiB"});
        const auto end = [](HostMachine* machine) { // a forked child has no threads to end, and locks in any state
            if (!machine->fork_.forked()) delete machine;
        };
        return translated([&] { return std::shared_ptr<HostMachine>{new HostMachine{capacity, options}, end}; });
    }

    [[nodiscard]] int device() const noexcept override { return device_; }
    [[nodiscard]] std::string name() const override { return "host memory"; }
    Status identity(std::string& text) const noexcept override {
        if (machine_.empty()) return unsupported; // nobody else can have it
        try {
            text = "host machine " + machine_;
            return HostStatus::ok;
        } catch (...) {
            return HostStatus::out_of_host_memory;
        }
    }
    [[nodiscard]] Features features() const noexcept override {
        return {.host_addressable = true,
                .lanes = true,
                .stream_owners = true,
                .event_owners = true,
                .peers = true,
                .batch_copies = true,
                .kernel_copies = true,
                .kernels = true,
                .plain = true,
                .captures = true,
                .gates = true,
                .pools = true,
                .exports = !machine_.empty()};
    }
    [[nodiscard]] Neighbours* neighbours() noexcept override { return &neighbours_; }
    void name_addresses(Address address, std::size_t bytes, const char* name) noexcept override {
        (void)with_memory([&](HostMemory& m) { m.name({address, bytes}, name); });
    }

    Status granularity(std::size_t& out) noexcept override {
        return with_memory([&](HostMemory& m) { out = m.granularity(); });
    }
    Status memory(DeviceMemory& out) noexcept override {
        return with_memory([&](HostMemory& m) { out = m.memory(); });
    }
    Status reserve(std::size_t bytes, std::size_t alignment, Address& out) noexcept override {
        return with_memory([&](HostMemory& m) { return m.reserve(bytes, alignment, out); });
    }
    Status unreserve(Address address, std::size_t bytes) noexcept override {
        return with_memory([&](HostMemory& m) { return m.unreserve({address, bytes}); });
    }
    Status create(std::size_t bytes, PageHandle& out) noexcept override {
        return with_memory([&](HostMemory& m) { return m.create(bytes, out); });
    }
    Status release(PageHandle handle) noexcept override {
        return with_memory([&](HostMemory& m) { return m.release(handle); });
    }
    Status create_shared(std::size_t bytes, PageHandle& out) noexcept override {
        return machine_.empty() ? unsupported : with_memory([&](HostMemory& m) { return m.create(bytes, out, true); });
    }
    Status export_pages(PageHandle handle, int& descriptor) noexcept override {
        return machine_.empty() ? unsupported
                                : with_memory([&](HostMemory& m) { return m.export_pages(handle, descriptor); });
    }
    Status import_pages(int descriptor, PageHandle& out) noexcept override {
        return machine_.empty() ? unsupported
                                : with_memory([&](HostMemory& m) { return m.import_pages(descriptor, out); });
    }
    Status map(Address address, std::size_t bytes, PageHandle handle) noexcept override {
        return with_memory([&](HostMemory& m) { return m.map({address, bytes}, handle); });
    }
    Status unmap(Address address, std::size_t bytes) noexcept override {
        const Range range{address, bytes};
        return engine_.guarded([&](auto&) {
            if (const Status status = engine_.memory().check_unmap(range); !status.ok()) return status;
            const Status unused = engine_.invalidate_work("unmap of memory in use by unfinished work", range);
            return unused.ok() ? engine_.memory().unmap(range) : unused;
        });
    }
    Status allow_access(Address address, std::size_t bytes, Rights rights) noexcept override {
        return with_memory([&](HostMemory& m) {
            return m.allow({address, bytes}, rights == Rights::read ? HostAccess::read : HostAccess::write);
        });
    }

    Status open_stream(StreamRef& out) noexcept override {
        return engine_.guarded([&](auto&) { out = engine_.open(); });
    }
    Status close_stream(StreamRef ref) noexcept override {
        std::shared_ptr<HostCapture> capture; // its calls are destroyed after the lock is released
        return engine_.guarded([&](auto&) {
            const auto stream = ref.native() == nullptr ? nullptr : engine_.find(ref.native());
            if (stream == nullptr) return stranger("close of a stream that does not exist");
            engine_.close(stream);
            capture = engine_.leave_capture(*stream);
            return HostStatus::ok;
        });
    }
    Status open_event(StreamRef near, EventRef& out) noexcept override {
        return with_stream(near, [&](const auto&) { out = events_.emplace_back(new_shared<HostEvent>()).get(); });
    }
    Status close_event(EventRef ref) noexcept override {
        return engine_.guarded([&](auto&) {
            const auto found = place_of(events_, ref.native());
            if (found == events_.end()) return stranger("close of a CUDA event that does not exist");
            events_.erase(found);
            return HostStatus::ok;
        });
    }
    Status record(EventRef ref, StreamRef stream_ref) noexcept override {
        return with_event(ref, stream_ref, [&](const auto& event, const auto& stream) {
            if (stream->broken()) return HostStatus::capture_invalidated;
            Vector<HostMark> marks;
            if (stream->capture == nullptr) marks.push_back(engine_.mark(stream));
            event->marks = std::move(marks);
            event->captured = stream->capture;
            return HostStatus::ok;
        });
    }
    Status record_device(EventRef ref) noexcept override {
        return with_event(ref, {}, [&](const auto& event, const auto&) {
            if (engine_.break_captures()) return HostStatus::capture_unsupported;
            event->marks = engine_.mark_all();
            event->captured = nullptr;
            return HostStatus::ok;
        });
    }
    Status follow(StreamRef stream_ref, EventRef ref) noexcept override {
        return with_event(ref, stream_ref, [&](const auto& event, const auto& stream) {
            if (stream->broken()) return HostStatus::capture_invalidated;
            if (stream->capture != nullptr && stream->capture != event->captured) {
                stream->capture->broken = true; // a graph can wait for other events only through follow_outside
                return HostStatus::capture_isolation;
            }
            if (event->captured == nullptr) {
                HostWork work;
                work.kind = HostWork::Kind::follow;
                work.marks = event->marks;
                engine_.push(*stream, std::move(work));
                return HostStatus::ok;
            }
            if (!event->captured->open || event->captured->broken) return HostStatus::captured_event;
            // Joins the capture; recorded work is already in order.
            if (stream->capture == nullptr) stream->capture = event->captured;
            return HostStatus::ok;
        });
    }
    Status query(EventRef ref, bool& passed) noexcept override {
        return with_event(ref, {}, [&](const auto& event, const auto&) {
            if (event->captured != nullptr) return HostStatus::captured_event;
            passed = engine_.passed(event->marks);
            engine_.want(event->marks);
            return HostStatus::ok;
        });
    }
    Status wait(EventRef ref) noexcept override {
        return engine_.guarded([&](auto& lock) {
            const auto found = place_of(events_, ref.native());
            if (found == events_.end()) return stranger("wait for a CUDA event that does not exist");
            if ((*found)->captured != nullptr) return HostStatus::captured_event;
            const Vector<HostMark> marks = (*found)->marks; // the event may be recorded again during the wait
            return engine_.wait(lock, marks);
        });
    }
    Status drain() noexcept override {
        return engine_.guarded([&](auto& lock) { return engine_.wait(lock, engine_.mark_all()); });
    }
    Status capturing(StreamRef ref, bool& yes) noexcept override {
        return with_stream(ref, [&](const auto& stream) { yes = stream->capture != nullptr; });
    }
    /// The first call opens it; it does not count as an open stream.
    Status lane(Direction direction, StreamRef& out) noexcept override {
        return engine_.guarded([&](auto&) {
            StreamRef& lane = lanes_[direction == Direction::out ? 0 : 1];
            if (lane == StreamRef{}) lane = engine_.open();
            out = lane;
        });
    }
    /// Never a violation; also works on a lost machine, as the next one.
    Status owns_stream(StreamRef stream, bool& yes) noexcept override {
        yes = engine_.locked([&] { return engine_.find(stream.native()) != nullptr; });
        return {};
    }
    Status owns_event(EventRef event, bool& yes) noexcept override {
        yes = engine_.locked([&] { return place_of(events_, event.native()) != events_.end(); });
        return {};
    }

    Status copy_to_host(void* host, Address from, std::size_t bytes, StreamRef stream) noexcept override {
        return copy(Direction::out, reinterpret_cast<Address>(host), from, bytes, stream);
    }
    Status copy_to_device(Address to, const void* host, std::size_t bytes, StreamRef stream) noexcept override {
        return copy(Direction::in, to, reinterpret_cast<Address>(host), bytes, stream);
    }
    Status fill(Address to, unsigned char byte, std::size_t bytes, StreamRef stream) noexcept override {
        HostWork work = HostWork::on({to, bytes}, HostWork::Kind::fill);
        work.byte = byte;
        return submit(stream, std::move(work), true);
    }
    Status reach_peer(Address, std::size_t) noexcept override { return {}; }
    Status copy_peer(Address to, Address from, std::size_t bytes, StreamRef stream) noexcept override {
        bool out = false; // whether this machine owns `from`; the other machine's pages are ordinary host memory
        (void)with_memory([&](HostMemory& m) { out = m.accessible({from, bytes}, HostAccess::read); });
        return copy(out ? Direction::out : Direction::in, to, from, bytes, stream);
    }
    Status copy_many(Direction direction, const CopyPart* parts, std::size_t count,
                     StreamRef stream) noexcept override {
        for (std::size_t i = 0; i < count; ++i) {
            const Status status = copy(direction, parts[i].to, parts[i].from, parts[i].bytes, stream);
            if (!status.ok()) return status;
        }
        return {};
    }
    /// One end must be accessible device memory and the other pinned, else HOST_ERROR_INVALID_VALUE. The first call
    /// loads the kernel, which waits while the copy engines are stalled.
    Status copy_by_kernel(Address to, Address from, std::size_t bytes, StreamRef stream) noexcept override {
        load_kernel();
        if (bytes == 0) return {};
        bool out = false;
        const Status found = with_memory([&](HostMemory& m) {
            out = m.accessible({from, bytes}, HostAccess::read);
            auto* const host = reinterpret_cast<std::byte*>(out ? to : from); // NOLINT(performance-no-int-to-ptr)
            const bool pinned = pins_.pinned(host) && pins_.pinned(host + bytes - 1);
            return pinned ? HostStatus::ok : HostStatus::invalid_value;
        });
        if (!found.ok()) return found;
        return submit(stream, HostWork::copy(out ? Direction::out : Direction::in, to, from, bytes), true);
    }
    Status run_kernel(const KernelRun& run, StreamRef stream) noexcept override {
        load_kernel();
        try {
            std::function<void()> kernel = [act = run.code->on_host, arguments = run.arguments] { act(arguments); };
            return enqueue(stream, {run.reads.address, run.reads.bytes}, std::move(kernel), true);
        } catch (...) {
            return HostStatus::out_of_host_memory;
        }
    }

    Status allocate_plain(std::size_t bytes, Address& out) noexcept override {
        return with_memory([&](HostMemory& m) { return m.allocate_plain(bytes, out); });
    }
    Status free_plain(Address address) noexcept override {
        return engine_.guarded([&](auto& lock) {
            if (address == 0 || engine_.memory().plain_range(address).bytes == 0)
                return address == 0 ? HostStatus::ok : HostStatus::invalid_value;
            if (const Status status = engine_.wait(lock, engine_.mark_all()); !status.ok()) return status;
            const Range range = engine_.memory().plain_range(address); // again, because the lock was released while
                                                                       // waiting
            if (range.bytes == 0) return HostStatus::invalid_value;
            // New work was submitted during the wait. If it is running, the memory is not freed under it, but never.
            if (engine_.invalidate_work("free of memory in use by unfinished work", range).ok())
                engine_.memory().free_plain(range);
            return HostStatus::ok;
        });
    }

    Status begin_capture(StreamRef ref, CaptureMode mode) noexcept override {
        return with_stream(ref, [&](const auto& stream) {
            if (stream == engine_.default_stream()) return HostStatus::capture_unsupported;
            if (stream->capture != nullptr) return HostStatus::illegal_state;
            engine_.begin_capture(*stream, mode);
            return HostStatus::ok;
        });
    }
    Status end_capture(StreamRef ref, GraphRef& out) noexcept override {
        return finish_capture(ref, [&](auto& recorded) { out = add_graph(recorded); });
    }
    Status update_graph(StreamRef ref, GraphRef& graph) noexcept override {
        UniquePtr<HostGraph> old; // destroyed after the lock is released
        return finish_capture(ref, [&](auto& recorded) {
            const auto known = place_of(graphs_, graph.native);
            if (known == graphs_.end()) (void)stranger("update of a graph that does not exist");
            if (known != graphs_.end() && fits(**known, recorded)) return (*known)->swap(recorded);
            const GraphRef fresh = add_graph(recorded); // may throw
            old = take_graph(std::exchange(graph, fresh));
        });
    }
    Status launch(GraphRef ref, StreamRef stream_ref) noexcept override {
        return with_stream(stream_ref, [&](const auto& stream) {
            const auto graph = place_of(graphs_, ref.native);
            if (graph == graphs_.end()) return stranger("launch of a graph that does not exist");
            if (stream->broken()) return HostStatus::capture_invalidated;
            HostGraph calls = **graph;
            for (HostWork& call : calls) {
                if (call.kind != HostWork::Kind::follow_outside || stream->capture != nullptr) continue;
                const std::shared_ptr<HostEvent> event = call.outside.lock();
                if (event == nullptr) return stranger("launch of a graph that waits for a closed CUDA event");
                if (event->captured != nullptr) return HostStatus::captured_event;
                call.marks = event->marks; // the current marks
            }
            for (HostWork& call : calls) put(*stream, std::move(call));
            return HostStatus::ok;
        });
    }
    Status close_graph(GraphRef ref) noexcept override {
        UniquePtr<HostGraph> graph; // destroyed after the lock is released
        return engine_.guarded([&](auto&) {
            graph = take_graph(ref);
            return graph != nullptr ? HostStatus::ok : stranger("close of a graph that does not exist");
        });
    }
    /// Launching a graph that waits for a closed event is a violation.
    Status follow_outside(StreamRef stream_ref, EventRef ref) noexcept override {
        return with_event(ref, stream_ref, [&](const auto& event, const auto& stream) {
            if (stream->broken()) return HostStatus::capture_invalidated;
            if (event->captured != nullptr) return HostStatus::captured_event;
            HostWork work;
            work.kind = HostWork::Kind::follow_outside;
            if (stream->capture == nullptr) {
                work.marks = event->marks;
            } else {
                work.outside = event;
            }
            put(*stream, std::move(work));
            return HostStatus::ok;
        });
    }

    Status pool_memory(PoolRef pool, std::size_t& bytes) noexcept override {
        return with_memory([&](HostMemory&) { bytes = pools_.bytes(pool); });
    }
    Status trim_pool(PoolRef pool, std::size_t keep) noexcept override {
        return with_memory([&](HostMemory& m) { pools_.trim(m, pool, keep); });
    }
    /// Pinning has no effect here, but its rules are checked.
    Status pin_host(void* pages, std::size_t bytes) noexcept override {
        return with_memory([&](HostMemory&) { return pins_.pin(pages, bytes); });
    }
    Status unpin_host(void* pages) noexcept override {
        return with_memory([&](HostMemory&) { return pins_.unpin(pages); });
    }

private:
    friend class memsaver::HostDriver; // has what only a simulated machine has

    Status stranger(const char* what) noexcept {
        engine_.memory().note(what, {});
        return HostStatus::invalid_handle;
    }

    template <class F>
    Status with_stream(StreamRef ref, F f) noexcept {
        return on_stream(ref, [&](const std::shared_ptr<HostStream>& stream) { return status_of(f, stream); });
    }
    Status on_stream(StreamRef ref, FunctionRef<Status(const std::shared_ptr<HostStream>&)> f) noexcept {
        return engine_.guarded([&](auto&) {
            const std::shared_ptr<HostStream> stream = engine_.find(ref.native());
            return stream == nullptr ? stranger("use of a stream that does not exist") : f(stream);
        });
    }

    template <class F>
    Status with_event(EventRef ref, StreamRef stream_ref, F f) noexcept {
        return with_stream(stream_ref, [&](const auto& stream) {
            const auto found = place_of(events_, ref.native());
            return found == events_.end() ? stranger("use of a CUDA event that does not exist")
                                          : status_of(f, *found, stream);
        });
    }

    /// Ends a capture and calls `keep(recorded)` unless it was broken. If `keep` throws, the capture stays open.
    template <class Keep>
    Status finish_capture(StreamRef ref, Keep keep) noexcept {
        Vector<HostWork> recorded; // what remains of it is destroyed after the lock is released
        return with_stream(ref, [&](const auto& stream) {
            if (const Status status = HostEngine::may_end(*stream); !status.ok()) return status;
            const std::shared_ptr<HostCapture> capture = stream->capture;
            if (!capture->broken) keep(capture->calls);
            recorded = std::move(capture->calls);
            engine_.end_capture(*capture);
            return capture->broken ? HostStatus::capture_invalidated : HostStatus::ok;
        });
    }

    /// Adds a graph and takes its recorded work. Strong exception guarantee: throws std::bad_alloc.
    GraphRef add_graph(Vector<HostWork>& recorded) {
        HostGraph& graph = *graphs_.emplace_back(UniquePtr<HostGraph>::make());
        graph.swap(recorded);
        return {&graph};
    }
    /// Removes and returns a graph; null if it does not exist.
    UniquePtr<HostGraph> take_graph(GraphRef graph) noexcept {
        UniquePtr<HostGraph> taken;
        if (const auto found = place_of(graphs_, graph.native); found != graphs_.end()) {
            taken = std::move(*found);
            *found = std::move(graphs_.back());
            graphs_.pop_back();
        }
        return taken;
    }

    template <class F>
    Status with_memory(F f) noexcept {
        return engine_.guarded([&](auto&) { return f(engine_.memory()); });
    }
    Status copy(Direction direction, Address to, Address from, std::size_t bytes, StreamRef stream) noexcept {
        HostWork work = HostWork::copy(direction, to, from, bytes);
        work.by_engine = true;
        return submit(stream, std::move(work), true);
    }
    /// `reads`: the kernel writes no device memory, and its memory must be accessible now.
    Status enqueue(StreamRef stream, Range range, std::function<void()> kernel, bool reads = false) noexcept {
        if (!kernel) return HostStatus::invalid_value;
        try {
            HostWork work = HostWork::on(range, HostWork::Kind::kernel);
            work.reads = reads;
            work.kernel = new_shared<std::function<void()>>(std::move(kernel));
            return submit(stream, std::move(work), reads);
        } catch (...) {
            return HostStatus::out_of_host_memory;
        }
    }
    /// Simulates loading a kernel: the first call waits while the copy engines are stalled, because they transfer the
    /// kernel to the device.
    void load_kernel() noexcept {
        if (kernel_loaded_.load()) return;
        std::this_thread::sleep_until(engine_.locked([&] { return engine_.stalled_until(); }));
        kernel_loaded_.store(true);
    }
    /// Enqueues or records `work`. If `checked`, as for copies and fills, its memory must be accessible now, as with
    /// CUDA. Memory of kernels and graphs is checked when they run.
    Status submit(StreamRef ref, HostWork work, bool checked) noexcept {
        return with_stream(ref, [&](const auto& stream) {
            if (stream->broken()) return HostStatus::capture_invalidated;
            if (work.by_engine && !pins_.whole(work.host, work.range.bytes)) return HostStatus::invalid_value;
            if (checked && !engine_.memory().accessible(work.range, work.access())) return HostStatus::invalid_value;
            put(*stream, std::move(work));
            return HostStatus::ok;
        });
    }
    void put(HostStream& stream, HostWork work) {
        if (stream.capture != nullptr)
            stream.capture->calls.push_back(std::move(work));
        else
            engine_.push(stream, std::move(work));
    }

    const ForkCheck fork_;
    int device_;
    std::string machine_; // its name, if it has one
    HostPins pins_;       // guarded by the engine's lock, as the next
    HostPools pools_;
    Neighbours neighbours_;
    HostEngine engine_;
    Vector<std::shared_ptr<HostEvent>> events_;
    Vector<UniquePtr<HostGraph>> graphs_;
    StreamRef lanes_[2];
    std::atomic<bool> kernel_loaded_{false};
};

} // namespace detail

} // namespace memsaver::inline v0_3
