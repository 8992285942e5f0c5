// The policy that saves bytes to the memory of another device.
#pragma once

#include "memsaver/backup/stored_slot.hpp"
#include "memsaver/driver/any_driver.hpp"

#include <string>
#include <string_view>

namespace memsaver::inline v0_3 {

/// Saves to memory of the device `peer`: live blocks are bit-identical after a resume. The tag's own device must be
/// able to access the peer (over NVLink, if present). Example: `PeerBackup{CudaDriver{1}}`. The peer memory is
/// allocated by the first pause, or ahead of it by `saver.prepare(tag)`, in handles of up to 1 GiB. If the peer has too
/// little free memory, the call throws OutOfMemory, naming the peer, and the tag stays active. The memory belongs to no
/// tag: it counts as memory in use on the peer, and in `backed_up_bytes` of the saved tag. Throws Misuse if the peer is
/// the tag's own device, and Unavailable or DriverError if one device cannot access the other.
struct PeerBackup {
    AnyDriver peer;
    Refresh refresh = Refresh::every_pause;
    /// Keep the peer memory after a resume for the next pause. If false, it is released before `resume` returns.
    /// Refresh::once needs it.
    bool retain = true;
    /// With Refresh::once: every pause compares the device's bytes with the saved ones. If they differ although
    /// `invalidate` was not called, the pause throws Misuse and the memory stays active. A test mode: it costs a copy
    /// through the host.
    Check check{};

    /// Returns this policy as a saver keeps it. Throws Misuse for options without meaning; the message says which
    /// values are valid.
    [[nodiscard]] PeerBackup normalized() const;

    [[nodiscard]] std::string_view name() const noexcept;
    /// Returns all options as readable text: "on NVIDIA H200 (CUDA device 1), saved at every pause, retained".
    [[nodiscard]] std::string describe() const;

    [[nodiscard]] detail::StoredSlot open(const AnyDriver& driver) const;

    friend bool operator==(const PeerBackup&, const PeerBackup&) = default;
};

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/backup/peer_backup.ipp"
#endif
