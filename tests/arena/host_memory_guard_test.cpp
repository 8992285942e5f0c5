// No host memory is an exception of the library's own; whatever else is thrown passes.
#include "memsaver/arena/host_memory_guard.hpp"

#include <doctest/doctest.h>

#include <memory>
#include <new>
#include <stdexcept>
#include <type_traits>
#include <utility>

namespace arena_host_memory_guard_test {

using namespace memsaver;

namespace {

struct Pinned { // neither copied nor moved
    explicit Pinned(int given) : value{given} {}
    Pinned(Pinned&&) = delete;
    int value;
};

} // namespace

TEST_CASE("guard_host_memory: answers what it was given, also what cannot be moved and what is a reference") {
    int number = 7;
    static_assert(std::is_same_v<decltype(guard_host_memory([&]() -> int& { return number; })), int&>);
    CHECK(&guard_host_memory([&]() -> int& { return number; }) == &number);
    CHECK(guard_host_memory([] { return std::make_unique<int>(3); }) != nullptr);
    const Pinned pinned = guard_host_memory([] { return Pinned{4}; });
    CHECK(pinned.value == 4);
    guard_host_memory([&] { number = 8; });
    CHECK(number == 8);
}

TEST_CASE("guard_host_memory: bad_alloc becomes OutOfHostMemory") {
    CHECK_THROWS_AS(guard_host_memory([] { throw std::bad_alloc{}; }), OutOfHostMemory);
    CHECK_THROWS_AS(guard_host_memory([]() -> int { throw std::bad_array_new_length{}; }), OutOfHostMemory);
    CHECK_THROWS_AS(guard_host_memory([] { throw Misuse{"mine"}; }), Misuse);
    CHECK_THROWS_AS(guard_host_memory([] { throw std::logic_error{"yours"}; }), std::logic_error);
    try {
        guard_host_memory([] {
            OutOfHostMemory error{"with a report"};
            Report report;
            report.released_bytes = 5;
            error.attach(std::move(report));
            throw error;
        });
    } catch (const Error& error) {
        CHECK(error.report().released_bytes == 5);
    }
}

} // namespace arena_host_memory_guard_test
