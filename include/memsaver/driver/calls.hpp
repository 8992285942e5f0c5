// The calls of a Device, and a record of one call. Knows nothing about the meaning of the calls.
#pragma once

#include "memsaver/core/handles.hpp"
#include "memsaver/core/sizes.hpp"
#include "memsaver/core/status.hpp"
#include "memsaver/driver/device_calls.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace memsaver::inline v0_3 {

/// The methods of Device that return a Status, except `identity` and `with_context`. `owns_event` is counted as
/// `owns_stream`.
enum class Call : unsigned char {
#define MEMSAVER_CALL(name, ...) name,
    MEMSAVER_MACHINE_CALLS(MEMSAVER_CALL, MEMSAVER_CALL) MEMSAVER_SYSTEM_CALLS(MEMSAVER_CALL)
#undef MEMSAVER_CALL
};

/// Number of values of Call, which start at 0.
inline constexpr std::size_t call_kinds = static_cast<std::size_t>(Call::file_cached) + 1;

/// The name of the method, such as "map".
[[nodiscard]] inline const char* call_name(Call call) noexcept {
    static constexpr std::array<const char*, call_kinds> names{
#define MEMSAVER_CALL(name, ...) #name,
        MEMSAVER_MACHINE_CALLS(MEMSAVER_CALL, MEMSAVER_CALL) MEMSAVER_SYSTEM_CALLS(MEMSAVER_CALL)
#undef MEMSAVER_CALL
    };
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
    std::size_t offset = 0;          ///< in the file
    const CopyPart* parts = nullptr; ///< of copy_many, while the call is made
    std::size_t count = 0;           ///< of the parts
    Direction direction{};           ///< of the parts
    Rights rights{};                 ///< of allow_access
    Status status{};
    bool injected = false; ///< injected failure; the call was not forwarded

    /// "#12 map 2.00 MiB at 0x7f0000000000, handle 3"
    [[nodiscard]] std::string request() const {
        const auto at = [](const void* pointer) { return format_address(reinterpret_cast<std::uintptr_t>(pointer)); };
        std::string text{'#'}; // appended to, because g++ 12 warns of a text in front of a new one
        text += std::to_string(number) + ' ' + call_name(call);
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
    /// Returns the request and its result: "...: ok", "...: injected out of memory (-4242)".
    [[nodiscard]] std::string text() const {
        if (status.ok()) return request() + ": ok";
        const char* const name = *status.name != '\0' ? status.name : "failed";
        return request() + ": " + name + " (" + std::to_string(status.code) + ')';
    }
};

} // namespace memsaver::inline v0_3
