// Blocks that the program has deallocated while work may still touch them. Pure bookkeeping: asks no driver, and does
// not know who owned them.
#pragma once

#include "memsaver/core/function_ref.hpp"
#include "memsaver/core/handles.hpp"
#include "memsaver/core/lists.hpp"
#include "memsaver/core/vector.hpp"
#include "memsaver/heap/block_allocator.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace memsaver::inline v0_3::detail {

/// Blocks that wait to be reused: freed with a stream (in a list for that stream, identified by its handle, which the
/// driver does not reuse before the stream's work is done), or without one (waiting for the next *fence*, a moment at
/// which all work of the device is known to be complete). Fences are numbered from 1; a block stores the number of the
/// last fence begun before it was freed.
///
/// Blocks freed with a stream are numbered, too. A *mark* is an event and covers the blocks of its stream with numbers
/// up to its own. A list has at most 16 marks: one more joins the two neighbors that cover the fewest bytes, so no mark
/// covers much more than an eighth of what waits. The events are the caller's, who opens, records, queries and closes
/// them; here are those of marks. Not thread-safe.
class DeferredFrees {
public:
    using Visit = FunctionRef<void(Address)>;

    struct Mark {
        EventRef event;
        std::uint64_t number = 0;
    };

    /// Strong exception guarantee: may throw std::bad_alloc.
    void after_fence(Address address, std::size_t bytes, std::uint64_t last_fence) {
        fenced_.push_back({address, bytes, last_fence});
        fenced_bytes_ += bytes;
    }

    /// Adds a block, whose number was taken before the mark's event was recorded: whatever was numbered before is then
    /// covered, whoever is first to add it. Returns an event that is not needed any more, or none. Strong exception
    /// guarantee: may throw std::bad_alloc.
    EventRef after_stream(Address address, std::size_t bytes, StreamRef stream, Mark mark) {
        Stream& list = list_of(stream);
        const auto block = static_cast<FreeBins::Node>(list.blocks.size());
        list.sizes.reserve(list.blocks.size() + 1);
        list.blocks.push_back({address, bytes, mark.number});
        list.sizes.insert(block, bytes);
        const EventRef over = add_mark(list, mark);
        covering(list, mark.number).bytes += bytes;
        return over;
    }

    /// Takes a waiting block of this stream, with at least `bytes` and at most a quarter more, for which
    /// `usable(range)` is true; returns 0 if none is found. The block no longer waits: later work of the same stream
    /// runs after all work that touched it. Its cost does not depend on how many blocks wait.
    Address take(StreamRef stream, std::size_t bytes, FunctionRef<bool(Range)> usable) noexcept {
        Stream* const list = find(stream);
        if (list == nullptr) return 0;
        const std::size_t most = bytes + bytes / 4;
        const auto fits = [&](FreeBins::Node node) {
            const Waiting& block = list->blocks[node];
            return block.bytes >= bytes && block.bytes <= most && usable({block.address, block.bytes});
        };
        const FreeBins::Node found = list->sizes.search(FreeBins::bin_of(bytes), 32, fits, FreeBins::bin_of(most));
        if (found == FreeBins::none) return 0;
        const Address address = list->blocks[found].address;
        drop(*list, found);
        return address;
    }

    /// Calls `reclaim(address)` for every block whose fence is done; `last_done` is the last completed one. Returns
    /// whether there was any.
    bool collect(std::uint64_t last_done, Visit reclaim) noexcept {
        std::size_t count = 0;
        for (; count < fenced_.size() && fenced_[count].until < last_done; ++count) {
            fenced_bytes_ -= fenced_[count].bytes;
            reclaim(fenced_[count].address);
        }
        fenced_.erase(fenced_.begin(), fenced_.begin() + static_cast<std::ptrdiff_t>(count));
        return count != 0;
    }

    /// The streams with blocks or marks are numbered 0 .. streams()-1; a list that goes is replaced by the last one.
    [[nodiscard]] std::size_t streams() const noexcept { return streams_.size(); }
    struct Question {
        StreamRef stream;
        Mark mark;              ///< without an event: nothing to ask
        bool elsewhere = false; ///< another thread asks about the first mark: wait for its answer
    };
    /// Takes the event of a stream's first mark, to be queried. Nobody else gets it until `answer`.
    Question ask(std::size_t stream) noexcept {
        Stream& list = streams_[stream];
        if (list.mark_count == 0) return {list.stream, {}, false};
        Covering& first = list.marks.front();
        const Question question{list.stream, first, !first.event};
        first.event = {};
        return question;
    }
    /// Puts the event back, or calls `reclaim(address)` for the blocks covered by it if it has `passed`. Returns an
    /// event that is not needed any more, or none.
    EventRef answer(const Question& asked, bool passed, Visit reclaim) noexcept {
        Stream* const list = find(asked.stream);
        if (list == nullptr) return asked.mark.event; // cleared
        const bool first = list->mark_count != 0 && list->marks.front().number == asked.mark.number;
        if (!passed && first) {
            list->marks.front().event = asked.mark.event;
            return {};
        }
        if (passed) { // also if the mark has been joined to the next one in the meantime
            for (std::size_t i = list->blocks.size(); i-- > 0;) {
                const Waiting block = list->blocks[i];
                if (block.until > asked.mark.number) continue;
                drop(*list, i);
                reclaim(block.address);
            }
            if (first) remove_mark(*list, 0);
            forget_idle(*list);
        }
        return asked.mark.event;
    }

    /// Calls `reclaim(address)` for the blocks that no work can touch any more according to `gone(address)`. Does not
    /// allocate.
    void collect_if(FunctionRef<bool(Address)> gone, Visit reclaim) noexcept {
        erase_in(fenced_, [&](const Waiting& block) {
            if (!gone(block.address)) return false;
            fenced_bytes_ -= block.bytes;
            reclaim(block.address);
            return true;
        });
        for (Stream& list : streams_) {
            for (std::size_t i = list.blocks.size(); i-- > 0;) {
                const Address address = list.blocks[i].address;
                if (!gone(address)) continue;
                drop(list, i);
                reclaim(address);
            }
        }
    }

    /// Discards all blocks. Returns an event to close; call it until there is none.
    EventRef clear() noexcept {
        fenced_.clear();
        fenced_bytes_ = 0;
        for (; !streams_.empty(); streams_.pop_back()) {
            Stream& list = streams_.back();
            while (list.mark_count != 0) {
                const EventRef event = list.marks[--list.mark_count].event;
                if (event) return event;
            }
        }
        return {};
    }

    /// The first fence that makes a block reusable, ignoring blocks of streams; 0: there is none.
    [[nodiscard]] std::uint64_t first_fence() const noexcept { return fenced_.empty() ? 0 : fenced_.front().until + 1; }
    /// Bytes that the next fence would make reusable, ignoring blocks of streams.
    [[nodiscard]] std::size_t fenced_bytes() const noexcept { return fenced_bytes_; }
    /// Returns whether waiting for the device would make anything reusable.
    [[nodiscard]] bool any_waiting() const noexcept {
        return fenced_bytes_ != 0 || any_in(streams_, [](const Stream& list) { return !list.blocks.empty(); });
    }

private:
    static constexpr std::size_t most_marks = 16;   // of a stream
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
        Vector<Waiting> blocks;
        FreeBins sizes; // node i: block i; newest first
        std::array<Covering, most_marks> marks{};
        std::size_t mark_count = 0;
    };

    [[nodiscard]] Stream* find(StreamRef stream) noexcept {
        for (Stream& list : streams_) {
            if (list.stream == stream) return &list;
        }
        return nullptr;
    }
    Stream& list_of(StreamRef stream) {
        if (Stream* const list = find(stream)) return *list;
        streams_.emplace_back().stream = stream;
        return streams_.back();
    }
    /// Returns the event of a mark that is not needed any more, if any.
    static EventRef add_mark(Stream& list, Mark mark) noexcept {
        if (list.mark_count != 0 && list.marks[list.mark_count - 1].number > mark.number) return mark.event;
        EventRef over;
        if (list.mark_count == most_marks) {
            std::size_t least = 0;
            const auto both = [&](std::size_t i) { return list.marks[i].bytes + list.marks[i + 1].bytes; };
            for (std::size_t i = 1; i + 1 < most_marks; ++i) {
                if (both(i) < both(least)) least = i;
            }
            over = list.marks[least].event; // none while it is being queried
            list.marks[least + 1].bytes = both(least);
            remove_mark(list, least);
        }
        list.marks[list.mark_count++] = {mark, 0};
        return over;
    }
    static void remove_mark(Stream& list, std::size_t i) noexcept {
        const auto at = list.marks.begin() + static_cast<std::ptrdiff_t>(i);
        std::copy(at + 1, list.marks.begin() + static_cast<std::ptrdiff_t>(list.mark_count--), at);
    }
    /// The first mark that covers a block.
    static Covering& covering(Stream& list, std::uint64_t number) noexcept {
        std::size_t i = 0;
        while (i + 1 < list.mark_count && list.marks[i].number < number) ++i;
        return list.marks[i];
    }
    /// Removes a block; the last one takes its place.
    static void drop(Stream& list, std::size_t block) noexcept {
        const std::size_t last = list.blocks.size() - 1;
        covering(list, list.blocks[block].until).bytes -= list.blocks[block].bytes;
        list.sizes.remove(static_cast<FreeBins::Node>(block));
        if (block != last) {
            list.blocks[block] = list.blocks[last];
            list.sizes.remove(static_cast<FreeBins::Node>(last));
            list.sizes.insert(static_cast<FreeBins::Node>(block), list.blocks[block].bytes);
        }
        list.blocks.pop_back();
    }
    void forget_idle(Stream& list) noexcept {
        if (!list.blocks.empty() || list.mark_count != 0 || streams_.size() <= most_streams) return;
        if (&list != &streams_.back()) list = std::move(streams_.back());
        streams_.pop_back();
    }

    Vector<Waiting> fenced_; // in the order of their fences
    Vector<Stream> streams_;
    std::size_t fenced_bytes_ = 0;
};

} // namespace memsaver::inline v0_3::detail
