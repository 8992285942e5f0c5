// The policy that keeps bytes in host memory.
#pragma once

#include "memsaver/backup/executor.hpp"
#include "memsaver/backup/kernel_copies.hpp"
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

/// What the host memory of a HostBackup is.
enum class Storage : unsigned char {
    pinned,   ///< copies reach it at the link's full speed; it cannot be swapped
    pageable, ///< ordinary memory, reached through a bounded ring of pinned buffers
};

/// Live blocks are bit-identical after resume. Host memory is taken at the first pause, or ahead of it by
/// `saver.prepare(tag)`; it is checked against what the system and its control groups allow before it is touched
/// (OutOfHostMemory, and the memory stays active). Kept out of core dumps.
struct HostBackup {
    Storage storage = Storage::pinned;
    Refresh refresh = Refresh::every_pause;
    /// The host memory is kept after a resume, at the same addresses, for the next pause, which is then as fast as the
    /// link; otherwise it is given back before `resume` returns. With Refresh::once it is kept whatever this says: the
    /// later pauses, which save nothing, need it.
    bool retain = true;
    /// With Refresh::once: every pause compares the device's bytes with the kept ones, and throws Misuse, the memory
    /// still active, if they differ although nobody called `invalidate`. A test mode: it costs a whole copy.
    bool check = false;
    /// Threads that take, pin and copy host memory. None is left behind between operations.
    unsigned threads = 8;
    /// The most pinned memory of a pageable backup, on each device: two buffers of 2 MiB for each thread, or for fewer.
    std::size_t ring_bytes = 64_MiB;
    /// The engine's own threads instead.
    std::shared_ptr<Executor> executor{};
    /// When copies of pinned memory go by a kernel, because the copy engines clear memory.
    KernelCopyOptions kernel_copies{};

    [[nodiscard]] std::string_view name() const noexcept;
    /// All its options for people: "pinned, saved at every pause, retained, ..., threads 8, ring 64.00 MiB, ...".
    [[nodiscard]] std::string describe() const;

    /// `observer` and `around` are for the policies around this one.
    [[nodiscard]] detail::StoredSlot open(const AnyDriver& driver, std::shared_ptr<detail::PieceObserver> observer = {},
                                          const detail::AroundStore& around = {}) const;

    friend bool operator==(const HostBackup&, const HostBackup&) = default;
};

} // namespace memsaver::inline v0_2

#ifndef MEMSAVER_COMPILED
#include "memsaver/backup/host_backup.ipp"
#endif
