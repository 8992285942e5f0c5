// Plain memory, which is never paused: allocated outside of every tag, and by a saver that is switched off.
#pragma once

#include "memsaver/arena/arena_base.hpp"
#include "memsaver/arena/pages.hpp"
#include "memsaver/backup/retired_slots.hpp"
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

namespace memsaver::inline v0_3 {

namespace detail {

class Directory;

/// Makes one driver allocation per block, as users of IPC and registrations need. Deallocating waits for the device, as
/// cudaFree does. If the driver has no plain allocations, every allocation fails. Only growing blocks and elastic
/// ranges have pages of their own, because only pages can be mapped at addresses that are known beforehand.
class PlainArena final : public ArenaBase {
public:
    /// `margin`: bytes of device memory that allocations leave free. `directory`, if not null, is told of every live
    /// block after `set_self` was called; it must outlive this arena.
    PlainArena(AnyDriver driver, std::string tag, EventSink events, std::size_t margin = 0,
               Directory* directory = nullptr);
    MEMSAVER_INLINE ~PlainArena() override;
    void set_self(const std::shared_ptr<ArenaBase>& self) noexcept { self_ = self; }

    MEMSAVER_INLINE void* allocate(const Request& request) override;
    MEMSAVER_INLINE void deallocate(void* pointer, const FreeOrder& order) override;
    MEMSAVER_INLINE void deallocate_quietly(void* pointer, const FreeOrder& order) noexcept override;
    [[nodiscard]] MEMSAVER_INLINE BackupView backup_view(const void* pointer, std::size_t bytes) override;
    /// Plain memory is never paused: writes to the memory itself, after all work submitted to the device before this
    /// call, and waits for the copy.
    MEMSAVER_INLINE void write_backup(void* pointer, const void* from, std::size_t bytes) override;
    /// Loads once, because the memory is never paused.
    MEMSAVER_INLINE void load(void* pointer, const FileRange& from, AnyPolicy (*reader)()) override;
    MEMSAVER_INLINE void invalidate(const void* pointer, std::size_t bytes) override;
    /// Returns null: plain memory never has to be waited for.
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

    /// Frees everything. Returns the first failure; what could not be freed is kept and retried by the next call.
    Status close(FunctionRef<void()> closing = [] {}) noexcept;

private:
    friend class PlainGrowingBlock;
    friend class PlainElasticRange;

    /// The addresses of a growing block and the pages mapped there; pages left by a failed growth lie after the block's
    /// bytes. Or the addresses of an elastic range, with pages in any order; pages left by a failure lie at steps that
    /// are not committed.
    struct Pages {
        Reservation addresses; // declared before the extents mapped in it, so that it is destroyed later
        std::size_t granularity = 0;
        std::vector<Extent> extents{};

        [[nodiscard]] std::size_t bytes() const noexcept;
        /// Releases the extents after the first `bytes`.
        Status shrink(std::size_t bytes) noexcept;
        /// Releases the extents inside `ranges`, which must be sorted; continues after failures. Returns the first
        /// failure.
        Status drop(const std::vector<Range>& ranges) noexcept;
    };
    struct Block {
        std::size_t bytes = 0;
        std::unique_ptr<Pages> pages{}; ///< of a growing block or elastic range
        std::uint64_t graph = 0;
        std::size_t step = 0; ///< of an elastic range, else 0; its `bytes` are the committed bytes, wherever they are
        bool kept = false;    ///< freed, but replays of `graph` may touch it, or it could not be freed completely

        [[nodiscard]] std::size_t addresses() const noexcept { return pages ? pages->addresses.get().bytes : bytes; }
        [[nodiscard]] std::size_t physical() const noexcept { return pages ? pages->bytes() : bytes; }
    };
    using Blocks = std::map<Address, Block>;

    /// Grows the block at `address` to at least `bytes`, in whole pages. Returns its new size.
    std::size_t grow(Address address, std::size_t bytes);
    /// Reserves addresses for a block with pages of its own. `step`: of an elastic range, else 0. Calls `made(range)`,
    /// which may throw, before the block is added.
    void reserve_pages(std::size_t bytes, std::size_t granularity, std::size_t step, FunctionRef<void(Range)> made);
    /// Frees a block. Waits for the device and for the work that `order` names.
    void give_up(Address address, const FreeOrder& order);
    Status give(Address address, Block& block) noexcept;
    [[nodiscard]] Status room_for(std::size_t bytes) const noexcept;
    /// Frees the resources of a load, and those that earlier loads could not free.
    void end_load(std::shared_ptr<AnySlot> slot) noexcept;
    [[noreturn]] void raise_no_room(const Status& status, const char* what, std::size_t bytes) const;

    // Called with the lock held:

    /// Returns the live or kept block that contains an address.
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
    std::size_t leaving_bytes_ = 0; // physical bytes of blocks being freed
    bool closed_ = false;
    std::mutex ending_;
    RetiredSlots spent_; // slots of loads; guarded by ending_
};

} // namespace detail

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/saver/plain_arena.ipp"
#endif
