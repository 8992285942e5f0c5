// DeviceAround: a machine that makes every call on another one.
#pragma once

#include "memsaver/driver/any_driver.hpp"
#include "memsaver/driver/calls.hpp"

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>

namespace memsaver::inline v0_3 {

/// Forwards every call to an inner machine. Derive from it to change a few calls, by overriding them; or to see or fail
/// all of them, by overriding `around`. Whatever the inner machine has, it has. It is not equal to the inner machine.
class DeviceAround : public Device {
public:
    explicit DeviceAround(AnyDriver inner) : inner_{std::move(inner)} {}

    [[nodiscard]] const AnyDriver& inner() const noexcept { return inner_; }

    [[nodiscard]] int device() const noexcept override { return inner_.device(); }
    [[nodiscard]] std::string name() const override { return inner_.name(); }
    [[nodiscard]] Features features() const noexcept override { return inner_.features(); }
    Status identity(std::string& text) const noexcept override { return inner_.identity(text); }
    [[nodiscard]] int numa_node() const noexcept override { return inner_.numa_node(); }
    [[nodiscard]] Neighbours* neighbours() noexcept override { return inner_.neighbours(); }
    [[nodiscard]] std::string holders() const override { return inner_.holders(); }
    Status with_context(detail::FunctionRef<void()> work) noexcept override { return inner_.with_context(work); }
    void name_addresses(Address address, std::size_t bytes, const char* name) noexcept override {
        inner_.name_addresses(address, bytes, name);
    }

    Status granularity(std::size_t& bytes) noexcept override {
        return pass(&AnyDriver::granularity, {.call = Call::granularity}, bytes);
    }
    Status memory(DeviceMemory& memory) noexcept override {
        return pass(&AnyDriver::memory, {.call = Call::memory}, memory);
    }
    Status reserve(std::size_t bytes, std::size_t alignment, Address& address) noexcept override {
        return gives(Call::reserve, bytes, address, [&] { return inner_.reserve(bytes, alignment, address); });
    }
    Status unreserve(Address address, std::size_t bytes) noexcept override {
        return pass(&AnyDriver::unreserve, {.call = Call::unreserve, .address = address, .bytes = bytes}, address,
                    bytes);
    }
    Status create(std::size_t bytes, PageHandle& pages) noexcept override {
        return pass(&AnyDriver::create, {.call = Call::create, .bytes = bytes}, bytes, pages);
    }
    Status release(PageHandle pages) noexcept override {
        return pass(&AnyDriver::release, {.call = Call::release}, pages);
    }
    Status map(Address address, std::size_t bytes, PageHandle pages) noexcept override {
        return pass(&AnyDriver::map, {.call = Call::map, .address = address, .bytes = bytes}, address, bytes, pages);
    }
    Status unmap(Address address, std::size_t bytes) noexcept override {
        return pass(&AnyDriver::unmap, {.call = Call::unmap, .address = address, .bytes = bytes}, address, bytes);
    }
    Status allow_access(Address address, std::size_t bytes, Rights rights) noexcept override {
        return pass(&AnyDriver::allow_access,
                    {.call = Call::allow_access, .address = address, .bytes = bytes, .rights = rights}, address, bytes,
                    rights);
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
        return pass(&AnyDriver::ask_for_room, {.call = Call::ask_for_room, .bytes = bytes}, bytes, within);
    }
    Status create_shared(std::size_t bytes, PageHandle& pages) noexcept override {
        return pass(&AnyDriver::create_shared, {.call = Call::create_shared, .bytes = bytes}, bytes, pages);
    }
    Status export_pages(PageHandle pages, int& descriptor) noexcept override {
        return pass(&AnyDriver::export_pages, {.call = Call::export_pages}, pages, descriptor);
    }
    Status import_pages(int descriptor, PageHandle& pages) noexcept override {
        return pass(&AnyDriver::import_pages, {.call = Call::import_pages}, descriptor, pages);
    }

    Status open_stream(StreamRef& stream) noexcept override {
        return pass(&AnyDriver::open_stream, {.call = Call::open_stream}, stream);
    }
    Status close_stream(StreamRef stream) noexcept override {
        return pass(&AnyDriver::close_stream, {.call = Call::close_stream}, stream);
    }
    Status open_event(StreamRef near, EventRef& event) noexcept override {
        return pass(&AnyDriver::open_event, {.call = Call::open_event}, near, event);
    }
    Status close_event(EventRef event) noexcept override {
        return pass(&AnyDriver::close_event, {.call = Call::close_event}, event);
    }
    Status record(EventRef event, StreamRef stream) noexcept override {
        return pass(&AnyDriver::record, {.call = Call::record}, event, stream);
    }
    Status record_device(EventRef event) noexcept override {
        return pass(&AnyDriver::record_device, {.call = Call::record_device}, event);
    }
    Status follow(StreamRef stream, EventRef event) noexcept override {
        return pass(&AnyDriver::follow, {.call = Call::follow}, stream, event);
    }
    Status query(EventRef event, bool& passed) noexcept override {
        return pass(&AnyDriver::query, {.call = Call::query}, event, passed);
    }
    Status wait(EventRef event) noexcept override { return pass(&AnyDriver::wait, {.call = Call::wait}, event); }
    Status drain() noexcept override { return pass(&AnyDriver::drain, {.call = Call::drain}); }
    Status capturing(StreamRef stream, bool& yes) noexcept override {
        return pass(&AnyDriver::capturing, {.call = Call::capturing}, stream, yes);
    }
    Status lane(Direction direction, StreamRef& stream) noexcept override {
        return pass(&AnyDriver::lane, {.call = Call::lane}, direction, stream);
    }
    Status owns_stream(StreamRef stream, bool& yes) noexcept override {
        return pass(&AnyDriver::owns_stream, {.call = Call::owns_stream}, stream, yes);
    }
    Status owns_event(EventRef event, bool& yes) noexcept override {
        return pass(&AnyDriver::owns_event, {.call = Call::owns_stream}, event, yes);
    }

    Status copy_to_host(void* host, Address from, std::size_t bytes, StreamRef stream) noexcept override {
        return pass(&AnyDriver::copy_to_host, {.call = Call::copy_to_host, .address = from, .bytes = bytes}, host, from,
                    bytes, stream);
    }
    Status copy_to_device(Address to, const void* host, std::size_t bytes, StreamRef stream) noexcept override {
        return pass(&AnyDriver::copy_to_device, {.call = Call::copy_to_device, .address = to, .bytes = bytes}, to, host,
                    bytes, stream);
    }
    Status fill(Address to, unsigned char byte, std::size_t bytes, StreamRef stream) noexcept override {
        return pass(&AnyDriver::fill, {.call = Call::fill, .address = to, .bytes = bytes}, to, byte, bytes, stream);
    }
    Status reach_peer(Address address, std::size_t bytes) noexcept override {
        return pass(&AnyDriver::reach_peer, {.call = Call::reach_peer, .address = address, .bytes = bytes}, address,
                    bytes);
    }
    Status copy_peer(Address to, Address from, std::size_t bytes, StreamRef stream) noexcept override {
        return pass(&AnyDriver::copy_peer, {.call = Call::copy_peer, .address = to, .bytes = bytes}, to, from, bytes,
                    stream);
    }
    Status copy_many(Direction direction, const CopyPart* parts, std::size_t count,
                     StreamRef stream) noexcept override {
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
        return pass(&AnyDriver::copy_by_kernel, {.call = Call::copy_by_kernel, .address = to, .bytes = bytes}, to, from,
                    bytes, stream);
    }
    Status run_kernel(const KernelRun& run, StreamRef stream) noexcept override {
        return pass(&AnyDriver::run_kernel,
                    {.call = Call::run_kernel, .address = run.reads.address, .bytes = run.reads.bytes}, run, stream);
    }

    Status allocate_plain(std::size_t bytes, Address& address) noexcept override {
        return gives(Call::allocate_plain, bytes, address, [&] { return inner_.allocate_plain(bytes, address); });
    }
    Status free_plain(Address address) noexcept override {
        return pass(&AnyDriver::free_plain, {.call = Call::free_plain, .address = address}, address);
    }
    Status begin_capture(StreamRef stream, CaptureMode mode) noexcept override {
        return pass(&AnyDriver::begin_capture, {.call = Call::begin_capture}, stream, mode);
    }
    Status end_capture(StreamRef stream, GraphRef& graph) noexcept override {
        return pass(&AnyDriver::end_capture, {.call = Call::end_capture}, stream, graph);
    }
    Status update_graph(StreamRef stream, GraphRef& graph) noexcept override {
        return pass(&AnyDriver::update_graph, {.call = Call::update_graph, .graph = graph}, stream, graph);
    }
    Status launch(GraphRef graph, StreamRef stream) noexcept override {
        return pass(&AnyDriver::launch, {.call = Call::launch}, graph, stream);
    }
    Status close_graph(GraphRef graph) noexcept override {
        return pass(&AnyDriver::close_graph, {.call = Call::close_graph}, graph);
    }
    Status follow_outside(StreamRef stream, EventRef event) noexcept override {
        return pass(&AnyDriver::follow_outside, {.call = Call::follow_outside}, stream, event);
    }
    Status pool_memory(PoolRef pool, std::size_t& bytes) noexcept override {
        return pass(&AnyDriver::pool_memory, {.call = Call::pool_memory}, pool, bytes);
    }
    Status trim_pool(PoolRef pool, std::size_t keep) noexcept override {
        return pass(&AnyDriver::trim_pool, {.call = Call::trim_pool, .bytes = keep}, pool, keep);
    }

    Status map_host(std::size_t bytes, void*& pages) noexcept override {
        return pass(&AnyDriver::map_host, {.call = Call::map_host, .bytes = bytes}, bytes, pages);
    }
    Status unmap_host(void* pages, std::size_t bytes) noexcept override {
        return pass(&AnyDriver::unmap_host, {.call = Call::unmap_host, .bytes = bytes}, pages, bytes);
    }
    Status populate_host(void* pages, std::size_t bytes) noexcept override {
        return pass(&AnyDriver::populate_host, {.call = Call::populate_host, .bytes = bytes}, pages, bytes);
    }
    Status host_available(std::size_t& bytes) noexcept override {
        return pass(&AnyDriver::host_available, {.call = Call::host_available}, bytes);
    }
    Status pin_host(void* pages, std::size_t bytes) noexcept override {
        return pass(&AnyDriver::pin_host, {.call = Call::pin_host, .bytes = bytes}, pages, bytes);
    }
    Status unpin_host(void* pages) noexcept override {
        return pass(&AnyDriver::unpin_host, {.call = Call::unpin_host}, pages);
    }
    Status open_file(const char* directory, FileRef& file) noexcept override {
        return pass(&AnyDriver::open_file, {.call = Call::open_file}, directory, file);
    }
    Status open_source(const char* path, bool direct, FileRef& file) noexcept override {
        return pass(&AnyDriver::open_source, {.call = Call::open_source}, path, direct, file);
    }
    Status close_file(FileRef file) noexcept override {
        return pass(&AnyDriver::close_file, {.call = Call::close_file}, file);
    }
    Status write_file(FileRef file, const void* from, std::size_t bytes, std::size_t offset) noexcept override {
        return pass(&AnyDriver::write_file, {.call = Call::write_file, .bytes = bytes, .offset = offset}, file, from,
                    bytes, offset);
    }
    Status read_file(FileRef file, void* to, std::size_t bytes, std::size_t offset) noexcept override {
        return pass(&AnyDriver::read_file, {.call = Call::read_file, .bytes = bytes, .offset = offset}, file, to, bytes,
                    offset);
    }
    Status allocate_file(FileRef file, std::size_t offset, std::size_t bytes) noexcept override {
        return pass(&AnyDriver::allocate_file, {.call = Call::allocate_file, .bytes = bytes, .offset = offset}, file,
                    offset, bytes);
    }
    Status punch_file(FileRef file, std::size_t offset, std::size_t bytes) noexcept override {
        return pass(&AnyDriver::punch_file, {.call = Call::punch_file, .bytes = bytes, .offset = offset}, file, offset,
                    bytes);
    }
    Status file_facts(FileRef file, FileFacts& facts) noexcept override {
        return pass(&AnyDriver::file_facts, {.call = Call::file_facts}, file, facts);
    }
    Status file_cached(FileRef file, std::size_t bytes, std::size_t offset, bool& yes) noexcept override {
        return pass(&AnyDriver::file_cached, {.call = Call::file_cached, .bytes = bytes, .offset = offset}, file, bytes,
                    offset, yes);
    }

protected:
    /// Every call of the enumeration Call passes through here. `made` holds the arguments; `forward` makes the call on
    /// the inner machine and, if it succeeds, adds what it gave to `made`. Returns what the call returns.
    virtual Status around(CallRecord&, detail::FunctionRef<Status()> forward) noexcept { return forward(); }

private:
    /// Makes a call on the inner machine. `made` says what the types of the arguments do not.
    template <class... P, class... A>
    Status pass(Status (AnyDriver::*call)(P...) const noexcept, CallRecord made, A&&... arguments) noexcept {
        (note<P>(made, arguments, false), ...);
        return around(made, [&] {
            const Status status = (inner_.*call)(std::forward<A>(arguments)...);
            if (status.ok()) (note<P>(made, arguments, true), ...);
            return status;
        });
    }
    /// Makes a call that gives an address.
    Status gives(Call call, std::size_t bytes, const Address& address, detail::FunctionRef<Status()> forward) noexcept {
        CallRecord made{.call = call, .bytes = bytes};
        return around(made, [&] {
            const Status status = forward();
            if (status.ok()) made.address = address;
            return status;
        });
    }

    /// Notes an argument whose type says what it is: before the call, or, if it is a `result`, after it.
    template <class P, class T>
    static void note(CallRecord& made, const T& argument, bool result) noexcept {
        if (result != std::is_reference_v<P>) return;
        if constexpr (std::same_as<T, PageHandle>) made.handle = argument;
        if constexpr (std::same_as<T, StreamRef>) made.stream = argument;
        if constexpr (std::same_as<T, EventRef>) made.event = argument;
        if constexpr (std::same_as<T, GraphRef>) made.graph = argument;
        if constexpr (std::same_as<T, FileRef>) made.file = argument;
        if constexpr (std::same_as<T, void*> || std::same_as<T, const void*>) made.host = argument;
    }

    AnyDriver inner_;
};

} // namespace memsaver::inline v0_3
