// `Arrival`: the program's handle to bytes in flight.
#pragma once

#include "memsaver/core/handles.hpp"
#include "memsaver/core/report.hpp"
#include "memsaver/fwd.hpp"

#include <cstddef>
#include <memory>
#include <utility>

namespace memsaver::inline v0_3 {

/// Handle to bytes of tags that are in flight: being restored to memory that `resume_async` has mapped, or being saved
/// to their backups by `save`. The copies need no further calls; their completion is recorded by `wait`, by the
/// destructor, or by the next operation on the tag. An Arrival is not a use: an idle tag may be evicted while it lives.
/// `use(tags, {.await_bytes = false})` prevents that.
///
/// Move-only; keeps the saver's core alive. All methods are thread-safe; move and destruction are not. A
/// default-constructed or moved-from Arrival refers to nothing, and using it throws Misuse.
///
/// The destructor waits as `wait()` does and never throws; a failure that was not reported yet goes to the saver's
/// event sink. It does not wait for bytes of dropped tags. After `close`, or once all of its tags were dropped,
/// `before` and `wait` throw Misuse and the destructor is silent. In a forked child every call throws Misuse. If the
/// saver is switched off, the Arrival is done from the start.
class [[nodiscard]] Arrival {
public:
    Arrival() = default;
    explicit Arrival(std::shared_ptr<detail::ArrivalState> state) noexcept : state_{std::move(state)} {}
    Arrival(Arrival&& other) noexcept = default;
    Arrival& operator=(Arrival&& other) noexcept {
        Arrival taken{std::move(other)}; // what this had ends with it
        state_.swap(taken.state_);
        return *this;
    }
    ~Arrival() { end(); }

    /// Makes work submitted to `stream` after this call wait until `bytes` bytes at `pointer` have arrived, and for
    /// nothing else. For bytes that are copied directly, the call does not wait. For other bytes (from files, pageable
    /// backups, or host memory that is not pinned yet) it waits until their copies are enqueued or done. Throws Misuse
    /// if the range is not inside live blocks of these tags, if the memory was resumed and has been paused again, or if
    /// the stream is being captured; otherwise throws the failure that keeps the bytes from arriving.
    void before(StreamRef stream, const void* pointer, std::size_t bytes) const;
    /// As above, for all bytes of all tags. Does not affect work submitted to the stream earlier.
    void before(StreamRef stream) const;

    /// Waits until these bytes have arrived; they are then visible to every stream. Throws as `before` does.
    void wait(const void* pointer, std::size_t bytes) const;
    /// Waits until all bytes have arrived, including those that were paused and resumed again in between, and ends the
    /// arrival. If no other call has ended it yet, the `after_resume` hooks run here, on this thread, for the tags of
    /// which nothing was paused in between. If bytes could not arrive, every call throws the failure. For a resume, the
    /// memory then stays mapped, because work may be queued behind bytes that did arrive; graphs of the tag cannot be
    /// launched, and the next pause or resume waits for the device and continues from there. The backup is complete.
    void wait() const;

    /// Returns whether nothing is in flight any more, successful or not. Does not wait.
    [[nodiscard]] bool done() const;
    /// Returns the bytes copied and the time from start to end. Waits for them; throws if they could not be restored.
    [[nodiscard]] Report report() const;

    [[nodiscard]] explicit operator bool() const noexcept { return state_ != nullptr; }

private:
    /// Keeps the state alive during a call: a hook may end this object.
    [[nodiscard]] std::shared_ptr<detail::ArrivalState> state() const;
    void end() noexcept;

    std::shared_ptr<detail::ArrivalState> state_;
};

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/saver/arrival.ipp"
#endif
