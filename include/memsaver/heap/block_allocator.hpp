// Which bytes of an arena's addresses belong to which block. Pure bookkeeping: knows nothing about drivers, pages or
// threads.
#pragma once

#include "memsaver/core/handles.hpp"
#include "memsaver/core/sizes.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {

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
    void reserve(std::size_t count);

    /// The size class of a block of `bytes`. Blocks of every higher class are larger.
    static constexpr std::size_t bin_of(std::size_t bytes) noexcept {
        const std::size_t units = bytes / unit;
        if (units < 8) return units;
        const auto power = static_cast<std::size_t>(std::bit_width(units)) - 1;
        const std::size_t bin = (power - 2) * 8 + ((units >> (power - 3)) & 7U);
        return bin < bins ? bin : bins - 1;
    }

    void insert(Node node, std::size_t bytes) noexcept;

    void remove(Node node) noexcept;

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

    std::size_t first_at_or_after(std::size_t bin) noexcept;

    std::vector<Link> links_;
    Words words_{};
};

/// A hash map with open addressing, linear probing, and deletion by backward shift. Keys are non-zero multiples of 256.
/// Not thread-safe.
class OffsetMap {
public:
    static constexpr std::uint32_t none = ~std::uint32_t{0};

    /// Reserves capacity for `count` keys in total. The only method that may throw (std::bad_alloc); strong exception
    /// guarantee.
    void reserve(std::size_t count);

    [[nodiscard]] std::uint32_t find(Address key) const noexcept;

    /// Precondition: capacity for the key has been reserved.
    void insert(Address key, std::uint32_t value) noexcept { place(key, value); }

    void erase(Address key) noexcept;

private:
    struct Slot {
        Address key = 0;
        std::uint32_t value = none;
    };

    [[nodiscard]] std::size_t home(Address key) const noexcept;
    [[nodiscard]] std::size_t next(std::size_t i) const noexcept { return (i + 1) & (slots_.size() - 1); }
    void place(Address key, std::uint32_t value) noexcept;

    std::vector<Slot> slots_;
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
    void add(Range range, Block::State as = Block::State::free);

    /// Removes a live or kept block together with its bytes.
    void take_out(Address block) noexcept;

    /// Removes a range whose every byte is free. Strong exception guarantee.
    void remove(Range range);

    /// Takes over all blocks and free ranges of `other`, with their serial numbers; `other` is empty afterwards. Strong
    /// exception guarantee. Takes time in proportion to what `other` has.
    void merge(BlockAllocator& other);

    /// Allocates a block of `bytes` (a multiple of 256) aligned to `alignment` (a power of two). Returns nullptr if
    /// none fits. The result is valid until the next call. Strong exception guarantee.
    const Block* allocate(std::size_t bytes, std::size_t alignment, std::size_t requested);

    /// The block that was handed out at exactly this address and has not been reclaimed since, or nullptr.
    [[nodiscard]] const Block* find(Address address) const noexcept;
    /// The block that contains an address and has not been reclaimed, or nullptr. Looks at every block, unless one
    /// starts there.
    [[nodiscard]] const Block* holding(Address address) const noexcept;

    /// Marks a live block as kept: no longer owned by the program, but its bytes still matter.
    void keep(const Block& block) noexcept;
    /// Marks a live or kept block as freed: no longer owned by the program, but not yet reusable.
    void mark_freed(const Block& block) noexcept;

    /// Makes a freed block live again, as a different block with a new serial number.
    void revive(Address address, std::size_t requested) noexcept;

    /// Makes a freed block reusable.
    void reclaim(Address address) noexcept;

    /// Calls `visit(range)` for every free range with at least `bytes`. `visit` must not change the allocator.
    template <class Visit>
    void for_each_free(std::size_t bytes, Visit&& visit) {
        (void)bins_.search(FreeBins::bin_of(bytes), ~std::size_t{0}, [&](FreeBins::Node node) {
            const Block& block = nodes_[node];
            if (block.bytes >= bytes) visit(Range{block.address, block.bytes});
            return false;
        });
    }

    /// Calls `visit(block)` for every live block.
    template <class Visit>
    void for_each_live(Visit&& visit) const {
        for (const Block& block : nodes_) {
            if (block.state == Block::State::live) visit(block);
        }
    }

    /// Calls `visit(block)` for every block whose bytes matter: those that are live, and those that graphs keep.
    template <class Visit>
    void for_each_saved(Visit&& visit) const {
        for (const Block& block : nodes_) {
            if (block.state == Block::State::live || block.state == Block::State::kept) visit(block);
        }
    }

    /// Returns whether there are neither blocks nor free ranges.
    [[nodiscard]] bool empty() const noexcept { return nodes_.size() == spare_.size(); }
    [[nodiscard]] std::size_t live_bytes() const noexcept { return live_bytes_; } ///< as requested
    [[nodiscard]] std::size_t live_blocks() const noexcept { return live_blocks_; }
    [[nodiscard]] std::size_t free_bytes() const noexcept { return free_bytes_; }

private:
    using Node = FreeBins::Node;

    // The tables have capacity for both keys of every node, so freeing never allocates.
    void reserve_node(std::size_t more);
    Node take_node() noexcept;
    void give_node(Node node) noexcept;

    /// Takes a node for a range that has none, to be handed out or filed.
    Node node_of(Range range) noexcept;
    /// Turns an unfiled node into a live block.
    const Block* hand_out(Node node, std::size_t requested) noexcept;
    /// Makes a node free.
    void file(Node node) noexcept;
    /// Removes a free node.
    void unfile(Node node) noexcept;
    /// Makes an unfiled node free and merges it with its free neighbors.
    void merge_and_file(Node node) noexcept;

    [[nodiscard]] Node node_holding(Address address) const noexcept;

    std::uint64_t* last_serial_;
    std::vector<Block> nodes_;
    std::vector<Node> spare_;
    OffsetMap starts_; // of all nodes in use
    OffsetMap ends_;   // of all free nodes
    FreeBins bins_;
    std::size_t live_bytes_ = 0;
    std::size_t live_blocks_ = 0;
    std::size_t free_bytes_ = 0;
};

} // namespace detail

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/heap/block_allocator.ipp"
#endif
