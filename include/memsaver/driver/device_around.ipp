// Definitions of device_around.hpp.
#pragma once

#include "memsaver/driver/device_around.hpp"

#include <cstddef>
#include <cstdint>
#include <string>

namespace memsaver::inline v0_3 {

MEMSAVER_INLINE int DeviceAround::device() const noexcept { return inner_.device(); }

MEMSAVER_INLINE std::string DeviceAround::name() const { return inner_.name(); }

MEMSAVER_INLINE Features DeviceAround::features() const noexcept { return inner_.features(); }

MEMSAVER_INLINE Status DeviceAround::identity(std::string& text) const noexcept { return inner_.identity(text); }

MEMSAVER_INLINE int DeviceAround::numa_node() const noexcept { return inner_.numa_node(); }

MEMSAVER_INLINE Neighbours* DeviceAround::neighbours() noexcept { return inner_.neighbours(); }

MEMSAVER_INLINE std::string DeviceAround::holders() const { return inner_.holders(); }

MEMSAVER_INLINE Status DeviceAround::with_context(detail::FunctionRef<void()> work) noexcept {
    return inner_.with_context(work);
}

MEMSAVER_INLINE void DeviceAround::name_addresses(Address address, std::size_t bytes, const char* name) noexcept {
    inner_.name_addresses(address, bytes, name);
}

MEMSAVER_INLINE Status DeviceAround::around(CallRecord&, detail::FunctionRef<Status()> forward) noexcept {
    return forward();
}

MEMSAVER_INLINE Status DeviceAround::granularity(std::size_t& bytes) noexcept {
    CallRecord made{.call = Call::granularity};
    return around(made, [&] { return inner_.granularity(bytes); });
}

MEMSAVER_INLINE Status DeviceAround::memory(DeviceMemory& memory) noexcept {
    CallRecord made{.call = Call::memory};
    return around(made, [&] { return inner_.memory(memory); });
}

MEMSAVER_INLINE Status DeviceAround::reserve(std::size_t bytes, std::size_t alignment, Address& address) noexcept {
    CallRecord made{.call = Call::reserve, .bytes = bytes};
    return around(made, [&] {
        const Status status = inner_.reserve(bytes, alignment, address);
        if (status.ok()) made.address = address;
        return status;
    });
}

MEMSAVER_INLINE Status DeviceAround::unreserve(Address address, std::size_t bytes) noexcept {
    CallRecord made{.call = Call::unreserve, .address = address, .bytes = bytes};
    return around(made, [&] { return inner_.unreserve(address, bytes); });
}

MEMSAVER_INLINE Status DeviceAround::create(std::size_t bytes, PageHandle& pages) noexcept {
    CallRecord made{.call = Call::create, .bytes = bytes};
    return around(made, [&] {
        const Status status = inner_.create(bytes, pages);
        if (status.ok()) made.handle = pages;
        return status;
    });
}

MEMSAVER_INLINE Status DeviceAround::release(PageHandle pages) noexcept {
    CallRecord made{.call = Call::release, .handle = pages};
    return around(made, [&] { return inner_.release(pages); });
}

MEMSAVER_INLINE Status DeviceAround::map(Address address, std::size_t bytes, PageHandle pages) noexcept {
    CallRecord made{.call = Call::map, .address = address, .bytes = bytes, .handle = pages};
    return around(made, [&] { return inner_.map(address, bytes, pages); });
}

MEMSAVER_INLINE Status DeviceAround::unmap(Address address, std::size_t bytes) noexcept {
    CallRecord made{.call = Call::unmap, .address = address, .bytes = bytes};
    return around(made, [&] { return inner_.unmap(address, bytes); });
}

MEMSAVER_INLINE Status DeviceAround::allow_access(Address address, std::size_t bytes, Rights rights) noexcept {
    CallRecord made{.call = Call::allow_access, .address = address, .bytes = bytes, .rights = rights};
    return around(made, [&] { return inner_.allow_access(address, bytes, rights); });
}

MEMSAVER_INLINE Status DeviceAround::take(std::size_t at_most, PageHandle& pages, std::size_t& got) noexcept {
    CallRecord made{.call = Call::take};
    return around(made, [&] {
        const Status status = inner_.take(at_most, pages, got);
        if (status.ok()) made.handle = pages, made.bytes = got;
        return status;
    });
}

MEMSAVER_INLINE Status DeviceAround::ask_for_room(std::size_t bytes, std::int64_t within) noexcept {
    CallRecord made{.call = Call::ask_for_room, .bytes = bytes};
    return around(made, [&] { return inner_.ask_for_room(bytes, within); });
}

MEMSAVER_INLINE Status DeviceAround::create_shared(std::size_t bytes, PageHandle& pages) noexcept {
    CallRecord made{.call = Call::create_shared, .bytes = bytes};
    return around(made, [&] {
        const Status status = inner_.create_shared(bytes, pages);
        if (status.ok()) made.handle = pages;
        return status;
    });
}

MEMSAVER_INLINE Status DeviceAround::export_pages(PageHandle pages, int& descriptor) noexcept {
    CallRecord made{.call = Call::export_pages, .handle = pages};
    return around(made, [&] { return inner_.export_pages(pages, descriptor); });
}

MEMSAVER_INLINE Status DeviceAround::import_pages(int descriptor, PageHandle& pages) noexcept {
    CallRecord made{.call = Call::import_pages};
    return around(made, [&] {
        const Status status = inner_.import_pages(descriptor, pages);
        if (status.ok()) made.handle = pages;
        return status;
    });
}

MEMSAVER_INLINE Status DeviceAround::open_stream(StreamRef& stream) noexcept {
    CallRecord made{.call = Call::open_stream};
    return around(made, [&] {
        const Status status = inner_.open_stream(stream);
        if (status.ok()) made.stream = stream;
        return status;
    });
}

MEMSAVER_INLINE Status DeviceAround::close_stream(StreamRef stream) noexcept {
    CallRecord made{.call = Call::close_stream, .stream = stream};
    return around(made, [&] { return inner_.close_stream(stream); });
}

MEMSAVER_INLINE Status DeviceAround::open_event(StreamRef near, EventRef& event) noexcept {
    CallRecord made{.call = Call::open_event, .stream = near};
    return around(made, [&] {
        const Status status = inner_.open_event(near, event);
        if (status.ok()) made.event = event;
        return status;
    });
}

MEMSAVER_INLINE Status DeviceAround::close_event(EventRef event) noexcept {
    CallRecord made{.call = Call::close_event, .event = event};
    return around(made, [&] { return inner_.close_event(event); });
}

MEMSAVER_INLINE Status DeviceAround::record(EventRef event, StreamRef stream) noexcept {
    CallRecord made{.call = Call::record, .stream = stream, .event = event};
    return around(made, [&] { return inner_.record(event, stream); });
}

MEMSAVER_INLINE Status DeviceAround::record_device(EventRef event) noexcept {
    CallRecord made{.call = Call::record_device, .event = event};
    return around(made, [&] { return inner_.record_device(event); });
}

MEMSAVER_INLINE Status DeviceAround::follow(StreamRef stream, EventRef event) noexcept {
    CallRecord made{.call = Call::follow, .stream = stream, .event = event};
    return around(made, [&] { return inner_.follow(stream, event); });
}

MEMSAVER_INLINE Status DeviceAround::query(EventRef event, bool& passed) noexcept {
    CallRecord made{.call = Call::query, .event = event};
    return around(made, [&] { return inner_.query(event, passed); });
}

MEMSAVER_INLINE Status DeviceAround::wait(EventRef event) noexcept {
    CallRecord made{.call = Call::wait, .event = event};
    return around(made, [&] { return inner_.wait(event); });
}

MEMSAVER_INLINE Status DeviceAround::drain() noexcept {
    CallRecord made{.call = Call::drain};
    return around(made, [&] { return inner_.drain(); });
}

MEMSAVER_INLINE Status DeviceAround::capturing(StreamRef stream, bool& yes) noexcept {
    CallRecord made{.call = Call::capturing, .stream = stream};
    return around(made, [&] { return inner_.capturing(stream, yes); });
}

MEMSAVER_INLINE Status DeviceAround::lane(Direction direction, StreamRef& stream) noexcept {
    CallRecord made{.call = Call::lane};
    return around(made, [&] {
        const Status status = inner_.lane(direction, stream);
        if (status.ok()) made.stream = stream;
        return status;
    });
}

MEMSAVER_INLINE Status DeviceAround::owns_stream(StreamRef stream, bool& yes) noexcept {
    CallRecord made{.call = Call::owns_stream, .stream = stream};
    return around(made, [&] { return inner_.owns_stream(stream, yes); });
}

MEMSAVER_INLINE Status DeviceAround::owns_event(EventRef event, bool& yes) noexcept {
    CallRecord made{.call = Call::owns_stream, .event = event};
    return around(made, [&] { return inner_.owns_event(event, yes); });
}

MEMSAVER_INLINE Status DeviceAround::copy_to_host(void* host, Address from, std::size_t bytes,
                                                  StreamRef stream) noexcept {
    CallRecord made{.call = Call::copy_to_host, .address = from, .bytes = bytes, .stream = stream, .host = host};
    return around(made, [&] { return inner_.copy_to_host(host, from, bytes, stream); });
}

MEMSAVER_INLINE Status DeviceAround::copy_to_device(Address to, const void* host, std::size_t bytes,
                                                    StreamRef stream) noexcept {
    CallRecord made{.call = Call::copy_to_device, .address = to, .bytes = bytes, .stream = stream, .host = host};
    return around(made, [&] { return inner_.copy_to_device(to, host, bytes, stream); });
}

MEMSAVER_INLINE Status DeviceAround::fill(Address to, unsigned char byte, std::size_t bytes,
                                          StreamRef stream) noexcept {
    CallRecord made{.call = Call::fill, .address = to, .bytes = bytes, .stream = stream};
    return around(made, [&] { return inner_.fill(to, byte, bytes, stream); });
}

MEMSAVER_INLINE Status DeviceAround::reach_peer(Address address, std::size_t bytes) noexcept {
    CallRecord made{.call = Call::reach_peer, .address = address, .bytes = bytes};
    return around(made, [&] { return inner_.reach_peer(address, bytes); });
}

MEMSAVER_INLINE Status DeviceAround::copy_peer(Address to, Address from, std::size_t bytes, StreamRef stream) noexcept {
    CallRecord made{.call = Call::copy_peer, .address = to, .bytes = bytes, .stream = stream};
    return around(made, [&] { return inner_.copy_peer(to, from, bytes, stream); });
}

MEMSAVER_INLINE Status DeviceAround::copy_many(Direction direction, const CopyPart* parts, std::size_t count,
                                               StreamRef stream) noexcept {
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

MEMSAVER_INLINE Status DeviceAround::copy_by_kernel(Address to, Address from, std::size_t bytes,
                                                    StreamRef stream) noexcept {
    CallRecord made{.call = Call::copy_by_kernel, .address = to, .bytes = bytes, .stream = stream};
    return around(made, [&] { return inner_.copy_by_kernel(to, from, bytes, stream); });
}

MEMSAVER_INLINE Status DeviceAround::run_kernel(const KernelRun& run, StreamRef stream) noexcept {
    CallRecord made{.call = Call::run_kernel, .address = run.reads.address, .bytes = run.reads.bytes, .stream = stream};
    return around(made, [&] { return inner_.run_kernel(run, stream); });
}

MEMSAVER_INLINE Status DeviceAround::allocate_plain(std::size_t bytes, Address& address) noexcept {
    CallRecord made{.call = Call::allocate_plain, .bytes = bytes};
    return around(made, [&] {
        const Status status = inner_.allocate_plain(bytes, address);
        if (status.ok()) made.address = address;
        return status;
    });
}

MEMSAVER_INLINE Status DeviceAround::free_plain(Address address) noexcept {
    CallRecord made{.call = Call::free_plain, .address = address};
    return around(made, [&] { return inner_.free_plain(address); });
}

MEMSAVER_INLINE Status DeviceAround::begin_capture(StreamRef stream, CaptureMode mode) noexcept {
    CallRecord made{.call = Call::begin_capture, .stream = stream};
    return around(made, [&] { return inner_.begin_capture(stream, mode); });
}

MEMSAVER_INLINE Status DeviceAround::end_capture(StreamRef stream, GraphRef& graph) noexcept {
    CallRecord made{.call = Call::end_capture, .stream = stream};
    return around(made, [&] {
        const Status status = inner_.end_capture(stream, graph);
        if (status.ok()) made.graph = graph;
        return status;
    });
}

MEMSAVER_INLINE Status DeviceAround::update_graph(StreamRef stream, GraphRef& graph) noexcept {
    CallRecord made{.call = Call::update_graph, .stream = stream, .graph = graph};
    return around(made, [&] {
        const Status status = inner_.update_graph(stream, graph);
        made.graph = graph; // perhaps another one, in the place of the old one
        return status;
    });
}

MEMSAVER_INLINE Status DeviceAround::launch(GraphRef graph, StreamRef stream) noexcept {
    CallRecord made{.call = Call::launch, .stream = stream, .graph = graph};
    return around(made, [&] { return inner_.launch(graph, stream); });
}

MEMSAVER_INLINE Status DeviceAround::close_graph(GraphRef graph) noexcept {
    CallRecord made{.call = Call::close_graph, .graph = graph};
    return around(made, [&] { return inner_.close_graph(graph); });
}

MEMSAVER_INLINE Status DeviceAround::follow_outside(StreamRef stream, EventRef event) noexcept {
    CallRecord made{.call = Call::follow_outside, .stream = stream, .event = event};
    return around(made, [&] { return inner_.follow_outside(stream, event); });
}

MEMSAVER_INLINE Status DeviceAround::pool_memory(PoolRef pool, std::size_t& bytes) noexcept {
    CallRecord made{.call = Call::pool_memory};
    return around(made, [&] { return inner_.pool_memory(pool, bytes); });
}

MEMSAVER_INLINE Status DeviceAround::trim_pool(PoolRef pool, std::size_t keep) noexcept {
    CallRecord made{.call = Call::trim_pool, .bytes = keep};
    return around(made, [&] { return inner_.trim_pool(pool, keep); });
}

MEMSAVER_INLINE Status DeviceAround::map_host(std::size_t bytes, void*& pages) noexcept {
    CallRecord made{.call = Call::map_host, .bytes = bytes};
    return around(made, [&] {
        const Status status = inner_.map_host(bytes, pages);
        if (status.ok()) made.host = pages;
        return status;
    });
}

MEMSAVER_INLINE Status DeviceAround::unmap_host(void* pages, std::size_t bytes) noexcept {
    CallRecord made{.call = Call::unmap_host, .bytes = bytes, .host = pages};
    return around(made, [&] { return inner_.unmap_host(pages, bytes); });
}

MEMSAVER_INLINE Status DeviceAround::populate_host(void* pages, std::size_t bytes) noexcept {
    CallRecord made{.call = Call::populate_host, .bytes = bytes, .host = pages};
    return around(made, [&] { return inner_.populate_host(pages, bytes); });
}

MEMSAVER_INLINE Status DeviceAround::host_available(std::size_t& bytes) noexcept {
    CallRecord made{.call = Call::host_available};
    return around(made, [&] { return inner_.host_available(bytes); });
}

MEMSAVER_INLINE Status DeviceAround::pin_host(void* pages, std::size_t bytes) noexcept {
    CallRecord made{.call = Call::pin_host, .bytes = bytes, .host = pages};
    return around(made, [&] { return inner_.pin_host(pages, bytes); });
}

MEMSAVER_INLINE Status DeviceAround::unpin_host(void* pages) noexcept {
    CallRecord made{.call = Call::unpin_host, .host = pages};
    return around(made, [&] { return inner_.unpin_host(pages); });
}

MEMSAVER_INLINE Status DeviceAround::open_file(const char* directory, FileRef& file) noexcept {
    CallRecord made{.call = Call::open_file};
    return around(made, [&] {
        const Status status = inner_.open_file(directory, file);
        if (status.ok()) made.file = file;
        return status;
    });
}

MEMSAVER_INLINE Status DeviceAround::open_source(const char* path, bool direct, FileRef& file) noexcept {
    CallRecord made{.call = Call::open_source};
    return around(made, [&] {
        const Status status = inner_.open_source(path, direct, file);
        if (status.ok()) made.file = file;
        return status;
    });
}

MEMSAVER_INLINE Status DeviceAround::close_file(FileRef file) noexcept {
    CallRecord made{.call = Call::close_file, .file = file};
    return around(made, [&] { return inner_.close_file(file); });
}

MEMSAVER_INLINE Status DeviceAround::write_file(FileRef file, const void* from, std::size_t bytes,
                                                std::size_t offset) noexcept {
    CallRecord made{.call = Call::write_file, .bytes = bytes, .host = from, .file = file, .offset = offset};
    return around(made, [&] { return inner_.write_file(file, from, bytes, offset); });
}

MEMSAVER_INLINE Status DeviceAround::read_file(FileRef file, void* to, std::size_t bytes, std::size_t offset) noexcept {
    CallRecord made{.call = Call::read_file, .bytes = bytes, .host = to, .file = file, .offset = offset};
    return around(made, [&] { return inner_.read_file(file, to, bytes, offset); });
}

MEMSAVER_INLINE Status DeviceAround::allocate_file(FileRef file, std::size_t offset, std::size_t bytes) noexcept {
    CallRecord made{.call = Call::allocate_file, .bytes = bytes, .file = file, .offset = offset};
    return around(made, [&] { return inner_.allocate_file(file, offset, bytes); });
}

MEMSAVER_INLINE Status DeviceAround::punch_file(FileRef file, std::size_t offset, std::size_t bytes) noexcept {
    CallRecord made{.call = Call::punch_file, .bytes = bytes, .file = file, .offset = offset};
    return around(made, [&] { return inner_.punch_file(file, offset, bytes); });
}

MEMSAVER_INLINE Status DeviceAround::file_facts(FileRef file, FileFacts& facts) noexcept {
    CallRecord made{.call = Call::file_facts, .file = file};
    return around(made, [&] { return inner_.file_facts(file, facts); });
}

MEMSAVER_INLINE Status DeviceAround::file_cached(FileRef file, std::size_t bytes, std::size_t offset,
                                                 bool& yes) noexcept {
    CallRecord made{.call = Call::file_cached, .bytes = bytes, .file = file, .offset = offset};
    return around(made, [&] { return inner_.file_cached(file, bytes, offset, yes); });
}

} // namespace memsaver::inline v0_3
