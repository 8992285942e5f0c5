// What the places that keep bytes have in common.
#pragma once

#include "memsaver/transfer/transfer.hpp"

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace memsaver::inline v0_1 {

struct StoreOptions {
    CrewOptions crew{};
    std::size_t ring_bytes = 64_MiB; ///< pinned memory for bytes on their way
    std::shared_ptr<PieceObserver> observer{};
};

/// Room that a place has made: never at location 0.
struct Room {
    std::uint64_t location = 0;
    std::size_t bytes = 0;
};

/// Whose bytes an error is about, as the beginning of its text.
inline std::string of_tag(const std::string& tag) { return tag.empty() ? tag : "tag \"" + tag + "\", "; }

/// The first that is not ok, if there is one.
inline Status first_failure(std::initializer_list<Status> all) noexcept {
    for (const Status& status : all) {
        if (!status.ok()) return status;
    }
    return {};
}

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
