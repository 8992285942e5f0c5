// The policy after which the bytes read as zero.
#pragma once

#include "memsaver/backup/backup_concept.hpp"
#include "memsaver/backup/fill_slot.hpp"

#include <string_view>

namespace memsaver::inline v0_1 {

/// Live blocks read as zero after resume, by a fill: the driver promises nothing of fresh pages. It says nothing of
/// blocks allocated later.
struct Zero {
    [[nodiscard]] std::string_view name() const noexcept { return "zero"; }

    template <Copies D>
    [[nodiscard]] FillSlot<D> open(const D& driver) const {
        return FillSlot<D>{driver, static_cast<unsigned char>(0)};
    }

    friend bool operator==(const Zero&, const Zero&) = default;
};

} // namespace memsaver::inline v0_1
