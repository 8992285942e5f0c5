// Definitions of verified.hpp.
#pragma once

#include "memsaver/backup/verified.hpp"
#include "memsaver/core/sizes.hpp"

#ifndef XXH_INLINE_ALL
#define XXH_INLINE_ALL
#endif
#include <xxhash.h>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>

namespace memsaver::inline v0_3 {

namespace detail {

inline void ChecksumObserver::about(const std::string& tag) {
    const std::lock_guard lock{mutex_};
    tag_ = tag;
}

inline void ChecksumObserver::saved(const Unit& unit, const std::byte* bytes) {
    const Sum sum{unit.bytes, XXH3_64bits(bytes, unit.bytes)};
    const std::lock_guard lock{mutex_};
    sums_[unit.location] = sum;
}

inline void ChecksumObserver::restoring(const Unit& unit, const std::byte* bytes) {
    const std::uint64_t found = XXH3_64bits(bytes, unit.bytes);
    const std::lock_guard lock{mutex_};
    const auto sum = sums_.find(unit.location);
    if (sum != sums_.end() && sum->second.bytes == unit.bytes && sum->second.checksum == found) return;
    throw BackupDamaged{"tag \"" + tag_ + "\": the backup of " + format_bytes(unit.bytes) + " at " +
                        format_address(unit.device) + " differs from the saved bytes and is not restored"};
}

inline void ChecksumObserver::discarded(std::uint64_t location, std::size_t bytes) noexcept {
    const std::lock_guard lock{mutex_};
    sums_.erase(sums_.lower_bound(location), sums_.lower_bound(location + bytes));
}

inline std::size_t ChecksumObserver::checksums() const {
    const std::lock_guard lock{mutex_};
    return sums_.size();
}

} // namespace detail

} // namespace memsaver::inline v0_3
