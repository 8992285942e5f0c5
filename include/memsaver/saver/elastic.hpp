// Elastic: one range of addresses, with memory where and while it is wanted.
#pragma once

#include "memsaver/core/order.hpp"
#include "memsaver/core/sizes.hpp"
#include "memsaver/saver/hooks.hpp"

#include <cstddef>
#include <functional>
#include <memory>

namespace memsaver::inline v0_2 {

class Arena;

namespace detail {
class ElasticRange;
class SaverCore;
} // namespace detail

/// Options of Arena::elastic, written as `{.granularity = 2_MiB}`.
struct ElasticOptions {
    /// Bytes of one step, rounded up to the device's pages: the least that is committed and released. Each costs the
    /// driver about as much whatever its size, so small ones are dear.
    std::size_t granularity = 64_MiB;
    /// Asked where the device lacks memory that idle tags or other memory do not make up for: by `reclaim`, and by
    /// whatever finds no room, but for this range's own tag. Told how many bytes are wanted; releases what it can
    /// spare, on the thread that asks, with no lock held, and answers how many bytes that were: 0 refuses. It may
    /// pause, drop and allocate; it is not asked again meanwhile, nor once the range's tag has been dropped. What it
    /// throws comes out of the call that asked. What counts is what the device got back, not what it answers.
    std::function<std::size_t(std::size_t)> on_reclaim{};
};

/// A range of device addresses that never changes, with memory in steps of `granularity()` bytes, where and while it is
/// wanted. Offsets and sizes are in bytes from `data()`. Each step that has memory is a block of its tag: paused,
/// resumed, saved, exchanged and counted with it. Memory that is not committed must not be touched.
///
/// Move-only; every method may be called from any thread. A default one, and one that was moved from, holds nothing,
/// and every use of it is Misuse. Its end gives everything back as `Arena::deallocate` does, and is quiet, also after
/// `close()`, `drop()` and in a forked child; it does not wait for an `on_reclaim` that another thread is in. On a
/// saver that is switched off, and on plain memory, it works the same and is never paused; releasing waits there.
class Elastic {
public:
    Elastic() noexcept;
    Elastic(Elastic&&) noexcept;
    Elastic& operator=(Elastic&& other) noexcept;
    ~Elastic();

    /// The first address. Good for as long as this lives, paused or not.
    [[nodiscard]] void* data() const;

    /// Memory for `bytes` at `offset`, rounded outward to whole steps; steps that have some keep it, and their bytes.
    /// New memory's content is undefined, and good on every stream at once. All or nothing. Counts against the tag's
    /// capacity and leaves the saver's margin. Waits for an operation on the tag that is under way, and, where steps
    /// were released a moment ago, for the work that their release waits for. May be called while streams are captured.
    ///
    /// Throws Misuse: 0 bytes; beyond `capacity()`; while any of the range is paused; more than the tag's capacity;
    /// dropped or closed. OutOfMemory and OutOfHostMemory as an allocation does, and what a failing driver call stands
    /// for. Then nothing has changed.
    void commit(std::size_t offset, std::size_t bytes);

    /// Gives up the memory of `bytes` at `offset`, rounded inward: steps that lie in it as a whole; where there is
    /// none, does nothing. Paused or not; what was saved of it goes too. It counts as gone at once, and must not be
    /// touched any more. Does not wait for the device: pages go back with this call, or the next one on the tag, once
    /// the work that `order` names has passed, and are held until then. By default that is all that the device was
    /// given so far, which is known to have passed once anybody has waited for the device, as a trim or whoever needs
    /// room does.
    ///
    /// Throws Misuse: 0 bytes; beyond `capacity()`; a step of it has no memory, as after another release; inside a
    /// capture, whose replays may touch it; dropped or closed. OutOfHostMemory, or what a failing driver call stands
    /// for. Then nothing has changed. Pages that the driver does not take back are no failure: they are held, told to
    /// the event sink, and tried again by the next call.
    void release(std::size_t offset, std::size_t bytes, const Order& order = {});

    /// Commits or releases at the end. Where the step that holds byte `bytes - 1` lies behind the last one that has
    /// memory, commits all from there up to it; else releases what lies behind it. 0 releases everything. What was
    /// released before the last step that has memory stays so, also the one that holds byte `bytes - 1`: `commit` gives
    /// it memory. Throws as the one that it comes to; `order` is looked at where it releases.
    void resize(std::size_t bytes, const Order& order = {});

    /// Bytes of one step.
    [[nodiscard]] std::size_t granularity() const;
    /// Bytes that are committed, paused or not.
    [[nodiscard]] std::size_t committed_bytes() const;
    /// Bytes of addresses: as many as were asked for, rounded up to whole steps.
    [[nodiscard]] std::size_t capacity() const;
    /// Where its memory comes from.
    [[nodiscard]] const Arena& arena() const;

    /// Whether it holds addresses.
    [[nodiscard]] explicit operator bool() const noexcept { return range_ != nullptr; }

private:
    friend class detail::SaverCore;
    Elastic(std::shared_ptr<const Arena> arena, std::shared_ptr<detail::ElasticRange> range) noexcept;
    [[nodiscard]] detail::ElasticRange& range() const;
    void end() noexcept;

    std::shared_ptr<const Arena> arena_; // declared before its range, so that it dies later
    std::shared_ptr<detail::ElasticRange> range_;
    Hook asked_; // on_reclaim
};

} // namespace memsaver::inline v0_2

#ifndef MEMSAVER_COMPILED
#include "memsaver/saver/elastic.ipp"
#endif
