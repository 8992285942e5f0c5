// The policy that lets the bytes go.
#pragma once

#include "memsaver/backup/backup_concept.hpp"
#include "memsaver/backup/fill_slot.hpp"

#include <optional>
#include <string_view>

namespace memsaver::inline v0_1 {

/// The bytes are undefined after resume. With `poison`, every byte reads as that value instead: a test mode, which
/// shows what was wrongly assumed to survive (fresh pages often read as zero and hide it).
struct Discard {
    std::optional<unsigned char> poison{};

    [[nodiscard]] std::string_view name() const noexcept { return poison ? "discard (poisoned)" : "discard"; }

    template <Copies D>
    [[nodiscard]] FillSlot<D> open(const D& driver) const {
        return FillSlot<D>{driver, poison};
    }

    friend bool operator==(const Discard&, const Discard&) = default;
};

} // namespace memsaver::inline v0_1
