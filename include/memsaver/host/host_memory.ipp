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

MEMSAVER_INLINE bool HostRange::overlaps(const HostRange& other) const noexcept {
    return bytes != 0 && other.bytes != 0 && address < other.end() && other.address < end();
}

MEMSAVER_INLINE void HostViolations::note(const char* what, HostRange where, const char* whose) noexcept {
    try {
        texts_.push_back(std::string{what} + " (" + format_bytes(where.bytes) + " at " + format_address(where.address) +
                         (whose == nullptr ? "" : std::string{", "} + whose) + ')');
    } catch (...) { // no memory for the text: the status, or the lost machine, still reports the error
    }
}

MEMSAVER_INLINE HostPageFile::HostPageFile() : file_{::memfd_create("memsaver", MFD_CLOEXEC)} {
    const Status status =
        file_.descriptor < 0 ? system_status(errno) : SystemFiles::opened(file_.descriptor, false, file_);
    if (!status.ok()) unavailable({"memfd_create failed: ", to_string(status)}, status);
}

MEMSAVER_INLINE Status HostPageFile::take(std::size_t bytes, off_t& offset) noexcept {
    constexpr auto most = std::uint64_t{1} << 62U;
    const std::uint64_t end = static_cast<std::uint64_t>(next_) + bytes;
    if (bytes > most || end > most) return HostStatus::out_of_host_memory;
    if (const Status status = make_room(static_cast<off_t>(end)); !status.ok()) return status;
    offset = next_;
    next_ = static_cast<off_t>(end);
    ++ranges_;
    return HostStatus::ok;
}

MEMSAVER_INLINE Status HostPageFile::take_between(Ranges used, std::size_t bytes, off_t& offset) noexcept {
    std::sort(used.begin(), used.end());
    off_t begin = 0;
    for (const auto& [at, length] : used) {
        if (static_cast<std::size_t>(at - begin) >= bytes) break;
        begin = at + static_cast<off_t>(length);
    }
    if (const Status status = make_room(begin + static_cast<off_t>(bytes)); !status.ok()) return status;
    offset = begin;
    ++ranges_;
    return HostStatus::ok;
}

MEMSAVER_INLINE Status HostPageFile::make_room(off_t end) noexcept {
    if (const Status status = SystemFiles::still_open(file_); !status.ok()) return status;
    if (const Status status = SystemLimits::file_size(static_cast<std::uint64_t>(end)); !status.ok()) return status;
    if (end <= size_) return HostStatus::ok;
    // Double the size, so that most calls need no system call. Holes cost nothing.
    constexpr auto most = std::uint64_t{1} << 62U;
    const std::uint64_t size = std::min({2 * static_cast<std::uint64_t>(end), most, SystemLimits::most_file_bytes()});
    if (::ftruncate(file_.descriptor, static_cast<off_t>(size)) != 0) return HostStatus::out_of_host_memory;
    size_ = static_cast<off_t>(size);
    return HostStatus::ok;
}

MEMSAVER_INLINE void HostPageFile::give_back(off_t offset, std::size_t bytes) noexcept {
    // Cannot fail for a file in memory and a range inside it, unless the program has closed the file. If it does, later
    // ranges are still new.
    (void)SystemFiles::punch_file(file_, static_cast<std::size_t>(offset), bytes);
    if (--ranges_ == 0) next_ = 0;
}

MEMSAVER_INLINE Status HostPageFile::fill(off_t offset, std::size_t bytes, unsigned char byte) noexcept {
    std::array<unsigned char, 64_KiB> block;
    block.fill(byte);
    for (std::size_t part = 0; bytes != 0; bytes -= part, offset += static_cast<off_t>(part)) {
        part = std::min(bytes, block.size());
        const Status status = SystemFiles::write_file(file_, block.data(), part, static_cast<std::size_t>(offset));
        if (status.code == ENOSPC) return HostStatus::out_of_host_memory;
        if (!status.ok()) return status;
    }
    return HostStatus::ok;
}

MEMSAVER_INLINE Status HostPageFile::map(HostRange range, off_t offset, int protection) noexcept {
    if (const Status status = SystemFiles::still_open(file_); !status.ok()) return status;
    void* const at = reinterpret_cast<void*>(range.address);
    constexpr int flags = MAP_SHARED | MAP_FIXED | MAP_NORESERVE;
    if (::mmap(at, range.bytes, protection, flags, file_.descriptor, offset) != MAP_FAILED) return HostStatus::ok;
    return SystemLimits::no_mapping(errno, 0, HostStatus::out_of_host_memory);
}

MEMSAVER_INLINE void HostMappings::add(HostRange range, std::uint64_t handle, HostAccess access) {
    table_.emplace(range.address, HostMapping{range.bytes, handle, next_serial_, 0, access});
    ++next_serial_;
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

MEMSAVER_INLINE HostMemory::~HostMemory() {
    for (const auto& [address, mapping] : mappings_.table())
        if (mapping.plain()) std::free(reinterpret_cast<void*>(address));
    for (auto& [address, reserved] : reservations_) {
        reserved.name = {};
        ::munmap(reinterpret_cast<void*>(address), reserved.bytes);
    }
    for (const HostRange& range : abandoned_) ::munmap(reinterpret_cast<void*>(range.address), range.bytes);
}

MEMSAVER_INLINE void HostMemory::count(HostCounts& counts) const noexcept {
    counts.reservations = reservations_.size();
    counts.handles = pages_.size() - released_;
    counts.mappings = mappings_.table().size() - plain_count_;
    counts.plain_allocations = plain_count_;
    counts.held_bytes = held_;
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

MEMSAVER_INLINE Status HostMemory::create(std::size_t bytes, PageHandle& out) {
    if (!in_pages(bytes)) return misuse("create with an invalid size", {0, bytes});
    if (bytes > capacity_ - held_) return HostStatus::out_of_memory;
    const auto entry = pages_.try_emplace(next_handle_, Pages{.bytes = bytes}).first;
    if (const Status status = take_pages(entry); !status.ok()) {
        pages_.erase(entry);
        return status;
    }
    held_ += bytes;
    out.value = next_handle_++;
    return HostStatus::ok;
}

MEMSAVER_INLINE Status HostMemory::take_pages(PagesTable::iterator pages) {
    off_t& offset = pages->second.offset;
    const std::size_t bytes = pages->second.bytes;
    Status status = file_.take(bytes, offset);
    if (status.code == EFBIG) {
        HostPageFile::Ranges used;
        for (const auto& [handle, each] : pages_)
            if (handle != pages->first) used.emplace_back(each.offset, each.bytes);
        status = file_.take_between(std::move(used), bytes, offset);
    }
    if (!status.ok() || !poison_) return status;
    status = file_.fill(offset, bytes, host_poison);
    if (!status.ok()) file_.give_back(offset, bytes);
    return status;
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
    if (const Status status = file_.map(range, found->second.offset, protection); !status.ok()) {
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

MEMSAVER_INLINE HostRange HostMemory::plain_range(Address address) noexcept {
    const auto found = mappings_.table().find(address);
    if (found != mappings_.table().end() && found->second.plain()) return {address, found->second.bytes};
    (void)misuse("free of an address that is not a plain allocation", {address, 0});
    return {};
}

MEMSAVER_INLINE void HostMemory::free_plain(HostRange range) noexcept {
    mappings_.table().erase(range.address);
    std::free(reinterpret_cast<void*>(range.address));
    held_ -= range.bytes;
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
    file_.give_back(pages->second.offset, pages->second.bytes);
    held_ -= pages->second.bytes;
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
