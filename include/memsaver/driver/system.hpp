// What a machine has of the system it runs on: pages of host memory, files, and how much the host would still give.
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
    /// The size of a huge page, and the alignment of what `map` answers.
    static constexpr std::size_t huge_page = 2_MiB;

    /// Addresses for `bytes`; pages come when they are populated or touched, huge ones where the system gives them.
    /// Kept out of core dumps and of forked children.
    static Status map(std::size_t bytes, void*& out) noexcept;
    static Status unmap(void* pages, std::size_t bytes) noexcept;

    /// Takes the pages now. What the system still refuses then is out_of_host_memory.
    ///
    /// Touching takes huge pages without the lock of the whole address space, which the kernel's own way of populating
    /// holds, and which pinning on other threads waits for; that way then finds little left to do.
    static Status populate(void* pages, std::size_t bytes) noexcept;

private:
    static void touch(void* pages, std::size_t bytes, std::size_t step) noexcept;
};

class SystemFiles {
public:
    /// A new file in `directory` without a name (where the file system cannot, one whose name is gone at once), mode
    /// 0600, closed on exec, past the page cache where the file system can.
    static Status open(const char* directory, FileRef& file) noexcept;
    /// Whatever close answers, Linux has given the descriptor back, and nobody wants the bytes any more: told is only
    /// that there was none.
    static Status close(FileRef file) noexcept;

    /// All of `bytes`. A direct file wants address, size and offset in multiples of 4096.
    static Status write(FileRef file, const void* from, std::size_t bytes, std::size_t offset) noexcept;
    static Status read(FileRef file, void* to, std::size_t bytes, std::size_t offset) noexcept;

    /// Takes the disk's room for a range now, so that a full disk is known before anything is written. A file system
    /// that cannot tell answers ok.
    static Status allocate(FileRef file, std::size_t offset, std::size_t bytes) noexcept;
    /// Gives the disk's room for a range back; its bytes are lost. A file system that cannot keeps it until the file is
    /// closed.
    static Status punch(FileRef file, std::size_t offset, std::size_t bytes) noexcept;

    /// A file by its name, to be read, closed on exec. `direct`: past the page cache; EINVAL where the file system
    /// cannot. EINVAL too for what is no ordinary file.
    static Status open_source(const char* path, bool direct, FileRef& file) noexcept;
    static Status facts(FileRef file, FileFacts& facts) noexcept;
    /// Whether nearly all of the range is in the page cache. Linux counts it from 6.5 on, where the file system's pages
    /// are its own; else samples say so.
    static Status cached(FileRef file, std::size_t bytes, std::size_t offset, bool& yes) noexcept;
    /// `unsupported` where the system cannot count.
    static Status count_cached(FileRef file, std::size_t bytes, std::size_t offset, bool& yes) noexcept;
    /// By some bytes of it, read at random where that needs no wait: each that is not there the disk reads after all.
    /// Where the system cannot say so without reading: yes, for then it is memory or a network, where direct reads
    /// gain nothing.
    static Status sample_cached(FileRef file, std::size_t bytes, std::size_t offset, bool& yes) noexcept;

private:
    static constexpr std::size_t shortest_step = 64_KiB;

    static Status arrange(FileRef file, int mode, std::size_t offset, std::size_t bytes) noexcept;
};

class SystemAvailable {
public:
    static constexpr std::size_t unlimited = std::numeric_limits<std::size_t>::max();

    /// In bytes: the least of what the system has, and what each control group that this process is in, of version 1
    /// or 2, has left. `unlimited` where nothing tells. `root` stands before the paths of the system's files.
    static std::size_t bytes(const char* root = "") noexcept;

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
        [[nodiscard]] std::size_t number(std::string_view key, std::size_t otherwise) const noexcept;

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
    static std::string_view cut(std::string_view& rest, char end) noexcept;

    /// The path in the line that names the controller: "4:cpu,memory:/path". Version 2 names none: "0::/path".
    static std::string_view group(std::string_view lines, std::string_view controller) noexcept;

    /// The process's group and all above it. In a container the path may be the host's: the groups that it names are
    /// not there to be read, but the last one, the mount itself, is the container's own.
    static std::size_t left_in_all(const Hierarchy& hierarchy, std::string_view path) noexcept;

    /// What a group may still take: pages of files that it can drop count as free.
    static std::size_t left_in(const Hierarchy& hierarchy, std::string_view path) noexcept;
};

} // namespace detail

} // namespace memsaver::inline v0_2

#ifndef MEMSAVER_COMPILED
#include "memsaver/driver/system.ipp"
#endif
