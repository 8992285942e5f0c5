// Definitions of gates.hpp.
#pragma once

#include "memsaver/arena/gates.hpp"
#include "memsaver/core/lists.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {

MEMSAVER_INLINE std::shared_ptr<GateMark> ArenaGates::add(Range range, Address block, std::uint64_t serial) {
    if (fork_ == nullptr) fork_ = std::make_shared<const ForkCheck>();
    if (gates_.size() == gates_.capacity()) { // so that destroyed gates cost nothing
        erase_in(gates_, [](const auto& gate) { return gate.expired(); });
        gates_.reserve(2 * gates_.size() + 16);
    }
    auto made = std::make_unique<GateMark>(driver_, range, block, serial);
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

MEMSAVER_INLINE void ArenaGates::record(const std::vector<Bringing>& coming, const std::vector<Range>& first,
                                        FunctionRef<bool(const GateMark&)> lives,
                                        FunctionRef<void(const Status&, Ticket&)> moved) {
    struct Due {
        std::shared_ptr<GateMark> gate;
        std::size_t wanted; // index in `first`
    };
    std::vector<Due> due;
    for (const auto& known : gates_) {
        std::shared_ptr<GateMark> gate = known.lock();
        if (gate == nullptr || !lives(*gate)) continue;
        std::size_t wanted = 0;
        while (wanted < first.size() && !overlap(first[wanted], gate->range)) ++wanted;
        due.push_back({std::move(gate), wanted});
    }
    std::sort(due.begin(), due.end(), [](const Due& a, const Due& b) {
        return a.wanted != b.wanted ? a.wanted < b.wanted : a.gate->range.address < b.gate->range.address;
    });
    for (const Due& next : due) {
        const Range range = next.gate->range;
        bool any = false;
        for (const Bringing& bringing : coming) {
            if (!any_in(bringing.ranges, [&](const Range& brought) { return overlap(brought, range); })) {
                continue;
            }
            any = true;
            if (const Status status = bringing.ticket->follow(relay_.get(), range); !status.ok())
                moved(status, *bringing.ticket);
        }
        if (any) check(driver_.record(next.gate->event.get(), relay_.get()), "record the event of a gate");
    }
}

MEMSAVER_INLINE Status ArenaGates::close() noexcept { return relay_.close(); }

} // namespace detail

} // namespace memsaver::inline v0_3
