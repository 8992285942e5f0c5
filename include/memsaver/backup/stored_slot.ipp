// Definitions of stored_slot.hpp.
#pragma once

#include "memsaver/backup/backup_index.hpp"
#include "memsaver/backup/device_scratch.hpp"
#include "memsaver/backup/stored_slot.hpp"
#include "memsaver/core/lists.hpp"
#include "memsaver/core/pointers.hpp"
#include "memsaver/core/ranges.hpp"
#include "memsaver/core/vector.hpp"

#include <mutex>
#include <new>
#include <string>
#include <utility>

namespace memsaver::inline v0_3::detail {

/// A transfer during which no place is freed. Records what was saved once the bytes have arrived.
class StoredSlot::UnderWay final : public Transfer::Companion {
public:
    explicit UnderWay(const std::shared_ptr<BackupIndex>& index) : guard_{index} {}
    MEMSAVER_INLINE void arrived() override;
    /// A ticket for the transfer, which owns this from now on.
    static Ticket of(UniquePtr<Transfer> moving, UniquePtr<UnderWay> under_way) {
        moving->accompany(std::move(under_way));
        const std::size_t bytes = moving->bytes();
        return {std::move(moving), bytes};
    }

    Vector<std::uint64_t> saved; ///< serials

private:
    BackupIndex::OperationGuard guard_;
};

MEMSAVER_INLINE void StoredSlot::UnderWay::arrived() {
    BackupIndex& index = guard_.index();
    const std::lock_guard lock{index.mutex};
    for (const std::uint64_t serial : saved) {
        BackupIndex::Entry* const entry = index.find(serial);
        if (entry == nullptr || entry->forgotten) continue;
        if (!entry->saved) index.saved_bytes += entry->bytes;
        entry->saved = true;
        entry->fresh = true;
    }
    saved.clear();
}

MEMSAVER_INLINE StoredSlot::StoredSlot(std::shared_ptr<BackupStore> store, StoredSlotOptions options)
    : index_{new_shared<BackupIndex>(std::move(store), options)} {}

MEMSAVER_INLINE void StoredSlot::prepare(const LiveSet& live) {
    const BackupIndex::OperationGuard under_way{index_};
    const std::vector<LiveBlock> blocks = sorted(live);
    index_->place(blocks, live);
    Vector<Unit> units;
    units.reserve(blocks.size());
    {
        const std::lock_guard lock{index_->mutex};
        for (const LiveBlock& block : blocks) {
            if (!index_->find(block.serial)->forgotten) index_->add_unit(block, units);
        }
    }
    index_->store->prepare(std::move(units));
}

MEMSAVER_INLINE Ticket StoredSlot::save(const LiveSet& live) {
    auto under_way = UniquePtr<UnderWay>::make(index_);
    const std::vector<LiveBlock> blocks = sorted(live);
    index_->place(blocks, live);
    Vector<Unit> units;
    Vector<Unit> unchanged;
    units.reserve(blocks.size());
    under_way->saved.reserve(blocks.size());
    {
        const std::lock_guard lock{index_->mutex};
        for (const LiveBlock& block : blocks) {
            BackupIndex::Entry& entry = *index_->find(block.serial);
            if (entry.forgotten) continue;
            if (entry.saved && entry.fresh && index_->options.refresh == Refresh::once) {
                if (index_->options.check) index_->add_unit(block, unchanged);
                continue;
            }
            entry.device = block.address;
            index_->add_unit(block, units);
            index_->unsave(entry); // from here on the location is being overwritten
            under_way->saved.push_back(block.serial);
        }
    }
    if (!unchanged.empty()) index_->store->compare(std::move(unchanged), live, index_->options.check.compare());
    return UnderWay::of(index_->store->move(Direction::out, std::move(units), live), std::move(under_way));
}

MEMSAVER_INLINE Ticket StoredSlot::restore(const LiveSet& live) {
    auto under_way = UniquePtr<UnderWay>::make(index_);
    const std::vector<LiveBlock> blocks = sorted(live);
    Vector<Unit> units;
    units.reserve(blocks.size());
    {
        const std::lock_guard lock{index_->mutex};
        for (const LiveBlock& block : blocks) {
            const BackupIndex::Entry* const entry = index_->find(block.serial);
            if (entry != nullptr && entry->saved) index_->add_unit(block, units);
        }
    }
    return UnderWay::of(index_->store->move(Direction::in, std::move(units), live), std::move(under_way));
}

MEMSAVER_INLINE void StoredSlot::saved_in_part(const std::vector<Range>& away) noexcept {
    const std::lock_guard lock{index_->mutex};
    for (BackupIndex::Entry& entry : index_->entries) {
        if (entry.forgotten || entry.saved) continue;
        const Range block{entry.device, entry.bytes};
        if (!any_in(away, [&](const Range& range) { return overlap(range, block); })) continue;
        index_->saved_bytes += entry.bytes;
        entry.saved = true;
        entry.fresh = false;
    }
}

MEMSAVER_INLINE bool StoredSlot::saves_once() const noexcept { return index_->options.refresh == Refresh::once; }

MEMSAVER_INLINE std::shared_ptr<DeviceScratch> StoredSlot::scratch() const noexcept { return index_->store->scratch(); }

MEMSAVER_INLINE Status StoredSlot::resumed() noexcept {
    if (!index_->options.retain && index_->options.refresh != Refresh::once) return index_->clear();
    try {
        index_->sweep();
    } catch (const std::bad_alloc&) { // a later call sweeps
    }
    if (const auto scratch = index_->store->scratch(); scratch && saves_once()) { // later pauses do not need it
        if (const Status status = scratch->give(); !status.ok()) return status;
    }
    return index_->store->retry();
}

MEMSAVER_INLINE void StoredSlot::set_retain(bool yes) noexcept { index_->options.retain = yes; }

MEMSAVER_INLINE Status StoredSlot::close() noexcept { return index_->clear(); }

MEMSAVER_INLINE std::size_t StoredSlot::backed_up_bytes() const noexcept {
    return index_->store->taken_by(index_->saved_bytes.load());
}

MEMSAVER_INLINE void StoredSlot::forget(std::uint64_t serial) noexcept {
    const std::lock_guard lock{index_->mutex};
    try {
        BackupIndex::Entry* entry = index_->find(serial);
        if (entry == nullptr) {
            if (index_->under_way == 0) return;
            BackupIndex::Entry gone; // so that a `place` under way learns of it
            gone.serial = serial;
            entry = &*index_->entries.insert(index_->at_or_after(serial), gone);
        }
        if (std::exchange(entry->forgotten, true)) return;
        index_->unsave(*entry);
        index_->forgotten += 1;
    } catch (const std::bad_alloc&) { // the block gets a location that is never used
    }
}

MEMSAVER_INLINE void StoredSlot::invalidate() noexcept {
    const std::lock_guard lock{index_->mutex};
    for (BackupIndex::Entry& entry : index_->entries) entry.fresh = false;
}

MEMSAVER_INLINE void StoredSlot::write(const LiveBlock& block, std::size_t offset, const std::byte* from,
                                       std::size_t bytes) {
    const BackupIndex::OperationGuard under_way{index_}; // keeps the location from being freed
    const Unit unit{block.address, index_->saved_at(block.serial), block.bytes};
    index_->store->change(unit, offset, from, bytes);
}

MEMSAVER_INLINE BackupView StoredSlot::view(std::uint64_t serial, std::size_t offset, std::size_t bytes) const {
    // A location is not freed before the next operation.
    return index_->store->view(index_->saved_at(serial) + offset, bytes);
}

MEMSAVER_INLINE std::vector<LiveBlock> StoredSlot::sorted(const LiveSet& live) {
    std::vector<LiveBlock> blocks = live.blocks();
    sort_by(blocks, [](const LiveBlock& block) { return block.address; });
    return blocks;
}

MEMSAVER_INLINE void compare_with(const ByteStore& store, const AnyDriver& driver, const Vector<Unit>& units,
                                  Vector<Piece> pieces, std::shared_ptr<Ring> ring, const CrewOptions& crew,
                                  const std::string& tag) {
    const ComparingStore comparing{store};
    const auto transfer = staged_transfer({driver, Direction::out, crew, nullptr, {}, {}}, std::move(pieces), comparing,
                                          std::move(ring), of_tag(tag));
    transfer->start();
    check(transfer->wait(), "compare bytes");
    if (comparing.differs()) misuse({difference_text(units, comparing.first_difference(), tag)});
}

} // namespace memsaver::inline v0_3::detail
