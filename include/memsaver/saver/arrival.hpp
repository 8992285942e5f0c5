// Arrival: bytes that are on their way, in the program's hands.
#pragma once

#include "memsaver/core/handles.hpp"
#include "memsaver/core/report.hpp"
#include "memsaver/fwd.hpp"

#include <cstddef>
#include <memory>
#include <utility>

namespace memsaver::inline v0_2 {

namespace detail {
class ArrivalState;
}

/// Bytes of tags that are on their way: back to memory that `resume_async` has mapped, or to their backups by `save`.
/// They move by themselves; that they have arrived is noted by `wait`, by its end, or by the next operation on the tag.
/// An Arrival is no use: an idle tag may be evicted meanwhile. `use(tags, {.await_bytes = false})` keeps it.
/// Move-only; keeps the saver's core alive. Any thread may call any of its methods, several at once; moving it and
/// ending it are for one. A default one, and one that was moved from, stands for nothing, and every use of it is
/// Misuse.
///
/// Its end waits as `wait()` does and never throws: what could not be brought and nobody has been told of goes to the
/// saver's event sink. Bytes of tags that have been dropped are waited for no more. After `close`, or once all of its
/// tags have been dropped, `before` and `wait` are Misuse and its end is quiet; in a forked child every call is Misuse.
/// Of a saver that is switched off it is done from the beginning.
class [[nodiscard]] Arrival {
public:
    Arrival() = default;
    explicit Arrival(std::shared_ptr<detail::ArrivalState> state) noexcept : state_{std::move(state)} {}
    Arrival(Arrival&& other) noexcept = default;
    Arrival& operator=(Arrival&& other) noexcept;
    ~Arrival() { end(); }

    /// Work that `stream` is given from now on waits until these `bytes` at `pointer` have arrived, and for nothing
    /// else. Bytes that copies reach directly: does not wait itself. Others (of files, of pageable backups, of host
    /// memory that is not pinned yet): waits here until they are on their way or have come. Throws Misuse for bytes
    /// that are not in live blocks of these tags, or that came back and are paused again, and for a stream that is
    /// being captured; or what keeps the bytes from arriving.
    void before(StreamRef stream, const void* pointer, std::size_t bytes) const;
    /// The same of all bytes of all tags. Work that was given to the stream earlier is not concerned.
    void before(StreamRef stream) const;

    /// Waits until these bytes have arrived; every stream sees them then. Throws as `before`.
    void wait(const void* pointer, std::size_t bytes) const;
    /// Waits until all bytes have arrived, also those that went and are on their way again, and ends the arrival: the
    /// hooks `after_resume` run here, on this thread, if no other call has ended it. They are told of the tags of which
    /// nothing has been paused since. Throws, each time, what kept bytes from arriving. Of a resume, the memory then
    /// stays mapped, for work may be queued behind what did arrive; graphs of the tag are not launched, and the next
    /// pause or resume waits for the device and goes on from there. The backup is whole.
    void wait() const;

    /// Whether nothing is on its way any more, whatever came of it. Does not wait.
    [[nodiscard]] bool done() const;
    /// What it did, in bytes, and how long it took from its beginning to its end. Waits, and throws, as `wait()`.
    [[nodiscard]] Report report() const;

    [[nodiscard]] explicit operator bool() const noexcept { return state_ != nullptr; }

private:
    [[nodiscard]] detail::ArrivalState& state() const;
    void end() noexcept;

    std::shared_ptr<detail::ArrivalState> state_;
};

} // namespace memsaver::inline v0_2

#ifndef MEMSAVER_COMPILED
#include "memsaver/saver/arrival.ipp"
#endif
