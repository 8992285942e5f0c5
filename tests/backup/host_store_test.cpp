// Host memory: regions, refused pinning, and views.
#include "backup/slot_support.hpp"
#include "memsaver/backup/host_store.hpp"
#include "support/machines.hpp"

namespace backup_host_store_test {
using namespace slot_test;

struct Place {
    explicit Place(bool pinned, std::size_t pin_limit = 1_GiB)
        : driver{HostDriver{64_MiB, {.granularity = 64_KiB, .pin_limit = pin_limit}}}, addresses{test::reserved(
                                                                                           driver, bytes, 64_KiB)},
          extent{addresses.get().address, bytes}, store{driver, pinned, {{.threads = 2}, 4_MiB}} {
        REQUIRE(extent.create(driver).ok());
        REQUIRE(extent.map(driver).ok());
    }
    [[nodiscard]] unsigned char* data() const { return reinterpret_cast<unsigned char*>(addresses.get().address); }
    [[nodiscard]] LiveSet live() {
        LiveSet set;
        set.tell = [this](const std::string& text) { told.push_back(text); };
        return set;
    }

    static constexpr std::size_t bytes = 256_KiB;
    Faulty driver;
    Reservation addresses;
    test::Backed extent;
    HostStore store;
    std::vector<std::string> told;
};

TEST_CASE("HostStore: memory populated ahead is not pinned, and is used by the thread that needs it") {
    Place place{true};
    const Room room = place.store.grow(3 * HostCells::cell_bytes, place.live());
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
    (void)pageable.store.grow(Place::bytes, pageable.live());
    CHECK(pageable.store.unpinned_cells().empty()); // populated when bytes are written
}

TEST_CASE("HostStore: pages that were written are counted by the system, and no longer in the budget") {
    for (const bool refused : {false, true}) { // pageable by choice, or because pinning is refused
        CAPTURE(refused);
        Place place{refused, 0};
        const auto budget = std::make_shared<HostBudget>();
        LiveSet live = place.live();
        live.host_budget = budget;
        const Room room = place.store.grow(Place::bytes, live);
        const std::size_t half = Place::bytes / 2;
        CHECK(place.store.out({{place.addresses.get().address, room.location, half}}, live)->wait().ok());
        CHECK(budget->promised_bytes() <= half);
        CHECK(place.store.out({{place.addresses.get().address + half, room.location + half, half}}, live)->wait().ok());
        CHECK(budget->promised_bytes() == 0);
    }
}
} // namespace backup_host_store_test
