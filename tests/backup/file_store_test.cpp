// Space in a file: growth, holes, a full disk, and views.
#include "backup/slot_support.hpp"
#include "memsaver/backup/file_store.hpp"
#include "support/machines.hpp"

namespace backup_file_store_test {
using namespace slot_test;

struct Place : Pages {
    FileStore store{driver, std::filesystem::temp_directory_path().string(), {{.threads = 2}, 4_MiB}};
    [[nodiscard]] detail::Vector<Unit> all(const Room& room) const {
        return {{addresses.get().address, room.location, bytes}};
    }
};

TEST_CASE("FileStore: a view is a copy, of odd parts too, and outlives the file") {
    Place place;
    const Room room = place.store.grow(Place::bytes, {});
    for (std::size_t i = 0; i < Place::bytes; ++i) place.data()[i] = static_cast<unsigned char>(i / 100);
    CHECK(place.store.out(place.all(room), {})->wait().ok());
    BackupView view = place.store.view(room.location + 4099, 7001);
    CHECK(place.store.clear().ok());
    for (std::size_t i = 0; i < 7001; ++i)
        REQUIRE(view.data()[i] == std::byte{static_cast<unsigned char>((i + 4099) / 100)});
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
} // namespace backup_file_store_test
