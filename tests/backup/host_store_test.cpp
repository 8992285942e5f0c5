// Host memory that is populated ahead of the thread that pins it.
#include "memsaver/backup/host_store.hpp"
#include "support/machines.hpp"

namespace backup_host_store_test {
using namespace test;

struct Place {
    explicit Place(bool pinned) : store{driver, pinned, {{.threads = 2}, 4_MiB}} {}

    FaultyDriver<HostDriver> driver{HostDriver{64_MiB}};
    HostStore store;
};

TEST_CASE("HostStore: memory populated ahead is not pinned, and is used by the thread that needs it") {
    Place place{true};
    const Room room = place.store.grow(3 * HostCells::cell_bytes, {});
    const std::uint64_t cell = align_up(room.location + 1, HostCells::cell_bytes); // the first is ready
    const std::size_t pinned = place.driver.pinned_bytes();
    place.driver.fail({.call = Call::populate_host});
    const Room unpinned = place.store.unpinned_cells().front();
    CHECK(unpinned.location == cell);
    CHECK(unpinned.bytes == HostCells::cell_bytes);
    CHECK(!place.store.pages_of(cell)->prepare(cell, false).ok());
    CHECK(place.store.pages_of(cell)->prepare(cell, false).ok());
    CHECK(place.store.pages_of(cell)->prepare(cell, false).ok());
    CHECK(place.driver.pinned_bytes() == pinned);
    place.driver.fail({.call = Call::populate_host}); // it is not populated again
    BackupStore::Reached host;
    CHECK(place.store.reach(cell, 4096, host).ok());
    CHECK(reinterpret_cast<std::uint64_t>(host.at) == cell);
    CHECK(host.pinned);
    CHECK(place.store.unpinned_cells().front().location == cell + HostCells::cell_bytes);
    CHECK(place.driver.pinned_bytes() == pinned + HostCells::cell_bytes);

    Place pageable{false};
    (void)pageable.store.grow(256_KiB, {});
    CHECK(pageable.store.unpinned_cells().empty()); // populated when bytes are written
}
} // namespace backup_host_store_test
