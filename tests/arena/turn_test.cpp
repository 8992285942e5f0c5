// One at a time, with patience that may end, and safe to give up as the last thing before the turn itself goes.
#include "memsaver/arena/turn.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <memory>
#include <optional>
#include <thread>
#include <type_traits>
#include <vector>

namespace arena_turn_test {

using namespace memsaver;

static_assert(!std::is_copy_constructible_v<Turn::Hold> && std::is_nothrow_move_constructible_v<Turn::Hold>);

TEST_CASE("Turn: threads have it one after another") {
    Turn turn;
    int counter = 0; // guarded by the turn alone
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; ++i) {
        threads.emplace_back([&, i] {
            for (int round = 0; round < 500; ++round) {
                if (i % 2 == 0) {
                    const auto hold = turn.take();
                    ++counter;
                } else {
                    while (true) {
                        const auto hold = turn.try_take();
                        if (!hold) continue;
                        ++counter;
                        break;
                    }
                }
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(counter == 8 * 500);
}

TEST_CASE("Turn: patience ends, and nothing is taken then") {
    Turn turn;
    {
        const auto hold = turn.take();
        CHECK_FALSE(turn.try_take().has_value());
        CHECK_THROWS_AS((void)turn.take(std::chrono::steady_clock::now()), NotIdle);
        CHECK_THROWS_WITH_AS((void)turn.take(std::chrono::steady_clock::now() + std::chrono::milliseconds{1}, "kv"),
                             "tag \"kv\": another operation on it was still running when the time allowed ran out; "
                             "nothing has changed",
                             NotIdle);
    }
    CHECK(turn.try_take().has_value());
    // A deadline that has passed does not matter where nobody is in the way.
    const auto hold = turn.take(std::chrono::steady_clock::now() - std::chrono::seconds{1});
    CHECK_FALSE(turn.try_take().has_value());
}

TEST_CASE("Turn: a hold that was moved on gives up once") {
    Turn turn;
    std::optional<Turn::Hold> kept;
    {
        auto hold = turn.take();
        kept.emplace(std::move(hold));
    }
    CHECK_FALSE(turn.try_take().has_value());
    kept.reset();
    CHECK(turn.try_take().has_value());
}

TEST_CASE("Turn: whoever waits gets it when it is given up, and may destroy it at once") {
    auto turn = std::make_unique<Turn>();
    auto first = std::make_unique<Turn::Hold>(turn->take());
    std::thread last{[&] {
        { const auto hold = turn->take(); }
        turn.reset();
    }};
    first.reset();
    last.join();
    CHECK(turn == nullptr);
}

} // namespace arena_turn_test
