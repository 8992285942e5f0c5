// Progress adds up, and ignores exceptions of its sink.
#include "memsaver/backup/ticket.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <cstddef>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

namespace backup_progress_test {

using namespace memsaver;
using namespace memsaver::detail;

TEST_CASE("Progress: reports bytes done of bytes to do") {
    std::vector<std::pair<std::size_t, std::size_t>> told;
    Progress progress{[&](std::size_t done, std::size_t total) { told.emplace_back(done, total); }, 100};
    CHECK(progress.total() == 100);
    progress.add(30);
    progress.add(70);
    CHECK(told == std::vector<std::pair<std::size_t, std::size_t>>{{30, 100}, {100, 100}});
}

TEST_CASE("Progress: no sink, and one that throws") {
    Progress silent{{}, 10};
    silent.add(10);
    int calls = 0;
    Progress loud{[&](std::size_t, std::size_t) {
                      ++calls;
                      throw std::runtime_error{"the sink's own trouble"};
                  },
                  10};
    CHECK_NOTHROW(loud.add(5));
    CHECK_NOTHROW(loud.add(5));
    CHECK(calls == 2);
}

TEST_CASE("Progress: several threads reach the total exactly once") {
    std::atomic<int> ends{0};
    Progress progress{[&](std::size_t done, std::size_t total) { ends += done == total ? 1 : 0; }, 4000};
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
        threads.emplace_back([&] {
            for (int j = 0; j < 1000; ++j) progress.add(1);
        });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(ends == 1);
}

} // namespace backup_progress_test
