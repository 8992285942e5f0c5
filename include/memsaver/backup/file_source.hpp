// The policy of bytes that have a file as their home.
#pragma once

#include "memsaver/backup/executor.hpp"
#include "memsaver/backup/source_slot.hpp"
#include "memsaver/core/sizes.hpp"

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace memsaver::inline v0_2 {

/// Ranges of files are the home of bytes. `arena.load(pointer, bytes, path, offset)` fills them from the file and
/// remembers where they came from: a pause saves nothing of them, a resume reads them again. Bytes of live blocks that
/// were never loaded, and those that `arena.invalidate(pointer, bytes)` names because they changed, are kept as
/// HostBackup keeps them, in pinned host memory, until they are loaded again.
///
/// A file is known by its path, file system, inode, size and time of change. It is open only while bytes are read. A
/// pause that finds another one under the path, or none, keeps the bytes like the rest, and says so to the event sink;
/// a resume that finds that throws, naming it, before any memory is touched, and the same call succeeds once the file
/// is back. Reads pass the page cache (direct I/O) where the file system can and the cache does not have the bytes.
///
/// Whole-tag `invalidate`, and a pause or resume with other `.bytes`, make all bytes of the tag kept. `Verified<>` does
/// not take it: what it would check is a file that others may change.
struct FileSource {
    /// Readers, each with a read under way.
    unsigned threads = 8;
    /// Pinned memory for bytes on their way: two buffers of 2 to 32 MiB for each reader.
    std::size_t ring_bytes = 32_MiB;
    /// Host memory is kept after a load or a resume, for the next one. As HostBackup::retain.
    bool retain = true;
    /// The engine's own threads instead.
    std::shared_ptr<Executor> executor{};

    [[nodiscard]] std::string_view name() const noexcept { return "file source"; }
    /// All its options for people: "threads 8, ring 32.00 MiB, retained, no executor".
    [[nodiscard]] std::string describe() const;

    [[nodiscard]] detail::SourceSlot open(const AnyDriver& driver) const;

    friend bool operator==(const FileSource&, const FileSource&) = default;
};

} // namespace memsaver::inline v0_2

#ifndef MEMSAVER_COMPILED
#include "memsaver/backup/file_source.ipp"
#endif
