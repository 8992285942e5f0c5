// Copies to pinned pages that may still run after a failure.
#include "backup/transfer_support.hpp"

namespace backup_direct_transfer_test {
using namespace transfer_test;

constexpr std::size_t part_bytes = 1_MiB;
constexpr std::size_t bytes = 2 * part_bytes + 6912; // three parts, of which the last one is odd

struct Setup {
    Setup() : driver{late_machine()}, memory{driver, bytes} {
        memory.write(1);
        for (std::size_t at = 0; at < bytes; at += part_bytes)
            cells.push_back(std::make_shared<HostCells>(driver, std::min(part_bytes, bytes - at)));
    }
    /// One piece for each part, which is pinned on its own, as the cells of a large mapping are.
    detail::Vector<Piece> pieces() const {
        detail::Vector<Piece> all;
        Address at = memory.address();
        for (const auto& cell : cells) {
            const std::size_t here = std::min(part_bytes, memory.address() + bytes - at);
            for (Piece& piece : cut_into_pieces({{at, cell->address(), here}}, HostCells::cell_bytes,
                                                [](const Unit&, const Unit&) { return false; })) {
                piece.pages = cell;
                all.push_back(std::move(piece));
            }
            at += here;
        }
        return all;
    }
    [[nodiscard]] std::size_t host_bytes() const {
        std::size_t sum = 0;
        for (const auto& cell : cells) sum += cell->bytes();
        return sum;
    }
    Faulty driver;
    PlainBytes<> memory;
    std::vector<std::shared_ptr<HostCells>> cells;
};

TEST_CASE("Direct transfer: host pages that copies may still reach go back after a wait for the device") {
    for (const Call also : {Call::wait, Call::record}) { // the copies' end, or already its mark
        CAPTURE(std::string{call_name(also)});
        Setup s;
        const auto out = direct_transfer({s.driver, Direction::out, {.threads = 1}, nullptr, {}, {}}, s.pieces());
        s.driver.fail({.call = also, .lasting = Lasting::onwards});
        s.driver.fail({.call = Call::drain, .lasting = Lasting::onwards});
        out->start();
        CHECK(out->wait().code == Failure::injected_code);
        CHECK(s.cells.front()->close().code == Failure::injected_code);
        CHECK(s.driver.host_bytes() == s.host_bytes());
        s.driver.heal();
        for (const auto& cell : s.cells) CHECK(cell->close().ok()); // late copies ran before
        CHECK(s.driver.host_bytes() + s.driver.pinned_bytes() == 0);
        CHECK(s.driver.drain().ok());
    }
}
} // namespace backup_direct_transfer_test
