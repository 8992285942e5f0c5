// Definitions of calls.hpp.
#pragma once

#include "memsaver/core/sizes.hpp"
#include "memsaver/driver/calls.hpp"
#include "memsaver/driver/device_calls.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace memsaver::inline v0_3 {

MEMSAVER_INLINE const char* call_name(Call call) noexcept {
    static constexpr std::array<const char*, call_kinds> names{
#define MEMSAVER_CALL(name, ...) #name,
        MEMSAVER_MACHINE_CALLS(MEMSAVER_CALL, MEMSAVER_CALL) MEMSAVER_SYSTEM_CALLS(MEMSAVER_CALL)
#undef MEMSAVER_CALL
    };
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
