// Tracks the resources taken from and returned to a driver, and records misuse that a driver may not detect. Works on
// call records; makes no calls.
#pragma once

#include "memsaver/core/core.hpp"
#include "memsaver/driver/calls.hpp"
#include "memsaver/testing/books.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>
#include <string>
#include <utility>
#include <vector>

namespace memsaver::inline v0_3::detail {

/// Tracks calls: `begin` before a call, `end` after it has returned. `begin` already removes what the call returns to
/// the driver, because another thread may get the same address or handle before `end`; if the call fails, `end`
/// restores it. Only `begin` allocates. Not thread-safe.
class Ledger : public Books {
public:
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
            node.mapped() = {call.bytes, call.handle, false};
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

private:
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

    std::vector<std::string> violations_;
};

} // namespace memsaver::inline v0_3::detail
