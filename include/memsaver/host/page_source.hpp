// Where a simulated device's pages come from: a file in memory of its own, or those of a machine that processes share.
#pragma once

#include "memsaver/core/form.hpp"
#include "memsaver/core/handles.hpp"
#include "memsaver/core/status.hpp"

#include <sys/types.h>

#include <cstddef>
#include <limits>
#include <map>

namespace memsaver::inline v0_3 {

namespace detail {

struct HostRange {
    Address address = 0;
    std::size_t bytes = 0;

    /// Returns whether `end()` does not overflow.
    [[nodiscard]] bool valid() const noexcept { return bytes <= std::numeric_limits<Address>::max() - address; }
    [[nodiscard]] Address end() const noexcept { return address + bytes; }
    [[nodiscard]] bool overlaps(const HostRange& other) const noexcept;
};

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
    off_t offset = 0;
    std::size_t bytes = 0;

    Status fill(unsigned char byte) const noexcept;
    /// Maps them at `range`, with `protection`.
    Status map(const HostRange& range, int protection) const noexcept;
};

/// A device's capacity and its pages. Calls are serialized by the caller.
class HostPageSource {
public:
    HostPageSource() noexcept = default;
    HostPageSource(const HostPageSource&) = delete;
    HostPageSource& operator=(const HostPageSource&) = delete;
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

    /// Whether other processes can have the pages.
    [[nodiscard]] virtual bool exports() const noexcept { return false; }
    /// A descriptor that keeps the pages as long as it is open.
    virtual Status export_pages(const HostPages& /*pages*/, int& /*descriptor*/) noexcept { return {}; }
    /// The pages that a descriptor of this machine names.
    virtual Status import_pages(int /*descriptor*/, HostPages& /*pages*/) noexcept { return {}; }
};

/// One file without a name, of which each handle has a range; a process's own.
class HostPageFile final : public HostPageSource {
public:
    explicit HostPageFile(std::size_t capacity);
    MEMSAVER_INLINE ~HostPageFile() override;

    [[nodiscard]] std::size_t taken() noexcept override { return taken_; }
    MEMSAVER_INLINE Status take(std::size_t bytes, HostPages& pages) override;
    MEMSAVER_INLINE Status take_room(std::size_t bytes, HostPages& pages) noexcept override;
    MEMSAVER_INLINE void give_back(const HostPages& pages) noexcept override;

private:
    /// Chooses a range; pages are allocated when they are touched. Offsets are reused only once no range is in use: the
    /// file is sparse, and its 2^62 bytes of offsets are more than a machine ever creates. Under a limit of the size of
    /// files (RLIMIT_FSIZE) they may not be enough: then a gap between the ranges in use is taken.
    Status choose(std::size_t bytes, off_t& offset) noexcept;
    Status make_room(off_t end) noexcept;

    std::size_t capacity_;
    std::size_t taken_ = 0;
    FileRef file_;
    off_t next_ = 0;
    off_t size_ = 0;
    std::map<off_t, std::size_t> ranges_;
};

} // namespace detail

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/host/page_source.ipp"
#endif
