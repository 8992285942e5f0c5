// A TaggedArena with the current policy of a sweep, and the expected bytes of its block.
#pragma once

#include "failure/policies.hpp"

namespace test {

/// A policy chosen at run time, for a type that needs it at compile time.
struct ChosenPolicy {
    AnyPolicy chosen;

    struct Slot {
        detail::UniquePtr<detail::AnySlot> of;
        void prepare(const LiveSet& live) { of->prepare(live); }
        Ticket save(const LiveSet& live) { return of->save(live); }
        Ticket restore(const LiveSet& live) { return of->restore(live); }
        Status resumed() noexcept { return of->resumed(); }
        void forget(std::uint64_t serial) noexcept { of->forget(serial); }
        void invalidate() noexcept { of->invalidate(); }
        [[nodiscard]] std::size_t backed_up_bytes() const noexcept { return of->backed_up_bytes(); }
        [[nodiscard]] BackupView view(std::uint64_t serial, std::size_t offset, std::size_t bytes) const {
            return of->view(serial, offset, bytes);
        }
        [[nodiscard]] std::shared_ptr<DeviceScratch> scratch() const noexcept { return of->scratch(); }
        Status close() noexcept { return of->close(); }
    };

    [[nodiscard]] std::string_view name() const noexcept { return chosen.name(); }
    [[nodiscard]] Slot open(const AnyDriver& driver) const { return {chosen.open(driver)}; }
    friend bool operator==(const ChosenPolicy&, const ChosenPolicy&) = default;
};

using AloneArena = TaggedArena<FailingDriver, ChosenPolicy>;
} // namespace test
