// Which parts of a reservation are taken. Pure bookkeeping.
#pragma once

#include "memsaver/transfer/range.hpp"

#include <cstddef>
#include <iterator>
#include <map>

namespace memsaver::inline v0_1 {

/// First fit from the lowest address, so that what is taken stays together. Not thread safe.
class AddressSpace {
public:
    explicit AddressSpace(Range all) : all_{all} {}

    /// Takes the lowest gap of `bytes` at a multiple of `alignment` (a power of two). Answers its address, or 0 if
    /// there is none. May throw bad_alloc; then nothing changed.
    Address take(std::size_t bytes, std::size_t alignment) {
        Address at = align(all_.address, alignment);
        for (const auto& [begin, end] : taken_) {
            if (at <= begin && begin - at >= bytes) break;
            if (end > at) at = align(end, alignment);
        }
        if (at > all_.end() || all_.end() - at < bytes) return 0;
        taken_.emplace(at, at + bytes);
        return at;
    }

    /// So that giving back what ends at `at`, of a range that was taken, needs no memory. May throw bad_alloc; then
    /// nothing changed.
    void split(Address at) {
        const auto last = std::prev(taken_.lower_bound(at));
        if (last->second <= at) return;
        taken_.emplace(at, last->second);
        last->second = at;
    }

    /// Gives back a range that was taken, in whatever pieces. May throw bad_alloc; then nothing changed.
    void give(Range range) {
        split(range.end());
        auto piece = std::prev(taken_.upper_bound(range.address));
        if (piece->first < range.address) {
            piece->second = range.address;
            ++piece;
        }
        while (piece != taken_.end() && piece->first < range.end()) piece = taken_.erase(piece);
    }

    [[nodiscard]] Range all() const noexcept { return all_; }

private:
    static Address align(Address at, std::size_t alignment) noexcept {
        return (at + alignment - 1) & ~(Address{alignment} - 1);
    }

    Range all_;
    std::map<Address, Address> taken_; // begin to end; neighbours are not merged
};

} // namespace memsaver::inline v0_1
