// Arena and Region: where a program's memory comes from, as a value and as a scope.
#pragma once

#include "memsaver/arena/options.hpp"
#include "memsaver/core/usage.hpp"
#include "memsaver/fwd.hpp"

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

namespace memsaver::inline v0_2 {

namespace detail {
class ArenaBase;
class SaverCore;
} // namespace detail

class Elastic;
struct ElasticOptions;

/// A copyable handle to one tag's memory on one device, usable on any thread. Keeps the saver's core alive. A default
/// one, and one that was moved from, stands for no arena, and every use of it is Misuse; so is allocating and freeing
/// once the tag has been dropped, or the saver closed.
class Arena {
public:
    Arena() = default;
    Arena(std::shared_ptr<detail::SaverCore> saver, std::shared_ptr<detail::ArenaBase> arena) noexcept
        : saver_{std::move(saver)}, arena_{std::move(arena)} {}

    /// `bytes` of device memory at a multiple of `alignment` (a power of two), content undefined, good on every stream
    /// at once. Throws OutOfMemory, OutOfHostMemory, or Misuse (size 0, beyond the tag's capacity, closed).
    [[nodiscard]] void* allocate(std::size_t bytes, std::size_t alignment = detail::Request::default_alignment) const;
    /// The same for work of `stream`: a block of about the size that this thread has freed with this stream is reused
    /// at once, without waiting. Other streams have to be ordered after it.
    [[nodiscard]] void* allocate(std::size_t bytes, StreamRef stream,
                                 std::size_t alignment = detail::Request::default_alignment) const;

    /// As safe as cudaFree: the block is not handed out again before the device's work so far has passed it. Does not
    /// wait. Any thread, paused or not. Throws Misuse for what is not a live block of this arena; null does nothing.
    void deallocate(void* pointer) const;
    /// The block can be handed out again once `stream` has passed here.
    void deallocate(void* pointer, StreamRef stream) const;
    /// The block can be handed out again at once: no work touches it any more.
    void deallocate(void* pointer, AlreadyIdle) const;
    /// For owners' destructors: never throws, and does nothing after `close()` or `drop()`.
    void deallocate_quietly(void* pointer) const noexcept;

    /// `bytes` of addresses, without memory so far: see Elastic (memsaver/saver/elastic.hpp). They cost no memory and
    /// may be more than the device has. Throws Misuse (0 bytes or steps of 0, more than there can be, closed), and what
    /// a failing driver call stands for.
    [[nodiscard]] Elastic elastic(std::size_t bytes) const;
    /// The same with options.
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

    /// The name of its tag; "outside" for plain memory.
    [[nodiscard]] const std::string& tag() const;
    /// The number of its device.
    [[nodiscard]] int device() const;
    /// What it holds and has done, as a row of MemorySaver::usage; also once its tag has been dropped or the saver
    /// closed, and then its state says which.
    [[nodiscard]] ArenaUsage usage() const;

    [[nodiscard]] explicit operator bool() const noexcept { return arena_ != nullptr; }
    friend bool operator==(const Arena& a, const Arena& b) noexcept { return a.arena_ == b.arena_; }

    /// What it stands for, for what is built on arenas.
    [[nodiscard]] detail::ArenaBase& base() const;
    /// What all handles of its saver share, likewise.
    [[nodiscard]] detail::SaverCore& saver() const;

private:
    std::shared_ptr<detail::SaverCore> saver_; // declared first, so that it dies last
    std::shared_ptr<detail::ArenaBase> arena_;
};

/// From its creation to its end, `saver.allocate` on the thread that made it serves from its arena; an inner region
/// overrides an outer one. Cannot be moved. What was allocated lives on.
class [[nodiscard]] Region {
public:
    /// Throws Misuse for an arena that stands for none.
    explicit Region(Arena arena);
    Region(const Region&) = delete;
    Region& operator=(const Region&) = delete;
    ~Region();

    /// See Arena::allocate; any thread.
    [[nodiscard]] void* allocate(std::size_t bytes, std::size_t alignment = detail::Request::default_alignment) const {
        return arena_.allocate(bytes, alignment);
    }
    [[nodiscard]] void* allocate(std::size_t bytes, StreamRef stream,
                                 std::size_t alignment = detail::Request::default_alignment) const {
        return arena_.allocate(bytes, stream, alignment);
    }

    /// The arena that it serves from; a copy may outlive the region.
    [[nodiscard]] const Arena& arena() const noexcept { return arena_; }

private:
    Arena arena_;
};

} // namespace memsaver::inline v0_2

#ifndef MEMSAVER_COMPILED
#include "memsaver/saver/arena_handle.ipp"
#endif
