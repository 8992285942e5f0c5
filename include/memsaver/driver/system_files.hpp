// Files that nobody else can see, for backups: what all drivers on Linux share.
#pragma once

#include "memsaver/base/sizes.hpp"
#include "memsaver/driver/handles.hpp"
#include "memsaver/driver/system_status.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace memsaver::inline v0_1 {

class SystemFiles {
public:
    /// A new file in `directory` without a name (where the file system cannot, one whose name is gone at once), mode
    /// 0600, closed on exec, past the page cache where the file system can.
    static Status open(const char* directory, FileRef& file) noexcept {
        constexpr int flags = O_RDWR | O_CLOEXEC;
        for (const int direct : {O_DIRECT, 0}) {
            const int descriptor = ::open(directory, O_TMPFILE | O_EXCL | flags | direct, S_IRUSR | S_IWUSR);
            if (descriptor < 0) continue;
            file = {descriptor, direct != 0};
            return {};
        }
        if (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL) return system_status(errno);
        char name[4096];
        const int length = std::snprintf(name, sizeof name, "%s/.memsaver-XXXXXX", directory);
        if (length < 0 || static_cast<std::size_t>(length) >= sizeof name) return system_status(ENAMETOOLONG);
        for (const int direct : {O_DIRECT, 0}) {
            std::memcpy(name + length - 6, "XXXXXX", 6);
            const int descriptor = ::mkostemp(name, O_CLOEXEC | direct); // makes it with mode 0600
            if (descriptor < 0) {
                if (errno == EINVAL) (void)::unlink(name); // made, then found not to be direct
                continue;
            }
            if (::unlink(name) == 0) {
                file = {descriptor, direct != 0};
                return {};
            }
            const int error = errno;
            (void)::close(descriptor);
            return system_status(error);
        }
        return system_status(errno);
    }
    /// Whatever close answers, Linux has given the descriptor back, and nobody wants the bytes any more: told is only
    /// that there was none.
    static Status close(FileRef file) noexcept {
        return ::close(file.descriptor) == 0 || errno != EBADF ? Status{} : system_status(EBADF);
    }

    /// All of `bytes`. A direct file wants address, size and offset in multiples of 4096.
    static Status write(FileRef file, const void* from, std::size_t bytes, std::size_t offset) noexcept {
        const auto* at = static_cast<const std::byte*>(from);
        while (bytes != 0) {
            const ssize_t done = ::pwrite(file.descriptor, at, bytes, static_cast<off_t>(offset));
            if (done < 0 && errno == EINTR) continue;
            if (done <= 0) return system_status(done < 0 ? errno : ENOSPC);
            at += done;
            bytes -= static_cast<std::size_t>(done);
            offset += static_cast<std::size_t>(done);
        }
        return {};
    }
    static Status read(FileRef file, void* to, std::size_t bytes, std::size_t offset) noexcept {
        auto* at = static_cast<std::byte*>(to);
        while (bytes != 0) {
            const ssize_t done = ::pread(file.descriptor, at, bytes, static_cast<off_t>(offset));
            if (done < 0 && errno == EINTR) continue;
            if (done <= 0) return system_status(done < 0 ? errno : EIO); // the file is shorter than what was written
            at += done;
            bytes -= static_cast<std::size_t>(done);
            offset += static_cast<std::size_t>(done);
        }
        return {};
    }

    /// Takes the disk's room for a range now, so that a full disk is known before anything is written. A file system
    /// that cannot tell answers ok.
    static Status allocate(FileRef file, std::size_t offset, std::size_t bytes) noexcept {
        // An older kernel's tmpfs takes back what an interrupted call had taken: shorter ones get through.
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
    /// Gives the disk's room for a range back; its bytes are lost. A file system that cannot keeps it until the file is
    /// closed.
    static Status punch(FileRef file, std::size_t offset, std::size_t bytes) noexcept {
        for (;;) {
            const Status status = arrange(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, bytes);
            if (status.code != EINTR) return status;
        }
    }

private:
    static constexpr std::size_t shortest_step = 64_KiB;

    static Status arrange(FileRef file, int mode, std::size_t offset, std::size_t bytes) noexcept {
        if (::fallocate(file.descriptor, mode, static_cast<off_t>(offset), static_cast<off_t>(bytes)) == 0) return {};
        return errno == EOPNOTSUPP || errno == ENOSYS ? Status{} : system_status(errno);
    }
};

} // namespace memsaver::inline v0_1
