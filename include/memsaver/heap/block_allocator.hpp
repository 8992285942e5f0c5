// Which bytes of an arena's addresses belong to which block. Pure bookkeeping: knows nothing about drivers, pages or
// threads.
#pragma once

#include "memsaver/core/handles.hpp"
#include "memsaver/core/sizes.hpp"
#include "memsaver/core/vector.hpp"

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace memsaver::inline v0_3::detail {

/// The state of one block.
struct Block {
    /// `kept`: deallocated in a capture, but replays may touch it; `freed`: deallocated, but not yet reusable.
    enum class State : unsigned char { free, live, kept, freed };

    Address address = 0;
    std::size_t bytes = 0;     ///< a multiple of 256
    std::size_t requested = 0; ///< size requested by the program; 0 if not handed out
    std::uint64_t serial = 0;
    State state = State::free;

    /// The bytes that may contain the program's data.
    [[nodiscard]] std::size_t used_bytes() const noexcept { return requested == 0 ? bytes : align_up(requested, 256); }
};

/// Circular doubly linked lists, one for each size class, each with its own head, so that a node can be unlinked
/// without knowing its list. There are eight size classes for each power of two, in units of 256 bytes. Not
/// thread-safe.
class FreeBins {
public:
    using Node = std::uint32_t;
    static constexpr Node none = ~Node{0};
    static constexpr std::size_t unit = 256;
    static constexpr std::size_t bins = 40 * 8;

    /// Reserves capacity for nodes 0 .. count-1. Strong exception guarantee: may throw std::bad_alloc.
    void reserve(std::size_t count) {
        const std::size_t before = links_.size();
        if (before >= bins + count) return;
        links_.resize(bins + count);
        for (Node head = static_cast<Node>(before); head < bins; ++head) links_[head] = {head, head};
    }

    /// The size class of a block of `bytes`. Blocks of every higher class are larger.
    static constexpr std::size_t bin_of(std::size_t bytes) noexcept {
        const std::size_t units = bytes / unit;
        if (units < 8) return units;
        const auto power = static_cast<std::size_t>(std::bit_width(units)) - 1;
        const std::size_t bin = (power - 2) * 8 + ((units >> (power - 3)) & 7U);
        return bin < bins ? bin : bins - 1;
    }

    void insert(Node node, std::size_t bytes) noexcept {
        const std::size_t bin = bin_of(bytes);
        const auto head = static_cast<Node>(bin);
        const Node link = link_of(node);
        links_[link] = {links_[head].next, head};
        links_[links_[link].next].previous = link;
        links_[head].next = link;
        words_[bin / 64] |= std::uint64_t{1} << (bin % 64);
    }

    void remove(Node node) noexcept {
        const Link link = links_[link_of(node)];
        links_[link.previous].next = link.next;
        links_[link.next].previous = link.previous;
    }

    /// Calls `visit(node)` for the nodes from class `bin` upwards, at most `per_bin` of each class. Stops
    /// when a call returns true and returns that node; returns `none` after class `last_bin`.
    template <class Visit>
    Node search(std::size_t bin, std::size_t per_bin, Visit&& visit, std::size_t last_bin = bins - 1) {
        for (bin = first_at_or_after(bin); bin <= last_bin; bin = first_at_or_after(bin + 1)) {
            const Node head = static_cast<Node>(bin);
            std::size_t left = per_bin;
            for (Node link = links_[head].next; link != head && left != 0; link = links_[link].next, --left) {
                const Node node = link - static_cast<Node>(bins);
                if (visit(node)) return node;
            }
        }
        return none;
    }

private:
    struct Link {
        Node next = 0;
        Node previous = 0;
    };
    using Words = std::array<std::uint64_t, bins / 64>; // one bit for each class that may have nodes

    static constexpr Node link_of(Node node) noexcept { return node + static_cast<Node>(bins); }

    std::size_t first_at_or_after(std::size_t bin) noexcept {
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

    Vector<Link> links_;
    Words words_{};
};

/// A hash map with open addressing, linear probing, and deletion by backward shift. Keys are non-zero multiples of 256.
/// Not thread-safe.
class OffsetMap {
public:
    static constexpr std::uint32_t none = ~std::uint32_t{0};

    /// Reserves capacity for `count` keys in total. The only method that may throw (std::bad_alloc); strong exception
    /// guarantee.
    void reserve(std::size_t count) {
        if (count * 2 <= slots_.size()) return;
        Vector<Slot> grown(std::bit_ceil(count * 4 + 16));
        grown.swap(slots_);
        shift_ = 64U - static_cast<unsigned>(std::countr_zero(slots_.size()));
        for (const Slot& slot : grown) {
            if (slot.key != 0) place(slot.key, slot.value);
        }
    }

    [[nodiscard]] std::uint32_t find(Address key) const noexcept {
        if (slots_.empty()) return none;
        for (std::size_t i = home(key);; i = next(i)) {
            if (slots_[i].key == key) return slots_[i].value;
            if (slots_[i].key == 0) return none;
        }
    }

    /// Precondition: capacity for the key has been reserved.
    void insert(Address key, std::uint32_t value) noexcept { place(key, value); }

    void erase(Address key) noexcept {
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

private:
    struct Slot {
        Address key = 0;
        std::uint32_t value = none;
    };

    [[nodiscard]] std::size_t home(Address key) const noexcept {
        return static_cast<std::size_t>((key >> 8U) * 0x9E3779B97F4A7C15ULL >> shift_);
    }
    [[nodiscard]] std::size_t next(std::size_t i) const noexcept { return (i + 1) & (slots_.size() - 1); }
    void place(Address key, std::uint32_t value) noexcept {
        std::size_t i = home(key);
        while (slots_[i].key != 0 && slots_[i].key != key) i = next(i);
        slots_[i] = {key, value};
    }

    Vector<Slot> slots_;
    unsigned shift_ = 64;
};

/// A good-fit allocator with immediate coalescing; splits and merges at multiples of 256 bytes. Freeing takes constant
/// time. So does allocating, unless none of the first eight blocks of each class fits (64 for 1 MiB and more). Not
/// thread-safe. Only methods documented to throw do so, and only std::bad_alloc.
class BlockAllocator {
public:
    static constexpr std::size_t unit = FreeBins::unit;

    /// `last_serial` counts the blocks of all allocators that may be merged; it must outlive them.
    explicit BlockAllocator(std::uint64_t& last_serial) noexcept : last_serial_{&last_serial} {}

    /// Adds a range, as free memory or as one live block. Strong exception guarantee.
    void add(Range range, Block::State as = Block::State::free) {
        reserve_node(2);
        if (as == Block::State::live) return (void)hand_out(node_of(range), range.bytes);
        merge_and_file(node_of(range));
    }

    /// Removes a live or kept block together with its bytes.
    void take_out(Address block) noexcept {
        const Node node = starts_.find(block);
        mark_freed(nodes_[node]);
        starts_.erase(block);
        give_node(node);
    }

    /// Removes a range whose every byte is free. Strong exception guarantee.
    void remove(Range range) {
        reserve_node(4);
        const Node node = node_holding(range.address); // one node: adjacent free ranges are merged
        const Block block = nodes_[node];
        unfile(node);
        if (block.address < range.address) file(node_of({block.address, range.address - block.address}));
        const Address end = block.address + block.bytes;
        if (end > range.end()) file(node_of({range.end(), end - range.end()}));
    }

    /// Takes over all blocks and free ranges of `other`, with their serial numbers; `other` is empty afterwards. Strong
    /// exception guarantee. Takes time in proportion to what `other` has.
    void merge(BlockAllocator& other) {
        const std::size_t count = other.nodes_.size() - other.spare_.size();
        reserve_node(count + 2);
        live_bytes_ += other.live_bytes_;
        live_blocks_ += other.live_blocks_;
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

    /// Allocates a block of `bytes` (a multiple of 256) aligned to `alignment` (a power of two). Returns nullptr if
    /// none fits. The result is valid until the next call. Strong exception guarantee.
    const Block* allocate(std::size_t bytes, std::size_t alignment, std::size_t requested) {
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

    /// The block that was handed out at exactly this address and has not been reclaimed since, or nullptr.
    [[nodiscard]] const Block* find(Address address) const noexcept {
        const Node node = starts_.find(address);
        return node == OffsetMap::none || nodes_[node].state == Block::State::free ? nullptr : &nodes_[node];
    }
    /// The block that contains an address and has not been reclaimed, or nullptr. Looks at every block, unless one
    /// starts there.
    [[nodiscard]] const Block* holding(Address address) const noexcept {
        const Node node = node_holding(address);
        return node == FreeBins::none || nodes_[node].state == Block::State::free ? nullptr : &nodes_[node];
    }

    /// Marks a live block as kept: no longer owned by the program, but its bytes still matter.
    void keep(const Block& block) noexcept {
        live_bytes_ -= block.requested;
        live_blocks_ -= 1;
        nodes_[static_cast<std::size_t>(&block - nodes_.data())].state = Block::State::kept;
    }
    /// Marks a live or kept block as freed: no longer owned by the program, but not yet reusable.
    void mark_freed(const Block& block) noexcept {
        if (block.state == Block::State::live) {
            live_bytes_ -= block.requested;
            live_blocks_ -= 1;
        }
        nodes_[static_cast<std::size_t>(&block - nodes_.data())].state = Block::State::freed;
    }

    /// Makes a freed block live again, as a different block with a new serial number.
    void revive(Address address, std::size_t requested) noexcept { hand_out(starts_.find(address), requested); }

    /// Makes a freed block reusable.
    void reclaim(Address address) noexcept { merge_and_file(starts_.find(address)); }

    /// Calls `visit(range)` for every free range with at least `bytes`. `visit` must not change the allocator.
    template <class Visit>
    void for_each_free(std::size_t bytes, Visit&& visit) {
        (void)bins_.search(FreeBins::bin_of(bytes), ~std::size_t{0}, [&](FreeBins::Node node) {
            const Block& block = nodes_[node];
            if (block.bytes >= bytes) visit(Range{block.address, block.bytes});
            return false;
        });
    }

    /// Calls `visit(block)` for every block whose bytes matter: those that are live, and those that graphs keep.
    template <class Visit>
    void for_each_saved(Visit&& visit) const {
        for (const Block& block : nodes_) {
            if (block.state == Block::State::live || block.state == Block::State::kept) visit(block);
        }
    }

    [[nodiscard]] std::size_t live_bytes() const noexcept { return live_bytes_; } ///< as requested
    [[nodiscard]] std::size_t live_blocks() const noexcept { return live_blocks_; }

private:
    using Node = FreeBins::Node;

    // The tables have capacity for both keys of every node, so freeing never allocates.
    void reserve_node(std::size_t more) {
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

    /// Takes a node for a range that has none, to be handed out or filed.
    Node node_of(Range range) noexcept {
        const Node node = take_node();
        nodes_[node] = {range.address, range.bytes, 0, 0, Block::State::freed};
        starts_.insert(range.address, node);
        return node;
    }
    /// Turns an unfiled node into a live block.
    const Block* hand_out(Node node, std::size_t requested) noexcept {
        Block& block = nodes_[node];
        block.requested = requested;
        block.serial = ++*last_serial_;
        block.state = Block::State::live;
        live_bytes_ += requested;
        live_blocks_ += 1;
        return &block;
    }
    /// Makes a node free.
    void file(Node node) noexcept {
        Block& block = nodes_[node];
        block.requested = 0;
        block.serial = 0;
        block.state = Block::State::free;
        ends_.insert(block.address + block.bytes, node);
        bins_.insert(node, block.bytes);
    }
    /// Removes a free node.
    void unfile(Node node) noexcept {
        const Block& block = nodes_[node];
        bins_.remove(node);
        starts_.erase(block.address);
        ends_.erase(block.address + block.bytes);
        give_node(node);
    }
    /// Makes an unfiled node free and merges it with its free neighbors.
    void merge_and_file(Node node) noexcept {
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

    [[nodiscard]] Node node_holding(Address address) const noexcept {
        if (const Node node = starts_.find(address); node != OffsetMap::none) return node;
        for (Node node = 0; node < nodes_.size(); ++node) {
            const Block& block = nodes_[node];
            if (block.bytes != 0 && block.address <= address && address - block.address < block.bytes) return node;
        }
        return FreeBins::none;
    }

    std::uint64_t* last_serial_;
    Vector<Block> nodes_;
    Vector<Node> spare_;
    OffsetMap starts_; // of all nodes in use
    OffsetMap ends_;   // of all free nodes
    FreeBins bins_;
    std::size_t live_bytes_ = 0;
    std::size_t live_blocks_ = 0;
};

} // namespace memsaver::inline v0_3::detail
