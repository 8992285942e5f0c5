// The vector of the inside: as std::vector where it is used like one.
#include "memsaver/core/vector.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <type_traits>
#include <vector>

namespace core_vector_test {
using memsaver::detail::Vector;

/// As a string that is too long for the string itself, and as plain bytes.
template <class T>
T numbered(int number) {
    if constexpr (std::is_same_v<T, std::string>)
        return "an item that is too long for the string itself: " + std::to_string(number);
    else
        return number;
}

TEST_CASE_TEMPLATE("Vector: random operations give what std::vector gives", T, std::string, int) {
    Vector<T> ours;
    std::vector<T> theirs;
    std::uint32_t random = 7;
    for (int step = 0; step < 2000; ++step) {
        random = random * 1664525U + 1013904223U;
        const auto place = static_cast<std::ptrdiff_t>(theirs.empty() ? 0 : random / 16U % theirs.size());
        const T item = numbered<T>(step);
        switch (random >> 28U) {
        case 0: ours.insert(ours.begin() + place, item), theirs.insert(theirs.begin() + place, item); break;
        case 1: ours.resize(theirs.size() + 3), theirs.resize(theirs.size() + 3); break;
        case 2: ours.append(&item, &item + 1), theirs.insert(theirs.end(), &item, &item + 1); break;
        case 3: {
            const Vector<T> copy(ours);
            ours.push_back(item); // to be replaced
            ours = copy;
            break;
        }
        case 4: ours = {item, item}, theirs = {item, item}; break;
        case 5:
        case 6:
            if (theirs.empty()) break;
            ours.erase(ours.begin() + place), theirs.erase(theirs.begin() + place);
            break;
        case 7: ours.erase(ours.begin() + place, ours.end()), theirs.erase(theirs.begin() + place, theirs.end()); break;
        case 8: ours.resize(theirs.size() / 2), theirs.resize(theirs.size() / 2); break;
        default: ours.push_back(theirs.empty() ? item : ours[0]), theirs.push_back(theirs.empty() ? item : theirs[0]);
        }
        REQUIRE(std::vector<T>(ours.begin(), ours.end()) == theirs);
        REQUIRE((ours == Vector<T>(theirs.begin(), theirs.end())));
    }
}

TEST_CASE("Vector: a size that no memory has is refused, and nothing changes") {
    Vector<std::uint64_t> list{1, 2};
    CHECK_THROWS_AS(list.reserve(std::size_t{1} << 62U), std::bad_alloc);
    CHECK_THROWS_AS(list.resize(static_cast<std::size_t>(-1)), std::bad_alloc);
    CHECK((list == Vector<std::uint64_t>{1, 2}));
}
} // namespace core_vector_test
