// Definitions of host_memory.hpp.
#pragma once

#include "memsaver/driver/system_limits.hpp"
#include "memsaver/host/host_memory.hpp"

#include <fcntl.h>
#include <sys/types.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <limits>
#include <mutex>
#include <new>
#include <string>

namespace memsaver::inline v0_3 {

namespace detail {

MEMSAVER_INLINE void HostViolations::note(const char* what, HostRange where, const char* whose) noexcept {
    try {
        texts_.push_back(std::string{what} + " (" + format_bytes(where.bytes) + " at " + format_address(where.address) +
                         (whose == nullptr ? "" : std::string{", "} + whose) + ')');
    } catch (...) { // no memory for the text: the status, or the lost machine, still reports the error
    }
}

MEMSAVER_INLINE HostMapping& HostMappings::add(HostRange range, std::uint64_t handle, HostAccess access) {
    HostMapping& added = table_[range.address];
    added = {.bytes = range.bytes, .handle = handle, .serial = next_serial_++, .access = access};
    return added;
}

MEMSAVER_INLINE bool HostMappings::whole(HostRange range, bool* in_use) const noexcept {
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

MEMSAVER_INLINE bool HostMappings::touch(HostRange range) noexcept {
    bool any = false;
    each(range, [&](const HostMapping&) { any = true; });
    return any;
}

MEMSAVER_INLINE bool HostMappings::accessible(HostRange range, HostAccess access) noexcept {
    if (range.bytes == 0) return true;
    bool all = true;
    return range.valid() && each(range, [&](const HostMapping& m) { all = all && m.access >= access; }) && all;
}

MEMSAVER_INLINE bool HostMappings::in_use(HostRange range) noexcept {
    bool any = false;
    each(range, [&](const HostMapping& mapping) { any = any || mapping.users != 0; });
    return any;
}

MEMSAVER_INLINE std::uint64_t HostMappings::pin(HostRange range) noexcept {
    each(range, [](HostMapping& mapping) { ++mapping.users; });
    return next_serial_++;
}

MEMSAVER_INLINE void HostMappings::unpin(HostRange range, std::uint64_t pinned) noexcept {
    each(range, [&](HostMapping& mapping) {
        if (mapping.serial < pinned) --mapping.users; // later mappings were not pinned
    });
}

MEMSAVER_INLINE HostMemory::HostMemory(std::size_t capacity, const HostDriverOptions& options,
                                       HostViolations& violations)
    : capacity_{capacity}, granularity_{options.granularity}, poison_{options.poison},
      tell_faults_{options.tell_faults}, violations_{violations} {
    if (const auto pages = options.machine.pages(); pages != nullptr)
        source_ = pages(options.machine.text(), capacity, granularity_);
    else
        source_ = std::make_unique<HostPageFile>(capacity);
}

MEMSAVER_INLINE HostMemory::~HostMemory() {
    for (const auto& [address, mapping] : mappings_.table())
        if (mapping.plain()) std::free(reinterpret_cast<void*>(address));
    for (auto& [address, reserved] : reservations_) {
        reserved.name = {};
        ::munmap(reinterpret_cast<void*>(address), reserved.bytes);
    }
    for (const HostRange& range : abandoned_) ::munmap(reinterpret_cast<void*>(range.address), range.bytes);
    for (const auto& [handle, pages] : pages_) source_->give_back(pages);
}

MEMSAVER_INLINE void HostMemory::count(HostCounts& counts) const noexcept {
    counts.reservations = reservations_.size();
    counts.handles = pages_.size() - released_ - plain_count_;
    counts.mappings = mappings_.table().size() - plain_count_;
    counts.plain_allocations = plain_count_;
    counts.held_bytes = source_->taken();
}

MEMSAVER_INLINE Status HostMemory::reserve(std::size_t bytes, std::size_t alignment, Address& out) {
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

MEMSAVER_INLINE Status HostMemory::unreserve(HostRange range) {
    const auto found = reservations_.find(range.address);
    if (found == reservations_.end() || found->second.bytes != range.bytes)
        return misuse("unreserve of a range that is not a reservation", range);
    if (mappings_.touch(range)) return misuse("unreserve of mapped addresses", range);
    found->second.name = {}; // before the addresses can be reused
    if (has_scraps(range))   // work still writes there: keep the addresses reserved
        abandoned_.push_back(range);
    else
        ::munmap(reinterpret_cast<void*>(range.address), range.bytes);
    reservations_.erase(found);
    return HostStatus::ok;
}

MEMSAVER_INLINE void HostMemory::name(HostRange range, const char* name) noexcept {
    const auto found = reservations_.find(range.address);
    if (!tell_faults_ || found == reservations_.end() || found->second.bytes != range.bytes) return;
    found->second.name = {}; // first, because with two names the handler might find the old one
    found->second.name = FaultName{range.address, range.bytes, name};
}

MEMSAVER_INLINE const char* HostMemory::name_at(Address address) const noexcept {
    const auto after = reservations_.upper_bound(address);
    if (after == reservations_.begin()) return nullptr;
    const auto& [begin, reserved] = *std::prev(after);
    return address - begin < reserved.bytes ? reserved.name.text() : nullptr;
}

MEMSAVER_INLINE Status HostMemory::create(std::size_t bytes, PageHandle& out, bool shared) {
    if (!in_pages(bytes)) return misuse("create with an invalid size", {0, bytes});
    const auto entry = pages_.try_emplace(next_handle_).first;
    Status status;
    try {
        status = source_->take(bytes, entry->second);
    } catch (...) {
        pages_.erase(entry);
        throw;
    }
    if (status.ok() && poison_) {
        status = entry->second.fill(host_poison);
        if (!status.ok()) source_->give_back(entry->second);
    }
    if (!status.ok()) {
        pages_.erase(entry);
        return status;
    }
    entry->second.shared = shared;
    out.value = next_handle_++;
    return HostStatus::ok;
}

MEMSAVER_INLINE Status HostMemory::export_pages(PageHandle handle, int& descriptor) noexcept {
    const auto found = pages_.find(handle.value);
    if (found == pages_.end() || found->second.released || !found->second.shared)
        return misuse("export of a handle that does not exist, or cannot be exported", {0, 0});
    return source_->export_pages(found->second, descriptor);
}

MEMSAVER_INLINE Status HostMemory::import_pages(int descriptor, PageHandle& out) {
    const auto entry = pages_.try_emplace(next_handle_).first;
    if (const Status status = source_->import_pages(descriptor, entry->second); !status.ok()) {
        pages_.erase(entry);
        return status;
    }
    out.value = next_handle_++;
    return HostStatus::ok;
}

MEMSAVER_INLINE Status HostMemory::release(PageHandle handle) {
    const auto found = pages_.find(handle.value);
    if (found == pages_.end() || found->second.released)
        return misuse("release of a handle that does not exist", {0, found == pages_.end() ? 0 : found->second.bytes});
    found->second.released = true;
    ++released_;
    if (found->second.mappings == 0) discard(found);
    return HostStatus::ok;
}

MEMSAVER_INLINE Status HostMemory::map(HostRange range, PageHandle handle) {
    const auto found = pages_.find(handle.value);
    if (found == pages_.end() || found->second.released) return misuse("map of a handle that does not exist", range);
    if (range.bytes != found->second.bytes) return misuse("map of a size that differs from the handle's", range);
    if (!range.valid() || range.address % granularity_ != 0 || !reserved(range))
        return misuse("map outside a reservation, or misaligned", range);
    if (mappings_.touch(range)) return misuse("map over mapped addresses", range);
    mappings_.add(range, handle.value, HostAccess::none);
    // On scrap pages PROT_NONE would end the process instead of failing only the faulty work.
    const int protection = has_scraps(range) ? PROT_READ | PROT_WRITE : PROT_NONE;
    if (const Status status = found->second.map(range, protection); !status.ok()) {
        mappings_.table().erase(range.address);
        return status;
    }
    ++found->second.mappings;
    return HostStatus::ok;
}

MEMSAVER_INLINE Status HostMemory::check_unmap(HostRange range, bool& in_use) noexcept {
    in_use = false;
    if (!mappings_.whole(range, &in_use))
        return misuse("unmap of addresses that are not mapped, or of part of a mapping", range);
    return HostStatus::ok;
}

MEMSAVER_INLINE Status HostMemory::unmap(HostRange range, bool scraps) {
    if (scraps) scraps_.push_back(range);
    if (!clear(range, scraps ? PROT_READ | PROT_WRITE : PROT_NONE)) {
        // At a limit of mappings, which giving back must not need: nobody may touch the pages any more, and they go
        // with their file's.
        void* const at = reinterpret_cast<void*>(range.address);
        if (scraps || ::mprotect(at, range.bytes, PROT_NONE) != 0) {
            if (scraps) scraps_.pop_back();
            return SystemLimits::no_mapping(errno, 0, HostStatus::out_of_host_memory);
        }
    }
    auto& table = mappings_.table();
    for (auto it = table.find(range.address); it != table.end() && it->first < range.end();) {
        const auto pages = pages_.find(it->second.handle);
        if (--pages->second.mappings == 0 && pages->second.released) discard(pages);
        it = table.erase(it);
    }
    return HostStatus::ok;
}

MEMSAVER_INLINE Status HostMemory::allow(HostRange range, HostAccess access) noexcept {
    if (!mappings_.whole(range))
        return misuse("allow_access of addresses that are not mapped, or of part of a mapping", range);
    const int protection = access == HostAccess::write ? PROT_READ | PROT_WRITE : PROT_READ;
    if (::mprotect(reinterpret_cast<void*>(range.address), range.bytes, protection) != 0)
        return SystemLimits::no_mapping(errno, 0, HostStatus::out_of_host_memory);
    mappings_.each(range, [&](HostMapping& mapping) { mapping.access = access; });
    return HostStatus::ok;
}

MEMSAVER_INLINE Status HostMemory::allocate_plain(std::size_t bytes, Address& out) {
    constexpr std::size_t unit = 512;
    if (bytes == 0 || !can_align_up(bytes, unit)) return HostStatus::invalid_value;
    const std::size_t rounded = align_up(bytes, unit);
    const auto entry = pages_.try_emplace(next_handle_).first; // before the memory, which would be lost
    void* at = nullptr;
    Status status = source_->take_room(rounded, entry->second);
    if (status.ok()) {
        at = std::aligned_alloc(unit, rounded);
        try {
            if (at == nullptr) throw std::bad_alloc{};
            mappings_.add({reinterpret_cast<Address>(at), rounded}, HostMapping::no_handle, HostAccess::write).room =
                next_handle_;
        } catch (const std::bad_alloc&) {
            std::free(at);
            source_->give_back(entry->second);
            status = HostStatus::out_of_host_memory;
        }
    }
    if (!status.ok()) {
        pages_.erase(entry);
        return status;
    }
    entry->second.released = true; // it is no handle
    ++next_handle_;
    ++plain_count_;
    if (poison_) std::memset(at, host_poison, rounded);
    out = reinterpret_cast<Address>(at);
    return HostStatus::ok;
}

MEMSAVER_INLINE HostRange HostMemory::plain_range(Address address) noexcept {
    const auto found = mappings_.table().find(address);
    if (found != mappings_.table().end() && found->second.plain()) return {address, found->second.bytes};
    (void)misuse("free of an address that is not a plain allocation", {address, 0});
    return {};
}

MEMSAVER_INLINE void HostMemory::free_plain(HostRange range) noexcept {
    const auto mapping = mappings_.table().find(range.address);
    const auto room = pages_.find(mapping->second.room);
    mappings_.table().erase(mapping);
    std::free(reinterpret_cast<void*>(range.address));
    source_->give_back(room->second);
    pages_.erase(room);
    --plain_count_;
}

MEMSAVER_INLINE Status HostMemory::misuse(const char* what, HostRange where) noexcept {
    violations_.note(what, where, name_at(where.address));
    return HostStatus::invalid_value;
}

MEMSAVER_INLINE bool HostMemory::reserved(HostRange range) const noexcept {
    auto it = reservations_.upper_bound(range.address);
    if (it == reservations_.begin()) return false;
    --it;
    return range.end() <= it->first + it->second.bytes;
}

MEMSAVER_INLINE void HostMemory::discard(PagesTable::iterator pages) noexcept {
    source_->give_back(pages->second);
    --released_;
    pages_.erase(pages);
}

MEMSAVER_INLINE bool HostMemory::clear(HostRange range, int protection) noexcept {
    void* const at = reinterpret_cast<void*>(range.address);
    return ::mmap(at, range.bytes, protection, empty_flags | MAP_FIXED, -1, 0) != MAP_FAILED;
}

MEMSAVER_INLINE bool HostMemory::has_scraps(HostRange range) const noexcept {
    for (const HostRange& scrap : scraps_)
        if (scrap.overlaps(range)) return true;
    return false;
}

MEMSAVER_INLINE bool HostMemory::seal(HostRange scrap) noexcept {
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

MEMSAVER_INLINE Status HostPins::pin(const void* pages, std::size_t bytes) noexcept {
    const std::lock_guard lock{mutex_};
    const auto begin = reinterpret_cast<std::uintptr_t>(pages);
    if (bytes == 0 || bytes > std::numeric_limits<std::uintptr_t>::max() - begin || overlaps(begin, bytes))
        return HostStatus::invalid_value;
    if (bytes > limit_ || pinned_bytes_ > limit_ - bytes) return HostStatus::out_of_host_memory;
    try {
        pins_.emplace(begin, bytes);
    } catch (const std::bad_alloc&) {
        return HostStatus::out_of_host_memory;
    }
    pinned_bytes_ += bytes;
    return HostStatus::ok;
}

MEMSAVER_INLINE Status HostPins::unpin(const void* pages) noexcept {
    const std::lock_guard lock{mutex_};
    const auto pin = pins_.find(reinterpret_cast<std::uintptr_t>(pages));
    if (pin == pins_.end()) return HostStatus::invalid_value;
    pinned_bytes_ -= pin->second;
    pins_.erase(pin);
    return HostStatus::ok;
}

MEMSAVER_INLINE bool HostPins::whole(const void* host, std::size_t bytes) noexcept {
    const std::lock_guard lock{mutex_};
    const auto begin = reinterpret_cast<std::uintptr_t>(host);
    if (pins_.empty() || !overlaps(begin, bytes)) return true;
    const auto after = pins_.upper_bound(begin);
    return after != pins_.begin() && begin + bytes <= std::prev(after)->first + std::prev(after)->second;
}

MEMSAVER_INLINE bool HostPins::pinned(const void* host) noexcept {
    const std::lock_guard lock{mutex_};
    return overlaps(reinterpret_cast<std::uintptr_t>(host), 1);
}

MEMSAVER_INLINE std::size_t HostPins::pinned_bytes() noexcept {
    const std::lock_guard lock{mutex_};
    return pinned_bytes_;
}

MEMSAVER_INLINE bool HostPins::overlaps(std::uintptr_t begin, std::size_t bytes) const noexcept {
    const auto after = pins_.lower_bound(begin + bytes);
    return after != pins_.begin() && std::prev(after)->first + std::prev(after)->second > begin;
}

MEMSAVER_INLINE Status HostPools::add(HostMemory& memory, PoolRef pool, std::size_t bytes) {
    chunks_.reserve(chunks_.size() + 1);
    Chunk chunk{pool, bytes, true, {}};
    const Status status = memory.create(bytes, chunk.pages);
    if (status.ok()) chunks_.push_back(chunk);
    return status;
}

MEMSAVER_INLINE void HostPools::free(PoolRef pool) noexcept {
    for (Chunk& chunk : chunks_) chunk.in_use = chunk.in_use && !(chunk.pool == pool);
}

MEMSAVER_INLINE std::size_t HostPools::bytes(PoolRef pool) const noexcept {
    std::size_t sum = 0;
    for (const Chunk& chunk : chunks_) sum += chunk.pool == pool ? chunk.bytes : 0;
    return sum;
}

MEMSAVER_INLINE void HostPools::trim(HostMemory& memory, PoolRef pool, std::size_t keep) noexcept {
    std::size_t left = bytes(pool);
    std::erase_if(chunks_, [&](const Chunk& chunk) {
        if (!(chunk.pool == pool) || chunk.in_use || left <= keep) return false;
        left -= chunk.bytes;
        return memory.release(chunk.pages).ok();
    });
}

} // namespace detail

} // namespace memsaver::inline v0_3
