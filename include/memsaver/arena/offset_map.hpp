// A hash table from addresses to small numbers. Outside of `reserve` it never allocates, so that freeing cannot fail.
#pragma once

#include "memsaver/driver/handles.hpp"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace memsaver::inline v0_1 {

/// Open addressing, linear probing, deletion by shifting back. Keys are non-zero multiples of 256. Not thread safe.
class OffsetMap {
public:
    static constexpr std::uint32_t none = ~std::uint32_t{0};

    /// Makes room for `count` keys in all. The only method that may throw (bad_alloc), and then nothing changed.
    void reserve(std::size_t count) {
        if (count * 2 <= slots_.size()) return;
        std::vector<Slot> grown(std::bit_ceil(count * 4 + 16));
        grown.swap(slots_);
        shift_ = 64U - static_cast<unsigned>(std::countr_zero(slots_.size()));
        for (const Slot& slot : grown) {
            if (slot.key != 0) place(slot.key, slot.value);
        }
    }

    [[nodiscard]] std::uint32_t find(Address key) const noexcept {
        if (slots_.empty()) return none;
        for (std::size_t i = home(key);; i = next(i)) {
            if (slots_[i].key == key) return slots_[i].value;
            if (slots_[i].key == 0) return none;
        }
    }

    /// Room for the key has been reserved.
    void insert(Address key, std::uint32_t value) noexcept { place(key, value); }

    void erase(Address key) noexcept {
        if (slots_.empty()) return;
        std::size_t hole = home(key);
        while (slots_[hole].key != key) {
            if (slots_[hole].key == 0) return;
            hole = next(hole);
        }
        for (std::size_t i = next(hole); slots_[i].key != 0; i = next(i)) {
            const std::size_t wanted = home(slots_[i].key);
            const bool stays = hole < i ? (hole < wanted && wanted <= i) : (hole < wanted || wanted <= i);
            if (stays) continue;
            slots_[hole] = slots_[i];
            hole = i;
        }
        slots_[hole] = {};
    }

private:
    struct Slot {
        Address key = 0;
        std::uint32_t value = none;
    };

    [[nodiscard]] std::size_t home(Address key) const noexcept {
        return static_cast<std::size_t>((key >> 8U) * 0x9E3779B97F4A7C15ULL >> shift_);
    }
    [[nodiscard]] std::size_t next(std::size_t i) const noexcept { return (i + 1) & (slots_.size() - 1); }
    void place(Address key, std::uint32_t value) noexcept {
        std::size_t i = home(key);
        while (slots_[i].key != 0 && slots_[i].key != key) i = next(i);
        slots_[i] = {key, value};
    }

    std::vector<Slot> slots_;
    unsigned shift_ = 64;
};

} // namespace memsaver::inline v0_1
