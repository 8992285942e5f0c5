// What the library asks of a machine, in small named parts. A driver is a cheap, copyable, comparable handle; its
// methods are const, noexcept and callable from any thread, and answer with a Status. `testing/faulty_driver.hpp` and
// docs/writing-a-driver.md show a whole one.
#pragma once

#include "memsaver/core/handles.hpp"
#include "memsaver/core/status.hpp"

#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>

namespace memsaver::inline v0_2 {

class Neighbours; // neighbours.hpp

// clang-format 14 takes `noexcept ->` apart.
// clang-format off

/// Addresses and physical pages. All sizes are in bytes and multiples of the granularity, a power of two.
///
/// - `granularity(n&)`: the smallest unit of pages.
/// - `memory(m&)`: what the whole device has and has free. Never waits.
/// - `reserve(bytes, alignment, address&)` / `unreserve(address, bytes)`: addresses without memory.
/// - `create(bytes, handle&)` / `release(handle)`: physical pages; gone when released *and* unmapped everywhere.
/// - `map(address, bytes, handle)` / `unmap(address, bytes)`: a whole handle at a reserved address. One unmap may span
///   many whole mappings, without holes. It does not wait for work on the device.
/// - `allow_access(address, bytes)`: what was mapped may be read and written, by the device and the driver's peers.
///
/// None of these disturbs a stream capture, on any thread.
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

/// Order: streams, events and waits. Streams that programs own are named by StreamRef.
///
/// - `open_stream(s&)` / `close_stream(s)`: a stream that does not wait for the default stream.
/// - `open_event(near, e&)` / `close_event(e)`: an event for marks in `near`'s device.
/// - `record(e, s)`: marks what `s` has been given so far. `s` is not capturing.
/// - `record_device(e)`: marks what the whole device has been given so far, by every stream. Breaks open captures. On
///   CUDA, a device is its primary context, green contexts included: work of other contexts has to be named.
/// - `follow(s, e)`: later work of `s` starts after the mark.
/// - `query(e, passed&)`: never waits. `wait(e)`: waits.
/// - `drain()`: waits for the same, as freeing memory does, and leaves open captures whole; meanwhile other threads'
///   launches may stand still.
/// - `capturing(s, yes&)`: whether `s` is being captured; harmless to the capture.
///
/// But for `record_device`, none of these disturbs a capture that other streams have open, on any thread.
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

/// Moving and filling bytes, in the order of a stream. Host memory must stay valid until the stream has passed.
///
/// - `copy_to_host(host, from, bytes, s)`, `copy_to_device(to, host, bytes, s)`, `fill(to, byte, bytes, s)`.
template <class D>
concept Copies = Streams<D> && requires(const D d, void* host, const void* from_host, Address a, std::size_t n,
                                        unsigned char byte, StreamRef s) {
    { d.copy_to_host(host, a, n, s) } noexcept -> std::same_as<Status>;
    { d.copy_to_device(a, from_host, n, s) } noexcept -> std::same_as<Status>;
    { d.fill(a, byte, n, s) } noexcept -> std::same_as<Status>;
};

/// Ordinary device memory, never paused: `allocate_plain(bytes, address&)` / `free_plain(address)`.
/// Freeing waits for the device, as cudaFree does.
template <class D>
concept Plain = requires(const D d, std::size_t n, Address a, Address& out) {
    { d.allocate_plain(n, out) } noexcept -> std::same_as<Status>;
    { d.free_plain(a) } noexcept -> std::same_as<Status>;
};

/// Recording a stream's work into a graph and launching it again.
///
/// - `begin_capture(s, mode)`, `end_capture(s, graph&)`: fails, and leaves no graph, if the capture was broken.
/// - `update_graph(s, graph&)`: ends the capture too, and `graph` becomes what was recorded: the same executable where
///   the new work fits it, otherwise another one, and the old one is closed. Where it fails, `graph` is as before.
/// - `launch(graph, s)`, `close_graph(graph)`: what has been launched runs to its end.
template <class D>
concept Captures = requires(const D d, StreamRef s, CaptureMode mode, GraphRef g, GraphRef& out) {
    { d.begin_capture(s, mode) } noexcept -> std::same_as<Status>;
    { d.end_capture(s, out) } noexcept -> std::same_as<Status>;
    { d.update_graph(s, out) } noexcept -> std::same_as<Status>;
    { d.launch(g, s) } noexcept -> std::same_as<Status>;
    { d.close_graph(g) } noexcept -> std::same_as<Status>;
};

/// Waiting for what happens outside of a graph, in every replay of it.
///
/// - `follow_outside(s, e)`: as `follow`; while `s` is being captured it becomes a part of the graph, which waits, in each
///   launch, for the mark that `e` has by then. `e` is never recorded in a capture, and lives as long as the graph. A mark
///   that was never made is passed.
/// - `wait_word(s, word, value)`: later work of `s` starts once the host has brought `word`, which lies in pinned host
///   pages, to `value` or beyond: as signed, their difference is not negative. `s` is not capturing.
template <class D>
concept Gates = requires(const D d, StreamRef s, EventRef e, const std::atomic<std::uint32_t>& word, std::uint32_t value) {
    { d.follow_outside(s, e) } noexcept -> std::same_as<Status>;
    { d.wait_word(s, word, value) } noexcept -> std::same_as<Status>;
};

/// What the machine's own allocators keep of the device's memory, whether anybody uses it or not.
///
/// - `pool_memory(pool, bytes&)`: physical bytes that the pool holds; 0 on a machine without such pools.
/// - `trim_pool(pool, keep)`: gives back what nobody uses, but for `keep` bytes. Does not wait.
template <class D>
concept Trims = requires(const D d, PoolRef pool, std::size_t n, std::size_t& out) {
    { d.pool_memory(pool, out) } noexcept -> std::same_as<Status>;
    { d.trim_pool(pool, n) } noexcept -> std::same_as<Status>;
};

/// Telling devices apart: `owns_stream(s, yes&)`, whether `s` is a stream of this device. The default stream is. A driver
/// that can ask only about its own events has `owns_event(e, yes&)` too; without it, any of them is asked.
template <class D>
concept StreamOwners = requires(const D d, StreamRef s, bool& yes) {
    { d.owns_stream(s, yes) } noexcept -> std::same_as<Status>;
};

/// The device's own two streams for copies, one out and one in, shared by all copies of the driver and closed with the
/// last: what several users put on them passes in order, and both directions run at once.
template <class D>
concept Lanes = requires(const D d, Direction direction, StreamRef& out) {
    { d.lane(direction, out) } noexcept -> std::same_as<Status>;
};

/// Other devices of the process whose memory this one reaches over a link of their own.
///
/// - `reach_peer(address, bytes)`: what another device has mapped there may be read and written by this one.
/// - `copy_peer(to, from, bytes, s)`: in the order of `s`; one of the two is memory that a `reach_peer` named.
template <class D>
concept Peers = requires(const D d, Address a, std::size_t n, StreamRef s) {
    { d.reach_peer(a, n) } noexcept -> std::same_as<Status>;
    { d.copy_peer(a, a, n, s) } noexcept -> std::same_as<Status>;
};

/// Many copies at once, which cost less than one by one: on an H200 copies of 0.66 MiB pass the link at 54.3 GB/s instead
/// of 45.0, and take one call.
///
/// - `copy_many(d, parts, n, s)`: all in one direction, between the device and pinned host pages, after what `s` was given and
///   before what it is given later, and among themselves in any order: they have no byte in common. `unsupported` where
///   it cannot; nothing is enqueued then. After another failure some may have been.
template <class D>
concept BatchCopies = requires(const D d, Direction direction, const CopyPart* parts, std::size_t count, StreamRef s) {
    { d.copy_many(direction, parts, count, s) } noexcept -> std::same_as<Status>;
};

/// Copies by a kernel, for when the copy engines are busy with something else: right after much memory was given back
/// they copy at half their speed, for the device clears it with them.
///
/// - `copy_by_kernel(to, from, bytes, s)`: in the order of `s`; one of the two lies in host pages that are pinned.
///   `unsupported` for a device or for addresses where it cannot; nothing is enqueued then. Of no bytes: only makes the
///   kernel ready, which takes a while and may wait for the device; else the first copy does.
template <class D>
concept KernelCopies = requires(const D d, Address a, std::size_t n, StreamRef s) {
    { d.copy_by_kernel(a, a, n, s) } noexcept -> std::same_as<Status>;
};

/// Where those who take memory through copies of the driver find each other: `neighbours()`, the same for all
/// copies, and alive for as long as any of them; or null.
template <class D>
concept Shared = requires(const D d) {
    { d.neighbours() } noexcept -> std::same_as<Neighbours*>;
};

/// A machine that tells people of faults: `name_addresses(address, bytes, name)`, what to call what was reserved there until
/// it is unreserved. The text is the driver's own to copy; a driver that cannot does without.
template <class D>
concept Named = requires(const D d, Address a, std::size_t n, const char* name) {
    { d.name_addresses(a, n, name) } noexcept -> std::same_as<void>;
};

/// Pages of the host for bytes that wait there.
///
/// - `map_host(bytes, pages&)` / `unmap_host(pages, bytes)`: addresses at a multiple of 2 MiB, huge pages where the
///   system gives them, kept out of core dumps and forked children.
/// - `populate_host(pages, bytes)`: takes the memory of a range now; out_of_host_memory where there is none.
/// - `pin_host(pages, bytes)` / `unpin_host(pages)`: makes a populated range one that copies reach at full speed. A copy
///   does not span two of them.
/// - `host_available(bytes&)`: what the system and the process's control groups would still give.
template <class D>
concept HostPages = requires(const D d, void* pages, void*& out, std::size_t n, std::size_t& bytes) {
    { d.map_host(n, out) } noexcept -> std::same_as<Status>;
    { d.unmap_host(pages, n) } noexcept -> std::same_as<Status>;
    { d.populate_host(pages, n) } noexcept -> std::same_as<Status>;
    { d.pin_host(pages, n) } noexcept -> std::same_as<Status>;
    { d.unpin_host(pages) } noexcept -> std::same_as<Status>;
    { d.host_available(bytes) } noexcept -> std::same_as<Status>;
};

/// Files for bytes that wait there, without a name from birth (or at once, where the file system cannot), mode 0600,
/// closed on exec.
///
/// - `open_file(directory, file&)` / `close_file(file)`.
/// - `write_file(file, from, bytes, offset)`, `read_file(file, to, bytes, offset)`: all of it, or an error.
/// - `allocate_file(file, offset, bytes)`: takes the disk's room now. `punch_file(file, offset, bytes)`: gives it back.
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

/// Files that programs have, to be read; they are closed, and read, as Files says.
///
/// - `open_source(path, direct, file&)`: a file by its name, closed on exec. `direct`: past the page cache, or not at all.
/// - `file_facts(file, facts&)`: what it is now.
/// - `file_cached(file, bytes, offset, yes&)`: whether these bytes seem to be in the page cache. A guess; reads next to
///   nothing.
template <class D>
concept Sources = Files<D> && requires(const D d, const char* path, FileRef file, FileRef& out, FileFacts& facts,
                                       std::size_t n, bool& yes) {
    { d.open_source(path, true, out) } noexcept -> std::same_as<Status>;
    { d.file_facts(file, facts) } noexcept -> std::same_as<Status>;
    { d.file_cached(file, n, n, yes) } noexcept -> std::same_as<Status>;
};

/// A machine that an arena can live on: cheap to copy, comparable, with a number and a name for people.
template <class D>
concept Driver = requires(const D d) {
    { d.device() } noexcept -> std::same_as<int>;
    { d.name() } -> std::convertible_to<std::string>;
} && Pages<D> && Copies<D> && std::equality_comparable<D> && std::copyable<D>; // last, or AnyDriver asks about itself

// clang-format on

} // namespace memsaver::inline v0_2
