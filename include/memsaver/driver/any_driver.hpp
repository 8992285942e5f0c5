// AnyDriver: a type-erased driver. The core of the library is plain classes over it.
#pragma once

#include "memsaver/core/error.hpp"
#include "memsaver/core/function_ref.hpp"
#include "memsaver/driver/concepts.hpp"

#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <utility>

namespace memsaver::inline v0_3 {

namespace detail {

/// A type-erased machine. Optional parts return `unsupported` by default.
class Machine {
public:
    Machine() = default;
    Machine(const Machine&) = delete;
    Machine& operator=(const Machine&) = delete;
    virtual ~Machine() = default;

    [[nodiscard]] virtual int device() const noexcept = 0;
    [[nodiscard]] virtual std::string name() const = 0;
    [[nodiscard]] virtual int numa_node() const noexcept = 0;
    [[nodiscard]] virtual bool host_addressable() const noexcept = 0;
    [[nodiscard]] virtual bool equals(const Machine& other) const = 0;
    [[nodiscard]] virtual Neighbours* neighbours() const noexcept = 0;
    [[nodiscard]] virtual const void* target(const std::type_info& type) const noexcept = 0;
    virtual void name_addresses(Address, std::size_t, const char*) const noexcept = 0;
    virtual Status granularity(std::size_t&) const noexcept = 0;
    virtual Status memory(DeviceMemory&) const noexcept = 0;
    virtual Status reserve(std::size_t, std::size_t, Address&) const noexcept = 0;
    virtual Status unreserve(Address, std::size_t) const noexcept = 0;
    virtual Status create(std::size_t, PageHandle&) const noexcept = 0;
    virtual Status release(PageHandle) const noexcept = 0;
    virtual Status map(Address, std::size_t, PageHandle) const noexcept = 0;
    virtual Status unmap(Address, std::size_t) const noexcept = 0;
    virtual Status allow_access(Address, std::size_t) const noexcept = 0;
    virtual Status open_stream(StreamRef&) const noexcept = 0;
    virtual Status close_stream(StreamRef) const noexcept = 0;
    virtual Status open_event(StreamRef, EventRef&) const noexcept = 0;
    virtual Status close_event(EventRef) const noexcept = 0;
    virtual Status record(EventRef, StreamRef) const noexcept = 0;
    virtual Status record_device(EventRef) const noexcept = 0;
    virtual Status follow(StreamRef, EventRef) const noexcept = 0;
    virtual Status query(EventRef, bool&) const noexcept = 0;
    virtual Status wait(EventRef) const noexcept = 0;
    virtual Status drain() const noexcept = 0;
    virtual Status capturing(StreamRef, bool&) const noexcept = 0;
    virtual Status copy_to_host(void*, Address, std::size_t, StreamRef) const noexcept = 0;
    virtual Status copy_to_device(Address, const void*, std::size_t, StreamRef) const noexcept = 0;
    virtual Status fill(Address, unsigned char, std::size_t, StreamRef) const noexcept = 0;
    virtual Status owns_stream(StreamRef, bool&) const noexcept { return unsupported; }
    virtual Status lane(Direction, StreamRef&) const noexcept { return unsupported; }
    virtual Status reach_peer(Address, std::size_t) const noexcept { return unsupported; }
    virtual Status copy_peer(Address, Address, std::size_t, StreamRef) const noexcept { return unsupported; }
    virtual Status copy_many(Direction, const CopyPart*, std::size_t, StreamRef) const noexcept { return unsupported; }
    virtual Status copy_by_kernel(Address, Address, std::size_t, StreamRef) const noexcept { return unsupported; }
    virtual Status allocate_plain(std::size_t, Address&) const noexcept { return unsupported; }
    virtual Status free_plain(Address) const noexcept { return unsupported; }
    virtual Status begin_capture(StreamRef, CaptureMode) const noexcept { return unsupported; }
    virtual Status end_capture(StreamRef, GraphRef&) const noexcept { return unsupported; }
    virtual Status update_graph(StreamRef, GraphRef&) const noexcept { return unsupported; }
    virtual Status launch(GraphRef, StreamRef) const noexcept { return unsupported; }
    virtual Status close_graph(GraphRef) const noexcept { return unsupported; }
    virtual Status follow_outside(StreamRef, EventRef) const noexcept { return unsupported; }
    virtual Status pool_memory(PoolRef, std::size_t&) const noexcept { return unsupported; }
    virtual Status trim_pool(PoolRef, std::size_t) const noexcept { return unsupported; }
    virtual Status map_host(std::size_t, void*&) const noexcept { return unsupported; }
    virtual Status unmap_host(void*, std::size_t) const noexcept { return unsupported; }
    virtual Status populate_host(void*, std::size_t) const noexcept { return unsupported; }
    virtual Status pin_host(void*, std::size_t) const noexcept { return unsupported; }
    virtual Status unpin_host(void*) const noexcept { return unsupported; }
    virtual Status host_available(std::size_t&) const noexcept { return unsupported; }
    virtual Status open_file(const char*, FileRef&) const noexcept { return unsupported; }
    virtual Status close_file(FileRef) const noexcept { return unsupported; }
    virtual Status write_file(FileRef, const void*, std::size_t, std::size_t) const noexcept { return unsupported; }
    virtual Status read_file(FileRef, void*, std::size_t, std::size_t) const noexcept { return unsupported; }
    virtual Status allocate_file(FileRef, std::size_t, std::size_t) const noexcept { return unsupported; }
    virtual Status punch_file(FileRef, std::size_t, std::size_t) const noexcept { return unsupported; }
    virtual Status open_source(const char*, bool, FileRef&) const noexcept { return unsupported; }
    virtual Status file_facts(FileRef, FileFacts&) const noexcept { return unsupported; }
    virtual Status file_cached(FileRef, std::size_t, std::size_t, bool&) const noexcept { return unsupported; }
    virtual Status owns_event(EventRef, bool&) const noexcept { return unsupported; }
    virtual Status with_context(FunctionRef<void()>) const noexcept { return unsupported; }

protected:
    static constexpr Status unsupported{StatusKind::unsupported, 0, "unsupported by this driver"};
};

// clang-format off

/// Rejects a driver with an optional part that can be called but does not satisfy its concept; it would otherwise be
/// treated as absent.
template <class D>
struct SoundParts {
    static_assert(StreamOwners<D> || !requires(const D d, StreamRef s, bool& yes) { d.owns_stream(s, yes); },
                  "the driver's owns_stream must satisfy the concept StreamOwners: const, noexcept, returns Status");
    static_assert(Lanes<D> || !requires(const D d, Direction to, StreamRef& s) { d.lane(to, s); },
                  "the driver's lane must satisfy the concept Lanes: const, noexcept, returns Status");
    static_assert(Peers<D> || !requires(const D d, Address a, std::size_t n, StreamRef s) { d.reach_peer(a, n); d.copy_peer(a, a, n, s); },
                  "the driver's reach_peer and copy_peer must satisfy the concept Peers: const, noexcept, returns Status");
    static_assert(BatchCopies<D> || !requires(const D d, Direction to, const CopyPart* parts, std::size_t n, StreamRef s) { d.copy_many(to, parts, n, s); },
                  "the driver's copy_many must satisfy the concept BatchCopies: const, noexcept, returns Status");
    static_assert(KernelCopies<D> || !requires(const D d, Address a, std::size_t n, StreamRef s) { d.copy_by_kernel(a, a, n, s); },
                  "the driver's copy_by_kernel must satisfy the concept KernelCopies: const, noexcept, returns Status");
    static_assert(Shared<D> || !requires(const D d) { d.neighbours(); },
                  "the driver's neighbours must satisfy the concept Shared: const, noexcept, returns Neighbours*");
    static_assert(Named<D> || !requires(const D d, Address a, std::size_t n, const char* name) { d.name_addresses(a, n, name); },
                  "the driver's name_addresses must satisfy the concept Named: const, noexcept, returns void");
    static_assert(Plain<D> || !requires(const D d, std::size_t n, Address& a) { d.allocate_plain(n, a); d.free_plain(a); },
                  "the driver's allocate_plain and free_plain must satisfy the concept Plain: const, noexcept, returns Status");
    static_assert(Captures<D> || !requires(const D d, StreamRef s, CaptureMode mode, GraphRef& g) {
        d.begin_capture(s, mode); d.end_capture(s, g); d.update_graph(s, g); d.launch(g, s); d.close_graph(g); },
                  "the driver's capture functions must satisfy the concept Captures: const, noexcept, returns Status");
    static_assert(Gates<D> || !requires(const D d, StreamRef s, EventRef e) { d.follow_outside(s, e); },
                  "the driver's follow_outside must satisfy the concept Gates: const, noexcept, returns Status");
    static_assert(Trims<D> || !requires(const D d, PoolRef pool, std::size_t& n) { d.pool_memory(pool, n); d.trim_pool(pool, n); },
                  "the driver's pool_memory and trim_pool must satisfy the concept Trims: const, noexcept, returns Status");
    static_assert(HostPages<D> || !requires(const D d, void*& pages, std::size_t& n) {
        d.map_host(n, pages); d.unmap_host(pages, n); d.populate_host(pages, n); d.pin_host(pages, n); d.unpin_host(pages);
        d.host_available(n); },
                  "the driver's host page functions must satisfy the concept HostPages: const, noexcept, returns Status");
    static_assert(Files<D> || !requires(const D d, const char* path, FileRef& file, void* at, std::size_t n) {
        d.open_file(path, file); d.close_file(file); d.write_file(file, at, n, n); d.read_file(file, at, n, n);
        d.allocate_file(file, n, n); d.punch_file(file, n, n); },
                  "the driver's file functions must satisfy the concept Files: const, noexcept, returns Status");
    static_assert(Sources<D> || !requires(const D d, const char* path, FileRef& file, FileFacts& facts, std::size_t n, bool& yes) {
        d.open_source(path, yes, file); d.file_facts(file, facts); d.file_cached(file, n, n, yes); },
                  "the driver's source file functions must satisfy the concept Sources: const, noexcept, returns Status; needs Files");
};

template <class D>
class MachineOf final : public Machine {
public:
    explicit MachineOf(D of) : driver{std::move(of)} {}

    [[nodiscard]] int device() const noexcept override { return driver.device(); }
    [[nodiscard]] std::string name() const override { return driver.name(); }
    [[nodiscard]] int numa_node() const noexcept override {
        if constexpr (requires { { driver.numa_node() } noexcept -> std::same_as<int>; }) return driver.numa_node();
        else return -1;
    }
    [[nodiscard]] bool host_addressable() const noexcept override {
        if constexpr (requires { { driver.host_addressable() } noexcept -> std::same_as<bool>; }) return driver.host_addressable();
        else return false;
    }
    [[nodiscard]] bool equals(const Machine& other) const override {
        const auto* same = static_cast<const D*>(other.target(typeid(D)));
        return same != nullptr && *same == driver;
    }
    [[nodiscard]] Neighbours* neighbours() const noexcept override {
        if constexpr (Shared<D>) return driver.neighbours();
        else return nullptr;
    }
    void name_addresses(Address address, std::size_t bytes, const char* name) const noexcept override {
        if constexpr (Named<D>) driver.name_addresses(address, bytes, name);
    }
    [[nodiscard]] const void* target(const std::type_info& type) const noexcept override {
        return type == typeid(D) ? &driver : nullptr;
    }
    Status granularity(std::size_t& bytes) const noexcept override { return driver.granularity(bytes); }
    Status memory(DeviceMemory& memory) const noexcept override { return driver.memory(memory); }
    Status reserve(std::size_t bytes, std::size_t alignment, Address& address) const noexcept override { return driver.reserve(bytes, alignment, address); }
    Status unreserve(Address address, std::size_t bytes) const noexcept override { return driver.unreserve(address, bytes); }
    Status create(std::size_t bytes, PageHandle& handle) const noexcept override { return driver.create(bytes, handle); }
    Status release(PageHandle handle) const noexcept override { return driver.release(handle); }
    Status map(Address address, std::size_t bytes, PageHandle handle) const noexcept override { return driver.map(address, bytes, handle); }
    Status unmap(Address address, std::size_t bytes) const noexcept override { return driver.unmap(address, bytes); }
    Status allow_access(Address address, std::size_t bytes) const noexcept override { return driver.allow_access(address, bytes); }
    Status open_stream(StreamRef& stream) const noexcept override { return driver.open_stream(stream); }
    Status close_stream(StreamRef stream) const noexcept override { return driver.close_stream(stream); }
    Status open_event(StreamRef near, EventRef& event) const noexcept override { return driver.open_event(near, event); }
    Status close_event(EventRef event) const noexcept override { return driver.close_event(event); }
    Status record(EventRef event, StreamRef stream) const noexcept override { return driver.record(event, stream); }
    Status record_device(EventRef event) const noexcept override { return driver.record_device(event); }
    Status follow(StreamRef stream, EventRef event) const noexcept override { return driver.follow(stream, event); }
    Status query(EventRef event, bool& passed) const noexcept override { return driver.query(event, passed); }
    Status wait(EventRef event) const noexcept override { return driver.wait(event); }
    Status drain() const noexcept override { return driver.drain(); }
    Status capturing(StreamRef stream, bool& yes) const noexcept override { return driver.capturing(stream, yes); }
    Status copy_to_host(void* host, Address from, std::size_t bytes, StreamRef stream) const noexcept override { return driver.copy_to_host(host, from, bytes, stream); }
    Status copy_to_device(Address to, const void* host, std::size_t bytes, StreamRef stream) const noexcept override { return driver.copy_to_device(to, host, bytes, stream); }
    Status fill(Address to, unsigned char byte, std::size_t bytes, StreamRef stream) const noexcept override { return driver.fill(to, byte, bytes, stream); }
    Status owns_stream(StreamRef stream, bool& yes) const noexcept override {
        if constexpr (StreamOwners<D>) return driver.owns_stream(stream, yes);
        else return Machine::owns_stream(stream, yes);
    }
    Status lane(Direction direction, StreamRef& stream) const noexcept override {
        if constexpr (Lanes<D>) return driver.lane(direction, stream);
        else return Machine::lane(direction, stream);
    }
    Status reach_peer(Address address, std::size_t bytes) const noexcept override {
        if constexpr (Peers<D>) return driver.reach_peer(address, bytes);
        else return Machine::reach_peer(address, bytes);
    }
    Status copy_peer(Address to, Address from, std::size_t bytes, StreamRef stream) const noexcept override {
        if constexpr (Peers<D>) return driver.copy_peer(to, from, bytes, stream);
        else return Machine::copy_peer(to, from, bytes, stream);
    }
    Status copy_many(Direction direction, const CopyPart* parts, std::size_t count, StreamRef stream) const noexcept override {
        if constexpr (BatchCopies<D>) return driver.copy_many(direction, parts, count, stream);
        else return Machine::copy_many(direction, parts, count, stream);
    }
    Status copy_by_kernel(Address to, Address from, std::size_t bytes, StreamRef stream) const noexcept override {
        if constexpr (KernelCopies<D>) return driver.copy_by_kernel(to, from, bytes, stream);
        else return Machine::copy_by_kernel(to, from, bytes, stream);
    }
    Status allocate_plain(std::size_t bytes, Address& address) const noexcept override {
        if constexpr (Plain<D>) return driver.allocate_plain(bytes, address);
        else return Machine::allocate_plain(bytes, address);
    }
    Status free_plain(Address address) const noexcept override {
        if constexpr (Plain<D>) return driver.free_plain(address);
        else return Machine::free_plain(address);
    }
    Status begin_capture(StreamRef stream, CaptureMode mode) const noexcept override {
        if constexpr (Captures<D>) return driver.begin_capture(stream, mode);
        else return Machine::begin_capture(stream, mode);
    }
    Status end_capture(StreamRef stream, GraphRef& graph) const noexcept override {
        if constexpr (Captures<D>) return driver.end_capture(stream, graph);
        else return Machine::end_capture(stream, graph);
    }
    Status update_graph(StreamRef stream, GraphRef& graph) const noexcept override {
        if constexpr (Captures<D>) return driver.update_graph(stream, graph);
        else return Machine::update_graph(stream, graph);
    }
    Status launch(GraphRef graph, StreamRef stream) const noexcept override {
        if constexpr (Captures<D>) return driver.launch(graph, stream);
        else return Machine::launch(graph, stream);
    }
    Status close_graph(GraphRef graph) const noexcept override {
        if constexpr (Captures<D>) return driver.close_graph(graph);
        else return Machine::close_graph(graph);
    }
    Status follow_outside(StreamRef stream, EventRef event) const noexcept override {
        if constexpr (Gates<D>) return driver.follow_outside(stream, event);
        else return Machine::follow_outside(stream, event);
    }
    Status pool_memory(PoolRef pool, std::size_t& bytes) const noexcept override {
        if constexpr (Trims<D>) return driver.pool_memory(pool, bytes);
        else return Machine::pool_memory(pool, bytes);
    }
    Status trim_pool(PoolRef pool, std::size_t keep) const noexcept override {
        if constexpr (Trims<D>) return driver.trim_pool(pool, keep);
        else return Machine::trim_pool(pool, keep);
    }
    Status map_host(std::size_t bytes, void*& pages) const noexcept override {
        if constexpr (HostPages<D>) return driver.map_host(bytes, pages);
        else return Machine::map_host(bytes, pages);
    }
    Status unmap_host(void* pages, std::size_t bytes) const noexcept override {
        if constexpr (HostPages<D>) return driver.unmap_host(pages, bytes);
        else return Machine::unmap_host(pages, bytes);
    }
    Status populate_host(void* pages, std::size_t bytes) const noexcept override {
        if constexpr (HostPages<D>) return driver.populate_host(pages, bytes);
        else return Machine::populate_host(pages, bytes);
    }
    Status pin_host(void* pages, std::size_t bytes) const noexcept override {
        if constexpr (HostPages<D>) return driver.pin_host(pages, bytes);
        else return Machine::pin_host(pages, bytes);
    }
    Status unpin_host(void* pages) const noexcept override {
        if constexpr (HostPages<D>) return driver.unpin_host(pages);
        else return Machine::unpin_host(pages);
    }
    Status host_available(std::size_t& bytes) const noexcept override {
        if constexpr (HostPages<D>) return driver.host_available(bytes);
        else return Machine::host_available(bytes);
    }
    Status open_file(const char* directory, FileRef& file) const noexcept override {
        if constexpr (Files<D>) return driver.open_file(directory, file);
        else return Machine::open_file(directory, file);
    }
    Status close_file(FileRef file) const noexcept override {
        if constexpr (Files<D>) return driver.close_file(file);
        else return Machine::close_file(file);
    }
    Status write_file(FileRef file, const void* from, std::size_t bytes, std::size_t offset) const noexcept override {
        if constexpr (Files<D>) return driver.write_file(file, from, bytes, offset);
        else return Machine::write_file(file, from, bytes, offset);
    }
    Status read_file(FileRef file, void* to, std::size_t bytes, std::size_t offset) const noexcept override {
        if constexpr (Files<D>) return driver.read_file(file, to, bytes, offset);
        else return Machine::read_file(file, to, bytes, offset);
    }
    Status allocate_file(FileRef file, std::size_t offset, std::size_t bytes) const noexcept override {
        if constexpr (Files<D>) return driver.allocate_file(file, offset, bytes);
        else return Machine::allocate_file(file, offset, bytes);
    }
    Status punch_file(FileRef file, std::size_t offset, std::size_t bytes) const noexcept override {
        if constexpr (Files<D>) return driver.punch_file(file, offset, bytes);
        else return Machine::punch_file(file, offset, bytes);
    }
    Status open_source(const char* path, bool direct, FileRef& file) const noexcept override {
        if constexpr (Sources<D>) return driver.open_source(path, direct, file);
        else return Machine::open_source(path, direct, file);
    }
    Status file_facts(FileRef file, FileFacts& facts) const noexcept override {
        if constexpr (Sources<D>) return driver.file_facts(file, facts);
        else return Machine::file_facts(file, facts);
    }
    Status file_cached(FileRef file, std::size_t bytes, std::size_t offset, bool& yes) const noexcept override {
        if constexpr (Sources<D>) return driver.file_cached(file, bytes, offset, yes);
        else return Machine::file_cached(file, bytes, offset, yes);
    }
    Status owns_event(EventRef event, bool& yes) const noexcept override {
        if constexpr (requires { { driver.owns_event(event, yes) } noexcept -> std::same_as<Status>; }) return driver.owns_event(event, yes);
        else return Machine::owns_event(event, yes);
    }
    Status with_context(FunctionRef<void()> work) const noexcept override {
        if constexpr (requires { { driver.with_context(work) } noexcept -> std::same_as<Status>; }) return driver.with_context(work);
        else return Machine::with_context(work);
    }

private:
    D driver;
};
// clang-format on

} // namespace detail

/// Holds any type that satisfies `Driver`, by value: cheap to copy, equal if type and value are equal. It satisfies
/// every concept of concepts.hpp; parts that its machine lacks return `StatusKind::unsupported`. Each call costs one
/// virtual call more than the driver's own. Never empty: a move copies.
class AnyDriver {
public:
    template <class D>
    requires(!std::same_as<std::remove_cvref_t<D>, AnyDriver> && Driver<std::remove_cvref_t<D>>)
        AnyDriver(D&& driver) // NOLINT(google-explicit-constructor): arguments take drivers as they are
        : machine_{detail::translated([&] {
              return std::make_shared<const detail::MachineOf<std::remove_cvref_t<D>>>(std::forward<D>(driver));
          })} {
        // Here, or the compiler reports an unsound part with everything that make_shared instantiates.
        static_assert(sizeof(detail::SoundParts<std::remove_cvref_t<D>>) != 0);
    }
    AnyDriver(const AnyDriver&) noexcept = default;
    AnyDriver& operator=(const AnyDriver&) noexcept = default;
    ~AnyDriver() = default;

    [[nodiscard]] int device() const noexcept { return machine_->device(); }
    [[nodiscard]] std::string name() const { return machine_->name(); }
    /// The host's NUMA node next to the device, or -1 if unknown.
    [[nodiscard]] int numa_node() const noexcept { return machine_->numa_node(); }
    /// Returns whether the host can access device memory at its addresses. Stream work is then done by the thread that
    /// waits for it, and host code may do the rest. False unless the driver has `host_addressable()` and returns true.
    [[nodiscard]] bool host_addressable() const noexcept { return machine_->host_addressable(); }
    /// Runs `work`, which must not throw, as the driver runs its own calls: on CUDA with the device's context current
    /// and captures safe, for libraries that launch kernels. `unsupported` unless the driver has `with_context(work)`.
    Status with_context(detail::FunctionRef<void()> work) const noexcept { return machine_->with_context(work); }
    /// The other users of the machine's memory through copies of the driver; null if unknown.
    [[nodiscard]] Neighbours* neighbours() const noexcept { return machine_->neighbours(); }
    /// Names a reserved range for machines that report faults; a no-op on others.
    void name_addresses(Address address, std::size_t bytes, const char* name) const noexcept {
        machine_->name_addresses(address, bytes, name);
    }
    /// The driver that this was made from, if it is a D; otherwise null.
    template <class D>
    [[nodiscard]] const D* target() const noexcept {
        return static_cast<const D*>(machine_->target(typeid(D)));
    }
    // A member: as a friend it would be asked about each class with AnyDriver in its name, such as
    // FaultyDriver<AnyDriver>.
    bool operator==(const AnyDriver& other) const {
        return machine_ == other.machine_ || machine_->equals(*other.machine_);
    }

    Status granularity(std::size_t& bytes) const noexcept { return machine_->granularity(bytes); }
    Status memory(DeviceMemory& memory) const noexcept { return machine_->memory(memory); }
    Status reserve(std::size_t bytes, std::size_t alignment, Address& address) const noexcept {
        return machine_->reserve(bytes, alignment, address);
    }
    Status unreserve(Address address, std::size_t bytes) const noexcept { return machine_->unreserve(address, bytes); }
    Status create(std::size_t bytes, PageHandle& handle) const noexcept { return machine_->create(bytes, handle); }
    Status release(PageHandle handle) const noexcept { return machine_->release(handle); }
    Status map(Address address, std::size_t bytes, PageHandle handle) const noexcept {
        return machine_->map(address, bytes, handle);
    }
    Status unmap(Address address, std::size_t bytes) const noexcept { return machine_->unmap(address, bytes); }
    Status allow_access(Address address, std::size_t bytes) const noexcept {
        return machine_->allow_access(address, bytes);
    }
    Status open_stream(StreamRef& stream) const noexcept { return machine_->open_stream(stream); }
    Status close_stream(StreamRef stream) const noexcept { return machine_->close_stream(stream); }
    Status open_event(StreamRef near, EventRef& event) const noexcept { return machine_->open_event(near, event); }
    Status close_event(EventRef event) const noexcept { return machine_->close_event(event); }
    Status record(EventRef event, StreamRef stream) const noexcept { return machine_->record(event, stream); }
    Status record_device(EventRef event) const noexcept { return machine_->record_device(event); }
    Status follow(StreamRef stream, EventRef event) const noexcept { return machine_->follow(stream, event); }
    Status query(EventRef event, bool& passed) const noexcept { return machine_->query(event, passed); }
    Status wait(EventRef event) const noexcept { return machine_->wait(event); }
    Status drain() const noexcept { return machine_->drain(); }
    Status capturing(StreamRef stream, bool& yes) const noexcept { return machine_->capturing(stream, yes); }
    Status copy_to_host(void* host, Address from, std::size_t bytes, StreamRef stream) const noexcept {
        return machine_->copy_to_host(host, from, bytes, stream);
    }
    Status copy_to_device(Address to, const void* host, std::size_t bytes, StreamRef stream) const noexcept {
        return machine_->copy_to_device(to, host, bytes, stream);
    }
    Status fill(Address to, unsigned char byte, std::size_t bytes, StreamRef stream) const noexcept {
        return machine_->fill(to, byte, bytes, stream);
    }
    // StreamOwners
    Status owns_stream(StreamRef stream, bool& yes) const noexcept { return machine_->owns_stream(stream, yes); }
    // Lanes
    Status lane(Direction direction, StreamRef& stream) const noexcept { return machine_->lane(direction, stream); }

    // Peers
    Status reach_peer(Address address, std::size_t bytes) const noexcept {
        return machine_->reach_peer(address, bytes);
    }
    Status copy_peer(Address to, Address from, std::size_t bytes, StreamRef stream) const noexcept {
        return machine_->copy_peer(to, from, bytes, stream);
    }
    // BatchCopies
    Status copy_many(Direction direction, const CopyPart* parts, std::size_t count, StreamRef stream) const noexcept {
        return machine_->copy_many(direction, parts, count, stream);
    }
    // KernelCopies
    Status copy_by_kernel(Address to, Address from, std::size_t bytes, StreamRef stream) const noexcept {
        return machine_->copy_by_kernel(to, from, bytes, stream);
    }
    // Plain
    Status allocate_plain(std::size_t bytes, Address& address) const noexcept {
        return machine_->allocate_plain(bytes, address);
    }
    Status free_plain(Address address) const noexcept { return machine_->free_plain(address); }
    // Captures
    Status begin_capture(StreamRef stream, CaptureMode mode) const noexcept {
        return machine_->begin_capture(stream, mode);
    }
    Status end_capture(StreamRef stream, GraphRef& graph) const noexcept {
        return machine_->end_capture(stream, graph);
    }
    Status update_graph(StreamRef stream, GraphRef& graph) const noexcept {
        return machine_->update_graph(stream, graph);
    }
    Status launch(GraphRef graph, StreamRef stream) const noexcept { return machine_->launch(graph, stream); }
    Status close_graph(GraphRef graph) const noexcept { return machine_->close_graph(graph); }
    // Gates
    Status follow_outside(StreamRef stream, EventRef event) const noexcept {
        return machine_->follow_outside(stream, event);
    }
    // Trims
    Status pool_memory(PoolRef pool, std::size_t& bytes) const noexcept { return machine_->pool_memory(pool, bytes); }
    Status trim_pool(PoolRef pool, std::size_t keep) const noexcept { return machine_->trim_pool(pool, keep); }
    // HostPages
    Status map_host(std::size_t bytes, void*& pages) const noexcept { return machine_->map_host(bytes, pages); }
    Status unmap_host(void* pages, std::size_t bytes) const noexcept { return machine_->unmap_host(pages, bytes); }
    Status populate_host(void* pages, std::size_t bytes) const noexcept {
        return machine_->populate_host(pages, bytes);
    }
    Status pin_host(void* pages, std::size_t bytes) const noexcept { return machine_->pin_host(pages, bytes); }
    Status unpin_host(void* pages) const noexcept { return machine_->unpin_host(pages); }
    Status host_available(std::size_t& bytes) const noexcept { return machine_->host_available(bytes); }
    // Files
    Status open_file(const char* directory, FileRef& file) const noexcept {
        return machine_->open_file(directory, file);
    }
    Status close_file(FileRef file) const noexcept { return machine_->close_file(file); }
    Status write_file(FileRef file, const void* from, std::size_t bytes, std::size_t offset) const noexcept {
        return machine_->write_file(file, from, bytes, offset);
    }
    Status read_file(FileRef file, void* to, std::size_t bytes, std::size_t offset) const noexcept {
        return machine_->read_file(file, to, bytes, offset);
    }
    Status allocate_file(FileRef file, std::size_t offset, std::size_t bytes) const noexcept {
        return machine_->allocate_file(file, offset, bytes);
    }
    Status punch_file(FileRef file, std::size_t offset, std::size_t bytes) const noexcept {
        return machine_->punch_file(file, offset, bytes);
    }
    // Sources
    Status open_source(const char* path, bool direct, FileRef& file) const noexcept {
        return machine_->open_source(path, direct, file);
    }
    Status file_facts(FileRef file, FileFacts& facts) const noexcept { return machine_->file_facts(file, facts); }
    Status file_cached(FileRef file, std::size_t bytes, std::size_t offset, bool& yes) const noexcept {
        return machine_->file_cached(file, bytes, offset, yes);
    }
    /// Sets `yes` to whether `event` belongs to this device. Returns `unsupported` and leaves `yes` unchanged if the
    /// driver has no such method; see the concept StreamOwners.
    Status owns_event(EventRef event, bool& yes) const noexcept { return machine_->owns_event(event, yes); }

private:
    std::shared_ptr<const detail::Machine> machine_;
};

namespace detail {

/// The driver as the type that it was made from. Precondition: D is that type, or AnyDriver.
template <class D>
const D& driver_as(const AnyDriver& driver) noexcept {
    if constexpr (std::same_as<D, AnyDriver>) {
        return driver;
    } else {
        return *driver.target<D>();
    }
}

} // namespace detail

} // namespace memsaver::inline v0_3
