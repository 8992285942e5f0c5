// The calls of a driver, a record of one call, and a log with counts and the latest calls. Knows nothing about the
// meaning of the calls.
#pragma once

#include "memsaver/core/core.hpp"
#include "memsaver/core/handles.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace memsaver::inline v0_3 {

/// The methods of the driver concepts (driver/concepts.hpp), except `device` and `name`, which cannot fail.
enum class Call : unsigned char {
    // clang-format off
    granularity, memory, reserve, unreserve, create, release, map, unmap, allow_access,
    open_stream, close_stream, open_event, close_event, record, record_device, follow, query, wait, drain, capturing,
    copy_to_host, copy_to_device, fill,
    allocate_plain, free_plain,
    begin_capture, end_capture, update_graph, launch, close_graph,
    follow_outside,
    lane, map_host, unmap_host, populate_host, pin_host, unpin_host, host_available,
    open_file, close_file, write_file, read_file, allocate_file, punch_file, open_source, file_facts, file_cached,
    owns_stream, reach_peer, copy_peer, copy_many, copy_by_kernel, pool_memory, trim_pool,
    // clang-format on
};

/// Number of values of Call, which start at 0.
inline constexpr std::size_t call_kinds = static_cast<std::size_t>(Call::trim_pool) + 1;

/// The name of the driver method, such as "map".
[[nodiscard]] constexpr const char* call_name(Call call) noexcept {
    constexpr std::array<const char*, call_kinds> names{
        // clang-format off
        "granularity", "memory", "reserve", "unreserve", "create", "release", "map", "unmap", "allow_access",
        "open_stream", "close_stream", "open_event", "close_event", "record", "record_device", "follow", "query",
        "wait", "drain", "capturing",
        "copy_to_host", "copy_to_device", "fill",
        "allocate_plain", "free_plain",
        "begin_capture", "end_capture", "update_graph", "launch", "close_graph",
        "follow_outside",
        "lane", "map_host", "unmap_host", "populate_host", "pin_host", "unpin_host", "host_available",
        "open_file", "close_file", "write_file", "read_file", "allocate_file", "punch_file",
        "open_source", "file_facts", "file_cached",
        "owns_stream", "reach_peer", "copy_peer", "copy_many", "copy_by_kernel", "pool_memory", "trim_pool",
        // clang-format on
    };
    static_assert(names.back() != nullptr, "a call without a name");
    return names[static_cast<std::size_t>(call)];
}

/// One call: its arguments and, once it has returned, its result. Fields that do not apply to the call stay empty.
struct CallRecord {
    Call call = Call::granularity;
    std::uint64_t number = 0; ///< sequence number over calls of all kinds, from 1
    Address address = 0;      ///< on the device
    std::size_t bytes = 0;
    PageHandle handle{};
    StreamRef stream{};
    EventRef event{};
    GraphRef graph{};
    const void* host = nullptr; ///< host memory: pages, or the other end of a copy, a read or a write
    FileRef file{};
    std::size_t offset = 0; ///< in the file
    Status status{};
    bool injected = false; ///< injected failure; the call was not forwarded

    /// "#12 map 2.00 MiB at 0x7f0000000000, handle 3"
    [[nodiscard]] std::string request() const {
        std::string text = "#" + std::to_string(number) + ' ' + call_name(call);
        if (bytes != 0) text += ' ' + format_bytes(bytes);
        if (address != 0) text += " at " + format_address(address);
        if (handle != PageHandle{}) text += ", handle " + std::to_string(handle.value);
        if (stream != StreamRef{}) text += ", stream " + pointer_text(stream.native());
        if (event) text += ", event " + pointer_text(event.native());
        if (graph != GraphRef{}) text += ", graph " + pointer_text(graph.native);
        if (host != nullptr) text += ", host " + pointer_text(host);
        if (file != FileRef{}) text += ", file " + std::to_string(file.descriptor);
        if (offset != 0) text += ", offset " + std::to_string(offset);
        return text;
    }

    /// Returns the request and its result: "...: ok", "...: injected out of memory (-4242)".
    [[nodiscard]] std::string text() const {
        if (status.ok()) return request() + ": ok";
        const char* const name = *status.name != '\0' ? status.name : "failed";
        return request() + ": " + name + " (" + std::to_string(status.code) + ')';
    }

private:
    static std::string pointer_text(const void* pointer) {
        return format_address(reinterpret_cast<std::uintptr_t>(pointer));
    }
};

/// Counts of calls begun, and the latest completed calls. Allocates only to print. Not thread-safe.
class CallLog {
public:
    /// Number of latest calls that are kept.
    static constexpr std::size_t kept = 256;

    /// Counts a call and returns its number.
    std::uint64_t begin(Call call) noexcept {
        ++counts_[static_cast<std::size_t>(call)];
        return ++total_;
    }

    /// Records a completed call, replacing the oldest record.
    void end(const CallRecord& record) noexcept {
        latest_[ended_ % kept] = record;
        ++ended_;
    }

    /// Number of calls of one kind that have begun.
    [[nodiscard]] std::uint64_t count(Call call) const noexcept { return counts_[static_cast<std::size_t>(call)]; }
    /// Number of calls of all kinds that have begun.
    [[nodiscard]] std::uint64_t total() const noexcept { return total_; }

    /// Returns one line for each of the latest calls, in the order of completion.
    [[nodiscard]] std::string text() const {
        const std::uint64_t first = ended_ > kept ? ended_ - kept : 0;
        std::string text = first > 0 ? std::to_string(first) + " earlier calls\n" : "";
        for (std::uint64_t i = first; i < ended_; ++i) text += latest_[i % kept].text() + '\n';
        return text;
    }

private:
    std::array<std::uint64_t, call_kinds> counts_{};
    std::uint64_t total_ = 0;
    std::array<CallRecord, kept> latest_{};
    std::uint64_t ended_ = 0;
};

} // namespace memsaver::inline v0_3
