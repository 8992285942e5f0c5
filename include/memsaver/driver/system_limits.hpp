// The limits that the system sets a process, by name: which of them refused a call, and whether a file may be written
// that far. Knows nothing about what asks.
#pragma once

#include "memsaver/core/status.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace memsaver::inline v0_3::detail {

/// A small file, read as a whole; empty if it cannot be read.
class SystemText {
public:
    template <class... Parts>
    explicit SystemText(const char* format, Parts... parts) noexcept {
        char name[4352];
        const int length = std::snprintf(name, sizeof name, format, parts...);
        if (length < 0 || static_cast<std::size_t>(length) >= sizeof name) return;
        const int descriptor = ::open(name, O_RDONLY | O_CLOEXEC);
        if (descriptor < 0) return;
        while (size_ + 1 < sizeof text_) {
            const ssize_t done = ::read(descriptor, text_ + size_, sizeof text_ - 1 - size_);
            if (done < 0 && errno == EINTR) continue;
            if (done <= 0) break;
            size_ += static_cast<std::size_t>(done);
        }
        (void)::close(descriptor);
    }

    [[nodiscard]] std::string_view text() const noexcept { return {text_, size_}; }

    /// Returns the text before the first `end`, and sets `rest` to the text after it.
    static std::string_view cut(std::string_view& rest, char end) noexcept {
        const std::size_t length = std::min(rest.find(end), rest.size());
        const std::string_view piece{rest.data(), length};
        rest.remove_prefix(std::min(length + 1, rest.size()));
        return piece;
    }

    /// The number after `key`, which must begin a line. `otherwise` if there is none, as for "max".
    [[nodiscard]] std::size_t number(std::string_view key, std::size_t otherwise) const noexcept {
        for (std::string_view rest = text(); !rest.empty();) {
            std::string_view line = cut(rest, '\n');
            if (!line.starts_with(key)) continue;
            line.remove_prefix(key.size());
            while (line.starts_with(' ')) line.remove_prefix(1);
            std::size_t value = otherwise;
            (void)std::from_chars(line.data(), line.data() + line.size(), value);
            return value;
        }
        return otherwise;
    }

private:
    char text_[8192] = {}; // ends with a 0
    std::size_t size_ = 0;
};

class SystemLimits {
public:
    /// The status of a mapping of `bytes` that the system has refused with `error`. If a limit of this process explains
    /// the refusal, it is out_of_addresses and the name is that of the limit; otherwise `otherwise`.
    static Status no_mapping(int error, std::size_t bytes, const Status& otherwise) noexcept {
        if (error != ENOMEM && error != EAGAIN) return otherwise; // EAGAIN is what madvise makes of ENOMEM
        const SystemText text{"%s/proc/self/statm", ""};          // "size resident shared text lib data dt", in pages
        std::array<std::size_t, 6> pages{};
        const char* at = text.text().data();
        for (std::size_t& each : pages) {
            char* end = nullptr;
            each = std::strtoull(at, &end, 10);
            at = end;
        }
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
        const std::size_t most = SystemText{"%s/proc/sys/vm/max_map_count", ""}.number("", 0);
        std::ptrdiff_t count = 0;
        const int file = ::open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
        for (ssize_t got = 0; (got = ::read(file, text.data(), text.size())) > 0;)
            count += std::count(text.data(), text.data() + got, '\n');
        if (file >= 0) (void)::close(file);
        constexpr std::size_t slack = 4; // a call may need several, and gives back those that it made
        return most != 0 && static_cast<std::size_t>(count) + slack >= most;
    }
};

} // namespace memsaver::inline v0_3::detail
