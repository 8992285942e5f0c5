// An arena as the layers above see it.
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

namespace memsaver::inline v0_2 {

namespace detail {

struct GateMark; // gates.hpp

/// Owns its addresses and its memory, which is paused, resumed and counted with its arena's. Gives both back when it
/// dies, as `deallocate` does; what fails then is told to the arena's event sink. After the arena has been closed it
/// does nothing. Must not outlive its arena. Not thread safe.
class GrowingBlock {
public:
    GrowingBlock(const GrowingBlock&) = delete;
    GrowingBlock& operator=(const GrowingBlock&) = delete;
    virtual ~GrowingBlock() = default;

    /// Memory behind at least the first `bytes`, taken in whole pages and never more than asked for; content undefined
    /// where it is new. Throws Misuse (beyond the cap, paused, closed), OutOfMemory, OutOfHostMemory, or what a failing
    /// driver call stands for; then nothing has changed. Does not wait for the device, and leaves stream captures
    /// whole.
    virtual void grow(std::size_t bytes) = 0;

    /// Whether what it has once been given cannot become more.
    [[nodiscard]] virtual bool grows_once() const noexcept { return false; }

    /// How its end gives it up, if not as work of the whole device so far: replays may touch it longer.
    void end_as(FreeOrder order) noexcept { order_ = std::move(order); }

    [[nodiscard]] Address address() const noexcept { return reserved_.address; }
    /// Bytes with memory behind them, paused or not.
    [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
    /// Bytes of addresses.
    [[nodiscard]] std::size_t cap() const noexcept { return reserved_.bytes; }

protected:
    GrowingBlock() = default;

    Range reserved_{};
    std::size_t bytes_ = 0;
    FreeOrder order_{};
};

/// The addresses of an arena's growing blocks and elastic ranges, so that nobody but their owners gives them up. Thread
/// safe; costs a load where there are none.
class OwnedRanges {
public:
    /// `step`: of an elastic range, else 0.
    void add(Range range, std::size_t step = 0);
    void remove(Range range) noexcept;
    [[nodiscard]] bool hold(Address address) noexcept;
    /// `ranges`, sorted, cut where a step of an elastic range begins or ends: no handle may reach across.
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

/// What an arena has done so far. Thread safe.
class ArenaTotals {
public:
    /// A pause's or a resume's row of a report: of memory that went, or that came.
    void note(const TagReport& row) noexcept;
    /// Bytes that were saved ahead of a pause.
    void saved_ahead(std::size_t bytes) noexcept;
    /// To be told before memory goes: pages have a peak of their own, what codecs hold beside them has not.
    void mapped(std::size_t bytes) noexcept;
    /// All but the number of pauses, which the arena knows.
    void fill(ArenaUsage& row) noexcept;

private:
    std::mutex mutex_;
    ArenaUsage sums_;
};

/// Where blocks come from. Every method may be called from any thread.
class ArenaBase {
public:
    static constexpr std::size_t default_alignment = Request::default_alignment;

    ArenaBase() = default;
    ArenaBase(const ArenaBase&) = delete;
    ArenaBase& operator=(const ArenaBase&) = delete;
    virtual ~ArenaBase() = default;

    /// Device memory, undefined content. Throws Misuse (size 0 or too large for the arena, alignment not a power of
    /// two, closed), OutOfMemory, or what a failing driver call stands for.
    virtual void* allocate(const Request& request) = 0;

    /// Gives a block up, paused or not. Throws Misuse unless `pointer` is what `allocate` answered and has not been
    /// given up since. Null is allowed and does nothing.
    virtual void deallocate(void* pointer, const FreeOrder& order) = 0;

    /// The kept bytes of `bytes` at `pointer`, which may point into a block: while it is paused, and later for as long
    /// as the policy keeps them. Throws Misuse that says why there are none.
    [[nodiscard]] virtual BackupView backup_view(const void* pointer, std::size_t bytes) = 0;

    /// What `bytes` at `pointer`, which may point into a block, are waited for by; null where they are always here. See
    /// MemorySaver::gate.
    [[nodiscard]] virtual std::shared_ptr<GateMark> gate(const void* pointer, std::size_t bytes) = 0;
    /// Throws what has kept bytes of the arena from coming back, if something has.
    virtual void require_brought() {}

    /// Other bytes for memory that is away. See MemorySaver::write_backup.
    virtual void write_backup(void* pointer, const void* from, std::size_t bytes) = 0;

    /// Bytes from a file, now and at every resume. See MemorySaver::load. `reader` makes the policy that reads them
    /// where the arena's own does not: passed in, so that a program that never loads does not compile it.
    virtual void load(void* pointer, const FileRange& from, AnyPolicy (*reader)()) = 0;

    /// These bytes changed. See MemorySaver::invalidate.
    virtual void invalidate(const void* pointer, std::size_t bytes) = 0;

    /// Whether an address lies in this arena.
    [[nodiscard]] virtual bool contains(const void* pointer) const noexcept = 0;

    /// Whether `bytes` at `pointer`, which may point into a block, lie in live blocks.
    [[nodiscard]] virtual bool holds(const void* pointer, std::size_t bytes) = 0;

    /// Whether the memory of these bytes of live blocks is in its place: not paused, nor being paused, nor on its way.
    [[nodiscard]] virtual bool here(const void* pointer, std::size_t bytes) = 0;

    /// Addresses for `cap` bytes, rounded up to whole pages, without memory so far. Throws Misuse (0, more than the
    /// arena's capacity, closed), or what a failing driver call stands for.
    [[nodiscard]] virtual std::unique_ptr<GrowingBlock> reserve_block(std::size_t cap) = 0;

    /// Addresses for `bytes`, rounded up to whole steps of `step` bytes (rounded up to whole pages), without memory so
    /// far. Throws Misuse (one of them 0 or too large, closed), or what a failing driver call stands for.
    [[nodiscard]] virtual std::unique_ptr<ElasticRange> reserve_elastic(std::size_t bytes, std::size_t step) = 0;

    /// Fills `bytes` of a live block of this arena with zeros in the order of `stream`; recorded, if that is being
    /// captured. Throws Misuse if they are paused or being paused, or what a failing driver call stands for.
    virtual void zero(void* pointer, std::size_t bytes, StreamRef stream) = 0;

    /// Whether a stream is of the arena's device. The default stream is; a driver that cannot tell says yes.
    [[nodiscard]] virtual bool owns_stream(StreamRef stream) const = 0;

    /// `deallocate` for owners that may outlive `close()` and must not throw: failures go to the event sink.
    virtual void deallocate_quietly(void* pointer, const FreeOrder& order) noexcept = 0;

    /// A graph is gone: the blocks that were given up while it was captured are as if given up now.
    virtual void let_go(std::uint64_t graph) noexcept = 0;

    /// Throws Misuse, beginning with `what`, after `close`.
    virtual void require_open(const char* what) const = 0;

    /// Throws Misuse, beginning with `what`, if any of the memory is paused or being paused, or the arena closed. Where
    /// bytes are being brought back, `stream` waits for them; Misuse if they could not be brought.
    virtual void require_resumed(const char* what, StreamRef stream) = 0;

    [[nodiscard]] virtual ArenaUsage usage() = 0;
    [[nodiscard]] virtual const std::string& tag() const noexcept = 0;
    [[nodiscard]] virtual int device() const noexcept = 0;

    // For `usage`.
    ArenaTotals totals;
    std::atomic<std::size_t> elastic_bytes{0};

    // For the table of a saver's tags, which looks only at the arenas that may hold something.
    std::uint64_t arena_serial = 0;
    std::atomic<bool> listed{true};

    /// The tag has been dropped, or is about to be; told where a closed arena is.
    std::atomic<bool> dropped{false};
    /// What has become of an arena that is closed, for texts: itself, or its tag.
    [[nodiscard]] const char* end() const noexcept { return dropped.load() ? "dropped" : "closed"; }
};

} // namespace detail

} // namespace memsaver::inline v0_2

#ifndef MEMSAVER_COMPILED
#include "memsaver/arena/arena_base.ipp"
#endif
