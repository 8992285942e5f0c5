// What lies where on a host machine, ordered by address, and how much unfinished work uses it.
// Does not know pages, capacity or streams. Not thread safe: its machine's lock guards it.
#pragma once

#include "memsaver/driver/host_range.hpp"

#include <cstdint>
#include <iterator>
#include <map>

namespace memsaver::inline v0_1 {

/// What the device may do with what is mapped.
enum class HostAccess : unsigned char { none, read, write };

/// One handle's pages at one address, or a plain allocation.
struct HostMapping {
    static constexpr std::uint64_t no_handle = 0;

    std::size_t bytes = 0;
    std::uint64_t handle = no_handle;
    std::uint64_t serial = 0;
    std::size_t users = 0; // pieces of work that are not done
    HostAccess access = HostAccess::none;

    [[nodiscard]] bool plain() const noexcept { return handle == no_handle; }
};

class HostMappings {
public:
    using Table = std::map<Address, HostMapping>;

    [[nodiscard]] Table& table() noexcept { return table_; }
    [[nodiscard]] const Table& table() const noexcept { return table_; }

    /// Throws std::bad_alloc, having changed nothing.
    void add(HostRange range, std::uint64_t handle, HostAccess access) {
        table_.emplace(range.address, HostMapping{range.bytes, handle, next_serial_, 0, access});
        ++next_serial_;
    }

    /// Calls `f` with every mapping that touches `range`; whether they cover it without holes.
    template <class F>
    bool each(HostRange range, F f) noexcept {
        if (range.bytes == 0) return true;
        auto it = table_.upper_bound(range.address);
        if (it != table_.begin() && std::prev(it)->first + std::prev(it)->second.bytes > range.address) --it;
        Address next = range.address;
        bool covered = true;
        for (; it != table_.end() && it->first < range.end(); ++it) {
            covered = covered && it->first <= next;
            f(it->second);
            next = it->first + it->second.bytes;
        }
        return covered && next >= range.end();
    }

    /// Whether `range` is one or more whole mappings of pages, without holes; and whether work uses any of them.
    [[nodiscard]] bool whole(HostRange range, bool* in_use = nullptr) const noexcept {
        if (range.bytes == 0 || !range.valid()) return false;
        Address next = range.address;
        for (auto it = table_.find(next); it != table_.end() && it->first == next; ++it) {
            if (it->second.plain()) return false;
            if (in_use != nullptr && it->second.users != 0) *in_use = true;
            next += it->second.bytes;
            if (next >= range.end()) return next == range.end();
        }
        return false;
    }

    [[nodiscard]] bool touch(HostRange range) noexcept {
        bool any = false;
        each(range, [&](const HostMapping&) { any = true; });
        return any;
    }

    /// Whether the device may do so with every byte.
    [[nodiscard]] bool accessible(HostRange range, HostAccess access) noexcept {
        if (range.bytes == 0) return true;
        bool all = true;
        return range.valid() && each(range, [&](const HostMapping& m) { all = all && m.access >= access; }) && all;
    }

    [[nodiscard]] bool in_use(HostRange range) noexcept {
        bool any = false;
        each(range, [&](const HostMapping& mapping) { any = any || mapping.users != 0; });
        return any;
    }

    /// Notes that unfinished work uses what is mapped in `range` now; the answer goes to `unpin`.
    std::uint64_t pin(HostRange range) noexcept {
        each(range, [](HostMapping& mapping) { ++mapping.users; });
        return next_serial_++;
    }
    void unpin(HostRange range, std::uint64_t pinned) noexcept {
        each(range, [&](HostMapping& mapping) {
            if (mapping.serial < pinned) --mapping.users; // what was mapped later was not pinned
        });
    }

private:
    Table table_;
    std::uint64_t next_serial_ = 1;
};

} // namespace memsaver::inline v0_1
