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

    static constexpr bool takes(Call call) noexcept {
        switch (call) {
        case Call::reserve:
        case Call::create:
        case Call::take:
        case Call::create_shared:
        case Call::import_pages:
        case Call::map:
        case Call::open_stream:
        case Call::open_event:
        case Call::end_capture:
        case Call::update_graph:
        case Call::allocate_plain:
        case Call::map_host:
        case Call::pin_host:
        case Call::open_file:
        case Call::open_source: return true;
        default: return false;
        }
    }
    static constexpr bool gives(Call call) noexcept {
        switch (call) {
        case Call::unreserve:
        case Call::release:
        case Call::unmap:
        case Call::close_stream:
        case Call::close_event:
        case Call::update_graph:
        case Call::close_graph:
        case Call::free_plain:
        case Call::unmap_host:
        case Call::unpin_host:
        case Call::close_file: return true;
        default: return false;
        }
    }
    /// The kind of resource that a call takes or returns.
    static constexpr Thing thing(Call call) noexcept {
        switch (call) {
        case Call::create:
        case Call::take:
        case Call::create_shared:
        case Call::import_pages:
        case Call::release: return Thing::handle;
        case Call::map:
        case Call::unmap: return Thing::mapping;
        case Call::open_stream:
        case Call::close_stream: return Thing::stream;
        case Call::open_event:
        case Call::close_event: return Thing::event;
        case Call::end_capture:
        case Call::update_graph:
        case Call::close_graph: return Thing::graph;
        case Call::allocate_plain:
        case Call::free_plain: return Thing::plain;
        case Call::map_host:
        case Call::unmap_host: return Thing::host_pages;
        case Call::pin_host:
        case Call::unpin_host: return Thing::pin;
        case Call::open_file:
        case Call::open_source:
        case Call::close_file: return Thing::file;
        default: return Thing::reservation;
        }
    }
    static std::uint64_t key(const CallRecord& call) noexcept {
        switch (thing(call.call)) {
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
    Entries& table(Call call) noexcept { return of(thing(call)); }

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
