// The limits that the system sets a process, by name: which of them refused a call, and whether a file may be written
// that far. Knows nothing about what asks.
#pragma once

#include "memsaver/core/form.hpp"
#include "memsaver/core/status.hpp"

#include <cstddef>
#include <cstdint>

namespace memsaver::inline v0_3 {

namespace detail {

class SystemLimits {
public:
    /// The status of a mapping of `bytes` that the system has refused with `error`. If a limit of this process explains
    /// the refusal, it is out_of_addresses and the name is that of the limit; otherwise `otherwise`.
    static Status no_mapping(int error, std::size_t bytes, const Status& otherwise) noexcept;

    /// Not ok if RLIMIT_FSIZE does not let this process write up to `end` bytes of a file. The system would also send
    /// SIGXFSZ, which ends a program that does not expect it, so this is asked before each write.
    static Status file_size(std::uint64_t end) noexcept;
    /// How many bytes of a file this process may write.
    static std::uint64_t most_file_bytes() noexcept;

    /// The status of a thread that could not be started.
    static constexpr Status no_thread{StatusKind::out_of_host_memory, 11,
                                      "EAGAIN: no more threads (RLIMIT_NPROC, pids.max, or no memory for a stack)"};

private:
    static constexpr std::size_t unlimited = ~std::size_t{0};

    static std::size_t of(int resource) noexcept;
    static bool at_map_count() noexcept;
};

} // namespace detail

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/driver/system_limits.ipp"
#endif
