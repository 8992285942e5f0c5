// The store of a FileSource: some bytes have their home in a file, which is only read; a HostStore keeps the rest.
#pragma once

#include "memsaver/backup/host_store.hpp"
#include "memsaver/backup/source_files.hpp"
#include "memsaver/backup/store.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {

///     locations, as the slot sees them   |       a block        |     a block      |
///                                             |        |    `----.      |
///     parts                               in a file   kept    in a file  kept
///
/// The slot's locations are only names. Bytes in no part have been neither loaded nor saved so far, and become a kept
/// part at the next save. Used by one thread at a time, but for `taken_by`; transfers do not look at the parts.
class SourceStore final : public KeptStore {
public:
    SourceStore(AnyDriver driver, const StoreOptions& options);

    [[nodiscard]] std::size_t alignment() const noexcept override { return inside_->alignment(); }
    MEMSAVER_INLINE Room grow(std::size_t bytes, const LiveSet& live) override;
    MEMSAVER_INLINE void discard(std::uint64_t location, std::size_t bytes) override;
    void shrink(LocationSpace&) noexcept override { inside_->shrink(packed_); }
    MEMSAVER_INLINE Status clear() noexcept override;
    Status retry() noexcept override { return first_failure({inside_->retry(), share_.retry()}); }
    void prepare(std::vector<Unit> units) override { inside_->prepare(take(units)); }
    /// The written bytes are kept from now on, and no longer read from a file.
    MEMSAVER_INLINE void change(const Unit& unit, std::size_t offset, const std::byte* from,
                                std::size_t bytes) override;
    [[nodiscard]] MEMSAVER_INLINE BackupView view(std::uint64_t location, std::size_t bytes) const override;
    [[nodiscard]] std::size_t taken_by(std::size_t saved) const noexcept override {
        return saved == 0 ? 0 : kept_bytes_.load();
    }
    /// Names hold no bytes.
    Status get(std::byte*, std::uint64_t, std::size_t) const noexcept override {
        return {StatusKind::unsupported, 0, "a file source has no bytes of its own"};
    }

    /// Reads mapped bytes from a file and makes it their home. If the file cannot be opened, throws before anything has
    /// changed. If reading fails, some bytes may be new, and none of them has a home.
    void load(const Unit& unit, const FileRange& from, const LiveSet& live);
    /// Keeps bytes that are in no part from being saved.
    void leave_out(std::uint64_t location, std::size_t bytes);
    /// The next save that finds these bytes mapped makes those in files kept.
    void changed(std::uint64_t location, std::size_t bytes);
    void all_changed() noexcept;
    /// Drops all kept parts, and frees the host memory.
    Status drop_kept() noexcept;
    /// Lets go of the buffers that files are read through.
    Status leave() noexcept { return share_.leave(); }

private:
    struct Part {
        std::size_t bytes = 0;
        std::uint64_t at = 0;                     ///< location in the file or the inner store; 0: nowhere, left out
        std::shared_ptr<const SourceFile> file{}; ///< null: kept
        bool changed = false;                     ///< in memory since it was read from the file
        bool filled = false;                      ///< if kept: a save has begun to write it

        [[nodiscard]] bool kept() const noexcept { return file == nullptr && at != 0; }
    };
    using Parts = std::map<std::uint64_t, Part>; // by name, without overlap

    MEMSAVER_INLINE std::unique_ptr<Transfer> start(Direction direction, std::vector<Unit> units, const LiveSet& live,
                                                    const std::vector<Range>& first) override;
    /// Starts a transfer of bytes in files and of kept ones. The files are open in `reader`.
    std::unique_ptr<Transfer> read(std::vector<Unit> units, std::unique_ptr<SourceReader> reader, const LiveSet& live);
    /// Makes all bytes kept that are not in a file or have changed. Returns the kept ones, as the inner store has them.
    std::vector<Unit> take(const std::vector<Unit>& units);
    /// Returns units whose locations are those in the files and the inner store.
    [[nodiscard]] std::vector<Unit> at_home(const std::vector<Unit>& units) const;
    /// Marks the parts of files that have changed as changed. Reports them to `live.tell`.
    void look_at_files(const LiveSet& live);
    /// Returns the file as it is now: the known SourceFile if it is the same.
    std::shared_ptr<const SourceFile> file_now(const std::string& path, SourceReader& reader);

    /// Throws Misuse if some of these bytes are in no file and were never saved.
    void require_filled(std::uint64_t location, std::size_t bytes) const;

    /// Returns the first part that ends behind a location.
    [[nodiscard]] Parts::const_iterator part_at(std::uint64_t location) const noexcept;
    [[nodiscard]] Parts::iterator part_at(std::uint64_t location) noexcept;
    /// Cuts the part at a location in two, unless it is kept.
    void cut_at(std::uint64_t location);
    Parts::iterator erase(Parts::iterator part);

    std::shared_ptr<HostStore> inside_;
    LocationSpace packed_{inside_->alignment()}; ///< of the inner store
    Parts parts_;
    std::map<std::string, std::shared_ptr<const SourceFile>> files_; ///< the latest file of each path
    std::uint64_t next_name_ = 1_MiB;
    std::uint64_t next_file_ = SourceFile::least_location;
    LiveSet last_live_; ///< tag and host budget of the last call that had them
    std::atomic<std::size_t> kept_bytes_{0};
};

} // namespace detail

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/backup/source_store.ipp"
#endif
