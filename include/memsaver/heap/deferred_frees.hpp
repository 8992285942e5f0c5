// Blocks that the program has deallocated while work may still touch them. Pure bookkeeping: asks no driver, and does
// not know who owned them.
#pragma once

#include "memsaver/core/function_ref.hpp"
#include "memsaver/core/handles.hpp"
#include "memsaver/heap/block_allocator.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {

/// Blocks that wait to be reused: freed with a stream (in a list for that stream, identified by its handle, which the
/// driver does not reuse before the stream's work is done), or without one (waiting for the next *fence*, a moment at
/// which all work of the device is known to be complete). Fences are numbered from 1; a block stores the number of the
/// last fence begun before it was freed.
///
/// Blocks freed with a stream are numbered, too. A *mark* is an event and covers the blocks of its stream with numbers
/// up to its own. A list has at most 16 marks: one more joins the two neighbors that cover the fewest bytes, so no mark
/// covers much more than an eighth of what waits. The events are the caller's, who opens, records, queries and closes
/// them; here are those that marks need, and a few to spare. Not thread-safe.
class DeferredFrees {
public:
    using Visit = FunctionRef<void(Address)>;

    struct Mark {
        EventRef event;
        std::uint64_t number = 0;
    };

    /// Strong exception guarantee: may throw std::bad_alloc.
    void after_fence(Address address, std::size_t bytes, std::uint64_t last_fence);

    /// A number for a block that is about to be freed with a stream, and an event to spare, or none. Call it before the
    /// event is recorded in the stream: whatever was numbered before is then covered, whoever is first to add it.
    Mark begin_mark() noexcept;
    /// Adds that block. Returns an event that is not needed any more, or none. Strong exception guarantee: may throw
    /// std::bad_alloc.
    EventRef after_stream(Address address, std::size_t bytes, StreamRef stream, Mark mark);
    /// Keeps an event to spare. Returns it if there are enough.
    EventRef spare(EventRef event) noexcept;

    /// Returns whether a block waits for this stream.
    [[nodiscard]] bool waits(StreamRef stream) const noexcept;
    /// Takes a waiting block of this stream, with at least `bytes` and at most a quarter more, for which
    /// `usable(range)` is true; returns 0 if none is found. The block no longer waits: later work of the same stream
    /// runs after all work that touched it. Its cost does not depend on how many blocks wait.
    Address take(StreamRef stream, std::size_t bytes, FunctionRef<bool(Range)> usable) noexcept;

    /// Calls `reclaim(address)` for every block whose fence is done; `last_done` is the last completed one. Returns
    /// whether there was any.
    bool collect(std::uint64_t last_done, Visit reclaim) noexcept;

    /// The streams with blocks or marks are numbered 0 .. streams()-1; a list that goes is replaced by the last one.
    [[nodiscard]] std::size_t streams() const noexcept { return streams_.size(); }
    struct Question {
        StreamRef stream;
        Mark mark;              ///< without an event: nothing to ask
        bool elsewhere = false; ///< another thread asks about the first mark: wait for its answer
    };
    /// Takes the event of a stream's first mark, to be queried. Nobody else gets it until `answer`.
    Question ask(std::size_t stream) noexcept;
    /// Puts the event back, or calls `reclaim(address)` for the blocks covered by it if it has `passed`. Returns an
    /// event that is not needed any more, or none.
    EventRef answer(const Question& asked, bool passed, Visit reclaim) noexcept;

    /// Calls `reclaim(address)` for the blocks that no work can touch any more according to `gone(address)`. Does not
    /// allocate.
    void collect_if(FunctionRef<bool(Address)> gone, Visit reclaim) noexcept;

    /// Discards all blocks. Returns an event to close; call it until there is none.
    EventRef clear() noexcept;

    /// The first fence that makes a block reusable, ignoring blocks of streams; 0: there is none.
    [[nodiscard]] std::uint64_t first_fence() const noexcept { return fenced_.empty() ? 0 : fenced_.front().until + 1; }
    /// Bytes that the next fence would make reusable, ignoring blocks of streams.
    [[nodiscard]] std::size_t fenced_bytes() const noexcept { return fenced_bytes_; }
    /// Returns whether waiting for the device would make anything reusable.
    [[nodiscard]] bool any_waiting() const noexcept;

private:
    static constexpr std::size_t most_marks = 16;   // of a stream
    static constexpr std::size_t most_spare = 64;   // events
    static constexpr std::size_t most_streams = 16; // without waiting blocks

    struct Waiting {
        Address address = 0;
        std::size_t bytes = 0;
        std::uint64_t until = 0; ///< the last fence begun, or the block's number in its stream
    };
    struct Covering : Mark {
        std::size_t bytes = 0; ///< of the waiting blocks that no earlier mark covers
    };
    /// The blocks freed with one stream, in any order.
    struct Stream {
        StreamRef stream;
        std::vector<Waiting> blocks;
        FreeBins sizes; // node i: block i; newest first
        std::array<Covering, most_marks> marks{};
        std::size_t mark_count = 0;
    };

    [[nodiscard]] Stream* find(StreamRef stream) noexcept;
    Stream& list_of(StreamRef stream);
    static EventRef add_mark(Stream& list, Mark mark) noexcept;
    static void remove_mark(Stream& list, std::size_t i) noexcept;
    static Covering& covering(Stream& list, std::uint64_t number) noexcept;
    static void drop(Stream& list, std::size_t block) noexcept;
    void forget_idle(Stream& list) noexcept;

    std::vector<Waiting> fenced_; // in the order of their fences
    std::vector<Stream> streams_;
    std::array<EventRef, most_spare> spare_{};
    std::size_t spare_count_ = 0;
    std::uint64_t last_number_ = 0;
    std::size_t fenced_bytes_ = 0;
};

} // namespace detail

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/heap/deferred_frees.ipp"
#endif
