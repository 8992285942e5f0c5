// Definitions of sizes.hpp.
#pragma once

#include "memsaver/core/sizes.hpp"

#include <cstdio>
#include <iterator>

namespace memsaver::inline v0_3 {

MEMSAVER_INLINE std::string format_bytes(std::uint64_t bytes) {
    constexpr const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    auto value = static_cast<double>(bytes);
    std::size_t unit = 0;
    while (value >= 1024.0 && unit + 1 < std::size(units)) {
        value /= 1024.0;
        ++unit;
    }
    char text[32];
    std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.2f %s", value, units[unit]);
    return text;
}

MEMSAVER_INLINE std::string format_address(std::uintptr_t address) {
    char text[32];
    std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(address));
    return text;
}

} // namespace memsaver::inline v0_3
