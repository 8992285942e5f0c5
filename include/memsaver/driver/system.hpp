// Host pages and files of drivers that run on this host system.
#pragma once

#include "memsaver/core/function_ref.hpp"
#include "memsaver/core/handles.hpp"
#include "memsaver/core/lists.hpp"
#include "memsaver/core/sizes.hpp"
#include "memsaver/core/status.hpp"
#include "memsaver/driver/system_available.hpp"
#include "memsaver/driver/system_limits.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>

namespace memsaver::inline v0_3::detail {

inline Status system_status(int error) noexcept {
    switch (error) {
    case 0: return {};
    case ENOMEM: return {StatusKind::out_of_host_memory, error, "ENOMEM"};
    case EAGAIN: return {StatusKind::out_of_host_memory, error, "EAGAIN"};
    case ENOSPC: return {StatusKind::other, error, "ENOSPC"};
    case EDQUOT: return {StatusKind::other, error, "EDQUOT"};
    case EFBIG: return {StatusKind::other, error, "EFBIG"};
    case EIO: return {StatusKind::other, error, "EIO"};
    case EINVAL: return {StatusKind::other, error, "EINVAL"};
    case EACCES: return {StatusKind::other, error, "EACCES"};
    case ENOENT: return {StatusKind::other, error, "ENOENT"};
    case ENOTDIR: return {StatusKind::other, error, "ENOTDIR"};
    case EPERM: return {StatusKind::other, error, "EPERM"};
    case EROFS: return {StatusKind::other, error, "EROFS"};
    case EMFILE: return {StatusKind::other, error, "EMFILE at the limit RLIMIT_NOFILE (ulimit -n)"};
    case ENFILE: return {StatusKind::other, error, "ENFILE at the limit fs.file-max"};
    case EBADF: return {StatusKind::other, error, "EBADF"};
    case ENAMETOOLONG: return {StatusKind::other, error, "ENAMETOOLONG"};
    case EOPNOTSUPP: return {StatusKind::other, error, "EOPNOTSUPP"};
    case EISDIR: return {StatusKind::other, error, "EISDIR"};
    case ELOOP: return {StatusKind::other, error, "ELOOP"};
    case ESTALE: return {StatusKind::other, error, "ESTALE"};
    default: return {StatusKind::other, error, "system error"};
    }
}

class SystemPages {
public:
    /// The size of a huge page, and the alignment of the addresses that `map_host` returns.
    static constexpr std::size_t huge_page = 2_MiB;
    static constexpr std::size_t small_page = 4096;

    /// Reserves addresses for `bytes`. Pages are allocated when they are populated or touched, as huge pages where the
    /// system provides them and a whole one fits. Excluded from core dumps and forked children.
    static Status map_host(std::size_t bytes, void*& out) noexcept {
        if (bytes == 0) return system_status(EINVAL);
        if (bytes > std::numeric_limits<std::size_t>::max() - 2 * huge_page) return system_status(ENOMEM);
        const std::size_t rounded = align_up(bytes, small_page);
        void* all = ::mmap(nullptr, rounded + huge_page, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        const auto refused = [](int error, std::size_t wanted) {
            Status status = SystemLimits::no_mapping(error, wanted, system_status(error));
            if (status.kind == StatusKind::out_of_addresses)
                status.kind = StatusKind::out_of_host_memory; // for the host's use
            return status;
        };
        if (all == MAP_FAILED) return refused(errno, rounded + huge_page);
        auto* const first = static_cast<std::byte*>(all);
        const auto begin = reinterpret_cast<std::uintptr_t>(all);
        const std::size_t skipped = align_up(begin, huge_page) - begin;
        if (skipped != 0) (void)::munmap(first, skipped);
        (void)::munmap(first + skipped + rounded, huge_page - skipped);
        std::byte* const pages = first + skipped;
        const std::size_t whole =
            align_down(rounded, huge_page); // a huge page at the end would take more than was asked
        if (whole != 0) (void)::madvise(pages, whole, MADV_HUGEPAGE); // slower without, not wrong
        (void)::madvise(pages, rounded, MADV_DONTFORK); // copy-on-write would separate a pinned page from its owner
        if (::madvise(pages, rounded, MADV_DONTDUMP) != 0) { // secrets must not end up in a core file
            const int error = errno;
            (void)::munmap(pages, rounded);
            return refused(error, 0);
        }
        out = pages;
        return {};
    }
    static Status unmap_host(void* pages, std::size_t bytes) noexcept {
        if (::munmap(pages, align_up(bytes, small_page)) == 0) return {};
        // At the limit of mappings no mapping may be split in two. The memory goes all the same, and its addresses
        // stay.
        if (errno == ENOMEM && ::madvise(pages, align_up(bytes, small_page), MADV_DONTNEED) == 0) return {};
        return system_status(errno);
    }

    /// Allocates the pages now. A refusal by the system is reported as out_of_host_memory.
    ///
    /// Touching allocates huge pages without the lock of the whole address space, which the kernel's populate call
    /// holds and for which pinning on other threads waits; that call then finds little left to do.
    static Status populate_host(void* pages, std::size_t bytes) noexcept {
        constexpr int populate_write = 23; // MADV_POPULATE_WRITE of Linux 5.14, which old headers lack
        constexpr std::size_t one_page = 4096;
        if (::madvise(pages, std::min(bytes, one_page), populate_write) != 0 && errno != EINVAL && errno != ENOSYS) {
            return system_status(errno == EFAULT ? ENOMEM : errno); // checked first, because a touch would fault
        }
        touch(pages, bytes, huge_page);
        if (::madvise(pages, bytes, populate_write) == 0) return {};
        if (errno != EINVAL && errno != ENOSYS) return system_status(errno == EFAULT ? ENOMEM : errno);
        touch(pages, bytes, static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)));
        return {};
    }

private:
    static void touch(void* pages, std::size_t bytes, std::size_t step) noexcept {
        for (std::size_t at = 0; at < bytes; at += step) {
            auto* const byte = static_cast<volatile unsigned char*>(pages) + at;
            *byte = *byte;
        }
    }
};

class SystemFiles {
public:
    /// A new unnamed file in `directory` (unlinked at once where the file system has no unnamed files), mode 0600,
    /// closed on exec, bypassing the page cache where the file system can.
    static Status open_file(const char* directory, FileRef& file) noexcept {
        constexpr int flags = O_RDWR | O_CLOEXEC;
        for (const int direct : {O_DIRECT, 0}) {
            const int descriptor = ::open(directory, O_TMPFILE | O_EXCL | flags | direct, S_IRUSR | S_IWUSR);
            if (descriptor >= 0) return opened(descriptor, direct != 0, file);
        }
        if (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL) return system_status(errno);
        char name[4096];
        const int length = std::snprintf(name, sizeof name, "%s/.memsaver-XXXXXX", directory);
        if (length < 0 || static_cast<std::size_t>(length) >= sizeof name) return system_status(ENAMETOOLONG);
        for (const int direct : {O_DIRECT, 0}) {
            std::memcpy(name + length - 6, "XXXXXX", 6);
            const int descriptor = ::mkostemp(name, O_CLOEXEC | direct); // creates the file with mode 0600
            if (descriptor < 0) {
                if (errno == EINVAL) (void)::unlink(name); // the file was created before O_DIRECT was rejected
                continue;
            }
            if (::unlink(name) == 0) return opened(descriptor, direct != 0, file);
            const int error = errno;
            (void)::close(descriptor);
            return system_status(error);
        }
        return system_status(errno);
    }
    /// Returns whether this process may make files in `directory`: ENOENT, ENOTDIR, EACCES or EROFS if not.
    static Status may_write_in(const char* directory) noexcept {
        struct stat found {};
        if (::stat(directory, &found) != 0) return system_status(errno);
        if (!S_ISDIR(found.st_mode)) return system_status(ENOTDIR);
        return ::faccessat(AT_FDCWD, directory, W_OK | X_OK, AT_EACCESS) == 0 ? Status{} : system_status(errno);
    }
    // Each call with a FileRef looks first whether the descriptor still is that file (EBADF otherwise): a program may
    // have closed it, as daemons close all, and its number may now be that of a file of the program's own.

    /// Reports only that the descriptor was invalid: Linux closes the descriptor whatever close returns, and the bytes
    /// are no longer needed.
    static Status close_file(FileRef file) noexcept {
        if (const Status status = still_open(file); !status.ok()) return status;
        return ::close(file.descriptor) == 0 || errno != EBADF ? Status{} : system_status(EBADF);
    }

    /// Writes or reads all of `bytes`. A direct file requires address, size and offset in multiples of 4096.
    static Status write_file(FileRef file, const void* from, std::size_t bytes, std::size_t offset) noexcept {
        if (const Status status = still_open(file); !status.ok()) return status;
        if (const Status status = SystemLimits::file_size(offset + bytes); !status.ok()) return status;
        return each_part(bytes, ENOSPC, [&](std::size_t done) {
            const auto* const at = static_cast<const std::byte*>(from) + done;
            return ::pwrite(file.descriptor, at, bytes - done, static_cast<off_t>(offset + done));
        });
    }
    static Status read_file(FileRef file, void* to, std::size_t bytes, std::size_t offset) noexcept {
        if (const Status status = still_open(file); !status.ok()) return status;
        return each_part(bytes, EIO, [&](std::size_t done) { // EIO: the file is shorter than the data written
            auto* const at = static_cast<std::byte*>(to) + done;
            return ::pread(file.descriptor, at, bytes - done, static_cast<off_t>(offset + done));
        });
    }

    /// Allocates disk space for a range now, so that a full disk is detected before anything is written. File systems
    /// that do not support it return ok.
    static Status allocate_file(FileRef file, std::size_t offset, std::size_t bytes) noexcept {
        if (const Status status = still_open(file); !status.ok()) return status;
        if (const Status status = SystemLimits::file_size(offset + bytes); !status.ok()) return status;
        // tmpfs on older kernels undoes an interrupted call: shorter calls make progress.
        for (std::size_t step = bytes; bytes != 0;) {
            const std::size_t part = std::min(step, bytes);
            const Status status = arrange(file, 0, offset, part);
            if (status.code == EINTR) {
                step = std::max(part / 2, shortest_step);
                continue;
            }
            if (!status.ok()) return status;
            offset += part;
            bytes -= part;
        }
        return {};
    }
    /// Releases the disk space of a range; its bytes are lost. File systems that do not support it keep the space until
    /// the file is closed.
    static Status punch_file(FileRef file, std::size_t offset, std::size_t bytes) noexcept {
        if (const Status status = still_open(file); !status.ok()) return status;
        for (;;) {
            const Status status = arrange(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, bytes);
            if (status.code != EINTR) return status;
        }
    }

    /// The handle of a file that was opened just now. Closes it on failure. It is none of the standard streams: if the
    /// program had closed one, what it prints would go to this file.
    static Status opened(int descriptor, bool direct, FileRef& file) noexcept {
        struct stat found {};
        const int given = descriptor;
        if (given <= STDERR_FILENO) descriptor = ::fcntl(given, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
        const int error = descriptor < 0 || ::fstat(descriptor, &found) != 0 ? errno : 0;
        if (descriptor != given || error != 0) (void)::close(given);
        if (error != 0) return system_status(error);
        file = {descriptor, direct, found.st_dev, found.st_ino, time_made(descriptor), found.st_nlink == 0};
        return {};
    }
    /// Not ok if the descriptor is closed, or is another file than the one that was opened.
    static Status still_open(FileRef file) noexcept {
        if (file.inode == 0) return {}; // not known
        struct stat found {};
        const bool same = ::fstat(file.descriptor, &found) == 0 && found.st_dev == file.device &&
                          found.st_ino == file.inode && (!file.unnamed || found.st_nlink == 0);
        const std::int64_t made = same && file.made != 0 ? time_made(file.descriptor) : 0;
        if (same && (made == 0 || made == file.made)) return {};
        return {StatusKind::other, EBADF, "EBADF: the program has closed a file descriptor of memsaver's"};
    }
    /// Its descriptor, for calls of the system; -1 if it no longer is that file.
    static int number_of(const FileRef& file) noexcept {
        return file.descriptor >= 0 && still_open(file).ok() ? file.descriptor : -1;
    }

    /// Opens a file by name for reading, closed on exec. `direct`: bypasses the page cache; EINVAL if the file system
    /// cannot. EINVAL also for anything other than a regular file, except EISDIR for a directory.
    static Status open_source(const char* path, bool direct, FileRef& file) noexcept {
        // O_NONBLOCK: opening a pipe would otherwise wait for a writer; its type is known only once it is open.
        const int descriptor = ::open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | (direct ? O_DIRECT : 0));
        if (descriptor < 0) return system_status(errno);
        struct stat found {};
        const int error = ::fstat(descriptor, &found) != 0 ? errno : S_ISDIR(found.st_mode) ? EISDIR : EINVAL;
        if (error != EINVAL || !S_ISREG(found.st_mode)) {
            (void)::close(descriptor);
            return system_status(error);
        }
        if (!direct) (void)::posix_fadvise(descriptor, 0, 0, POSIX_FADV_RANDOM); // a sample must not start readahead
        return opened(descriptor, direct, file);
    }
    static Status file_facts(FileRef file, FileFacts& facts) noexcept {
        if (const Status status = still_open(file); !status.ok()) return status;
        struct stat found {};
        if (::fstat(file.descriptor, &found) != 0) return system_status(errno);
        constexpr std::int64_t second = 1'000'000'000;
        facts = {found.st_dev, found.st_ino, static_cast<std::uint64_t>(found.st_size),
                 static_cast<std::int64_t>(found.st_mtim.tv_sec) * second + found.st_mtim.tv_nsec};
        return {};
    }
    /// Reports whether nearly all of the range is in the page cache. Counted by Linux 6.5 and later, if the file
    /// system's pages are its own; otherwise estimated from samples.
    static Status file_cached(FileRef file, std::size_t bytes, std::size_t offset, bool& yes) noexcept {
        if (const Status status = still_open(file); !status.ok()) return status;
        const Status counted = count_cached(file, bytes, offset, yes);
        return counted.kind == StatusKind::unsupported ? sample_cached(file, bytes, offset, yes) : counted;
    }
    /// Returns `unsupported` if the system cannot count.
    static Status count_cached(FileRef file, std::size_t bytes, std::size_t offset, bool& yes) noexcept {
        constexpr long cachestat = 451; // Linux 6.5, same number on all architectures; headers may be older
        const struct {
            std::uint64_t offset;
            std::uint64_t bytes;
        } range{offset, bytes};
        struct {
            std::uint64_t cached, dirty, written_back, evicted, lately_evicted;
        } pages{};
        static_assert(sizeof range == 16 && sizeof pages == 40);
        // Other file systems may keep a file's pages elsewhere; overlayfs keeps them in the lower file.
        constexpr std::array<std::uint32_t, 5> known{0xEF53, 0x58465342, 0x9123683E, 0xF2F52010, 0x01021994};
        struct statfs system {}; // ext4, XFS, Btrfs, F2FS and tmpfs
        if (::fstatfs(file.descriptor, &system) != 0) return system_status(errno);
        if (!is_in(known, static_cast<std::uint32_t>(system.f_type)))
            return {StatusKind::unsupported, EOPNOTSUPP, "cachestat"};
        yes = true;
        if (bytes == 0) return {};
        if (::syscall(cachestat, file.descriptor, &range, &pages, 0U) != 0)
            return errno == EBADF ? system_status(errno) : Status{StatusKind::unsupported, errno, "cachestat"};
        const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
        const std::size_t all = (align_up(offset + bytes, page) - align_down(offset, page)) / page;
        yes = pages.cached >= all - all / 8;
        return {};
    }
    /// Samples random bytes with non-blocking reads; the disk still reads each byte that is not cached. Reports yes if
    /// the system cannot tell without reading, because the file is then in memory or on a network, where direct reads
    /// gain nothing.
    static Status sample_cached(FileRef file, std::size_t bytes, std::size_t offset, bool& yes) noexcept {
        constexpr int samples = 3;
        // Sample different offsets each time: a byte that was not cached may be cached afterwards.
        auto random = static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count()) + offset;
        yes = true;
        for (int i = 0; yes && i < samples && bytes != 0; ++i) {
            random = random * 6364136223846793005U + 1442695040888963407U;
            char byte = 0;
            const iovec to{&byte, 1};
            const auto at = static_cast<off_t>(offset + (random >> 33U) % bytes);
            const ssize_t done = ::preadv2(file.descriptor, &to, 1, at, RWF_NOWAIT);
            if (done >= 0 || errno == EINTR || errno == EOPNOTSUPP || errno == EINVAL || errno == ENOSYS) continue;
            if (errno != EAGAIN) return system_status(errno);
            yes = false;
        }
        return {};
    }

private:
    static constexpr std::size_t shortest_step = 64_KiB;

    /// When the file was created, in nanoseconds since 1970; 0 if the file system does not tell.
    static std::int64_t time_made(int descriptor) noexcept {
        struct statx found {};
        if (::statx(descriptor, "", AT_EMPTY_PATH, STATX_BTIME, &found) != 0 || (found.stx_mask & STATX_BTIME) == 0)
            return 0;
        constexpr std::int64_t second = 1'000'000'000;
        return found.stx_btime.tv_sec * second + found.stx_btime.tv_nsec;
    }

    /// Calls `move(done)`, which moves bytes from there on, until it has moved all. `at_end`: the error if it moves
    /// none.
    template <class Move>
    static Status each_part(std::size_t bytes, int at_end, const Move& move) noexcept {
        for (std::size_t done = 0; done < bytes;) {
            const ssize_t moved = move(done);
            if (moved < 0 && errno == EINTR) continue;
            if (moved <= 0) return system_status(moved < 0 ? errno : at_end);
            done += static_cast<std::size_t>(moved);
        }
        return {};
    }
    static Status arrange(FileRef file, int mode, std::size_t offset, std::size_t bytes) noexcept {
        if (::fallocate(file.descriptor, mode, static_cast<off_t>(offset), static_cast<off_t>(bytes)) == 0) return {};
        return errno == EOPNOTSUPP || errno == ENOSYS ? Status{} : system_status(errno);
    }
};

/// Folders in which processes of one user meet, and locks that end with the last descriptor, mapping or message in
/// flight that refers to an open file description, whoever is killed when.
class SystemLocks {
public:
    /// Makes a folder with mode 0700, unless it is there. Not ok if it is another user's, or others have any right in
    /// it.
    static Status own_folder(const char* path) noexcept {
        struct stat found {};
        if ((::mkdir(path, S_IRWXU) != 0 && errno != EEXIST) || ::lstat(path, &found) != 0) return system_status(errno);
        if (S_ISDIR(found.st_mode) && found.st_uid == ::geteuid() && (found.st_mode & (S_IRWXG | S_IRWXO)) == 0)
            return {};
        return {StatusKind::other, EPERM, "EPERM: not a folder that only this user may use (mode 0700)"};
    }
    /// Locks for this description alone (F_WRLCK), with others (F_RDLCK), or no longer (F_UNLCK); all of the file, or
    /// `bytes` of it from `start` on. EAGAIN if another description has a lock that excludes this one, unless `wait`.
    static Status lock(int file, short type, bool wait = false, off_t start = 0, off_t bytes = 0) noexcept {
        for (;;) {
            struct flock lock {};
            lock.l_type = type;
            lock.l_start = start;
            lock.l_len = bytes;
            if (::fcntl(file, wait ? F_OFD_SETLKW : F_OFD_SETLK, &lock) == 0) return {};
            if (errno != EINTR) return system_status(errno);
        }
    }
    static bool locked_by_another(int file) noexcept {
        struct flock lock {};
        lock.l_type = F_WRLCK;
        return ::fcntl(file, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
    }
    /// Whether the name in the folder still is this file's. A lock on a file that was removed meanwhile excludes
    /// nobody.
    static bool is_named(int file, int folder, const char* name) noexcept {
        struct stat mine {
        }, named{};
        return ::fstat(file, &mine) == 0 && ::fstatat(folder, name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
               mine.st_ino == named.st_ino && mine.st_dev == named.st_dev;
    }
    /// Calls `act` with each name in a folder. May throw what it throws.
    static Status each_name(int folder, FunctionRef<void(const char*)> act) {
        const int again = ::openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC); // which readdir closes
        struct Names {
            ~Names() {
                if (all != nullptr) (void)::closedir(all);
            }
            DIR* all;
        } const names{again < 0 ? nullptr : ::fdopendir(again)};
        if (names.all == nullptr) {
            const Status status = system_status(errno);
            if (again >= 0) (void)::close(again);
            return status;
        }
        while (const dirent* const entry = ::readdir(names.all)) // NOLINT(concurrency-mt-unsafe): its own stream
            act(entry->d_name);
        return {};
    }
};

/// What the defaults of Device ask of this host system.
class SystemMemory : public SystemPages, public SystemFiles {
public:
    static Status host_available(std::size_t& bytes) noexcept {
        // Files that cannot be opened limit nothing: without a descriptor to spare, nothing is known.
        const int spare = ::open("/proc/self/cgroup", O_RDONLY | O_CLOEXEC);
        if (spare < 0 && (errno == EMFILE || errno == ENFILE)) return system_status(errno);
        if (spare >= 0) (void)::close(spare);
        bytes = SystemAvailable::bytes();
        return {};
    }
};

} // namespace memsaver::inline v0_3::detail
