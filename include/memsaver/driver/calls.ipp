// Definitions of calls.hpp.
#pragma once

#include "memsaver/core/sizes.hpp"
#include "memsaver/driver/calls.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace memsaver::inline v0_3 {

MEMSAVER_INLINE const char* call_name(Call call) noexcept {
    static constexpr std::array<const char*, call_kinds> names{
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
        "owns_stream", "reach_peer", "copy_peer", "copy_many", "copy_by_kernel", "run_kernel", "pool_memory", "trim_pool",
        "take", "ask_for_room", "create_shared", "export_pages", "import_pages",
        // clang-format on
    };
    static_assert(names.back() != nullptr, "a call without a name");
    return names[static_cast<std::size_t>(call)];
}

MEMSAVER_INLINE std::string CallRecord::request() const {
    const auto at = [](const void* pointer) { return format_address(reinterpret_cast<std::uintptr_t>(pointer)); };
    std::string text = "#" + std::to_string(number) + ' ' + call_name(call);
    if (bytes != 0) text += ' ' + format_bytes(bytes);
    if (address != 0) text += " at " + format_address(address);
    if (handle != PageHandle{}) text += ", handle " + std::to_string(handle.value);
    if (stream != StreamRef{}) text += ", stream " + at(stream.native());
    if (event) text += ", event " + at(event.native());
    if (graph != GraphRef{}) text += ", graph " + at(graph.native);
    if (host != nullptr) text += ", host " + at(host);
    if (file != FileRef{}) text += ", file " + std::to_string(file.descriptor);
    if (offset != 0) text += ", offset " + std::to_string(offset);
    if (rights == Rights::read) text += ", to read";
    return text;
}

MEMSAVER_INLINE std::string CallRecord::text() const {
    if (status.ok()) return request() + ": ok";
    const char* const name = *status.name != '\0' ? status.name : "failed";
    return request() + ": " + name + " (" + std::to_string(status.code) + ')';
}

} // namespace memsaver::inline v0_3
