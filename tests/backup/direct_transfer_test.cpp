// Copies to and from pinned pages: ready or not, refused or failing, observed and followed.
#include "backup/transfer_support.hpp"

namespace backup_direct_transfer_test {

using namespace transfer_test;

namespace {

constexpr std::size_t part_bytes = 1_MiB;
constexpr std::size_t bytes = 2 * part_bytes + 6912; // three parts, of which the last one is odd

struct Setup {
    Setup() : driver{late_machine()}, memory{driver, bytes} {
        memory.write(1);
        for (std::size_t at = 0; at < bytes; at += part_bytes) {
            cells.push_back(std::make_shared<HostCells>(driver, std::min(part_bytes, bytes - at)));
        }
    }
    /// One piece for each part, which is pinned on its own, as the cells of a large mapping are.
    std::vector<Piece> pieces() const {
        std::vector<Piece> all;
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
    std::unique_ptr<Transfer> make(Direction direction, PieceObserver* observer = nullptr, ProgressSink progress = {},
                                   ByteStore* store = nullptr, CrewOptions crew = {.threads = 2}) const {
        return direct_transfer(driver, direction, pieces(), std::move(crew), observer, std::move(progress), store);
    }
    Faulty driver;
    PlainBytes memory;
    std::vector<std::shared_ptr<HostCells>> cells;
};

} // namespace

TEST_CASE("Direct transfer: saves while pages are pinned, and restores with nothing left to pin") {
    Setup s;
    Done done;
    auto out = s.make(Direction::out, nullptr, done.sink());
    out->start();
    CHECK(out->wait().ok());
    CHECK(out->wait().ok()); // the same result
    bool passed = false;
    CHECK(out->query(passed).ok());
    CHECK(passed);
    CHECK(done.bytes() == bytes);
    CHECK(s.driver.pinned_bytes() == s.host_bytes());
    s.memory.write(2);
    const auto pins = s.driver.calls(Call::pin_host);
    Done back;
    auto in = s.make(Direction::in, nullptr, back.sink());
    in->start();
    CHECK(in->wait().ok());
    CHECK(back.bytes() == bytes);
    CHECK(s.driver.calls(Call::pin_host) == pins);
    CHECK(s.memory.has(1));
    for (const std::string& text : s.driver.violations()) FAIL_CHECK(text); // no copy spans two pins
    for (const std::string& text : s.driver.inner().violations()) FAIL_CHECK(text);
}

TEST_CASE("Direct transfer: a stream follows a range") {
    Setup s;
    auto out = s.make(Direction::out);
    out->start();
    CHECK(out->wait().ok());
    s.memory.write(2);
    auto in = s.make(Direction::in);
    in->start();
    StreamRef stream;
    REQUIRE(s.driver.open_stream(stream).ok());
    CHECK(in->follow(stream, {s.memory.address() + part_bytes + 5, 10}).ok());
    const auto expected = test::pattern(bytes, 1);
    std::vector<unsigned char> seen(10);
    CHECK(s.driver.copy_to_host(seen.data(), s.memory.address() + part_bytes + 5, 10, stream).ok());
    EventRef mark;
    REQUIRE(s.driver.open_event(stream, mark).ok());
    CHECK(s.driver.record(mark, stream).ok());
    CHECK(s.driver.wait(mark).ok());
    CHECK(std::equal(seen.begin(), seen.end(), expected.begin() + static_cast<std::ptrdiff_t>(part_bytes + 5)));
    CHECK(in->follow(stream, {1, 1}).ok()); // none of its bytes: nothing to wait for
    CHECK(in->wait().ok());
    CHECK(s.driver.close_event(mark).ok());
    CHECK(s.driver.close_stream(stream).ok());
}

TEST_CASE("Direct transfer: an observer sees every byte, and may refuse") {
    Setup s;
    Watching watching;
    watching.base = s.memory.address();
    watching.expected = test::pattern(bytes, 1);
    auto out = s.make(Direction::out, &watching);
    out->start();
    CHECK(out->wait().ok());
    CHECK(watching.seen_bytes == bytes);
    CHECK(watching.right);
    for (const Direction direction : {Direction::out, Direction::in}) {
        Watching refusing;
        refusing.base = watching.base;
        refusing.expected = watching.expected;
        refusing.throw_at = 2;
        auto refused = s.make(direction, &refusing);
        refused->start();
        CHECK_THROWS_AS((void)refused->wait(), std::runtime_error);
        CHECK_THROWS_AS((void)refused->wait(), std::runtime_error); // the same result
        if (direction == Direction::in) CHECK(!refused->follow({}, {s.memory.address(), bytes}).ok());
    }
    Watching again;
    again.base = watching.base;
    again.expected = watching.expected;
    auto in = s.make(Direction::in, &again);
    in->start();
    CHECK(in->wait().ok());
    CHECK(again.seen_bytes == bytes);
    CHECK(again.right);
}

TEST_CASE("Direct transfer: an observer sees copied bytes while the rest is still to come") {
    for (const bool ready : {false, true}) {
        Setup s;
        if (ready) {
            auto first = s.make(Direction::out);
            first->start();
            CHECK(first->wait().ok());
        }
        class First final : public PieceObserver {
        public:
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
        auto out = s.make(Direction::out, &observer, {}, {}, {.threads = 1});
        out->start();
        CHECK(out->wait().ok());
        CHECK(observer.copies == 2); // the next one is on the link
    }
}

TEST_CASE("Direct transfer: a copy that fails on its way is not shown") {
    Setup s;
    Watching watching;
    watching.base = s.memory.address();
    watching.expected = test::pattern(bytes, 1);
    auto out = s.make(Direction::out, &watching, {}, {}, {.threads = 1});
    s.driver.fail({.call = Call::wait, .nth = 2});
    out->start();
    CHECK(!out->wait().ok());
    CHECK(!out->wait().ok());
    CHECK(watching.seen_bytes < bytes);
    CHECK(watching.right);
}

TEST_CASE("Direct transfer: a failure in the middle waits for what was enqueued, and says so every time") {
    for (const bool ready : {false, true}) {
        for (const Call call : {Call::populate_host, Call::copy_to_host, Call::record, Call::wait, Call::open_event}) {
            if (ready && call == Call::populate_host) continue;
            CAPTURE(call_name(call));
            CAPTURE(ready);
            Setup s;
            if (ready) {
                auto first = s.make(Direction::out);
                first->start();
                CHECK(first->wait().ok());
            }
            auto out = s.make(Direction::out);
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
        auto out = s.make(Direction::out);
        out->start();
    }
    s.cells.clear();
    for (const std::string& text : s.driver.violations()) FAIL_CHECK(text);
    { auto never_started = Setup{}.make(Direction::out); }
}

TEST_CASE(
    "Direct transfer: host pages that copies may still reach do not go back before the device has been waited for") {
    for (const Call also : {Call::wait, Call::record}) { // the copies' end, or already its mark
        CAPTURE(std::string{call_name(also)});
        Setup s;
        const auto out = s.make(Direction::out, nullptr, {}, nullptr, {.threads = 1});
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
