// How much memory the host would still give to this process, as the system's own files tell it.
// Takes none of it.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdio>
#include <limits>
#include <string_view>

namespace memsaver::inline v0_1 {

class SystemAvailable {
public:
    static constexpr std::size_t unlimited = std::numeric_limits<std::size_t>::max();

    /// In bytes: the least of what the system has, and what each control group that this process is in, of version 1
    /// or 2, has left. `unlimited` where nothing tells. `root` stands before the paths of the system's files.
    static std::size_t bytes(const char* root = "") noexcept {
        std::size_t least = unlimited;
        const std::size_t kibibytes = File{"%s/proc/meminfo", root}.number("MemAvailable:", unlimited);
        if (kibibytes != unlimited) least = kibibytes * 1024;
        const File groups{"%s/proc/self/cgroup", root};
        const Hierarchy second{root, "", "memory.max", "memory.current", "inactive_file "};
        const Hierarchy first{root, "/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
                              "total_inactive_file "};
        least = std::min(least, left_in_all(second, group(groups.text(), "")));
        return std::min(least, left_in_all(first, group(groups.text(), "memory")));
    }

private:
    /// A small file, read whole; empty where it cannot be read.
    class File {
    public:
        template <class... Parts>
        explicit File(const char* format, Parts... parts) noexcept {
            char name[4352];
            const int length = std::snprintf(name, sizeof name, format, parts...);
            if (length < 0 || static_cast<std::size_t>(length) >= sizeof name) return;
            const int descriptor = ::open(name, O_RDONLY | O_CLOEXEC);
            if (descriptor < 0) return;
            while (size_ < sizeof text_) {
                const ssize_t done = ::read(descriptor, text_ + size_, sizeof text_ - size_);
                if (done < 0 && errno == EINTR) continue;
                if (done <= 0) break;
                size_ += static_cast<std::size_t>(done);
            }
            (void)::close(descriptor);
        }

        [[nodiscard]] std::string_view text() const noexcept { return {text_, size_}; }

        /// The number behind `key`, which begins a line. "max" is none.
        [[nodiscard]] std::size_t number(std::string_view key, std::size_t otherwise) const noexcept {
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

    private:
        char text_[8192];
        std::size_t size_ = 0;
    };

    /// Where the groups of version 1 or 2 are, and what their files and lines are called.
    struct Hierarchy {
        const char* root;
        const char* controller;
        const char* limit;
        const char* usage;
        const char* droppable;
    };

    /// What stands before the first `end`; what stands behind it is the rest.
    static std::string_view cut(std::string_view& rest, char end) noexcept {
        const std::size_t length = std::min(rest.find(end), rest.size());
        const std::string_view piece{rest.data(), length};
        rest.remove_prefix(std::min(length + 1, rest.size()));
        return piece;
    }

    /// The path in the line that names the controller: "4:cpu,memory:/path". Version 2 names none: "0::/path".
    static std::string_view group(std::string_view lines, std::string_view controller) noexcept {
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

    /// The process's group and all above it. In a container the path may be the host's: the groups that it names are
    /// not there to be read, but the last one, the mount itself, is the container's own.
    static std::size_t left_in_all(const Hierarchy& hierarchy, std::string_view path) noexcept {
        for (std::size_t least = unlimited;;) {
            least = std::min(least, left_in(hierarchy, path));
            if (path.empty()) return least;
            path = {path.data(), std::min(path.rfind('/'), path.size() - 1)};
        }
    }

    /// What a group may still take: pages of files that it can drop count as free.
    static std::size_t left_in(const Hierarchy& hierarchy, std::string_view path) noexcept {
        const auto number = [&](const char* file, const char* key, std::size_t otherwise) {
            return File{"%s/sys/fs/cgroup%s%.*s/%s",   hierarchy.root, hierarchy.controller,
                        static_cast<int>(path.size()), path.data(),    file}
                .number(key, otherwise);
        };
        const std::size_t limit = number(hierarchy.limit, "", unlimited);
        if (limit == unlimited) return unlimited;
        const std::size_t used = number(hierarchy.usage, "", 0);
        const std::size_t droppable = std::min(used, number("memory.stat", hierarchy.droppable, 0));
        return limit - std::min(limit, used - droppable);
    }
};

} // namespace memsaver::inline v0_1
