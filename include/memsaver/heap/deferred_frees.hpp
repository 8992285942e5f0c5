// Blocks that the program has deallocated while work may still touch them. Does not know who owned them.
#pragma once

#include "memsaver/core/order.hpp"
#include "memsaver/driver/owned.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {

/// Blocks that wait to be reused, of four kinds: freed with a stream (in order, in a list for that stream, identified
/// by its handle, which the driver does not reuse before the stream's work is done); freed with a stream of another
/// device (each with a mark of its own); freed without a stream (waiting for the next *fence*, a moment at which all
/// work of the device is known to be complete); and freed inside a capture (kept because replays may touch them until
/// their graph is gone, then waiting for a fence). Graphs have numbers; graph 0 is never gone. Fences are numbered from
/// 1; a block stores the number of the last fence begun before it was freed. Not thread-safe.
class DeferredFrees {
public:
    /// Strong exception guarantee: may throw std::bad_alloc.
    void after_fence(Address address, std::size_t bytes, std::uint64_t last_fence);

    /// Marks the stream now. Blocks that wait in one stream share marks, so that the number of marks grows with the
    /// logarithm of the waiting bytes: the last mark is recorded again while it covers less than a sixteenth of them.
    /// Throws std::bad_alloc, or returns the status of a failing driver call; in both cases nothing changed.
    Status after_stream(const AnyDriver& driver, Address address, std::size_t bytes, StreamRef stream);

    /// For work of another device. Strong exception guarantee: may throw std::bad_alloc.
    void after_mark(Address address, std::shared_ptr<const WorkMark> mark);

    /// Strong exception guarantee: may throw std::bad_alloc.
    void keep(Address address, std::size_t bytes, std::uint64_t graph);

    /// Takes a waiting block of this stream, with at least `bytes` and at most a quarter more, for which
    /// `usable(address)` is true; returns 0 if there is none. The block no longer waits: later work of the same stream
    /// runs after all work that touched it. Does not allocate.
    template <class Usable>
    Address take(StreamRef stream, std::size_t bytes, Usable&& usable) {
        Stream* const list = find(stream);
        if (list == nullptr) return 0;
        const std::size_t most = bytes + bytes / 4;
        int tries = 8;
        for (auto at = list->sizes.lower_bound(bytes); at != list->sizes.end() && at->first <= most && tries != 0;
             ++at, --tries) {
            Waiting& block = list->blocks[at->second - list->first];
            if (!usable(block.address)) continue;
            drop(*list, block);
            return block.address;
        }
        return 0;
    }

    /// Makes the blocks of a graph, at most `most`, wait for a fence, and calls `each(address)` for each. Returns how
    /// many there were. Does not allocate.
    template <class Each>
    std::size_t end_graph(std::uint64_t graph, std::size_t most, std::uint64_t last_fence, Each&& each) {
        std::size_t count = 0;
        for (Kept& kept : kept_) {
            if (kept.graph != graph || kept.ended || count == most) continue;
            kept.ended = true;
            kept.block.last_fence = last_fence;
            add_fenced(kept.block.bytes);
            count += 1;
            each(kept.block.address);
        }
        ended_ += count;
        return count;
    }

    /// Calls `visit(address)` for every block that a graph keeps.
    template <class Visit>
    void for_each_kept(Visit&& visit) const {
        for (const Kept& kept : kept_) {
            if (!kept.ended) visit(kept.block.address);
        }
    }

    /// Calls `reclaim(address)` for every block whose work has completed; `last_done` is the last completed fence.
    /// Queries one mark of each stream, and one more for each completed mark. Does not allocate.
    template <class Reclaim>
    void collect(const AnyDriver& driver, std::uint64_t last_done, Reclaim&& reclaim) {
        while (!fenced_.empty() && fenced_.front().last_fence < last_done) {
            const Fenced front = fenced_.front();
            fenced_.pop_front();
            remove_fenced(front.bytes);
            reclaim(front.address);
        }
        collect_ended([&](const Fenced& block) { return block.last_fence < last_done; }, reclaim);
        for (auto list = streams_.begin(); list != streams_.end();) {
            while (!list->marks.empty()) {
                Mark& mark = list->marks.front();
                bool passed = false;
                if (!driver.query(mark.event.get(), passed).ok() || !passed) break;
                for (; list->first < mark.end; ++list->first) {
                    Waiting& block = list->blocks.front();
                    if (!block.taken) {
                        drop(*list, block);
                        reclaim(block.address);
                    }
                    list->blocks.pop_front();
                }
                if (spare_.size() < most_spare) spare_.push_back(std::move(mark.event));
                list->marks.pop_front();
            }
            list = list->blocks.empty() ? streams_.erase(list) : std::next(list);
        }
        std::erase_if(elsewhere_, [&](const Elsewhere& block) {
            bool passed = false;
            if (!block.mark->query(passed).ok() || !passed) return false;
            reclaim(block.address);
            return true;
        });
    }

    /// Calls `reclaim(address)` for the blocks that no work can touch any more according to `gone(address)`. Does not
    /// allocate.
    template <class Gone, class Reclaim>
    void collect_if(Gone&& gone, Reclaim&& reclaim) {
        collect_ended([&](const Fenced& block) { return gone(block.address); }, reclaim);
        std::erase_if(fenced_, [&](const Fenced& fenced) {
            if (!gone(fenced.address)) return false;
            remove_fenced(fenced.bytes);
            reclaim(fenced.address);
            return true;
        });
        for (Stream& list : streams_) {
            for (Waiting& block : list.blocks) {
                if (block.taken || !gone(block.address)) continue;
                drop(list, block);
                reclaim(block.address);
            }
        }
        std::erase_if(elsewhere_, [&](const Elsewhere& block) {
            if (!gone(block.address)) return false;
            reclaim(block.address);
            return true;
        });
    }

    /// Discards all blocks. Does not allocate.
    void clear() noexcept;

    /// The first fence that makes a block reusable, ignoring blocks of streams and graphs; 0: there is none.
    [[nodiscard]] std::uint64_t first_fence() const noexcept {
        return fenced_.empty() ? 0 : fenced_.front().last_fence + 1;
    }
    /// Bytes that the next fence would make reusable, ignoring blocks of streams. Thread-safe.
    [[nodiscard]] std::size_t fenced_bytes() const noexcept { return fenced_bytes_.load(std::memory_order_relaxed); }
    /// Returns whether waiting for the device would make anything reusable.
    [[nodiscard]] bool any_waiting() const noexcept {
        return fenced_bytes() != 0 || !elsewhere_.empty() ||
               std::any_of(streams_.begin(), streams_.end(), [](const Stream& list) { return list.bytes != 0; });
    }

private:
    static constexpr std::size_t most_spare = 64;

    struct Fenced {
        Address address;
        std::size_t bytes;
        std::uint64_t last_fence;
    };
    struct Elsewhere {
        Address address;
        std::shared_ptr<const WorkMark> mark;
    };
    struct Kept {
        Fenced block; // its fence number is valid once the graph is gone
        std::uint64_t graph;
        bool ended = false;
    };

    using Sizes = std::multimap<std::size_t, std::uint64_t>; // of the blocks not taken: bytes to block number
    struct Waiting {
        Address address;
        std::size_t bytes;
        Sizes::iterator in_sizes;
        bool taken = false; ///< in use again, or reclaimed in another way
    };
    struct Mark {
        OwnedEvent event;
        std::uint64_t end = 0; ///< covers the blocks before this number
        std::size_t bytes = 0; ///< total size of the covered blocks that are not taken
    };
    /// The blocks freed with one stream, in order.
    struct Stream {
        StreamRef stream;
        std::uint64_t first = 0;    ///< number of the first block
        std::deque<Waiting> blocks; ///< each is covered by a mark
        std::deque<Mark> marks;
        Sizes sizes;
        std::size_t bytes = 0; ///< total size of the blocks not taken
    };

    [[nodiscard]] Stream* find(StreamRef stream) noexcept;
    Status mark(const AnyDriver& driver, Stream& list, std::size_t bytes);
    static void drop(Stream& list, Waiting& block) noexcept;
    void tidy(Stream& list) noexcept;
    void add_fenced(std::size_t bytes) noexcept;
    void remove_fenced(std::size_t bytes) noexcept;

    template <class Passed, class Reclaim>
    void collect_ended(Passed&& passed, Reclaim&& reclaim) {
        if (ended_ == 0) return;
        ended_ -= std::erase_if(kept_, [&](const Kept& kept) {
            if (!kept.ended || !passed(kept.block)) return false;
            remove_fenced(kept.block.bytes);
            reclaim(kept.block.address);
            return true;
        });
    }

    std::deque<Fenced> fenced_;
    std::list<Stream> streams_; // a handful; never moved, because moving a deque allocates
    std::vector<OwnedEvent> spare_;
    std::vector<Elsewhere> elsewhere_;
    std::vector<Kept> kept_;
    std::size_t ended_ = 0; // number of kept blocks whose graph is gone
    std::atomic<std::size_t> fenced_bytes_{0};
};

} // namespace detail

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/heap/deferred_frees.ipp"
#endif
