// Size classes are ordered, and the lists contain what was added to them, on the side where it was added.
#include "memsaver/heap/block_allocator.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <utility>
#include <vector>

namespace heap_free_bins_test {

using namespace memsaver;
using namespace memsaver::detail;

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

TEST_CASE("FreeBins: random inserts and removals") {
    constexpr FreeBins::Node count = 200;
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
        std::mt19937_64 random{seed};
        FreeBins bins;
        bins.reserve(count);
        std::map<FreeBins::Node, std::size_t> model;
        for (int step = 0; step < 3000; ++step) {
            const auto node = static_cast<FreeBins::Node>(random() % count);
            if (model.erase(node) == 1) {
                bins.remove(node);
            } else {
                const std::size_t bytes = (std::size_t{1} << (random() % 40)) & ~(FreeBins::unit - 1);
                bins.insert(node, bytes);
                model[node] = bytes;
            }
            if (step % 10 != 0) continue;
            const std::size_t from_bin = random() % FreeBins::bins;
            std::multiset<FreeBins::Node> all;
            std::multiset<FreeBins::Node> above;
            for (const auto& [each, bytes] : model) {
                all.insert(each);
                if (FreeBins::bin_of(bytes) >= from_bin) above.insert(each);
            }
            REQUIRE(found(bins, 0) == all);
            REQUIRE(found(bins, from_bin) == above);
        }
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

TEST_CASE("FreeBins: growing keeps the lists") {
    FreeBins bins;
    bins.reserve(1);
    bins.insert(0, 512);
    bins.reserve(5000);
    bins.insert(4999, 512);
    CHECK(found(bins, 0) == std::multiset<FreeBins::Node>{0, 4999});
}

} // namespace heap_free_bins_test
