// `Arena` and `Region`: where a program allocates, as a value and as a scope.
#pragma once

#include "memsaver/arena/options.hpp"
#include "memsaver/core/usage.hpp"
#include "memsaver/fwd.hpp"

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

namespace memsaver::inline v0_3 {

/// A copyable, thread-safe handle to one tag's memory on one device. Keeps the saver's core alive. A
/// default-constructed or moved-from handle refers to no arena, and using it throws Misuse. Allocating and freeing also
/// throw Misuse after the tag was dropped or the saver closed.
class Arena {
public:
    Arena() = default;
    Arena(std::shared_ptr<detail::SaverCore> saver, std::shared_ptr<detail::ArenaCore> arena) noexcept
        : saver_{std::move(saver)}, arena_{std::move(arena)} {}

    /// Allocates `bytes` bytes of device memory, aligned to `alignment` (a power of two), with undefined content. Any
    /// stream may use the block immediately. Throws OutOfMemory, OutOfHostMemory, or Misuse (0 bytes, tag's capacity
    /// exceeded, closed).
    [[nodiscard]] void* allocate(std::size_t bytes, std::size_t alignment = detail::Request::default_alignment) const;
    /// As above, for work of `stream`: reuses a block of about this size that was freed with this stream,
    /// whichever thread freed it, without waiting for its work. The caller must order other streams' work on the block
    /// after `stream`.
    [[nodiscard]] void* allocate(std::size_t bytes, StreamRef stream,
                                 std::size_t alignment = detail::Request::default_alignment) const;

    /// Frees a block of this arena, paused or active. As safe as cudaFree: the block is not reused until all work
    /// submitted to the device before this call has completed. Does not wait, except for plain memory. Thread-safe.
    /// Throws Misuse if `pointer` is not a live block of this arena. Null is a no-op.
    void deallocate(void* pointer) const;
    /// As above, but the block can be reused once `stream` has completed all work submitted to it before this call.
    void deallocate(void* pointer, StreamRef stream) const;
    /// As above, but the block can be reused immediately: the caller guarantees that no work still touches it.
    void deallocate(void* pointer, AlreadyIdle) const;
    /// Frees a block, for destructors of owners: never throws, and is a no-op after `close()` or `drop()`.
    void deallocate_quietly(void* pointer) const noexcept;

    /// Reserves `bytes` bytes of addresses without memory; see Elastic (memsaver/saver/elastic.hpp). Addresses cost no
    /// memory and may exceed the device's memory. Throws Misuse (0 bytes, a step size of 0, more than the address space
    /// allows, closed), or the exception for a failed driver call.
    [[nodiscard]] Elastic elastic(std::size_t bytes) const;
    /// As above, with options.
    [[nodiscard]] Elastic elastic(std::size_t bytes, const ElasticOptions& options) const;

    /// See MemorySaver::backup_view.
    [[nodiscard]] BackupView backup_view(const void* pointer, std::size_t bytes) const;
    /// See MemorySaver::write_backup.
    void write_backup(void* pointer, const void* from, std::size_t bytes) const;
    /// See MemorySaver::load.
    void load(void* pointer, std::size_t bytes, const std::string& path, std::size_t offset = 0) const;
    /// See MemorySaver::invalidate.
    void invalidate(const void* pointer, std::size_t bytes) const;

    /// See MemorySaver::gate.
    [[nodiscard]] Gate gate(const void* pointer, std::size_t bytes) const;

    /// Returns the name of the tag; "outside" for plain memory.
    [[nodiscard]] const std::string& tag() const;
    /// Returns the device number.
    [[nodiscard]] int device() const;
    /// Returns this arena's row of MemorySaver::usage. Also works after the tag was dropped or the saver closed;
    /// `state` then says which.
    [[nodiscard]] ArenaUsage usage() const;

    [[nodiscard]] explicit operator bool() const noexcept { return arena_ != nullptr; }
    friend bool operator==(const Arena& a, const Arena& b) noexcept { return a.arena_ == b.arena_; }

    /// Returns the arena behind the handle; for code that builds on arenas.
    [[nodiscard]] detail::ArenaCore& base() const;
    /// Returns the state shared by all handles of the saver; for code that builds on arenas.
    [[nodiscard]] detail::SaverCore& saver() const;

private:
    std::shared_ptr<detail::SaverCore> saver_; // declared first, so that it is destroyed last
    std::shared_ptr<detail::ArenaCore> arena_;
};

/// A scope in which `saver.allocate` on the creating thread allocates in its arena. An inner region overrides an outer
/// one. Not movable. Blocks allocated in a region outlive it.
class [[nodiscard]] Region {
public:
    /// Throws Misuse if `arena` refers to no arena.
    explicit Region(Arena arena);
    Region(const Region&) = delete;
    Region& operator=(const Region&) = delete;
    ~Region();

    /// See Arena::allocate; may be called from any thread.
    [[nodiscard]] void* allocate(std::size_t bytes, std::size_t alignment = detail::Request::default_alignment) const {
        return arena_.allocate(bytes, alignment);
    }
    [[nodiscard]] void* allocate(std::size_t bytes, StreamRef stream,
                                 std::size_t alignment = detail::Request::default_alignment) const {
        return arena_.allocate(bytes, stream, alignment);
    }

    /// Returns the region's arena; a copy may outlive the region.
    [[nodiscard]] const Arena& arena() const noexcept { return arena_; }

private:
    Arena arena_;
};

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/saver/arena_handle.ipp"
#endif
