// Blocks that the program has deallocated while work may still touch them. Does not know whose they are.
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

namespace memsaver::inline v0_2 {

namespace detail {

/// Four kinds: freed with a stream (known by its handle, which the driver uses for no other stream before the work of
/// this one is done; in a list of that stream's, in order), with a stream of another device (behind a
/// mark of its own), without a stream (waiting for the next time that the whole device is known to have passed, a
/// *fence*), and freed inside a capture: kept, for replays may touch them until their graph is gone; then they wait for
/// a fence. Graphs have numbers; 0 is never gone. Fences are numbered from 1; a block carries the number of the last
/// fence begun before it was freed. Not thread safe.
class DeferredFrees {
public:
    /// May throw bad_alloc; then nothing changed.
    void after_fence(Address address, std::size_t bytes, std::uint64_t last_fence);

    /// Marks the stream now. What waits in one stream shares marks, so that their number grows with the logarithm of
    /// what waits: a mark moves on while it covers less than a sixteenth of it. Throws bad_alloc, or answers the status
    /// of a failing driver call; then nothing changed.
    Status after_stream(const AnyDriver& driver, Address address, std::size_t bytes, StreamRef stream);

    /// Work of another device. May throw bad_alloc; then nothing changed.
    void after_mark(Address address, std::shared_ptr<const WorkMark> mark);

    /// May throw bad_alloc; then nothing changed.
    void keep(Address address, std::size_t bytes, std::uint64_t graph);

    /// A block that waits in this stream, of at least `bytes` and little more, for which `usable(address)` says yes; or
    /// 0. It waits no more: work that is given to the same stream next comes after all that touched it. Needs no
    /// memory.
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

    /// The blocks of a graph, at most `most` of them, wait for a fence from now on; calls `each(address)`. Answers how
    /// many there were. Needs no memory.
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

    /// `visit(address)` for every block that a graph keeps.
    template <class Visit>
    void for_each_kept(Visit&& visit) const {
        for (const Kept& kept : kept_) {
            if (!kept.ended) visit(kept.block.address);
        }
    }

    /// Calls `reclaim(address)` for every block that has been passed, `last_done` being the last fence that is. Asks
    /// about one mark of each stream, and one more for each that has passed. Needs no memory.
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

    /// Calls `reclaim(address)` for the blocks that `gone(address)` says no work can touch any more. Needs no memory.
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

    /// Forgets all of them. Needs no memory.
    void clear() noexcept;

    /// The first fence that makes one of them reusable, but for those of streams and graphs; 0: there is none.
    [[nodiscard]] std::uint64_t first_fence() const noexcept {
        return fenced_.empty() ? 0 : fenced_.front().last_fence + 1;
    }
    /// Bytes that the next fence would make reusable, but for those of streams. May be asked at any time.
    [[nodiscard]] std::size_t fenced_bytes() const noexcept { return fenced_bytes_.load(std::memory_order_relaxed); }
    /// Whether anything waits that waiting for the device would make reusable.
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
        Fenced block; // its fence counts once its graph is gone
        std::uint64_t graph;
        bool ended = false;
    };

    using Sizes = std::multimap<std::size_t, std::uint64_t>; // of the blocks not taken: bytes to number
    struct Waiting {
        Address address;
        std::size_t bytes;
        Sizes::iterator in_sizes;
        bool taken = false; ///< in use again, or reclaimed otherwise
    };
    struct Mark {
        OwnedEvent event;
        std::uint64_t end = 0; ///< covers the blocks up to this number
        std::size_t bytes = 0; ///< of those of them not taken
    };
    /// What was freed with one stream, in order.
    struct Stream {
        StreamRef stream;
        std::uint64_t first = 0;    ///< the number of the first block
        std::deque<Waiting> blocks; ///< those not covered by a mark so far are none
        std::deque<Mark> marks;
        Sizes sizes;
        std::size_t bytes = 0; ///< of the blocks not taken
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
    std::list<Stream> streams_; // a handful; never moved, for moving a deque takes memory
    std::vector<OwnedEvent> spare_;
    std::vector<Elsewhere> elsewhere_;
    std::vector<Kept> kept_;
    std::size_t ended_ = 0; // of the kept
    std::atomic<std::size_t> fenced_bytes_{0};
};

} // namespace detail

} // namespace memsaver::inline v0_2

#ifndef MEMSAVER_COMPILED
#include "memsaver/heap/deferred_frees.ipp"
#endif
