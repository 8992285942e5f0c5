// The policies that keep nothing: the bytes go, or read as zero.
#pragma once

#include "memsaver/backup/policy.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

namespace memsaver::inline v0_2 {

namespace detail {

class Lane;

/// Saves nothing. Restores by filling the resumed extents whole, or not at all: that is cheaper than looking for the
/// live blocks in them, and harms nobody.
class FillSlot {
public:
    /// `poison`: pages that are handed on read as the byte too.
    FillSlot(AnyDriver driver, std::optional<unsigned char> byte, bool poison = false);

    void prepare(const LiveSet&) {}
    Ticket save(const LiveSet& live);
    Ticket restore(const LiveSet& live);
    void resumed() noexcept {}
    void forget(std::uint64_t) noexcept {}
    void invalidate() noexcept {}
    [[nodiscard]] std::size_t backed_up_bytes() const noexcept { return 0; }

private:
    std::shared_ptr<Lane> lane_; // shared for being declared only; nobody else has it
    std::optional<unsigned char> byte_;
    bool poison_;
};

} // namespace detail

/// The bytes are undefined after resume. With `poison`, every byte reads as that value instead: a test mode, which
/// shows what was wrongly assumed to survive (fresh pages often read as zero and hide it).
struct Discard {
    std::optional<unsigned char> poison{};

    [[nodiscard]] std::string_view name() const noexcept { return poison ? "discard (poisoned)" : "discard"; }
    /// False: a pause loses the bytes. See AnyPolicy::keeps_bytes.
    [[nodiscard]] static constexpr bool keeps_bytes() noexcept { return false; }

    [[nodiscard]] detail::FillSlot open(const AnyDriver& driver) const;

    friend bool operator==(const Discard&, const Discard&) = default;
};

/// Live blocks read as zero after resume, by a fill: the driver promises nothing of fresh pages. It says nothing of
/// blocks allocated later.
struct Zero {
    [[nodiscard]] std::string_view name() const noexcept { return "zero"; }
    /// False: a pause loses the bytes. See AnyPolicy::keeps_bytes.
    [[nodiscard]] static constexpr bool keeps_bytes() noexcept { return false; }

    [[nodiscard]] detail::FillSlot open(const AnyDriver& driver) const;

    friend bool operator==(const Zero&, const Zero&) = default;
};

} // namespace memsaver::inline v0_2

#ifndef MEMSAVER_COMPILED
#include "memsaver/backup/discard.ipp"
#endif
