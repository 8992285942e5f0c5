// When copies go by a kernel instead of the copy engines.
#pragma once

#include "memsaver/core/sizes.hpp"

#include <chrono>
#include <cstddef>

namespace memsaver::inline v0_2 {

/// Right after much memory was given back, by this process or another one, a device clears it with its copy engines:
/// they take turns of about a millisecond, and copies come at half their speed. A kernel that reads and writes the
/// host's pinned pages over the link is not held up, and nearly as fast. So a save or a restore of many bytes sends the
/// first of them ahead, in four parts, and looks how they come: the gap between two turns shows among them. Where it
/// does, the others go by a kernel, which takes 64 blocks of 512 threads from other work meanwhile. Not where there is
/// no such kernel (driver concept KernelCopies), nor in an exchange, nor while a stream waits for a gate whose bytes
/// are not on their way yet.
struct KernelCopyOptions {
    /// How long the bytes that are sent ahead may take, a quarter of all and up to 64 MiB; the call waits as long at
    /// most. Zero: nothing is sent ahead, all goes by the copy engines.
    std::chrono::nanoseconds after = std::chrono::milliseconds{10};
    /// And how many times as long as they would at the speed of the fastest part of them. Zero: that is not looked at.
    double slower = 1.5;
    /// Fewer bytes than this, of a tag on a device, go by the copy engines in any case.
    std::size_t least_bytes = 256_MiB;

    friend bool operator==(const KernelCopyOptions&, const KernelCopyOptions&) = default;
};

namespace detail {

[[nodiscard]] inline bool may_go_by_kernel(std::size_t bytes, const KernelCopyOptions& options) noexcept {
    return bytes >= options.least_bytes && options.after > std::chrono::nanoseconds{};
}

} // namespace detail

} // namespace memsaver::inline v0_2
