// The policy for bytes that can be read again from a file.
#pragma once

#include "memsaver/backup/executor.hpp"
#include "memsaver/backup/stored_slot.hpp"
#include "memsaver/core/sizes.hpp"

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace memsaver::inline v0_3 {

namespace detail {

class SourceStore;

/// A StoredSlot over a SourceStore.
class SourceSlot : public StoredSlot {
public:
    SourceSlot(std::shared_ptr<SourceStore> store, bool retain);

    /// If it does not retain, only the kept bytes are freed: the others are still read from their files.
    Status resumed() noexcept;
    /// All bytes changed: none is read from a file any more.
    void invalidate() noexcept;
    void invalidate(const LiveBlock& block, std::size_t offset, std::size_t bytes);
    /// Every pause saves kept bytes again. Bytes in files are not affected.
    void outdated() noexcept {}

    /// Reads a part of a block, all of which is mapped, and records its origin. If the file cannot be opened, throws
    /// before anything has changed. If reading fails, some bytes may be new, and none of them has an origin.
    void load(const LiveBlock& block, std::size_t offset, const FileRange& from, const LiveSet& live);

private:
    [[nodiscard]] SourceStore& store() const noexcept;
};

} // namespace detail

/// Restores bytes from the files that they came from. `arena.load(pointer, bytes, path, offset)` reads bytes from a
/// file and records their origin: a pause does not save them, and a resume reads them again. All other bytes of live
/// blocks are saved to pinned host memory as by HostBackup, until they are loaded: bytes that were never loaded, and
/// bytes that `arena.invalidate(pointer, bytes)` named because they changed.
///
/// A file is identified by its path, file system, inode, size and modification time. It is open only while bytes are
/// read. If a pause finds another file or no file under the path, it saves the bytes like all others and reports that
/// to the event sink. If a resume finds that, it throws an error that names the file before it touches any memory; the
/// same call succeeds once the file is back. Reads bypass the page cache (direct I/O) if the file system supports that
/// and the cache does not hold the bytes.
///
/// `invalidate` of the whole tag, and a pause or resume with `.bytes` that keep none, drop all origins: all bytes of
/// the tag are then saved. `Verified<>` does not accept this policy, because it would check a file that others may
/// change.
struct FileSource {
    /// Number of reader threads, 1 to 1024, each with one read in flight.
    unsigned threads = 8;
    /// Limit for the pinned buffers, in bytes, 1 MiB to 1 TiB: two of up to 2 to 32 MiB for each reader, which tags
    /// share as those of FileBackup::ring_bytes.
    std::size_t ring_bytes = 32_MiB;
    /// Keep host memory after a load or a resume, for the next one. See HostBackup::retain.
    bool retain = true;
    /// If set, runs the work on the program's own threads instead of the library's.
    std::shared_ptr<Executor> executor{};

    /// Returns this policy as a saver keeps it. Throws Misuse for options without meaning; the message says which
    /// values are valid.
    [[nodiscard]] FileSource normalized() const;

    [[nodiscard]] std::string_view name() const noexcept { return "file source"; }
    /// Returns all options as readable text: "threads 8, ring 32.00 MiB, retained, no executor".
    [[nodiscard]] std::string describe() const;

    [[nodiscard]] detail::SourceSlot open(const AnyDriver& driver) const;

    friend bool operator==(const FileSource&, const FileSource&) = default;
};

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/backup/file_source.ipp"
#endif
