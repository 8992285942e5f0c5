// Size classes are ordered, and the lists contain what was added to them, on the side where it was added.
#include "memsaver/heap/block_allocator.hpp"
#include "support/machines.hpp"

namespace heap_free_bins_test {
using namespace test;

std::multiset<FreeBins::Node> found(FreeBins& bins, std::size_t bin, std::size_t per_bin = ~std::size_t{0}) {
    std::multiset<FreeBins::Node> nodes;
    CHECK(bins.search(bin, per_bin, [&](FreeBins::Node node) {
        nodes.insert(node);
        return false;
    }) == FreeBins::none);
    return nodes;
}

TEST_CASE("FreeBins: larger blocks are never in lower classes, and higher classes hold larger blocks only") {
    std::vector<std::size_t> sizes;
    for (std::size_t units = 0; units < 5000; ++units) sizes.push_back(units * FreeBins::unit);
    for (std::size_t power = 8; power < 63; ++power) {
        for (std::size_t eighth = 0; eighth < 8; ++eighth) {
            const std::size_t size = (std::size_t{1} << power) + eighth * ((std::size_t{1} << power) / 8);
            for (const std::size_t near : {size - FreeBins::unit, size, size + FreeBins::unit}) sizes.push_back(near);
        }
    }
    std::sort(sizes.begin(), sizes.end());
    for (std::size_t i = 1; i < sizes.size(); ++i) {
        CAPTURE(sizes[i]);
        CHECK(FreeBins::bin_of(sizes[i - 1]) <= FreeBins::bin_of(sizes[i]));
        CHECK(FreeBins::bin_of(sizes[i]) < FreeBins::bins);
    }
    // No class spans more than an eighth of its sizes, except the last one.
    for (const std::size_t size : sizes) {
        if (size < 2048 || size >= (std::size_t{1} << 49U)) continue;
        CHECK(FreeBins::bin_of(size + size / 8 + FreeBins::unit) > FreeBins::bin_of(size));
    }
}

TEST_CASE("FreeBins: a search stops at the first match, and looks at no more of a class than its limit") {
    FreeBins bins;
    bins.reserve(10);
    for (FreeBins::Node node = 0; node < 9; ++node) bins.insert(node, 1024);
    bins.insert(9, 4096);
    CHECK(found(bins, FreeBins::bin_of(1024), 3).size() == 4);
    CHECK(found(bins, FreeBins::bin_of(1024), 3).count(9) == 1);
    int visits = 0;
    const auto second = [&](FreeBins::Node) { return ++visits == 2; };
    CHECK(bins.search(0, 8, second) < 9);
    CHECK(visits == 2);
}
} // namespace heap_free_bins_test
