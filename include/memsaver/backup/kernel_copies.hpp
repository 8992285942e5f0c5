// When copies use a kernel instead of the copy engines.
#pragma once

#include "memsaver/core/sizes.hpp"
#include "memsaver/core/time_limit.hpp"

#include <chrono>
#include <cstddef>

namespace memsaver::inline v0_3 {

/// After a large amount of memory was released, by this process or another one, the device clears it with its copy
/// engines. They alternate between clearing and copying in turns of about a millisecond, and copies run at half their
/// speed. A kernel that reads and writes the host's pinned pages over the link is not slowed down and is nearly as fast
/// as the engines. A large save or restore therefore first probes the engines: it submits its first bytes in four parts
/// and measures how they complete; a gap between two turns shows up in these times. If the engines are slow, a kernel
/// copies the remaining bytes. It occupies 64 blocks of 512 threads while it runs. No kernel is used if the driver has
/// none (Features::kernel_copies), in an exchange, or in a share of several processes: their kernels take turns.
struct KernelCopyOptions {
    /// Time limit for the probe, which is a quarter of all bytes and at most 64 MiB. The call waits no longer than this
    /// for it. Zero disables the probe: the copy engines make all copies.
    TimeLimit after = std::chrono::milliseconds{10};
    /// The engines also count as slow if the probe takes more than `slower` times as long as it would at the speed of
    /// its fastest part. Zero disables this test.
    double slower = 1.5;
    /// The copy engines always copy transfers smaller than this, in bytes of one tag on one device.
    std::size_t least_bytes = 256_MiB;

    friend bool operator==(const KernelCopyOptions&, const KernelCopyOptions&) = default;
};

namespace detail {

[[nodiscard]] inline bool may_go_by_kernel(std::size_t bytes, const KernelCopyOptions& options) noexcept {
    return bytes >= options.least_bytes && options.after > std::chrono::nanoseconds{};
}

} // namespace detail

} // namespace memsaver::inline v0_3
