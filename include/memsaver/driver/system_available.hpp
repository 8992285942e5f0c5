// How much host memory this process may still allocate.
#pragma once

#include "memsaver/core/form.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <limits>
#include <string_view>

namespace memsaver::inline v0_3 {

namespace detail {

class SystemAvailable {
public:
    static constexpr std::size_t unlimited = std::numeric_limits<std::size_t>::max();

    /// In bytes: the minimum of the system's available memory and the memory left in each control group of this
    /// process, of version 1 or 2. `unlimited` if nothing is known. `root` is prepended to the paths of the system's
    /// files.
    static std::size_t bytes(const char* root = "") noexcept;

private:
    /// A small file, read as a whole; empty if it cannot be read.
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

        /// The number after `key`, which must begin a line. `otherwise` if there is none, as for "max".
        [[nodiscard]] std::size_t number(std::string_view key, std::size_t otherwise) const noexcept;

    private:
        char text_[8192];
        std::size_t size_ = 0;
    };

    /// Paths, file names and line keys of the control groups of version 1 or 2.
    struct Hierarchy {
        const char* root;
        const char* controller;
        const char* limit;
        const char* usage;
        std::array<const char*, 2> files; ///< pages of files, without those of tmpfs and shared memory
        std::array<const char*, 2> dirty; ///< those of them that must be written first
    };

    /// Returns the text before the first `end`, and sets `rest` to the text after it.
    static std::string_view cut(std::string_view& rest, char end) noexcept;

    /// The path in the line that names the controller: "4:cpu,memory:/path". Version 2 names none: "0::/path".
    static std::string_view group(std::string_view lines, std::string_view controller) noexcept;

    /// The minimum for the process's group and all its ancestors. In a container the path may be that of the host: the
    /// groups that it names cannot be read, but the last one, the mount itself, is the container's own.
    static std::size_t left_in_all(const Hierarchy& hierarchy, std::string_view path) noexcept;

    /// The memory that a group may still allocate. Pages of files that the kernel drops on demand count as free,
    /// however often they were read: a group at its limit drops active ones too.
    static std::size_t left_in(const Hierarchy& hierarchy, std::string_view path) noexcept;
};

} // namespace detail

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/driver/system_available.ipp"
#endif
