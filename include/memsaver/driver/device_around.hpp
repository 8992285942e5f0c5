// DeviceAround: a machine that makes every call on another one.
#pragma once

#include "memsaver/driver/any_driver.hpp"
#include "memsaver/driver/calls.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace memsaver::inline v0_3 {

/// Forwards every call to an inner machine. Derive from it to change a few calls, by overriding them; or to see or fail
/// all of them, by overriding `around`. Whatever the inner machine has, it has. It is not equal to the inner machine.
class DeviceAround : public Device {
public:
    explicit DeviceAround(AnyDriver inner) : inner_{std::move(inner)} {}

    [[nodiscard]] const AnyDriver& inner() const noexcept { return inner_; }

    // clang-format off
    [[nodiscard]] int device() const noexcept override { return inner_.device(); }
    [[nodiscard]] std::string name() const override { return inner_.name(); }
    [[nodiscard]] Features features() const noexcept override { return inner_.features(); }
    Status identity(std::string& text) const noexcept override { return inner_.identity(text); }
    [[nodiscard]] int numa_node() const noexcept override { return inner_.numa_node(); }
    [[nodiscard]] Neighbours* neighbours() noexcept override { return inner_.neighbours(); }
    [[nodiscard]] std::string holders() const override { return inner_.holders(); }
    Status with_context(detail::FunctionRef<void()> work) noexcept override {
    return inner_.with_context(work);
}
    void name_addresses(Address address, std::size_t bytes, const char* name) noexcept override {
    inner_.name_addresses(address, bytes, name);
}

    Status granularity(std::size_t& bytes) noexcept override {
    CallRecord made{.call = Call::granularity};
    return around(made, [&] { return inner_.granularity(bytes); });
}
    Status memory(DeviceMemory& memory) noexcept override {
    CallRecord made{.call = Call::memory};
    return around(made, [&] { return inner_.memory(memory); });
}
    Status reserve(std::size_t bytes, std::size_t alignment, Address& address) noexcept override {
    CallRecord made{.call = Call::reserve, .bytes = bytes};
    return around(made, [&] {
        const Status status = inner_.reserve(bytes, alignment, address);
        if (status.ok()) made.address = address;
        return status;
    });
}
    Status unreserve(Address address, std::size_t bytes) noexcept override {
    CallRecord made{.call = Call::unreserve, .address = address, .bytes = bytes};
    return around(made, [&] { return inner_.unreserve(address, bytes); });
}
    Status create(std::size_t bytes, PageHandle& pages) noexcept override {
    CallRecord made{.call = Call::create, .bytes = bytes};
    return around(made, [&] {
        const Status status = inner_.create(bytes, pages);
        if (status.ok()) made.handle = pages;
        return status;
    });
}
    Status release(PageHandle pages) noexcept override {
    CallRecord made{.call = Call::release, .handle = pages};
    return around(made, [&] { return inner_.release(pages); });
}
    Status map(Address address, std::size_t bytes, PageHandle pages) noexcept override {
    CallRecord made{.call = Call::map, .address = address, .bytes = bytes, .handle = pages};
    return around(made, [&] { return inner_.map(address, bytes, pages); });
}
    Status unmap(Address address, std::size_t bytes) noexcept override {
    CallRecord made{.call = Call::unmap, .address = address, .bytes = bytes};
    return around(made, [&] { return inner_.unmap(address, bytes); });
}
    Status allow_access(Address address, std::size_t bytes, Rights rights) noexcept override {
    CallRecord made{.call = Call::allow_access, .address = address, .bytes = bytes, .rights = rights};
    return around(made, [&] { return inner_.allow_access(address, bytes, rights); });
}
    Status take(std::size_t at_most, PageHandle& pages, std::size_t& got) noexcept override {
    CallRecord made{.call = Call::take};
    return around(made, [&] {
        const Status status = inner_.take(at_most, pages, got);
        if (status.ok()) made.handle = pages, made.bytes = got;
        return status;
    });
}
    Status ask_for_room(std::size_t bytes, std::int64_t within) noexcept override {
    CallRecord made{.call = Call::ask_for_room, .bytes = bytes};
    return around(made, [&] { return inner_.ask_for_room(bytes, within); });
}
    Status create_shared(std::size_t bytes, PageHandle& pages) noexcept override {
    CallRecord made{.call = Call::create_shared, .bytes = bytes};
    return around(made, [&] {
        const Status status = inner_.create_shared(bytes, pages);
        if (status.ok()) made.handle = pages;
        return status;
    });
}
    Status export_pages(PageHandle pages, int& descriptor) noexcept override {
    CallRecord made{.call = Call::export_pages, .handle = pages};
    return around(made, [&] { return inner_.export_pages(pages, descriptor); });
}
    Status import_pages(int descriptor, PageHandle& pages) noexcept override {
    CallRecord made{.call = Call::import_pages};
    return around(made, [&] {
        const Status status = inner_.import_pages(descriptor, pages);
        if (status.ok()) made.handle = pages;
        return status;
    });
}

    Status open_stream(StreamRef& stream) noexcept override {
    CallRecord made{.call = Call::open_stream};
    return around(made, [&] {
        const Status status = inner_.open_stream(stream);
        if (status.ok()) made.stream = stream;
        return status;
    });
}
    Status close_stream(StreamRef stream) noexcept override {
    CallRecord made{.call = Call::close_stream, .stream = stream};
    return around(made, [&] { return inner_.close_stream(stream); });
}
    Status open_event(StreamRef near, EventRef& event) noexcept override {
    CallRecord made{.call = Call::open_event, .stream = near};
    return around(made, [&] {
        const Status status = inner_.open_event(near, event);
        if (status.ok()) made.event = event;
        return status;
    });
}
    Status close_event(EventRef event) noexcept override {
    CallRecord made{.call = Call::close_event, .event = event};
    return around(made, [&] { return inner_.close_event(event); });
}
    Status record(EventRef event, StreamRef stream) noexcept override {
    CallRecord made{.call = Call::record, .stream = stream, .event = event};
    return around(made, [&] { return inner_.record(event, stream); });
}
    Status record_device(EventRef event) noexcept override {
    CallRecord made{.call = Call::record_device, .event = event};
    return around(made, [&] { return inner_.record_device(event); });
}
    Status follow(StreamRef stream, EventRef event) noexcept override {
    CallRecord made{.call = Call::follow, .stream = stream, .event = event};
    return around(made, [&] { return inner_.follow(stream, event); });
}
    Status query(EventRef event, bool& passed) noexcept override {
    CallRecord made{.call = Call::query, .event = event};
    return around(made, [&] { return inner_.query(event, passed); });
}
    Status wait(EventRef event) noexcept override {
    CallRecord made{.call = Call::wait, .event = event};
    return around(made, [&] { return inner_.wait(event); });
}
    Status drain() noexcept override {
    CallRecord made{.call = Call::drain};
    return around(made, [&] { return inner_.drain(); });
}
    Status capturing(StreamRef stream, bool& yes) noexcept override {
    CallRecord made{.call = Call::capturing, .stream = stream};
    return around(made, [&] { return inner_.capturing(stream, yes); });
}
    Status lane(Direction direction, StreamRef& stream) noexcept override {
    CallRecord made{.call = Call::lane};
    return around(made, [&] {
        const Status status = inner_.lane(direction, stream);
        if (status.ok()) made.stream = stream;
        return status;
    });
}
    Status owns_stream(StreamRef stream, bool& yes) noexcept override {
    CallRecord made{.call = Call::owns_stream, .stream = stream};
    return around(made, [&] { return inner_.owns_stream(stream, yes); });
}
    Status owns_event(EventRef event, bool& yes) noexcept override {
    CallRecord made{.call = Call::owns_stream, .event = event};
    return around(made, [&] { return inner_.owns_event(event, yes); });
}

    Status copy_to_host(void* host, Address from, std::size_t bytes, StreamRef stream) noexcept override {
    CallRecord made{.call = Call::copy_to_host, .address = from, .bytes = bytes, .stream = stream, .host = host};
    return around(made, [&] { return inner_.copy_to_host(host, from, bytes, stream); });
}
    Status copy_to_device(Address to, const void* host, std::size_t bytes, StreamRef stream) noexcept override {
    CallRecord made{.call = Call::copy_to_device, .address = to, .bytes = bytes, .stream = stream, .host = host};
    return around(made, [&] { return inner_.copy_to_device(to, host, bytes, stream); });
}
    Status fill(Address to, unsigned char byte, std::size_t bytes, StreamRef stream) noexcept override {
    CallRecord made{.call = Call::fill, .address = to, .bytes = bytes, .stream = stream};
    return around(made, [&] { return inner_.fill(to, byte, bytes, stream); });
}
    Status reach_peer(Address address, std::size_t bytes) noexcept override {
    CallRecord made{.call = Call::reach_peer, .address = address, .bytes = bytes};
    return around(made, [&] { return inner_.reach_peer(address, bytes); });
}
    Status copy_peer(Address to, Address from, std::size_t bytes, StreamRef stream) noexcept override {
    CallRecord made{.call = Call::copy_peer, .address = to, .bytes = bytes, .stream = stream};
    return around(made, [&] { return inner_.copy_peer(to, from, bytes, stream); });
}
    Status copy_many(Direction direction, const CopyPart* parts, std::size_t count, StreamRef stream) noexcept override {
    std::size_t all = 0;
    for (std::size_t i = 0; i < count; ++i) all += parts[i].bytes;
    CallRecord made{.call = Call::copy_many,
                    .bytes = all,
                    .stream = stream,
                    .parts = parts,
                    .count = count,
                    .direction = direction};
    return around(made, [&] { return inner_.copy_many(direction, parts, count, stream); });
}
    Status copy_by_kernel(Address to, Address from, std::size_t bytes, StreamRef stream) noexcept override {
    CallRecord made{.call = Call::copy_by_kernel, .address = to, .bytes = bytes, .stream = stream};
    return around(made, [&] { return inner_.copy_by_kernel(to, from, bytes, stream); });
}
    Status run_kernel(const KernelRun& run, StreamRef stream) noexcept override {
    CallRecord made{.call = Call::run_kernel, .address = run.reads.address, .bytes = run.reads.bytes, .stream = stream};
    return around(made, [&] { return inner_.run_kernel(run, stream); });
}

    Status allocate_plain(std::size_t bytes, Address& address) noexcept override {
    CallRecord made{.call = Call::allocate_plain, .bytes = bytes};
    return around(made, [&] {
        const Status status = inner_.allocate_plain(bytes, address);
        if (status.ok()) made.address = address;
        return status;
    });
}
    Status free_plain(Address address) noexcept override {
    CallRecord made{.call = Call::free_plain, .address = address};
    return around(made, [&] { return inner_.free_plain(address); });
}
    Status begin_capture(StreamRef stream, CaptureMode mode) noexcept override {
    CallRecord made{.call = Call::begin_capture, .stream = stream};
    return around(made, [&] { return inner_.begin_capture(stream, mode); });
}
    Status end_capture(StreamRef stream, GraphRef& graph) noexcept override {
    CallRecord made{.call = Call::end_capture, .stream = stream};
    return around(made, [&] {
        const Status status = inner_.end_capture(stream, graph);
        if (status.ok()) made.graph = graph;
        return status;
    });
}
    Status update_graph(StreamRef stream, GraphRef& graph) noexcept override {
    CallRecord made{.call = Call::update_graph, .stream = stream, .graph = graph};
    return around(made, [&] {
        const Status status = inner_.update_graph(stream, graph);
        made.graph = graph; // perhaps another one, in the place of the old one
        return status;
    });
}
    Status launch(GraphRef graph, StreamRef stream) noexcept override {
    CallRecord made{.call = Call::launch, .stream = stream, .graph = graph};
    return around(made, [&] { return inner_.launch(graph, stream); });
}
    Status close_graph(GraphRef graph) noexcept override {
    CallRecord made{.call = Call::close_graph, .graph = graph};
    return around(made, [&] { return inner_.close_graph(graph); });
}
    Status follow_outside(StreamRef stream, EventRef event) noexcept override {
    CallRecord made{.call = Call::follow_outside, .stream = stream, .event = event};
    return around(made, [&] { return inner_.follow_outside(stream, event); });
}
    Status pool_memory(PoolRef pool, std::size_t& bytes) noexcept override {
    CallRecord made{.call = Call::pool_memory};
    return around(made, [&] { return inner_.pool_memory(pool, bytes); });
}
    Status trim_pool(PoolRef pool, std::size_t keep) noexcept override {
    CallRecord made{.call = Call::trim_pool, .bytes = keep};
    return around(made, [&] { return inner_.trim_pool(pool, keep); });
}

    Status map_host(std::size_t bytes, void*& pages) noexcept override {
    CallRecord made{.call = Call::map_host, .bytes = bytes};
    return around(made, [&] {
        const Status status = inner_.map_host(bytes, pages);
        if (status.ok()) made.host = pages;
        return status;
    });
}
    Status unmap_host(void* pages, std::size_t bytes) noexcept override {
    CallRecord made{.call = Call::unmap_host, .bytes = bytes, .host = pages};
    return around(made, [&] { return inner_.unmap_host(pages, bytes); });
}
    Status populate_host(void* pages, std::size_t bytes) noexcept override {
    CallRecord made{.call = Call::populate_host, .bytes = bytes, .host = pages};
    return around(made, [&] { return inner_.populate_host(pages, bytes); });
}
    Status host_available(std::size_t& bytes) noexcept override {
    CallRecord made{.call = Call::host_available};
    return around(made, [&] { return inner_.host_available(bytes); });
}
    Status pin_host(void* pages, std::size_t bytes) noexcept override {
    CallRecord made{.call = Call::pin_host, .bytes = bytes, .host = pages};
    return around(made, [&] { return inner_.pin_host(pages, bytes); });
}
    Status unpin_host(void* pages) noexcept override {
    CallRecord made{.call = Call::unpin_host, .host = pages};
    return around(made, [&] { return inner_.unpin_host(pages); });
}
    Status open_file(const char* directory, FileRef& file) noexcept override {
    CallRecord made{.call = Call::open_file};
    return around(made, [&] {
        const Status status = inner_.open_file(directory, file);
        if (status.ok()) made.file = file;
        return status;
    });
}
    Status open_source(const char* path, bool direct, FileRef& file) noexcept override {
    CallRecord made{.call = Call::open_source};
    return around(made, [&] {
        const Status status = inner_.open_source(path, direct, file);
        if (status.ok()) made.file = file;
        return status;
    });
}
    Status close_file(FileRef file) noexcept override {
    CallRecord made{.call = Call::close_file, .file = file};
    return around(made, [&] { return inner_.close_file(file); });
}
    Status write_file(FileRef file, const void* from, std::size_t bytes, std::size_t offset) noexcept override {
    CallRecord made{.call = Call::write_file, .bytes = bytes, .host = from, .file = file, .offset = offset};
    return around(made, [&] { return inner_.write_file(file, from, bytes, offset); });
}
    Status read_file(FileRef file, void* to, std::size_t bytes, std::size_t offset) noexcept override {
    CallRecord made{.call = Call::read_file, .bytes = bytes, .host = to, .file = file, .offset = offset};
    return around(made, [&] { return inner_.read_file(file, to, bytes, offset); });
}
    Status allocate_file(FileRef file, std::size_t offset, std::size_t bytes) noexcept override {
    CallRecord made{.call = Call::allocate_file, .bytes = bytes, .file = file, .offset = offset};
    return around(made, [&] { return inner_.allocate_file(file, offset, bytes); });
}
    Status punch_file(FileRef file, std::size_t offset, std::size_t bytes) noexcept override {
    CallRecord made{.call = Call::punch_file, .bytes = bytes, .file = file, .offset = offset};
    return around(made, [&] { return inner_.punch_file(file, offset, bytes); });
}
    Status file_facts(FileRef file, FileFacts& facts) noexcept override {
    CallRecord made{.call = Call::file_facts, .file = file};
    return around(made, [&] { return inner_.file_facts(file, facts); });
}
    Status file_cached(FileRef file, std::size_t bytes, std::size_t offset, bool& yes) noexcept override {
    CallRecord made{.call = Call::file_cached, .bytes = bytes, .file = file, .offset = offset};
    return around(made, [&] { return inner_.file_cached(file, bytes, offset, yes); });
}
    // clang-format on

protected:
    /// Every call of the enumeration Call passes through here. `made` holds the arguments; `forward` makes the call on
    /// the inner machine and, if it succeeds, adds what it gave to `made`. Returns what the call returns.
    virtual Status around(CallRecord&, detail::FunctionRef<Status()> forward) noexcept { return forward(); }

private:
    AnyDriver inner_;
};

} // namespace memsaver::inline v0_3
