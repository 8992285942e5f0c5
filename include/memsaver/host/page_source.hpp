// Where a simulated device's pages come from: a file in memory of its own, or those of a machine that processes share.
#pragma once

#include "memsaver/core/error.hpp"
#include "memsaver/core/handles.hpp"
#include "memsaver/core/sizes.hpp"
#include "memsaver/core/status.hpp"
#include "memsaver/driver/system.hpp"
#include "memsaver/driver/system_limits.hpp"

#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <limits>
#include <map>

namespace memsaver::inline v0_3::detail {

[[nodiscard]] constexpr bool valid(Range range) noexcept {
    return range.bytes <= std::numeric_limits<Address>::max() - range.address;
}
/// Unlike `overlap`, for ranges that may be empty.
[[nodiscard]] constexpr bool share_bytes(Range a, Range b) noexcept {
    return a.bytes != 0 && b.bytes != 0 && overlap(a, b);
}

struct HostStatus {
    static constexpr Status ok{};
    static constexpr Status invalid_value{StatusKind::other, 1, "HOST_ERROR_INVALID_VALUE"};
    static constexpr Status out_of_memory{StatusKind::out_of_memory, 2, "HOST_ERROR_OUT_OF_MEMORY"};
    static constexpr Status out_of_host_memory{StatusKind::out_of_host_memory, 3, "HOST_ERROR_OUT_OF_HOST_MEMORY"};
    static constexpr Status invalid_handle{StatusKind::other, 400, "HOST_ERROR_INVALID_HANDLE"};
    static constexpr Status illegal_state{StatusKind::other, 401, "HOST_ERROR_ILLEGAL_STATE"};
    static constexpr Status out_of_addresses{StatusKind::out_of_addresses, 4, "HOST_ERROR_OUT_OF_ADDRESSES"};
    static constexpr Status gone{StatusKind::gone, 700, "HOST_ERROR_ILLEGAL_ADDRESS"};
    static constexpr Status capture_unsupported{StatusKind::other, 900, "HOST_ERROR_STREAM_CAPTURE_UNSUPPORTED"};
    static constexpr Status capture_invalidated{StatusKind::other, 901, "HOST_ERROR_STREAM_CAPTURE_INVALIDATED"};
    static constexpr Status capture_isolation{StatusKind::other, 905, "HOST_ERROR_STREAM_CAPTURE_ISOLATION"};
    static constexpr Status captured_event{StatusKind::other, 907, "HOST_ERROR_CAPTURED_EVENT"};
    static constexpr Status wrong_thread{StatusKind::other, 908, "HOST_ERROR_STREAM_CAPTURE_WRONG_THREAD"};
};

/// The pages of one handle: a range of a file.
struct HostPages {
    FileRef file;
    std::size_t offset = 0;
    std::size_t bytes = 0;

    Status fill(unsigned char byte) const noexcept {
        std::array<unsigned char, 64_KiB> block;
        block.fill(byte);
        for (std::size_t done = 0, part = 0; done != bytes; done += part) {
            part = std::min(bytes - done, block.size());
            const Status status = SystemFiles::write_file(file, block.data(), part, offset + done);
            if (status.code == ENOSPC) return HostStatus::out_of_host_memory;
            if (!status.ok()) return status;
        }
        return HostStatus::ok;
    }
    /// Maps them at `range`, without access.
    Status map(const Range& range) const noexcept {
        if (const Status status = SystemFiles::still_open(file); !status.ok()) return status;
        void* const at = reinterpret_cast<void*>(range.address);
        constexpr int flags = MAP_SHARED | MAP_FIXED | MAP_NORESERVE;
        if (::mmap(at, range.bytes, PROT_NONE, flags, file.descriptor, static_cast<off_t>(offset)) != MAP_FAILED)
            return HostStatus::ok;
        return SystemLimits::no_mapping(errno, 0, HostStatus::out_of_host_memory);
    }
};

/// A device's capacity and its pages. Calls are serialized by the caller.
class HostPageSource {
public:
    HostPageSource& operator=(HostPageSource&&) = delete;
    virtual ~HostPageSource() = default;

    /// The bytes of the capacity that are taken, by whomever.
    [[nodiscard]] virtual std::size_t taken() noexcept = 0;
    /// Takes `bytes` of the capacity; out_of_memory if less is left. The pages read as zero. May throw std::bad_alloc,
    /// and then takes nothing.
    virtual Status take(std::size_t bytes, HostPages& pages) = 0;
    /// Takes a part of the capacity without pages; `pages` stands for it.
    virtual Status take_room(std::size_t bytes, HostPages& pages) noexcept = 0;
    /// Gives pages or room back. Mappings of pages must have gone.
    virtual void give_back(const HostPages& pages) noexcept = 0;

    // Of machines that processes share.

    /// A descriptor that keeps the pages as long as it is open.
    virtual Status export_pages(const HostPages& /*pages*/, int& /*descriptor*/) noexcept { return {}; }
    /// The pages that a descriptor of this machine names.
    virtual Status import_pages(int /*descriptor*/, HostPages& /*pages*/) noexcept { return {}; }
};

/// One file without a name, of which each handle has a range; a process's own. It is as large as it may ever be: it is
/// sparse, and its 2^62 bytes are more than a machine ever creates.
class HostPageFile final : public HostPageSource {
public:
    explicit HostPageFile(std::size_t capacity) : capacity_{capacity}, file_{::memfd_create("memsaver", MFD_CLOEXEC)} {
        Status status =
            file_.descriptor < 0 ? system_status(errno) : SystemFiles::opened(file_.descriptor, false, file_);
        if (status.ok() && ::ftruncate(file_.descriptor, static_cast<off_t>(size_)) != 0) {
            status = system_status(errno);
            (void)SystemFiles::close_file(file_);
        }
        if (!status.ok()) unavailable({"memfd_create failed: ", to_string(status)}, status);
    }
    ~HostPageFile() override { (void)SystemFiles::close_file(file_); }

    [[nodiscard]] std::size_t taken() noexcept override { return taken_; }
    Status take(std::size_t bytes, HostPages& pages) override {
        if (bytes > capacity_ - taken_) return HostStatus::out_of_memory;
        std::size_t offset = 0;
        if (const Status status = choose(bytes, offset); !status.ok()) return status;
        ranges_.emplace(offset, bytes);
        next_ = std::max(next_, offset + bytes);
        taken_ += bytes;
        pages = {file_, offset, bytes};
        return HostStatus::ok;
    }
    Status take_room(std::size_t bytes, HostPages& pages) noexcept override {
        if (bytes > capacity_ - taken_) return HostStatus::out_of_memory;
        taken_ += bytes;
        pages = {{}, 0, bytes};
        return HostStatus::ok;
    }
    void give_back(const HostPages& pages) noexcept override {
        taken_ -= pages.bytes;
        if (pages.file.descriptor < 0) return;
        // Cannot fail for a file in memory and a range inside it, unless the program has closed the file. If it does,
        // later ranges are still new.
        (void)SystemFiles::punch_file(file_, pages.offset, pages.bytes);
        ranges_.erase(pages.offset);
        if (ranges_.empty()) next_ = 0;
    }

private:
    /// Chooses a range; pages are allocated when they are touched. Offsets are reused only once no range is in use.
    /// Under a limit of the size of files (RLIMIT_FSIZE) there may not be enough: then a gap between ranges in use is
    /// taken.
    Status choose(std::size_t bytes, std::size_t& offset) const noexcept {
        if (const Status status = SystemFiles::still_open(file_); !status.ok()) return status;
        const auto fits = [&] { return bytes <= size_ && offset <= size_ - bytes; };
        offset = next_;
        if (fits()) return HostStatus::ok;
        offset = 0;
        for (const auto& [at, length] : ranges_) {
            if (at - offset >= bytes) break;
            offset = at + length;
        }
        if (fits()) return HostStatus::ok;
        const Status limit = SystemLimits::file_size(size_ + 1);
        return limit.ok() ? HostStatus::out_of_host_memory : limit;
    }

    std::size_t capacity_;
    std::size_t taken_ = 0;
    std::size_t size_ = std::min<std::size_t>(std::size_t{1} << 62U, SystemLimits::most_file_bytes());
    FileRef file_;
    std::size_t next_ = 0;
    std::map<std::size_t, std::size_t> ranges_;
};

} // namespace memsaver::inline v0_3::detail
