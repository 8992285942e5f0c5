// The limits that the system sets a process, by name: which of them refused a call, and whether a file may be written
// that far. Knows nothing about what asks.
#pragma once

#include "memsaver/core/form.hpp"
#include "memsaver/core/status.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

namespace memsaver::inline v0_3::detail {

class SystemLimits {
public:
    /// The status of a mapping of `bytes` that the system has refused with `error`. If a limit of this process explains
    /// the refusal, it is out_of_addresses and the name is that of the limit; otherwise `otherwise`.
    static Status no_mapping(int error, std::size_t bytes, const Status& otherwise) noexcept {
        if (error != ENOMEM && error != EAGAIN) return otherwise; // EAGAIN is what madvise makes of ENOMEM
        std::array<char, 256> text{};
        if (const int file = ::open("/proc/self/statm", O_RDONLY | O_CLOEXEC); file >= 0) {
            (void)!::read(file, text.data(), text.size() - 1);
            (void)::close(file);
        }
        // "size resident shared text lib data dt", in pages
        std::array<std::size_t, 6> pages{};
        char* at = text.data();
        for (std::size_t& each : pages) each = std::strtoull(at, &at, 10);
        const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
        const auto beyond = [&](std::size_t used, std::size_t limit) {
            return limit != unlimited && (used * page > limit || bytes > limit - used * page);
        };
        if (beyond(pages[0], of(RLIMIT_AS)))
            return {StatusKind::out_of_addresses, error, "ENOMEM at the limit RLIMIT_AS (ulimit -v)"};
        if (at_map_count()) return {StatusKind::out_of_addresses, error, "ENOMEM at the limit vm.max_map_count"};
        if (beyond(pages[5], of(RLIMIT_DATA)))
            return {StatusKind::out_of_addresses, error, "ENOMEM at the limit RLIMIT_DATA (ulimit -d)"};
        return otherwise;
    }

    /// Not ok if RLIMIT_FSIZE does not let this process write up to `end` bytes of a file. The system would also send
    /// SIGXFSZ, which ends a program that does not expect it, so this is asked before each write.
    static Status file_size(std::uint64_t end) noexcept {
        if (end <= most_file_bytes()) return {};
        return {StatusKind::other, EFBIG, "EFBIG at the limit RLIMIT_FSIZE (ulimit -f)"};
    }
    /// How many bytes of a file this process may write.
    static std::uint64_t most_file_bytes() noexcept { return of(RLIMIT_FSIZE); }

    /// The status of a thread that could not be started.
    static constexpr Status no_thread{StatusKind::out_of_host_memory, 11,
                                      "EAGAIN: no more threads (RLIMIT_NPROC, pids.max, or no memory for a stack)"};

private:
    static constexpr std::size_t unlimited = ~std::size_t{0};

    static std::size_t of(int resource) noexcept {
        rlimit limit{};
        // The type of the first argument is an enumeration of glibc's in C++.
        if (::getrlimit(static_cast<decltype(RLIMIT_AS)>(resource), &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
            return unlimited;
        return limit.rlim_cur;
    }
    static bool at_map_count() noexcept {
        std::array<char, 4096> text{};
        const auto each_block = [&](const char* name, const auto& act) {
            const int file = ::open(name, O_RDONLY | O_CLOEXEC);
            if (file < 0) return;
            for (ssize_t got = 0; (got = ::read(file, text.data(), text.size() - 1)) > 0;) {
                text[static_cast<std::size_t>(got)] = '\0';
                act(static_cast<std::size_t>(got));
            }
            (void)::close(file);
        };
        std::size_t most = 0;
        std::size_t count = 0;
        each_block("/proc/sys/vm/max_map_count", [&](std::size_t) { most = std::strtoull(text.data(), nullptr, 10); });
        each_block("/proc/self/maps", [&](std::size_t bytes) {
            count += static_cast<std::size_t>(std::count(text.data(), text.data() + bytes, '\n'));
        });
        constexpr std::size_t slack = 4; // a call may need several, and gives back those that it made
        return most != 0 && count + slack >= most;
    }
};

} // namespace memsaver::inline v0_3::detail
