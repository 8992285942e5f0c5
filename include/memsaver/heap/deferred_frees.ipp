// Definitions of deferred_frees.hpp.
#pragma once

#include "memsaver/core/lists.hpp"
#include "memsaver/heap/deferred_frees.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {

MEMSAVER_INLINE void DeferredFrees::after_fence(Address address, std::size_t bytes, std::uint64_t last_fence) {
    fenced_.push_back({address, bytes, last_fence});
    fenced_bytes_ += bytes;
}

MEMSAVER_INLINE DeferredFrees::Mark DeferredFrees::begin_mark() noexcept {
    return {spare_count_ == 0 ? EventRef{} : spare_[--spare_count_], ++last_number_};
}

MEMSAVER_INLINE EventRef DeferredFrees::spare(EventRef event) noexcept {
    if (!event || spare_count_ == most_spare) return event;
    spare_[spare_count_++] = event;
    return {};
}

MEMSAVER_INLINE EventRef DeferredFrees::after_stream(Address address, std::size_t bytes, StreamRef stream, Mark mark) {
    Stream& list = list_of(stream);
    const auto block = static_cast<FreeBins::Node>(list.blocks.size());
    list.sizes.reserve(list.blocks.size() + 1);
    list.blocks.push_back({address, bytes, mark.number});
    list.sizes.insert(block, bytes);
    const EventRef over = add_mark(list, mark);
    covering(list, mark.number).bytes += bytes;
    return spare(over);
}

MEMSAVER_INLINE bool DeferredFrees::waits(StreamRef stream) const noexcept {
    return any_in(streams_, [&](const Stream& list) { return list.stream == stream && !list.blocks.empty(); });
}

MEMSAVER_INLINE Address DeferredFrees::take(StreamRef stream, std::size_t bytes,
                                            FunctionRef<bool(Range)> usable) noexcept {
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

MEMSAVER_INLINE bool DeferredFrees::collect(std::uint64_t last_done, Visit reclaim) noexcept {
    std::size_t count = 0;
    for (; count < fenced_.size() && fenced_[count].until < last_done; ++count) {
        fenced_bytes_ -= fenced_[count].bytes;
        reclaim(fenced_[count].address);
    }
    fenced_.erase(fenced_.begin(), fenced_.begin() + static_cast<std::ptrdiff_t>(count));
    return count != 0;
}

MEMSAVER_INLINE DeferredFrees::Question DeferredFrees::ask(std::size_t stream) noexcept {
    Stream& list = streams_[stream];
    if (list.mark_count == 0) return {list.stream, {}, false};
    Covering& first = list.marks.front();
    const Question question{list.stream, first, !first.event};
    first.event = {};
    return question;
}

MEMSAVER_INLINE EventRef DeferredFrees::answer(const Question& asked, bool passed, Visit reclaim) noexcept {
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
    return spare(asked.mark.event);
}

MEMSAVER_INLINE void DeferredFrees::collect_if(FunctionRef<bool(Address)> gone, Visit reclaim) noexcept {
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

MEMSAVER_INLINE EventRef DeferredFrees::clear() noexcept {
    fenced_.clear();
    fenced_bytes_ = 0;
    for (; !streams_.empty(); streams_.pop_back()) {
        Stream& list = streams_.back();
        while (list.mark_count != 0) {
            const EventRef event = list.marks[--list.mark_count].event;
            if (event) return event;
        }
    }
    return spare_count_ == 0 ? EventRef{} : spare_[--spare_count_];
}

MEMSAVER_INLINE bool DeferredFrees::any_waiting() const noexcept {
    return fenced_bytes_ != 0 || any_in(streams_, [](const Stream& list) { return !list.blocks.empty(); });
}

MEMSAVER_INLINE DeferredFrees::Stream* DeferredFrees::find(StreamRef stream) noexcept {
    for (Stream& list : streams_) {
        if (list.stream == stream) return &list;
    }
    return nullptr;
}

MEMSAVER_INLINE DeferredFrees::Stream& DeferredFrees::list_of(StreamRef stream) {
    if (Stream* const list = find(stream)) return *list;
    streams_.emplace_back().stream = stream;
    return streams_.back();
}

/// Returns the event of a mark that is not needed any more, if any.
MEMSAVER_INLINE EventRef DeferredFrees::add_mark(Stream& list, Mark mark) noexcept {
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

MEMSAVER_INLINE void DeferredFrees::remove_mark(Stream& list, std::size_t i) noexcept {
    const auto at = list.marks.begin() + static_cast<std::ptrdiff_t>(i);
    std::copy(at + 1, list.marks.begin() + static_cast<std::ptrdiff_t>(list.mark_count--), at);
}

/// The first mark that covers a block.
MEMSAVER_INLINE DeferredFrees::Covering& DeferredFrees::covering(Stream& list, std::uint64_t number) noexcept {
    std::size_t i = 0;
    while (i + 1 < list.mark_count && list.marks[i].number < number) ++i;
    return list.marks[i];
}

/// Removes a block; the last one takes its place.
MEMSAVER_INLINE void DeferredFrees::drop(Stream& list, std::size_t block) noexcept {
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

MEMSAVER_INLINE void DeferredFrees::forget_idle(Stream& list) noexcept {
    if (!list.blocks.empty() || list.mark_count != 0 || streams_.size() <= most_streams) return;
    if (&list != &streams_.back()) list = std::move(streams_.back());
    streams_.pop_back();
}

} // namespace detail

} // namespace memsaver::inline v0_3
