// The memory of a host machine: a capacity, the pages and plain allocations taken from it, reserved addresses, and what
// is mapped where. Counts how much unfinished work uses each mapping, but does not know streams.
// Not thread safe: its machine's lock guards it. Methods may throw std::bad_alloc, having changed nothing.
#pragma once

#include "memsaver/driver/host_mappings.hpp"
#include "memsaver/driver/host_options.hpp"
#include "memsaver/driver/host_page_file.hpp"
#include "memsaver/driver/host_range.hpp"
#include "memsaver/driver/host_status.hpp"
#include "memsaver/driver/host_violations.hpp"

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <unordered_map>
#include <vector>

namespace memsaver::inline v0_1 {

class HostMemory {
public:
    HostMemory(std::size_t capacity, const HostDriverOptions& options, HostViolations& violations)
        : capacity_{capacity}, granularity_{options.granularity}, poison_{options.poison}, violations_{violations} {}

    ~HostMemory() {
        for (const auto& [address, mapping] : mappings_.table())
            if (mapping.plain()) std::free(reinterpret_cast<void*>(address));
        for (const auto& [address, bytes] : reservations_) ::munmap(reinterpret_cast<void*>(address), bytes);
        for (const HostRange& range : abandoned_) ::munmap(reinterpret_cast<void*>(range.address), range.bytes);
    }
    HostMemory(const HostMemory&) = delete;
    HostMemory& operator=(const HostMemory&) = delete;

    [[nodiscard]] std::size_t granularity() const noexcept { return granularity_; }
    [[nodiscard]] HostMappings& mappings() noexcept { return mappings_; }
    [[nodiscard]] DeviceMemory memory() const noexcept { return {capacity_ - held_, capacity_}; }

    void count(HostCounts& counts) const noexcept {
        counts.reservations = reservations_.size();
        counts.handles = pages_.size() - released_;
        counts.mappings = mappings_.table().size() - plain_count_;
        counts.plain_allocations = plain_count_;
        counts.held_bytes = held_;
    }

    Status reserve(std::size_t bytes, std::size_t alignment, Address& out) {
        alignment = alignment < granularity_ ? granularity_ : alignment;
        if (!in_pages(bytes) || (alignment & (alignment - 1)) != 0)
            return misuse("reserve of a wrong size", {0, bytes});
        if (bytes > SIZE_MAX - alignment) return HostStatus::out_of_memory;
        const std::size_t room = bytes + alignment; // the system aligns to its own pages only: cut off what is too much
        void* const at = ::mmap(nullptr, room, PROT_NONE, empty_flags, -1, 0);
        if (at == MAP_FAILED) return HostStatus::out_of_memory;
        const auto begin = reinterpret_cast<Address>(at);
        const Address address = align_up(begin, alignment);
        try {
            reservations_.emplace(address, bytes);
        } catch (...) {
            ::munmap(at, room);
            throw;
        }
        if (address != begin) ::munmap(at, address - begin);
        if (begin + room != address + bytes)
            ::munmap(reinterpret_cast<void*>(address + bytes), begin + room - address - bytes);
        out = address;
        return HostStatus::ok;
    }

    Status unreserve(HostRange range) {
        const auto found = reservations_.find(range.address);
        if (found == reservations_.end() || found->second != range.bytes)
            return misuse("unreserve of what is not a reservation", range);
        if (mappings_.touch(range)) return misuse("unreserve of addresses with pages", range);
        if (has_scraps(range)) // work still writes there: let nobody else have the addresses
            abandoned_.push_back(range);
        else
            ::munmap(reinterpret_cast<void*>(range.address), range.bytes);
        reservations_.erase(found);
        return HostStatus::ok;
    }

    Status create(std::size_t bytes, PageHandle& out) {
        if (!in_pages(bytes)) return misuse("create of a wrong size", {0, bytes});
        if (bytes > capacity_ - held_) return HostStatus::out_of_memory;
        const auto entry = pages_.try_emplace(next_handle_, Pages{.bytes = bytes}).first;
        Pages& pages = entry->second;
        if (!file_.take(bytes, pages.offset)) {
            pages_.erase(entry);
            return HostStatus::out_of_host_memory;
        }
        if (poison_ && !file_.fill(pages.offset, bytes, host_poison)) {
            file_.give_back(pages.offset, bytes);
            pages_.erase(entry);
            return HostStatus::out_of_host_memory;
        }
        held_ += bytes;
        out.value = next_handle_++;
        return HostStatus::ok;
    }

    Status release(PageHandle handle) {
        const auto found = pages_.find(handle.value);
        if (found == pages_.end() || found->second.released)
            return misuse("release of what is not a handle", {0, found == pages_.end() ? 0 : found->second.bytes});
        found->second.released = true;
        ++released_;
        if (found->second.mappings == 0) discard(found);
        return HostStatus::ok;
    }

    Status map(HostRange range, PageHandle handle) {
        const auto found = pages_.find(handle.value);
        if (found == pages_.end() || found->second.released) return misuse("map of what is not a handle", range);
        if (range.bytes != found->second.bytes) return misuse("map of a part of a handle", range);
        if (!range.valid() || range.address % granularity_ != 0 || !reserved(range))
            return misuse("map outside of a reservation", range);
        if (mappings_.touch(range)) return misuse("map over what is mapped", range);
        mappings_.add(range, handle.value, HostAccess::none);
        // Over scraps a PROT_NONE would take the process with it and not only the faulty work.
        const int protection = has_scraps(range) ? PROT_READ | PROT_WRITE : PROT_NONE;
        if (!file_.map(range, found->second.offset, protection)) {
            mappings_.table().erase(range.address);
            return HostStatus::out_of_host_memory; // the system's limit on mappings
        }
        ++found->second.mappings;
        return HostStatus::ok;
    }

    /// Whether `range` may be unmapped, and whether unfinished work uses it.
    Status check_unmap(HostRange range, bool& in_use) noexcept {
        in_use = false;
        if (!mappings_.whole(range, &in_use)) return misuse("unmap of what is not mapped, or of a part", range);
        return HostStatus::ok;
    }

    /// After `check_unmap`. With `scraps`, running work is on `range`: it finds pages that belong to nobody there,
    /// until `seal_scraps`, since a real fault would end the process.
    Status unmap(HostRange range, bool scraps) {
        if (scraps) scraps_.push_back(range);
        if (!clear(range, scraps ? PROT_READ | PROT_WRITE : PROT_NONE)) {
            if (scraps) scraps_.pop_back();
            return HostStatus::out_of_host_memory;
        }
        auto& table = mappings_.table();
        for (auto it = table.find(range.address); it != table.end() && it->first < range.end();) {
            const auto pages = pages_.find(it->second.handle);
            if (--pages->second.mappings == 0 && pages->second.released) discard(pages);
            it = table.erase(it);
        }
        return HostStatus::ok;
    }

    Status allow(HostRange range, HostAccess access) noexcept {
        if (!mappings_.whole(range)) return misuse("access to what is not mapped, or to a part", range);
        const int protection = access == HostAccess::write ? PROT_READ | PROT_WRITE : PROT_READ;
        if (::mprotect(reinterpret_cast<void*>(range.address), range.bytes, protection) != 0)
            return HostStatus::out_of_host_memory;
        mappings_.each(range, [&](HostMapping& mapping) { mapping.access = access; });
        return HostStatus::ok;
    }

    Status allocate_plain(std::size_t bytes, Address& out) {
        constexpr std::size_t unit = 512;
        if (bytes == 0 || !can_align_up(bytes, unit)) return HostStatus::invalid_value;
        const std::size_t rounded = align_up(bytes, unit);
        if (rounded > capacity_ - held_) return HostStatus::out_of_memory;
        void* const at = std::aligned_alloc(unit, rounded);
        if (at == nullptr) return HostStatus::out_of_host_memory;
        try {
            const auto address = reinterpret_cast<Address>(at);
            mappings_.add({address, rounded}, HostMapping::no_handle, HostAccess::write);
            out = address;
        } catch (...) {
            std::free(at);
            throw;
        }
        if (poison_) std::memset(at, host_poison, rounded);
        held_ += rounded;
        ++plain_count_;
        return HostStatus::ok;
    }

    /// The plain allocation at `address`, whole; `{}` and a violation if there is none.
    HostRange plain_range(Address address) noexcept {
        const auto found = mappings_.table().find(address);
        if (found != mappings_.table().end() && found->second.plain()) return {address, found->second.bytes};
        (void)misuse("free of what is not a plain allocation", {address, 0});
        return {};
    }

    /// Frees what `plain_range` found.
    void free_plain(HostRange range) noexcept {
        mappings_.table().erase(range.address);
        std::free(reinterpret_cast<void*>(range.address));
        held_ -= range.bytes;
        --plain_count_;
    }

    /// Takes the scrap pages away that `busy(range)` denies.
    template <class Busy>
    void seal_scraps(Busy busy) noexcept {
        std::erase_if(scraps_, [&](const HostRange& scrap) { return !busy(scrap) && seal(scrap); });
    }

private:
    static constexpr int empty_flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

    struct Pages {
        off_t offset = 0;
        std::size_t bytes = 0;
        std::size_t mappings = 0;
        bool released = false;
    };
    using PagesTable = std::unordered_map<std::uint64_t, Pages>;

    Status misuse(const char* what, HostRange where) noexcept {
        violations_.note(what, where);
        return HostStatus::invalid_value;
    }

    [[nodiscard]] bool in_pages(std::size_t bytes) const noexcept { return bytes != 0 && bytes % granularity_ == 0; }

    [[nodiscard]] bool reserved(HostRange range) const noexcept {
        auto it = reservations_.upper_bound(range.address);
        if (it == reservations_.begin()) return false;
        --it;
        return range.end() <= it->first + it->second;
    }

    void discard(PagesTable::iterator pages) noexcept {
        file_.give_back(pages->second.offset, pages->second.bytes);
        held_ -= pages->second.bytes;
        --released_;
        pages_.erase(pages);
    }

    /// Reserved addresses without pages of ours.
    [[nodiscard]] static bool clear(HostRange range, int protection) noexcept {
        void* const at = reinterpret_cast<void*>(range.address);
        return ::mmap(at, range.bytes, protection, empty_flags | MAP_FIXED, -1, 0) != MAP_FAILED;
    }

    [[nodiscard]] bool has_scraps(HostRange range) const noexcept {
        for (const HostRange& scrap : scraps_)
            if (scrap.overlaps(range)) return true;
        return false;
    }

    /// Clears what has not been mapped again in `scrap`, and protects what has.
    bool seal(HostRange scrap) noexcept {
        const Address end = scrap.end();
        bool done = true;
        const auto seal_to = [&](Address to) {
            if (scrap.address < to) done = clear({scrap.address, to - scrap.address}, PROT_NONE) && done;
        };
        const auto& table = mappings_.table();
        for (auto it = table.lower_bound(scrap.address); it != table.end() && it->first < end; ++it) {
            seal_to(it->first);
            scrap.address = it->first + it->second.bytes;
            void* const at = reinterpret_cast<void*>(it->first);
            if (it->second.access == HostAccess::none) done = ::mprotect(at, it->second.bytes, PROT_NONE) == 0 && done;
        }
        seal_to(end);
        return done;
    }

    std::size_t capacity_;
    std::size_t granularity_;
    bool poison_;
    HostViolations& violations_;
    HostPageFile file_;
    std::map<Address, std::size_t> reservations_;
    PagesTable pages_; // also what is released but still mapped
    HostMappings mappings_;
    std::vector<HostRange> scraps_;
    std::vector<HostRange> abandoned_;
    std::uint64_t next_handle_ = 1;
    std::size_t held_ = 0;
    std::size_t released_ = 0;
    std::size_t plain_count_ = 0;
};

} // namespace memsaver::inline v0_1
