// Definitions of vector.hpp.
#pragma once

#include "memsaver/core/vector.hpp"

#include <cstring>

namespace memsaver::inline v0_3::detail {

MEMSAVER_INLINE void* grow_vector(void* data, std::size_t size, std::size_t& capacity, std::size_t wanted,
                                  std::size_t bytes_of_one, void (*relocate)(void* to, void* from, std::size_t count)) {
    const std::size_t room = wanted < 2 * capacity ? 2 * capacity : wanted;
    if (room > static_cast<std::size_t>(-1) / bytes_of_one) throw std::bad_alloc{};
    void* const grown = ::operator new(room* bytes_of_one);
    if (relocate != nullptr) {
        relocate(grown, data, size);
    } else if (size != 0) {
        std::memcpy(grown, data, size * bytes_of_one);
    }
    ::operator delete(data);
    capacity = room;
    return grown;
}

} // namespace memsaver::inline v0_3::detail
