// Tracks the resources taken from and returned to a driver, in tables of those that are outstanding, and records misuse
// that a driver may not detect. Works on call records; makes no calls.
#pragma once

#include "memsaver/core/core.hpp"
#include "memsaver/driver/calls.hpp"

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

namespace memsaver::inline v0_3 {

/// Number of outstanding resources of each kind. A handle counts until it is released, a mapping until it is unmapped.
struct Outstanding {
    std::size_t reservations = 0;
    std::size_t handles = 0;
    std::size_t mappings = 0;
    std::size_t streams = 0; ///< lanes belong to the driver and do not count
    std::size_t events = 0;
    std::size_t graphs = 0;
    std::size_t plain = 0;
    std::size_t host_pages = 0; ///< mapped ranges
    std::size_t pins = 0;
    std::size_t files = 0;

    friend constexpr bool operator==(const Outstanding&, const Outstanding&) = default;
    friend std::ostream& operator<<(std::ostream& out, const Outstanding& held) {
        return out << held.reservations << " reservations, " << held.handles << " handles, " << held.mappings
                   << " mappings, " << held.streams << " streams, " << held.events << " events, " << held.graphs
                   << " graphs, " << held.plain << " plain allocations, " << held.host_pages
                   << " ranges of host pages, " << held.pins << " pins, " << held.files << " files";
    }
};

namespace detail {

/// Tracks calls: `begin` before a call, `end` after it has returned. `begin` already removes what the call returns to
/// the driver, because another thread may get the same address or handle before `end`; if the call fails, `end`
/// restores it. Only `begin` allocates. Not thread-safe.
class Ledger {
public:
    enum class Thing : unsigned char {
        // clang-format off
        reservation, handle, mapping, stream, event, graph, plain, host_pages, pin, file,
        // clang-format on
    };
    struct Entry {
        std::size_t bytes = 0;
        bool accessible = false;
    };
    /// Keyed by address, handle, native pointer or file descriptor.
    using Entries = std::map<std::uint64_t, Entry>;

    /// Records misuse and returns the entries that `end` needs. Strong exception guarantee: may throw std::bad_alloc.
    [[nodiscard]] Entries begin(const CallRecord& call) {
        switch (call.call) {
        case Call::unreserve: check_unreserve(call); break;
        case Call::unmap: return remove_mappings(call);
        case Call::unmap_host: check_unmap_host(call); break;
        case Call::map: check_map(call); break;
        case Call::pin_host: check_pin(call); break;
        case Call::allow_access: check_whole(call); return {};
        case Call::copy_to_host:
        case Call::copy_to_device: check_whole_pin(call); [[fallthrough]];
        case Call::fill: check_usable(call); return {};
        case Call::copy_many: check_parts(call); return {};
        case Call::write_file:
        case Call::read_file:
        case Call::allocate_file:
        case Call::punch_file:
        case Call::file_facts:
        case Call::file_cached: check_open(call); return {};
        default: break;
        }
        const Role its = role(call.call);
        if (its.gives) return remove(call); // also if it takes another one, as `update_graph` does
        Entries blank;                      // filled in and moved to its table after the call has returned
        if (its.takes) blank.emplace();
        return blank;
    }

    void end(const CallRecord& call, Entries&& entries) noexcept {
        if (!call.status.ok()) {
            if (role(call.call).gives) table(call.call).merge(entries);
        } else if (role(call.call).takes && !entries.empty()) {
            auto node = entries.extract(entries.begin());
            node.key() = key(call);
            node.mapped() = {call.bytes, false};
            if (!table(call.call).insert(std::move(node)).inserted)
                violate(call, "returned a resource that is already held");
        } else if (call.call == Call::allow_access) {
            Entries& mappings = of(Thing::mapping);
            auto it = mappings.lower_bound(call.address);
            for (; it != mappings.end() && it->first - call.address < call.bytes; ++it) it->second.accessible = true;
        }
    }

    /// Misuse, one line each, at most one hundred.
    [[nodiscard]] const std::vector<std::string>& violations() const noexcept { return violations_; }

    std::size_t sum(Thing thing) const noexcept {
        std::size_t bytes = 0;
        for (const auto& entry : of(thing)) bytes += entry.second.bytes;
        return bytes;
    }

    [[nodiscard]] Outstanding outstanding() const noexcept {
        return {of(Thing::reservation).size(), of(Thing::handle).size(),     of(Thing::mapping).size(),
                of(Thing::stream).size(),      of(Thing::event).size(),      of(Thing::graph).size(),
                of(Thing::plain).size(),       of(Thing::host_pages).size(), of(Thing::pin).size(),
                of(Thing::file).size()};
    }

    /// Returns one line for each kind of outstanding resource, listing the first few; empty if there is none.
    [[nodiscard]] std::string held_text() const {
        constexpr std::array<const char*, things> names{"reservations", "handles", "mappings",          "streams",
                                                        "events",       "graphs",  "plain allocations", "host pages",
                                                        "pins",         "files"};
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

private:
    static constexpr std::size_t things = static_cast<std::size_t>(Thing::file) + 1;

    /// What a call does to the tables.
    struct Role {
        Call call;
        Thing thing; ///< that the call takes or returns
        bool takes;
        bool gives;
    };
    static constexpr Role role(Call call) noexcept {
        constexpr Role roles[] = {
            {Call::reserve, Thing::reservation, true, false},  {Call::unreserve, Thing::reservation, false, true},
            {Call::create, Thing::handle, true, false},        {Call::take, Thing::handle, true, false},
            {Call::create_shared, Thing::handle, true, false}, {Call::import_pages, Thing::handle, true, false},
            {Call::release, Thing::handle, false, true},       {Call::map, Thing::mapping, true, false},
            {Call::unmap, Thing::mapping, false, true},        {Call::open_stream, Thing::stream, true, false},
            {Call::close_stream, Thing::stream, false, true},  {Call::open_event, Thing::event, true, false},
            {Call::close_event, Thing::event, false, true},    {Call::end_capture, Thing::graph, true, false},
            {Call::update_graph, Thing::graph, true, true},    {Call::close_graph, Thing::graph, false, true},
            {Call::allocate_plain, Thing::plain, true, false}, {Call::free_plain, Thing::plain, false, true},
            {Call::map_host, Thing::host_pages, true, false},  {Call::unmap_host, Thing::host_pages, false, true},
            {Call::pin_host, Thing::pin, true, false},         {Call::unpin_host, Thing::pin, false, true},
            {Call::open_file, Thing::file, true, false},       {Call::open_source, Thing::file, true, false},
            {Call::close_file, Thing::file, false, true},
        };
        for (const Role& each : roles)
            if (each.call == call) return each;
        return {call, Thing::reservation, false, false};
    }
    static std::uint64_t key(const CallRecord& call) noexcept {
        switch (role(call.call).thing) {
        case Thing::handle: return call.handle.value;
        case Thing::stream: return number(call.stream.native());
        case Thing::event: return number(call.event.native());
        case Thing::graph: return number(call.graph.native);
        case Thing::host_pages:
        case Thing::pin: return number(call.host);
        case Thing::file: return file_key(call.file);
        default: return call.address;
        }
    }
    static std::uint64_t number(const void* pointer) noexcept { return reinterpret_cast<std::uintptr_t>(pointer); }
    static std::uint64_t file_key(FileRef file) noexcept { return static_cast<std::uint64_t>(file.descriptor); }

    Entries& of(Thing thing) noexcept { return tables_[static_cast<std::size_t>(thing)]; }
    const Entries& of(Thing thing) const noexcept { return tables_[static_cast<std::size_t>(thing)]; }
    Entries& table(Call call) noexcept { return of(role(call).thing); }

    /// Finds the first entry that overlaps the range. Returns the table's end if there is none.
    static Entries::const_iterator overlapping(const Entries& table, std::uint64_t begin, std::size_t bytes) noexcept {
        const auto next = table.upper_bound(begin);
        if (next != table.begin()) {
            const auto before = std::prev(next);
            if (begin - before->first < before->second.bytes) return before;
        }
        return next != table.end() && next->first - begin < bytes ? next : table.end();
    }
    static bool overlaps(const Entries& table, std::uint64_t begin, std::size_t bytes) noexcept {
        return overlapping(table, begin, bytes) != table.end();
    }

    Entries remove(const CallRecord& call) noexcept {
        Entries removed;
        auto node = table(call.call).extract(key(call));
        if (node.empty())
            violate(call, "of a resource that is not held: never acquired, or already released");
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

    void check_unreserve(const CallRecord& call) noexcept {
        const auto it = of(Thing::reservation).find(call.address);
        if (it != of(Thing::reservation).end() && it->second.bytes != call.bytes)
            violate(call, "with a size that differs from the reservation's");
        if (overlaps(of(Thing::mapping), call.address, call.bytes)) violate(call, "with live mappings");
    }

    void check_map(const CallRecord& call) noexcept {
        const auto handle = of(Thing::handle).find(call.handle.value);
        if (handle == of(Thing::handle).end())
            violate(call, "of a handle that is not held");
        else if (handle->second.bytes != 0 && handle->second.bytes != call.bytes) // 0: imported, of unknown size
            violate(call, "with a size that differs from the handle's");
        if (overlaps(of(Thing::mapping), call.address, call.bytes)) violate(call, "over a live mapping");
        const auto room = overlapping(of(Thing::reservation), call.address, 1);
        if (room == of(Thing::reservation).end() ||
            call.bytes > room->second.bytes - static_cast<std::size_t>(call.address - room->first))
            violate(call, "outside a reservation");
    }

    /// Checks that the range consists of whole mappings, as unmapping and setting access require (cuMemSetAccess in the
    /// driver manual).
    void check_whole(const CallRecord& call) noexcept {
        const Entries& mappings = of(Thing::mapping);
        std::size_t done = 0;
        for (auto it = mappings.find(call.address); done < call.bytes; ++it) {
            if (it == mappings.end() || it->first != call.address + done || it->second.bytes > call.bytes - done) {
                const bool mapped = overlaps(mappings, call.address, call.bytes);
                return violate(call, mapped ? "of a range that does not consist of whole mappings"
                                            : "of addresses that are not mapped");
            }
            done += it->second.bytes;
        }
    }

    /// Checks that the device may access every byte of the range.
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

    void check_unmap_host(const CallRecord& call) noexcept {
        const auto it = of(Thing::host_pages).find(key(call));
        if (it == of(Thing::host_pages).end()) return; // reported by `remove`
        if (it->second.bytes != call.bytes) violate(call, "with a size that differs from the mapped range's");
        if (overlaps(of(Thing::pin), it->first, it->second.bytes)) violate(call, "of pinned pages");
    }

    void check_pin(const CallRecord& call) noexcept {
        if (overlaps(of(Thing::pin), key(call), call.bytes)) violate(call, "of pages that are already pinned");
    }

    /// Checks that the host side of a copy lies within one pinned range, or touches none.
    void check_whole_pin(const CallRecord& call) noexcept {
        const std::uint64_t begin = number(call.host);
        const auto pin = overlapping(of(Thing::pin), begin, call.bytes);
        if (pin == of(Thing::pin).end()) return;
        const bool whole = pin->first <= begin && call.bytes <= pin->second.bytes - (begin - pin->first);
        if (!whole) violate(call, "across the boundary of a pinned range");
    }

    void check_parts(const CallRecord& call) noexcept {
        const bool out = call.direction == Direction::out;
        for (std::size_t i = 0; i < call.count; ++i) {
            CallRecord part = call;
            part.call = out ? Call::copy_to_host : Call::copy_to_device;
            part.address = out ? call.parts[i].from : call.parts[i].to;
            part.host = reinterpret_cast<const void*>(out ? call.parts[i].to : call.parts[i].from);
            part.bytes = call.parts[i].bytes;
            check_whole_pin(part);
            check_usable(part);
        }
    }

    void check_open(const CallRecord& call) noexcept {
        if (of(Thing::file).count(file_key(call.file)) == 0) violate(call, "of a file that is not open");
    }

    void violate(const CallRecord& call, const char* what) noexcept {
        try {
            constexpr std::size_t kept = 100;
            if (violations_.size() == kept) return;
            violations_.push_back(call.request() + ": " + call_name(call.call) + ' ' + what);
        } catch (const std::bad_alloc&) { // no host memory for the text
        }
    }

    std::array<Entries, things> tables_; ///< by Thing
    std::vector<std::string> violations_;
};

} // namespace detail

} // namespace memsaver::inline v0_3
