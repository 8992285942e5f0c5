// Definitions of host_machine.hpp.
#pragma once

#include "memsaver/core/order.hpp"
#include "memsaver/host/host_machine.hpp"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {

MEMSAVER_INLINE std::shared_ptr<HostMachine> HostMachine::make(std::size_t capacity, const HostDriverOptions& options) {
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

MEMSAVER_INLINE std::string HostMachine::name() const { return "host memory"; }

MEMSAVER_INLINE Status HostMachine::identity(std::string& text) const noexcept {
    if (machine_.empty()) return unsupported; // nobody else can have it
    try {
        text = "host machine " + machine_;
        return HostStatus::ok;
    } catch (...) {
        return HostStatus::out_of_host_memory;
    }
}

MEMSAVER_INLINE Features HostMachine::features() const noexcept {
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

MEMSAVER_INLINE Status HostMachine::granularity(std::size_t& out) noexcept {
    return with_memory([&](HostMemory& m) {
        out = m.granularity();
        return HostStatus::ok;
    });
}

MEMSAVER_INLINE Status HostMachine::memory(DeviceMemory& out) noexcept {
    return with_memory([&](HostMemory& m) {
        out = m.memory();
        return HostStatus::ok;
    });
}

MEMSAVER_INLINE Status HostMachine::reserve(std::size_t bytes, std::size_t alignment, Address& out) noexcept {
    return with_memory([&](HostMemory& m) { return m.reserve(bytes, alignment, out); });
}

MEMSAVER_INLINE Status HostMachine::unreserve(Address address, std::size_t bytes) noexcept {
    return with_memory([&](HostMemory& m) { return m.unreserve({address, bytes}); });
}

MEMSAVER_INLINE Status HostMachine::create(std::size_t bytes, PageHandle& out) noexcept {
    return with_memory([&](HostMemory& m) { return m.create(bytes, out); });
}

MEMSAVER_INLINE Status HostMachine::release(PageHandle handle) noexcept {
    return with_memory([&](HostMemory& m) { return m.release(handle); });
}

MEMSAVER_INLINE Status HostMachine::create_shared(std::size_t bytes, PageHandle& out) noexcept {
    return machine_.empty() ? unsupported : with_memory([&](HostMemory& m) { return m.create(bytes, out, true); });
}

MEMSAVER_INLINE Status HostMachine::export_pages(PageHandle handle, int& descriptor) noexcept {
    return machine_.empty() ? unsupported
                            : with_memory([&](HostMemory& m) { return m.export_pages(handle, descriptor); });
}

MEMSAVER_INLINE Status HostMachine::import_pages(int descriptor, PageHandle& out) noexcept {
    return machine_.empty() ? unsupported : with_memory([&](HostMemory& m) { return m.import_pages(descriptor, out); });
}

MEMSAVER_INLINE Status HostMachine::map(Address address, std::size_t bytes, PageHandle handle) noexcept {
    return with_memory([&](HostMemory& m) { return m.map({address, bytes}, handle); });
}

MEMSAVER_INLINE Status HostMachine::allow_access(Address address, std::size_t bytes, Rights rights) noexcept {
    return with_memory([&](HostMemory& m) {
        return m.allow({address, bytes}, rights == Rights::read ? HostAccess::read : HostAccess::write);
    });
}

MEMSAVER_INLINE Status HostMachine::allocate_plain(std::size_t bytes, Address& out) noexcept {
    return with_memory([&](HostMemory& m) { return m.allocate_plain(bytes, out); });
}

MEMSAVER_INLINE void HostMachine::name_addresses(Address address, std::size_t bytes, const char* name) noexcept {
    (void)with_memory([&](HostMemory& m) {
        m.name({address, bytes}, name);
        return HostStatus::ok;
    });
}

MEMSAVER_INLINE Status HostMachine::unmap(Address address, std::size_t bytes) noexcept {
    const HostRange range{address, bytes};
    return engine_.guarded([&](auto&) {
        bool in_use = false;
        if (const Status status = engine_.memory().check_unmap(range, in_use); !status.ok()) return status;
        const bool running = in_use && engine_.invalidate_work("unmap of memory in use by unfinished work", range);
        return engine_.memory().unmap(range, running);
    });
}

MEMSAVER_INLINE Status HostMachine::free_plain(Address address) noexcept {
    return engine_.guarded([&](auto& lock) {
        if (address == 0 || engine_.memory().plain_range(address).bytes == 0)
            return address == 0 ? HostStatus::ok : HostStatus::invalid_value;
        if (const Status status = engine_.wait(lock, engine_.mark_all()); !status.ok()) return status;
        const HostRange range = engine_.memory().plain_range(address); // again, because the lock was released while
                                                                       // waiting
        if (range.bytes == 0) return HostStatus::invalid_value;
        // New work was submitted during the wait. If it is running, the memory is not freed under it, but never.
        if (engine_.memory().mappings().in_use(range) &&
            engine_.invalidate_work("free of memory in use by unfinished work", range))
            return HostStatus::ok;
        engine_.memory().free_plain(range);
        return HostStatus::ok;
    });
}

MEMSAVER_INLINE Status HostMachine::open_stream(StreamRef& out) noexcept {
    return engine_.guarded([&](auto&) {
        out = engine_.open();
        return HostStatus::ok;
    });
}

MEMSAVER_INLINE Status HostMachine::stall_copies(const TimeLimit& duration) noexcept {
    return engine_.guarded([&](auto&) {
        engine_.stall_copies(deadline_after(duration).value_or(std::chrono::steady_clock::time_point::max()));
        return HostStatus::ok;
    });
}

MEMSAVER_INLINE void HostMachine::load_kernel() noexcept {
    if (kernel_loaded_.load()) return;
    std::this_thread::sleep_until(engine_.locked([&] { return engine_.stalled_until(); }));
    kernel_loaded_.store(true);
}

MEMSAVER_INLINE Status HostMachine::lane(Direction direction, StreamRef& out) noexcept {
    return engine_.guarded([&](auto&) {
        StreamRef& lane = lanes_[direction == Direction::out ? 0 : 1];
        if (lane == StreamRef{}) lane = engine_.open();
        out = lane;
        return HostStatus::ok;
    });
}

MEMSAVER_INLINE Status HostMachine::close_stream(StreamRef ref) noexcept {
    std::shared_ptr<HostCapture> capture; // its calls are destroyed after the lock is released
    return engine_.guarded([&](auto&) {
        const auto stream = ref.native() == nullptr ? nullptr : engine_.find(ref.native());
        if (stream == nullptr) return stranger("close of a stream that does not exist");
        engine_.close(stream);
        capture = captures_.leave(*stream);
        return HostStatus::ok;
    });
}

MEMSAVER_INLINE Status HostMachine::hold(StreamRef ref, bool yes) noexcept {
    return with_stream(ref, [&](const auto& stream) {
        engine_.hold(*stream, yes);
        return HostStatus::ok;
    });
}

MEMSAVER_INLINE Status HostMachine::submit(StreamRef ref, HostWork work, bool checked) noexcept {
    return with_stream(ref, [&](const auto& stream) {
        if (stream->capture != nullptr && stream->capture->broken) return HostStatus::capture_invalidated;
        if (checked && !engine_.memory().mappings().accessible(work.range, work.access()))
            return HostStatus::invalid_value;
        put(*stream, std::move(work));
        return HostStatus::ok;
    });
}

MEMSAVER_INLINE Status HostMachine::open_event(StreamRef near, EventRef& out) noexcept {
    return with_stream(near, [&](const auto&) {
        auto event = std::make_shared<HostEvent>();
        HostEvent* const native = event.get();
        out = events_.emplace(native, std::move(event)).first->second.get();
        return HostStatus::ok;
    });
}

MEMSAVER_INLINE Status HostMachine::close_event(EventRef ref) noexcept {
    return engine_.guarded([&](auto&) {
        return events_.erase(ref.native()) == 1 ? HostStatus::ok
                                                : stranger("close of a CUDA event that does not exist");
    });
}

MEMSAVER_INLINE Status HostMachine::record(EventRef ref, StreamRef stream_ref) noexcept {
    return with_event(ref, stream_ref, [&](const auto& event, const auto& stream) {
        if (stream->capture != nullptr && stream->capture->broken) return HostStatus::capture_invalidated;
        std::vector<HostMark> marks;
        if (stream->capture == nullptr) marks.push_back(engine_.mark(stream));
        event->marks = std::move(marks);
        event->captured = stream->capture;
        return HostStatus::ok;
    });
}

MEMSAVER_INLINE Status HostMachine::record_device(EventRef ref) noexcept {
    return with_event(ref, {}, [&](const auto& event, const auto&) {
        if (captures_.break_all()) return HostStatus::capture_unsupported;
        event->marks = engine_.mark_all();
        event->captured = nullptr;
        return HostStatus::ok;
    });
}

MEMSAVER_INLINE Status HostMachine::follow(StreamRef stream_ref, EventRef ref) noexcept {
    return with_event(ref, stream_ref, [&](const auto& event, const auto& stream) {
        if (stream->capture != nullptr && stream->capture->broken) return HostStatus::capture_invalidated;
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
        if (stream->capture == nullptr) { // joins the capture; recorded work is already in order
            event->captured->streams.push_back(stream.get());
            stream->capture = event->captured;
        }
        return HostStatus::ok;
    });
}

MEMSAVER_INLINE Status HostMachine::follow_outside(StreamRef stream_ref, EventRef ref) noexcept {
    return with_event(ref, stream_ref, [&](const auto& event, const auto& stream) {
        if (stream->capture != nullptr && stream->capture->broken) return HostStatus::capture_invalidated;
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

MEMSAVER_INLINE Status HostMachine::query(EventRef ref, bool& passed) noexcept {
    return with_event(ref, {}, [&](const auto& event, const auto&) {
        if (event->captured != nullptr) return HostStatus::captured_event;
        passed = engine_.passed(event->marks);
        engine_.want(event->marks);
        return HostStatus::ok;
    });
}

MEMSAVER_INLINE Status HostMachine::wait(EventRef ref) noexcept {
    return engine_.guarded([&](auto& lock) {
        const auto found = events_.find(ref.native());
        if (found == events_.end()) return stranger("wait for a CUDA event that does not exist");
        if (found->second->captured != nullptr) return HostStatus::captured_event;
        const std::vector<HostMark> marks = found->second->marks; // the event may be recorded again during the wait
        return engine_.wait(lock, marks);
    });
}

MEMSAVER_INLINE Status HostMachine::drain() noexcept {
    return engine_.guarded([&](auto& lock) { return engine_.wait(lock, engine_.mark_all()); });
}

MEMSAVER_INLINE Status HostMachine::synchronize(StreamRef ref) noexcept {
    return engine_.guarded([&](auto& lock) {
        const std::shared_ptr<HostStream> stream = engine_.find(ref.native());
        if (stream == nullptr) return stranger("wait for a stream that does not exist");
        const bool broke = captures_.break_unrelaxed();
        if (stream->capture != nullptr) {
            stream->capture->broken = true;
            return HostStatus::capture_unsupported;
        }
        if (broke) return HostStatus::capture_unsupported;
        return engine_.wait(lock, {engine_.mark(stream)});
    });
}

MEMSAVER_INLINE Status HostMachine::capturing(StreamRef ref, bool& yes) noexcept {
    return with_stream(ref, [&](const auto& stream) {
        yes = stream->capture != nullptr;
        return HostStatus::ok;
    });
}

MEMSAVER_INLINE Status HostMachine::begin_capture(StreamRef ref, CaptureMode mode) noexcept {
    return with_stream(ref, [&](const auto& stream) {
        if (stream == engine_.default_stream()) return HostStatus::capture_unsupported;
        if (stream->capture != nullptr) return HostStatus::illegal_state;
        captures_.begin(*stream, mode);
        return HostStatus::ok;
    });
}

MEMSAVER_INLINE Status HostMachine::end_capture(StreamRef ref, GraphRef& out) noexcept {
    return finish_capture(ref, [&](auto& recorded) { out = graphs_.add(recorded); });
}

MEMSAVER_INLINE Status HostMachine::update_graph(StreamRef ref, GraphRef& graph) noexcept {
    std::unique_ptr<HostGraph> old; // destroyed after the lock is released
    return finish_capture(ref, [&](auto& recorded) {
        if (graphs_.find(graph) == nullptr) (void)stranger("update of a graph that does not exist");
        old = graphs_.update(graph, recorded);
    });
}

MEMSAVER_INLINE Status HostMachine::launch(GraphRef ref, StreamRef stream_ref) noexcept {
    return with_stream(stream_ref, [&](const auto& stream) {
        const HostGraph* const graph = graphs_.find(ref);
        if (graph == nullptr) return stranger("launch of a graph that does not exist");
        if (stream->capture != nullptr && stream->capture->broken) return HostStatus::capture_invalidated;
        std::vector<HostWork> calls = graph->calls;
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

MEMSAVER_INLINE Status HostMachine::close_graph(GraphRef ref) noexcept {
    std::unique_ptr<HostGraph> graph; // destroyed after the lock is released
    return engine_.guarded([&](auto&) {
        graph = graphs_.take(ref);
        return graph != nullptr ? HostStatus::ok : stranger("close of a graph that does not exist");
    });
}

MEMSAVER_INLINE Status HostMachine::call_unrelaxed() noexcept {
    return engine_.guarded(
        [&](auto&) { return captures_.break_unrelaxed() ? HostStatus::capture_unsupported : HostStatus::ok; });
}

MEMSAVER_INLINE Status HostMachine::stranger(const char* what) noexcept {
    engine_.violations().note(what, {});
    return HostStatus::invalid_handle;
}

MEMSAVER_INLINE void HostMachine::put(HostStream& stream, HostWork work) {
    if (stream.capture != nullptr)
        stream.capture->calls.push_back(std::move(work));
    else
        engine_.push(stream, std::move(work));
}

MEMSAVER_INLINE Status HostMachine::owns_stream(StreamRef stream, bool& yes) noexcept {
    yes = engine_.locked([&] { return engine_.find(stream.native()) != nullptr; });
    return {};
}

MEMSAVER_INLINE Status HostMachine::owns_event(EventRef event, bool& yes) noexcept {
    yes = engine_.locked([&] { return events_.contains(event.native()); });
    return {};
}

MEMSAVER_INLINE Status HostMachine::pool_memory(PoolRef pool, std::size_t& bytes) noexcept {
    return with_memory([&](HostMemory&) {
        bytes = pools_.bytes(pool);
        return HostStatus::ok;
    });
}

MEMSAVER_INLINE Status HostMachine::trim_pool(PoolRef pool, std::size_t keep) noexcept {
    return with_memory([&](HostMemory& m) {
        pools_.trim(m, pool, keep);
        return HostStatus::ok;
    });
}

MEMSAVER_INLINE Status HostMachine::pin_host(void* pages, std::size_t bytes) noexcept {
    return with_memory([&](HostMemory&) { return pins_.pin(pages, bytes); });
}

MEMSAVER_INLINE Status HostMachine::unpin_host(void* pages) noexcept {
    return with_memory([&](HostMemory&) { return pins_.unpin(pages); });
}

MEMSAVER_INLINE Status HostMachine::copy_to_host(void* host, Address from, std::size_t bytes,
                                                 StreamRef stream) noexcept {
    if (!pins_.whole(host, bytes)) return HostStatus::invalid_value;
    HostWork work = HostWork::on({from, bytes}, HostWork::Kind::copy_to_host);
    work.to_host = host;
    work.by_engine = true;
    return submit(stream, std::move(work), true);
}

MEMSAVER_INLINE Status HostMachine::copy_to_device(Address to, const void* host, std::size_t bytes,
                                                   StreamRef stream) noexcept {
    if (!pins_.whole(host, bytes)) return HostStatus::invalid_value;
    HostWork work = HostWork::on({to, bytes}, HostWork::Kind::copy_to_device);
    work.from_host = host;
    work.by_engine = true;
    return submit(stream, std::move(work), true);
}

MEMSAVER_INLINE Status HostMachine::reach_peer(Address, std::size_t) noexcept { return {}; }

MEMSAVER_INLINE Status HostMachine::copy_peer(Address to, Address from, std::size_t bytes, StreamRef stream) noexcept {
    bool out = false; // whether this machine owns `from`; the other machine's pages are ordinary host memory
    (void)with_memory([&](HostMemory& m) {
        out = m.mappings().accessible({from, bytes}, HostAccess::read);
        return HostStatus::ok;
    });
    // NOLINTNEXTLINE(performance-no-int-to-ptr)
    auto* const other = reinterpret_cast<std::byte*>(out ? to : from);
    return out ? copy_to_host(other, from, bytes, stream) : copy_to_device(to, other, bytes, stream);
}

MEMSAVER_INLINE Status HostMachine::copy_many(Direction direction, const CopyPart* parts, std::size_t count,
                                              StreamRef stream) noexcept {
    for (std::size_t i = 0; i < count; ++i) {
        const CopyPart& part = parts[i];
        // NOLINTNEXTLINE(performance-no-int-to-ptr)
        auto* const host = reinterpret_cast<std::byte*>(direction == Direction::out ? part.to : part.from);
        const Status status = direction == Direction::out ? copy_to_host(host, part.from, part.bytes, stream)
                                                          : copy_to_device(part.to, host, part.bytes, stream);
        if (!status.ok()) return status;
    }
    return {};
}

MEMSAVER_INLINE Status HostMachine::copy_by_kernel(Address to, Address from, std::size_t bytes,
                                                   StreamRef stream) noexcept {
    load_kernel();
    if (bytes == 0) return {};
    bool out = false;
    const Status found = with_memory([&](HostMemory& m) {
        out = m.mappings().accessible({from, bytes}, HostAccess::read);
        auto* const host = reinterpret_cast<std::byte*>(out ? to : from); // NOLINT(performance-no-int-to-ptr)
        const bool pinned = pins_.pinned(host) && pins_.pinned(host + bytes - 1);
        return pinned ? HostStatus::ok : HostStatus::invalid_value;
    });
    if (!found.ok()) return found;
    using Kind = HostWork::Kind;
    HostWork work = HostWork::on({out ? from : to, bytes}, out ? Kind::copy_to_host : Kind::copy_to_device);
    if (out) work.to_host = reinterpret_cast<void*>(to);            // NOLINT(performance-no-int-to-ptr)
    if (!out) work.from_host = reinterpret_cast<const void*>(from); // NOLINT(performance-no-int-to-ptr)
    return submit(stream, std::move(work), true);
}

MEMSAVER_INLINE Status HostMachine::run_kernel(const KernelRun& run, StreamRef stream) noexcept {
    load_kernel();
    try {
        HostWork work = HostWork::on({run.reads.address, run.reads.bytes}, HostWork::Kind::kernel);
        work.reads = true;
        work.kernel = std::make_shared<std::function<void()>>(
            [act = run.code->on_host, arguments = run.arguments] { act(arguments); });
        return submit(stream, std::move(work), true);
    } catch (...) {
        return HostStatus::out_of_host_memory;
    }
}

MEMSAVER_INLINE Status HostMachine::fill(Address to, unsigned char byte, std::size_t bytes, StreamRef stream) noexcept {
    HostWork work = HostWork::on({to, bytes}, HostWork::Kind::fill);
    work.byte = byte;
    return submit(stream, std::move(work), true);
}

MEMSAVER_INLINE Status HostMachine::put_in_pool(PoolRef pool, std::size_t bytes) noexcept {
    return with_memory([&](HostMemory& m) { return pools_.add(m, pool, bytes); });
}

MEMSAVER_INLINE Status HostMachine::free_pool(PoolRef pool) noexcept {
    return with_memory([&](HostMemory&) {
        pools_.free(pool);
        return HostStatus::ok;
    });
}

MEMSAVER_INLINE Status HostMachine::enqueue(StreamRef stream, HostRange range, std::function<void()> kernel) noexcept {
    if (!kernel) return HostStatus::invalid_value;
    try {
        HostWork work = HostWork::on(range, HostWork::Kind::kernel);
        work.kernel = std::make_shared<std::function<void()>>(std::move(kernel));
        return submit(stream, std::move(work), false);
    } catch (...) {
        return HostStatus::out_of_host_memory;
    }
}

MEMSAVER_INLINE std::vector<std::string> HostMachine::violations() {
    return engine_.locked([&] { return engine_.violations().texts(); });
}

MEMSAVER_INLINE HostCounts HostMachine::counts() noexcept {
    return engine_.locked([&] {
        HostCounts counts;
        engine_.memory().count(counts);
        counts.streams = engine_.stream_count();
        for (const StreamRef lane : lanes_) counts.streams -= lane == StreamRef{} ? 0U : 1U;
        counts.events = events_.size();
        counts.graphs = graphs_.size();
        counts.pinned_bytes = pins_.pinned_bytes();
        return counts;
    });
}

MEMSAVER_INLINE Status HostMachine::with_memory(FunctionRef<Status(HostMemory&)> f) noexcept {
    return engine_.guarded([&](auto&) { return f(engine_.memory()); });
}

} // namespace detail

} // namespace memsaver::inline v0_3
