// Definitions of block_allocator.hpp.
#pragma once

#include "memsaver/heap/block_allocator.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <utility>
#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {

MEMSAVER_INLINE void FreeBins::reserve(std::size_t count) {
    const std::size_t before = links_.size();
    if (before >= bins + count) return;
    links_.resize(bins + count);
    for (Node head = static_cast<Node>(before); head < bins; ++head) links_[head] = {head, head};
}

MEMSAVER_INLINE void FreeBins::insert(Node node, std::size_t bytes) noexcept {
    const std::size_t bin = bin_of(bytes);
    const auto head = static_cast<Node>(bin);
    const Node link = link_of(node);
    links_[link] = {links_[head].next, head};
    links_[links_[link].next].previous = link;
    links_[head].next = link;
    words_[bin / 64] |= std::uint64_t{1} << (bin % 64);
}

MEMSAVER_INLINE void FreeBins::remove(Node node) noexcept {
    const Link link = links_[link_of(node)];
    links_[link.previous].next = link.next;
    links_[link.next].previous = link.previous;
}

MEMSAVER_INLINE std::size_t FreeBins::first_at_or_after(std::size_t bin) noexcept {
    while (bin < bins) {
        const std::uint64_t rest = words_[bin / 64] >> (bin % 64);
        if (rest == 0) {
            bin = (bin / 64 + 1) * 64;
            continue;
        }
        bin += static_cast<std::size_t>(std::countr_zero(rest));
        const auto head = static_cast<Node>(bin);
        if (links_[head].next != head) return bin;
        words_[bin / 64] &= ~(std::uint64_t{1} << (bin % 64)); // its last node has been removed
        ++bin;
    }
    return bins;
}

MEMSAVER_INLINE void OffsetMap::reserve(std::size_t count) {
    if (count * 2 <= slots_.size()) return;
    std::vector<Slot> grown(std::bit_ceil(count * 4 + 16));
    grown.swap(slots_);
    shift_ = 64U - static_cast<unsigned>(std::countr_zero(slots_.size()));
    for (const Slot& slot : grown) {
        if (slot.key != 0) place(slot.key, slot.value);
    }
}

MEMSAVER_INLINE std::uint32_t OffsetMap::find(Address key) const noexcept {
    if (slots_.empty()) return none;
    for (std::size_t i = home(key);; i = next(i)) {
        if (slots_[i].key == key) return slots_[i].value;
        if (slots_[i].key == 0) return none;
    }
}

MEMSAVER_INLINE void OffsetMap::erase(Address key) noexcept {
    if (slots_.empty()) return;
    std::size_t hole = home(key);
    while (slots_[hole].key != key) {
        if (slots_[hole].key == 0) return;
        hole = next(hole);
    }
    for (std::size_t i = next(hole); slots_[i].key != 0; i = next(i)) {
        const std::size_t wanted = home(slots_[i].key);
        const bool stays = hole < i ? (hole < wanted && wanted <= i) : (hole < wanted || wanted <= i);
        if (stays) continue;
        slots_[hole] = slots_[i];
        hole = i;
    }
    slots_[hole] = {};
}

MEMSAVER_INLINE std::size_t OffsetMap::home(Address key) const noexcept {
    return static_cast<std::size_t>((key >> 8U) * 0x9E3779B97F4A7C15ULL >> shift_);
}

MEMSAVER_INLINE void OffsetMap::place(Address key, std::uint32_t value) noexcept {
    std::size_t i = home(key);
    while (slots_[i].key != 0 && slots_[i].key != key) i = next(i);
    slots_[i] = {key, value};
}

MEMSAVER_INLINE void BlockAllocator::add(Range range, Block::State as) {
    reserve_node(2);
    if (as == Block::State::live) return (void)hand_out(node_of(range), range.bytes);
    free_bytes_ += range.bytes;
    merge_and_file(node_of(range));
}

MEMSAVER_INLINE void BlockAllocator::take_out(Address block) noexcept {
    const Node node = starts_.find(block);
    mark_freed(nodes_[node]);
    starts_.erase(block);
    give_node(node);
}

MEMSAVER_INLINE void BlockAllocator::remove(Range range) {
    reserve_node(4);
    const Node node = node_holding(range.address); // one node: adjacent free ranges are merged
    const Block block = nodes_[node];
    unfile(node);
    if (block.address < range.address) file(node_of({block.address, range.address - block.address}));
    const Address end = block.address + block.bytes;
    if (end > range.end()) file(node_of({range.end(), end - range.end()}));
    free_bytes_ -= range.bytes;
}

MEMSAVER_INLINE void BlockAllocator::merge(BlockAllocator& other) {
    const std::size_t count = other.nodes_.size() - other.spare_.size();
    reserve_node(count + 2);
    live_bytes_ += other.live_bytes_;
    live_blocks_ += other.live_blocks_;
    free_bytes_ += other.free_bytes_;
    for (const Block& block : other.nodes_) {
        if (block.bytes == 0) continue;
        const Node node = node_of({block.address, block.bytes});
        if (block.state == Block::State::free) {
            merge_and_file(node);
        } else {
            nodes_[node] = block;
        }
    }
    other = BlockAllocator{*other.last_serial_};
}

MEMSAVER_INLINE const Block* BlockAllocator::allocate(std::size_t bytes, std::size_t alignment, std::size_t requested) {
    reserve_node(3);
    const auto fits = [&](Node node) {
        const Block& block = nodes_[node];
        const std::size_t skipped = align_up(block.address, alignment) - block.address;
        return block.bytes >= bytes && block.bytes - bytes >= skipped;
    };
    const std::size_t bin = FreeBins::bin_of(bytes);
    const bool large = bytes >= 1_MiB; // the smallest of many that fit, because what is left beside it costs most
    Node node = FreeBins::none;
    const auto look = [&](Node each) {
        const std::size_t size = nodes_[each].bytes;
        if (node != FreeBins::none && size >= nodes_[node].bytes)
            return FreeBins::bin_of(size) !=
                   FreeBins::bin_of(nodes_[node].bytes); // a higher class has larger ones only
        if (!fits(each)) return false;
        node = each;
        return !large || size == bytes;
    };
    (void)bins_.search(bin, large ? 64 : 8, look);
    if (node == FreeBins::none) (void)bins_.search(bin, ~std::size_t{0}, look);
    if (node == FreeBins::none) return nullptr;

    free_bytes_ -= bytes;
    const Address address = align_up(nodes_[node].address, alignment);
    if (nodes_[node].bytes == bytes) { // exact fit: the node stays in place and in the table
        bins_.remove(node);
        ends_.erase(address + bytes);
        return hand_out(node, requested);
    }
    const Block found = nodes_[node];
    unfile(node);
    if (address > found.address) file(node_of({found.address, address - found.address}));
    const Address end = address + bytes;
    const Address found_end = found.address + found.bytes;
    if (end < found_end) file(node_of({end, found_end - end}));
    return hand_out(node_of({address, bytes}), requested);
}

MEMSAVER_INLINE const Block* BlockAllocator::find(Address address) const noexcept {
    const Node node = starts_.find(address);
    return node == OffsetMap::none || nodes_[node].state == Block::State::free ? nullptr : &nodes_[node];
}

MEMSAVER_INLINE const Block* BlockAllocator::holding(Address address) const noexcept {
    const Node node = node_holding(address);
    return node == FreeBins::none || nodes_[node].state == Block::State::free ? nullptr : &nodes_[node];
}

MEMSAVER_INLINE void BlockAllocator::keep(const Block& block) noexcept {
    live_bytes_ -= block.requested;
    live_blocks_ -= 1;
    nodes_[static_cast<std::size_t>(&block - nodes_.data())].state = Block::State::kept;
}

MEMSAVER_INLINE void BlockAllocator::mark_freed(const Block& block) noexcept {
    if (block.state == Block::State::live) {
        live_bytes_ -= block.requested;
        live_blocks_ -= 1;
    }
    nodes_[static_cast<std::size_t>(&block - nodes_.data())].state = Block::State::freed;
}

MEMSAVER_INLINE void BlockAllocator::revive(Address address, std::size_t requested) noexcept {
    hand_out(starts_.find(address), requested);
}

MEMSAVER_INLINE void BlockAllocator::reclaim(Address address) noexcept {
    const Node node = starts_.find(address);
    free_bytes_ += nodes_[node].bytes;
    merge_and_file(node);
}

MEMSAVER_INLINE void BlockAllocator::reserve_node(std::size_t more) {
    if (spare_.size() >= more) return;
    const std::size_t count = nodes_.size() + (more > nodes_.size() ? more : nodes_.size());
    starts_.reserve(count);
    ends_.reserve(count);
    bins_.reserve(count);
    spare_.reserve(count);
    nodes_.reserve(count);
    while (nodes_.size() < count) {
        spare_.push_back(static_cast<Node>(nodes_.size()));
        nodes_.emplace_back();
    }
}

MEMSAVER_INLINE BlockAllocator::Node BlockAllocator::take_node() noexcept {
    const Node node = spare_.back();
    spare_.pop_back();
    return node;
}

MEMSAVER_INLINE void BlockAllocator::give_node(Node node) noexcept {
    nodes_[node] = {};
    spare_.push_back(node);
}

MEMSAVER_INLINE BlockAllocator::Node BlockAllocator::node_of(Range range) noexcept {
    const Node node = take_node();
    nodes_[node] = {range.address, range.bytes, 0, 0, Block::State::freed};
    starts_.insert(range.address, node);
    return node;
}

MEMSAVER_INLINE const Block* BlockAllocator::hand_out(Node node, std::size_t requested) noexcept {
    Block& block = nodes_[node];
    block.requested = requested;
    block.serial = ++*last_serial_;
    block.state = Block::State::live;
    live_bytes_ += requested;
    live_blocks_ += 1;
    return &block;
}

MEMSAVER_INLINE void BlockAllocator::file(Node node) noexcept {
    Block& block = nodes_[node];
    block.requested = 0;
    block.serial = 0;
    block.state = Block::State::free;
    ends_.insert(block.address + block.bytes, node);
    bins_.insert(node, block.bytes);
}

MEMSAVER_INLINE void BlockAllocator::unfile(Node node) noexcept {
    const Block& block = nodes_[node];
    bins_.remove(node);
    starts_.erase(block.address);
    ends_.erase(block.address + block.bytes);
    give_node(node);
}

MEMSAVER_INLINE void BlockAllocator::merge_and_file(Node node) noexcept {
    const Range range{nodes_[node].address, nodes_[node].bytes};
    std::size_t more = 0;
    const Node after = starts_.find(range.end());
    if (after != OffsetMap::none && nodes_[after].state == Block::State::free) {
        more = nodes_[after].bytes;
        unfile(after);
    }
    if (const Node before = ends_.find(range.address); before != OffsetMap::none) { // `ends_` knows only free nodes
        bins_.remove(before);
        ends_.erase(range.address);
        starts_.erase(range.address);
        give_node(node);
        more += range.bytes;
        node = before;
    }
    nodes_[node].bytes += more;
    file(node);
}

MEMSAVER_INLINE BlockAllocator::Node BlockAllocator::node_holding(Address address) const noexcept {
    if (const Node node = starts_.find(address); node != OffsetMap::none) return node;
    for (Node node = 0; node < nodes_.size(); ++node) {
        const Block& block = nodes_[node];
        if (block.bytes != 0 && block.address <= address && address - block.address < block.bytes) return node;
    }
    return FreeBins::none;
}

} // namespace detail

} // namespace memsaver::inline v0_3
