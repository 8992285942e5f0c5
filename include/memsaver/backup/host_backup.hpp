// The policy that saves bytes to host memory.
#pragma once

#include "memsaver/backup/executor.hpp"
#include "memsaver/backup/kernel_copies.hpp"
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

/// The kind of host memory that a HostBackup uses.
enum class Storage : unsigned char {
    pinned,   ///< copied to and from at the full speed of the link; cannot be swapped out
    pageable, ///< ordinary memory, copied through a bounded ring of pinned buffers
};

/// Saves to host memory: live blocks are bit-identical after a resume. The host memory is allocated by the first pause,
/// or ahead of it by `saver.prepare(tag)`; backups of less than 2 MiB share mappings. Before the memory is touched, its
/// size is checked against the limits of the system and its control groups; if it does not fit, the call throws
/// OutOfHostMemory and the tag stays active. The memory is excluded from core dumps.
struct HostBackup {
    Storage storage = Storage::pinned;
    Refresh refresh = Refresh::every_pause;
    /// Keep the host memory after a resume, at the same addresses, so that the next pause runs at the speed of the
    /// link. If false, it is freed before `resume` returns. Refresh::once needs it: later pauses save nothing.
    bool retain = true;
    /// With Refresh::once: every pause compares the device's bytes with the saved ones. If they differ although
    /// `invalidate` was not called, the pause throws Misuse and the memory stays active. A test mode: it costs a full
    /// copy.
    Check check{};
    /// Number of threads that allocate, pin and copy host memory, 1 to 1024. No thread outlives the operation.
    unsigned threads = 8;
    /// Limit for the pinned memory of a pageable backup, in bytes per device: 1 MiB to 1 TiB. The ring has two buffers
    /// of up to 2 MiB for each thread, or fewer pairs if the limit is lower. Tags of a device share it; `trim` frees
    /// it.
    std::size_t ring_bytes = 64_MiB;
    /// If set, runs the work on the program's own threads instead of the library's.
    std::shared_ptr<Executor> executor{};
    /// When copies to and from pinned memory use a kernel because the copy engines are busy clearing memory.
    KernelCopyOptions kernel_copies{};

    /// Returns this policy as a saver keeps it. Throws Misuse for options without meaning; the message says which
    /// values are valid.
    [[nodiscard]] HostBackup normalized() const;

    [[nodiscard]] std::string_view name() const noexcept;
    /// Returns all options as readable text: "pinned, saved at every pause, retained, ..., threads 8, ring 64.00 MiB,
    /// ...".
    [[nodiscard]] std::string describe() const;

    /// `observer` and `around` are set by policies that wrap this one.
    [[nodiscard]] detail::StoredSlot open(const AnyDriver& driver, std::shared_ptr<detail::PieceObserver> observer = {},
                                          const detail::AroundStore& around = {}) const;

    friend bool operator==(const HostBackup&, const HostBackup&) = default;
};

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/backup/host_backup.ipp"
#endif
