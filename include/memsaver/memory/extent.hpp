// A range of reserved addresses that holds, or has held, one physical block. Does not know what lives in it.
#pragma once

#include "memsaver/memory/mapping.hpp"
#include "memsaver/memory/physical_block.hpp"

#include <cstddef>

namespace memsaver::inline v0_1 {

/// All pages' sizes and addresses are multiples of it. Throws what a failing driver call stands for.
template <Pages D>
[[nodiscard]] std::size_t granularity_of(const D& driver) {
    std::size_t granularity = 0;
    check(driver.granularity(granularity), "ask for the granularity of pages");
    return granularity;
}

/// What an extent owns says what state it is in; nothing is assigned.
enum class ExtentState : unsigned char {
    active, ///< pages are mapped: its bytes can be used
    held,   ///< out of sight, but the driver refused to take the pages back; to be tried again
    paused, ///< addresses only
};

/// Move-only. Dies in the right order: unmapped, then released.
template <Pages D>
class Extent {
public:
    Extent(Address address, std::size_t bytes) noexcept : address_{address}, bytes_{bytes} {}

    [[nodiscard]] Address address() const noexcept { return address_; }
    [[nodiscard]] Address end() const noexcept { return address_ + bytes_; }
    [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

    [[nodiscard]] ExtentState state() const noexcept {
        if (mapping_.owns()) return ExtentState::active;
        return block_.owns() ? ExtentState::held : ExtentState::paused;
    }

    /// Physical bytes owned, mapped or held.
    [[nodiscard]] std::size_t physical_bytes() const noexcept { return block_.bytes(); }

    /// Takes pages for a paused extent, not yet in sight.
    Status create(const D& driver) noexcept { return block_.create(driver, bytes_); }

    /// Brings created pages in sight. On failure call `unmap`, which undoes as much as was done.
    Status map(const D& driver) noexcept { return mapping_.map(driver, address_, bytes_, block_.handle()); }

    /// Active to held. On failure it stays active.
    Status unmap() noexcept { return mapping_.unmap(); }

    /// Held to paused. On failure it stays held.
    Status release() noexcept { return block_.release(); }

private:
    Address address_;
    std::size_t bytes_;
    PhysicalBlock<D> block_; // declared before the mapping, so that it dies after it
    Mapping<D> mapping_;
};

} // namespace memsaver::inline v0_1
