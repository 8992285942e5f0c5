// How much host memory this process may still allocate.
#pragma once

#include "memsaver/driver/system_limits.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <string_view>

namespace memsaver::inline v0_3::detail {

class SystemAvailable {
public:
    static constexpr std::size_t unlimited = std::numeric_limits<std::size_t>::max();

    /// In bytes: the minimum of the system's available memory and the memory left in each control group of this
    /// process, of version 1 or 2. `unlimited` if nothing is known. `root` is prepended to the paths of the system's
    /// files.
    static std::size_t bytes(const char* root = "") noexcept {
        std::size_t least = unlimited;
        const std::size_t kibibytes = SystemText{"%s/proc/meminfo", root}.number("MemAvailable:", unlimited);
        if (kibibytes != unlimited) least = kibibytes * 1024;
        const SystemText groups{"%s/proc/self/cgroup", root};
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

private:
    /// Paths, file names and line keys of the control groups of version 1 or 2.
    struct Hierarchy {
        const char* root;
        const char* controller;
        const char* limit;
        const char* usage;
        std::array<const char*, 2> files; ///< pages of files, without those of tmpfs and shared memory
        std::array<const char*, 2> dirty; ///< those of them that must be written first
    };

    /// The path in the line that names the controller: "4:cpu,memory:/path". Version 2 names none: "0::/path".
    static std::string_view group(std::string_view lines, std::string_view controller) noexcept {
        while (!lines.empty()) {
            std::string_view path = SystemText::cut(lines, '\n');
            (void)SystemText::cut(path, ':');
            std::string_view names = SystemText::cut(path, ':');
            do {
                if (SystemText::cut(names, ',') == controller) return path;
            } while (!names.empty());
        }
        return "";
    }

    /// The minimum for the process's group and all its ancestors. In a container the path may be that of the host: the
    /// groups that it names cannot be read, but the last one, the mount itself, is the container's own.
    static std::size_t left_in_all(const Hierarchy& hierarchy, std::string_view path) noexcept {
        for (std::size_t least = unlimited;;) {
            least = std::min(least, left_in(hierarchy, path));
            if (path.empty()) return least;
            path = {path.data(), std::min(path.rfind('/'), path.size() - 1)};
        }
    }

    /// The memory that a group may still allocate. Pages of files that the kernel drops on demand count as free,
    /// however often they were read: a group at its limit drops active ones too.
    static std::size_t left_in(const Hierarchy& hierarchy, std::string_view path) noexcept {
        const auto file = [&](const char* name) {
            return SystemText{"%s/sys/fs/cgroup%s%.*s/%s",   hierarchy.root, hierarchy.controller,
                              static_cast<int>(path.size()), path.data(),    name};
        };
        const std::size_t limit = file(hierarchy.limit).number("", unlimited);
        if (limit == unlimited) return unlimited;
        const std::size_t used = file(hierarchy.usage).number("", 0);
        const SystemText stat = file("memory.stat");
        const auto sum = [&](const std::array<const char*, 2>& keys) {
            return stat.number(keys[0], 0) + stat.number(keys[1], 0);
        };
        const std::size_t files = sum(hierarchy.files);
        const std::size_t droppable = std::min(used, files - std::min(files, sum(hierarchy.dirty)));
        return limit - std::min(limit, used - droppable);
    }
};

} // namespace memsaver::inline v0_3::detail
