// The calls of a Device as tables, for what is alike for all of them: AnyDriver's methods, DeviceAround's forwards, the
// enumeration Call and its names. device.hpp says what the calls do.
#pragma once

// Rows are X(name, (parameters), (arguments), notes). The notes are what a CallRecord says of the arguments whose types
// do not say what they are. Y is X for calls whose results need a note: DeviceAround forwards them in ways of its own.
// clang-format off

#define MEMSAVER_MACHINE_CALLS(X, Y)                                                                                   \
    X(granularity, (std::size_t& bytes), (bytes))                                                                      \
    X(memory, (DeviceMemory& memory), (memory))                                                                        \
    X(reserve, (std::size_t bytes, std::size_t alignment, Address& address), (bytes, alignment, address),              \
      .bytes = bytes)                                                                                                  \
    X(unreserve, (Address address, std::size_t bytes), (address, bytes), .address = address, .bytes = bytes)           \
    X(create, (std::size_t bytes, PageHandle& pages), (bytes, pages), .bytes = bytes)                                  \
    X(release, (PageHandle pages), (pages))                                                                            \
    X(map, (Address address, std::size_t bytes, PageHandle pages), (address, bytes, pages),                            \
      .address = address, .bytes = bytes)                                                                              \
    X(unmap, (Address address, std::size_t bytes), (address, bytes), .address = address, .bytes = bytes)               \
    X(allow_access, (Address address, std::size_t bytes, Rights rights = Rights::read_write),                          \
      (address, bytes, rights), .address = address, .bytes = bytes, .rights = rights)                                  \
    Y(take, (std::size_t at_most, PageHandle& pages, std::size_t& got), (at_most, pages, got))                         \
    X(ask_for_room, (std::size_t bytes, std::int64_t within), (bytes, within), .bytes = bytes)                         \
    X(create_shared, (std::size_t bytes, PageHandle& pages), (bytes, pages), .bytes = bytes)                           \
    X(export_pages, (PageHandle pages, int& descriptor), (pages, descriptor))                                          \
    X(import_pages, (int descriptor, PageHandle& pages), (descriptor, pages))                                          \
    X(open_stream, (StreamRef& stream), (stream))                                                                      \
    X(close_stream, (StreamRef stream), (stream))                                                                      \
    X(open_event, (StreamRef near, EventRef& event), (near, event))                                                    \
    X(close_event, (EventRef event), (event))                                                                          \
    X(record, (EventRef event, StreamRef stream), (event, stream))                                                     \
    X(record_device, (EventRef event), (event))                                                                        \
    X(follow, (StreamRef stream, EventRef event), (stream, event))                                                     \
    X(query, (EventRef event, bool& passed), (event, passed))                                                          \
    X(wait, (EventRef event), (event))                                                                                 \
    X(drain, (), ())                                                                                                   \
    X(capturing, (StreamRef stream, bool& yes), (stream, yes))                                                         \
    X(lane, (Direction direction, StreamRef& stream), (direction, stream))                                             \
    X(owns_stream, (StreamRef stream, bool& yes), (stream, yes))                                                       \
    X(copy_to_host, (void* host, Address from, std::size_t bytes, StreamRef stream), (host, from, bytes, stream),      \
      .address = from, .bytes = bytes)                                                                                 \
    X(copy_to_device, (Address to, const void* host, std::size_t bytes, StreamRef stream), (to, host, bytes, stream),  \
      .address = to, .bytes = bytes)                                                                                   \
    X(fill, (Address to, unsigned char byte, std::size_t bytes, StreamRef stream), (to, byte, bytes, stream),          \
      .address = to, .bytes = bytes)                                                                                   \
    X(reach_peer, (Address address, std::size_t bytes), (address, bytes), .address = address, .bytes = bytes)          \
    X(copy_peer, (Address to, Address from, std::size_t bytes, StreamRef stream), (to, from, bytes, stream),           \
      .address = to, .bytes = bytes)                                                                                   \
    Y(copy_many, (Direction direction, const CopyPart* parts, std::size_t count, StreamRef stream),                    \
      (direction, parts, count, stream))                                                                               \
    X(copy_by_kernel, (Address to, Address from, std::size_t bytes, StreamRef stream), (to, from, bytes, stream),      \
      .address = to, .bytes = bytes)                                                                                   \
    X(run_kernel, (const KernelRun& run, StreamRef stream), (run, stream),                                             \
      .address = run.reads.address, .bytes = run.reads.bytes)                                                          \
    X(allocate_plain, (std::size_t bytes, Address& address), (bytes, address), .bytes = bytes)                         \
    X(free_plain, (Address address), (address), .address = address)                                                    \
    X(begin_capture, (StreamRef stream, CaptureMode mode), (stream, mode))                                             \
    X(end_capture, (StreamRef stream, GraphRef& graph), (stream, graph))                                               \
    X(update_graph, (StreamRef stream, GraphRef& graph), (stream, graph), .graph = graph)                              \
    X(launch, (GraphRef graph, StreamRef stream), (graph, stream))                                                     \
    X(close_graph, (GraphRef graph), (graph))                                                                          \
    X(follow_outside, (StreamRef stream, EventRef event), (stream, event))                                             \
    X(pool_memory, (PoolRef pool, std::size_t& bytes), (pool, bytes))                                                  \
    X(trim_pool, (PoolRef pool, std::size_t keep), (pool, keep), .bytes = keep)                                        \
    X(pin_host, (void* pages, std::size_t bytes), (pages, bytes), .bytes = bytes)                                      \
    X(unpin_host, (void* pages), (pages))

/// Those that the operating system answers by default.
#define MEMSAVER_SYSTEM_CALLS(X)                                                                                       \
    X(map_host, (std::size_t bytes, void*& pages), (bytes, pages), .bytes = bytes)                                     \
    X(unmap_host, (void* pages, std::size_t bytes), (pages, bytes), .bytes = bytes)                                    \
    X(populate_host, (void* pages, std::size_t bytes), (pages, bytes), .bytes = bytes)                                 \
    X(host_available, (std::size_t& bytes), (bytes))                                                                   \
    X(open_file, (const char* directory, FileRef& file), (directory, file))                                            \
    X(open_source, (const char* path, bool direct, FileRef& file), (path, direct, file))                               \
    X(close_file, (FileRef file), (file))                                                                              \
    X(write_file, (FileRef file, const void* from, std::size_t bytes, std::size_t offset), (file, from, bytes, offset),\
      .bytes = bytes, .offset = offset)                                                                                \
    X(read_file, (FileRef file, void* to, std::size_t bytes, std::size_t offset), (file, to, bytes, offset),           \
      .bytes = bytes, .offset = offset)                                                                                \
    X(allocate_file, (FileRef file, std::size_t offset, std::size_t bytes), (file, offset, bytes),                     \
      .bytes = bytes, .offset = offset)                                                                                \
    X(punch_file, (FileRef file, std::size_t offset, std::size_t bytes), (file, offset, bytes),                        \
      .bytes = bytes, .offset = offset)                                                                                \
    X(file_facts, (FileRef file, FileFacts& facts), (file, facts))                                                     \
    X(file_cached, (FileRef file, std::size_t bytes, std::size_t offset, bool& yes), (file, bytes, offset, yes),       \
      .bytes = bytes, .offset = offset)
