// How bytes are split into pieces: only at cells, and deterministically.
#include "memsaver/backup/pieces.hpp"
#include "support/machines.hpp"

namespace backup_piece_test {
using namespace test;

constexpr auto never = [](const Unit&, const Unit&) { return false; };

std::size_t sum(const std::vector<Piece>& pieces) {
    std::size_t bytes = 0;
    for (const Piece& piece : pieces) bytes += piece.bytes();
    return bytes;
}

TEST_CASE("cut_into_pieces: no piece crosses a cell, no byte is lost or moved") {
    const std::vector<Unit> units{{9000, 250, 700}, {5000, 100, 150}, {20'000, 1200, 1}};
    const auto pieces = cut_into_pieces(units, 100, never);
    CHECK(sum(pieces) == 851);
    std::uint64_t last = 0;
    for (const Piece& piece : pieces) {
        CHECK(piece.location() / 100 == (piece.end() - 1) / 100);
        CHECK(piece.location() >= last);
        last = piece.end();
        for (const Unit& unit : piece.units) {
            const Unit& from = unit.location < 250 ? units[1] : unit.location < 1200 ? units[0] : units[2];
            CHECK(unit.device - from.device == unit.location - from.location);
            CHECK(unit.bytes != 0);
        }
    }
    CHECK(pieces.size() == 10); // cells 1 to 9 and 12
    CHECK(cut_into_pieces({}, 100, never).empty());
    CHECK(cut_into_pieces({{1, 1, 0}}, 100, never).empty());
}

TEST_CASE("cut_into_pieces: blocks that are not adjacent are separate pieces, even in one cell") {
    const std::vector<Unit> units{{0, 10, 10}, {100, 20, 10}, {200, 40, 10}};
    CHECK(cut_into_pieces(units, 100, never).size() == 1);
    const auto apart =
        cut_into_pieces(units, 100, [](const Unit& a, const Unit& b) { return a.location < 40 && b.location >= 40; });
    REQUIRE(apart.size() == 2);
    CHECK(apart[0].units.size() == 2);
    CHECK(apart[1].location() == 40);
}

TEST_CASE("cut_into_pieces: a block is always cut into the same units, whatever is beside it") {
    const Unit block{7000, 130, 500};
    const auto units_of = [&](std::vector<Unit> all) {
        std::vector<Unit> found;
        for (const Piece& piece : cut_into_pieces(std::move(all), 128, never)) {
            for (const Unit& unit : piece.units) {
                if (unit.location >= 130 && unit.location < 630) found.push_back(unit);
            }
        }
        return found;
    };
    const auto alone = units_of({block});
    const auto crowded = units_of({{1, 1, 129}, block, {90'000, 630, 999}});
    REQUIRE(alone.size() == crowded.size());
    for (std::size_t i = 0; i < alone.size(); ++i) {
        CHECK(alone[i].location == crowded[i].location);
        CHECK(alone[i].device == crowded[i].device);
        CHECK(alone[i].bytes == crowded[i].bytes);
    }
}

TEST_CASE("Piece: neighbours in both places are one copy; the first failure ends it") {
    const Piece piece{{{1000, 0, 10}, {1010, 10, 10}, {3000, 20, 10}, {3010, 31, 10}, {3020, 41, 5}}};
    CHECK(piece.bytes() == 45);
    CHECK(piece.location() == 0);
    CHECK(piece.end() == 46);
    std::vector<std::size_t> copies;
    CHECK(piece
              .each_copy([&](const Unit& unit) {
                  copies.push_back(unit.bytes);
                  return Status{};
              })
              .ok());
    CHECK(copies == std::vector<std::size_t>{20, 10, 15});
    int calls = 0;
    const Status failed = piece.each_copy([&](const Unit&) {
        return ++calls == 2 ? Status{StatusKind::other, 9, "no"} : Status{};
    });
    CHECK(failed.code == 9);
    CHECK(calls == 2);
}

TEST_CASE("in_wanted_order: a group for each range that has bytes, in that order, and one for the rest") {
    const std::vector<Unit> units{{1000, 10, 100}, {2000, 500, 50}};
    const auto device_bytes = [](const std::vector<std::vector<Unit>>& groups) {
        std::vector<std::vector<Range>> ranges;
        for (const auto& group : groups) {
            auto& all = ranges.emplace_back();
            for (const Unit& unit : group) {
                CHECK((unit.device < 2000 ? unit.device - 1000 + 10 : unit.device - 2000 + 500) == unit.location);
                all.push_back({unit.device, unit.bytes});
            }
        }
        return ranges;
    };
    using Ranges = std::vector<std::vector<Range>>;
    CHECK(device_bytes(in_wanted_order(units, {}, true)) == Ranges{{{1000, 100}, {2000, 50}}});
    CHECK(device_bytes(in_wanted_order(units, {{5000, 10}}, true)) == Ranges{{{1000, 100}, {2000, 50}}});
    CHECK(device_bytes(in_wanted_order(units, {{2000, 50}, {1040, 20}, {990, 60}}, true)) ==
          Ranges{{{2000, 50}}, {{1040, 20}}, {{1000, 40}}, {{1060, 40}}});
    CHECK(device_bytes(in_wanted_order(units, {{1090, 2000}}, true)) == Ranges{{{1090, 10}, {2000, 50}}, {{1000, 90}}});
    CHECK(device_bytes(in_wanted_order(units, {{1040, 20}, {1000, 1010}}, false)) ==
          Ranges{{{1000, 100}}, {{2000, 50}}});
    CHECK(sum(cut_in_wanted_order(units, 32, {{1040, 20}, {2049, 1}}, true, never)) == 150);
}
} // namespace backup_piece_test
