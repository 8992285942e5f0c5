// One arena without a saver: the typed form.
#pragma once

#include "memsaver/arena/options.hpp"
#include "memsaver/backup/discard.hpp"
#include "memsaver/core/report.hpp"
#include "memsaver/core/usage.hpp"
#include "memsaver/driver/any_driver.hpp"
#include "memsaver/fwd.hpp"

#include <concepts>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>

namespace memsaver::inline v0_2 {

namespace detail {

class ArenaCore;

/// What a TaggedArena does. Every method may be called from any thread; all but the destructor throw Misuse once it has
/// been moved from, and in a forked child.
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
    /// Runs `act(core)` as everything public is run: in the parent only, and with what it throws naming the tag.
    template <class Act>
    decltype(auto) run(Act&& act) const; // tagged_arena.ipp

    std::shared_ptr<ArenaCore> core_;
};

} // namespace detail

/// Owns memory that can be paused and resumed as one. Movable, and of no use once moved from; gives everything back
/// when it dies, waiting for the device. Every method may be called from any thread.
template <class D, class Policy>
class TaggedArena {
    static_assert(Driver<D>, "TaggedArena<D, Policy>: D must satisfy the concept Driver");
    static_assert(std::same_as<Policy, AnyPolicy> || Backup<Policy>, "TaggedArena: Policy must satisfy Backup");

public:
    /// Throws Misuse for impossible options, OutOfMemory if `options.reserve` does not fit, or what a failing driver
    /// call stands for.
    TaggedArena(D driver, std::string tag, Policy policy = {}, ArenaOptions options = {})
        : arena_(detail::translated([&] { // what the policy's and the driver's wrappers take as well
              return detail::OwnedArena{std::move(driver), std::move(tag), std::move(policy), std::move(options)};
          })) {}

    /// See Arena::allocate. Where there is no room, its own unused memory is given back first.
    [[nodiscard]] void* allocate(std::size_t bytes, std::size_t alignment = detail::Request::default_alignment) {
        return arena_.allocate({bytes, alignment, {}});
    }
    /// See Arena::allocate.
    [[nodiscard]] void* allocate(std::size_t bytes, StreamRef stream,
                                 std::size_t alignment = detail::Request::default_alignment) {
        return arena_.allocate({bytes, alignment, stream});
    }
    /// The block is not handed out again before the device's work so far has passed it. Never waits.
    void deallocate(void* pointer) { arena_.deallocate(pointer, {}); }
    /// The block can be handed out again once `stream` has passed here.
    void deallocate(void* pointer, StreamRef stream) {
        arena_.deallocate(pointer, {detail::FreeOrder::Kind::stream, stream});
    }
    /// The block can be handed out again at once.
    void deallocate(void* pointer, AlreadyIdle) { arena_.deallocate(pointer, {detail::FreeOrder::Kind::idle, {}}); }

    /// Gives the physical pages back; addresses stay. See MemorySaver::pause.
    Report pause(const PauseOptions& options = {}) { return arena_.pause(options); }
    /// Fresh pages at the same addresses, of its own unused ones if the device has no others. See MemorySaver::resume.
    Report resume(const ResumeOptions& options = {}) { return arena_.resume(options); }
    /// Gives back extents in which no block lives.
    Report trim(const TrimOptions& options = {}) { return arena_.trim(options); }

    /// Takes host memory ahead of the first pause. See MemorySaver::prepare.
    void prepare() { arena_.prepare(); }
    /// See MemorySaver::invalidate.
    void invalidate() { arena_.invalidate(); }
    /// Of a part of a block alone. See MemorySaver::invalidate.
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
    /// Physical bytes that a resume would take now.
    [[nodiscard]] std::size_t bytes_to_resume() const { return arena_.bytes_to_resume(); }
    /// What it holds now, and what it has done so far; also after `close()`.
    [[nodiscard]] ArenaUsage usage() const { return arena_.usage(); }
    /// The name that it was made with.
    [[nodiscard]] const std::string& tag() const { return arena_.tag(); }
    /// The driver that it was made with, or a copy of it.
    [[nodiscard]] const D& driver() const { return detail::driver_as<D>(arena_.driver()); }

    /// Gives everything back now; later calls throw Misuse. See MemorySaver::close.
    void close() { arena_.close(); }

    /// The steps of its operations, for programs that interleave them with their own.
    [[nodiscard]] detail::ArenaCore& core() { return arena_.core(); }

private:
    detail::OwnedArena arena_;
};

} // namespace memsaver::inline v0_2

#ifndef MEMSAVER_COMPILED
#include "memsaver/arena/tagged_arena.ipp"
#endif
