// The slot of policies that keep nothing: at most they fill what comes back.
#pragma once

#include "memsaver/backup/backup_concept.hpp"

#include <optional>
#include <utility>

namespace memsaver::inline v0_1 {

/// Saves nothing. Restores by filling the resumed extents whole, or not at all: that is cheaper than looking for the
/// live blocks in them, and harms nobody.
template <Copies D>
class FillSlot {
public:
    FillSlot(D driver, std::optional<unsigned char> byte) : lane_{std::move(driver)}, byte_{byte} {}

    void prepare(const LiveSet&) {}
    Ticket save(const LiveSet&) { return {}; }
    Ticket restore(const LiveSet& live) { return byte_ ? lane_.fill(live.extents, *byte_) : Ticket{}; }
    void resumed() noexcept {}
    void forget(std::uint64_t) noexcept {}
    void invalidate() noexcept {}
    [[nodiscard]] std::size_t backed_up_bytes() const noexcept { return 0; }

private:
    Lane<D> lane_;
    std::optional<unsigned char> byte_;
};

} // namespace memsaver::inline v0_1
