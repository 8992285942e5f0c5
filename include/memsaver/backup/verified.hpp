// A policy around a policy: kept bytes are checked before they come back. Needs xxHash, for those who include this.
#pragma once

#include "memsaver/backup/backup_concept.hpp"

#ifndef XXH_INLINE_ALL
#define XXH_INLINE_ALL
#endif
#include <xxhash.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

namespace memsaver::inline v0_1 {

/// Kept bytes are not those that were saved. The memory is still paused; nothing of it has been resumed.
class [[gnu::visibility("default")]] BackupDamaged : public Error {
    using Error::Error;
};

/// A checksum (XXH3, 64 bits) of every unit, taken as it passes, for as long as its bytes are kept.
class ChecksumObserver final : public PieceObserver {
public:
    void about(const std::string& tag) override {
        const std::lock_guard lock{mutex_};
        tag_ = tag;
    }
    void saved(const Unit& unit, const std::byte* bytes) override {
        const Sum sum{unit.bytes, XXH3_64bits(bytes, unit.bytes)};
        const std::lock_guard lock{mutex_};
        sums_[unit.location] = sum;
    }
    void restoring(const Unit& unit, const std::byte* bytes) override {
        const std::uint64_t found = XXH3_64bits(bytes, unit.bytes);
        const std::lock_guard lock{mutex_};
        const auto sum = sums_.find(unit.location);
        if (sum != sums_.end() && sum->second.bytes == unit.bytes && sum->second.checksum == found) return;
        throw BackupDamaged{"tag \"" + tag_ + "\": the backup of " + format_bytes(unit.bytes) + " at " +
                            format_address(unit.device) + " is not what was saved; it is not resumed"};
    }
    void discarded(std::uint64_t location, std::size_t bytes) noexcept override {
        const std::lock_guard lock{mutex_};
        sums_.erase(sums_.lower_bound(location), sums_.lower_bound(location + bytes));
    }

    [[nodiscard]] std::size_t checksums() const {
        const std::lock_guard lock{mutex_};
        return sums_.size();
    }

private:
    struct Sum {
        std::size_t bytes;
        std::uint64_t checksum;
    };
    mutable std::mutex mutex_;
    std::string tag_;
    std::map<std::uint64_t, Sum> sums_; // by location
};

/// `Verified<HostBackup>{{...}}`: as the policy inside, and a resume whose bytes differ from what was saved throws
/// BackupDamaged before any of the tag's memory is the program's again.
template <class P>
struct Verified {
    P policy{};

    [[nodiscard]] std::string_view name() const noexcept { return "verified"; }

    template <class D>
    [[nodiscard]] auto open(const D& driver) const {
        return policy.open(driver, std::make_shared<ChecksumObserver>());
    }

    friend bool operator==(const Verified&, const Verified&) = default;
};

} // namespace memsaver::inline v0_1
