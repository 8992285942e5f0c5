// Definitions of status.hpp.
#pragma once

#include "memsaver/core/status.hpp"
#include "memsaver/core/text.hpp"

#include <ostream>
#include <string_view>
#include <system_error>

namespace memsaver::inline v0_3 {

MEMSAVER_INLINE std::string to_string(const Status& status) {
    const auto of_kind = [&] {
        switch (status.kind) {
        case StatusKind::ok: break;
        case StatusKind::out_of_memory: return "out of memory";
        case StatusKind::out_of_host_memory: return "out of host memory";
        case StatusKind::out_of_addresses: return "out of addresses";
        case StatusKind::gone: return "device lost";
        case StatusKind::unsupported: return "unsupported";
        case StatusKind::other: return "error";
        }
        return "ok";
    };
    const bool named = !status.ok() && status.name != nullptr && *status.name != '\0';
    const std::string code =
        status.ok() || status.code == 0 ? "" : detail::text_of({" (", detail::in_digits(status.code), ")"});
    const std::string_view name = named ? status.name : "";
    const bool of_errno = name.starts_with('E') && name.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ2") == name.npos;
    const std::string text = of_errno ? ": " + std::generic_category().message(status.code) : std::string{};
    return detail::text_of({named ? status.name : of_kind(), code, text}); // "ENOENT (2): No such file or directory"
}

MEMSAVER_INLINE std::ostream& operator<<(std::ostream& out, const Status& status) { return out << to_string(status); }

} // namespace memsaver::inline v0_3
