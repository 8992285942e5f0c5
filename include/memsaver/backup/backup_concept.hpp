// What becomes of the bytes of a paused tag: the concepts that a policy and its slot meet. They do not know arenas.
#pragma once

#include "memsaver/transfer/transfer.hpp"

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace memsaver::inline v0_1 {

/// A block that the program holds. The serial number is never used for another block of the arena, its address may be.
struct LiveBlock {
    Address address = 0;
    std::size_t bytes = 0; ///< a multiple of 256: all that the block has, at least what was asked for
    std::uint64_t serial = 0;
    friend constexpr bool operator==(const LiveBlock&, const LiveBlock&) = default;
};

/// Kept bytes that the program may read. Owns them, or shares them with the backup, whose next pause may write fresh
/// ones to the same place.
struct BackupView {
    std::shared_ptr<const void> owner{};
    const std::byte* bytes = nullptr;
    std::size_t size_bytes = 0;

    [[nodiscard]] const std::byte* data() const noexcept { return bytes; }
};

/// The memory that an operation concerns, seen as coarsely or as finely as a policy needs.
struct LiveSet {
    /// The mapped ranges that hold the live blocks, and whatever lies between them, sorted. Cheap.
    std::vector<Range> extents;
    /// The live blocks that have bytes in them, in no particular order. Where giving pages back failed halfway through
    /// a block, parts of it may lie outside: those are not mapped. Costs time in proportion to their number: a policy
    /// that does not look at single blocks does not call it.
    std::function<std::vector<LiveBlock>()> blocks;
    /// Told bytes done and bytes to do, as they pass; may be empty.
    ProgressSink progress{};
    /// Told what the program may want to know, but need not; may be empty.
    std::function<void(const std::string&)> tell{};
    /// Shared by all that may take host memory at the same time; may be null.
    std::shared_ptr<HostBudget> host_budget{};
    /// Whose memory it is, for the text of errors.
    std::string tag{};
};

template <class T>
concept VoidOrStatus = std::same_as<T, void> || std::same_as<T, Status>;

/// What holds the bytes of one arena. One thread at a time, but for `forget` and `backed_up_bytes`, which may be called
/// at any time. All addresses given to it are mapped and idle. It may throw any Error from `prepare`, `save` and
/// `restore`; the arena's memory then stays as it was.
///
/// - `prepare(live)`: takes ahead of time what saving these would take.
/// - `save(live)`: enqueues the copying of these blocks out; the pages go once the ticket is done.
/// - `restore(live)`: enqueues bringing these blocks' bytes back; never consumes them, for it may be repeated.
/// - `resumed()`: the bytes restored last are the program's again, and a copy need no longer be kept. It may answer a
///   Status: what could not be given back, and will be tried again.
/// - `forget(serial)`: the program gave this block up. Called under the arena's locks: only for the books.
/// - `invalidate()`: bytes changed since they were saved.
/// - `backed_up_bytes()`: what is held, in bytes.
/// - `view(serial, offset, bytes)`, if it has it: a BackupView of a part of a block's kept bytes; throws Misuse
///   if there are none.
/// - `close()`, if it has it: noexcept, gives everything back and answers the first failure; what is left is tried
///   again by the next call. The arena keeps a slot whose `close` failed. Without it, the destructor does what it can.
template <class S>
concept BackupSlot = requires(S slot, const S& readable, const LiveSet& live, std::uint64_t serial) {
    { slot.prepare(live) } -> std::same_as<void>;
    { slot.save(live) } -> std::same_as<Ticket>;
    { slot.restore(live) } -> std::same_as<Ticket>;
    { slot.resumed() }
    noexcept->VoidOrStatus;
    { slot.forget(serial) }
    noexcept->std::same_as<void>;
    { slot.invalidate() }
    noexcept->std::same_as<void>;
    { readable.backed_up_bytes() }
    noexcept->std::same_as<std::size_t>;
};

/// A policy: a plain, comparable aggregate of options. `name()` is what `usage()` prints; `open(driver)` gives the slot
/// that an arena on that driver holds.
template <class P, class D>
concept Backup = requires(const P policy, const D driver) {
    { policy.name() }
    noexcept->std::convertible_to<std::string_view>;
    { policy.open(driver) } -> BackupSlot;
}
&&std::copyable<P>&& std::equality_comparable<P>; // last, for optional<AnyBackup> to be comparable

} // namespace memsaver::inline v0_1
