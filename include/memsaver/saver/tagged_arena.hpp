// `TaggedArena`: a saver of one tag on one device, typed by driver and policy.
#pragma once

#include "memsaver/backup/discard.hpp"
#include "memsaver/saver/memory_saver.hpp"

#include <concepts>
#include <cstddef>
#include <string>
#include <utility>

namespace memsaver::inline v0_3 {

/// Owns memory that is paused and resumed as a unit: one tag, of a saver that nobody else uses. Move-only; a moved-from
/// object must not be used. The destructor waits for the device and releases everything. Thread-safe. Every method
/// except the destructor throws Misuse after the object was moved from; in a forked child every operation does.
template <class D, class Policy>
class TaggedArena {
    static_assert(std::same_as<Policy, AnyPolicy> || Backup<Policy>, "TaggedArena: Policy must satisfy Backup");

public:
    /// Throws Misuse for invalid options, OutOfMemory if `options.reserve` does not fit, or the error of a failing
    /// driver call.
    TaggedArena(D driver, const std::string& tag, Policy policy = {}, ArenaOptions options = {})
        : saver_{std::move(driver), {.events = options.events}}, arena_{saver_.arena(tag, std::move(policy),
                                                                                     std::move(options))} {}

    /// See Arena::allocate.
    [[nodiscard]] void* allocate(std::size_t bytes, std::size_t alignment = detail::Request::default_alignment) {
        return arena_.allocate(bytes, alignment);
    }
    [[nodiscard]] void* allocate(std::size_t bytes, StreamRef stream,
                                 std::size_t alignment = detail::Request::default_alignment) {
        return arena_.allocate(bytes, stream, alignment);
    }
    /// See Arena::deallocate.
    void deallocate(void* pointer) { arena_.deallocate(pointer); }
    void deallocate(void* pointer, StreamRef stream) { arena_.deallocate(pointer, stream); }
    void deallocate(void* pointer, AlreadyIdle) { arena_.deallocate(pointer, already_idle); }

    /// Releases the physical pages; addresses stay reserved. See MemorySaver::pause.
    Report pause(const PauseOptions& options = {}) { return saver_.pause(tag(), options); }
    /// Maps new pages at the same addresses. See MemorySaver::resume.
    Report resume(const ResumeOptions& options = {}) { return saver_.resume(tag(), options); }
    /// Releases extents that contain no live block.
    Report trim(const TrimOptions& options = {}) { return saver_.trim(tag(), options); }

    /// Allocates host memory ahead of the first pause. See MemorySaver::prepare.
    void prepare() { saver_.prepare(tag()); }
    /// See MemorySaver::invalidate.
    void invalidate() { saver_.invalidate(tag()); }
    /// Invalidates part of a block only. See MemorySaver::invalidate.
    void invalidate(const void* pointer, std::size_t bytes) { arena_.invalidate(pointer, bytes); }
    /// See MemorySaver::load.
    void load(void* pointer, std::size_t bytes, const std::string& path, std::size_t offset = 0) {
        arena_.load(pointer, bytes, path, offset);
    }
    /// See MemorySaver::forget_backup.
    void forget_backup() { saver_.forget_backup(tag()); }
    /// See MemorySaver::backup_view.
    [[nodiscard]] BackupView backup_view(const void* pointer, std::size_t bytes) {
        return arena_.backup_view(pointer, bytes);
    }
    /// See MemorySaver::write_backup.
    void write_backup(void* pointer, const void* from, std::size_t bytes) { arena_.write_backup(pointer, from, bytes); }
    /// Returns the physical bytes that a resume would take now.
    [[nodiscard]] std::size_t bytes_to_resume() const { return saver_.bytes_to_resume(tag()); }
    /// Returns the arena's current memory and its totals so far. Also valid after `close()`.
    [[nodiscard]] ArenaUsage usage() const { return arena_.usage(); }
    /// Returns the name passed to the constructor.
    [[nodiscard]] const std::string& tag() const { return arena_.tag(); }
    /// Returns the driver passed to the constructor.
    [[nodiscard]] const D& driver() const { return saver_.driver(); }

    /// Releases everything now. Later calls throw Misuse. See MemorySaver::close.
    void close() { saver_.close(); }

    /// Returns the core with the individual steps of each operation, for programs that interleave them with their own.
    [[nodiscard]] detail::ArenaCore& core() const { return arena_.base(); }

private:
    MemorySaver<D> saver_;
    Arena arena_;
};

} // namespace memsaver::inline v0_3
