// Which bytes of which blocks have their home in a file, and which are kept.
#pragma once

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

namespace memsaver::inline v0_2 {

namespace detail {

/// A block is a row of parts: some lie in a file, others are kept, each by the StoredSlot `rest` as if it were a block
/// of its own. What is in no part has been neither loaded nor saved so far, and becomes kept at the next save.
///
/// As StoredBooks: `forget` may come at any time, under locks of the arena, so the mutex is held for bookkeeping alone;
/// everything else belongs to whoever has the slot's operation.
class SourceBooks {
public:
    struct Part {
        std::size_t offset = 0; ///< in the block
        std::size_t bytes = 0;
        std::shared_ptr<const SourceFile> file{}; ///< none: kept
        std::uint64_t at = 0;                     ///< in the file; or the serial number that `rest` knows it by
        bool changed = false; ///< in memory since it was read: in the file until a save finds it mapped, then kept

        [[nodiscard]] std::size_t end() const noexcept { return offset + bytes; }
        /// It as a block of the slot that keeps it.
        [[nodiscard]] LiveBlock kept_in(const LiveBlock& block) const noexcept {
            return {block.address + offset, bytes, at};
        }
    };
    using Parts = std::vector<Part>; // by offset, without overlap

    SourceBooks(AnyDriver machine, StoreOptions how, bool retain_room);

    /// The kept parts of live blocks, of which some is mapped. With `take`, all that is mapped and does not lie in a
    /// file, or has changed, becomes kept before.
    std::vector<LiveBlock> kept(const LiveSet& live, bool take);
    /// What of live blocks lies in files and is mapped, to be read by `reader`, which opens these files.
    std::vector<Unit> in_files(const LiveSet& live, SourceReader& reader);
    /// Files that are not what they were: what lies in them is changed from now on. Told to `live.tell`.
    void look_at_files(const LiveSet& live);

    /// The file as it is now: the one that is known, if it is the same.
    std::shared_ptr<const SourceFile> file_now(const std::string& path, SourceReader& reader);
    /// No bytes of the range are in a part any more: kept parts that have any go whole. All of the block is mapped.
    void cut_out(const LiveBlock& block, std::size_t offset, std::size_t bytes);
    /// The range, which is in no part, lies in a file.
    void put(const LiveBlock& block, Part part);
    /// The part of the range of bytes that is in a file becomes changed.
    void change(const LiveBlock& block, std::size_t offset, std::size_t bytes);
    void change_all() noexcept;
    /// The parts that have any of a range, cut to it. Throws Misuse if there are bytes of which nothing is known.
    [[nodiscard]] Parts parts_of(std::uint64_t serial, std::size_t offset, std::size_t bytes);
    /// A part of a file is kept from now on: `rest` has it by this serial number. False: the block is gone.
    [[nodiscard]] bool keep(std::uint64_t serial, const Part& part);
    [[nodiscard]] std::uint64_t fresh_serial() noexcept { return next_serial_++; }
    void forget(std::uint64_t serial) noexcept;
    void clear() noexcept;

    /// Starts reading. `units` are of files that `reader` has open.
    std::unique_ptr<Ticket::Work> read(std::vector<Unit> units, const SourceReader& reader, const LiveSet& live,
                                       ProgressSink progress);

    AnyDriver driver;
    StoreOptions options;
    bool retain;
    std::shared_ptr<Ring> ring;
    StoredSlot rest;
    std::shared_ptr<HostRegions> views = std::make_shared<HostRegions>(); ///< copies that the program looks at
    LiveSet last; ///< whose memory it is, and who is told: for what comes without a LiveSet

    /// While it lives, blocks that are given up are noted: a list of live blocks may have them still.
    class Listing {
    public:
        explicit Listing(SourceBooks& books);
        Listing(const Listing&) = delete;
        Listing& operator=(const Listing&) = delete;
        ~Listing();

    private:
        SourceBooks& books_;
    };

private:
    [[nodiscard]] bool gone(std::uint64_t serial) const { return gone_.count(serial) != 0; }
    /// Parts without a range of bytes; `dropped` are the kept ones that had any of it.
    static Parts without_range(const Parts& parts, std::size_t offset, std::size_t bytes, Parts& dropped);
    static void insert(Parts& parts, Part part);

    std::mutex mutex_; // guards the rest
    std::unordered_map<std::uint64_t, Parts> blocks_;
    bool listing_ = false;
    std::unordered_set<std::uint64_t> gone_;
    std::map<std::string, std::shared_ptr<const SourceFile>>
        files_; // the latest of each path; one operation's at a time
    std::uint64_t next_first_ = SourceFile::spacing;
    std::uint64_t next_serial_ = 1;
};

} // namespace detail

} // namespace memsaver::inline v0_2

#ifndef MEMSAVER_COMPILED
#include "memsaver/backup/source_books.ipp"
#endif
