// AnyDriver: the handle of a machine. The core of the library is plain classes over it.
#pragma once

#include "memsaver/core/error.hpp"
#include "memsaver/driver/device.hpp"

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace memsaver::inline v0_3 {

/// A machine: cheap to copy, never empty (a move copies), equal if both share the Device or `Device::equals` says so.
/// `CudaDriver`, `HostDriver` and `FaultyDriver` derive from it and add only how their machine is made and what it has
/// beyond a Device, so that any of them can be passed where an AnyDriver is wanted. The methods are those of Device,
/// which documents them. Thread-safe.
class AnyDriver {
public:
    /// For a machine of the program's own: `AnyDriver{std::make_shared<MyMachine>()}`. Throws Misuse for null.
    explicit AnyDriver(std::shared_ptr<Device> device) : device_{std::move(device)} {
        if (device_ == nullptr) detail::misuse({"AnyDriver: the device is null"});
    }
    AnyDriver(const AnyDriver&) noexcept = default;
    AnyDriver& operator=(const AnyDriver&) noexcept = default;
    ~AnyDriver() = default;

    // A member: as a friend it would be asked about each class with AnyDriver in its name, such as
    // FaultyDriver<AnyDriver>.
    bool operator==(const AnyDriver& other) const noexcept {
        return device_ == other.device_ || device_->equals(*other.device_);
    }
    /// This driver as a D, if its machine is one of a D; with what only a D has. To find out what a machine can do, ask
    /// `features()`: another machine may stand around the one you know.
    template <class D>
    requires std::derived_from<D, AnyDriver>
    [[nodiscard]] std::optional<D> as() const {
        if constexpr (std::same_as<D, AnyDriver>) {
            return *this;
        } else {
            return D::from(*this);
        }
    }
    [[nodiscard]] Device& machine() const noexcept { return *device_; }

    [[nodiscard]] int device() const noexcept { return device_->device(); }
    [[nodiscard]] std::string name() const { return device_->name(); }
    [[nodiscard]] Features features() const noexcept { return device_->features(); }
    Status identity(std::string& text) const noexcept { return device_->identity(text); }
    [[nodiscard]] int numa_node() const noexcept { return device_->numa_node(); }
    /// Returns whether the host can access device memory at its addresses. Stream work is then done by the thread that
    /// waits for it, and host code may do the rest.
    [[nodiscard]] bool host_addressable() const noexcept { return features().host_addressable; }
    [[nodiscard]] Neighbours* neighbours() const noexcept { return device_->neighbours(); }
    [[nodiscard]] std::string holders() const { return device_->holders(); }
    Status with_context(detail::FunctionRef<void()> work) const noexcept { return device_->with_context(work); }
    void name_addresses(Address address, std::size_t bytes, const char* name) const noexcept {
        device_->name_addresses(address, bytes, name);
    }

    Status granularity(std::size_t& bytes) const noexcept { return device_->granularity(bytes); }
    Status memory(DeviceMemory& memory) const noexcept { return device_->memory(memory); }
    Status reserve(std::size_t bytes, std::size_t alignment, Address& address) const noexcept {
        return device_->reserve(bytes, alignment, address);
    }
    Status unreserve(Address address, std::size_t bytes) const noexcept { return device_->unreserve(address, bytes); }
    Status create(std::size_t bytes, PageHandle& pages) const noexcept { return device_->create(bytes, pages); }
    Status release(PageHandle pages) const noexcept { return device_->release(pages); }
    Status map(Address address, std::size_t bytes, PageHandle pages) const noexcept {
        return device_->map(address, bytes, pages);
    }
    Status unmap(Address address, std::size_t bytes) const noexcept { return device_->unmap(address, bytes); }
    Status drop(Address address, std::size_t bytes, PageHandle pages, bool& unmapped) const noexcept {
        return device_->drop(address, bytes, pages, unmapped);
    }
    Status allow_access(Address address, std::size_t bytes, Rights rights = Rights::read_write) const noexcept {
        return device_->allow_access(address, bytes, rights);
    }
    Status take(std::size_t at_most, PageHandle& pages, std::size_t& got) const noexcept {
        return device_->take(at_most, pages, got);
    }
    Status ask_for_room(std::size_t bytes, std::int64_t within) const noexcept {
        return device_->ask_for_room(bytes, within);
    }
    Status create_shared(std::size_t bytes, PageHandle& pages) const noexcept {
        return device_->create_shared(bytes, pages);
    }
    Status export_pages(PageHandle pages, int& descriptor) const noexcept {
        return device_->export_pages(pages, descriptor);
    }
    Status import_pages(int descriptor, PageHandle& pages) const noexcept {
        return device_->import_pages(descriptor, pages);
    }

    Status open_stream(StreamRef& stream) const noexcept { return device_->open_stream(stream); }
    Status close_stream(StreamRef stream) const noexcept { return device_->close_stream(stream); }
    Status open_event(StreamRef near, EventRef& event) const noexcept { return device_->open_event(near, event); }
    Status close_event(EventRef event) const noexcept { return device_->close_event(event); }
    Status record(EventRef event, StreamRef stream) const noexcept { return device_->record(event, stream); }
    Status record_device(EventRef event) const noexcept { return device_->record_device(event); }
    Status follow(StreamRef stream, EventRef event) const noexcept { return device_->follow(stream, event); }
    Status query(EventRef event, bool& passed) const noexcept { return device_->query(event, passed); }
    Status wait(EventRef event) const noexcept { return device_->wait(event); }
    Status drain() const noexcept { return device_->drain(); }
    Status capturing(StreamRef stream, bool& yes) const noexcept { return device_->capturing(stream, yes); }
    Status lane(Direction direction, StreamRef& stream) const noexcept { return device_->lane(direction, stream); }
    Status owns_stream(StreamRef stream, bool& yes) const noexcept { return device_->owns_stream(stream, yes); }
    Status owns_event(EventRef event, bool& yes) const noexcept { return device_->owns_event(event, yes); }

    Status copy_to_host(void* host, Address from, std::size_t bytes, StreamRef stream) const noexcept {
        return device_->copy_to_host(host, from, bytes, stream);
    }
    Status copy_to_device(Address to, const void* host, std::size_t bytes, StreamRef stream) const noexcept {
        return device_->copy_to_device(to, host, bytes, stream);
    }
    Status fill(Address to, unsigned char byte, std::size_t bytes, StreamRef stream) const noexcept {
        return device_->fill(to, byte, bytes, stream);
    }
    Status reach_peer(Address address, std::size_t bytes) const noexcept { return device_->reach_peer(address, bytes); }
    Status copy_peer(Address to, Address from, std::size_t bytes, StreamRef stream) const noexcept {
        return device_->copy_peer(to, from, bytes, stream);
    }
    Status copy_many(Direction direction, const CopyPart* parts, std::size_t count, StreamRef stream) const noexcept {
        return device_->copy_many(direction, parts, count, stream);
    }
    Status copy_by_kernel(Address to, Address from, std::size_t bytes, StreamRef stream) const noexcept {
        return device_->copy_by_kernel(to, from, bytes, stream);
    }
    Status run_kernel(const KernelRun& run, StreamRef stream) const noexcept {
        return device_->run_kernel(run, stream);
    }

    Status allocate_plain(std::size_t bytes, Address& address) const noexcept {
        return device_->allocate_plain(bytes, address);
    }
    Status free_plain(Address address) const noexcept { return device_->free_plain(address); }

    Status begin_capture(StreamRef stream, CaptureMode mode) const noexcept {
        return device_->begin_capture(stream, mode);
    }
    Status end_capture(StreamRef stream, GraphRef& graph) const noexcept { return device_->end_capture(stream, graph); }
    Status update_graph(StreamRef stream, GraphRef& graph) const noexcept {
        return device_->update_graph(stream, graph);
    }
    Status launch(GraphRef graph, StreamRef stream) const noexcept { return device_->launch(graph, stream); }
    Status close_graph(GraphRef graph) const noexcept { return device_->close_graph(graph); }
    Status follow_outside(StreamRef stream, EventRef event) const noexcept {
        return device_->follow_outside(stream, event);
    }

    Status pool_memory(PoolRef pool, std::size_t& bytes) const noexcept { return device_->pool_memory(pool, bytes); }
    Status trim_pool(PoolRef pool, std::size_t keep) const noexcept { return device_->trim_pool(pool, keep); }

    Status map_host(std::size_t bytes, void*& pages) const noexcept { return device_->map_host(bytes, pages); }
    Status unmap_host(void* pages, std::size_t bytes) const noexcept { return device_->unmap_host(pages, bytes); }
    Status populate_host(void* pages, std::size_t bytes) const noexcept { return device_->populate_host(pages, bytes); }
    Status host_available(std::size_t& bytes) const noexcept { return device_->host_available(bytes); }
    Status pin_host(void* pages, std::size_t bytes) const noexcept { return device_->pin_host(pages, bytes); }
    Status unpin_host(void* pages) const noexcept { return device_->unpin_host(pages); }

    Status open_file(const char* directory, FileRef& file) const noexcept {
        return device_->open_file(directory, file);
    }
    Status open_source(const char* path, bool direct, FileRef& file) const noexcept {
        return device_->open_source(path, direct, file);
    }
    Status close_file(FileRef file) const noexcept { return device_->close_file(file); }
    Status write_file(FileRef file, const void* from, std::size_t bytes, std::size_t offset) const noexcept {
        return device_->write_file(file, from, bytes, offset);
    }
    Status read_file(FileRef file, void* to, std::size_t bytes, std::size_t offset) const noexcept {
        return device_->read_file(file, to, bytes, offset);
    }
    Status allocate_file(FileRef file, std::size_t offset, std::size_t bytes) const noexcept {
        return device_->allocate_file(file, offset, bytes);
    }
    Status punch_file(FileRef file, std::size_t offset, std::size_t bytes) const noexcept {
        return device_->punch_file(file, offset, bytes);
    }
    Status file_facts(FileRef file, FileFacts& facts) const noexcept { return device_->file_facts(file, facts); }
    Status file_cached(FileRef file, std::size_t bytes, std::size_t offset, bool& yes) const noexcept {
        return device_->file_cached(file, bytes, offset, yes);
    }

private:
    std::shared_ptr<Device> device_;
};

/// What MemorySaver, TaggedArena and FaultyDriver accept: AnyDriver, or a handle derived from it. A machine of a
/// program's own derives from Device and is put into a handle.
template <class D>
concept Driver = std::derived_from<D, AnyDriver> && std::copyable<D>;

} // namespace memsaver::inline v0_3
