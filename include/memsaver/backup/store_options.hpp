// What the places that keep bytes have in common.
#pragma once

#include "memsaver/transfer/transfer.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace memsaver::inline v0_1 {

struct StoreOptions {
    CrewOptions crew{};
    std::size_t ring_bytes = 512_MiB; ///< pinned memory for bytes on their way
    std::shared_ptr<PieceObserver> observer{};
};

/// Room that a place has made: never at location 0.
struct Room {
    std::uint64_t location = 0;
    std::size_t bytes = 0;
};

/// What is checked piece by piece is cut so that every part of a block that may come or go alone has pieces of its own.
template <class D>
std::vector<Unit> cut_for_observer(std::vector<Unit> units, const StoreOptions& options, const D& driver) {
    if (!options.observer) return units;
    std::size_t granularity = 0;
    check(driver.granularity(granularity), "ask for the granularity of pages");
    return cut_at_addresses(units, granularity);
}

/// Near which processors a driver's copies go best, if it knows.
template <class D>
int numa_node_of(const D& driver) noexcept {
    if constexpr (requires {
                      { driver.numa_node() }
                      noexcept->std::same_as<int>;
                  })
        return driver.numa_node();
    return -1;
}

} // namespace memsaver::inline v0_1
