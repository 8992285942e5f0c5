// The store of a HostBackup: host memory, pinned or pageable.
#pragma once

#include "memsaver/backup/store.hpp"
#include "memsaver/core/lists.hpp"
#include "memsaver/core/pointers.hpp"
#include "memsaver/core/vector.hpp"

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

namespace memsaver::inline v0_3::detail {

/// Keeps bytes in mappings of host pages. Locations are host addresses. If the pages are pinned, copies reach them
/// directly. If they are pageable, bytes pass through a ring of pinned buffers. If pinning the first pages fails, the
/// store is pageable from then on.
class HostStore final : public BackupStore {
public:
    [[nodiscard]] std::size_t alignment() const noexcept override { return 256; }

    HostStore(AnyDriver driver, bool pinned, StoreOptions options)
        : BackupStore{std::move(driver), std::move(options), in_caches, "read a backup"}, pinned_{pinned} {}

    Room grow(std::size_t bytes, const LiveSet& live) override {
        BackupStore::about(live);
        mappings_.reserve(mappings_.size() + 1);
        HostPart part = HostPart::take(budget_, pool_, driver_, bytes, pinned_, error_prefix_);
        if (pinned_ && mappings_.empty() && !part.cells->prepare(part.address, true).ok()) {
            if (!part.cells->ready(part.address, false))
                check_of(part.cells->prepare(part.address, false), "allocate host pages", bytes);
            pinned_ = false;
            fell_back_ = true;
        }
        mappings_.push_back(std::move(part));
        return {mappings_.back().address, mappings_.back().bytes};
    }
    void shrink(LocationSpace& space) noexcept override {
        erase_in(mappings_, [&](const HostPart& mapping) { return space.remove({mapping.address, mapping.bytes}); });
    }
    void discard(std::uint64_t location, std::size_t bytes) noexcept override { // pages are freed with their mapping
        if (options_.observer) options_.observer->discarded(location, bytes);
    }
    Status clear() noexcept override {
        for (const HostPart& mapping : mappings_) discard(mapping.address, mapping.bytes);
        mappings_.clear();
        return leave_ring();
    }

    void prepare(Vector<Unit> units) override {
        if (!pinned_) prepare_ring(units);
        const std::size_t bytes = bytes_of(units);
        const Vector<Piece> pieces = reached(std::move(units), HostCells::cell_bytes);
        std::atomic<std::size_t> next{0};
        std::atomic<bool> readies_kernel{pinned_ && !options_.observer &&
                                         may_go_by_kernel(bytes, options_.kernel_copies)};
        Crew crew{options_.crew};
        crew.start(pieces.size(), [&] {
            if (readies_kernel.exchange(false)) (void)driver_.copy_by_kernel(0, 0, 0, {});
            for (std::size_t i = next++; i < pieces.size(); i = next++) {
                const Piece& piece = pieces[i];
                const Status status =
                    pinned_ ? piece.pages->prepare(piece.location(), true)
                            : piece.each_copy([&](const Unit& unit) { return populate(unit.location, unit.bytes); });
                if (!status.ok() && !piece.pages->ready(piece.location(), false))
                    check_of(status, "allocate host pages", piece.bytes());
            }
        });
        crew.join();
        if (const auto failure = crew.failure()) std::rethrow_exception(failure);
    }

    void change(const Unit& unit, std::size_t offset, const std::byte* from, std::size_t bytes) override {
        const std::uint64_t first = unit.location + offset;
        Vector<Unit> seen; // before any byte changes: nothing can fail between a change and its checksum
        if (options_.observer) {
            const std::size_t cell = pinned_ ? HostCells::cell_bytes : shape_.buffer_bytes;
            seen = units_in(cut({unit}, cell), first, bytes);
        }
        for (const Unit& part : seen) { // or damage to the rest would get a valid checksum
            if (!replaced_whole(part, first, bytes)) options_.observer->restoring(part, at(part.location));
        }
        std::memcpy(at(first), from, bytes);
        for (const Unit& part : seen) options_.observer->saved(part, at(part.location));
    }

    [[nodiscard]] BackupView view(std::uint64_t location, std::size_t bytes) const override {
        return {mapping_of(location), at(location), bytes};
    }

    [[nodiscard]] std::shared_ptr<CopyablePages> pages_of(std::uint64_t location) const override {
        return mapping_of(location);
    }
    [[nodiscard]] bool reachable() const noexcept override { return pinned_; }
    Status reach(std::uint64_t location, std::size_t bytes, Reached& host) override {
        host = {};
        if (!pinned_) return {};
        const auto mapping = mapping_of(location);
        bool pinned = true;
        for (std::uint64_t cell = location; cell < location + bytes; cell = next_cell(cell)) {
            const Status status = mapping->prepare(cell, true);
            if (!status.ok() && !mapping->ready(cell, false)) return status;
            if (!status.ok()) not_pinned();
            pinned = pinned && status.ok();
        }
        host = {at(location), pinned};
        return {};
    }
    [[nodiscard]] Vector<Room> unpinned_cells() const override {
        Vector<Room> cells;
        if (!pinned_) return cells;
        for (const HostPart& mapping : mappings_) {
            const std::uint64_t end = mapping.address + mapping.bytes;
            for (std::uint64_t cell = mapping.address; cell < end; cell = next_cell(cell)) {
                if (mapping.cells->ready(cell, true)) continue;
                cells.push_back({cell, static_cast<std::size_t>(std::min(end, next_cell(cell)) - cell)});
            }
        }
        return cells;
    }
    void about(const LiveSet& live) override {
        BackupStore::about(live);
        if (!tell_) tell_ = live.tell; // never again: threads of a transfer that is under way may call it
        if (std::exchange(fell_back_, false)) not_pinned();
    }
    void unsettle() noexcept override {
        for (const HostPart& mapping : mappings_) mapping.cells->unsettle();
    }

    // ByteStore
    /// Tells so once: pinning will not succeed later.
    void not_pinned() override {
        if (reported_.exchange(true) || !tell_) return;
        try {
            tell_("host pages cannot be pinned: copies of the backup are slower");
        } catch (const std::bad_alloc&) { // no host memory for the message
        }
    }
    Status put(const std::byte* from, std::uint64_t location, std::size_t bytes) const noexcept override {
        if (const Status status = populate(location, bytes); !status.ok()) return status;
        std::byte* const to = at(location);
        std::memcpy(to, from, bytes);
        return {};
    }
    Status get(std::byte* to, std::uint64_t location, std::size_t bytes) const noexcept override {
        std::memcpy(to, at(location), bytes);
        return {};
    }

private:
    /// A ring buffer of this size stays in the processor caches between copy and store, which makes it nearly twice as
    /// fast as one of 32 MiB (decision 11).
    static constexpr std::size_t in_caches = Ring::least_buffer;

    static std::byte* at(std::uint64_t location) noexcept {
        return reinterpret_cast<std::byte*>(location); // NOLINT(performance-no-int-to-ptr): a host address
    }
    /// Allocates the whole pages of these bytes. Not others: another backup in the mapping may be writing them.
    Status populate(std::uint64_t location, std::size_t bytes) const noexcept {
        constexpr std::uintptr_t page = 4096;
        const std::uintptr_t begin = align_up(location, page);
        const std::uintptr_t end = align_down(location + bytes, page);
        if (begin >= end) return {};
        const Status status = driver_.populate_host(at(begin), end - begin);
        if (status.ok()) mapping_of(location)->touched(end - begin);
        return status;
    }
    static std::uint64_t next_cell(std::uint64_t at) noexcept {
        return align_down(at, HostCells::cell_bytes) + HostCells::cell_bytes;
    }
    [[nodiscard]] std::shared_ptr<HostCells> mapping_of(std::uint64_t location) const {
        for (const HostPart& mapping : mappings_) {
            if (mapping.address <= location && location < mapping.address + mapping.bytes) return mapping.cells;
        }
        return {};
    }
    UniquePtr<Transfer> start(Direction direction, Vector<Unit> units, const LiveSet& live) override {
        if (!pinned_) return through_ring(direction, std::move(units), live);
        auto pieces = reached(std::move(units), HostCells::cell_bytes, live.first);
        auto work = direct_transfer(moving(direction, live), std::move(pieces), this, options_.kernel_copies);
        work->start();
        return work;
    }
    bool pinned_;
    bool fell_back_ = false;
    std::atomic<bool> reported_{false};
    std::function<void(const std::string&)> tell_; ///< for `not_pinned`
    Vector<HostPart> mappings_;
};

} // namespace memsaver::inline v0_3::detail
