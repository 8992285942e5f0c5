// What was taken from a driver and not given back, and misuse that a driver need not notice.
// Sees calls as records only; does not make any.
#pragma once

#include "memsaver/base/base.hpp"
#include "memsaver/testing/call_log.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <new>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

namespace memsaver::inline v0_1 {

/// How many things of each sort are held. A handle counts until it is released, a mapping until it is unmapped.
struct Outstanding {
    std::size_t reservations = 0;
    std::size_t handles = 0;
    std::size_t mappings = 0;
    std::size_t streams = 0;
    std::size_t events = 0;
    std::size_t graphs = 0;
    std::size_t plain = 0;

    friend constexpr bool operator==(const Outstanding&, const Outstanding&) = default;
    friend std::ostream& operator<<(std::ostream& out, const Outstanding& held) {
        return out << held.reservations << " reservations, " << held.handles << " handles, " << held.mappings
                   << " mappings, " << held.streams << " streams, " << held.events << " events, " << held.graphs
                   << " graphs, " << held.plain << " plain allocations";
    }
};

/// Follows calls: `begin` before one is made, `end` once it has answered. What a call gives back is off the books from
/// `begin` on, so that another thread may be given the same address or handle before `end`; if the call fails, `end`
/// puts it back. Only `begin` allocates. Not thread safe.
class Ledger {
public:
    struct Entry {
        std::size_t bytes = 0;
        PageHandle handle{};
        bool accessible = false;
    };
    /// By address, by handle or by native pointer.
    using Entries = std::map<std::uint64_t, Entry>;

    /// Notes misuse; gives what `end` needs. May throw std::bad_alloc, and then has changed nothing.
    [[nodiscard]] Entries begin(const CallRecord& call) {
        switch (call.call) {
        case Call::unreserve: check_unreserve(call); return remove(call);
        case Call::unmap: return remove_mappings(call);
        case Call::release:
        case Call::close_stream:
        case Call::close_event:
        case Call::close_graph:
        case Call::free_plain: return remove(call);
        case Call::map: check_map(call); break;
        case Call::allow_access: check_whole(call); return {};
        case Call::copy_to_host:
        case Call::copy_to_device:
        case Call::fill: check_usable(call); return {};
        default: break;
        }
        Entries blank; // filled, and moved to its table, once the driver has answered
        if (takes(call.call)) blank.emplace();
        return blank;
    }

    void end(const CallRecord& call, Entries&& entries) noexcept {
        if (!call.status.ok()) {
            if (gives(call.call)) table(call.call).merge(entries);
        } else if (takes(call.call)) {
            auto node = entries.extract(entries.begin());
            node.key() = key(call);
            node.mapped() = {call.bytes, call.handle, false};
            if (!table(call.call).insert(std::move(node)).inserted) violate(call, "gave what is already held");
        } else if (call.call == Call::allow_access) {
            Entries& mappings = of(Thing::mapping);
            auto it = mappings.lower_bound(call.address);
            for (; it != mappings.end() && it->first - call.address < call.bytes; ++it) it->second.accessible = true;
        }
    }

    [[nodiscard]] Outstanding outstanding() const noexcept {
        return {of(Thing::reservation).size(), of(Thing::handle).size(), of(Thing::mapping).size(),
                of(Thing::stream).size(),      of(Thing::event).size(),  of(Thing::graph).size(),
                of(Thing::plain).size()};
    }
    [[nodiscard]] std::size_t reserved_bytes() const noexcept { return sum(Thing::reservation); }
    [[nodiscard]] std::size_t handle_bytes() const noexcept { return sum(Thing::handle); }
    [[nodiscard]] std::size_t mapped_bytes() const noexcept { return sum(Thing::mapping); }
    [[nodiscard]] std::size_t plain_bytes() const noexcept { return sum(Thing::plain); }

    /// A line for each sort of thing that is held, with the first few of them; empty if nothing is.
    [[nodiscard]] std::string held_text() const {
        constexpr std::array<const char*, things> names{"reservations", "handles", "mappings",         "streams",
                                                        "events",       "graphs",  "plain allocations"};
        constexpr std::size_t shown = 4;
        std::string text;
        for (std::size_t i = 0; i < things; ++i) {
            if (tables_[i].empty()) continue;
            text += std::to_string(tables_[i].size()) + ' ' + names[i] + ':';
            std::size_t n = 0;
            for (auto it = tables_[i].begin(); it != tables_[i].end() && n < shown; ++it, ++n) {
                text += ' ' + format_address(static_cast<Address>(it->first));
                if (it->second.bytes != 0) text += " (" + format_bytes(it->second.bytes) + ')';
            }
            text += tables_[i].size() > shown ? " ...\n" : "\n";
        }
        return text;
    }

    /// What was misused, a line each, at most the first hundred.
    [[nodiscard]] const std::vector<std::string>& violations() const noexcept { return violations_; }
    /// Counts also those whose text was not kept.
    [[nodiscard]] std::uint64_t violation_count() const noexcept { return violation_count_; }

private:
    enum class Thing : unsigned char { reservation, handle, mapping, stream, event, graph, plain };
    static constexpr std::size_t things = static_cast<std::size_t>(Thing::plain) + 1;

    static constexpr bool takes(Call call) noexcept {
        return call == Call::reserve || call == Call::create || call == Call::map || call == Call::open_stream ||
               call == Call::open_event || call == Call::end_capture || call == Call::allocate_plain;
    }
    static constexpr bool gives(Call call) noexcept {
        return call == Call::unreserve || call == Call::release || call == Call::unmap || call == Call::close_stream ||
               call == Call::close_event || call == Call::close_graph || call == Call::free_plain;
    }
    /// What a taking or giving call is about.
    static constexpr Thing thing(Call call) noexcept {
        switch (call) {
        case Call::create:
        case Call::release: return Thing::handle;
        case Call::map:
        case Call::unmap: return Thing::mapping;
        case Call::open_stream:
        case Call::close_stream: return Thing::stream;
        case Call::open_event:
        case Call::close_event: return Thing::event;
        case Call::end_capture:
        case Call::close_graph: return Thing::graph;
        case Call::allocate_plain:
        case Call::free_plain: return Thing::plain;
        default: return Thing::reservation;
        }
    }
    static std::uint64_t key(const CallRecord& call) noexcept {
        switch (thing(call.call)) {
        case Thing::handle: return call.handle.value;
        case Thing::stream: return reinterpret_cast<std::uintptr_t>(call.stream.native());
        case Thing::event: return reinterpret_cast<std::uintptr_t>(call.event.native());
        case Thing::graph: return reinterpret_cast<std::uintptr_t>(call.graph.native);
        default: return call.address;
        }
    }

    Entries& of(Thing thing) noexcept { return tables_[static_cast<std::size_t>(thing)]; }
    const Entries& of(Thing thing) const noexcept { return tables_[static_cast<std::size_t>(thing)]; }
    Entries& table(Call call) noexcept { return of(thing(call)); }

    std::size_t sum(Thing thing) const noexcept {
        std::size_t bytes = 0;
        for (const auto& entry : of(thing)) bytes += entry.second.bytes;
        return bytes;
    }

    Entries remove(const CallRecord& call) noexcept {
        Entries removed;
        auto node = table(call.call).extract(key(call));
        if (node.empty())
            violate(call, "of what is not held: never taken, or given back before");
        else
            removed.insert(std::move(node));
        return removed;
    }

    Entries remove_mappings(const CallRecord& call) noexcept {
        check_whole(call);
        Entries removed;
        Entries& mappings = of(Thing::mapping);
        auto it = mappings.lower_bound(call.address);
        while (it != mappings.end() && it->first - call.address < call.bytes &&
               it->second.bytes <= call.bytes - (it->first - call.address))
            removed.insert(mappings.extract(it++));
        return removed;
    }

    /// The first entry that shares a byte with the range, or the table's end.
    static Entries::const_iterator overlapping(const Entries& table, Address address, std::size_t bytes) noexcept {
        const auto next = table.upper_bound(address);
        if (next != table.begin()) {
            const auto before = std::prev(next);
            if (address - before->first < before->second.bytes) return before;
        }
        return next != table.end() && next->first - address < bytes ? next : table.end();
    }
    static bool overlaps(const Entries& table, Address address, std::size_t bytes) noexcept {
        return overlapping(table, address, bytes) != table.end();
    }

    void check_unreserve(const CallRecord& call) noexcept {
        const auto it = of(Thing::reservation).find(call.address);
        if (it != of(Thing::reservation).end() && it->second.bytes != call.bytes)
            violate(call, "of another size than was reserved");
        if (overlaps(of(Thing::mapping), call.address, call.bytes)) violate(call, "with live mappings");
    }

    void check_map(const CallRecord& call) noexcept {
        const auto handle = of(Thing::handle).find(call.handle.value);
        if (handle == of(Thing::handle).end())
            violate(call, "of a handle that is not held");
        else if (handle->second.bytes != call.bytes)
            violate(call, "of a part of a handle");
        if (overlaps(of(Thing::mapping), call.address, call.bytes)) violate(call, "over a live mapping");
        const auto room = overlapping(of(Thing::reservation), call.address, 1);
        if (room == of(Thing::reservation).end() ||
            call.bytes > room->second.bytes - static_cast<std::size_t>(call.address - room->first))
            violate(call, "outside a reservation");
    }

    /// The range is a row of whole mappings, as unmap and (cuMemSetAccess in the driver manual) access want it.
    void check_whole(const CallRecord& call) noexcept {
        const Entries& mappings = of(Thing::mapping);
        std::size_t done = 0;
        for (auto it = mappings.find(call.address); done < call.bytes; ++it) {
            if (it == mappings.end() || it->first != call.address + done || it->second.bytes > call.bytes - done) {
                const bool mapped = overlaps(mappings, call.address, call.bytes);
                return violate(call, mapped ? "of more or less than whole mappings" : "of what is not mapped");
            }
            done += it->second.bytes;
        }
    }

    /// Every byte of the range may be touched by the device.
    void check_usable(const CallRecord& call) noexcept {
        std::size_t done = 0;
        while (done < call.bytes) {
            const Address at = call.address + done;
            auto it = overlapping(of(Thing::mapping), at, 1);
            if (it == of(Thing::mapping).end()) {
                it = overlapping(of(Thing::plain), at, 1);
                if (it == of(Thing::plain).end()) return violate(call, "where nothing is mapped");
            } else if (!it->second.accessible) {
                return violate(call, "where no access was allowed");
            }
            done += std::min(call.bytes - done, it->second.bytes - static_cast<std::size_t>(at - it->first));
        }
    }

    void violate(const CallRecord& call, const char* what) noexcept {
        ++violation_count_;
        try {
            constexpr std::size_t kept = 100;
            if (violations_.size() == kept) return;
            violations_.push_back(call.request() + ": " + call_name(call.call) + ' ' + what);
        } catch (const std::bad_alloc&) { // counted all the same
        }
    }

    std::array<Entries, things> tables_;
    std::vector<std::string> violations_;
    std::uint64_t violation_count_ = 0;
};

} // namespace memsaver::inline v0_1
