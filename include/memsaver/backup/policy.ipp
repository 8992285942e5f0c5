// Definitions of policy.hpp.
#pragma once

#include "memsaver/backup/policy.hpp"

#include <algorithm>

namespace memsaver::inline v0_3::detail {

/// Returns the text from `at` to the next comma, and moves `at` behind it; to npos at the end.
MEMSAVER_INLINE std::string_view option_at(std::string_view text, std::size_t& at) noexcept {
    const std::size_t end = std::min(text.find(", ", at), text.size());
    const std::string_view option = text.substr(at, end - at);
    at = end == text.size() ? text.npos : end + 2;
    return option;
}

MEMSAVER_INLINE std::string difference(const AnyPolicy& has, const AnyPolicy& wanted) {
    const std::string name = text_of({"the policy ", in_quotes(has.name())});
    if (has.name() != wanted.name()) return text_of({name, ", not ", in_quotes(wanted.name())});
    const std::string own = has.describe();
    const std::string other = wanted.describe();
    std::string text;
    for (std::size_t at = 0, beside = 0; at != own.npos && beside != other.npos;) {
        const std::string_view one = option_at(own, at);
        const std::string_view two = option_at(other, beside);
        if (one != two) text += text_of({text.empty() ? " with " : ", ", in_quotes(one), ", not ", in_quotes(two)});
    }
    return name + (text.empty() ? " with other options" : text);
}

} // namespace memsaver::inline v0_3::detail
