// Definitions of policy.hpp.
#pragma once

#include "memsaver/backup/policy.hpp"

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

namespace memsaver::inline v0_3::detail {

MEMSAVER_INLINE std::string difference(const AnyPolicy& has, const AnyPolicy& wanted) {
    const std::string name = text_of({"the policy ", in_quotes(has.name())});
    if (has.name() != wanted.name()) return text_of({name, ", not ", in_quotes(wanted.name())});
    const auto options_of = [](const AnyPolicy& policy) {
        std::vector<std::string> options{""};
        const std::string text = policy.describe();
        for (std::size_t i = 0; i < text.size(); ++i) {
            if (text.compare(i, 2, ", ") != 0) {
                options.back() += text[i];
            } else {
                options.emplace_back();
                ++i;
            }
        }
        return options;
    };
    const std::vector<std::string> own = options_of(has);
    const std::vector<std::string> other = options_of(wanted);
    std::string text;
    for (std::size_t i = 0; i < std::min(own.size(), other.size()); ++i) {
        if (own[i] != other[i])
            text += text_of({text.empty() ? " with " : ", ", in_quotes(own[i]), ", not ", in_quotes(other[i])});
    }
    return name + (text.empty() ? " with other options" : text);
}

} // namespace memsaver::inline v0_3::detail
