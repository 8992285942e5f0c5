// Definitions of host_store.hpp.
#pragma once

#include "memsaver/backup/host_store.hpp"
#include "memsaver/core/lists.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {

MEMSAVER_INLINE HostStore::HostStore(AnyDriver driver, bool pinned, StoreOptions options)
    : KeptStore{std::move(driver), std::move(options), in_caches, "read a backup"}, pinned_{pinned} {}

MEMSAVER_INLINE Room HostStore::grow(std::size_t bytes, const LiveSet& live) {
    KeptStore::about(live);
    mappings_.reserve(mappings_.size() + 1);
    HostPart part = share_.part(bytes, pinned_, error_prefix_);
    if (pinned_ && mappings_.empty() && !part.cells->prepare(part.address, true).ok()) {
        if (!part.cells->ready(part.address, false))
            check_of(part.cells->prepare(part.address, false), "allocate host pages", bytes);
        pinned_ = false;
        fell_back_ = true;
    }
    mappings_.push_back(std::move(part));
    return {mappings_.back().address, mappings_.back().bytes};
}

MEMSAVER_INLINE void HostStore::shrink(LocationSpace& space) noexcept {
    erase_in(mappings_, [&](const HostPart& mapping) { return space.remove({mapping.address, mapping.bytes}); });
}

MEMSAVER_INLINE void HostStore::discard(std::uint64_t location,
                                        std::size_t bytes) noexcept { // pages are freed with their mapping
    if (options_.observer) options_.observer->discarded(location, bytes);
}

MEMSAVER_INLINE Status HostStore::clear() noexcept {
    for (const HostPart& mapping : mappings_) discard(mapping.address, mapping.bytes);
    mappings_.clear();
    return share_.leave();
}

MEMSAVER_INLINE void HostStore::prepare(std::vector<Unit> units) {
    if (!pinned_) prepare_ring(*share_.ring(), cut(units, share_.buffer_bytes()), alignment(), error_prefix_);
    const std::size_t bytes = bytes_of(units);
    const std::vector<Piece> pieces = cut(std::move(units), HostCells::cell_bytes);
    std::atomic<std::size_t> next{0};
    std::atomic<bool> readies_kernel{pinned_ && !options_.observer && may_go_by_kernel(bytes, options_.kernel_copies)};
    Crew crew{options_.crew};
    crew.start(pieces.size(), [&] {
        if (readies_kernel.exchange(false)) (void)driver_.copy_by_kernel(0, 0, 0, {});
        for (std::size_t i = next++; i < pieces.size(); i = next++) {
            const auto mapping = mapping_of(pieces[i].location());
            const Status status = mapping->prepare(pieces[i].location(), pinned_);
            if (!status.ok() && !mapping->ready(pieces[i].location(), false))
                check_of(status, "allocate host pages", pieces[i].bytes());
        }
    });
    crew.join();
    if (const auto failure = crew.failure()) std::rethrow_exception(failure);
}

MEMSAVER_INLINE void HostStore::change(const Unit& unit, std::size_t offset, const std::byte* from, std::size_t bytes) {
    const std::uint64_t first = unit.location + offset;
    std::vector<Piece> seen; // before any byte changes: nothing can fail between a change and its checksum
    if (options_.observer) seen = cut({unit}, pinned_ ? HostCells::cell_bytes : share_.buffer_bytes());
    each_unit_in(seen, first, bytes, [&](const Unit& part) { // or damage to the rest would get a valid checksum
        if (!replaced_whole(part, first, bytes)) options_.observer->restoring(part, at(part.location));
    });
    std::memcpy(at(first), from, bytes);
    each_unit_in(seen, first, bytes, [&](const Unit& part) { options_.observer->saved(part, at(part.location)); });
}

MEMSAVER_INLINE BackupView HostStore::view(std::uint64_t location, std::size_t bytes) const {
    return {mapping_of(location), at(location), bytes};
}

MEMSAVER_INLINE Status HostStore::reach(std::uint64_t location, std::size_t bytes, Reached& host) {
    host = {};
    if (!pinned_) return {};
    const auto mapping = mapping_of(location);
    bool pinned = true;
    for (std::uint64_t cell = location; cell < location + bytes; cell = next_cell(cell)) {
        const Status status = mapping->prepare(cell, true);
        if (!status.ok() && !mapping->ready(cell, false)) return status;
        if (!status.ok()) report_refused(tell_);
        pinned = pinned && status.ok();
    }
    host = {at(location), pinned};
    return {};
}

MEMSAVER_INLINE Room HostStore::unpinned_cell(std::uint64_t from) const noexcept {
    Room first;
    if (!pinned_) return first;
    for (const HostPart& mapping : mappings_) {
        const std::uint64_t end = mapping.address + mapping.bytes;
        for (std::uint64_t cell = std::max<std::uint64_t>(from, mapping.address); cell < end; cell = next_cell(cell)) {
            if (mapping.cells->ready(cell, true)) continue;
            if (first.bytes == 0 || cell < first.location)
                first = {cell, static_cast<std::size_t>(std::min(end, next_cell(cell)) - cell)};
            break;
        }
    }
    return first;
}

MEMSAVER_INLINE bool HostStore::take_ahead(std::uint64_t cell) noexcept {
    return mapping_of(cell)->prepare(cell, false).ok();
}

MEMSAVER_INLINE void HostStore::about(const LiveSet& live) {
    KeptStore::about(live);
    if (!tell_) tell_ = live.tell; // never again: threads of a transfer that is under way may call it
    if (std::exchange(fell_back_, false)) report_refused(tell_);
}

MEMSAVER_INLINE void HostStore::unsettle() noexcept {
    for (const HostPart& mapping : mappings_) mapping.cells->unsettle();
}

MEMSAVER_INLINE Status HostStore::put(const std::byte* from, std::uint64_t location, std::size_t bytes) const noexcept {
    constexpr std::uintptr_t page = 4096;
    const std::uintptr_t begin = align_up(location, page); // only whole pages of these bytes
    const std::uintptr_t end = align_down(location + bytes, page);
    if (begin < end) {
        if (const Status status = driver_.populate_host(at(begin), end - begin); !status.ok()) return status;
        mapping_of(location)->touched(end - begin);
    }
    std::byte* const to = at(location);
    std::memcpy(to, from, bytes);
    return {};
}

MEMSAVER_INLINE Status HostStore::get(std::byte* to, std::uint64_t location, std::size_t bytes) const noexcept {
    std::memcpy(to, at(location), bytes);
    return {};
}

MEMSAVER_INLINE std::byte* HostStore::at(std::uint64_t location) noexcept {
    return reinterpret_cast<std::byte*>(location); // NOLINT(performance-no-int-to-ptr): a host address
}

MEMSAVER_INLINE std::shared_ptr<HostCells> HostStore::mapping_of(std::uint64_t location) const {
    for (const HostPart& mapping : mappings_) {
        if (mapping.address <= location && location < mapping.address + mapping.bytes) return mapping.cells;
    }
    return {};
}

MEMSAVER_INLINE void HostStore::report_refused(const std::function<void(const std::string&)>& tell) {
    if (reported_.exchange(true) || !tell) return;
    try {
        tell("host pages cannot be pinned: copies of the backup are slower");
    } catch (const std::bad_alloc&) { // no host memory for the message
    }
}

MEMSAVER_INLINE std::vector<Piece> HostStore::reached(std::vector<Unit> units, const std::vector<Range>& first) const {
    std::vector<Piece> pieces = cut(std::move(units), HostCells::cell_bytes, first);
    for (Piece& piece : pieces) piece.pages = mapping_of(piece.location());
    return pieces;
}

MEMSAVER_INLINE std::unique_ptr<Transfer> HostStore::start(Direction direction, std::vector<Unit> units,
                                                           const LiveSet& live, const std::vector<Range>& first) {
    if (!pinned_) return through_ring(direction, std::move(units), live, first);
    auto work = direct_transfer(
        CopyLane{driver_, direction}, reached(std::move(units), first), options_.crew, options_.observer.get(),
        live.progress, [this, tell = live.tell] { report_refused(tell); }, live.before_write, options_.kernel_copies);
    work->start();
    return work;
}

} // namespace detail

} // namespace memsaver::inline v0_3
