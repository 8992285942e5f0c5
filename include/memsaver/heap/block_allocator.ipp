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
    if (before >= 2 * bins + count) return;
    links_.resize(2 * bins + count);
    for (Node head = static_cast<Node>(before); head < 2 * bins; ++head) links_[head] = {head, head};
}

MEMSAVER_INLINE void FreeBins::insert(Node node, std::size_t bytes, Side side) noexcept {
    const std::size_t bin = bin_of(bytes);
    splice_in(head_of(bin, side), link_of(node), link_of(node));
    words(side)[bin / 64] |= std::uint64_t{1} << (bin % 64);
}

MEMSAVER_INLINE void FreeBins::remove(Node node) noexcept {
    const Link link = links_[link_of(node)];
    links_[link.previous].next = link.next;
    links_[link.next].previous = link.previous;
}

MEMSAVER_INLINE void FreeBins::move_all(Side from) noexcept {
    const Side to = from == Side::open ? Side::shut : Side::open;
    for (std::size_t bin = first_at_or_after(0, from); bin < bins; bin = first_at_or_after(bin + 1, from)) {
        const Node head = head_of(bin, from);
        const Link ends = links_[head];
        links_[head] = {head, head};
        splice_in(head_of(bin, to), ends.next, ends.previous);
        words(to)[bin / 64] |= std::uint64_t{1} << (bin % 64);
    }
    words(from) = {};
}

MEMSAVER_INLINE void FreeBins::splice_in(Node head, Node first, Node last) noexcept {
    const Node second = links_[head].next;
    links_[head].next = first;
    links_[first].previous = head;
    links_[last].next = second;
    links_[second].previous = last;
}

MEMSAVER_INLINE std::size_t FreeBins::first_at_or_after(std::size_t bin, Side side) noexcept {
    Words& bits = words(side);
    while (bin < bins) {
        const std::uint64_t rest = bits[bin / 64] >> (bin % 64);
        if (rest == 0) {
            bin = (bin / 64 + 1) * 64;
            continue;
        }
        bin += static_cast<std::size_t>(std::countr_zero(rest));
        const Node head = head_of(bin, side);
        if (links_[head].next != head) return bin;
        bits[bin / 64] &= ~(std::uint64_t{1} << (bin % 64)); // its last node has been removed
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

MEMSAVER_INLINE void Sides::add(Range range, Side side) noexcept { // capacity was reserved
    const auto at = std::lower_bound(list_.begin(), list_.end(), range.address,
                                     [](const Part& part, Address a) { return part.begin < a; });
    list_.insert(at, Part{range.address, range.end(), side});
    count(side) += 1;
}

MEMSAVER_INLINE void Sides::remove(Range range) noexcept {
    for (std::size_t i = 0; i < list_.size();) {
        const Part part = list_[i];
        if (part.end <= range.address || part.begin >= range.end()) {
            ++i;
            continue;
        }
        list_.erase(list_.begin() + static_cast<std::ptrdiff_t>(i));
        count(part.side) -= 1;
        if (part.begin < range.address) {
            add({part.begin, range.address - part.begin}, part.side);
            ++i;
        }
        if (part.end > range.end()) {
            add({range.end(), part.end - range.end()}, part.side);
            ++i;
        }
    }
}

MEMSAVER_INLINE void Sides::set_all(Side side) noexcept {
    for (Part& part : list_) part.side = side;
    open_ = side == Side::open ? list_.size() : 0;
    shut_ = list_.size() - open_;
}

MEMSAVER_INLINE Side Sides::side(Address address) const noexcept {
    if (shut_ == 0) return Side::open;
    if (open_ == 0) return Side::shut;
    const auto after = std::upper_bound(list_.begin(), list_.end(), address,
                                        [](Address a, const Part& part) { return a < part.begin; });
    return after == list_.begin() ? Side::open : std::prev(after)->side;
}

MEMSAVER_INLINE void BlockAllocator::add(Range range, Block::State as) {
    reserve_node(2);
    sides_.reserve_more(1);
    sides_.add(range, Side::open);
    if (as == Block::State::live) return (void)hand_out(node_of(range), range.bytes);
    free_bytes_ += range.bytes;
    merge_and_file(node_of(range));
}

MEMSAVER_INLINE void BlockAllocator::add_live(const std::vector<Range>& blocks) {
    reserve_node(2 * blocks.size());
    sides_.reserve_more(blocks.size());
    for (const Range& block : blocks) {
        sides_.add(block, Side::open);
        hand_out(node_of(block), block.bytes);
    }
}

MEMSAVER_INLINE void BlockAllocator::take_out(Address block) noexcept {
    const Node node = starts_.find(block);
    const Range range{block, nodes_[node].bytes};
    live_bytes_ -= nodes_[node].requested;
    live_blocks_ -= 1;
    starts_.erase(block);
    give_node(node);
    sides_.remove(range);
}

MEMSAVER_INLINE void BlockAllocator::remove(Range range) {
    reserve_node(4);
    sides_.reserve_more(2);
    for (Address at = range.address; at < range.end();) {
        const Node node = node_holding(at);
        const Block block = nodes_[node];
        const Side side = sides_.side(block.address);
        unfile(node);
        if (block.address < at) file(node_of({block.address, at - block.address}), side);
        const Address end = block.address + block.bytes;
        if (end > range.end()) file(node_of({range.end(), end - range.end()}), side);
        at = end;
    }
    free_bytes_ -= range.bytes;
    sides_.remove(range);
}

MEMSAVER_INLINE const Block* BlockAllocator::allocate(std::size_t bytes, std::size_t alignment, std::size_t requested,
                                                      bool exact) {
    reserve_node(3);
    const auto fits = [&](Node node) {
        const Block& block = nodes_[node];
        const std::size_t skipped = align_up(block.address, alignment) - block.address;
        return exact ? block.bytes == bytes && skipped == 0 : block.bytes >= bytes && block.bytes - bytes >= skipped;
    };
    const std::size_t bin = FreeBins::bin_of(bytes);
    Node node = bins_.search(bin, Side::open, 8, fits, exact ? bin : FreeBins::bins - 1);
    if (node == FreeBins::none && !exact) node = bins_.search(bin, Side::open, ~std::size_t{0}, fits);
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
    if (address > found.address) file(node_of({found.address, address - found.address}), Side::open);
    const Address end = address + bytes;
    const Address found_end = found.address + found.bytes;
    if (end < found_end) file(node_of({end, found_end - end}), Side::open);
    return hand_out(node_of({address, bytes}), requested);
}

MEMSAVER_INLINE const Block* BlockAllocator::find(Address address) const noexcept {
    const Node node = starts_.find(address);
    return node == OffsetMap::none || nodes_[node].state == Block::State::free ? nullptr : &nodes_[node];
}

MEMSAVER_INLINE void BlockAllocator::mark_freed(const Block& block) noexcept {
    live_bytes_ -= block.requested;
    live_blocks_ -= 1;
    nodes_[static_cast<std::size_t>(&block - nodes_.data())].state = Block::State::freed;
}

MEMSAVER_INLINE void BlockAllocator::revive(Address address, std::size_t requested) noexcept {
    hand_out(starts_.find(address), requested);
}

MEMSAVER_INLINE Range BlockAllocator::reclaim(Address address) noexcept {
    const Node node = starts_.find(address);
    const Range range{address, nodes_[node].bytes};
    free_bytes_ += range.bytes;
    if (!sides_.mixed()) return merge_and_file(node);
    starts_.erase(address);
    give_node(node);
    Range answer; // each side gets its own part: memory may have been shut in the middle of a block
    sides_.for_each_part(range, [&](Range part, Side) {
        const Range merged = merge_and_file(node_of(part));
        if (merged.address <= address && address < merged.end()) answer = merged;
    });
    return answer;
}

MEMSAVER_INLINE void BlockAllocator::set_shut(const std::vector<Range>& shut) {
    std::vector<Range> free_ranges = all_free();
    std::vector<Sides::Part> pieces; // adjacent parts on one side are joined, so that cycles do not fragment the list
    const auto put = [&](Address begin, Address end, Side side) {
        if (begin == end) return;
        if (!pieces.empty() && pieces.back().end == begin && pieces.back().side == side) {
            pieces.back().end = end;
        } else {
            pieces.push_back({begin, end, side});
        }
    };
    for (const auto& part : sides_.list()) {
        Address at = part.begin;
        for (const Range& range : shut) { // sorted, non-overlapping
            if (range.end() <= at || range.address >= part.end) continue;
            if (range.address > at) put(at, range.address, Side::open);
            const Address begin = range.address > at ? range.address : at;
            const Address end = range.end() < part.end ? range.end() : part.end;
            put(begin, end, Side::shut);
            at = end;
        }
        put(at, part.end, Side::open);
    }
    Sides sides;
    sides.reserve_more(pieces.size());
    reserve_node(free_ranges.size() + 2 * pieces.size() + 2);
    for (const auto& piece : pieces) sides.add({piece.begin, piece.end - piece.begin}, piece.side);

    for (const Range& range : free_ranges) unfile(starts_.find(range.address));
    sides_ = std::move(sides);
    for (const Range& range : free_ranges) {
        sides_.for_each_part(range, [&](Range part, Side) { merge_and_file(node_of(part)); });
    }
}

MEMSAVER_INLINE void BlockAllocator::reserve_node(std::size_t more) {
    if (sides_.mixed()) more += sides_.list().size();
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
    block.serial = ++serial_;
    block.state = Block::State::live;
    live_bytes_ += requested;
    live_blocks_ += 1;
    return &block;
}

MEMSAVER_INLINE void BlockAllocator::file(Node node, Side side) noexcept {
    Block& block = nodes_[node];
    block.requested = 0;
    block.serial = 0;
    block.state = Block::State::free;
    ends_.insert(block.address + block.bytes, node);
    bins_.insert(node, block.bytes, side);
}

MEMSAVER_INLINE void BlockAllocator::unfile(Node node) noexcept {
    const Block& block = nodes_[node];
    bins_.remove(node);
    starts_.erase(block.address);
    ends_.erase(block.address + block.bytes);
    give_node(node);
}

MEMSAVER_INLINE Range BlockAllocator::merge_and_file(Node node) noexcept {
    const Range range{nodes_[node].address, nodes_[node].bytes};
    const Side side = sides_.side(range.address);
    std::size_t more = 0;
    if (const Node after = mergeable(starts_.find(range.end()), range.end(), side); after != FreeBins::none) {
        more = nodes_[after].bytes;
        unfile(after);
    }
    if (const Node before = mergeable(ends_.find(range.address), range.address, side); before != FreeBins::none) {
        bins_.remove(before);
        ends_.erase(range.address);
        starts_.erase(range.address);
        give_node(node);
        more += range.bytes;
        node = before;
    }
    Block& block = nodes_[node];
    block.bytes += more;
    file(node, side);
    return {block.address, block.bytes};
}

MEMSAVER_INLINE BlockAllocator::Node BlockAllocator::mergeable(Node neighbour, Address border,
                                                               Side side) const noexcept {
    if (neighbour == FreeBins::none || nodes_[neighbour].state != Block::State::free) return FreeBins::none;
    if ((border & seam_mask_) == 0 && (seams_ == nullptr || seams_->at(border))) return FreeBins::none;
    if (sides_.mixed() && sides_.side(nodes_[neighbour].address) != side) return FreeBins::none;
    return neighbour;
}

MEMSAVER_INLINE bool BlockAllocator::has(Range range, Side side) const noexcept {
    if (!sides_.mixed()) return sides_.side(range.address) == side;
    bool found = false;
    sides_.for_each_part(range, [&](Range, Side of) { found = found || of == side; });
    return found;
}

MEMSAVER_INLINE void BlockAllocator::move_all(Side to) noexcept {
    const bool was_mixed = sides_.mixed();
    bins_.move_all(to == Side::open ? Side::shut : Side::open);
    sides_.set_all(to);
    if (!was_mixed) return;
    for (const auto& part : sides_.list()) { // merges free ranges that the sides kept apart
        const Node node = starts_.find(part.begin);
        if (node == FreeBins::none || nodes_[node].state != Block::State::free) continue;
        bins_.remove(node);
        ends_.erase(nodes_[node].address + nodes_[node].bytes);
        merge_and_file(node);
    }
}

MEMSAVER_INLINE BlockAllocator::Node BlockAllocator::node_holding(Address address) const noexcept {
    if (const Node node = starts_.find(address); node != FreeBins::none) return node;
    for (Node node = 0; node < nodes_.size(); ++node) {
        const Block& block = nodes_[node];
        if (block.bytes != 0 && block.address <= address && address - block.address < block.bytes) return node;
    }
    return FreeBins::none;
}

MEMSAVER_INLINE std::vector<Range> BlockAllocator::all_free() const {
    std::vector<Range> ranges;
    for (const Block& block : nodes_) {
        if (block.bytes != 0 && block.state == Block::State::free) ranges.push_back({block.address, block.bytes});
    }
    return ranges;
}

} // namespace detail

} // namespace memsaver::inline v0_3
