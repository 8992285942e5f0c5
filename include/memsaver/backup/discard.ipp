// Definitions of discard.hpp.
#pragma once

#include "memsaver/backup/discard.hpp"

namespace memsaver::inline v0_2 {

MEMSAVER_INLINE detail::FillSlot Discard::open(const AnyDriver& driver) const {
    return detail::FillSlot{driver, poison};
}

MEMSAVER_INLINE detail::FillSlot Zero::open(const AnyDriver& driver) const {
    return detail::FillSlot{driver, static_cast<unsigned char>(0)};
}

} // namespace memsaver::inline v0_2
