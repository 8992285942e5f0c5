// A driver that wraps another driver: injects failures, counts and logs calls, shows them to an observer, and tracks
// outstanding resources. Depends only on the driver concepts.
#pragma once

#include "memsaver/driver/concepts.hpp"
#include "memsaver/testing/call_log.hpp"
#include "memsaver/testing/faulty_system.hpp"

#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>

namespace memsaver::inline v0_3 {

/// Wraps any driver for tests: `FaultyDriver driver{HostDriver{1_GiB}}`. Copies compare equal and share everything: the
/// wrapped driver, planned failures, counts and ledger. Satisfies the concepts that `D` satisfies. Thread-safe; no lock
/// is held while the observer or the wrapped driver runs.
///
/// A call with an injected failure is not forwarded: it has no effect, and its outputs are untouched. Misuse is
/// recorded in `violations()` and still forwarded.
template <Driver D>
class FaultyDriver : public FaultySystem<D> {
    using FaultySystem<D>::call;

public:
    using FaultySystem<D>::inner;

    /// Wraps `driver`, a D or what one is made from: FaultyDriver<AnyDriver> takes every driver.
    template <class T>
    requires(!std::derived_from<std::remove_cvref_t<T>, FaultyDriver> &&
             std::constructible_from<D, T>) explicit FaultyDriver(T&& driver)
        : FaultySystem<D>{D{std::forward<T>(driver)}} {}

    [[nodiscard]] int device() const noexcept { return inner().device(); }
    [[nodiscard]] std::string name() const { return inner().name(); }
    /// Forwarded; cannot fail.
    [[nodiscard]] bool host_addressable() const noexcept requires requires(const D d) { d.host_addressable(); }
    { return inner().host_addressable(); }
    /// Forwarded; cannot fail.
    [[nodiscard]] int numa_node() const noexcept requires requires(const D d) { d.numa_node(); }
    { return inner().numa_node(); }
    /// Forwarded; failures cannot be injected.
    Status with_context(detail::FunctionRef<void()> work) const noexcept requires requires(const D d) {
        d.with_context(work);
    }
    { return inner().with_context(work); }

    Status granularity(std::size_t& bytes) const noexcept {
        return call({.call = Call::granularity}, [&](CallRecord&) { return inner().granularity(bytes); });
    }
    Status memory(DeviceMemory& memory) const noexcept {
        return call({.call = Call::memory}, [&](CallRecord&) { return inner().memory(memory); });
    }
    Status reserve(std::size_t bytes, std::size_t alignment, Address& address) const noexcept {
        return call({.call = Call::reserve, .bytes = bytes}, [&](CallRecord& made) {
            const Status status = inner().reserve(bytes, alignment, address);
            if (status.ok()) made.address = address;
            return status;
        });
    }
    Status unreserve(Address address, std::size_t bytes) const noexcept {
        return call({.call = Call::unreserve, .address = address, .bytes = bytes},
                    [&](CallRecord&) { return inner().unreserve(address, bytes); });
    }
    Status create(std::size_t bytes, PageHandle& handle) const noexcept {
        return call({.call = Call::create, .bytes = bytes}, [&](CallRecord& made) {
            const Status status = inner().create(bytes, handle);
            if (status.ok()) made.handle = handle;
            return status;
        });
    }
    Status release(PageHandle handle) const noexcept {
        return call({.call = Call::release, .handle = handle}, [&](CallRecord&) { return inner().release(handle); });
    }
    Status map(Address address, std::size_t bytes, PageHandle handle) const noexcept {
        return call({.call = Call::map, .address = address, .bytes = bytes, .handle = handle},
                    [&](CallRecord&) { return inner().map(address, bytes, handle); });
    }
    Status unmap(Address address, std::size_t bytes) const noexcept {
        return call({.call = Call::unmap, .address = address, .bytes = bytes},
                    [&](CallRecord&) { return inner().unmap(address, bytes); });
    }
    Status allow_access(Address address, std::size_t bytes) const noexcept {
        return call({.call = Call::allow_access, .address = address, .bytes = bytes},
                    [&](CallRecord&) { return inner().allow_access(address, bytes); });
    }

    Status open_stream(StreamRef& stream) const noexcept {
        return call({.call = Call::open_stream}, [&](CallRecord& made) {
            const Status status = inner().open_stream(stream);
            if (status.ok()) made.stream = stream;
            return status;
        });
    }
    Status close_stream(StreamRef stream) const noexcept {
        return call({.call = Call::close_stream, .stream = stream},
                    [&](CallRecord&) { return inner().close_stream(stream); });
    }
    Status open_event(StreamRef near, EventRef& event) const noexcept {
        return call({.call = Call::open_event, .stream = near}, [&](CallRecord& made) {
            const Status status = inner().open_event(near, event);
            if (status.ok()) made.event = event;
            return status;
        });
    }
    Status close_event(EventRef event) const noexcept {
        return call({.call = Call::close_event, .event = event},
                    [&](CallRecord&) { return inner().close_event(event); });
    }
    Status record(EventRef event, StreamRef stream) const noexcept {
        return call({.call = Call::record, .stream = stream, .event = event},
                    [&](CallRecord&) { return inner().record(event, stream); });
    }
    Status record_device(EventRef event) const noexcept {
        return call({.call = Call::record_device, .event = event},
                    [&](CallRecord&) { return inner().record_device(event); });
    }
    Status follow(StreamRef stream, EventRef event) const noexcept {
        return call({.call = Call::follow, .stream = stream, .event = event},
                    [&](CallRecord&) { return inner().follow(stream, event); });
    }
    Status query(EventRef event, bool& passed) const noexcept {
        return call({.call = Call::query, .event = event}, [&](CallRecord&) { return inner().query(event, passed); });
    }
    Status wait(EventRef event) const noexcept {
        return call({.call = Call::wait, .event = event}, [&](CallRecord&) { return inner().wait(event); });
    }
    Status drain() const noexcept {
        return call({.call = Call::drain}, [&](CallRecord&) { return inner().drain(); });
    }
    Status capturing(StreamRef stream, bool& yes) const noexcept {
        return call({.call = Call::capturing, .stream = stream},
                    [&](CallRecord&) { return inner().capturing(stream, yes); });
    }

    Status copy_to_host(void* host, Address from, std::size_t bytes, StreamRef stream) const noexcept {
        return call({.call = Call::copy_to_host, .address = from, .bytes = bytes, .stream = stream, .host = host},
                    [&](CallRecord&) { return inner().copy_to_host(host, from, bytes, stream); });
    }
    Status copy_to_device(Address to, const void* host, std::size_t bytes, StreamRef stream) const noexcept {
        return call({.call = Call::copy_to_device, .address = to, .bytes = bytes, .stream = stream, .host = host},
                    [&](CallRecord&) { return inner().copy_to_device(to, host, bytes, stream); });
    }
    Status fill(Address to, unsigned char byte, std::size_t bytes, StreamRef stream) const noexcept {
        return call({.call = Call::fill, .address = to, .bytes = bytes, .stream = stream},
                    [&](CallRecord&) { return inner().fill(to, byte, bytes, stream); });
    }

    Status reach_peer(Address address, std::size_t bytes) const noexcept requires Peers<D> {
        return call({.call = Call::reach_peer, .address = address, .bytes = bytes},
                    [&](CallRecord&) { return inner().reach_peer(address, bytes); });
    }
    Status copy_peer(Address to, Address from, std::size_t bytes, StreamRef stream) const noexcept requires Peers<D> {
        return call({.call = Call::copy_peer, .address = to, .bytes = bytes, .stream = stream},
                    [&](CallRecord&) { return inner().copy_peer(to, from, bytes, stream); });
    }
    Status copy_many(Direction direction, const CopyPart* parts, std::size_t count,
                     StreamRef stream) const noexcept requires BatchCopies<D> {
        std::size_t bytes = 0;
        for (std::size_t i = 0; i < count; ++i) bytes += parts[i].bytes;
        return call({.call = Call::copy_many, .bytes = bytes, .stream = stream}, [&](CallRecord& made) {
            const bool out = direction == Direction::out;
            for (std::size_t i = 0; i < count; ++i) {
                CallRecord part = made;
                part.call = out ? Call::copy_to_host : Call::copy_to_device;
                part.address = out ? parts[i].from : parts[i].to;
                part.host = reinterpret_cast<const void*>(out ? parts[i].to : parts[i].from);
                part.bytes = parts[i].bytes;
                this->look(part);
            }
            return inner().copy_many(direction, parts, count, stream);
        });
    }
    Status copy_by_kernel(Address to, Address from, std::size_t bytes,
                          StreamRef stream) const noexcept requires KernelCopies<D> {
        return call({.call = Call::copy_by_kernel, .address = to, .bytes = bytes, .stream = stream},
                    [&](CallRecord&) { return inner().copy_by_kernel(to, from, bytes, stream); });
    }

    Status allocate_plain(std::size_t bytes, Address& address) const noexcept requires Plain<D> {
        return call({.call = Call::allocate_plain, .bytes = bytes}, [&](CallRecord& made) {
            const Status status = inner().allocate_plain(bytes, address);
            if (status.ok()) made.address = address;
            return status;
        });
    }
    Status free_plain(Address address) const noexcept requires Plain<D> {
        return call({.call = Call::free_plain, .address = address},
                    [&](CallRecord&) { return inner().free_plain(address); });
    }

    Status begin_capture(StreamRef stream, CaptureMode mode) const noexcept requires Captures<D> {
        return call({.call = Call::begin_capture, .stream = stream},
                    [&](CallRecord&) { return inner().begin_capture(stream, mode); });
    }
    Status end_capture(StreamRef stream, GraphRef& graph) const noexcept requires Captures<D> {
        return call({.call = Call::end_capture, .stream = stream}, [&](CallRecord& made) {
            const Status status = inner().end_capture(stream, graph);
            if (status.ok()) made.graph = graph;
            return status;
        });
    }
    Status update_graph(StreamRef stream, GraphRef& graph) const noexcept requires Captures<D> {
        return call({.call = Call::update_graph, .stream = stream, .graph = graph}, [&](CallRecord& made) {
            const Status status = inner().update_graph(stream, graph);
            made.graph = graph; // may be a new graph that replaces the old one
            return status;
        });
    }
    Status launch(GraphRef graph, StreamRef stream) const noexcept requires Captures<D> {
        return call({.call = Call::launch, .stream = stream, .graph = graph},
                    [&](CallRecord&) { return inner().launch(graph, stream); });
    }
    Status close_graph(GraphRef graph) const noexcept requires Captures<D> {
        return call({.call = Call::close_graph, .graph = graph},
                    [&](CallRecord&) { return inner().close_graph(graph); });
    }

    Status follow_outside(StreamRef stream, EventRef event) const noexcept requires Gates<D> {
        return call({.call = Call::follow_outside, .stream = stream, .event = event},
                    [&](CallRecord&) { return inner().follow_outside(stream, event); });
    }
};

template <class D>
FaultyDriver(D) -> FaultyDriver<D>;

} // namespace memsaver::inline v0_3
