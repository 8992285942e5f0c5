// A policy around a policy: kept bytes are checked before they come back. Needs xxHash, for those who include this.
#pragma once

#include "memsaver/backup/damaged.hpp"
#include "memsaver/backup/pieces.hpp"
#include "memsaver/backup/policy.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

namespace memsaver::inline v0_2 {

namespace detail {

/// A checksum (XXH3, 64 bits) of every unit, taken as it passes, for as long as its bytes are kept.
class ChecksumObserver final : public PieceObserver {
public:
    inline void about(const std::string& tag) override;
    inline void saved(const Unit& unit, const std::byte* bytes) override;
    inline void restoring(const Unit& unit, const std::byte* bytes) override;
    inline void discarded(std::uint64_t location, std::size_t bytes) noexcept override;

    [[nodiscard]] std::size_t checksums() const;

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

/// `Verified<HostBackup>{{...}}`: as the policy inside, and a resume whose bytes differ from what was saved throws
/// BackupDamaged before any of the tag's memory is the program's again.
template <class P>
struct Verified {
    P policy{};

    [[nodiscard]] std::string_view name() const noexcept { return "verified"; }
    /// The name and the options of the policy inside: "of host, pinned, ...".
    [[nodiscard]] std::string describe() const {
        const AnyPolicy inside{policy};
        return "of " + std::string{inside.name()} + ", " + inside.describe();
    }

    /// `around` is for the policies around this one.
    [[nodiscard]] auto open(const AnyDriver& driver) const {
        return policy.open(driver, std::make_shared<detail::ChecksumObserver>());
    }
    template <class Observer, class Around>
    [[nodiscard]] auto open(const AnyDriver& driver, const Observer& /*none*/, const Around& around) const {
        return policy.open(driver, std::make_shared<detail::ChecksumObserver>(), around);
    }

    friend bool operator==(const Verified&, const Verified&) = default;
};

} // namespace memsaver::inline v0_2

#include "memsaver/backup/verified.ipp" // always: the compiled form does without xxHash
