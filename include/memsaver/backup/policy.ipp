// Definitions of policy.hpp.
#pragma once

#include "memsaver/backup/policy.hpp"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

namespace memsaver::inline v0_2 {

namespace detail {

MEMSAVER_INLINE std::string difference(const AnyPolicy& has, const AnyPolicy& wanted) {
    const std::string name = "the policy \"" + std::string{has.name()} + '"';
    if (has.name() != wanted.name()) return name + ", not \"" + std::string{wanted.name()} + '"';
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
        if (own[i] != other[i]) text += (text.empty() ? " with \"" : ", \"") + own[i] + "\", not \"" + other[i] + '"';
    }
    return name + (text.empty() ? " with other options" : text);
}

MEMSAVER_INLINE Status SpentSlots::add(std::shared_ptr<AnySlot> slot) noexcept {
    const Status status = slot->close();
    if (status.ok()) return status;
    try {
        slots_.push_back(std::move(slot));
        count_.store(slots_.size());
    } catch (const std::bad_alloc&) { // its destructor tries once more
    }
    return status;
}

MEMSAVER_INLINE Status SpentSlots::retry() noexcept {
    Status first;
    std::erase_if(slots_, [&](const std::shared_ptr<AnySlot>& slot) {
        const Status status = slot->close();
        if (first.ok()) first = status;
        return status.ok();
    });
    count_.store(slots_.size());
    return first;
}

} // namespace detail

} // namespace memsaver::inline v0_2
