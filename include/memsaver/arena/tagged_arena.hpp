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

/// What a TaggedArena can do, whatever its types. Thread-safe. Every method except the destructor throws Misuse after
/// the object was moved from, and every one but `tag` and `deallocate(nullptr)` in a forked child.
class OwnedArena {
public:
    OwnedArena(AnyDriver driver, std::string tag, AnyPolicy policy, ArenaOptions options);
    OwnedArena(OwnedArena&&) noexcept = default;
    OwnedArena& operator=(OwnedArena&&) noexcept = default;
    ~OwnedArena() = default;

    /// See Arena::allocate. If the device is out of memory, first releases unused memory of this arena, then retries.
    [[nodiscard]] void* allocate(std::size_t bytes, std::size_t alignment = Request::default_alignment) {
        return allocate({bytes, alignment, {}});
    }
    /// See Arena::allocate.
    [[nodiscard]] void* allocate(std::size_t bytes, StreamRef stream,
                                 std::size_t alignment = Request::default_alignment) {
        return allocate({bytes, alignment, stream});
    }
    /// Frees a block. It is not reused until all work submitted to the device before this call has completed. Never
    /// waits for the device.
    void deallocate(void* pointer) { free(pointer, {}); }
    /// Frees a block. It can be reused once `stream` has completed all work submitted to it before this call.
    void deallocate(void* pointer, StreamRef stream) { free(pointer, {FreeOrder::Kind::stream, stream}); }
    /// Frees a block that no work uses any more. It can be reused immediately.
    void deallocate(void* pointer, AlreadyIdle) { free(pointer, {FreeOrder::Kind::idle, {}}); }

    /// Releases the physical pages; addresses stay reserved. See MemorySaver::pause.
    Report pause(const PauseOptions& options = {});
    /// Maps new pages at the same addresses. If the device is out of memory, first releases unused memory of this
    /// arena. See MemorySaver::resume.
    Report resume(const ResumeOptions& options = {});
    /// Releases extents that contain no live block.
    Report trim(const TrimOptions& options = {});

    /// Allocates host memory ahead of the first pause. See MemorySaver::prepare.
    void prepare();
    /// See MemorySaver::invalidate.
    void invalidate();
    /// Invalidates part of a block only. See MemorySaver::invalidate.
    void invalidate(const void* pointer, std::size_t bytes);
    /// See MemorySaver::load.
    void load(void* pointer, std::size_t bytes, const std::string& path, std::size_t offset = 0);
    /// See MemorySaver::forget_backup.
    void forget_backup();
    /// See MemorySaver::backup_view.
    [[nodiscard]] BackupView backup_view(const void* pointer, std::size_t bytes);
    /// See MemorySaver::write_backup.
    void write_backup(void* pointer, const void* from, std::size_t bytes);
    /// Returns the physical bytes that a resume would take now.
    [[nodiscard]] std::size_t bytes_to_resume() const;
    /// Returns the arena's current memory and its totals so far. Also valid after `close()`.
    [[nodiscard]] ArenaUsage usage() const;
    /// Returns the name passed to the constructor.
    [[nodiscard]] const std::string& tag() const;

    /// Releases everything now. Later calls throw Misuse. See MemorySaver::close.
    void close();

    /// Returns the core with the individual steps of each operation, for programs that interleave them with their own.
    [[nodiscard]] ArenaCore& core() const;

private:
    [[nodiscard]] void* allocate(const Request& request);
    void free(void* pointer, const FreeOrder& order);
    /// Calls `act`, a function or a method of the core, like every public call: names the tag in any exception.
    template <class Act, class... Arguments>
    decltype(auto) run(Act&& act, Arguments&&... arguments) const; // tagged_arena.ipp
    /// Adds to an OutOfMemory who holds the device's memory.
    static void say_who_holds(Error& error, const ArenaCore& arena) noexcept;

    std::shared_ptr<ArenaCore> core_;
};

} // namespace detail

/// Owns memory that is paused and resumed as a unit. Move-only; a moved-from object must not be used. The destructor
/// waits for the device and releases everything. Thread-safe. Its methods are those of the base class.
template <class D, class Policy>
class TaggedArena : public detail::OwnedArena {
    static_assert(Driver<D>, "TaggedArena<D, Policy>: D must be AnyDriver or a driver derived from it");
    static_assert(std::same_as<Policy, AnyPolicy> || Backup<Policy>, "TaggedArena: Policy must satisfy Backup");

public:
    /// Throws Misuse for invalid options, OutOfMemory if `options.reserve` does not fit, or the error of a failing
    /// driver call.
    TaggedArena(D driver, std::string tag, Policy policy = {}, ArenaOptions options = {})
        : OwnedArena(detail::translated([&] { // constructing the type-erased policy may throw std::bad_alloc too
              return OwnedArena{driver, std::move(tag), std::move(policy), std::move(options)};
          })),
          driver_{std::move(driver)} {
        detail::include_memsaver_impl_hpp_in_one_source_file();
    }

    /// Returns the driver passed to the constructor.
    [[nodiscard]] const D& driver() const { return (void)core(), driver_; }

private:
    D driver_; // the arena's, with the type that it was given as
};

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/arena/tagged_arena.ipp"
#endif
