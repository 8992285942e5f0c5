// Texts as data: the parts of what an error or an event says, put together only when it is needed.
#pragma once

#include "memsaver/core/form.hpp"

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

namespace memsaver::inline v0_3::detail {

/// One part of a text. Trivial: refers to the characters, which must outlive the call that it is passed to.
class Bit {
public:
    // NOLINTBEGIN(google-explicit-constructor): a list of parts reads like the text
    constexpr Bit(const char* text) noexcept : text_{text}, kind_{Kind::literal} {}
    constexpr Bit(std::string_view text) noexcept
        : text_{text.data()}, length_{static_cast<std::uint32_t>(text.size())}, kind_{Kind::text} {}
    Bit(const std::string& text) noexcept : Bit{std::string_view{text}} {}
    // NOLINTEND(google-explicit-constructor)

    /// Appends the part to `text`.
    void append_to(std::string& text) const;

private:
    enum class Kind : std::uint32_t { literal, text, quoted, bytes, address, number, signed_number };
    constexpr Bit(std::uint64_t number, Kind kind) noexcept : number_{number}, kind_{kind} {}

    friend constexpr Bit in_quotes(std::string_view text) noexcept;
    friend constexpr Bit in_bytes(std::uint64_t bytes) noexcept;
    friend constexpr Bit in_hex(std::uintptr_t address) noexcept;
    friend Bit in_hex(const void* address) noexcept;
    friend constexpr Bit in_digits(std::integral auto number) noexcept;

    union {
        const char* text_;
        std::uint64_t number_;
    };
    std::uint32_t length_ = 0;
    Kind kind_;
};

/// A name between quotation marks.
[[nodiscard]] constexpr Bit in_quotes(std::string_view text) noexcept {
    Bit bit{text};
    bit.kind_ = Bit::Kind::quoted;
    return bit;
}
/// As format_bytes and format_address do.
[[nodiscard]] constexpr Bit in_bytes(std::uint64_t bytes) noexcept { return {bytes, Bit::Kind::bytes}; }
[[nodiscard]] constexpr Bit in_hex(std::uintptr_t address) noexcept { return {address, Bit::Kind::address}; }
[[nodiscard]] inline Bit in_hex(const void* address) noexcept {
    return in_hex(reinterpret_cast<std::uintptr_t>(address));
}
[[nodiscard]] constexpr Bit in_digits(std::integral auto number) noexcept {
    return {static_cast<std::uint64_t>(number),
            std::signed_integral<decltype(number)> ? Bit::Kind::signed_number : Bit::Kind::number};
}

/// The parts of a text.
using Bits = std::initializer_list<Bit>;

/// The text.
[[nodiscard, gnu::cold]] std::string text_of(Bits bits);

} // namespace memsaver::inline v0_3::detail

#ifndef MEMSAVER_COMPILED
#include "memsaver/core/text.ipp"
#endif
