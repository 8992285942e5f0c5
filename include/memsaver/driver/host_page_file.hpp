// The physical pages of a host machine: one anonymous file in memory, in which every handle has a range of its own.
// One file and not one for each handle, since a machine may have more handles than a process may have files.
// Does not know capacity or addresses.
#pragma once

#include "memsaver/base/base.hpp"
#include "memsaver/driver/host_range.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

namespace memsaver::inline v0_1 {

class HostPageFile {
public:
    HostPageFile() : fd_{::memfd_create("memsaver", MFD_CLOEXEC)} {
        if (fd_ < 0) throw Unavailable{std::string{"memfd_create failed: "} + std::strerror(errno)};
    }
    ~HostPageFile() { ::close(fd_); }
    HostPageFile(const HostPageFile&) = delete;
    HostPageFile& operator=(const HostPageFile&) = delete;

    /// A range of `bytes`, without pages until they are touched. Ranges are not used twice while others are in use:
    /// the file is sparse, and its 2^62 bytes of offsets are more than a machine lives to create.
    [[nodiscard]] bool take(std::size_t bytes, off_t& offset) noexcept {
        constexpr auto most = off_t{1} << 62;
        const auto length = static_cast<off_t>(bytes);
        if (length > most - next_) return false;
        if (next_ + length > size_) {
            // Twice as long each time, so that most calls need no system call. Holes cost nothing.
            const off_t size = 2 * std::min(most / 2, std::max(size_, next_ + length));
            if (::ftruncate(fd_, size) != 0) return false;
            size_ = size;
        }
        offset = next_;
        next_ += length;
        ++ranges_;
        return true;
    }

    /// The pages of the range go, wherever they may still be mapped.
    void give_back(off_t offset, std::size_t bytes) noexcept {
        // Cannot fail for a file in memory and a range inside it; if it did, the next creation would still be fresh.
        (void)::fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, static_cast<off_t>(bytes));
        if (--ranges_ == 0) next_ = 0;
    }

    [[nodiscard]] bool fill(off_t offset, std::size_t bytes, unsigned char byte) noexcept {
        std::array<unsigned char, 64_KiB> block;
        block.fill(byte);
        while (bytes != 0) {
            const ssize_t written = ::pwrite(fd_, block.data(), std::min(bytes, block.size()), offset);
            if (written < 0 && errno == EINTR) continue;
            if (written <= 0) return false;
            offset += written;
            bytes -= static_cast<std::size_t>(written);
        }
        return true;
    }

    /// Puts the pages from `offset` on at `range`, with `protection`.
    [[nodiscard]] bool map(HostRange range, off_t offset, int protection) noexcept {
        void* const at = reinterpret_cast<void*>(range.address);
        return ::mmap(at, range.bytes, protection, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, fd_, offset) != MAP_FAILED;
    }

private:
    int fd_;
    off_t next_ = 0;
    off_t size_ = 0;
    std::size_t ranges_ = 0;
};

} // namespace memsaver::inline v0_1
