// A policy that wraps another policy and verifies checksums before bytes are restored. Including it requires xxHash.
#pragma once

#include "memsaver/core/macros_off.hpp"

#include "memsaver/backup/pieces.hpp"
#include "memsaver/backup/policy.hpp"
#include "memsaver/core/sizes.hpp"

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

namespace memsaver::inline v0_3 {

namespace detail {

/// Keeps a checksum (XXH3, 64 bits) of every saved unit for as long as the unit's bytes are kept.
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
                            format_address(unit.device) + " differs from the saved bytes and is not restored"};
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

} // namespace detail

/// Wraps another policy, as in `Verified<HostBackup>{{...}}`. Behaves like the wrapped policy, but a resume throws
/// BackupDamaged if the bytes differ from those that were saved, before the program gets any of the tag's memory back.
template <class P>
struct Verified {
    P policy{};

    /// See HostBackup::normalized; of the wrapped policy.
    [[nodiscard]] Verified normalized() const { return {detail::normalized(policy)}; }

    [[nodiscard]] std::string_view name() const noexcept { return "verified"; }
    /// Returns the name and options of the wrapped policy: "of host, pinned, ...".
    [[nodiscard]] std::string describe() const {
        const AnyPolicy inside{policy};
        return detail::text_of({"of ", inside.name(), ", ", inside.describe()});
    }

    /// `around` is set by policies that wrap this one.
    [[nodiscard]] auto open(const AnyDriver& driver) const {
        return policy.open(driver, std::make_shared<detail::ChecksumObserver>());
    }
    template <class Observer, class Around>
    [[nodiscard]] auto open(const AnyDriver& driver, const Observer& /*none*/, const Around& around) const {
        return policy.open(driver, std::make_shared<detail::ChecksumObserver>(), around);
    }

    friend bool operator==(const Verified&, const Verified&) = default;
};

} // namespace memsaver::inline v0_3

#include "memsaver/core/macros_on.hpp"
