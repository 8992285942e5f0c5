// Space in a file: growth, holes, a full disk, and views.
#include "memsaver/backup/file_backup.hpp"
#include "memsaver/backup/file_store.hpp"

#include "backup/slot_support.hpp"

#include <doctest/doctest.h>

#include <cstring>
#include <filesystem>
#include <vector>

namespace backup_file_store_test {

using namespace slot_test;

namespace {

struct Place : Pages {
    FileStore store{driver, std::filesystem::temp_directory_path().string(), {{.threads = 2}, 4_MiB}};
    [[nodiscard]] std::vector<Unit> all(const Room& room) const {
        return {{addresses.get().address, room.location, bytes}};
    }
};

} // namespace

TEST_CASE("FileStore: no file before space is needed; bytes are saved and restored") {
    Place place;
    CHECK(place.driver.calls(Call::open_file) == 0);
    const Room room = place.store.grow(Place::bytes, {});
    CHECK(room.location == FileStore::page);
    const Room more = place.store.grow(4096, {});
    CHECK(more.location == room.location + Place::bytes);
    CHECK(place.driver.calls(Call::open_file) == 1);
    CHECK(place.store.out(place.all(room), {})->wait().ok());
    std::memset(place.data(), 0, Place::bytes);
    CHECK(place.store.in(place.all(room), {})->wait().ok());
    CHECK(place.count(1) == Place::bytes);
}

TEST_CASE("FileStore: discarded ranges are punched out; a cleared file is closed") {
    Place place;
    const Room room = place.store.grow(Place::bytes, {});
    place.store.discard(room.location, 4096);
    CHECK(place.driver.calls(Call::punch_file) == 1);
    CHECK(place.store.clear().ok());
    CHECK(place.driver.outstanding().files == 0);
    place.store.discard(room.location, 4096); // no file, no call
    CHECK(place.driver.calls(Call::punch_file) == 1);
    CHECK(place.store.grow(4096, {}).location == FileStore::page); // from the beginning
}

TEST_CASE("FileStore: a view is a copy, of odd parts too, and outlives the file") {
    Place place;
    const Room room = place.store.grow(Place::bytes, {});
    for (std::size_t i = 0; i < Place::bytes; ++i) place.data()[i] = static_cast<unsigned char>(i / 100);
    CHECK(place.store.out(place.all(room), {})->wait().ok());
    BackupView view = place.store.view(room.location + 4099, 7001);
    CHECK(place.store.clear().ok());
    for (std::size_t i = 0; i < 7001; ++i) {
        REQUIRE(view.data()[i] == std::byte{static_cast<unsigned char>((i + 4099) / 100)});
    }
    place.driver.fail({.call = Call::unmap_host}); // when the view is destroyed
    view = {};
    CHECK(place.driver.host_bytes() != 0);
    CHECK(place.store.retry().ok());
    CHECK(place.driver.host_bytes() == 0);
}

TEST_CASE("FileStore: closing reports failures") {
    Place place;
    const Room room = place.store.grow(Place::bytes, {});
    CHECK(place.store.out(place.all(room), {})->wait().ok());
    place.driver.fail({.call = Call::close_file});
    CHECK(place.store.clear().code == Failure::injected_code);
    CHECK(place.store.clear().ok()); // a file is not closed twice
    CHECK(place.driver.calls(Call::close_file) == 1);
    CHECK(place.driver.pinned_bytes() == 0);
}

TEST_CASE("FileStore: errors name the tag") {
    Place place;
    LiveSet live;
    live.tag = "cold";
    const auto names_it = [](auto act) {
        try {
            act();
            FAIL_CHECK("nothing was thrown");
        } catch (const Error& error) {
            CAPTURE(std::string{error.what()});
            CHECK(std::string{error.what()}.find("(tag \"cold\", ") != std::string::npos);
        }
    };
    place.driver.fail({.call = Call::open_file});
    names_it([&] { (void)place.store.grow(Place::bytes, live); });
    place.driver.fail({.call = Call::allocate_file});
    names_it([&] { (void)place.store.grow(Place::bytes, live); });
    const Room room = place.store.grow(Place::bytes, live);
    for (const Call call : {Call::map_host, Call::populate_host, Call::write_file}) {
        place.driver.fail({.call = call, .kind = StatusKind::out_of_host_memory});
        names_it([&] { (void)place.store.out(place.all(room), live)->wait(); });
    }
    CHECK(place.store.out(place.all(room), live)->wait().ok());
    for (const Call call : {Call::map_host, Call::populate_host, Call::read_file}) {
        place.driver.fail({.call = call});
        names_it([&] { (void)place.store.view(room.location, 100); });
    }
}

} // namespace backup_file_store_test
