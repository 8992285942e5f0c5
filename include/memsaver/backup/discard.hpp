// The policies that save nothing: after a resume the bytes are undefined or zero.
#pragma once

#include "memsaver/backup/policy.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {

/// Saves nothing. `restore` fills all of the resumed extents, or none of them. Filling whole extents is cheaper than
/// looking up the live blocks in them and has no side effects.
class FillSlot {
public:
    /// `poison`: also fills pages that are handed over to another tag.
    FillSlot(AnyDriver driver, std::optional<unsigned char> byte, bool poison = false);

    void prepare(const LiveSet&) {}
    Ticket save(const LiveSet& live);
    Ticket restore(const LiveSet& live);
    void resumed() noexcept {}
    void forget(std::uint64_t) noexcept {}
    void invalidate() noexcept {}
    [[nodiscard]] std::size_t backed_up_bytes() const noexcept { return 0; }

private:
    struct Lane;
    struct Mark;

    /// Enqueues a fill of every range. Throws the exception for a failing call; the fills enqueued before it have
    /// completed by then.
    [[nodiscard]] Ticket fill(const std::vector<Range>& ranges) const;

    std::shared_ptr<Lane> lane_; // shared because Lane is only declared here; there is no other owner
    std::optional<unsigned char> byte_;
    bool poison_;
};

} // namespace detail

/// The bytes are undefined after a resume. With `poison`, every byte reads as that value instead. This is a test mode
/// for code that wrongly assumes its bytes to survive: fresh pages often read as zero, which hides the error.
struct Discard {
    std::optional<unsigned char> poison{};

    [[nodiscard]] std::string_view name() const noexcept { return poison ? "discard (poisoned)" : "discard"; }
    /// Returns false: a pause loses the bytes. See AnyPolicy::keeps_bytes.
    [[nodiscard]] static constexpr bool keeps_bytes() noexcept { return false; }

    [[nodiscard]] detail::FillSlot open(const AnyDriver& driver) const;

    friend bool operator==(const Discard&, const Discard&) = default;
};

/// Live blocks read as zero after a resume. The memory is filled explicitly because the driver does not define the
/// contents of fresh pages. Blocks allocated later are not guaranteed to be zero.
struct Zero {
    [[nodiscard]] std::string_view name() const noexcept { return "zero"; }
    /// Returns false: a pause loses the bytes. See AnyPolicy::keeps_bytes.
    [[nodiscard]] static constexpr bool keeps_bytes() noexcept { return false; }

    [[nodiscard]] detail::FillSlot open(const AnyDriver& driver) const;

    friend bool operator==(const Zero&, const Zero&) = default;
};

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/backup/discard.ipp"
#endif
