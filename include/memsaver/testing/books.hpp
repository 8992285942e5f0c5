// Tables of the resources taken from a driver and not yet returned, one table per kind. Does not judge which calls are
// misuse.
#pragma once

#include "memsaver/core/core.hpp"
#include "memsaver/driver/calls.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <ostream>
#include <string>

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

/// The tables. Not thread-safe.
class Books {
public:
    enum class Thing : unsigned char {
        // clang-format off
        reservation, handle, mapping, stream, event, graph, plain, host_pages, pin, file,
        // clang-format on
    };
    static constexpr std::size_t things = static_cast<std::size_t>(Thing::file) + 1;

    struct Entry {
        std::size_t bytes = 0;
        PageHandle handle{};
        bool accessible = false;
    };
    /// Keyed by address, handle, native pointer or file descriptor.
    using Entries = std::map<std::uint64_t, Entry>;

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

private:
    std::array<Entries, things> tables_;
};

} // namespace detail

} // namespace memsaver::inline v0_3
