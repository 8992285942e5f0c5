// Definitions of options.hpp.
#pragma once

#include "memsaver/arena/options.hpp"
#include "memsaver/core/error.hpp"

#include <limits>

namespace memsaver::inline v0_3::detail {

MEMSAVER_INLINE std::string Request::text() const {
    const bool negative = bytes > std::numeric_limits<std::size_t>::max() / 2;
    return "allocate(" + std::to_string(bytes) + " bytes" + (negative ? ", a negative number?" : "") + ')';
}

MEMSAVER_INLINE void Request::check(const std::string& tag) const {
    if (bytes == 0) refuse(tag, {"the size is 0"});
    if (alignment == 0) refuse(tag, {"the alignment is 0; to pass the default stream, use nullptr"});
    if ((alignment & (alignment - 1)) != 0)
        refuse(tag, {"the alignment of ", in_digits(alignment), " is not a power of two"});
}

MEMSAVER_INLINE void Request::refuse(const std::string& tag, Bits why) const {
    misuse({text(), " in tag ", in_quotes(tag), ": ", text_of(why)});
}

} // namespace memsaver::inline v0_3::detail
