// The host system's part of a machine: pages of host memory, files, and the available host memory.
#pragma once

#include "memsaver/core/form.hpp"
#include "memsaver/core/handles.hpp"
#include "memsaver/core/sizes.hpp"
#include "memsaver/core/status.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <limits>
#include <string_view>

namespace memsaver::inline v0_2 {

namespace detail {

Status system_status(int error) noexcept;

class SystemPages {
public:
    /// The size of a huge page, and the alignment of the addresses that `map` returns.
    static constexpr std::size_t huge_page = 2_MiB;

    /// Reserves addresses for `bytes`. Pages are allocated when they are populated or touched, as huge pages where the
    /// system provides them. Excluded from core dumps and forked children.
    static Status map(std::size_t bytes, void*& out) noexcept;
    static Status unmap(void* pages, std::size_t bytes) noexcept;

    /// Allocates the pages now. A refusal by the system is reported as out_of_host_memory.
    ///
    /// Touching allocates huge pages without the lock of the whole address space, which the kernel's populate call
    /// holds and for which pinning on other threads waits; that call then finds little left to do.
    static Status populate(void* pages, std::size_t bytes) noexcept;

private:
    static void touch(void* pages, std::size_t bytes, std::size_t step) noexcept;
};

class SystemFiles {
public:
    /// A new unnamed file in `directory` (unlinked at once where the file system has no unnamed files), mode 0600,
    /// closed on exec, bypassing the page cache where the file system can.
    static Status open(const char* directory, FileRef& file) noexcept;
    /// Reports only that the descriptor was invalid: Linux closes the descriptor whatever close returns, and the bytes
    /// are no longer needed.
    static Status close(FileRef file) noexcept;

    /// Writes or reads all of `bytes`. A direct file requires address, size and offset in multiples of 4096.
    static Status write(FileRef file, const void* from, std::size_t bytes, std::size_t offset) noexcept;
    static Status read(FileRef file, void* to, std::size_t bytes, std::size_t offset) noexcept;

    /// Allocates disk space for a range now, so that a full disk is detected before anything is written. File systems
    /// that do not support it return ok.
    static Status allocate(FileRef file, std::size_t offset, std::size_t bytes) noexcept;
    /// Releases the disk space of a range; its bytes are lost. File systems that do not support it keep the space until
    /// the file is closed.
    static Status punch(FileRef file, std::size_t offset, std::size_t bytes) noexcept;

    /// Opens a file by name for reading, closed on exec. `direct`: bypasses the page cache; EINVAL if the file system
    /// cannot. EINVAL also for anything other than a regular file, except EISDIR for a directory.
    static Status open_source(const char* path, bool direct, FileRef& file) noexcept;
    static Status facts(FileRef file, FileFacts& facts) noexcept;
    /// Reports whether nearly all of the range is in the page cache. Counted by Linux 6.5 and later, if the file
    /// system's pages are its own; otherwise estimated from samples.
    static Status cached(FileRef file, std::size_t bytes, std::size_t offset, bool& yes) noexcept;
    /// Returns `unsupported` if the system cannot count.
    static Status count_cached(FileRef file, std::size_t bytes, std::size_t offset, bool& yes) noexcept;
    /// Samples random bytes with non-blocking reads; the disk still reads each byte that is not cached. Reports yes if
    /// the system cannot tell without reading, because the file is then in memory or on a network, where direct reads
    /// gain nothing.
    static Status sample_cached(FileRef file, std::size_t bytes, std::size_t offset, bool& yes) noexcept;

private:
    static constexpr std::size_t shortest_step = 64_KiB;

    static Status arrange(FileRef file, int mode, std::size_t offset, std::size_t bytes) noexcept;
};

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
        const char* droppable;
    };

    /// Returns the text before the first `end`, and sets `rest` to the text after it.
    static std::string_view cut(std::string_view& rest, char end) noexcept;

    /// The path in the line that names the controller: "4:cpu,memory:/path". Version 2 names none: "0::/path".
    static std::string_view group(std::string_view lines, std::string_view controller) noexcept;

    /// The minimum for the process's group and all its ancestors. In a container the path may be that of the host: the
    /// groups that it names cannot be read, but the last one, the mount itself, is the container's own.
    static std::size_t left_in_all(const Hierarchy& hierarchy, std::string_view path) noexcept;

    /// The memory that a group may still allocate; file pages that it can drop count as free.
    static std::size_t left_in(const Hierarchy& hierarchy, std::string_view path) noexcept;
};

} // namespace detail

} // namespace memsaver::inline v0_2

#ifndef MEMSAVER_COMPILED
#include "memsaver/driver/system.ipp"
#endif
