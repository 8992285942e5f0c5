// Definitions of tags.hpp.
#pragma once

#include "memsaver/core/ranges.hpp"
#include "memsaver/core/tags.hpp"
#include "memsaver/core/text.hpp"
#include "memsaver/core/vector.hpp"

#include <algorithm>
#include <utility>

namespace memsaver::inline v0_3 {

MEMSAVER_INLINE Tags::Tags(std::initializer_list<TagName> names) {
    for (const TagName& name : names) add(name.view());
}

MEMSAVER_INLINE void Tags::add(std::string_view name) {
    detail::translated([&] { names_.push_back(std::string{name}); });
}

MEMSAVER_INLINE Tags Tags::under(std::string_view prefix) {
    Tags tags{prefix};
    tags.kind_ = Kind::under;
    return tags;
}

MEMSAVER_INLINE Tags Tags::all() {
    Tags tags = std::initializer_list<TagName>{};
    tags.kind_ = Kind::all;
    return tags;
}

namespace detail {

MEMSAVER_INLINE std::string quoted_tags(const Tags& tags) {
    if (tags.kind() == Tags::Kind::all) return "every tag";
    if (tags.kind() == Tags::Kind::under) return text_of({"every tag under ", in_quotes(tags[0])});
    if (tags.size() == 0) return "no tag";
    std::string text = tags.size() == 1 ? "tag " : "tags ";
    for (const std::string& name : tags.names())
        text += text_of({&name == tags.names().data() ? "" : ", ", in_quotes(name)});
    return text;
}

MEMSAVER_INLINE std::string only_tag(const Tags& tags) {
    if (tags.kind() != Tags::Kind::named || tags.size() == 0) return {};
    for (const std::string& name : tags.names()) {
        if (name != tags[0]) return {};
    }
    return tags[0];
}

MEMSAVER_INLINE std::size_t edit_distance(std::string_view a, std::string_view b) {
    Vector<std::size_t> row(b.size() + 1); // distances from the current prefix of a to each prefix of b
    for (std::size_t j = 0; j < row.size(); ++j) row[j] = j;
    for (std::size_t i = 0; i < a.size(); ++i) {
        std::size_t diagonal = std::exchange(row[0], i + 1);
        for (std::size_t j = 0; j < b.size(); ++j) {
            const std::size_t changed = diagonal + (a[i] == b[j] ? 0 : 1);
            diagonal = row[j + 1];
            row[j + 1] = std::min({changed, row[j] + 1, row[j + 1] + 1});
        }
    }
    return row.back();
}

MEMSAVER_INLINE std::string did_you_mean(std::string_view name, const std::vector<std::string>& known) {
    const std::size_t near = std::max<std::size_t>(2, name.size() / 3);
    std::vector<Range> found; // for each its distance and its index
    for (std::size_t i = 0; i < known.size(); ++i) {
        const std::size_t longer = std::max(name.size(), known[i].size());
        if (longer - std::min(name.size(), known[i].size()) > near) continue;
        const std::size_t distance = edit_distance(name, known[i]);
        if (distance <= near && distance < longer) found.push_back({distance, i});
    }
    sort_by_address(found);
    std::string text;
    for (std::size_t i = 0; i < std::min<std::size_t>(found.size(), 3); ++i) {
        text += text_of({i == 0 ? ": did you mean " : ", ", in_quotes(known[found[i].bytes])});
    }
    return text.empty() ? text : text + '?';
}

} // namespace detail

} // namespace memsaver::inline v0_3
