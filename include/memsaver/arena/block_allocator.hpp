// Which bytes of an arena's addresses belong to which block. Pure bookkeeping: knows no driver, no pages, no threads.
#pragma once

#include "memsaver/arena/block.hpp"
#include "memsaver/arena/free_bins.hpp"
#include "memsaver/arena/offset_map.hpp"
#include "memsaver/arena/regions.hpp"
#include "memsaver/base/sizes.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace memsaver::inline v0_1 {

/// Good-fit with immediate coalescing; splits and merges at multiples of 256 bytes. Allocating and freeing take
/// constant time; so does shutting or opening everything at once, however many blocks there are. A free block lies on
/// the side of its region, and never spans two sides. Not thread safe; only methods that say so throw, and only
/// bad_alloc.
class BlockAllocator {
public:
    static constexpr std::size_t unit = FreeBins::unit;

    /// Blocks are not merged across multiples of `seam` (a power of two; 0: there are none).
    /// Serial numbers start above `first_serial`.
    explicit BlockAllocator(std::size_t seam = 0, std::uint64_t first_serial = 0)
        : seam_mask_{seam == 0 ? ~Address{0} : Address{seam} - 1}, serial_{first_serial} {}

    /// A new open range: free, or one live block. May throw; then nothing changed.
    void add(Range range, Block::State as = Block::State::free) {
        reserve_node(2);
        regions_.reserve_more(1);
        regions_.add(range, Side::open);
        if (as == Block::State::live) return (void)hand_out(range, range.bytes);
        free_bytes_ += range.bytes;
        merge_and_file(range);
    }

    /// Takes a range out whose every byte is free. May throw; then nothing changed.
    void remove(Range range) {
        reserve_node(4);
        regions_.reserve_more(2);
        for (Address at = range.address; at < range.end();) {
            const Node node = node_holding(at);
            const Block block = nodes_[node];
            const Side side = regions_.side(block.address);
            unfile(node);
            if (block.address < at) file({block.address, at - block.address}, side);
            const Address end = block.address + block.bytes;
            if (end > range.end()) file({range.end(), end - range.end()}, side);
            at = end;
        }
        free_bytes_ -= range.bytes;
        regions_.remove(range);
    }

    /// A block of `bytes` (a multiple of 256) at a multiple of `alignment` (a power of two), or nullptr. Valid until
    /// the next call. May throw; then nothing changed.
    const Block* allocate(std::size_t bytes, std::size_t alignment, std::size_t requested) {
        reserve_node(3);
        const auto fits = [&](Node node) {
            const Block& block = nodes_[node];
            const std::size_t skipped = align_up(block.address, alignment) - block.address;
            return block.bytes >= bytes && block.bytes - bytes >= skipped;
        };
        const std::size_t bin = FreeBins::bin_of(bytes);
        Node node = bins_.search(bin, Side::open, 8, fits);
        if (node == FreeBins::none) node = bins_.search(bin, Side::open, ~std::size_t{0}, fits);
        if (node == FreeBins::none) return nullptr;

        const Block found = nodes_[node];
        const Address address = align_up(found.address, alignment);
        unfile(node);
        if (address > found.address) file({found.address, address - found.address}, Side::open);
        const Address end = address + bytes;
        const Address found_end = found.address + found.bytes;
        if (end < found_end) file({end, found_end - end}, Side::open);
        free_bytes_ -= bytes;
        return hand_out({address, bytes}, requested);
    }

    /// The block that was handed out at just this address and not reclaimed since, or nullptr.
    [[nodiscard]] const Block* find(Address address) const noexcept {
        const Node node = starts_.find(address);
        return node == OffsetMap::none || nodes_[node].state == Block::State::free ? nullptr : &nodes_[node];
    }

    /// A live block is given up: no longer the program's, not yet anybody else's.
    void mark_freed(Address address) noexcept {
        Block& block = nodes_[starts_.find(address)];
        live_bytes_ -= block.requested;
        live_blocks_ -= 1;
        block.state = Block::State::freed;
    }

    /// A freed block can be handed out again. Answers the free range that its first byte is now part of.
    Range reclaim(Address address) noexcept {
        const Node node = starts_.find(address);
        const Range range{address, nodes_[node].bytes};
        starts_.erase(address);
        give_node(node);
        free_bytes_ += range.bytes;
        if (!regions_.mixed()) return merge_and_file(range);
        Range answer; // each side gets its own part: memory may have been shut in the middle of a block
        regions_.for_each_part(range, [&](Range part, Side) {
            const Range merged = merge_and_file(part);
            if (merged.address <= address && address < merged.end()) answer = merged;
        });
        return answer;
    }

    void shut_all() noexcept { move_all(Side::shut); }
    void open_all() noexcept { move_all(Side::open); }
    /// Exactly these ranges become shut, all others open. Takes time in proportion to the number of free blocks. May
    /// throw; then nothing changed.
    void set_shut(const std::vector<Range>& shut) {
        std::vector<Range> free_ranges = all_free();
        std::vector<Regions::Region> pieces; // neighbours on one side are joined: cycles leave no more of them
        const auto put = [&](Address begin, Address end, Side side) {
            if (begin == end) return;
            if (!pieces.empty() && pieces.back().end == begin && pieces.back().side == side) {
                pieces.back().end = end;
            } else {
                pieces.push_back({begin, end, side});
            }
        };
        for (const auto& region : regions_.list()) {
            Address at = region.begin;
            for (const Range& range : shut) { // sorted, without overlap
                if (range.end() <= at || range.address >= region.end) continue;
                if (range.address > at) put(at, range.address, Side::open);
                const Address begin = range.address > at ? range.address : at;
                const Address end = range.end() < region.end ? range.end() : region.end;
                put(begin, end, Side::shut);
                at = end;
            }
            put(at, region.end, Side::open);
        }
        Regions regions;
        regions.reserve_more(pieces.size());
        reserve_node(free_ranges.size() + 2 * pieces.size() + 2);
        for (const auto& piece : pieces) regions.add({piece.begin, piece.end - piece.begin}, piece.side);

        for (const Range& range : free_ranges) unfile(starts_.find(range.address));
        regions_ = std::move(regions);
        for (const Range& range : free_ranges) {
            regions_.for_each_part(range, [&](Range part, Side) { merge_and_file(part); });
        }
    }
    [[nodiscard]] Side side(Address address) const noexcept { return regions_.side(address); }
    /// Whether any byte, or every byte, of a range is shut.
    [[nodiscard]] bool any_shut(Range range) const noexcept { return has(range, Side::shut); }
    [[nodiscard]] bool all_shut(Range range) const noexcept { return !has(range, Side::open); }

    /// `visit(range)` for every free range of a side with at least `bytes`. Nothing changes meanwhile.
    template <class Visit>
    void for_each_free(std::size_t bytes, Side side, Visit&& visit) {
        bins_.search(FreeBins::bin_of(bytes), side, ~std::size_t{0}, [&](Node node) {
            if (nodes_[node].bytes >= bytes) visit(Range{nodes_[node].address, nodes_[node].bytes});
            return false;
        });
    }

    /// `visit(block)` for every live block.
    template <class Visit>
    void for_each_live(Visit&& visit) const {
        for (const Block& block : nodes_) {
            if (block.state == Block::State::live) visit(block);
        }
    }

    [[nodiscard]] std::size_t live_bytes() const noexcept { return live_bytes_; } ///< as requested
    [[nodiscard]] std::size_t live_blocks() const noexcept { return live_blocks_; }
    [[nodiscard]] std::size_t free_bytes() const noexcept { return free_bytes_; }

private:
    using Node = FreeBins::Node;

    // Every node that exists can have its two keys in the tables, and there is a node to spare for every border between
    // the sides that a block may lie across, so freeing never needs memory.
    void reserve_node(std::size_t more) {
        if (regions_.mixed()) more += regions_.list().size();
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
    Node take_node() noexcept {
        const Node node = spare_.back();
        spare_.pop_back();
        return node;
    }
    void give_node(Node node) noexcept {
        nodes_[node] = {};
        spare_.push_back(node);
    }

    const Block* hand_out(Range range, std::size_t requested) noexcept {
        const Node node = take_node();
        nodes_[node] = {range.address, range.bytes, requested, ++serial_, Block::State::live};
        starts_.insert(range.address, node);
        live_bytes_ += requested;
        live_blocks_ += 1;
        return &nodes_[node];
    }
    void file(Range range, Side side) noexcept {
        const Node node = take_node();
        nodes_[node] = {range.address, range.bytes, 0, 0, Block::State::free};
        starts_.insert(range.address, node);
        ends_.insert(range.end(), node);
        bins_.insert(node, range.bytes, side);
    }
    void unfile(Node node) noexcept {
        const Block& block = nodes_[node];
        bins_.remove(node);
        starts_.erase(block.address);
        ends_.erase(block.address + block.bytes);
        give_node(node);
    }

    Range merge_and_file(Range range) noexcept {
        const Side side = regions_.side(range.address);
        if (const Node before = mergeable(ends_.find(range.address), range.address, side); before != FreeBins::none) {
            range = {nodes_[before].address, nodes_[before].bytes + range.bytes};
            unfile(before);
        }
        if (const Node after = mergeable(starts_.find(range.end()), range.end(), side); after != FreeBins::none) {
            range.bytes += nodes_[after].bytes;
            unfile(after);
        }
        file(range, side);
        return range;
    }
    /// `neighbour` if it is free and nothing keeps it apart at `border`.
    [[nodiscard]] Node mergeable(Node neighbour, Address border, Side side) const noexcept {
        if (neighbour == FreeBins::none || nodes_[neighbour].state != Block::State::free) return FreeBins::none;
        if ((border & seam_mask_) == 0) return FreeBins::none;
        if (regions_.mixed() && regions_.side(nodes_[neighbour].address) != side) return FreeBins::none;
        return neighbour;
    }

    [[nodiscard]] bool has(Range range, Side side) const noexcept {
        if (!regions_.mixed()) return regions_.side(range.address) == side;
        bool found = false;
        regions_.for_each_part(range, [&](Range, Side of) { found = found || of == side; });
        return found;
    }

    void move_all(Side to) noexcept {
        const bool was_mixed = regions_.mixed();
        bins_.move_all(to == Side::open ? Side::shut : Side::open);
        regions_.set_all(to);
        if (!was_mixed) return;
        for (const auto& region : regions_.list()) { // what the sides kept apart grows together
            const Node node = starts_.find(region.begin);
            if (node == FreeBins::none || nodes_[node].state != Block::State::free) continue;
            const Range range{nodes_[node].address, nodes_[node].bytes};
            unfile(node);
            merge_and_file(range);
        }
    }

    [[nodiscard]] Node node_holding(Address address) const noexcept {
        if (const Node node = starts_.find(address); node != FreeBins::none) return node;
        for (Node node = 0; node < nodes_.size(); ++node) {
            const Block& block = nodes_[node];
            if (block.bytes != 0 && block.address <= address && address - block.address < block.bytes) return node;
        }
        return FreeBins::none;
    }
    [[nodiscard]] std::vector<Range> all_free() const {
        std::vector<Range> ranges;
        for (const Block& block : nodes_) {
            if (block.bytes != 0 && block.state == Block::State::free) ranges.push_back({block.address, block.bytes});
        }
        return ranges;
    }

    Address seam_mask_;
    std::uint64_t serial_;
    std::vector<Block> nodes_;
    std::vector<Node> spare_;
    OffsetMap starts_; // of every node in use
    OffsetMap ends_;   // of free nodes
    FreeBins bins_;
    Regions regions_;
    std::size_t live_bytes_ = 0;
    std::size_t live_blocks_ = 0;
    std::size_t free_bytes_ = 0;
};

} // namespace memsaver::inline v0_1
