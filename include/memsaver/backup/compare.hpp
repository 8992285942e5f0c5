// Compares the device's bytes with kept ones. For programs that want to know whether they forgot an `invalidate`.
#pragma once

#include "memsaver/transfer/transfer.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <utility>
#include <vector>

namespace memsaver::inline v0_1 {

/// A ByteStore that keeps nothing and notes whether what it is given differs from what another has.
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
            const std::size_t part = bytes - done < step ? bytes - done : step;
            if (const Status status = store_.get(kept, location + done, part); !status.ok()) return status;
            if (std::memcmp(kept, from + done, part) != 0) differs_ = true;
        }
        return {};
    }
    Status get(std::byte* to, std::uint64_t location, std::size_t bytes) const noexcept {
        return store_.get(to, location, bytes);
    }
    [[nodiscard]] bool differs() const noexcept { return differs_.load(); }

private:
    const Store& store_;
    mutable std::atomic<bool> differs_{false};
};

/// Throws Misuse if the device's bytes are not those of `store`.
template <class D, ByteStore Store>
void compare_with(const Store& store, const D& driver, std::vector<Piece> pieces, std::shared_ptr<Ring<D>> ring,
                  const CrewOptions& crew) {
    const ComparingStore<Store> comparing{store};
    RingTransfer<D, ComparingStore<Store>> transfer{
        CopyLane<D>{driver, Direction::out}, std::move(pieces), comparing, std::move(ring), crew, nullptr, {}};
    transfer.start();
    check(transfer.wait(), "compare bytes");
    if (comparing.differs()) {
        throw Misuse{"bytes have changed since they were saved once: call invalidate(tag) after changing them"};
    }
}

} // namespace memsaver::inline v0_1
