// Definitions of text.hpp.
#pragma once

#include "memsaver/core/sizes.hpp"
#include "memsaver/core/text.hpp"

namespace memsaver::inline v0_3::detail {

MEMSAVER_INLINE void Bit::append_to(std::string& text) const {
    switch (kind_) {
    case Kind::literal: text += text_; break;
    case Kind::text: text.append(text_, length_); break;
    case Kind::quoted: text.append(1, '"').append(text_, length_).append(1, '"'); break;
    case Kind::bytes: text += format_bytes(number_); break;
    case Kind::address: text += format_address(number_); break;
    case Kind::number: text += std::to_string(number_); break;
    case Kind::signed_number: text += std::to_string(static_cast<std::int64_t>(number_)); break;
    }
}

MEMSAVER_INLINE std::string text_of(Bits bits) {
    std::string text;
    for (const Bit& bit : bits) bit.append_to(text);
    return text;
}

} // namespace memsaver::inline v0_3::detail
