// Definitions of file_source.hpp.
#pragma once

#include "memsaver/backup/backup_index.hpp"
#include "memsaver/backup/file_source.hpp"
#include "memsaver/backup/policy_options.hpp"
#include "memsaver/backup/source_store.hpp"

#include <cstdint>
#include <mutex>
#include <utility>

namespace memsaver::inline v0_3 {

namespace detail {

MEMSAVER_INLINE SourceSlot::SourceSlot(std::shared_ptr<SourceStore> store, bool retain)
    : StoredSlot{std::move(store), {Refresh::every_pause, retain, {}}} {}

MEMSAVER_INLINE SourceStore& SourceSlot::store() const noexcept { return static_cast<SourceStore&>(*index_->store); }

MEMSAVER_INLINE Status SourceSlot::resumed() noexcept {
    if (index_->options.retain) return StoredSlot::resumed();
    {
        const std::lock_guard lock{index_->mutex};
        for (BackupIndex::Entry& entry : index_->entries) index_->unsave(entry);
    }
    return store().drop_kept();
}

MEMSAVER_INLINE void SourceSlot::invalidate() noexcept { store().all_changed(); }

MEMSAVER_INLINE void SourceSlot::invalidate(const LiveBlock& block, std::size_t offset, std::size_t bytes) {
    if (const std::uint64_t location = index_->location_of(block.serial, false); location != 0)
        store().changed(location + offset, bytes);
}

MEMSAVER_INLINE void SourceSlot::load(const LiveBlock& block, std::size_t offset, const FileRange& from,
                                      const LiveSet& live) {
    const BackupIndex::OperationGuard under_way{index_}; // keeps the block's location if it is freed meanwhile
    index_->place({block}, live);
    const std::uint64_t location = index_->location_of(block.serial, false);
    if (location == 0) return; // it was freed
    index_->freed = true;      // the load drops kept bytes
    store().load({block.address + offset, location + offset, from.bytes}, from, live);
    // Padding: kept alone it would cost host memory although all else is in files.
    if (block.asked != 0) store().leave_out(location + block.asked, block.bytes - block.asked);
    if (!index_->options.retain) (void)store().leave_ring();
}

} // namespace detail

MEMSAVER_INLINE std::string FileSource::describe() const {
    return detail::text_of({"threads ", detail::in_digits(threads), ", ring ", detail::in_bytes(ring_bytes),
                            retain ? ", retained" : ", not retained",
                            executor ? ", custom executor" : ", no executor"});
}

MEMSAVER_INLINE FileSource FileSource::normalized() const {
    detail::require_crew("FileSource", threads, ring_bytes);
    return *this;
}

MEMSAVER_INLINE detail::SourceSlot FileSource::open(const AnyDriver& driver) const {
    const detail::StoreOptions options{{threads, executor, driver.numa_node()}, ring_bytes, {}};
    return {detail::new_shared<detail::SourceStore>(driver, options), retain};
}

} // namespace memsaver::inline v0_3
