// The concepts that a machine must satisfy, in small named parts. A driver is a cheap, copyable, comparable handle; its
// methods are const, noexcept, callable from any thread, and return a Status. See `testing/faulty_driver.hpp` and
// docs/writing-a-driver.md for a complete driver.
#pragma once

#include "memsaver/core/handles.hpp"
#include "memsaver/core/status.hpp"

#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>

namespace memsaver::inline v0_3 {

class Neighbours; // neighbours.hpp

// clang-format 14 breaks `noexcept ->` apart.
// clang-format off

/// Addresses and physical pages. All sizes are in bytes and multiples of the granularity, which is a power of two.
///
/// - `granularity(n&)`: the smallest unit of pages.
/// - `memory(m&)`: total and free memory of the whole device. Never waits.
/// - `reserve(bytes, alignment, address&)` / `unreserve(address, bytes)`: addresses without memory; out_of_addresses if
///   the process may have no more.
/// - `create(bytes, handle&)` / `release(handle)`: physical pages. They are freed once released *and* unmapped
///   everywhere.
/// - `map(address, bytes, handle)` / `unmap(address, bytes)`: maps a whole handle at a reserved address. One unmap may
///   span several whole mappings without holes between them. It does not wait for work on the device.
/// - `allow_access(address, bytes)`: lets the device and the driver's peers read and write a mapped range.
///
/// None of these disturbs a stream capture on any thread.
template <class D>
concept Pages = requires(const D d, std::size_t n, std::size_t& out, Address a, Address& out_address, PageHandle h,
                         PageHandle& out_handle, DeviceMemory& memory) {
    { d.granularity(out) } noexcept -> std::same_as<Status>;
    { d.memory(memory) } noexcept -> std::same_as<Status>;
    { d.reserve(n, n, out_address) } noexcept -> std::same_as<Status>;
    { d.unreserve(a, n) } noexcept -> std::same_as<Status>;
    { d.create(n, out_handle) } noexcept -> std::same_as<Status>;
    { d.release(h) } noexcept -> std::same_as<Status>;
    { d.map(a, n, h) } noexcept -> std::same_as<Status>;
    { d.unmap(a, n) } noexcept -> std::same_as<Status>;
    { d.allow_access(a, n) } noexcept -> std::same_as<Status>;
};

/// Ordering: streams, events and waits. Streams owned by the program are named by StreamRef.
///
/// - `open_stream(s&)` / `close_stream(s)`: a stream that does not synchronize with the default stream.
/// - `open_event(near, e&)` / `close_event(e)`: an event for marks on `near`'s device.
/// - `record(e, s)`: marks all work submitted to `s` so far. `s` must not be capturing.
/// - `record_device(e)`: marks all work submitted to the whole device so far, by every stream. Breaks open captures. On
///   CUDA, the device is its primary context, including green contexts; work of other contexts must be named
///   explicitly.
/// - `follow(s, e)`: makes later work of `s` start after the mark.
/// - `query(e, passed&)`: never waits. `wait(e)`: waits.
/// - `drain()`: waits for all work submitted to the device so far, as freeing memory does, and leaves open captures
///   intact. Launches by other threads may block in the meantime.
/// - `capturing(s, yes&)`: whether `s` is being captured; does not disturb the capture.
///
/// Except for `record_device`, none of these disturbs a capture that is open on another stream, on any thread.
template <class D>
concept Streams = requires(const D d, StreamRef s, StreamRef& out_stream, EventRef e, EventRef& out_event, bool& yes) {
    { d.open_stream(out_stream) } noexcept -> std::same_as<Status>;
    { d.close_stream(s) } noexcept -> std::same_as<Status>;
    { d.open_event(s, out_event) } noexcept -> std::same_as<Status>;
    { d.close_event(e) } noexcept -> std::same_as<Status>;
    { d.record(e, s) } noexcept -> std::same_as<Status>;
    { d.record_device(e) } noexcept -> std::same_as<Status>;
    { d.follow(s, e) } noexcept -> std::same_as<Status>;
    { d.query(e, yes) } noexcept -> std::same_as<Status>;
    { d.wait(e) } noexcept -> std::same_as<Status>;
    { d.drain() } noexcept -> std::same_as<Status>;
    { d.capturing(s, yes) } noexcept -> std::same_as<Status>;
};

/// Copying and filling bytes, in stream order. Host memory must stay valid until the stream has completed the
/// operation.
///
/// - `copy_to_host(host, from, bytes, s)`, `copy_to_device(to, host, bytes, s)`, `fill(to, byte, bytes, s)`.
template <class D>
concept Copies = Streams<D> && requires(const D d, void* host, const void* from_host, Address a, std::size_t n,
                                        unsigned char byte, StreamRef s) {
    { d.copy_to_host(host, a, n, s) } noexcept -> std::same_as<Status>;
    { d.copy_to_device(a, from_host, n, s) } noexcept -> std::same_as<Status>;
    { d.fill(a, byte, n, s) } noexcept -> std::same_as<Status>;
};

/// Ordinary device memory, never paused: `allocate_plain(bytes, address&)` / `free_plain(address)`. Freeing waits for
/// the device, as cudaFree does.
template <class D>
concept Plain = requires(const D d, std::size_t n, Address a, Address& out) {
    { d.allocate_plain(n, out) } noexcept -> std::same_as<Status>;
    { d.free_plain(a) } noexcept -> std::same_as<Status>;
};

/// Capturing a stream's work into a graph and launching it again.
///
/// - `begin_capture(s, mode)`, `end_capture(s, graph&)`: `end_capture` fails and leaves no graph if the capture was
///   broken.
/// - `update_graph(s, graph&)`: also ends the capture, and updates `graph` to the captured work. Keeps the executable
///   if the new work fits it; otherwise makes another one and closes the old one. On failure, `graph` is unchanged.
/// - `launch(graph, s)`, `close_graph(graph)`: launched work always runs to completion.
template <class D>
concept Captures = requires(const D d, StreamRef s, CaptureMode mode, GraphRef g, GraphRef& out) {
    { d.begin_capture(s, mode) } noexcept -> std::same_as<Status>;
    { d.end_capture(s, out) } noexcept -> std::same_as<Status>;
    { d.update_graph(s, out) } noexcept -> std::same_as<Status>;
    { d.launch(g, s) } noexcept -> std::same_as<Status>;
    { d.close_graph(g) } noexcept -> std::same_as<Status>;
};

/// Waiting for something outside a graph, in every replay of it.
///
/// - `follow_outside(s, e)`: like `follow`. While `s` is being captured, it becomes a node of the graph; each launch
///   waits for the mark that `e` has at the time of that launch. `e` is never recorded in a capture, and lives as long
///   as the graph. An event that was never recorded counts as completed.
template <class D>
concept Gates = requires(const D d, StreamRef s, EventRef e) {
    { d.follow_outside(s, e) } noexcept -> std::same_as<Status>;
};

/// Device memory that the machine's own allocators keep, in use or not.
///
/// - `pool_memory(pool, bytes&)`: physical bytes that the pool holds; 0 on a machine without such pools.
/// - `trim_pool(pool, keep)`: releases unused memory of the pool, except `keep` bytes. Does not wait.
template <class D>
concept Trims = requires(const D d, PoolRef pool, std::size_t n, std::size_t& out) {
    { d.pool_memory(pool, out) } noexcept -> std::same_as<Status>;
    { d.trim_pool(pool, n) } noexcept -> std::same_as<Status>;
};

/// Telling devices apart: `owns_stream(s, yes&)` reports whether `s` is a stream of this device. The default stream
/// always is. A driver that can query only its own events also has `owns_event(e, yes&)`; without it, any event is
/// queried.
template <class D>
concept StreamOwners = requires(const D d, StreamRef s, bool& yes) {
    { d.owns_stream(s, yes) } noexcept -> std::same_as<Status>;
};

/// The device's two streams for copies, one out and one in, shared by all copies of the driver and closed with the last
/// one. Copies of several users on one lane run in order; both directions run concurrently.
template <class D>
concept Lanes = requires(const D d, Direction direction, StreamRef& out) {
    { d.lane(direction, out) } noexcept -> std::same_as<Status>;
};

/// Other devices of the process whose memory this device reaches over a link of its own.
///
/// - `reach_peer(address, bytes)`: lets this device read and write what another device has mapped there.
/// - `copy_peer(to, from, bytes, s)`: copies in the order of `s`; one of the two is memory passed to `reach_peer`.
template <class D>
concept Peers = requires(const D d, Address a, std::size_t n, StreamRef s) {
    { d.reach_peer(a, n) } noexcept -> std::same_as<Status>;
    { d.copy_peer(a, a, n, s) } noexcept -> std::same_as<Status>;
};

/// Batches of copies, which cost less than single copies: on an H200, copies of 0.66 MiB use the link at 54.3 GB/s
/// instead of 45.0, and take one call.
///
/// - `copy_many(d, parts, n, s)`: copies, all in one direction, between the device and pinned host pages. They run
///   after the work submitted to `s` before and before the work submitted later, and in any order among themselves,
///   because they do not overlap. Returns `unsupported`, with nothing enqueued, where it cannot. After any other
///   failure some copies may have been enqueued.
template <class D>
concept BatchCopies = requires(const D d, Direction direction, const CopyPart* parts, std::size_t count, StreamRef s) {
    { d.copy_many(direction, parts, count, s) } noexcept -> std::same_as<Status>;
};

/// Copies by a kernel, for when the copy engines are busy: right after much memory was released they copy at half their
/// speed, because the device uses them to clear that memory.
///
/// - `copy_by_kernel(to, from, bytes, s)`: copies in the order of `s`; one of the two addresses lies in pinned host
///   pages. Returns `unsupported`, with nothing enqueued, for a device or addresses where it cannot. With zero bytes it
///   only prepares the kernel, which takes a while and may wait for the device; otherwise the first copy does so.
template <class D>
concept KernelCopies = requires(const D d, Address a, std::size_t n, StreamRef s) {
    { d.copy_by_kernel(a, a, n, s) } noexcept -> std::same_as<Status>;
};

/// The meeting point of all users of copies of the driver: `neighbours()` returns the same object for all copies, alive
/// as long as any copy, or null.
template <class D>
concept Shared = requires(const D d) {
    { d.neighbours() } noexcept -> std::same_as<Neighbours*>;
};

/// A machine that reports faults: `name_addresses(address, bytes, name)` names a reserved range in those reports until
/// it is unreserved. The driver copies the text; drivers without fault reports omit the method.
template <class D>
concept Named = requires(const D d, Address a, std::size_t n, const char* name) {
    { d.name_addresses(a, n, name) } noexcept -> std::same_as<void>;
};

/// Host pages for backups.
///
/// - `map_host(bytes, pages&)` / `unmap_host(pages, bytes)`: addresses at a multiple of 2 MiB, with huge pages where
///   the system provides them, excluded from core dumps and forked children.
/// - `populate_host(pages, bytes)`: allocates the memory of a range now; out_of_host_memory if there is none.
/// - `pin_host(pages, bytes)` / `unpin_host(pages)`: pins a populated range, so that copies reach it at full speed. A
///   copy does not span two pinned ranges.
/// - `host_available(bytes&)`: the memory that the system and the process's control groups would still provide.
template <class D>
concept HostPages = requires(const D d, void* pages, void*& out, std::size_t n, std::size_t& bytes) {
    { d.map_host(n, out) } noexcept -> std::same_as<Status>;
    { d.unmap_host(pages, n) } noexcept -> std::same_as<Status>;
    { d.populate_host(pages, n) } noexcept -> std::same_as<Status>;
    { d.pin_host(pages, n) } noexcept -> std::same_as<Status>;
    { d.unpin_host(pages) } noexcept -> std::same_as<Status>;
    { d.host_available(bytes) } noexcept -> std::same_as<Status>;
};

/// Files for backups: without a name from the start (or unlinked at once, where the file system cannot do that), mode
/// 0600, closed on exec.
///
/// - `open_file(directory, file&)` / `close_file(file)`.
/// - `write_file(file, from, bytes, offset)`, `read_file(file, to, bytes, offset)`: all bytes, or an error.
/// - `allocate_file(file, offset, bytes)`: allocates disk space now. `punch_file(file, offset, bytes)`: releases it.
template <class D>
concept Files = requires(const D d, const char* directory, FileRef file, FileRef& out, void* to, const void* from,
                         std::size_t n) {
    { d.open_file(directory, out) } noexcept -> std::same_as<Status>;
    { d.close_file(file) } noexcept -> std::same_as<Status>;
    { d.write_file(file, from, n, n) } noexcept -> std::same_as<Status>;
    { d.read_file(file, to, n, n) } noexcept -> std::same_as<Status>;
    { d.allocate_file(file, n, n) } noexcept -> std::same_as<Status>;
    { d.punch_file(file, n, n) } noexcept -> std::same_as<Status>;
};

/// Existing files of the program, opened for reading. They are closed and read as in Files.
///
/// - `open_source(path, direct, file&)`: opens a file by name, closed on exec. `direct`: bypasses the page cache, or
///   fails.
/// - `file_facts(file, facts&)`: the current version of the file.
/// - `file_cached(file, bytes, offset, yes&)`: whether these bytes seem to be in the page cache. A guess that reads
///   almost nothing.
template <class D>
concept Sources = Files<D> && requires(const D d, const char* path, FileRef file, FileRef& out, FileFacts& facts,
                                       std::size_t n, bool& yes) {
    { d.open_source(path, true, out) } noexcept -> std::same_as<Status>;
    { d.file_facts(file, facts) } noexcept -> std::same_as<Status>;
    { d.file_cached(file, n, n, yes) } noexcept -> std::same_as<Status>;
};

/// A machine that an arena can use: cheap to copy, comparable, with a number and a human-readable name.
template <class D>
concept Driver = requires(const D d) {
    { d.device() } noexcept -> std::same_as<int>;
    { d.name() } -> std::convertible_to<std::string>;
} && Pages<D> && Copies<D> && std::equality_comparable<D> && std::copyable<D>; // last, or AnyDriver recurses

// clang-format on

} // namespace memsaver::inline v0_3
