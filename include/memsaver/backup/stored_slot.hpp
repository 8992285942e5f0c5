// The slot of policies that keep bytes somewhere. Knows which blocks are kept and where; not what the place is.
#pragma once

#include "memsaver/backup/policy.hpp"
#include "memsaver/backup/refresh.hpp"
#include "memsaver/backup/ticket.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace memsaver::inline v0_2 {

namespace detail {

class BackupStore;
class StoredBooks;
struct StoreOptions;

/// Puts a store around the one that a policy makes, which has these options; empty: that one as it is.
using AroundStore =
    std::function<std::shared_ptr<BackupStore>(std::shared_ptr<BackupStore>, const StoreOptions& options)>;

/// Saves, restores and forgets by the books (StoredBooks), in the room of a BackupStore.
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
    /// From the next resume on.
    void set_retain(bool yes) noexcept;
    Status close() noexcept;

    void forget(std::uint64_t serial) noexcept;

    void invalidate() noexcept;

    [[nodiscard]] std::size_t backed_up_bytes() const noexcept;

    /// Other bytes for a part of a block that is away. Throws Misuse if nothing is kept of it.
    void write(const LiveBlock& block, std::size_t offset, const std::byte* from, std::size_t bytes);

    /// A block of which nothing is kept, and which is away: these are its bytes. `live` says whose.
    void put(const LiveBlock& block, const std::byte* from, const LiveSet& live);

    /// The kept bytes of a part of a block. Throws what reading them may throw; Misuse if there are none.
    [[nodiscard]] BackupView view(std::uint64_t serial, std::size_t offset, std::size_t bytes) const;

private:
    class NotedWork;

    static std::vector<LiveBlock> sorted(const LiveSet& live);

    std::shared_ptr<StoredBooks> books_;
};

} // namespace detail

} // namespace memsaver::inline v0_2

#ifndef MEMSAVER_COMPILED
#include "memsaver/backup/stored_slot.ipp"
#endif
