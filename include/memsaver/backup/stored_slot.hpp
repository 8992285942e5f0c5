// The slot of policies that save bytes to a store. Knows which blocks are saved and where, but not what the store is.
#pragma once

#include "memsaver/backup/policy.hpp"
#include "memsaver/backup/refresh.hpp"
#include "memsaver/backup/ticket.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace memsaver::inline v0_3::detail {

class BackupStore;
class BackupIndex;
struct StoreOptions;

/// Wraps a policy's store in another store. `options` are those of the policy's store. Empty: no wrapper.
using AroundStore =
    std::function<std::shared_ptr<BackupStore>(std::shared_ptr<BackupStore>, const StoreOptions& options)>;

/// Saves, restores and forgets blocks. BackupIndex keeps the index; a BackupStore keeps the bytes.
class StoredSlot {
public:
    StoredSlot(std::shared_ptr<BackupStore> store, StoredSlotOptions options);

    void prepare(const LiveSet& live);

    Ticket save(const LiveSet& live);

    Ticket restore(const LiveSet& live);
    static constexpr bool asks_before_write = true;

    void saved_in_part(const std::vector<Range>& away) noexcept;

    [[nodiscard]] bool saves_once() const noexcept;
    [[nodiscard]] std::shared_ptr<DeviceScratch> scratch() const noexcept;

    Status resumed() noexcept;
    /// Takes effect with the next resume.
    void set_retain(bool yes) noexcept;
    Status close() noexcept;

    void forget(std::uint64_t serial) noexcept;
    /// Its place is freed, and the next save gives it another.
    void drop(std::uint64_t serial) noexcept { forget(serial); }

    void invalidate() noexcept;

    [[nodiscard]] std::size_t backed_up_bytes() const noexcept;

    /// Overwrites a part of the backup of a paused block. Throws Misuse if nothing is kept of the block.
    void write(const LiveBlock& block, std::size_t offset, const std::byte* from, std::size_t bytes);

    /// Returns a view of the backup of a part of a block. Throws Misuse if there is none, or an error from reading the
    /// bytes.
    [[nodiscard]] BackupView view(std::uint64_t serial, std::size_t offset, std::size_t bytes) const;

protected:
    std::shared_ptr<BackupIndex> index_;

private:
    class UnderWay;

    static std::vector<LiveBlock> sorted(const LiveSet& live);
};

} // namespace memsaver::inline v0_3::detail

#ifndef MEMSAVER_COMPILED
#include "memsaver/backup/stored_slot.ipp"
#endif
