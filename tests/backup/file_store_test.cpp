// Room in a file: growth, holes, a full disk, and views.
#include "memsaver/backup/file_store.hpp"

#include "backup/slot_support.hpp"

#include <doctest/doctest.h>

#include <cstring>
#include <filesystem>
#include <vector>

using namespace slot_test;

namespace {

struct Place : Memory {
    FileStore<Machine> store{driver, std::filesystem::temp_directory_path().string(), {{.threads = 2}, 4_MiB}};
    [[nodiscard]] std::vector<Unit> all(const Room& room) const {
        return {{addresses.address(), room.location, bytes}};
    }
};

} // namespace

TEST_CASE("FileStore: no file before room is needed; bytes go out and come back") {
    Place place;
    CHECK(place.driver.calls(Call::open_file) == 0);
    const Room room = place.store.grow(Place::bytes, {});
    CHECK(room.location == FileStore<Machine>::alignment);
    const Room more = place.store.grow(4096, {});
    CHECK(more.location == room.location + Place::bytes);
    CHECK(place.driver.calls(Call::open_file) == 1);
    CHECK(place.store.out(place.all(room), {})->wait().ok());
    std::memset(place.data(), 0, Place::bytes);
    CHECK(place.store.in(place.all(room), {})->wait().ok());
    CHECK(place.count(1) == Place::bytes);
}

TEST_CASE("FileStore: a full disk is an error before anything is written, and gives back what it got") {
    Place place;
    place.driver.fail({.call = Call::allocate_file});
    CHECK_THROWS_AS((void)place.store.grow(Place::bytes, {}), Error);
    CHECK(place.driver.calls(Call::punch_file) == 1);
    CHECK(place.driver.calls(Call::write_file) == 0);
    CHECK(place.store.grow(Place::bytes, {}).location == FileStore<Machine>::alignment);
}

TEST_CASE("FileStore: what is discarded is punched out; what is cleared is closed") {
    Place place;
    const Room room = place.store.grow(Place::bytes, {});
    place.store.discard(room.location, 4096);
    CHECK(place.driver.calls(Call::punch_file) == 1);
    place.store.clear();
    CHECK(place.driver.outstanding().files == 0);
    place.store.discard(room.location, 4096); // no file, no call
    CHECK(place.driver.calls(Call::punch_file) == 1);
    CHECK(place.store.grow(4096, {}).location == FileStore<Machine>::alignment); // from the beginning
}

TEST_CASE("FileStore: a view is a copy, of odd parts too, and outlives the file") {
    Place place;
    const Room room = place.store.grow(Place::bytes, {});
    for (std::size_t i = 0; i < Place::bytes; ++i) place.data()[i] = static_cast<unsigned char>(i / 100);
    CHECK(place.store.out(place.all(room), {})->wait().ok());
    const BackupView view = place.store.view(room.location + 4099, 7001);
    place.store.clear();
    for (std::size_t i = 0; i < 7001; ++i) {
        REQUIRE(view.data()[i] == std::byte{static_cast<unsigned char>((i + 4099) / 100)});
    }
}

TEST_CASE("FileStore: a failed write or read is the transfer's failure") {
    Place place;
    const Room room = place.store.grow(Place::bytes, {});
    place.driver.fail({.call = Call::write_file});
    CHECK_THROWS_AS((void)place.store.out(place.all(room), {})->wait(), Error);
    CHECK(place.store.out(place.all(room), {})->wait().ok());
    place.driver.fail({.call = Call::read_file});
    CHECK_THROWS_AS((void)place.store.in(place.all(room), {})->wait(), Error);
    place.driver.fail({.call = Call::read_file});
    CHECK_THROWS_AS((void)place.store.view(room.location, 10), Error);
    CHECK(place.store.in(place.all(room), {})->wait().ok());
}

TEST_CASE("FileStore: comparing tells a single byte") {
    Place place;
    const Room room = place.store.grow(Place::bytes, {});
    CHECK(place.store.out(place.all(room), {})->wait().ok());
    CHECK_NOTHROW(place.store.compare(place.all(room), {}));
    place.data()[70'000] = 2;
    CHECK_THROWS_AS(place.store.compare(place.all(room), {}), Misuse);
}
