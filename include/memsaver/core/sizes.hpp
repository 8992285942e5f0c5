// Sizes in bytes: literals, rounding and formatting.
#pragma once

#include "memsaver/core/form.hpp"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>

namespace memsaver::inline v0_3 {

/// Literals for sizes in bytes, such as `64_MiB`. Part of memsaver; `using namespace memsaver::literals` imports only
/// these.
inline namespace literals {
/// `n` times 1024 bytes.
constexpr std::size_t operator""_KiB(unsigned long long n) { return static_cast<std::size_t>(n) << 10; }
/// `n` times 1024 KiB, in bytes.
constexpr std::size_t operator""_MiB(unsigned long long n) { return static_cast<std::size_t>(n) << 20; }
/// `n` times 1024 MiB, in bytes.
constexpr std::size_t operator""_GiB(unsigned long long n) { return static_cast<std::size_t>(n) << 30; }
} // namespace literals

namespace detail {

/// `value` rounded down to a multiple of `unit`, which is a power of two.
constexpr std::size_t align_down(std::size_t value, std::size_t unit) noexcept { return value & ~(unit - 1); }

/// `value` rounded up to a multiple of `unit`, which is a power of two. Precondition: no overflow.
constexpr std::size_t align_up(std::size_t value, std::size_t unit) noexcept {
    return align_down(value + unit - 1, unit);
}

/// Returns whether `value` can be rounded up to a multiple of `unit` without overflow.
constexpr bool can_align_up(std::size_t value, std::size_t unit) noexcept {
    return value <= std::numeric_limits<std::size_t>::max() - (unit - 1);
}

} // namespace detail

/// Formats a size in the largest binary unit that keeps it at 1 or more: "1.50 GiB", "512 B".
std::string format_bytes(std::uint64_t bytes);

/// Formats an address: "0x7f0000000000".
std::string format_address(std::uintptr_t address);

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/core/sizes.ipp"
#endif
