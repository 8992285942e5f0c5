// Checks of the options that policies share. Refusals name the option, its value and the valid range.
#pragma once

#include "memsaver/backup/refresh.hpp"
#include "memsaver/core/option_checks.hpp"
#include "memsaver/core/sizes.hpp"

#include <cstddef>
#include <filesystem>
#include <string>
#include <system_error>

namespace memsaver::inline v0_3::detail {

inline constexpr unsigned most_threads = 1024;
inline constexpr std::size_t least_ring_bytes = 1_MiB; ///< a ring has at least one pair of buffers of 2 MiB
inline constexpr std::size_t most_ring_bytes = 1024_GiB;

/// `policy`: its name, such as "HostBackup".
inline void require_threads(const char* policy, unsigned threads) {
    if (threads >= 1 && threads <= most_threads) return;
    refuse_option(text_of({policy, "::threads"}).c_str(), text_of({in_digits(threads)}),
                  text_of({"1 to ", in_digits(most_threads)}));
}
inline void require_ring(const char* policy, std::size_t bytes) {
    if (bytes >= least_ring_bytes && bytes <= most_ring_bytes) return;
    refuse_option((std::string{policy} + "::ring_bytes").c_str(), format_bytes(bytes),
                  format_bytes(least_ring_bytes) + " to " + format_bytes(most_ring_bytes));
}
inline void require_sense(const char* policy, Refresh refresh, bool retain, bool check) {
    const std::string of{policy};
    require_enumerator((of + "::refresh").c_str(), refresh, 2);
    if (refresh == Refresh::once && !retain) {
        refuse_option((of + "::retain").c_str(), "false",
                      "true with Refresh::once, because later pauses save nothing and need what was saved; or "
                      "Refresh::every_pause");
    }
    if (refresh != Refresh::once && check) {
        refuse_option((of + "::check").c_str(), "true",
                      "false with Refresh::every_pause, which saves all bytes and has nothing to compare; or "
                      "Refresh::once");
    }
}

/// Returns the path, made absolute in the working directory of now. An empty one stays empty.
[[nodiscard]] inline std::string absolute_path(const std::string& path) {
    if (path.empty() || path.front() == '/') return path;
    std::error_code failed;
    const std::filesystem::path absolute = std::filesystem::absolute(path, failed);
    if (failed) {
        misuse({"the path ", path, " is relative, and the working directory is unknown: ", failed.message(),
                "; pass an absolute path"});
    }
    return absolute.string();
}

} // namespace memsaver::inline v0_3::detail
