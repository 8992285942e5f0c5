// Checks of the options that policies share. Refusals name the option, its value and the valid range.
#pragma once

#include "memsaver/backup/refresh.hpp"
#include "memsaver/core/option_checks.hpp"
#include "memsaver/core/sizes.hpp"

#include <cstddef>
#include <string>

namespace memsaver::inline v0_3 {

namespace detail {

inline constexpr unsigned most_threads = 1024;
inline constexpr std::size_t least_ring_bytes = 1_MiB; ///< a ring has at least one pair of buffers of 2 MiB
inline constexpr std::size_t most_ring_bytes = 1024_GiB;

/// `policy`: its name, such as "HostBackup".
void require_threads(const char* policy, unsigned threads);
void require_ring(const char* policy, std::size_t bytes);
void require_sense(const char* policy, Refresh refresh, bool retain, bool check);

/// Returns the path, made absolute in the working directory of now. An empty one stays empty.
[[nodiscard]] std::string absolute_path(const std::string& path);

} // namespace detail

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/backup/policy_options.ipp"
#endif
