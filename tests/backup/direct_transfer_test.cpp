// Copies to pinned pages, ready or not, that overlap and fail.
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
    detail::UniquePtr<Transfer> make(PieceObserver* observer = nullptr, CrewOptions crew = {.threads = 2}) const {
        return direct_transfer({driver, Direction::out, crew, observer, {}, {}}, pieces());
    }
    Faulty driver;
    PlainBytes memory;
    std::vector<std::shared_ptr<HostCells>> cells;
};

TEST_CASE("Direct transfer: an observer sees copied bytes while the rest is still to come") {
    for (const bool ready : {false, true}) {
        Setup s;
        if (ready) {
            auto first = s.make();
            first->start();
            CHECK(first->wait().ok());
        }
        struct First final : PieceObserver {
            explicit First(Faulty driver) : driver_{std::move(driver)} {}
            void saved(const Unit&, const std::byte*) override {
                if (copies == 0) copies = driver_.calls(Call::copy_to_host) - before_;
            }
            void restoring(const Unit&, const std::byte*) override {}
            std::uint64_t copies = 0; ///< enqueued when the first piece is observed

        private:
            Faulty driver_;
            std::uint64_t before_ = driver_.calls(Call::copy_to_host);
        } observer{s.driver};
        const std::size_t pieces = s.pieces().size();
        REQUIRE(pieces >= 3);
        auto out = s.make(&observer, {.threads = 1});
        out->start();
        CHECK(out->wait().ok());
        CHECK(observer.copies == 2); // the next one is on the link
    }
}

TEST_CASE("Direct transfer: a failure in the middle waits for what was enqueued, and says so every time") {
    for (const bool ready : {false, true}) {
        for (const Call call : {Call::populate_host, Call::copy_to_host, Call::record, Call::wait, Call::open_event}) {
            if (ready && call == Call::populate_host) continue;
            CAPTURE(call_name(call));
            CAPTURE(ready);
            Setup s;
            if (ready) {
                auto first = s.make();
                first->start();
                CHECK(first->wait().ok());
            }
            auto out = s.make();
            s.driver.fail({.call = call, .nth = 2});
            out->start();
            CHECK(!out->wait().ok());
            s.driver.heal();
            CHECK(!out->wait().ok());
            out.reset();
            s.cells.clear(); // pages that a copy in flight still needs: a fault on a machine that runs work late
            CHECK(s.driver.drain().ok());
            for (const std::string& text : s.driver.inner().violations()) FAIL_CHECK(text);
        }
    }
}

TEST_CASE("Direct transfer: destroyed in the middle, it waits") {
    Setup s;
    {
        const auto out = s.make();
        out->start();
    }
    s.cells.clear();
    for (const std::string& text : s.driver.violations()) FAIL_CHECK(text);
    { const auto never_started = Setup{}.make(); }
}

TEST_CASE("Direct transfer: host pages that copies may still reach go back after a wait for the device") {
    for (const Call also : {Call::wait, Call::record}) { // the copies' end, or already its mark
        CAPTURE(std::string{call_name(also)});
        Setup s;
        const auto out = s.make(nullptr, {.threads = 1});
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
