// Definitions of discard.hpp.
#pragma once

#include "memsaver/backup/discard.hpp"
#include "memsaver/backup/lane.hpp"

#include <memory>
#include <optional>
#include <utility>

namespace memsaver::inline v0_3 {

namespace detail {

MEMSAVER_INLINE FillSlot::FillSlot(AnyDriver driver, std::optional<unsigned char> byte, bool poison)
    : lane_{std::make_shared<Lane>(std::move(driver))}, byte_{byte}, poison_{poison} {}

MEMSAVER_INLINE Ticket FillSlot::save(const LiveSet& live) {
    return poison_ && byte_ ? lane_->fill(live.handed_on, *byte_) : Ticket{};
}

MEMSAVER_INLINE Ticket FillSlot::restore(const LiveSet& live) {
    return byte_ ? lane_->fill(live.extents, *byte_) : Ticket{};
}

} // namespace detail

MEMSAVER_INLINE detail::FillSlot Discard::open(const AnyDriver& driver) const {
    return detail::FillSlot{driver, poison, true};
}

MEMSAVER_INLINE detail::FillSlot Zero::open(const AnyDriver& driver) const {
    return detail::FillSlot{driver, static_cast<unsigned char>(0)};
}

} // namespace memsaver::inline v0_3
