// The store of a FileBackup: an unnamed file.
#pragma once

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
class FileStore final : public KeptStore {
public:
    static constexpr std::size_t page = 4096;
    [[nodiscard]] std::size_t alignment() const noexcept override { return page; }

    FileStore(AnyDriver driver, std::string directory, StoreOptions options);

    /// Allocates disk space, so that a full disk is an error before anything is written.
    MEMSAVER_INLINE Room grow(std::size_t bytes, const LiveSet& live) override;
    void shrink(LocationSpace&) noexcept override {} // `discard` has punched out the unused parts
    MEMSAVER_INLINE void discard(std::uint64_t location, std::size_t bytes) noexcept override;
    MEMSAVER_INLINE Status clear() noexcept override;

    MEMSAVER_INLINE void prepare(std::vector<Unit> units) override;

    MEMSAVER_INLINE void change(const Unit& unit, std::size_t offset, const std::byte* from,
                                std::size_t bytes) override;

    // ByteStore
    MEMSAVER_INLINE Status put(const std::byte* from, std::uint64_t location,
                               std::size_t bytes) const noexcept override;
    MEMSAVER_INLINE Status get(std::byte* to, std::uint64_t location, std::size_t bytes) const noexcept override;

private:
    /// Allocates disk space again for parts that were punched out, before anything is written. See `grow`.
    void take_room(const std::vector<Unit>& units);
    MEMSAVER_INLINE std::unique_ptr<Transfer> start(Direction direction, std::vector<Unit> units, const LiveSet& live,
                                                    const std::vector<Range>& first) override;
    void forget_half_changed(std::uint64_t location, std::size_t bytes) noexcept {
        half_changed_.erase(half_changed_.lower_bound(location), half_changed_.lower_bound(location + bytes));
    }

    std::string directory_;
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
