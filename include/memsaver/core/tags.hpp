// Tag names: single names, lists of names, and their form in exception texts. Knows nothing about a tag's memory.
#pragma once

#include "memsaver/core/error.hpp"
#include "memsaver/core/form.hpp"

#include <concepts>
#include <cstddef>
#include <initializer_list>
#include <iterator>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace memsaver::inline v0_3 {

/// A single tag name: converts from anything that converts to std::string_view. A braced list does not compile, because
/// TagName has no two-argument constructor as string_view does. Does not own its text.
class TagName {
public:
    template <class S>
    requires std::convertible_to<const S&, std::string_view>
    TagName(const S& name) // NOLINT(google-explicit-constructor): names are written as they are
        : name_{static_cast<std::string_view>(name)} {}

    /// The name, as a view of the text that this object was made from.
    [[nodiscard]] std::string_view view() const noexcept { return name_; }
    /// A copy of the name.
    [[nodiscard]] std::string text() const { return std::string{name_}; }

private:
    std::string_view name_;
};

namespace detail {

/// A range of names that a `for` loop can iterate over. (`std::ranges` has more concepts, but takes longer to compile
/// than all of core/.)
template <class R>
concept NameRange = requires(R& names) {
    { *std::begin(names) } -> std::convertible_to<std::string_view>;
    std::begin(names) != std::end(names);
};

} // namespace detail

/// The tags that an operation applies to: one name, a braced list, or any range of names, all of which it owns; every
/// tag with a prefix; or every tag. An empty list means no tag, not every tag.
class Tags {
public:
    // The constructors throw OutOfHostMemory.
    Tags(std::initializer_list<TagName> names);
    template <class S>
    requires std::convertible_to<const S&, std::string_view>
    Tags(const S& name) // NOLINT(google-explicit-constructor): names are written as they are
        : Tags({TagName{name}}) {}
    template <class R>
    requires(!std::same_as<std::remove_cvref_t<R>, Tags> &&
             !std::convertible_to<const std::remove_cvref_t<R>&, std::string_view> && detail::NameRange<R>)
        Tags(R&& names) { // NOLINT(google-explicit-constructor): lists are written as they are
        for (auto&& name : names) add(static_cast<std::string_view>(name));
    }

    /// Every tag whose name begins with `prefix`. Evaluated when the operation begins; may match no tag.
    [[nodiscard]] static Tags under(std::string_view prefix);
    /// Every existing tag.
    [[nodiscard]] static Tags all();

    /// How tags are chosen.
    enum class Kind : unsigned char {
        named, ///< tags selected by name
        under, ///< every tag with a prefix
        all,   ///< every tag
    };
    /// How the tags were selected: by name, by prefix, or all.
    [[nodiscard]] Kind kind() const noexcept { return kind_; }
    /// The names as given; for `under`, the prefix.
    [[nodiscard]] const std::vector<std::string>& names() const noexcept { return names_; }
    [[nodiscard]] std::size_t size() const noexcept { return names_.size(); }
    [[nodiscard]] const std::string& operator[](std::size_t i) const { return names_[i]; }

private:
    void add(std::string_view name);

    std::vector<std::string> names_;
    Kind kind_ = Kind::named;
};

namespace detail {

/// `tag "weights"`, or `tags "weights", "kv_cache"`; `every tag`, `every tag under "model/"`, `no tag`.
std::string quoted_tags(const Tags& tags);

/// The single tag named, even if named more than once. Empty for several tags, a prefix or all tags.
std::string only_tag(const Tags& tags);

/// The number of characters to change, insert or delete to turn one string into the other.
std::size_t edit_distance(std::string_view a, std::string_view b);

/// `: did you mean "weights"?` with up to three names from `known` that are similar to `name`; empty if none is.
std::string did_you_mean(std::string_view name, const std::vector<std::string>& known);

} // namespace detail

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/core/tags.ipp"
#endif
