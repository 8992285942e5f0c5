// The store of a FileBackup: an unnamed file.
#pragma once

#include "memsaver/backup/host_share.hpp"
#include "memsaver/backup/store.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {

/// Keeps bytes in an unnamed file in a directory. The file is opened when storage is first needed. A location is the
/// file offset plus one page, so that no location is 0. Blocks begin at pages of their own, because direct writes need
/// whole pages.
class FileStore final : public BackupStore {
public:
    static constexpr std::size_t page = 4096;
    [[nodiscard]] std::size_t alignment() const noexcept override { return page; }

    FileStore(AnyDriver driver, std::string directory, StoreOptions options);

    /// Allocates disk space, so that a full disk is an error before anything is written.
    MEMSAVER_INLINE Room grow(std::size_t bytes, const LiveSet& live) override;
    void shrink(LocationSpace&) noexcept override {} // `discard` has punched out the unused parts
    MEMSAVER_INLINE void discard(std::uint64_t location, std::size_t bytes) noexcept override;
    MEMSAVER_INLINE Status clear() noexcept override;
    Status retry() noexcept override { return share_.retry(); }

    MEMSAVER_INLINE void prepare(std::vector<Unit> units) override;
    MEMSAVER_INLINE std::unique_ptr<Ticket::Work> out(std::vector<Unit> units, const LiveSet& live) override;
    MEMSAVER_INLINE std::unique_ptr<Ticket::Work> in(std::vector<Unit> units, const LiveSet& live) override;
    MEMSAVER_INLINE void compare(std::vector<Unit> units, const LiveSet& live, CompareWith compare_with) override;

    MEMSAVER_INLINE void change(const Unit& unit, std::size_t offset, const std::byte* from,
                                std::size_t bytes) override;

    /// Returns a copy of the bytes.
    [[nodiscard]] MEMSAVER_INLINE BackupView view(std::uint64_t location, std::size_t bytes) const override;

    // ByteStore
    MEMSAVER_INLINE Status put(const std::byte* from, std::uint64_t location,
                               std::size_t bytes) const noexcept override;
    MEMSAVER_INLINE Status get(std::byte* to, std::uint64_t location, std::size_t bytes) const noexcept override;

private:
    [[nodiscard]] std::vector<Piece> cut(std::vector<Unit> units, const std::vector<Range>& first = {}) const;
    void check_file(const Status& status, const Attempt& attempt, std::size_t bytes) const;
    /// Allocates disk space again for parts that were punched out, before anything is written. See `grow`.
    void take_room(const std::vector<Unit>& units);
    std::unique_ptr<Ticket::Work> start(Direction direction, std::vector<Unit> units, const LiveSet& live);
    void forget_half_changed(std::uint64_t location, std::size_t bytes) noexcept {
        half_changed_.erase(half_changed_.lower_bound(location), half_changed_.lower_bound(location + bytes));
    }

    AnyDriver driver_;
    std::string directory_;
    StoreOptions options_;
    std::string error_prefix_; ///< for error messages
    HostShare share_;
    OwnedFile file_;
    std::size_t size_ = 0;
    bool punched_ = false;                 ///< some of its disk space may have been freed
    std::set<std::uint64_t> half_changed_; ///< units whose last change was not written: their checksum is not valid
};

} // namespace detail

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/backup/file_store.ipp"
#endif
