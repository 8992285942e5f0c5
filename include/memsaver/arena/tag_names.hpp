// The names of tags, as the text of an exception shows them.
#pragma once

#include <string>
#include <vector>

namespace memsaver::inline v0_1 {

/// `tag "weights"`, or `tags "weights", "kv_cache"`; none: `every tag`.
inline std::string quoted_tags(const std::vector<std::string>& names) {
    if (names.empty()) return "every tag";
    std::string text = names.size() == 1 ? "tag " : "tags ";
    for (const std::string& name : names) text += (&name == names.data() ? "\"" : ", \"") + name + '"';
    return text;
}

} // namespace memsaver::inline v0_1
