// The policy that saves bytes to a file.
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
class PieceObserver;
}

/// Saves to a file: live blocks are bit-identical after a resume. There is one file per arena. It has mode 0600 and no
/// name, so nothing is left behind however the process ends. Access bypasses the page cache if the file system supports
/// that. Disk space is allocated before anything is written: if the disk is full, the pause throws and the memory stays
/// active.
struct FileBackup {
    /// Directory of the file. Its file system determines the speed and the capacity of the backup. It must exist, and
    /// be writable, when the tag is made. A relative one is that of the moment when the policy is passed to a saver.
    std::string directory{};
    Refresh refresh = Refresh::every_pause;
    /// Keep the file's disk space after a resume. If false, it is freed. See HostBackup::retain.
    bool retain = true;
    /// See HostBackup::check.
    Check check{};
    /// Number of threads, 1 to 1024, each with one read or write in flight.
    unsigned threads = 4;
    /// Limit for the pinned buffers that bytes pass through, in bytes: 1 MiB to 1 TiB. Tags of a device with buffers of
    /// the same size share them. They are allocated when they are used, no larger than the pieces of the tags' blocks,
    /// kept for the next tag, and freed by `trim`.
    std::size_t ring_bytes = 256_MiB;
    /// If set, runs the work on the program's own threads instead of the library's.
    std::shared_ptr<Executor> executor{};

    /// Returns this policy as a saver keeps it, with an absolute directory. Throws Misuse for options without meaning;
    /// the message says which values are valid.
    [[nodiscard]] FileBackup normalized() const;

    [[nodiscard]] std::string_view name() const noexcept { return refresh == Refresh::once ? "file, once" : "file"; }
    /// Returns all options as readable text: "directory /var/tmp, saved at every pause, retained, ..., threads 4, ...".
    [[nodiscard]] std::string describe() const;

    /// `observer` and `around` are set by policies that wrap this one.
    [[nodiscard]] detail::StoredSlot open(const AnyDriver& driver, std::shared_ptr<detail::PieceObserver> observer = {},
                                          const detail::AroundStore& around = {}) const;

    friend bool operator==(const FileBackup&, const FileBackup&) = default;
};

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/backup/file_backup.ipp"
#endif
