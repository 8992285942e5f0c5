// Memory that is never paused: what a saver hands out outside of regions, and everywhere when it is switched off.
#pragma once

#include "memsaver/arena/arena_base.hpp"
#include "memsaver/arena/pages.hpp"
#include "memsaver/backup/spent_slots.hpp"
#include "memsaver/core/function_ref.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace memsaver::inline v0_2 {

namespace detail {

class Directory;

/// One driver allocation for each block: what users of IPC and registrations need. Deallocating waits for the device,
/// as cudaFree does. On a driver without plain allocations, every allocation fails. Only blocks that grow and elastic
/// ranges have pages of their own, for only those can come to addresses that are known before.
class PlainArena final : public ArenaBase {
public:
    /// `margin`: bytes of the device's memory that allocations leave free. `directory`, if there is one, knows the
    /// blocks for as long as they live, once `self` has been told; it outlives this.
    PlainArena(AnyDriver driver, std::string tag, EventSink events, std::size_t margin = 0,
               Directory* directory = nullptr);
    MEMSAVER_INLINE ~PlainArena() override;
    void set_self(const std::shared_ptr<ArenaBase>& self) noexcept { self_ = self; }

    MEMSAVER_INLINE void* allocate(const Request& request) override;
    MEMSAVER_INLINE void deallocate(void* pointer, const FreeOrder& order) override;
    MEMSAVER_INLINE void deallocate_quietly(void* pointer, const FreeOrder& order) noexcept override;
    [[nodiscard]] MEMSAVER_INLINE BackupView backup_view(const void* pointer, std::size_t bytes) override;
    /// Nothing is ever away: into the memory itself, once the device's work has passed.
    MEMSAVER_INLINE void write_backup(void* pointer, const void* from, std::size_t bytes) override;
    /// Once, for it stays.
    MEMSAVER_INLINE void load(void* pointer, const FileRange& from, AnyPolicy (*reader)()) override;
    MEMSAVER_INLINE void invalidate(const void* pointer, std::size_t bytes) override;
    /// Nothing is ever away: there is nothing to wait for.
    [[nodiscard]] MEMSAVER_INLINE std::shared_ptr<GateMark> gate(const void* pointer, std::size_t bytes) override;
    [[nodiscard]] MEMSAVER_INLINE std::unique_ptr<GrowingBlock> reserve_block(std::size_t cap) override;
    [[nodiscard]] MEMSAVER_INLINE std::unique_ptr<ElasticRange> reserve_elastic(std::size_t bytes,
                                                                                std::size_t step) override;
    MEMSAVER_INLINE void zero(void* pointer, std::size_t bytes, StreamRef stream) override;
    [[nodiscard]] MEMSAVER_INLINE bool owns_stream(StreamRef stream) const override;
    [[nodiscard]] MEMSAVER_INLINE bool contains(const void* pointer) const noexcept override;
    [[nodiscard]] MEMSAVER_INLINE bool holds(const void* pointer, std::size_t bytes) override;
    [[nodiscard]] bool here(const void* pointer, std::size_t bytes) override { return holds(pointer, bytes); }
    MEMSAVER_INLINE void let_go(std::uint64_t graph) noexcept override;
    MEMSAVER_INLINE void require_open(const char* what) const override;
    void require_resumed(const char* what, StreamRef) override { require_open(what); }
    [[nodiscard]] MEMSAVER_INLINE ArenaUsage usage() override;
    [[nodiscard]] const std::string& tag() const noexcept override { return tag_; }
    [[nodiscard]] int device() const noexcept override { return driver_.device(); }

    void set_margin(std::size_t bytes) noexcept { margin_.store(bytes); }

    /// Frees everything. Answers the first failure; what failed is kept, to be tried again.
    Status close(FunctionRef<void()> closing = [] {}) noexcept;

private:
    friend class PlainGrowingBlock;
    friend class PlainElasticRange;

    /// Addresses that pages come to as the block grows; those that a failed growth left are behind its bytes. Or those
    /// of an elastic range, in any order; then those that a failure left are at steps that have no memory.
    struct Pages {
        Reservation addresses; // declared before what is mapped in it, so that it dies later
        std::size_t granularity = 0;
        std::vector<Extent> extents{};

        [[nodiscard]] std::size_t bytes() const noexcept;
        /// Gives back what lies behind the first `bytes`.
        Status shrink(std::size_t bytes) noexcept;
        /// Gives back what lies in `ranges`, sorted, as far as it goes. Answers the first failure.
        Status drop(const std::vector<Range>& ranges) noexcept;
    };
    struct Block {
        std::size_t bytes = 0;
        std::unique_ptr<Pages> pages{}; ///< of a block that grows
        std::uint64_t graph = 0;
        std::size_t step = 0; ///< of an elastic range, whose `bytes` are those with memory, wherever they are
        bool kept = false;    ///< given up, but replays of `graph` may touch it, or it could not be given back

        [[nodiscard]] std::size_t addresses() const noexcept { return pages ? pages->addresses.get().bytes : bytes; }
        [[nodiscard]] std::size_t physical() const noexcept { return pages ? pages->bytes() : bytes; }
    };
    using Blocks = std::map<Address, Block>;

    /// Bytes behind the growing block's beginning, in whole pages, of which there are at least `bytes` then.
    std::size_t grow(Address address, std::size_t bytes);
    /// Addresses for a block with pages of its own. `step`: of an elastic range, else 0. Calls `made(range)`, which may
    /// throw, before it is known.
    void reserve_pages(std::size_t bytes, std::size_t granularity, std::size_t step, FunctionRef<void(Range)> made);
    /// Waits for the device, and for what `order` names.
    void give_up(Address address, const FreeOrder& order);
    Status give(Address address, Block& block) noexcept;
    [[nodiscard]] Status room_for(std::size_t bytes) const noexcept;
    /// Gives back what a load took, and what earlier ones could not give back.
    void end_load(std::shared_ptr<AnySlot> slot) noexcept;
    [[noreturn]] void raise_no_room(const Status& status, const char* what, std::size_t bytes) const;

    // With the lock held.

    /// The block that an address lies in, live or kept.
    [[nodiscard]] Blocks::const_iterator block_over(Address address) const noexcept;
    void require_open_locked(const std::string& what) const;
    [[noreturn]] void refuse(Address address) const;

    AnyDriver driver_;
    std::string tag_;
    EventSink events_;
    std::atomic<std::size_t> margin_;
    Directory* directory_;
    std::weak_ptr<ArenaBase> self_;
    mutable std::mutex mutex_;
    Blocks blocks_;
    std::size_t leaving_bytes_ = 0; // physical bytes of blocks that are being given back
    bool closed_ = false;
    std::mutex ending_;
    SpentSlots spent_; // of loads; guarded by the mutex before it
};

} // namespace detail

} // namespace memsaver::inline v0_2

#ifndef MEMSAVER_COMPILED
#include "memsaver/saver/plain_arena.ipp"
#endif
