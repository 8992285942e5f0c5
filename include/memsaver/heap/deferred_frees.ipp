// Definitions of deferred_frees.hpp.
#pragma once

#include "memsaver/heap/deferred_frees.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

namespace memsaver::inline v0_3 {

namespace detail {

MEMSAVER_INLINE void DeferredFrees::after_fence(Address address, std::size_t bytes, std::uint64_t last_fence) {
    fenced_.push_back({address, bytes, last_fence});
    add_fenced(bytes);
}

MEMSAVER_INLINE Status DeferredFrees::after_stream(const AnyDriver& driver, Address address, std::size_t bytes,
                                                   StreamRef stream) {
    spare_.reserve(most_spare); // so that collecting never allocates
    Stream* list = find(stream);
    if (list == nullptr) {
        list = &streams_.emplace_back();
        list->stream = stream;
    }
    tidy(*list);
    const std::uint64_t number = list->first + list->blocks.size();
    Status status;
    try {
        list->blocks.push_back({address, bytes, {}, true});
        Waiting& block = list->blocks.back();
        block.in_sizes = list->sizes.emplace(bytes, number);
        block.taken = false;
        list->bytes += bytes;
        status = mark(driver, *list, bytes);
        if (!status.ok()) drop(*list, block);
    } catch (...) {
        if (list->first + list->blocks.size() > number) {
            if (!list->blocks.back().taken) drop(*list, list->blocks.back());
            list->blocks.pop_back();
        }
        if (list->blocks.empty()) streams_.remove_if([&](const Stream& each) { return &each == list; });
        throw;
    }
    if (!status.ok()) {
        list->blocks.pop_back();
        if (list->blocks.empty()) streams_.remove_if([&](const Stream& each) { return &each == list; });
    }
    return status;
}

/// Marks the block that was added last. On failure nothing changes.
MEMSAVER_INLINE Status DeferredFrees::mark(const AnyDriver& driver, Stream& list, std::size_t bytes) {
    const std::uint64_t end = list.first + list.blocks.size();
    const std::size_t covered = list.marks.empty() ? 0 : list.marks.back().bytes;
    if (!list.marks.empty() && (covered == 0 || covered + bytes <= list.bytes / 16)) {
        Mark& last = list.marks.back();
        if (driver.record(last.event.get(), list.stream).ok()) {
            last.end = end;
            last.bytes += bytes;
            return {};
        }
    }
    list.marks.push_back({{}, end, bytes});
    Mark& fresh = list.marks.back();
    Status status{StatusKind::other, 0, ""};
    if (!spare_.empty()) { // made on the arena's device; a stream of another device refuses it
        fresh.event = std::move(spare_.back());
        spare_.pop_back();
        status = driver.record(fresh.event.get(), list.stream);
    }
    if (!status.ok()) {
        OwnedEvent event;
        status = event.open(driver, list.stream);
        if (status.ok()) status = driver.record(event.get(), list.stream);
        fresh.event = std::move(event);
    }
    if (!status.ok()) list.marks.pop_back();
    return status;
}

MEMSAVER_INLINE void DeferredFrees::after_mark(Address address, std::shared_ptr<const WorkMark> mark) {
    elsewhere_.push_back({address, std::move(mark)});
}

MEMSAVER_INLINE void DeferredFrees::keep(Address address, std::size_t bytes, std::uint64_t graph) {
    kept_.push_back({{address, bytes, 0}, graph});
}

MEMSAVER_INLINE void DeferredFrees::clear() noexcept {
    fenced_.clear();
    streams_.clear();
    spare_.clear();
    elsewhere_.clear();
    kept_.clear();
    ended_ = 0;
    remove_fenced(fenced_bytes());
}

MEMSAVER_INLINE DeferredFrees::Stream* DeferredFrees::find(StreamRef stream) noexcept {
    for (Stream& list : streams_) {
        if (list.stream == stream) return &list;
    }
    return nullptr;
}

MEMSAVER_INLINE void DeferredFrees::drop(Stream& list, Waiting& block) noexcept {
    const auto mark = std::upper_bound(list.marks.begin(), list.marks.end(), block.in_sizes->second,
                                       [](std::uint64_t number, const Mark& each) { return number < each.end; });
    if (mark != list.marks.end()) mark->bytes -= block.bytes;
    list.sizes.erase(block.in_sizes);
    list.bytes -= block.bytes;
    block.taken = true;
}

/// If most blocks of a list have been taken, compacts it to the waiting blocks and the marks that they need.
MEMSAVER_INLINE void DeferredFrees::tidy(Stream& list) noexcept {
    if (list.blocks.size() < 2 * list.sizes.size() + 16) return;
    auto mark = list.marks.begin();
    std::uint64_t to = list.first;
    for (std::uint64_t from = list.first;; ++from) {
        for (; mark != list.marks.end() && mark->end == from; ++mark) mark->end = to;
        if (from - list.first == list.blocks.size()) break;
        const Waiting block = list.blocks[from - list.first];
        if (block.taken) continue;
        block.in_sizes->second = to;
        list.blocks[to - list.first] = block;
        ++to;
    }
    while (list.first + list.blocks.size() > to) list.blocks.pop_back();
    std::erase_if(list.marks, [&](Mark& each) {
        if (each.bytes != 0) return false;
        if (spare_.size() < most_spare) spare_.push_back(std::move(each.event));
        return true;
    });
}

MEMSAVER_INLINE void DeferredFrees::add_fenced(std::size_t bytes) noexcept {
    fenced_bytes_.store(fenced_bytes() + bytes, std::memory_order_relaxed); // there is only one writer at a time
}

MEMSAVER_INLINE void DeferredFrees::remove_fenced(std::size_t bytes) noexcept {
    fenced_bytes_.store(fenced_bytes() - bytes, std::memory_order_relaxed);
}

} // namespace detail

} // namespace memsaver::inline v0_3
