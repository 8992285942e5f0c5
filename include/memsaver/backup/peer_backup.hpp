// The policy that keeps bytes in the memory of another device.
#pragma once

#include "memsaver/backup/stored_slot.hpp"
#include "memsaver/driver/any_driver.hpp"

#include <cstddef>
#include <string>
#include <string_view>

namespace memsaver::inline v0_2 {

/// Live blocks are bit-identical after resume. Their bytes wait in memory of `peer`, a device that the tag's own can
/// reach (over NVLink where there is one): `PeerBackup{CudaDriver{1}}`. That memory is taken at the first pause, or
/// ahead of it by `saver.prepare(tag)`, in handles of up to 1 GiB: OutOfMemory, naming the peer, where it has no room,
/// and the tag stays active. It is nobody's tag: it counts in what the peer has in use, and in `backed_up_bytes` of the
/// tag. Misuse where the peer is the tag's own device; Unavailable or DriverError where the one cannot reach the other.
struct PeerBackup {
    AnyDriver peer;
    Refresh refresh = Refresh::every_pause;
    /// The memory is kept after a resume for the next pause; otherwise it is given back before `resume` returns. With
    /// Refresh::once it is kept whatever this says.
    bool retain = true;
    /// With Refresh::once: every pause compares the device's bytes with the kept ones, and throws Misuse, the memory
    /// still active, if they differ although nobody called `invalidate`. A test mode: it costs a copy through the host.
    bool check = false;

    [[nodiscard]] std::string_view name() const noexcept;
    /// All its options for people: "on NVIDIA H200 (CUDA device 1), saved at every pause, retained".
    [[nodiscard]] std::string describe() const;

    [[nodiscard]] detail::StoredSlot open(const AnyDriver& driver) const;

    friend bool operator==(const PeerBackup&, const PeerBackup&) = default;
};

} // namespace memsaver::inline v0_2

#ifndef MEMSAVER_COMPILED
#include "memsaver/backup/peer_backup.ipp"
#endif
