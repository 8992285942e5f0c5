// The store of a HostBackup: host memory, pinned or pageable.
#pragma once

#include "memsaver/backup/store.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {

/// Keeps bytes in mappings of host pages. Locations are host addresses. If the pages are pinned, copies reach them
/// directly. If they are pageable, bytes pass through a ring of pinned buffers. If pinning the first pages fails, the
/// store is pageable from then on.
class HostStore final : public KeptStore {
public:
    [[nodiscard]] std::size_t alignment() const noexcept override { return 256; }

    HostStore(AnyDriver driver, bool pinned, StoreOptions options);

    MEMSAVER_INLINE Room grow(std::size_t bytes, const LiveSet& live) override;
    MEMSAVER_INLINE void shrink(LocationSpace& space) noexcept override;
    MEMSAVER_INLINE void discard(std::uint64_t location, std::size_t bytes) noexcept override;
    MEMSAVER_INLINE Status clear() noexcept override;

    MEMSAVER_INLINE void prepare(std::vector<Unit> units) override;
    /// Returns pieces with pages, the bytes of `first` first.
    [[nodiscard]] std::vector<Piece> reached(std::vector<Unit> units, const std::vector<Range>& first = {}) const;

    MEMSAVER_INLINE void change(const Unit& unit, std::size_t offset, const std::byte* from,
                                std::size_t bytes) override;

    [[nodiscard]] MEMSAVER_INLINE BackupView view(std::uint64_t location, std::size_t bytes) const override;

    [[nodiscard]] bool reachable() const noexcept override { return pinned_; }
    MEMSAVER_INLINE Status reach(std::uint64_t location, std::size_t bytes, Reached& host) override;
    [[nodiscard]] MEMSAVER_INLINE Room unpinned_cell(std::uint64_t from) const noexcept override;
    MEMSAVER_INLINE bool take_ahead(std::uint64_t cell) noexcept override;
    MEMSAVER_INLINE void about(const LiveSet& live) override;
    MEMSAVER_INLINE void unsettle() noexcept override;

    // ByteStore, for bytes that pass through the ring
    MEMSAVER_INLINE Status put(const std::byte* from, std::uint64_t location,
                               std::size_t bytes) const noexcept override;
    MEMSAVER_INLINE Status get(std::byte* to, std::uint64_t location, std::size_t bytes) const noexcept override;

private:
    /// A ring buffer of this size stays in the processor caches between copy and store, which makes it nearly twice as
    /// fast as one of 32 MiB (decision 11).
    static constexpr std::size_t in_caches = Ring::least_buffer;

    static std::byte* at(std::uint64_t location) noexcept;
    static std::uint64_t next_cell(std::uint64_t at) noexcept {
        return align_down(at, HostCells::cell_bytes) + HostCells::cell_bytes;
    }
    [[nodiscard]] std::shared_ptr<HostCells> mapping_of(std::uint64_t location) const;
    [[nodiscard]] bool apart(const Unit& a, const Unit& b) const override {
        return mapping_of(a.location) != mapping_of(b.location);
    }
    MEMSAVER_INLINE std::unique_ptr<Transfer> start(Direction direction, std::vector<Unit> units, const LiveSet& live,
                                                    const std::vector<Range>& first) override;
    /// Reports once that pinning was refused; it will not succeed later.
    void report_refused(const std::function<void(const std::string&)>& tell);

    bool pinned_;
    bool fell_back_ = false;
    std::atomic<bool> reported_{false};
    std::function<void(const std::string&)> tell_; ///< for `reach`
    std::vector<HostPart> mappings_;
};

} // namespace detail

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/backup/host_store.ipp"
#endif
