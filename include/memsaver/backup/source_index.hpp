// Records which bytes of which blocks are read from a file, and which are kept.
#pragma once

#include "memsaver/backup/host_share.hpp"
#include "memsaver/backup/source_files.hpp"
#include "memsaver/backup/store.hpp"
#include "memsaver/backup/stored_slot.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {

/// A block is a row of parts. A part lies in a file, or it is kept: the StoredSlot `rest` saves it as if it were a
/// block. Bytes in no part have been neither loaded nor saved so far, and become kept at the next save.
///
/// As in BackupIndex, `forget` may be called at any time under locks of the arena, so the mutex is held for bookkeeping
/// only. Everything else belongs to the thread that runs the slot's operation.
class SourceIndex {
public:
    struct Part {
        std::size_t offset = 0; ///< in the block
        std::size_t bytes = 0;
        std::shared_ptr<const SourceFile> file{}; ///< null: kept
        std::uint64_t at = 0;                     ///< offset in the file, or the serial number in `rest`
        bool changed = false; ///< changed in memory since it was read; the next save that finds it mapped makes it kept

        [[nodiscard]] std::size_t end() const noexcept { return offset + bytes; }
        /// Returns the part as a block of `rest`.
        [[nodiscard]] LiveBlock kept_in(const LiveBlock& block) const noexcept {
            return {block.address + offset, bytes, at};
        }
    };
    using Parts = std::vector<Part>; // by offset, without overlap

    SourceIndex(AnyDriver machine, StoreOptions how, bool retain_room);

    /// Returns the kept parts of live blocks that are mapped at least in part. With `take`, first makes all mapped
    /// bytes kept that are not in a file or have changed.
    std::vector<LiveBlock> kept(const LiveSet& live, bool take);
    /// Returns the mapped bytes of live blocks that are in files. Opens these files in `reader`.
    std::vector<Unit> in_files(const LiveSet& live, SourceReader& reader);
    /// Marks the parts of files that have changed as changed. Reports them to `live.tell`.
    void look_at_files(const LiveSet& live);

    /// Returns the file as it is now: the known SourceFile if it is the same.
    std::shared_ptr<const SourceFile> file_now(const std::string& path, SourceReader& reader);
    /// Removes a range of bytes from all parts. Kept parts that overlap it are removed entirely. All of the block is
    /// mapped.
    void cut_out(const LiveBlock& block, std::size_t offset, std::size_t bytes);
    /// Adds a part that lies in a file. Its range must be in no part.
    void put(const LiveBlock& block, Part part);
    /// Marks the file parts of the range as changed.
    void change(const LiveBlock& block, std::size_t offset, std::size_t bytes);
    void change_all() noexcept;
    /// Returns the parts that overlap a range. Throws Misuse if the parts do not cover it.
    [[nodiscard]] Parts parts_of(std::uint64_t serial, std::size_t offset, std::size_t bytes);
    /// Replaces a part of a file by a kept one, which `rest` has under this serial number. Returns false if the block
    /// is gone.
    [[nodiscard]] bool keep(std::uint64_t serial, const Part& part);
    [[nodiscard]] std::uint64_t fresh_serial() noexcept { return next_serial_++; }
    void forget(std::uint64_t serial) noexcept;
    void clear() noexcept;

    /// Starts reading `units`, whose files `reader` has open.
    std::unique_ptr<Transfer> read(std::vector<Unit> units, const SourceReader& reader, const LiveSet& live,
                                   ProgressSink progress);

    AnyDriver driver;
    StoreOptions options;
    bool retain;
    HostShare share;
    StoredSlot rest;
    LiveSet last; ///< tag and host budget of the last save, for calls without a LiveSet

    /// For as long as it lives, records blocks that are given up, because a list of live blocks may still contain them.
    class ListingGuard {
    public:
        explicit ListingGuard(SourceIndex& index);
        ListingGuard(const ListingGuard&) = delete;
        ListingGuard& operator=(const ListingGuard&) = delete;
        ~ListingGuard();

    private:
        SourceIndex& index_;
    };

private:
    [[nodiscard]] bool gone(std::uint64_t serial) const { return gone_.count(serial) != 0; }
    /// Returns the parts without a range of bytes. `dropped` receives the kept parts that overlap it.
    static Parts without_range(const Parts& parts, std::size_t offset, std::size_t bytes, Parts& dropped);
    static void insert(Parts& parts, Part part);

    std::mutex mutex_; // guards the members below
    std::unordered_map<std::uint64_t, Parts> blocks_;
    bool listing_ = false;
    std::unordered_set<std::uint64_t> gone_;
    std::map<std::string, std::shared_ptr<const SourceFile>>
        files_; // the latest file of each path; used by one operation at a time
    std::uint64_t next_first_ = SourceFile::spacing;
    std::uint64_t next_serial_ = 1;
};

} // namespace detail

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/backup/source_index.ipp"
#endif
