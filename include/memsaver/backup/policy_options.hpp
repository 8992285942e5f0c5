// Checks of the options that policies share. Refusals name the option, its value and the valid range.
#pragma once

#include "memsaver/backup/refresh.hpp"
#include "memsaver/core/error.hpp"
#include "memsaver/core/sizes.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>

namespace memsaver::inline v0_3::detail {

inline constexpr unsigned most_threads = 1024;
inline constexpr std::size_t least_ring_bytes = 1_MiB; ///< a ring has at least one pair of buffers of 2 MiB
inline constexpr std::size_t most_ring_bytes = 1024_GiB;

/// `policy`: its name, such as "HostBackup".
inline void require_crew(const char* policy, unsigned threads, std::size_t bytes) {
    if (threads < 1 || threads > most_threads)
        misuse({policy, "::threads is ", in_digits(threads), "; valid: 1 to ", in_digits(most_threads)});
    if (bytes < least_ring_bytes || bytes > most_ring_bytes)
        misuse({policy, "::ring_bytes is ", in_bytes(bytes), "; valid: ", in_bytes(least_ring_bytes), " to ",
                in_bytes(most_ring_bytes)});
}
inline void require_sense(const char* policy, Refresh refresh, bool retain, bool check) {
    if (refresh > Refresh::once)
        misuse({policy, "::refresh is ", in_digits(static_cast<int>(refresh)), "; valid: the enumerators, 0 to 1"});
    if (refresh == Refresh::once && !retain) {
        misuse({policy, "::retain is false; valid: true with Refresh::once, because later pauses save nothing and need "
                        "what was saved; or Refresh::every_pause"});
    }
    if (refresh != Refresh::once && check) {
        misuse({policy,
                "::check is true; valid: false with Refresh::every_pause, which saves all bytes and has nothing "
                "to compare; or Refresh::once"});
    }
}

/// Returns the path, made absolute in the working directory of now. An empty one stays empty.
[[nodiscard]] inline std::string absolute_path(const std::string& path) {
    if (path.empty() || path.front() == '/') return path;
    char* const here = ::getcwd(nullptr, 0);
    if (here == nullptr) {
        misuse({"the path ", path, " is relative, and the working directory is unknown: ",
                std::error_code{errno, std::system_category()}.message(), "; pass an absolute path"});
    }
    const std::unique_ptr<char, void (*)(void*)> owner{here, &std::free};
    return text_of({here, std::string_view{here} == "/" ? "" : "/", path});
}

} // namespace memsaver::inline v0_3::detail
