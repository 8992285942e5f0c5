// Compares the device's bytes with kept ones. For programs that want to know whether they forgot an `invalidate`.
#pragma once

#include "memsaver/backup/store_options.hpp"
#include "memsaver/transfer/transfer.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

namespace memsaver::inline v0_1 {

/// A ByteStore that keeps nothing and notes where what it is given differs from what another has.
template <ByteStore Store>
class ComparingStore {
public:
    static constexpr std::size_t alignment = Store::alignment;

    explicit ComparingStore(const Store& store) noexcept : store_{store} {}

    Status put(const std::byte* from, std::uint64_t location, std::size_t bytes) const noexcept {
        constexpr std::size_t step = 1_MiB;
        const std::unique_ptr<std::byte[]> memory{new (std::nothrow) std::byte[step + alignment]};
        if (!memory) return {StatusKind::out_of_host_memory, 0, "no host memory to compare"};
        void* start = memory.get();
        std::size_t space = step + alignment;
        auto* const kept = static_cast<std::byte*>(std::align(alignment, step, start, space));
        for (std::size_t done = 0; done < bytes; done += step) {
            const std::size_t part = std::min(bytes - done, step);
            if (const Status status = store_.get(kept, location + done, part); !status.ok()) return status;
            if (std::memcmp(kept, from + done, part) == 0) continue;
            const std::byte* const other = std::mismatch(kept, kept + part, from + done).first;
            note(location + done + static_cast<std::size_t>(other - kept));
        }
        return {};
    }
    Status get(std::byte* to, std::uint64_t location, std::size_t bytes) const noexcept {
        return store_.get(to, location, bytes);
    }
    [[nodiscard]] bool differs() const noexcept { return first_.load() != none; }
    /// The first location whose byte differs, of those seen so far.
    [[nodiscard]] std::uint64_t first_difference() const noexcept { return first_.load(); }

private:
    static constexpr std::uint64_t none = std::numeric_limits<std::uint64_t>::max();

    void note(std::uint64_t location) const noexcept {
        std::uint64_t first = first_.load();
        while (location < first && !first_.compare_exchange_weak(first, location)) {
        }
    }

    const Store& store_;
    mutable std::atomic<std::uint64_t> first_{none};
};

/// What is wrong, with the block in question: the unit that has the location.
inline std::string difference_text(const std::vector<Unit>& units, std::uint64_t location, const std::string& tag) {
    std::string text = "tag \"" + tag + "\": bytes have changed since they were saved once";
    for (const Unit& unit : units) {
        if (location < unit.location || location - unit.location >= unit.bytes) continue;
        text += ", such as the one at " + format_address(unit.device + (location - unit.location)) +
                ", in a block of " + format_bytes(unit.bytes) + " at " + format_address(unit.device);
    }
    return text + ": call invalidate(\"" + tag + "\") after changing them";
}

/// Throws Misuse if the device's bytes are not those of `store`. `units` are of whole blocks, `pieces` what they are
/// cut into.
template <class D, ByteStore Store>
void compare_with(const Store& store, const D& driver, const std::vector<Unit>& units, std::vector<Piece> pieces,
                  std::shared_ptr<Ring<D>> ring, const CrewOptions& crew, const std::string& tag) {
    const ComparingStore<Store> comparing{store};
    RingTransfer<D, ComparingStore<Store>> transfer{CopyLane<D>{driver, Direction::out},
                                                    std::move(pieces),
                                                    comparing,
                                                    std::move(ring),
                                                    crew,
                                                    nullptr,
                                                    {},
                                                    of_tag(tag)};
    transfer.start();
    check(transfer.wait(), "compare bytes");
    if (comparing.differs()) throw Misuse{difference_text(units, comparing.first_difference(), tag)};
}

} // namespace memsaver::inline v0_1
