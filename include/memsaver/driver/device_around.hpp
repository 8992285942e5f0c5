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
    [[nodiscard]] MEMSAVER_INLINE int device() const noexcept override;
    [[nodiscard]] MEMSAVER_INLINE std::string name() const override;
    [[nodiscard]] MEMSAVER_INLINE Features features() const noexcept override;
    MEMSAVER_INLINE Status identity(std::string& text) const noexcept override;
    [[nodiscard]] MEMSAVER_INLINE int numa_node() const noexcept override;
    [[nodiscard]] MEMSAVER_INLINE Neighbours* neighbours() noexcept override;
    [[nodiscard]] MEMSAVER_INLINE std::string holders() const override;
    MEMSAVER_INLINE Status with_context(detail::FunctionRef<void()> work) noexcept override;
    MEMSAVER_INLINE void name_addresses(Address address, std::size_t bytes, const char* name) noexcept override;

    MEMSAVER_INLINE Status granularity(std::size_t& bytes) noexcept override;
    MEMSAVER_INLINE Status memory(DeviceMemory& memory) noexcept override;
    MEMSAVER_INLINE Status reserve(std::size_t bytes, std::size_t alignment, Address& address) noexcept override;
    MEMSAVER_INLINE Status unreserve(Address address, std::size_t bytes) noexcept override;
    MEMSAVER_INLINE Status create(std::size_t bytes, PageHandle& pages) noexcept override;
    MEMSAVER_INLINE Status release(PageHandle pages) noexcept override;
    MEMSAVER_INLINE Status map(Address address, std::size_t bytes, PageHandle pages) noexcept override;
    MEMSAVER_INLINE Status unmap(Address address, std::size_t bytes) noexcept override;
    MEMSAVER_INLINE Status allow_access(Address address, std::size_t bytes, Rights rights) noexcept override;
    MEMSAVER_INLINE Status take(std::size_t at_most, PageHandle& pages, std::size_t& got) noexcept override;
    MEMSAVER_INLINE Status ask_for_room(std::size_t bytes, std::int64_t within) noexcept override;
    MEMSAVER_INLINE Status create_shared(std::size_t bytes, PageHandle& pages) noexcept override;
    MEMSAVER_INLINE Status export_pages(PageHandle pages, int& descriptor) noexcept override;
    MEMSAVER_INLINE Status import_pages(int descriptor, PageHandle& pages) noexcept override;

    MEMSAVER_INLINE Status open_stream(StreamRef& stream) noexcept override;
    MEMSAVER_INLINE Status close_stream(StreamRef stream) noexcept override;
    MEMSAVER_INLINE Status open_event(StreamRef near, EventRef& event) noexcept override;
    MEMSAVER_INLINE Status close_event(EventRef event) noexcept override;
    MEMSAVER_INLINE Status record(EventRef event, StreamRef stream) noexcept override;
    MEMSAVER_INLINE Status record_device(EventRef event) noexcept override;
    MEMSAVER_INLINE Status follow(StreamRef stream, EventRef event) noexcept override;
    MEMSAVER_INLINE Status query(EventRef event, bool& passed) noexcept override;
    MEMSAVER_INLINE Status wait(EventRef event) noexcept override;
    MEMSAVER_INLINE Status drain() noexcept override;
    MEMSAVER_INLINE Status capturing(StreamRef stream, bool& yes) noexcept override;
    MEMSAVER_INLINE Status lane(Direction direction, StreamRef& stream) noexcept override;
    MEMSAVER_INLINE Status owns_stream(StreamRef stream, bool& yes) noexcept override;
    MEMSAVER_INLINE Status owns_event(EventRef event, bool& yes) noexcept override;

    MEMSAVER_INLINE Status copy_to_host(void* host, Address from, std::size_t bytes, StreamRef stream) noexcept override;
    MEMSAVER_INLINE Status copy_to_device(Address to, const void* host, std::size_t bytes, StreamRef stream) noexcept override;
    MEMSAVER_INLINE Status fill(Address to, unsigned char byte, std::size_t bytes, StreamRef stream) noexcept override;
    MEMSAVER_INLINE Status reach_peer(Address address, std::size_t bytes) noexcept override;
    MEMSAVER_INLINE Status copy_peer(Address to, Address from, std::size_t bytes, StreamRef stream) noexcept override;
    MEMSAVER_INLINE Status copy_many(Direction direction, const CopyPart* parts, std::size_t count, StreamRef stream) noexcept override;
    MEMSAVER_INLINE Status copy_by_kernel(Address to, Address from, std::size_t bytes, StreamRef stream) noexcept override;
    MEMSAVER_INLINE Status run_kernel(const KernelRun& run, StreamRef stream) noexcept override;

    MEMSAVER_INLINE Status allocate_plain(std::size_t bytes, Address& address) noexcept override;
    MEMSAVER_INLINE Status free_plain(Address address) noexcept override;
    MEMSAVER_INLINE Status begin_capture(StreamRef stream, CaptureMode mode) noexcept override;
    MEMSAVER_INLINE Status end_capture(StreamRef stream, GraphRef& graph) noexcept override;
    MEMSAVER_INLINE Status update_graph(StreamRef stream, GraphRef& graph) noexcept override;
    MEMSAVER_INLINE Status launch(GraphRef graph, StreamRef stream) noexcept override;
    MEMSAVER_INLINE Status close_graph(GraphRef graph) noexcept override;
    MEMSAVER_INLINE Status follow_outside(StreamRef stream, EventRef event) noexcept override;
    MEMSAVER_INLINE Status pool_memory(PoolRef pool, std::size_t& bytes) noexcept override;
    MEMSAVER_INLINE Status trim_pool(PoolRef pool, std::size_t keep) noexcept override;

    MEMSAVER_INLINE Status map_host(std::size_t bytes, void*& pages) noexcept override;
    MEMSAVER_INLINE Status unmap_host(void* pages, std::size_t bytes) noexcept override;
    MEMSAVER_INLINE Status populate_host(void* pages, std::size_t bytes) noexcept override;
    MEMSAVER_INLINE Status host_available(std::size_t& bytes) noexcept override;
    MEMSAVER_INLINE Status pin_host(void* pages, std::size_t bytes) noexcept override;
    MEMSAVER_INLINE Status unpin_host(void* pages) noexcept override;
    MEMSAVER_INLINE Status open_file(const char* directory, FileRef& file) noexcept override;
    MEMSAVER_INLINE Status open_source(const char* path, bool direct, FileRef& file) noexcept override;
    MEMSAVER_INLINE Status close_file(FileRef file) noexcept override;
    MEMSAVER_INLINE Status write_file(FileRef file, const void* from, std::size_t bytes, std::size_t offset) noexcept override;
    MEMSAVER_INLINE Status read_file(FileRef file, void* to, std::size_t bytes, std::size_t offset) noexcept override;
    MEMSAVER_INLINE Status allocate_file(FileRef file, std::size_t offset, std::size_t bytes) noexcept override;
    MEMSAVER_INLINE Status punch_file(FileRef file, std::size_t offset, std::size_t bytes) noexcept override;
    MEMSAVER_INLINE Status file_facts(FileRef file, FileFacts& facts) noexcept override;
    MEMSAVER_INLINE Status file_cached(FileRef file, std::size_t bytes, std::size_t offset, bool& yes) noexcept override;
    // clang-format on

protected:
    /// Every call of the enumeration Call passes through here. `made` holds the arguments; `forward` makes the call on
    /// the inner machine and, if it succeeds, adds what it gave to `made`. Returns what the call returns.
    MEMSAVER_INLINE virtual Status around(CallRecord& made, detail::FunctionRef<Status()> forward) noexcept;

private:
    AnyDriver inner_;
};

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/driver/device_around.ipp"
#endif
