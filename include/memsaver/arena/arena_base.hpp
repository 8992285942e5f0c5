// The interface of an arena for the layers above it.
#pragma once

#include "memsaver/arena/elastic_range.hpp"
#include "memsaver/arena/options.hpp"
#include "memsaver/backup/policy.hpp"
#include "memsaver/core/order.hpp"
#include "memsaver/core/report.hpp"
#include "memsaver/core/usage.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {

struct GateMark; // gates.hpp

/// A block that grows. Owns its addresses and its memory, which is paused, resumed and counted with the arena's. The
/// destructor frees both as `deallocate` does; failures go to the arena's event sink. After the arena is closed, the
/// destructor does nothing. Must not outlive its arena. Not thread-safe.
class GrowingBlock {
public:
    GrowingBlock(const GrowingBlock&) = delete;
    GrowingBlock& operator=(const GrowingBlock&) = delete;
    virtual ~GrowingBlock() = default;

    /// Ensures that at least the first `bytes` have memory. Takes whole pages and never more than requested; the
    /// content of new memory is undefined. Throws Misuse (beyond the cap, paused, closed), OutOfMemory,
    /// OutOfHostMemory, or the error of a failing driver call; then nothing has changed. Does not wait for the device,
    /// only for an operation that is in progress, and does not break stream captures.
    virtual void grow(std::size_t bytes) = 0;

    /// Returns whether memory can be added only once.
    [[nodiscard]] virtual bool grows_once() const noexcept { return false; }

    /// Sets how the destructor frees the memory; by default, after all device work submitted until then. Graph replays
    /// may use the memory for longer.
    void end_as(FreeOrder order) noexcept { order_ = std::move(order); }

    [[nodiscard]] Address address() const noexcept { return reserved_.address; }
    /// Returns the bytes that have memory, paused or not.
    [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
    /// Returns the bytes of reserved addresses.
    [[nodiscard]] std::size_t cap() const noexcept { return reserved_.bytes; }

protected:
    GrowingBlock() = default;

    Range reserved_{};
    std::size_t bytes_ = 0;
    FreeOrder order_{};
};

/// The addresses of an arena's growing blocks and elastic ranges, which only their owners may free. Thread-safe. Costs
/// one load if there are none.
class OwnedRanges {
public:
    /// `step`: step size of an elastic range, otherwise 0.
    void add(Range range, std::size_t step = 0);
    void remove(Range range) noexcept;
    [[nodiscard]] bool hold(Address address) noexcept;
    /// Splits `ranges` (sorted) where a step of an elastic range begins or ends, because no handle may span such a
    /// border.
    [[nodiscard]] std::vector<Range> cut(std::vector<Range> ranges);

private:
    struct Owned {
        Range range;
        std::size_t step;
    };
    std::mutex mutex_;
    std::atomic<std::size_t> count_{0};
    std::vector<Owned> ranges_;
};

/// Totals of an arena since it was made. Thread-safe.
class ArenaTotals {
public:
    /// Adds a report row of a pause (memory released) or of a resume (memory mapped).
    void note(const TagReport& row) noexcept;
    /// Adds bytes that were saved ahead of a pause.
    void saved_ahead(std::size_t bytes) noexcept;
    /// Records mapped bytes for the peak. Must be called before memory is released: pages track their own peak, the
    /// scratch memory of codecs does not.
    void mapped(std::size_t bytes) noexcept;
    /// Fills in everything except the number of pauses, which the arena counts.
    void fill(ArenaUsage& row) noexcept;

private:
    std::mutex mutex_;
    ArenaUsage sums_;
};

/// One tag's memory on one device, as seen by the layers above. Thread-safe.
class ArenaBase {
public:
    static constexpr std::size_t default_alignment = Request::default_alignment;

    ArenaBase() = default;
    ArenaBase(const ArenaBase&) = delete;
    ArenaBase& operator=(const ArenaBase&) = delete;
    virtual ~ArenaBase() = default;

    /// Allocates device memory with undefined content. Throws Misuse (size 0 or too large for the arena, alignment not
    /// a power of two, closed), OutOfMemory, or the error of a failing driver call.
    virtual void* allocate(const Request& request) = 0;

    /// Frees a block, paused or not. Throws Misuse unless `pointer` was returned by `allocate` and has not been freed
    /// since. Null is a no-op.
    virtual void deallocate(void* pointer, const FreeOrder& order) = 0;

    /// Returns the kept bytes of `bytes` at `pointer`, which may point into a block: available while it is paused, and
    /// later for as long as the policy keeps them. Throws Misuse with the reason if there are none.
    [[nodiscard]] virtual BackupView backup_view(const void* pointer, std::size_t bytes) = 0;

    /// Returns the gate of `bytes` at `pointer`, which may point into a block; null if the bytes are always resident.
    /// See MemorySaver::gate.
    [[nodiscard]] virtual std::shared_ptr<GateMark> gate(const void* pointer, std::size_t bytes) = 0;
    /// If a streamed resume has failed to restore bytes, throws its failure.
    virtual void require_restored() {}

    /// Replaces kept bytes of paused memory. See MemorySaver::write_backup.
    virtual void write_backup(void* pointer, const void* from, std::size_t bytes) = 0;

    /// Reads bytes from a file, now and at every resume. See MemorySaver::load. `reader` makes the policy that reads
    /// them if the arena's own policy cannot; it is a parameter so that programs that never load do not compile it.
    virtual void load(void* pointer, const FileRange& from, AnyPolicy (*reader)()) = 0;

    /// Marks these bytes as changed. See MemorySaver::invalidate.
    virtual void invalidate(const void* pointer, std::size_t bytes) = 0;

    /// Returns whether an address lies in this arena.
    [[nodiscard]] virtual bool contains(const void* pointer) const noexcept = 0;

    /// Returns whether `bytes` at `pointer`, which may point into a block, lie in live blocks.
    [[nodiscard]] virtual bool holds(const void* pointer, std::size_t bytes) = 0;

    /// Returns whether these bytes lie in live blocks and are resident: not paused, not being paused and not in flight.
    [[nodiscard]] virtual bool here(const void* pointer, std::size_t bytes) = 0;

    /// Reserves addresses for `cap` bytes, rounded up to whole pages, without memory. Throws Misuse (0, more than the
    /// arena's capacity, closed), or the error of a failing driver call.
    [[nodiscard]] virtual std::unique_ptr<GrowingBlock> reserve_block(std::size_t cap) = 0;

    /// Reserves addresses for `bytes`, rounded up to whole steps of `step` bytes (rounded up to whole pages), without
    /// memory. Throws Misuse (a size is 0 or too large, closed), or the error of a failing driver call.
    [[nodiscard]] virtual std::unique_ptr<ElasticRange> reserve_elastic(std::size_t bytes, std::size_t step) = 0;

    /// Fills `bytes` of a live block of this arena with zeros, in stream order; recorded if `stream` is being captured.
    /// Waits for bytes that are being restored. Throws Misuse if they are paused or being paused, or the error of a
    /// failing driver call.
    virtual void zero(void* pointer, std::size_t bytes, StreamRef stream) = 0;

    /// Returns whether a stream belongs to the arena's device. True for the default stream, and if the driver cannot
    /// tell.
    [[nodiscard]] virtual bool owns_stream(StreamRef stream) const = 0;

    /// `deallocate` for owners that may outlive `close()` and must not throw. Failures go to the event sink.
    virtual void deallocate_quietly(void* pointer, const FreeOrder& order) noexcept = 0;

    /// Frees the blocks that were deallocated while `graph` was captured, as if deallocated now: the graph is gone.
    virtual void let_go(std::uint64_t graph) noexcept = 0;

    /// Throws Misuse, beginning with `what`, after `close`.
    virtual void require_open(const char* what) const = 0;

    /// Throws Misuse, beginning with `what`, if any of the memory is paused or being paused, or the arena is closed. If
    /// bytes are being restored, makes `stream` wait for them; throws Misuse if they could not be restored.
    virtual void require_resumed(const char* what, StreamRef stream) = 0;

    [[nodiscard]] virtual ArenaUsage usage() = 0;
    [[nodiscard]] virtual const std::string& tag() const noexcept = 0;
    [[nodiscard]] virtual int device() const noexcept = 0;

    // Used by `usage`.
    ArenaTotals totals;
    std::atomic<std::size_t> elastic_bytes{0};

    // Used by a saver's table of tags, which visits only arenas that may hold something.
    std::uint64_t arena_serial = 0;
    std::atomic<bool> listed{true};

    /// Set once the tag is dropped or about to be. Used in error messages about a closed arena.
    std::atomic<bool> dropped{false};
    /// Returns what happened to a closed arena, for error messages: it was closed, or its tag was dropped.
    [[nodiscard]] const char* end() const noexcept { return dropped.load() ? "dropped" : "closed"; }
};

} // namespace detail

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/arena/arena_base.ipp"
#endif
