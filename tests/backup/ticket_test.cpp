// A ticket waits for its work in its destructor, if it is the last owner.
#include "support/machines.hpp"

namespace backup_ticket_test {
using namespace test;

static_assert(!std::is_copy_constructible_v<Ticket>);
static_assert(std::is_nothrow_move_constructible_v<Ticket> && std::is_nothrow_move_assignable_v<Ticket>);

/// The calls on a piece of work.
struct Log {
    int waits = 0;
    int ends = 0;
};

/// Work that implements only what it must.
struct Work final : Ticket::Work {
    explicit Work(Log& log) : log_{log} {}
    ~Work() override { ++log_.ends; }
    Status wait() override {
        CHECK(log_.ends == 0);
        ++log_.waits;
        return {StatusKind::other, 5, "wait"};
    }

private:
    Log& log_;
};

TEST_CASE("Ticket: work that only implements wait is done once a wait has returned, and a stream's follower waits") {
    Log log;
    Ticket ticket{std::make_unique<Work>(log), 1};
    bool done = true;
    CHECK(ticket.query(done).ok());
    CHECK_FALSE(done);
    CHECK(ticket.wait_for({}).ok());
    CHECK(log.waits == 0);
    CHECK(ticket.follow({}, {1, 2}).code == 5);
    CHECK(log.waits == 1);
    CHECK(ticket.query(done).ok());
    CHECK(done);
}

TEST_CASE("Ticket: a moved-from one is empty; one that is overwritten is waited for") {
    Log first;
    Log second;
    {
        Ticket one{std::make_unique<Work>(first), 1};
        Ticket two{std::make_unique<Work>(second), 2};
        Ticket moved{std::move(one)};
        CHECK(moved.bytes() == 1);
        CHECK(one.bytes() == 0); // NOLINT(bugprone-use-after-move): it is a default ticket now
        CHECK(one.wait().ok());
        CHECK(one.follow({}, {}).ok());
        bool done = false;
        CHECK(one.query(done).ok());
        CHECK(done);
        CHECK(first.waits == 0);
        moved = std::move(two);
        CHECK(first.waits == 1);
        CHECK(first.ends == 1);
        CHECK(second.waits == 0);
        CHECK(moved.bytes() == 2);
        Ticket& same = moved;
        moved = std::move(same);
        CHECK(second.ends == 0);
        CHECK(moved.bytes() == 2);
    }
    CHECK(second.waits == 1);
    CHECK(second.ends == 1);
}
} // namespace backup_ticket_test
