// The engine's page table: which slot owns which page of its cache.
#include "../../examples/engine/page_table.hpp"
#include "support/machines.hpp"

namespace engine_page_table_test {
using engine::PageTable;

/// Checks that every page is free or owned by one slot, page 0 by none, and that rows are zero beyond their pages.
void check_books(const PageTable& table, int pages, const std::vector<int>& open) {
    std::set<int> owned;
    for (const int slot : open) {
        for (const int page : table.pages_of(slot)) {
            CHECK(page > 0);
            CHECK(page < pages);
            CHECK(owned.insert(page).second);
        }
    }
    CHECK(owned.size() + table.free_pages() == static_cast<std::size_t>(pages) - 1);
    std::size_t entries = 0;
    for (const int page : table.entries()) entries += page != 0 ? 1 : 0;
    CHECK(entries == owned.size());
    for (int i = 0; i < table.pages_per_slot(); ++i) CHECK(table.entries()[static_cast<std::size_t>(i)] == 0);
}

TEST_CASE("without a page or a slot it throws, and nothing has changed") {
    PageTable table{4, 2, 3, 8};
    const int first = table.open();
    const int second = table.open();
    CHECK_THROWS_AS((void)table.open(), std::runtime_error);
    table.grow(first, 4);
    CHECK_THROWS_AS(table.grow(second, 3), std::runtime_error); // two pages requested, one free
    CHECK(table.pages_of(second).empty());
    CHECK(table.free_pages() == 1);
    CHECK_THROWS_AS(table.grow(first, 17), std::runtime_error); // longer than a row
    table.close(first);
    table.grow(second, 6);
    check_books(table, 4, {second});
}

TEST_CASE("a slot that is not open is refused") {
    PageTable table{4, 2, 3, 8};
    for (const int slot : {0, 1, 3, -1}) {
        CHECK_THROWS_AS(table.grow(slot, 1), std::invalid_argument);
        CHECK_THROWS_AS(table.close(slot), std::invalid_argument);
        CHECK_THROWS_AS((void)table.pages_of(slot), std::invalid_argument);
    }
    CHECK_THROWS_AS((PageTable{1, 2, 3, 8}), std::invalid_argument);
    CHECK_THROWS_AS((PageTable{4, 0, 3, 8}), std::invalid_argument);
    CHECK_THROWS_AS((PageTable{4, 2, 1, 8}), std::invalid_argument);
}

TEST_CASE("the order of pages is chosen by a seed, and does not depend on their number") {
    const auto pages_for = [](std::uint64_t order) {
        PageTable table{100, 1, 2, 99, order};
        const int slot = table.open();
        table.grow(slot, 99);
        check_books(table, 100, {slot});
        const auto pages = table.pages_of(slot);
        return std::vector<int>(pages.begin(), pages.end());
    };
    CHECK(pages_for(0).front() == 1);
    CHECK(pages_for(0).back() == 99);
    CHECK(pages_for(5) == pages_for(5));
    CHECK(pages_for(5) != pages_for(6));
    CHECK(pages_for(5) != pages_for(0));
}

TEST_CASE("no page has two owners, whatever happens") {
    constexpr int pages = 40;
    PageTable table{pages, 3, 9, 12, 77};
    std::mt19937 random{1};
    std::vector<int> open;
    std::vector<int> tokens(9, 0);
    int refused = 0;
    for (int i = 0; i < 3000; ++i) {
        const auto any = open.empty() ? std::size_t{0} : random() % open.size();
        switch (random() % 3) {
        case 0:
            if (open.size() < 8) open.push_back(table.open());
            break;
        case 1:
            if (open.empty()) break;
            try {
                auto& length = tokens[static_cast<std::size_t>(open[any])];
                table.grow(open[any], length + 5);
                length += 5;
                table.grow(open[any], 1); // never shrinks
                const auto pages_now = table.pages_of(open[any]);
                REQUIRE(pages_now.size() == static_cast<std::size_t>((length + 2) / 3));
                CHECK(pages_now.back() ==
                      table.entries()[static_cast<std::size_t>(open[any]) * 12 + pages_now.size() - 1]);
            } catch (const std::runtime_error&) {
                ++refused;
            }
            break;
        default:
            if (open.empty()) break;
            table.close(open[any]);
            tokens[static_cast<std::size_t>(open[any])] = 0;
            open.erase(open.begin() + static_cast<std::ptrdiff_t>(any));
        }
        check_books(table, pages, open);
    }
    CHECK(refused > 0);
}
} // namespace engine_page_table_test
