// Devices side by side: each once, in order within a device, all of them whatever one throws.
#include "memsaver/arena/for_each_device.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <cstddef>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace arena_for_each_device_test {

using namespace memsaver;

/// As much of a driver as is asked for.
struct Device {
    int number = 0;
    std::atomic<int>* asked = nullptr; // for its node
    [[nodiscard]] int device() const noexcept { return number; }
    [[nodiscard]] int numa_node() const noexcept {
        if (asked != nullptr) ++*asked;
        return 0;
    }
};

struct Item {
    Device on;
    int value = 0;
    [[nodiscard]] const Device& driver() const noexcept { return on; }
};

TEST_CASE("for_each_device: nothing to do") {
    std::vector<Item> none;
    for_each_device(none, [](Item&) { FAIL_CHECK("called"); });
}

TEST_CASE("for_each_device: one device stays on the calling thread, in order") {
    const auto here = std::this_thread::get_id();
    std::vector<Item> items{{{3}, 0}, {{3}, 1}, {{3}, 2}};
    std::vector<int> order;
    for_each_device(items, [&](Item& item) {
        CHECK(std::this_thread::get_id() == here);
        order.push_back(item.value);
    });
    CHECK(order == std::vector<int>{0, 1, 2});
}

TEST_CASE("for_each_device: several devices at the same time, those but the first on threads near them") {
    std::atomic<int> asked{0};
    std::vector<Item> items{{{0, &asked}, 1}, {{1, &asked}, 1}, {{0, &asked}, 2}, {{2, &asked}, 1}, {{1, &asked}, 2}};
    std::atomic<int> inside{0};
    std::mutex mutex;
    std::vector<std::thread::id> threads(3);
    std::vector<int> sums(3);
    for_each_device(items, [&](Item& item) {
        if (item.value == 1) { // each waits here for all
            ++inside;
            while (inside < 3) std::this_thread::yield();
        }
        const auto device = static_cast<std::size_t>(item.on.number);
        const std::lock_guard lock{mutex};
        if (item.value == 1) threads[device] = std::this_thread::get_id();
        CHECK(threads[device] == std::this_thread::get_id());
        sums[device] = 10 * sums[device] + item.value;
    });
    CHECK(sums == std::vector<int>{12, 12, 1});
    CHECK(threads[0] == std::this_thread::get_id());
    CHECK(threads[1] != threads[0]);
    CHECK(threads[2] != threads[0]);
    CHECK(asked == 2); // not for the first, which has the caller's thread
}

TEST_CASE("for_each_device: what throws ends its own device, and is thrown when all have ended") {
    for (const int thrower : {0, 1, 2}) {
        CAPTURE(thrower);
        std::vector<Item> items;
        for (const int value : {0, 1}) {
            for (const int device : {0, 1, 2}) items.push_back({{device}, value});
        }
        std::atomic<int> done{0};
        const auto act = [&](Item& item) {
            if (item.on.number == thrower) throw std::runtime_error{std::to_string(item.value)};
            ++done;
        };
        CHECK_THROWS_WITH_AS(for_each_device(items, act), "0", std::runtime_error);
        CHECK(done == 4);
    }
}

} // namespace arena_for_each_device_test
