// The gates of one arena: events that streams and captured graphs wait for, recorded anew whenever bytes are in flight.
// Knows nothing about graphs or about how the bytes are moved.
#pragma once

#include "memsaver/core/lists.hpp"
#include "memsaver/core/pointers.hpp"
#include "memsaver/core/ranges.hpp"
#include "memsaver/core/vector.hpp"
#include "memsaver/driver/fork_check.hpp"
#include "memsaver/driver/owned.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace memsaver::inline v0_3::detail {

/// A part of a block, and the event that completes once its bytes are resident. Shared by its handles and by the graphs
/// captured with it; the arena keeps only a weak reference.
struct GateMark {
    GateMark(AnyDriver on, Range part, Address of, std::uint64_t number)
        : driver{std::move(on)}, range{part}, block{of}, serial{number} {}

    AnyDriver driver;
    Range range;
    Address block; ///< address of the block
    std::uint64_t serial;
    OwnedEvent event;
};

/// All gates of an arena. Each event is recorded on a relay stream that follows the streams of its bytes. Bytes whose
/// copies are not on a stream yet are waited for, by the thread that begins them: a stream that waited for the host
/// would hold up others on a GPU, and calls that wait for the whole device.
///
/// Requires the arena's turn.
class ArenaGates {
public:
    ArenaGates& operator=(ArenaGates&&) = delete;
    explicit ArenaGates(AnyDriver driver) : driver_{std::move(driver)} {}

    /// Adds a gate, which is open. Throws Unavailable if the driver has no gates, or the error of a failing call.
    [[nodiscard]] std::shared_ptr<GateMark> add(Range range, Address block, std::uint64_t serial) {
        if (fork_ == nullptr) fork_ = new_shared<const ForkCheck>();
        if (gates_.size() == gates_.capacity()) { // so that destroyed gates cost nothing
            erase_in(gates_, [](const auto& gate) { return gate.expired(); });
            gates_.reserve(2 * gates_.size() + 16);
        }
        auto made = UniquePtr<GateMark>::make(driver_, range, block, serial);
        if (!relay_.owns()) check(relay_.open(driver_), "open a stream for gates");
        check(made->event.open(driver_, relay_.get()), "open an event for a gate");
        check(driver_.follow_outside(relay_.get(), made->event.get()),
              "create a gate"); // checks that the driver has gates
        check(driver_.record(made->event.get(), relay_.get()), "record the event of a gate");
        std::shared_ptr<GateMark> gate{made.release(), [fork = fork_](GateMark* ended) {
                                           if (!fork->forked()) delete ended;
                                       }};
        gates_.push_back(gate); // capacity was reserved
        return gate;
    }
    /// Returns the relay stream. Requires that there is a gate.
    [[nodiscard]] StreamRef relay() const noexcept { return relay_.get(); }

    /// Returns the gates in the order in which bytes are begun: those of `first`, then by address.
    [[nodiscard]] Vector<std::shared_ptr<GateMark>> in_order(const std::vector<Range>& first) const {
        Vector<std::shared_ptr<GateMark>> gates;
        for (const auto& known : gates_) {
            if (std::shared_ptr<GateMark> gate = known.lock()) gates.push_back(std::move(gate));
        }
        sort_by(gates, [](const auto& gate) { return gate->range.address; });
        sort_by(gates, [&](const auto& gate) {
            std::uint64_t wanted = 0; // index in `first`
            while (wanted < first.size() && !overlap(first[wanted], gate->range)) ++wanted;
            return wanted;
        });
        return gates;
    }

    /// Releases everything except the gates' events, which the gates own. What fails is kept for a retry.
    Status close() noexcept { return relay_.close(); }

private:
    AnyDriver driver_;
    std::shared_ptr<const ForkCheck> fork_; // for gates that outlive the arena
    Vector<std::weak_ptr<GateMark>> gates_;
    OwnedStream relay_;
};

} // namespace memsaver::inline v0_3::detail
