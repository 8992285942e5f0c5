// The simulated device's memory: reserved addresses, pages, pinned ranges and pools.
#pragma once

#include "memsaver/core/error.hpp"
#include "memsaver/core/handles.hpp"
#include "memsaver/core/pointers.hpp"
#include "memsaver/core/sizes.hpp"
#include "memsaver/core/text.hpp"
#include "memsaver/core/vector.hpp"
#include "memsaver/driver/system_limits.hpp"
#include "memsaver/host/host_options.hpp"
#include "memsaver/host/page_source.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <limits>
#include <map>
#include <new>
#include <string>
#include <vector>

namespace memsaver::inline v0_3::detail {

enum class HostAccess : unsigned char { none, read, write };

/// One mapping of a handle's pages, or a plain allocation.
struct HostMapping {
    static constexpr std::uint64_t no_handle = 0;

    std::size_t bytes = 0;
    std::uint64_t handle = no_handle;
    HostPages room{}; // of a plain allocation
    HostAccess access = HostAccess::none;

    [[nodiscard]] bool plain() const noexcept { return handle == no_handle; }
};

class HostMemory {
public:
    HostMemory(std::size_t capacity, const HostDriverOptions& options)
        : capacity_{capacity}, granularity_{options.granularity}, poison_{options.poison} {
        if (const auto pages = options.machine.pages(); pages != nullptr)
            source_ = pages(options.machine.text(), capacity, granularity_);
        else
            source_ = UniquePtr<HostPageFile>::make(capacity);
    }
    ~HostMemory() {
        for (const auto& [address, mapping] : mappings_)
            if (mapping.plain()) free(address, mapping);
        for (const auto& [address, reserved] : reservations_)
            ::munmap(reinterpret_cast<void*>(address), reserved.bytes);
        for (const auto& [handle, pages] : pages_) source_->give_back(pages);
    }
    HostMemory& operator=(HostMemory&&) = delete;

    [[nodiscard]] std::size_t granularity() const noexcept { return granularity_; }
    [[nodiscard]] const std::vector<std::string>& violations() const noexcept { return violations_; }
    /// Records a violation, with the name of the addresses, if they have one.
    void note(const char* what, Range where) noexcept {
        try {
            const char* const whose = name_at(where.address);
            const bool named = whose != nullptr;
            violations_.push_back(text_of({what, " (", in_bytes(where.bytes), " at ", in_hex(where.address),
                                           named ? ", " : "", named ? whose : "", ")"}));
        } catch (...) { // no memory for the text: the status, or the lost machine, still reports the error
        }
    }
    [[nodiscard]] bool accessible(Range range, HostAccess access) noexcept {
        if (range.bytes == 0) return true;
        bool all = true;
        return valid(range) && each_mapping(range, [&](const HostMapping& m) { all = all && m.access >= access; }) &&
               all;
    }
    [[nodiscard]] DeviceMemory memory() const noexcept { return {capacity_ - source_->taken(), capacity_}; }

    void count(HostCounts& counts) const noexcept {
        counts.reservations = reservations_.size();
        for (const auto& [handle, pages] : pages_) counts.handles += pages.released ? 0U : 1U;
        for (const auto& [address, mapping] : mappings_)
            (mapping.plain() ? counts.plain_allocations : counts.mappings) += 1;
        counts.held_bytes = source_->taken();
    }

    Status reserve(std::size_t bytes, std::size_t alignment, Address& out) {
        alignment = alignment < granularity_ ? granularity_ : alignment;
        if (!in_pages(bytes) || (alignment & (alignment - 1)) != 0)
            return misuse("reserve with an invalid size or alignment", {0, bytes});
        if (bytes > SIZE_MAX - alignment) return HostStatus::out_of_addresses;
        const std::size_t room = bytes + alignment; // the system aligns to its own pages only: cut off the excess
        void* const at = ::mmap(nullptr, room, PROT_NONE, empty_flags, -1, 0);
        if (at == MAP_FAILED) return SystemLimits::no_mapping(errno, room, HostStatus::out_of_addresses);
        const auto begin = reinterpret_cast<Address>(at);
        const Address address = align_up(begin, alignment);
        try {
            reservations_.emplace(address, Reserved{bytes});
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

    Status unreserve(Range range) {
        const auto found = reservations_.find(range.address);
        if (found == reservations_.end() || found->second.bytes != range.bytes)
            return misuse("unreserve of a range that is not a reservation", range);
        if (any_mapped(range)) return misuse("unreserve of mapped addresses", range);
        ::munmap(reinterpret_cast<void*>(range.address), range.bytes);
        reservations_.erase(found);
        return HostStatus::ok;
    }

    /// Sets the name that faults in a reservation are reported with. A no-op if `range` is not a whole reservation.
    void name(Range range, const char* name) {
        const auto found = reservations_.find(range.address);
        if (found != reservations_.end() && found->second.bytes == range.bytes) found->second.name = name;
    }
    /// Returns the name of the reservation that contains the address, or null.
    [[nodiscard]] const char* name_at(Address address) const noexcept {
        const auto found = reservation_at(address);
        return found != reservations_.end() ? found->second.name.c_str() : nullptr;
    }

    /// `shared`: for `export_pages`.
    Status create(std::size_t bytes, PageHandle& out, bool shared = false) {
        if (!in_pages(bytes)) return misuse("create with an invalid size", {0, bytes});
        return add(out, [&](Pages& pages) {
            Status status = source_->take(bytes, pages);
            if (!status.ok()) return status;
            if (poison_) status = pages.fill(host_poison);
            if (!status.ok()) source_->give_back(pages);
            pages.shared = shared;
            return status;
        });
    }
    /// As on CUDA, only pages that were created as shared, by this process, can be exported.
    Status export_pages(PageHandle handle, int& descriptor) noexcept {
        const auto found = pages_.find(handle.value);
        if (found == pages_.end() || found->second.released || !found->second.shared)
            return misuse("export of a handle that does not exist, or cannot be exported", {0, 0});
        return source_->export_pages(found->second, descriptor);
    }
    Status import_pages(int descriptor, PageHandle& out) {
        return add(out, [&](Pages& pages) { return source_->import_pages(descriptor, pages); });
    }

    Status release(PageHandle handle) {
        const auto found = pages_.find(handle.value);
        if (found == pages_.end() || found->second.released)
            return misuse("release of a handle that does not exist",
                          {0, found == pages_.end() ? 0 : found->second.bytes});
        found->second.released = true;
        if (found->second.mappings == 0) discard(found);
        return HostStatus::ok;
    }

    Status map(Range range, PageHandle handle) {
        const auto found = pages_.find(handle.value);
        if (found == pages_.end() || found->second.released)
            return misuse("map of a handle that does not exist", range);
        if (range.bytes != found->second.bytes) return misuse("map of a size that differs from the handle's", range);
        const auto room = reservation_at(range.address);
        if (!valid(range) || range.address % granularity_ != 0 || room == reservations_.end() ||
            range.end() > room->first + room->second.bytes)
            return misuse("map outside a reservation, or misaligned", range);
        if (any_mapped(range)) return misuse("map over mapped addresses", range);
        mappings_[range.address] = {.bytes = range.bytes, .handle = handle.value};
        if (const Status status = found->second.map(range); !status.ok()) {
            mappings_.erase(range.address);
            return status;
        }
        ++found->second.mappings;
        return HostStatus::ok;
    }

    Status check_unmap(Range range) noexcept {
        return whole(range) ? HostStatus::ok
                            : misuse("unmap of addresses that are not mapped, or of part of a mapping", range);
    }

    /// Unmaps a range that `check_unmap` accepted.
    Status unmap(Range range) {
        void* const at = reinterpret_cast<void*>(range.address);
        // At a limit of mappings, which giving back must not need: nobody may touch the pages any more, and they go
        // with their file's.
        if (::mmap(at, range.bytes, PROT_NONE, empty_flags | MAP_FIXED, -1, 0) == MAP_FAILED &&
            ::mprotect(at, range.bytes, PROT_NONE) != 0)
            return SystemLimits::no_mapping(errno, 0, HostStatus::out_of_host_memory);
        for (auto it = mappings_.find(range.address); it != mappings_.end() && it->first < range.end();) {
            const auto pages = pages_.find(it->second.handle);
            if (--pages->second.mappings == 0 && pages->second.released) discard(pages);
            it = mappings_.erase(it);
        }
        return HostStatus::ok;
    }

    Status allow(Range range, HostAccess access) noexcept {
        if (!whole(range))
            return misuse("allow_access of addresses that are not mapped, or of part of a mapping", range);
        const int protection = access == HostAccess::write ? PROT_READ | PROT_WRITE : PROT_READ;
        if (::mprotect(reinterpret_cast<void*>(range.address), range.bytes, protection) != 0)
            return SystemLimits::no_mapping(errno, 0, HostStatus::out_of_host_memory);
        each_mapping(range, [&](HostMapping& mapping) { mapping.access = access; });
        return HostStatus::ok;
    }

    Status allocate_plain(std::size_t bytes, Address& out) {
        constexpr std::size_t unit = 512;
        if (bytes == 0 || !can_align_up(bytes, unit)) return HostStatus::invalid_value;
        const std::size_t rounded = align_up(bytes, unit);
        HostPages room; // before the memory, which would be lost
        if (const Status status = source_->take_room(rounded, room); !status.ok()) return status;
        void* const at = std::aligned_alloc(unit, rounded);
        try {
            if (at == nullptr) throw std::bad_alloc{};
            mappings_[reinterpret_cast<Address>(at)] = {.bytes = rounded, .room = room, .access = HostAccess::write};
        } catch (const std::bad_alloc&) {
            std::free(at);
            source_->give_back(room);
            return HostStatus::out_of_host_memory;
        }
        if (poison_) std::memset(at, host_poison, rounded);
        out = reinterpret_cast<Address>(at);
        return HostStatus::ok;
    }

    /// Returns the whole plain allocation at `address`. If there is none, returns `{}` and records a violation.
    Range plain_range(Address address) noexcept {
        const auto found = mappings_.find(address);
        if (found != mappings_.end() && found->second.plain()) return {address, found->second.bytes};
        (void)misuse("free of an address that is not a plain allocation", {address, 0});
        return {};
    }

    /// Frees an allocation found by `plain_range`.
    void free_plain(Range range) noexcept {
        const auto mapping = mappings_.find(range.address);
        free(mapping->first, mapping->second);
        mappings_.erase(mapping);
    }

private:
    static constexpr int empty_flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

    struct Pages : HostPages {
        std::size_t mappings = 0;
        bool shared = false;
        bool released = false;
    };
    struct Reserved {
        std::size_t bytes = 0;
        std::string name{};
    };
    using Reservations = std::map<Address, Reserved>;
    using PagesTable = std::map<std::uint64_t, Pages>;

    Status misuse(const char* what, Range where) noexcept {
        note(what, where);
        return HostStatus::invalid_value;
    }

    /// Calls `f` with every mapping that overlaps `range`. Returns whether they cover it without holes.
    template <class F>
    bool each_mapping(Range range, F f) noexcept {
        if (range.bytes == 0) return true;
        auto it = mappings_.upper_bound(range.address);
        if (it != mappings_.begin() && std::prev(it)->first + std::prev(it)->second.bytes > range.address) --it;
        Address next = range.address;
        bool covered = true;
        for (; it != mappings_.end() && it->first < range.end(); ++it) {
            covered = covered && it->first <= next;
            f(it->second);
            next = it->first + it->second.bytes;
        }
        return covered && next >= range.end();
    }

    /// Returns whether `range` consists of whole mappings of pages without holes.
    [[nodiscard]] bool whole(Range range) const noexcept {
        if (range.bytes == 0 || !valid(range)) return false;
        Address next = range.address;
        for (auto it = mappings_.find(next); it != mappings_.end() && it->first == next; ++it) {
            if (it->second.plain()) return false;
            next += it->second.bytes;
            if (next >= range.end()) return next == range.end();
        }
        return false;
    }

    [[nodiscard]] bool any_mapped(Range range) noexcept {
        bool any = false;
        each_mapping(range, [&](const HostMapping&) { any = true; });
        return any;
    }

    /// Adds what `take(pages)` takes; nothing if that fails or throws.
    template <class Take>
    Status add(PageHandle& out, Take take) {
        const auto entry = pages_.try_emplace(next_handle_).first;
        Status status;
        try {
            status = take(entry->second);
        } catch (...) {
            pages_.erase(entry);
            throw;
        }
        if (status.ok())
            out.value = next_handle_++;
        else
            pages_.erase(entry);
        return status;
    }

    void free(Address address, const HostMapping& plain) noexcept {
        std::free(reinterpret_cast<void*>(address));
        source_->give_back(plain.room);
    }

    [[nodiscard]] bool in_pages(std::size_t bytes) const noexcept { return bytes != 0 && bytes % granularity_ == 0; }

    [[nodiscard]] Reservations::const_iterator reservation_at(Address address) const noexcept {
        const auto after = reservations_.upper_bound(address);
        if (after == reservations_.begin()) return reservations_.end();
        const auto found = std::prev(after);
        return address - found->first < found->second.bytes ? found : reservations_.end();
    }

    void discard(PagesTable::iterator pages) noexcept {
        source_->give_back(pages->second);
        pages_.erase(pages);
    }

    std::size_t capacity_;
    std::size_t granularity_;
    bool poison_;
    std::vector<std::string> violations_;
    UniquePtr<HostPageSource> source_;
    Reservations reservations_;
    PagesTable pages_; // including released handles that are still mapped
    std::map<Address, HostMapping> mappings_;
    std::uint64_t next_handle_ = 1;
};

/// Calls are serialized by the caller.
class HostPins {
public:
    /// `limit`: maximum bytes pinned at once.
    explicit HostPins(std::size_t limit) noexcept : limit_{limit} {}

    /// Pins pages. Fails if any part is already pinned or the limit is exceeded.
    Status pin(const void* pages, std::size_t bytes) noexcept {
        const auto begin = reinterpret_cast<std::uintptr_t>(pages);
        if (bytes == 0 || bytes > std::numeric_limits<std::uintptr_t>::max() - begin || overlaps(begin, bytes))
            return HostStatus::invalid_value;
        if (bytes > limit_ || pinned_bytes() > limit_ - bytes) return HostStatus::out_of_host_memory;
        try {
            pins_.emplace(begin, bytes);
        } catch (const std::bad_alloc&) {
            return HostStatus::out_of_host_memory;
        }
        return HostStatus::ok;
    }
    Status unpin(const void* pages) noexcept {
        const bool pinned = pins_.erase(reinterpret_cast<std::uintptr_t>(pages)) != 0;
        return pinned ? HostStatus::ok : HostStatus::invalid_value;
    }

    /// Returns whether a copy may use these bytes: false if they lie partly inside and partly outside a pinned range.
    [[nodiscard]] bool whole(const void* host, std::size_t bytes) const noexcept {
        const auto begin = reinterpret_cast<std::uintptr_t>(host);
        if (pins_.empty() || !overlaps(begin, bytes)) return true;
        const auto after = pins_.upper_bound(begin);
        return after != pins_.begin() && begin + bytes <= std::prev(after)->first + std::prev(after)->second;
    }

    [[nodiscard]] bool pinned(const void* host) const noexcept {
        return overlaps(reinterpret_cast<std::uintptr_t>(host), 1);
    }

    [[nodiscard]] std::size_t pinned_bytes() const noexcept {
        std::size_t sum = 0;
        for (const auto& [begin, bytes] : pins_) sum += bytes;
        return sum;
    }

private:
    [[nodiscard]] bool overlaps(std::uintptr_t begin, std::size_t bytes) const noexcept {
        const auto after = pins_.lower_bound(begin + bytes);
        return after != pins_.begin() && std::prev(after)->first + std::prev(after)->second > begin;
    }

    std::size_t limit_;
    std::map<std::uintptr_t, std::size_t> pins_;
};

class HostPools {
public:
    /// Adds pages to a pool, in use, taken from the machine's capacity. Strong exception guarantee: may throw
    /// std::bad_alloc.
    Status add(HostMemory& memory, PoolRef pool, std::size_t bytes) {
        chunks_.reserve(chunks_.size() + 1);
        Chunk chunk{pool, bytes, true, {}};
        const Status status = memory.create(bytes, chunk.pages);
        if (status.ok()) chunks_.push_back(chunk);
        return status;
    }
    /// Frees everything in a pool, which keeps the memory.
    void free(PoolRef pool) noexcept {
        for (Chunk& chunk : chunks_) chunk.in_use = chunk.in_use && !(chunk.pool == pool);
    }

    [[nodiscard]] std::size_t bytes(PoolRef pool) const noexcept {
        std::size_t sum = 0;
        for (const Chunk& chunk : chunks_) sum += chunk.pool == pool ? chunk.bytes : 0;
        return sum;
    }
    void trim(HostMemory& memory, PoolRef pool, std::size_t keep) noexcept {
        std::size_t left = bytes(pool);
        erase_in(chunks_, [&](const Chunk& chunk) {
            if (!(chunk.pool == pool) || chunk.in_use || left <= keep) return false;
            left -= chunk.bytes;
            return memory.release(chunk.pages).ok();
        });
    }

private:
    struct Chunk {
        PoolRef pool;
        std::size_t bytes;
        bool in_use;
        PageHandle pages;
    };
    Vector<Chunk> chunks_;
};

} // namespace memsaver::inline v0_3::detail
