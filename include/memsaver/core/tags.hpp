// Names of tags: one, lists of them, and how the text of an exception shows them. Does not know what a tag holds.
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

namespace memsaver::inline v0_2 {

/// One name, where one is taken: whatever converts to std::string_view. A braced list does not compile: there is no
/// constructor of two arguments, as string_view has. Does not own its text.
class TagName {
public:
    template <class S>
    requires std::convertible_to<const S&, std::string_view>
    TagName(const S& name) // NOLINT(google-explicit-constructor): names are written as they are
        : name_{static_cast<std::string_view>(name)} {}

    /// The name, in the text that this was made from.
    [[nodiscard]] std::string_view view() const noexcept { return name_; }
    /// A copy of the name.
    [[nodiscard]] std::string text() const { return std::string{name_}; }

private:
    std::string_view name_;
};

namespace detail {

/// What a loop can run over that finds names. (`std::ranges` knows more of ranges, and takes longer to read than all of
/// core/.)
template <class R>
concept NameRange = requires(R& names) {
    { *std::begin(names) } -> std::convertible_to<std::string_view>;
    std::begin(names) != std::end(names);
};

} // namespace detail

/// The tags that an operation concerns: one name, a braced list, or any range of names, all of which it owns; every
/// tag under a prefix; or every tag. No name at all stands for no tag, not for every one.
class Tags {
public:
    // Throw OutOfHostMemory.
    Tags(std::initializer_list<TagName> names);
    template <class S>
    requires std::convertible_to<const S&, std::string_view>
    Tags(const S& name) // NOLINT(google-explicit-constructor): names are written as they are
        : Tags({TagName{name}}) {}
    template <class R>
    requires(!std::same_as<std::remove_cvref_t<R>, Tags> &&
             !std::convertible_to<const std::remove_cvref_t<R>&, std::string_view> && detail::NameRange<R>)
        Tags(R&& names) { // NOLINT(google-explicit-constructor): lists are written as they are
        detail::translated([&] {
            for (auto&& name : names) names_.emplace_back(static_cast<std::string_view>(name));
        });
    }

    /// Every tag whose name begins with `prefix`: those that there are when the operation begins, perhaps none.
    [[nodiscard]] static Tags under(std::string_view prefix);
    /// Every tag that there is.
    [[nodiscard]] static Tags all();

    /// How tags are chosen.
    enum class Kind : unsigned char {
        named, ///< those whose names were given
        under, ///< every tag under a prefix
        all,   ///< every tag
    };
    /// Whether names were given, a prefix, or neither.
    [[nodiscard]] Kind kind() const noexcept { return kind_; }
    /// The names as they were given; of `under`, the prefix.
    [[nodiscard]] const std::vector<std::string>& names() const noexcept { return names_; }
    [[nodiscard]] std::size_t size() const noexcept { return names_.size(); }
    [[nodiscard]] const std::string& operator[](std::size_t i) const { return names_[i]; }

private:
    std::vector<std::string> names_;
    Kind kind_ = Kind::named;
};

namespace detail {

/// `tag "weights"`, or `tags "weights", "kv_cache"`; `every tag`, `every tag under "model/"`, `no tag`.
std::string quoted_tags(const Tags& tags);

/// The one tag that is named, however often; empty for several, and for those that nobody named.
std::string only_tag(const Tags& tags);

/// How many characters have to be changed, put in or taken out to make one of the other.
std::size_t edit_distance(std::string_view a, std::string_view b);

/// `: did you mean "weights"?` with at most three of the `known` names that are near to `name`; empty if none is.
std::string did_you_mean(std::string_view name, const std::vector<std::string>& known);

} // namespace detail

} // namespace memsaver::inline v0_2

#ifndef MEMSAVER_COMPILED
#include "memsaver/core/tags.ipp"
#endif
