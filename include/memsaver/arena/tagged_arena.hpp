// One arena without a saver, typed by driver and policy.
#pragma once

#include "memsaver/arena/options.hpp"
#include "memsaver/backup/discard.hpp"
#include "memsaver/core/definitions.hpp"
#include "memsaver/core/report.hpp"
#include "memsaver/core/usage.hpp"
#include "memsaver/driver/any_driver.hpp"
#include "memsaver/fwd.hpp"

#include <concepts>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>

namespace memsaver::inline v0_3 {

namespace detail {

class ArenaCore;

/// Implementation of TaggedArena. Thread-safe. Every method except the destructor throws Misuse after the object was
/// moved from, and in a forked child.
class OwnedArena {
public:
    OwnedArena(AnyDriver driver, std::string tag, AnyPolicy policy, ArenaOptions options);

    void* allocate(const Request& request) const;
    void deallocate(void* pointer, const FreeOrder& order) const;
    Report pause(const PauseOptions& options) const;
    Report resume(const ResumeOptions& options) const;
    Report trim(const TrimOptions& options) const;
    void prepare() const;
    void invalidate() const;
    void forget_backup() const;
    [[nodiscard]] BackupView backup_view(const void* pointer, std::size_t bytes) const;
    void write_backup(void* pointer, const void* from, std::size_t bytes) const;
    void load(void* pointer, const FileRange& from) const;
    void invalidate(const void* pointer, std::size_t bytes) const;
    [[nodiscard]] std::size_t bytes_to_resume() const;
    [[nodiscard]] ArenaUsage usage() const;
    void close() const;
    [[nodiscard]] const std::string& tag() const;
    [[nodiscard]] const AnyDriver& driver() const;
    [[nodiscard]] ArenaCore& core() const;

private:
    /// Runs `act(core)` like every public call: refuses a forked child, and names the tag in any exception.
    template <class Act>
    decltype(auto) run(Act&& act) const; // tagged_arena.ipp
    /// Adds to an OutOfMemory who holds the device's memory.
    static void say_who_holds(Error& error, const ArenaCore& arena) noexcept;

    std::shared_ptr<ArenaCore> core_;
};

} // namespace detail

/// Owns memory that is paused and resumed as a unit. Move-only; a moved-from object must not be used. The destructor
/// waits for the device and releases everything. Thread-safe.
template <class D, class Policy>
class TaggedArena {
    static_assert(Driver<D>, "TaggedArena<D, Policy>: D must be AnyDriver or a driver derived from it");
    static_assert(std::same_as<Policy, AnyPolicy> || Backup<Policy>, "TaggedArena: Policy must satisfy Backup");

public:
    /// Throws Misuse for invalid options, OutOfMemory if `options.reserve` does not fit, or the error of a failing
    /// driver call.
    TaggedArena(D driver, std::string tag, Policy policy = {}, ArenaOptions options = {})
        : driver_{std::move(driver)},
          arena_(detail::translated([&] { // constructing the type-erased policy may throw std::bad_alloc too
              return detail::OwnedArena{driver_, std::move(tag), std::move(policy), std::move(options)};
          })) {
        detail::include_memsaver_impl_hpp_in_one_source_file();
    }

    /// See Arena::allocate. If the device is out of memory, first releases unused memory of this arena and of other
    /// arenas that share the driver, then retries.
    [[nodiscard]] void* allocate(std::size_t bytes, std::size_t alignment = detail::Request::default_alignment) {
        return arena_.allocate({bytes, alignment, {}});
    }
    /// See Arena::allocate.
    [[nodiscard]] void* allocate(std::size_t bytes, StreamRef stream,
                                 std::size_t alignment = detail::Request::default_alignment) {
        return arena_.allocate({bytes, alignment, stream});
    }
    /// Frees a block. It is not reused until all work submitted to the device before this call has completed. Never
    /// waits for the device.
    void deallocate(void* pointer) { arena_.deallocate(pointer, {}); }
    /// Frees a block. It can be reused once `stream` has completed all work submitted to it before this call.
    void deallocate(void* pointer, StreamRef stream) {
        arena_.deallocate(pointer, {detail::FreeOrder::Kind::stream, stream});
    }
    /// Frees a block that no work uses any more. It can be reused immediately.
    void deallocate(void* pointer, AlreadyIdle) { arena_.deallocate(pointer, {detail::FreeOrder::Kind::idle, {}}); }

    /// Releases the physical pages; addresses stay reserved. See MemorySaver::pause.
    Report pause(const PauseOptions& options = {}) { return arena_.pause(options); }
    /// Maps new pages at the same addresses. If the device is out of memory, first releases unused memory of this arena
    /// and of other arenas that share the driver. See MemorySaver::resume.
    Report resume(const ResumeOptions& options = {}) { return arena_.resume(options); }
    /// Releases extents that contain no live block.
    Report trim(const TrimOptions& options = {}) { return arena_.trim(options); }

    /// Allocates host memory ahead of the first pause. See MemorySaver::prepare.
    void prepare() { arena_.prepare(); }
    /// See MemorySaver::invalidate.
    void invalidate() { arena_.invalidate(); }
    /// Invalidates part of a block only. See MemorySaver::invalidate.
    void invalidate(const void* pointer, std::size_t bytes) { arena_.invalidate(pointer, bytes); }
    /// See MemorySaver::load.
    void load(void* pointer, std::size_t bytes, const std::string& path, std::size_t offset = 0) {
        arena_.load(pointer, {path, offset, bytes});
    }
    /// See MemorySaver::forget_backup.
    void forget_backup() { arena_.forget_backup(); }
    /// See MemorySaver::backup_view.
    [[nodiscard]] BackupView backup_view(const void* pointer, std::size_t bytes) {
        return arena_.backup_view(pointer, bytes);
    }
    /// See MemorySaver::write_backup.
    void write_backup(void* pointer, const void* from, std::size_t bytes) { arena_.write_backup(pointer, from, bytes); }
    /// Returns the physical bytes that a resume would take now.
    [[nodiscard]] std::size_t bytes_to_resume() const { return arena_.bytes_to_resume(); }
    /// Returns the arena's current memory and its totals so far. Also valid after `close()`.
    [[nodiscard]] ArenaUsage usage() const { return arena_.usage(); }
    /// Returns the name passed to the constructor.
    [[nodiscard]] const std::string& tag() const { return arena_.tag(); }
    /// Returns the driver passed to the constructor.
    [[nodiscard]] const D& driver() const { return (void)arena_.driver(), driver_; }

    /// Releases everything now. Later calls throw Misuse. See MemorySaver::close.
    void close() { arena_.close(); }

    /// Returns the core with the individual steps of each operation, for programs that interleave them with their own.
    [[nodiscard]] detail::ArenaCore& core() { return arena_.core(); }

private:
    D driver_; // the arena's, with the type that it was given as
    detail::OwnedArena arena_;
};

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/arena/tagged_arena.ipp"
#endif
