// The policy that keeps bytes in a file.
#pragma once

#include "memsaver/backup/executor.hpp"
#include "memsaver/backup/stored_slot.hpp"
#include "memsaver/core/sizes.hpp"

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace memsaver::inline v0_2 {

namespace detail {
class PieceObserver;
}

/// Live blocks are bit-identical after resume. One file an arena, without a name (so nothing is left behind however the
/// process ends), mode 0600, past the page cache where the file system can. The disk's room is taken before anything is
/// written: on a full disk the pause throws and the memory stays active.
struct FileBackup {
    /// Where the file is made. Its file system's speed and room are the backup's.
    std::string directory{};
    Refresh refresh = Refresh::every_pause;
    /// The file keeps its room after a resume; otherwise the disk gets it back. As HostBackup::retain.
    bool retain = true;
    /// As HostBackup::check.
    bool check = false;
    /// Threads, each with a read or a write under way.
    unsigned threads = 4;
    /// Pinned memory for bytes on their way.
    std::size_t ring_bytes = 256_MiB;
    /// The engine's own threads instead.
    std::shared_ptr<Executor> executor{};

    [[nodiscard]] std::string_view name() const noexcept { return refresh == Refresh::once ? "file, once" : "file"; }
    /// All its options for people: "directory /var/tmp, saved at every pause, retained, ..., threads 4, ...".
    [[nodiscard]] std::string describe() const;

    /// `observer` and `around` are for the policies around this one.
    [[nodiscard]] detail::StoredSlot open(const AnyDriver& driver, std::shared_ptr<detail::PieceObserver> observer = {},
                                          const detail::AroundStore& around = {}) const;

    friend bool operator==(const FileBackup&, const FileBackup&) = default;
};

} // namespace memsaver::inline v0_2

#ifndef MEMSAVER_COMPILED
#include "memsaver/backup/file_backup.ipp"
#endif
