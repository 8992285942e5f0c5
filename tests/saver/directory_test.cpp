// Which arena an address belongs to.
#include "memsaver/memsaver.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <cstddef>
#include <memory>
#include <thread>
#include <vector>

namespace saver_directory_test {

using namespace memsaver;

namespace {

/// Stands for an arena; the directory never calls it.
ArenaBase& stand_in(std::vector<std::unique_ptr<PlainArena<HostDriver>>>& made) {
    static const HostDriver driver{2_MiB};
    made.push_back(std::make_unique<PlainArena<HostDriver>>(driver, "stand-in", EventSink{}));
    return *made.back();
}

} // namespace

TEST_CASE("addresses are found in their range, and only there") {
    std::vector<std::unique_ptr<PlainArena<HostDriver>>> arenas;
    Directory directory;
    CHECK(directory.find(0) == nullptr);
    CHECK(directory.find(5000) == nullptr);
    ArenaBase& middle = stand_in(arenas);
    ArenaBase& low = stand_in(arenas);
    ArenaBase& high = stand_in(arenas);
    directory.add({2000, 1000}, middle);
    directory.add({1000, 1000}, low);
    directory.add({9000, 1}, high);
    CHECK(directory.find(999) == nullptr);
    CHECK(directory.find(1000) == &low);
    CHECK(directory.find(1999) == &low);
    CHECK(directory.find(2000) == &middle);
    CHECK(directory.find(2999) == &middle);
    CHECK(directory.find(3000) == nullptr);
    CHECK(directory.find(8999) == nullptr);
    CHECK(directory.find(9000) == &high);
    CHECK(directory.find(9001) == nullptr);
    CHECK(directory.find(~Address{0}) == nullptr);
}

TEST_CASE("readers see ranges come, and never lose one") {
    std::vector<std::unique_ptr<PlainArena<HostDriver>>> arenas;
    Directory directory;
    constexpr Address count = 200;
    std::atomic<Address> added{0};
    std::atomic<bool> wrong{false};
    std::thread reader{[&] {
        for (Address known = 0; known < count; known = added.load()) {
            for (Address i = 0; i < known; ++i) {
                if (directory.find((i + 1) * 1000 + i) == nullptr) wrong = true;
            }
        }
    }};
    ArenaBase& arena = stand_in(arenas);
    for (Address i = 0; i < count; ++i) {
        directory.add({(i + 1) * 1000, 1000}, arena);
        added = i + 1;
    }
    reader.join();
    CHECK(!wrong);
}

} // namespace saver_directory_test
