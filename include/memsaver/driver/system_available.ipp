// Definitions of system_available.hpp.
#pragma once

#include "memsaver/driver/system_available.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <string_view>

namespace memsaver::inline v0_3 {

namespace detail {

MEMSAVER_INLINE std::size_t SystemAvailable::bytes(const char* root) noexcept {
    std::size_t least = unlimited;
    const std::size_t kibibytes = File{"%s/proc/meminfo", root}.number("MemAvailable:", unlimited);
    if (kibibytes != unlimited) least = kibibytes * 1024;
    const File groups{"%s/proc/self/cgroup", root};
    const Hierarchy second{root,
                           "",
                           "memory.max",
                           "memory.current",
                           {"inactive_file ", "active_file "},
                           {"file_dirty ", "file_writeback "}};
    const Hierarchy first{root,
                          "/memory",
                          "memory.limit_in_bytes",
                          "memory.usage_in_bytes",
                          {"total_inactive_file ", "total_active_file "},
                          {"total_dirty ", "total_writeback "}};
    least = std::min(least, left_in_all(second, group(groups.text(), "")));
    return std::min(least, left_in_all(first, group(groups.text(), "memory")));
}

MEMSAVER_INLINE std::size_t SystemAvailable::File::number(std::string_view key, std::size_t otherwise) const noexcept {
    for (std::string_view rest = text(); !rest.empty();) {
        std::string_view line = cut(rest, '\n');
        if (!line.starts_with(key)) continue;
        line.remove_prefix(key.size());
        while (line.starts_with(' ')) line.remove_prefix(1);
        std::size_t value = otherwise;
        (void)std::from_chars(line.data(), line.data() + line.size(), value);
        return value;
    }
    return otherwise;
}

MEMSAVER_INLINE std::string_view SystemAvailable::cut(std::string_view& rest, char end) noexcept {
    const std::size_t length = std::min(rest.find(end), rest.size());
    const std::string_view piece{rest.data(), length};
    rest.remove_prefix(std::min(length + 1, rest.size()));
    return piece;
}

MEMSAVER_INLINE std::string_view SystemAvailable::group(std::string_view lines, std::string_view controller) noexcept {
    while (!lines.empty()) {
        std::string_view path = cut(lines, '\n');
        (void)cut(path, ':');
        std::string_view names = cut(path, ':');
        do {
            if (cut(names, ',') == controller) return path;
        } while (!names.empty());
    }
    return "";
}

MEMSAVER_INLINE std::size_t SystemAvailable::left_in_all(const Hierarchy& hierarchy, std::string_view path) noexcept {
    for (std::size_t least = unlimited;;) {
        least = std::min(least, left_in(hierarchy, path));
        if (path.empty()) return least;
        path = {path.data(), std::min(path.rfind('/'), path.size() - 1)};
    }
}

MEMSAVER_INLINE std::size_t SystemAvailable::left_in(const Hierarchy& hierarchy, std::string_view path) noexcept {
    const auto file = [&](const char* name) {
        return File{"%s/sys/fs/cgroup%s%.*s/%s",   hierarchy.root, hierarchy.controller,
                    static_cast<int>(path.size()), path.data(),    name};
    };
    const std::size_t limit = file(hierarchy.limit).number("", unlimited);
    if (limit == unlimited) return unlimited;
    const std::size_t used = file(hierarchy.usage).number("", 0);
    const File stat = file("memory.stat");
    const auto sum = [&](const std::array<const char*, 2>& keys) {
        return stat.number(keys[0], 0) + stat.number(keys[1], 0);
    };
    const std::size_t files = sum(hierarchy.files);
    const std::size_t droppable = std::min(used, files - std::min(files, sum(hierarchy.dirty)));
    return limit - std::min(limit, used - droppable);
}

} // namespace detail

} // namespace memsaver::inline v0_3
