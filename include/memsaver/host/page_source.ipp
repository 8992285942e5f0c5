// Definitions of page_source.hpp.
#pragma once

#include "memsaver/core/error.hpp"
#include "memsaver/core/sizes.hpp"
#include "memsaver/driver/system.hpp"
#include "memsaver/driver/system_limits.hpp"
#include "memsaver/host/page_source.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>

namespace memsaver::inline v0_3 {

namespace detail {

MEMSAVER_INLINE bool HostRange::overlaps(const HostRange& other) const noexcept {
    return bytes != 0 && other.bytes != 0 && address < other.end() && other.address < end();
}

MEMSAVER_INLINE Status HostPages::fill(unsigned char byte) const noexcept {
    std::array<unsigned char, 64_KiB> block;
    block.fill(byte);
    for (std::size_t done = 0, part = 0; done != bytes; done += part) {
        part = std::min(bytes - done, block.size());
        const Status status =
            SystemFiles::write_file(file, block.data(), part, static_cast<std::size_t>(offset) + done);
        if (status.code == ENOSPC) return HostStatus::out_of_host_memory;
        if (!status.ok()) return status;
    }
    return HostStatus::ok;
}

MEMSAVER_INLINE Status HostPages::map(const HostRange& range, int protection) const noexcept {
    if (const Status status = SystemFiles::still_open(file); !status.ok()) return status;
    void* const at = reinterpret_cast<void*>(range.address);
    constexpr int flags = MAP_SHARED | MAP_FIXED | MAP_NORESERVE;
    if (::mmap(at, range.bytes, protection, flags, file.descriptor, offset) != MAP_FAILED) return HostStatus::ok;
    return SystemLimits::no_mapping(errno, 0, HostStatus::out_of_host_memory);
}

MEMSAVER_INLINE HostPageFile::HostPageFile(std::size_t capacity)
    : capacity_{capacity}, file_{::memfd_create("memsaver", MFD_CLOEXEC)} {
    const Status status =
        file_.descriptor < 0 ? system_status(errno) : SystemFiles::opened(file_.descriptor, false, file_);
    if (!status.ok()) unavailable({"memfd_create failed: ", to_string(status)}, status);
}

MEMSAVER_INLINE HostPageFile::~HostPageFile() { (void)SystemFiles::close_file(file_); }

MEMSAVER_INLINE Status HostPageFile::take(std::size_t bytes, HostPages& pages) {
    if (bytes > capacity_ - taken_) return HostStatus::out_of_memory;
    off_t offset = 0;
    if (const Status status = choose(bytes, offset); !status.ok()) return status;
    ranges_.emplace(offset, bytes);
    next_ = std::max(next_, offset + static_cast<off_t>(bytes));
    taken_ += bytes;
    pages = {file_, offset, bytes};
    return HostStatus::ok;
}

MEMSAVER_INLINE Status HostPageFile::take_room(std::size_t bytes, HostPages& pages) noexcept {
    if (bytes > capacity_ - taken_) return HostStatus::out_of_memory;
    taken_ += bytes;
    pages = {{}, 0, bytes};
    return HostStatus::ok;
}

MEMSAVER_INLINE void HostPageFile::give_back(const HostPages& pages) noexcept {
    taken_ -= pages.bytes;
    if (pages.file.descriptor < 0) return;
    // Cannot fail for a file in memory and a range inside it, unless the program has closed the file. If it does, later
    // ranges are still new.
    (void)SystemFiles::punch_file(file_, static_cast<std::size_t>(pages.offset), pages.bytes);
    ranges_.erase(pages.offset);
    if (ranges_.empty()) next_ = 0;
}

MEMSAVER_INLINE Status HostPageFile::choose(std::size_t bytes, off_t& offset) noexcept {
    constexpr auto most = std::uint64_t{1} << 62U;
    const std::uint64_t end = static_cast<std::uint64_t>(next_) + bytes;
    if (bytes > most || end > most) return HostStatus::out_of_host_memory;
    offset = next_;
    const Status status = make_room(static_cast<off_t>(end));
    if (status.code != EFBIG) return status;
    offset = 0;
    for (const auto& [at, length] : ranges_) {
        if (static_cast<std::size_t>(at - offset) >= bytes) break;
        offset = at + static_cast<off_t>(length);
    }
    return make_room(offset + static_cast<off_t>(bytes));
}

MEMSAVER_INLINE Status HostPageFile::make_room(off_t end) noexcept {
    if (const Status status = SystemFiles::still_open(file_); !status.ok()) return status;
    if (const Status status = SystemLimits::file_size(static_cast<std::uint64_t>(end)); !status.ok()) return status;
    if (end <= size_) return HostStatus::ok;
    // Double the size, so that most calls need no system call. Holes cost nothing.
    constexpr auto most = std::uint64_t{1} << 62U;
    const std::uint64_t size = std::min({2 * static_cast<std::uint64_t>(end), most, SystemLimits::most_file_bytes()});
    if (::ftruncate(file_.descriptor, static_cast<off_t>(size)) != 0) return HostStatus::out_of_host_memory;
    size_ = static_cast<off_t>(size);
    return HostStatus::ok;
}

} // namespace detail

} // namespace memsaver::inline v0_3
