// Device: the interface of a machine. What every machine has is pure; what one may lack has a default that answers
// `unsupported`; what the operating system does has a default that asks it. Programs hold a machine by AnyDriver or a
// handle derived from it. See docs/writing-a-driver.md for a complete machine.
#pragma once

#include "memsaver/core/form.hpp"
#include "memsaver/core/function_ref.hpp"
#include "memsaver/core/handles.hpp"
#include "memsaver/core/status.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace memsaver::inline v0_3 {

class Neighbours; // neighbours.hpp

/// What a machine has beyond what every machine has. A call of a feature that is false answers `unsupported`; a call of
/// one that is true does so only for arguments that it cannot serve. testing/driver_contract.hpp checks this.
struct Features {
    bool host_addressable = false; ///< the host can access device memory at its addresses
    bool context = false;          ///< with_context
    bool lanes = false;            ///< lane
    bool stream_owners = false;    ///< owns_stream
    bool event_owners = false;     ///< owns_event
    bool peers = false;            ///< reach_peer, copy_peer
    bool batch_copies = false;     ///< copy_many
    bool kernel_copies = false;    ///< copy_by_kernel
    bool kernels = false;          ///< run_kernel
    bool plain = false;            ///< allocate_plain, free_plain
    bool captures = false;         ///< begin_capture, end_capture, update_graph, launch, close_graph
    bool gates = false;            ///< follow_outside
    bool pools = false;            ///< pool_memory, trim_pool
    bool exports = false;          ///< create_shared, export_pages, import_pages
    bool takes = false;            ///< take
    bool asks = false;             ///< ask_for_room
    bool rdma = false;             ///< pages that network cards may use: fixed when they are created

    friend constexpr bool operator==(const Features&, const Features&) = default;
};

/// A kernel of three 64-bit numbers: for a GPU, whose driver compiles the PTX, and for machines that the host
/// simulates.
struct KernelCode {
    const char* name; ///< of the entry
    const char* ptx;
    void (*on_host)(const std::array<std::uint64_t, 3>& arguments); ///< all threads of it
};

/// One run of a kernel.
struct KernelRun {
    const KernelCode* code; ///< lives as long as the machine
    std::array<std::uint64_t, 3> arguments{};
    unsigned blocks = 1;
    unsigned threads = 1; ///< of a block
    Range reads{};        ///< the device memory that it uses; it writes to pinned host pages only
};

/// A machine with addresses, pages, streams and copies. Derive from it to port memsaver to another accelerator; derive
/// from DeviceAround (device_around.hpp) to change a few calls of an existing machine.
///
/// Methods are called from any thread, several at once, and must not throw: catch std::bad_alloc and return
/// out_of_host_memory. A failed call has no effect and leaves its outputs as they were; a failed release is made again
/// later. All sizes are in bytes.
class Device {
public:
    Device& operator=(Device&&) = delete;
    virtual ~Device() = default;

    // --- What it is ---

    /// The number among the machines of its kind; for display, and to tell devices of one process apart.
    [[nodiscard]] virtual int device() const noexcept = 0;
    [[nodiscard]] virtual std::string name() const = 0;
    /// Does not change during the life of the object.
    [[nodiscard]] virtual Features features() const noexcept { return {}; }
    /// Whether both stand for the same machine with the same options. Symmetric.
    [[nodiscard]] virtual bool equals(const Device& other) const noexcept { return this == &other; }
    /// A text that is the same for this machine in all processes, such as the UUID of a GPU.
    virtual Status identity(std::string&) const noexcept { return unsupported; }
    /// The host's NUMA node next to the device, or -1 if unknown.
    [[nodiscard]] virtual int numa_node() const noexcept { return -1; }
    /// How busy the lanes are, which transfers of all users of this machine learn from each other. The same object as
    /// long as this one lives; null: no copies by a kernel.
    [[nodiscard]] virtual Neighbours* neighbours() noexcept { return nullptr; }
    /// Who holds memory of the machine, for the text of OutOfMemory: one line each, without a line break at the end.
    [[nodiscard]] virtual std::string holders() const { return {}; }
    /// Runs `work`, which must not throw, as the machine runs its own calls: on CUDA with the device's context current
    /// and captures safe, for libraries that launch kernels.
    virtual Status with_context(detail::FunctionRef<void()> /*work*/) noexcept { return unsupported; }
    /// Names a reserved range, until it is unreserved, in reports of faults. The text is copied.
    virtual void name_addresses(Address /*address*/, std::size_t /*bytes*/, const char* /*name*/) noexcept {}

    // --- Addresses and pages. Sizes are multiples of the granularity. None of these disturbs a stream capture ---

    /// The smallest unit of pages, a power of two.
    virtual Status granularity(std::size_t& bytes) noexcept = 0;
    /// Total and free memory of the whole device. Never waits.
    virtual Status memory(DeviceMemory& memory) noexcept = 0;
    /// Addresses without memory; out_of_addresses if the process may have no more.
    virtual Status reserve(std::size_t bytes, std::size_t alignment, Address& address) noexcept = 0;
    /// Gives back what `reserve` gave.
    virtual Status unreserve(Address address, std::size_t bytes) noexcept = 0;
    /// Physical pages. They are freed once released *and* unmapped everywhere.
    virtual Status create(std::size_t bytes, PageHandle& pages) noexcept = 0;
    /// Gives back a handle; its pages go once nothing maps them.
    virtual Status release(PageHandle pages) noexcept = 0;
    /// Maps a whole handle at a reserved address, without access.
    virtual Status map(Address address, std::size_t bytes, PageHandle pages) noexcept = 0;
    /// May span several whole mappings without holes between them. Does not wait for work: its caller has waited.
    virtual Status unmap(Address address, std::size_t bytes) noexcept = 0;
    /// Unmaps and releases a handle that is mapped once and readable and writable there, and whose bytes nobody needs:
    /// a machine may use the mapping to clear them. `unmapped`: set if they were unmapped, also if the release failed.
    virtual Status drop(Address address, std::size_t bytes, PageHandle pages, bool& unmapped) noexcept {
        const Status status = unmap(address, bytes);
        if (!status.ok()) return status;
        unmapped = true;
        return release(pages);
    }
    /// Lets the device, and those that may access its memory, read or also write a mapped range.
    virtual Status allow_access(Address address, std::size_t bytes, Rights rights) noexcept = 0;

    /// Pages to be had without clearing them first, of any size up to `at_most`: asked before `create`. `got`: their
    /// size.
    virtual Status take(std::size_t /*at_most*/, PageHandle& /*pages*/, std::size_t& /*got*/) noexcept {
        return unsupported;
    }
    /// Asks whoever else holds memory of the machine for so much in one go, before the first page of an operation.
    /// Waits for the answer at most `within` nanoseconds; negative: without a limit.
    virtual Status ask_for_room(std::size_t /*bytes*/, std::int64_t /*within*/) noexcept { return unsupported; }

    /// Like `create`, for pages that `export_pages` can name to another process.
    virtual Status create_shared(std::size_t /*bytes*/, PageHandle& /*pages*/) noexcept { return unsupported; }
    /// A file descriptor that names the pages; the caller closes it.
    virtual Status export_pages(PageHandle /*pages*/, int& /*descriptor*/) noexcept { return unsupported; }
    /// The pages that a descriptor names, as a handle of this process. Does not close the descriptor.
    virtual Status import_pages(int /*descriptor*/, PageHandle& /*pages*/) noexcept { return unsupported; }

    // --- Streams, events and waits. Apart from record_device, none disturbs a capture on another stream ---

    /// A stream that does not synchronize with the default stream.
    virtual Status open_stream(StreamRef& stream) noexcept = 0;
    /// Does not wait for its work.
    virtual Status close_stream(StreamRef stream) noexcept = 0;
    /// An event for marks on the device of `near`.
    virtual Status open_event(StreamRef near, EventRef& event) noexcept = 0;
    /// Does not wait for it.
    virtual Status close_event(EventRef event) noexcept = 0;
    /// Marks all work submitted to `stream` so far. `stream` must not be capturing.
    virtual Status record(EventRef event, StreamRef stream) noexcept = 0;
    /// Marks all work submitted to the whole device so far, by every stream, also those that this object never saw.
    /// Breaks open captures. A pause waits for such a mark, so it should be possible to query. On CUDA, the device is
    /// its primary context, including green contexts; work of other contexts must be named explicitly.
    virtual Status record_device(EventRef event) noexcept = 0;
    /// Makes later work of `stream` start after the mark.
    virtual Status follow(StreamRef stream, EventRef event) noexcept = 0;
    /// Never waits.
    virtual Status query(EventRef event, bool& passed) noexcept = 0;
    /// Blocks this thread until the event has passed.
    virtual Status wait(EventRef event) noexcept = 0;
    /// Waits for all work submitted to the device so far, as freeing memory does, and leaves open captures intact.
    /// Launches by other threads may block in the meantime.
    virtual Status drain() noexcept = 0;
    /// Whether `stream` is being captured. Does not disturb the capture.
    virtual Status capturing(StreamRef stream, bool& yes) noexcept = 0;

    /// The device's stream for copies in one direction, shared by all users of the machine; closed with this object.
    /// Copies of several users on one lane run in order; both directions run concurrently.
    virtual Status lane(Direction /*direction*/, StreamRef& /*stream*/) noexcept { return unsupported; }
    /// Whether `stream` is a stream of this device. The default stream always is.
    virtual Status owns_stream(StreamRef /*stream*/, bool& /*yes*/) noexcept { return unsupported; }
    /// For machines that can query only events of their own; without it, any event is queried.
    virtual Status owns_event(EventRef /*event*/, bool& /*yes*/) noexcept { return unsupported; }

    // --- Copies and fills, in stream order. Host memory stays valid until the stream has completed them ---

    /// In the order of the stream.
    virtual Status copy_to_host(void* host, Address from, std::size_t bytes, StreamRef stream) noexcept = 0;
    /// In the order of the stream.
    virtual Status copy_to_device(Address to, const void* host, std::size_t bytes, StreamRef stream) noexcept = 0;
    /// In the order of the stream.
    virtual Status fill(Address to, unsigned char byte, std::size_t bytes, StreamRef stream) noexcept = 0;

    /// Lets this device read and write what another device of the process has mapped there.
    virtual Status reach_peer(Address /*address*/, std::size_t /*bytes*/) noexcept { return unsupported; }
    /// One of the two addresses is memory passed to `reach_peer`.
    virtual Status copy_peer(Address /*to*/, Address /*from*/, std::size_t /*bytes*/, StreamRef /*stream*/) noexcept {
        return unsupported;
    }
    /// Copies, all in one direction, between the device and pinned host pages: in stream order as a whole, in any order
    /// among themselves, because they do not overlap. `unsupported`, with nothing enqueued, where it cannot; after any
    /// other failure some may have been enqueued. On an H200, copies of 0.66 MiB use the link at 54.3 GB/s instead of
    /// 45.0, and take one call.
    virtual Status copy_many(Direction, const CopyPart* /*parts*/, std::size_t /*count*/, StreamRef) noexcept {
        return unsupported;
    }
    /// Copies by a kernel, for when the copy engines are busy: right after much memory was released they copy at half
    /// their speed, because the device uses them to clear it. One of the two addresses lies in pinned host pages.
    /// `unsupported`, with nothing enqueued, for addresses where it cannot. With zero bytes it only prepares the
    /// kernel, which takes a while and may wait for the device; otherwise the first copy does so.
    virtual Status copy_by_kernel(Address /*to*/, Address /*from*/, std::size_t /*bytes*/, StreamRef) noexcept {
        return unsupported;
    }
    /// Runs a kernel. The first run compiles and loads it, which takes a while and may wait for the device.
    virtual Status run_kernel(const KernelRun& /*run*/, StreamRef /*stream*/) noexcept { return unsupported; }

    // --- Ordinary device memory, never paused ---

    /// As cudaMalloc and cudaFree.
    virtual Status allocate_plain(std::size_t /*bytes*/, Address& /*address*/) noexcept { return unsupported; }
    /// Waits for the device, as cudaFree does.
    virtual Status free_plain(Address /*address*/) noexcept { return unsupported; }

    // --- Captures of a stream's work into a graph that can be launched again ---

    /// As cudaStreamBeginCapture.
    virtual Status begin_capture(StreamRef /*stream*/, CaptureMode /*mode*/) noexcept { return unsupported; }
    /// Fails and leaves no graph if the capture was broken.
    virtual Status end_capture(StreamRef /*stream*/, GraphRef& /*graph*/) noexcept { return unsupported; }
    /// Ends the capture, and updates `graph` to the captured work: keeps the executable if the new work fits it,
    /// otherwise makes another one and closes the old one.
    virtual Status update_graph(StreamRef /*stream*/, GraphRef& /*graph*/) noexcept { return unsupported; }
    /// As cudaGraphLaunch.
    virtual Status launch(GraphRef /*graph*/, StreamRef /*stream*/) noexcept { return unsupported; }
    /// Launched work runs to completion.
    virtual Status close_graph(GraphRef /*graph*/) noexcept { return unsupported; }

    /// Like `follow`. While `stream` is being captured, it becomes a node of the graph; each launch waits for the mark
    /// that `event` has at the time of that launch. `event` is never recorded in a capture, and lives as long as the
    /// graph. An event that was never recorded counts as completed.
    virtual Status follow_outside(StreamRef /*stream*/, EventRef /*event*/) noexcept { return unsupported; }

    // --- Device memory that the machine's own allocators keep, in use or not ---

    /// Physical bytes that the pool holds; 0 if the machine has no such pool.
    virtual Status pool_memory(PoolRef /*pool*/, std::size_t& /*bytes*/) noexcept { return unsupported; }
    /// Releases unused memory of the pool, except `keep` bytes. Does not wait.
    virtual Status trim_pool(PoolRef /*pool*/, std::size_t /*keep*/) noexcept { return unsupported; }

    // --- Host pages for backups; by default the operating system's ---

    /// Addresses at a multiple of 2 MiB, with huge pages where the system provides them, excluded from core dumps and
    /// forked children.
    MEMSAVER_INLINE virtual Status map_host(std::size_t bytes, void*& pages) noexcept;
    /// Gives back what `map_host` gave.
    MEMSAVER_INLINE virtual Status unmap_host(void* pages, std::size_t bytes) noexcept;
    /// Allocates the memory of a range now; out_of_host_memory if there is none.
    MEMSAVER_INLINE virtual Status populate_host(void* pages, std::size_t bytes) noexcept;
    /// The memory that the system and the process's control groups would still provide.
    MEMSAVER_INLINE virtual Status host_available(std::size_t& bytes) noexcept;
    /// Pins a populated range, so that copies reach it at full speed. A copy does not span two pinned ranges. By
    /// default nothing: for machines to which all host pages are alike.
    virtual Status pin_host(void* /*pages*/, std::size_t /*bytes*/) noexcept { return {}; }
    /// Undoes `pin_host`.
    virtual Status unpin_host(void* /*pages*/) noexcept { return {}; }

    // --- Files for backups, and files of the program; by default the operating system's. Here, and not called
    // directly, so that their failures can be injected like any other ---

    /// A file without a name from the start (or unlinked at once, where the file system cannot do that), mode 0600,
    /// closed on exec.
    MEMSAVER_INLINE virtual Status open_file(const char* directory, FileRef& file) noexcept;
    /// An existing file, for reading; closed on exec. `direct`: bypasses the page cache, or fails.
    MEMSAVER_INLINE virtual Status open_source(const char* path, bool direct, FileRef& file) noexcept;
    /// Of `open_file` or `open_source`.
    MEMSAVER_INLINE virtual Status close_file(FileRef file) noexcept;
    /// All bytes, or an error.
    MEMSAVER_INLINE virtual Status write_file(FileRef, const void* from, std::size_t bytes,
                                              std::size_t offset) noexcept;
    /// All bytes, or an error.
    MEMSAVER_INLINE virtual Status read_file(FileRef, void* to, std::size_t bytes, std::size_t offset) noexcept;
    /// Allocates disk space now.
    MEMSAVER_INLINE virtual Status allocate_file(FileRef file, std::size_t offset, std::size_t bytes) noexcept;
    /// Releases disk space.
    MEMSAVER_INLINE virtual Status punch_file(FileRef file, std::size_t offset, std::size_t bytes) noexcept;
    /// The current version of the file.
    MEMSAVER_INLINE virtual Status file_facts(FileRef file, FileFacts& facts) noexcept;
    /// Whether these bytes seem to be in the page cache: a guess that reads almost nothing.
    MEMSAVER_INLINE virtual Status file_cached(FileRef, std::size_t bytes, std::size_t offset, bool& yes) noexcept;

protected:
    static constexpr Status unsupported{StatusKind::unsupported, 0, "unsupported by this driver"};
};

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/driver/device.ipp"
#endif
