// One tag steps aside for another: whose pages pass, whose bytes come and go, and what is left after a failure.
#include "support/bytes.hpp"
#include "support/machines.hpp"

#include "memsaver/backup/verified.hpp"

#include <doctest/doctest.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace saver_exchange_test {

using namespace test;

constexpr std::size_t block = 16_MiB;

/// A tag with `count` blocks, full of patterns that begin with `seed`.
template <class D>
struct Tag {
    Tag(const D& on, Arena arena, std::size_t count, std::uint64_t seed, std::size_t each = block)
        : driver{on}, first{seed} {
        for (std::size_t i = 0; i < count; ++i) blocks.emplace_back(arena, each);
        fill();
    }
    void fill() const {
        for (std::size_t i = 0; i < blocks.size(); ++i)
            write_bytes(driver, blocks[i].data(), pattern(blocks[i].size(), first + i));
    }
    [[nodiscard]] bool whole() const {
        for (std::size_t i = 0; i < blocks.size(); ++i) {
            if (read_bytes(driver, blocks[i].data(), blocks[i].size()) != pattern(blocks[i].size(), first + i))
                return false;
        }
        return true;
    }

    const D& driver;
    std::uint64_t first;
    std::vector<Buffer<char>> blocks;
};

std::size_t row(const Report& report, const std::string& tag, std::size_t TagReport::*field) {
    std::size_t sum = 0;
    for (const TagReport& each : report.tags) sum += each.tag == tag ? each.*field : 0;
    return sum;
}

TEST_CASE_TEMPLATE("exchange: pages pass from tag to tag, and the bytes of both are right", M, MEMSAVER_TEST_MACHINES) {
    const Checked<M> machine;
    MemorySaver saver{machine.driver};
    const std::vector<AnyPolicy> policies{HostBackup{}, HostBackup{.refresh = Refresh::once},
                                          HostBackup{.storage = Storage::pageable}, FileBackup{.directory = "/tmp"},
                                          Verified<HostBackup>{}};
    for (std::size_t i = 0; i < policies.size(); ++i) {
        const std::string number = std::to_string(i);
        const Tag a{machine.driver, saver.arena("a" + number, policies[i]), 2, 10 * i};
        saver.pause("a" + number);
        const Tag b{machine.driver, saver.arena("b" + number, policies[(i + 1) % policies.size()]), 2, 10 * i + 5};
        CAPTURE(number);
        const std::size_t mapped = machine.driver.handle_bytes();
        for (int round = 0; round < 3; ++round) {
            Report report = saver.exchange("b" + number, "a" + number);
            CHECK(report.handed_bytes >= block);
            CHECK(machine.driver.handle_bytes() == mapped);
            CHECK(a.whole());
            CHECK(row(report, "a" + number, &TagReport::restored_bytes) == 2 * block);
            report = saver.exchange("a" + number, "b" + number);
            CHECK(report.handed_bytes >= block);
            CHECK(b.whole());
        }
        saver.pause("b" + number);
    }
    saver.resume();
    check_books(saver, machine.driver);
}

TEST_CASE_TEMPLATE("exchange: there is no room beside the two", M, MEMSAVER_TEST_MACHINES) {
    if constexpr (std::is_same_v<M, CudaMachine>)
        return; // a machine of this size
    else {
        FaultyDriver<HostDriver> driver{HostDriver{70_MiB}};
        {
            MemorySaver saver{driver};
            const Tag a{driver, saver.arena("a", HostBackup{}), 4, 1};
            saver.pause("a");
            const Tag b{driver, saver.arena("b", HostBackup{}), 4, 11};
            for (int round = 0; round < 2; ++round) {
                CHECK(saver.exchange("b", "a").handed_bytes == 4 * block);
                CHECK(a.whole());
                CHECK(saver.exchange("a", "b").handed_bytes == 4 * block);
                CHECK(b.whole());
            }
            CHECK_THROWS_AS(saver.resume("a"), OutOfMemory);
            CHECK(b.whole());
        }
        check_given_back(driver);
    }
}

} // namespace saver_exchange_test
