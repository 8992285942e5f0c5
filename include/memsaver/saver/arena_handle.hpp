// The value form of an arena: a handle to be copied around.
#pragma once

#include "memsaver/arena/host_memory_guard.hpp"
#include "memsaver/saver/saver_base.hpp"

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

namespace memsaver::inline v0_1 {

/// A copyable handle to one tag's memory on one device, usable on any thread. Keeps the saver's core alive. A default
/// one, and one that was moved from, stands for no arena, and every use of it is Misuse.
class Arena {
public:
    Arena() = default;
    Arena(std::shared_ptr<SaverBase> saver, ArenaBase& arena) noexcept : saver_{std::move(saver)}, arena_{&arena} {}
    Arena(const Arena&) noexcept = default;
    Arena& operator=(const Arena&) noexcept = default;
    Arena(Arena&& other) noexcept : saver_{std::move(other.saver_)}, arena_{std::exchange(other.arena_, nullptr)} {}
    Arena& operator=(Arena&& other) noexcept {
        saver_ = std::move(other.saver_);
        arena_ = std::exchange(other.arena_, nullptr);
        return *this;
    }
    ~Arena() = default;

    /// `bytes` of device memory at a multiple of `alignment` (a power of two), content undefined. Throws OutOfMemory,
    /// OutOfHostMemory, or Misuse (size 0, beyond the tag's capacity, closed).
    [[nodiscard]] void* allocate(std::size_t bytes, std::size_t alignment = ArenaBase::default_alignment) const {
        ArenaBase& arena = base();
        return guard_host_memory([&] { return saver_->allocate_from(arena, bytes, alignment); });
    }

    /// As safe as cudaFree: the block is not handed out again before the device's work so far has passed it. Does not
    /// wait. Any thread, paused or not. Throws Misuse for what is not a live block of this arena; null does nothing.
    void deallocate(void* pointer) const { give_up(pointer, {}); }
    /// The block can be handed out again once `stream` has passed here.
    void deallocate(void* pointer, StreamRef stream) const { give_up(pointer, {FreeOrder::Kind::stream, stream}); }
    /// The block can be handed out again at once: no work touches it any more.
    void deallocate(void* pointer, AlreadyIdle) const { give_up(pointer, {FreeOrder::Kind::idle, {}}); }
    /// For owners' destructors: never throws, and does nothing after `close()`.
    void deallocate_quietly(void* pointer) const noexcept {
        if (saver_ && arena_ != nullptr) arena_->deallocate_quietly(pointer, saver_->order_now(*arena_, {}));
    }

    /// Addresses for up to `cap` bytes that get memory as they grow; for those who hand out workspaces. Ends before
    /// this handle does. See ArenaBase::reserve_block and GrowingBlock.
    [[nodiscard]] std::unique_ptr<GrowingBlock> reserve_block(std::size_t cap) const {
        return guard_host_memory([&] { return base().reserve_block(cap); });
    }
    /// GrowingBlock::grow, and where the device has no room, once more after unused memory has been given back.
    void grow(GrowingBlock& block, std::size_t bytes) const {
        guard_host_memory([&] {
            try {
                block.grow(bytes);
            } catch (const OutOfMemory&) {
                if (!saver_->make_room(device())) throw;
                block.grow(bytes);
            }
        });
    }

    /// Ends such a block as `deallocate_quietly` gives up others: inside a capture, its memory stays with the graph.
    void end(std::unique_ptr<GrowingBlock> block) const noexcept {
        if (block && saver_ && arena_ != nullptr) block->end_as(saver_->order_now(*arena_, {}));
    }

    /// See MemorySaver::backup_view.
    [[nodiscard]] BackupView backup_view(const void* pointer, std::size_t bytes) const {
        return guard_host_memory([&] { return base().backup_view(pointer, bytes); });
    }

    [[nodiscard]] const std::string& tag() const { return base().tag(); }
    [[nodiscard]] int device() const { return base().device(); }
    [[nodiscard]] ArenaUsage usage() const {
        return guard_host_memory([&] { return base().usage(); });
    }

    /// What it stands for, without driver or policy.
    [[nodiscard]] ArenaBase& base() const {
        if (!saver_ || arena_ == nullptr) throw Misuse{"an Arena that stands for no arena was used"};
        return *arena_;
    }

    [[nodiscard]] explicit operator bool() const noexcept { return arena_ != nullptr; }
    friend bool operator==(const Arena& a, const Arena& b) noexcept { return a.arena_ == b.arena_; }

private:
    void give_up(void* pointer, const FreeOrder& order) const {
        ArenaBase& arena = base();
        guard_host_memory([&] { arena.deallocate(pointer, saver_->order_now(arena, order)); });
    }

    std::shared_ptr<SaverBase> saver_;
    ArenaBase* arena_ = nullptr; // owned by the saver's core
};

} // namespace memsaver::inline v0_1
