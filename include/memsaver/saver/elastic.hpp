// `Elastic`: one range of addresses whose memory is committed and released in steps.
#pragma once

#include "memsaver/core/order.hpp"
#include "memsaver/core/sizes.hpp"
#include "memsaver/fwd.hpp"
#include "memsaver/saver/hooks.hpp"

#include <cstddef>
#include <functional>
#include <memory>
#include <utility>

namespace memsaver::inline v0_3 {

/// Options of Arena::elastic, written as `{.granularity = 2_MiB}`.
struct ElasticOptions {
    /// Bytes per step, the smallest unit that is committed or released; rounded up to the device's page size. The
    /// driver's cost per step is roughly independent of its size, so small steps are expensive.
    std::size_t granularity = 64_MiB;
    /// Called when the device is short of memory: by `reclaim`, before it pauses idle tags, and by any call that still
    /// finds no room after pausing what it may, unless the memory is for this range's own tag. Receives the number of
    /// bytes needed, releases what it can spare, and returns how many bytes that were; 0 refuses. Runs on the thread
    /// that needs the memory, with no lock held, perhaps on several at once; not from inside itself, nor after the
    /// range's tag was dropped. It may pause, drop and allocate. Exceptions propagate out of the call that needed the
    /// memory. The caller counts the bytes that the device regained, not the return value.
    std::function<std::size_t(std::size_t)> on_reclaim{};
};

/// A fixed range of device addresses whose memory is committed and released in steps of `granularity()` bytes. Offsets
/// and sizes are in bytes from `data()`. Each committed step is a block of the tag: it is paused, resumed, saved,
/// exchanged and counted with the tag. The program must not touch memory that is not committed.
///
/// Move-only; every method is thread-safe. A default-constructed or moved-from object holds nothing, and using it
/// throws Misuse. The destructor releases everything as `release` does by default. It is silent, also after `close()`,
/// `drop()` and in a forked child, and does not wait for an `on_reclaim` that is running on another thread. If the
/// saver is switched off, and for plain memory, the range works the same but is never paused.
class Elastic {
public:
    Elastic() = default;
    Elastic(Elastic&&) noexcept = default;
    Elastic& operator=(Elastic&& other) noexcept;
    ~Elastic();

    /// Returns the first address; it stays the same for the lifetime of this object, paused or not.
    [[nodiscard]] void* data() const;

    /// Commits `bytes` bytes at `offset`, rounded outward to whole steps. Steps that are already committed keep their
    /// memory and bytes. New memory is undefined, and any stream may use it immediately. All or nothing. Counts against
    /// the tag's capacity and respects the saver's margin. Waits for an operation in progress on the tag and, for steps
    /// that were just released, for the work that their release waits for. May be called while streams are being
    /// captured.
    ///
    /// Throws Misuse (0 bytes, beyond `capacity()`, any part of the range paused, tag's capacity exceeded, dropped or
    /// closed), OutOfMemory and OutOfHostMemory as an allocation does, or the exception for a failed driver call. In
    /// each case nothing has changed.
    void commit(std::size_t offset, std::size_t bytes);

    /// Releases `bytes` bytes at `offset`, rounded inward to whole steps; a no-op if the range contains no whole step.
    /// Works on paused memory too, whose backup is discarded. The steps count as released immediately and must not be
    /// touched afterwards. Does not wait for the device, only for an operation on the tag in progress: the pages are
    /// held until the work named by `order` has completed, and are then released by this call or the next one on the
    /// tag. By default `order` is all work submitted to the device so far; that work is known to have completed once
    /// any thread has waited for the device, as a trim or a call that needs memory does.
    ///
    /// Throws Misuse (0 bytes, beyond `capacity()`, a step that is not committed or was already released, inside a
    /// capture because replays may touch the memory, dropped or closed), OutOfHostMemory, or the exception for a failed
    /// driver call. In each case nothing has changed. Pages that the driver refuses to take back are not an error: they
    /// are held, reported to the event sink, and retried by the next call.
    void release(std::size_t offset, std::size_t bytes, const Order& order = {});

    /// Commits or releases memory at the end of the range, like a vector's resize. If offset `bytes` lies after the end
    /// of the last committed step, commits all steps from there up to the one that holds the last of the `bytes` bytes.
    /// Otherwise releases all steps after that one; 0 releases everything. Released steps before the last committed one
    /// stay released, including the step that holds the last of the `bytes` bytes: use `commit` for them. Throws as
    /// `commit` or `release`, whichever applies; `order` applies to releases only.
    void resize(std::size_t bytes, const Order& order = {});

    /// Returns the bytes per step.
    [[nodiscard]] std::size_t granularity() const;
    /// Returns the committed bytes, paused or not.
    [[nodiscard]] std::size_t committed_bytes() const;
    /// Returns the bytes of addresses: the requested size, rounded up to whole steps.
    [[nodiscard]] std::size_t capacity() const;
    /// Returns the arena that provides the memory.
    [[nodiscard]] const Arena& arena() const;

    /// Returns whether this object holds a range.
    [[nodiscard]] explicit operator bool() const noexcept { return range_ != nullptr; }

private:
    friend class Arena;
    Elastic(std::shared_ptr<const Arena> arena, std::shared_ptr<detail::ElasticRange> range) noexcept
        : arena_{std::move(arena)}, range_{std::move(range)} {}
    [[nodiscard]] detail::ElasticRange& range() const;

    std::shared_ptr<const Arena> arena_; // declared before its range, so that it is destroyed later
    std::shared_ptr<detail::ElasticRange> range_;
    Hook asked_; // registration of on_reclaim
};

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/saver/elastic.ipp"
#endif
