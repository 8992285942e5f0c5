// Host pages and files of drivers that run on this host system.
#pragma once

#include "memsaver/core/form.hpp"
#include "memsaver/core/handles.hpp"
#include "memsaver/core/sizes.hpp"
#include "memsaver/core/status.hpp"

#include <cstddef>
#include <cstdint>

namespace memsaver::inline v0_3 {

namespace detail {

Status system_status(int error) noexcept;

class SystemPages {
public:
    /// The size of a huge page, and the alignment of the addresses that `map_host` returns.
    static constexpr std::size_t huge_page = 2_MiB;
    static constexpr std::size_t small_page = 4096;

    /// Reserves addresses for `bytes`. Pages are allocated when they are populated or touched, as huge pages where the
    /// system provides them and a whole one fits. Excluded from core dumps and forked children.
    static Status map_host(std::size_t bytes, void*& out) noexcept;
    static Status unmap_host(void* pages, std::size_t bytes) noexcept;

    /// Allocates the pages now. A refusal by the system is reported as out_of_host_memory.
    ///
    /// Touching allocates huge pages without the lock of the whole address space, which the kernel's populate call
    /// holds and for which pinning on other threads waits; that call then finds little left to do.
    static Status populate_host(void* pages, std::size_t bytes) noexcept;

private:
    static void touch(void* pages, std::size_t bytes, std::size_t step) noexcept;
};

class SystemFiles {
public:
    /// A new unnamed file in `directory` (unlinked at once where the file system has no unnamed files), mode 0600,
    /// closed on exec, bypassing the page cache where the file system can.
    static Status open_file(const char* directory, FileRef& file) noexcept;
    /// Returns whether this process may make files in `directory`: ENOENT, ENOTDIR, EACCES or EROFS if not.
    static Status may_write_in(const char* directory) noexcept;
    // Each call with a FileRef looks first whether the descriptor still is that file (EBADF otherwise): a program may
    // have closed it, as daemons close all, and its number may now be that of a file of the program's own.

    /// Reports only that the descriptor was invalid: Linux closes the descriptor whatever close returns, and the bytes
    /// are no longer needed.
    static Status close_file(FileRef file) noexcept;

    /// Writes or reads all of `bytes`. A direct file requires address, size and offset in multiples of 4096.
    static Status write_file(FileRef file, const void* from, std::size_t bytes, std::size_t offset) noexcept;
    static Status read_file(FileRef file, void* to, std::size_t bytes, std::size_t offset) noexcept;

    /// Allocates disk space for a range now, so that a full disk is detected before anything is written. File systems
    /// that do not support it return ok.
    static Status allocate_file(FileRef file, std::size_t offset, std::size_t bytes) noexcept;
    /// Releases the disk space of a range; its bytes are lost. File systems that do not support it keep the space until
    /// the file is closed.
    static Status punch_file(FileRef file, std::size_t offset, std::size_t bytes) noexcept;

    /// The handle of a file that was opened just now. Closes it on failure.
    static Status opened(int descriptor, bool direct, FileRef& file) noexcept;
    /// Not ok if the descriptor is closed, or is another file than the one that was opened.
    static Status still_open(FileRef file) noexcept;

    /// Opens a file by name for reading, closed on exec. `direct`: bypasses the page cache; EINVAL if the file system
    /// cannot. EINVAL also for anything other than a regular file, except EISDIR for a directory.
    static Status open_source(const char* path, bool direct, FileRef& file) noexcept;
    static Status file_facts(FileRef file, FileFacts& facts) noexcept;
    /// Reports whether nearly all of the range is in the page cache. Counted by Linux 6.5 and later, if the file
    /// system's pages are its own; otherwise estimated from samples.
    static Status file_cached(FileRef file, std::size_t bytes, std::size_t offset, bool& yes) noexcept;
    /// Returns `unsupported` if the system cannot count.
    static Status count_cached(FileRef file, std::size_t bytes, std::size_t offset, bool& yes) noexcept;
    /// Samples random bytes with non-blocking reads; the disk still reads each byte that is not cached. Reports yes if
    /// the system cannot tell without reading, because the file is then in memory or on a network, where direct reads
    /// gain nothing.
    static Status sample_cached(FileRef file, std::size_t bytes, std::size_t offset, bool& yes) noexcept;

private:
    static constexpr std::size_t shortest_step = 64_KiB;

    static std::int64_t time_made(int descriptor) noexcept;

    static Status arrange(FileRef file, int mode, std::size_t offset, std::size_t bytes) noexcept;
};

/// Folders in which processes of one user meet, and locks that end with the last descriptor, mapping or message in
/// flight that refers to an open file description, whoever is killed when.
class SystemLocks {
public:
    /// Makes a folder with mode 0700, unless it is there. Not ok if it is another user's, or others have any right in
    /// it.
    static Status own_folder(const char* path) noexcept;
    /// Locks for this description alone (F_WRLCK), with others (F_RDLCK), or no longer (F_UNLCK). EAGAIN if another
    /// description has a lock that excludes this one, unless `wait`.
    static Status lock(int file, short type, bool wait = false) noexcept;
    static bool locked_by_another(int file) noexcept;
    /// Whether the name in the folder still is this file's. A lock on a file that was removed meanwhile excludes
    /// nobody.
    static bool is_named(int file, int folder, const char* name) noexcept;
};

/// What the defaults of Device ask of this host system.
class SystemMemory : public SystemPages, public SystemFiles {
public:
    static Status host_available(std::size_t& bytes) noexcept;
};

} // namespace detail

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/driver/system.ipp"
#endif
