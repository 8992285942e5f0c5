// The policy that keeps bytes in a file.
#pragma once

#include "memsaver/backup/file_store.hpp"
#include "memsaver/backup/stored_slot.hpp"

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace memsaver::inline v0_1 {

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

    template <class D>
    requires Copies<D> && HostPages<D> && Files<D>
    [[nodiscard]] StoredSlot<FileStore<D>> open(const D& driver, std::shared_ptr<PieceObserver> observer = {}) const {
        if (directory.empty()) throw Misuse{"FileBackup: .directory says where the file goes; it is empty"};
        StoreOptions options{{threads, executor, numa_node_of(driver)}, ring_bytes, std::move(observer)};
        return {std::make_shared<FileStore<D>>(driver, directory, std::move(options)), {refresh, retain, check}};
    }

    friend bool operator==(const FileBackup&, const FileBackup&) = default;
};

} // namespace memsaver::inline v0_1
