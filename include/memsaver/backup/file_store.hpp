// Where a FileBackup keeps bytes: a file without a name.
#pragma once

#include "memsaver/backup/store.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace memsaver::inline v0_2 {

namespace detail {

/// A file without a name in a directory, opened when room is first needed. A location is an offset plus one page, so
/// that none is 0. Blocks begin at pages of their own, because direct writes come in pages.
class FileStore final : public BackupStore {
public:
    static constexpr std::size_t page = 4096;
    [[nodiscard]] std::size_t alignment() const noexcept override { return page; }

    FileStore(AnyDriver driver, std::string directory, StoreOptions options);

    /// The disk's room is taken now: a full disk is an error before anything is written.
    MEMSAVER_INLINE Room grow(std::size_t bytes, const LiveSet& live) override;
    void shrink(LocationSpace&) noexcept override {} // what is not needed has been punched out
    MEMSAVER_INLINE void discard(std::uint64_t location, std::size_t bytes) noexcept override;
    MEMSAVER_INLINE Status clear() noexcept override;
    Status retry() noexcept override { return views_->retry(); }

    MEMSAVER_INLINE void prepare(std::vector<Unit> units) override;
    MEMSAVER_INLINE std::unique_ptr<Ticket::Work> out(std::vector<Unit> units, const LiveSet& live) override;
    MEMSAVER_INLINE std::unique_ptr<Ticket::Work> in(std::vector<Unit> units, const LiveSet& live) override;
    MEMSAVER_INLINE void compare(std::vector<Unit> units, const LiveSet& live) override;

    /// A copy of the bytes.
    MEMSAVER_INLINE void change(const Unit& unit, std::size_t offset, const std::byte* from,
                                std::size_t bytes) override;

    [[nodiscard]] MEMSAVER_INLINE BackupView view(std::uint64_t location, std::size_t bytes) const override;

    // ByteStore
    MEMSAVER_INLINE Status put(const std::byte* from, std::uint64_t location,
                               std::size_t bytes) const noexcept override;
    MEMSAVER_INLINE Status get(std::byte* to, std::uint64_t location, std::size_t bytes) const noexcept override;

private:
    [[nodiscard]] std::vector<Piece> cut(std::vector<Unit> units, const std::vector<Range>& first = {}) const;
    void check_file(const Status& status, const Attempt& attempt, std::size_t bytes) const;
    /// What was punched out before, for other blocks, is taken from the disk again: as with `grow`, before anything is
    /// written.
    void take_room(const std::vector<Unit>& units);
    std::unique_ptr<Ticket::Work> start(Direction direction, std::vector<Unit> units, const LiveSet& live);
    void forget_half_changed(std::uint64_t location, std::size_t bytes) noexcept {
        half_changed_.erase(half_changed_.lower_bound(location), half_changed_.lower_bound(location + bytes));
    }

    AnyDriver driver_;
    std::string directory_;
    StoreOptions options_;
    std::string whose_; ///< for the text of errors
    std::shared_ptr<Ring> ring_;
    std::shared_ptr<HostRegions> views_ = std::make_shared<HostRegions>();
    OwnedFile file_;
    std::size_t size_ = 0;
    bool punched_ = false;                 ///< some room in it may have gone back to the disk
    std::set<std::uint64_t> half_changed_; ///< units whose last change was not written: their checksum is not theirs
};

} // namespace detail

} // namespace memsaver::inline v0_2

#ifndef MEMSAVER_COMPILED
#include "memsaver/backup/file_store.ipp"
#endif
