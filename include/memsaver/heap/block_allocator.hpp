// Which bytes of an arena's addresses belong to which block. Pure bookkeeping: knows nothing about drivers, pages or
// threads.
#pragma once

#include "memsaver/core/error.hpp"
#include "memsaver/core/handles.hpp"
#include "memsaver/core/sizes.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {

/// The state of one block.
struct Block {
    enum class State : unsigned char { free, live, freed }; ///< `freed`: deallocated, but not yet reusable

    Address address = 0;
    std::size_t bytes = 0;     ///< a multiple of 256
    std::size_t requested = 0; ///< size requested by the program; 0 if not handed out
    std::uint64_t serial = 0;
    State state = State::free;

    /// The bytes that may contain the program's data.
    [[nodiscard]] std::size_t used_bytes() const noexcept { return requested == 0 ? bytes : align_up(requested, 256); }
};

/// The set that a free node is in: `open` serves allocations, `shut` lies in paused memory.
enum class Side : unsigned char { open, shut };

/// Circular doubly linked lists, one for each size class and side, each with its own head. A node can be unlinked
/// without knowing its list, and a whole side moves to the other in constant time, however many nodes it has. There are
/// eight size classes for each power of two, in units of 256 bytes. Not thread-safe.
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

    void insert(Node node, std::size_t bytes, Side side) noexcept;

    void remove(Node node) noexcept;

    /// Moves every node of `from` to the other side.
    void move_all(Side from) noexcept;

    /// Calls `visit(node)` for the nodes of a side from class `bin` upwards, at most `per_bin` of each class. Stops
    /// when a call returns true and returns that node; returns `none` after class `last_bin`.
    template <class Visit>
    Node search(std::size_t bin, Side side, std::size_t per_bin, Visit&& visit, std::size_t last_bin = bins - 1) {
        for (bin = first_at_or_after(bin, side); bin <= last_bin; bin = first_at_or_after(bin + 1, side)) {
            const Node head = head_of(bin, side);
            std::size_t left = per_bin;
            for (Node link = links_[head].next; link != head && left != 0; link = links_[link].next, --left) {
                const Node node = link - static_cast<Node>(2 * bins);
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

    static constexpr Node head_of(std::size_t bin, Side side) noexcept {
        return static_cast<Node>(bin + (side == Side::shut ? bins : 0));
    }
    static constexpr Node link_of(Node node) noexcept { return node + static_cast<Node>(2 * bins); }
    Words& words(Side side) noexcept { return side == Side::open ? open_ : shut_; }

    /// Inserts the chain `first` .. `last` at the front of the list of `head`.
    void splice_in(Node head, Node first, Node last) noexcept;

    std::size_t first_at_or_after(std::size_t bin, Side side) noexcept;

    std::vector<Link> links_;
    Words open_{};
    Words shut_{};
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

/// A sorted list of non-overlapping ranges, each on one side; a handful for an arena. Not thread-safe.
class Sides {
public:
    struct Part {
        Address begin;
        Address end;
        Side side;
    };

    /// Reserves capacity for `count` more calls of `add` or `remove`. Strong exception guarantee: may throw
    /// std::bad_alloc.
    void reserve_more(std::size_t count) { list_.reserve(list_.size() + count); }

    void add(Range range, Side side) noexcept;

    /// Removes a range, whatever sides it spans. Precondition: capacity for one more part has been reserved.
    void remove(Range range) noexcept;

    void set_all(Side side) noexcept;

    /// The side of an address that lies in some part.
    [[nodiscard]] Side side(Address address) const noexcept;

    /// Calls `visit(subrange, side)` for each piece of `range` that lies in one part. Precondition: the parts cover
    /// `range`.
    template <class Visit>
    void for_each_part(Range range, Visit&& visit) const {
        auto part = std::upper_bound(list_.begin(), list_.end(), range.address,
                                     [](Address at, const Part& each) { return at < each.end; });
        for (; part != list_.end() && part->begin < range.end(); ++part) {
            const Address begin = std::max(range.address, part->begin);
            visit(Range{begin, std::min(range.end(), part->end) - begin}, part->side);
        }
    }

    [[nodiscard]] bool mixed() const noexcept { return open_ != 0 && shut_ != 0; }
    [[nodiscard]] const std::vector<Part>& list() const noexcept { return list_; }

private:
    std::size_t& count(Side side) noexcept { return side == Side::open ? open_ : shut_; }

    std::vector<Part> list_;
    std::size_t open_ = 0;
    std::size_t shut_ = 0;
};

/// The borders across which free memory must not be merged, because the two sides are returned separately.
class Seams {
public:
    [[nodiscard]] virtual bool at(Address border) const noexcept = 0;

protected:
    Seams() = default;
    Seams(const Seams&) = default;
    Seams& operator=(const Seams&) = default;
    ~Seams() = default;
};

/// A good-fit allocator with immediate coalescing; splits and merges at multiples of 256 bytes. Freeing takes constant
/// time. So does allocating, unless none of the first eight blocks of each class fits, and shutting or opening
/// everything at once, however many blocks there are. A free block lies on the side of its part and never spans both
/// sides. Not thread-safe. Only methods documented to throw do so, and only std::bad_alloc.
class BlockAllocator {
public:
    static constexpr std::size_t unit = FreeBins::unit;

    /// Blocks are not merged across a multiple of `seam` (a power of two; 0: no seams) if `seams`, when given, reports
    /// a seam there. Serial numbers start above `first_serial`.
    explicit BlockAllocator(std::size_t seam = 0, std::uint64_t first_serial = 0, const Seams* seams = nullptr)
        : seam_mask_{seam == 0 ? ~Address{0} : Address{seam} - 1}, seams_{seams}, serial_{first_serial} {}

    /// Adds an open range, as free memory or as one live block. Strong exception guarantee.
    void add(Range range, Block::State as = Block::State::free);

    /// Adds open ranges, each as one live block. Strong exception guarantee.
    void add_live(const std::vector<Range>& blocks);

    /// Reserves capacity for `count` calls of `take_out`. Strong exception guarantee.
    void reserve_to_take_out(std::size_t count) { sides_.reserve_more(count + 1); }
    /// Removes a live block together with its bytes.
    void take_out(Address block) noexcept;

    /// Removes a range whose every byte is free. Strong exception guarantee.
    void remove(Range range);

    /// Allocates a block of `bytes` (a multiple of 256) aligned to `alignment` (a power of two). Returns nullptr if
    /// none fits. The result is valid until the next call. `exact`: uses only a free range of exactly `bytes` bytes.
    /// Strong exception guarantee.
    const Block* allocate(std::size_t bytes, std::size_t alignment, std::size_t requested, bool exact = false);

    /// The block that was handed out at exactly this address and has not been reclaimed since, or nullptr.
    [[nodiscard]] const Block* find(Address address) const noexcept;

    /// Marks a live block as freed: no longer owned by the program, but not yet reusable.
    void mark_freed(const Block& block) noexcept;

    /// Makes a freed block live again, as a different block with a new serial number.
    void revive(Address address, std::size_t requested) noexcept;

    /// Makes a freed block reusable. Returns the free range that now contains its first byte.
    Range reclaim(Address address) noexcept;

    void shut_all() noexcept { move_all(Side::shut); }
    void open_all() noexcept { move_all(Side::open); }
    /// Shuts exactly these ranges and opens all others. Takes time in proportion to the number of free blocks. Strong
    /// exception guarantee.
    void set_shut(const std::vector<Range>& shut);
    [[nodiscard]] Side side(Address address) const noexcept { return sides_.side(address); }
    /// Return whether any byte, or every byte, of a range is shut.
    [[nodiscard]] bool any_shut(Range range) const noexcept { return has(range, Side::shut); }
    [[nodiscard]] bool all_shut(Range range) const noexcept { return !has(range, Side::open); }

    /// Calls `visit(range)` for every free range of a side with at least `bytes`. `visit` must not change the
    /// allocator.
    template <class Visit>
    void for_each_free(std::size_t bytes, Side side, Visit&& visit) {
        bins_.search(FreeBins::bin_of(bytes), side, ~std::size_t{0}, [&](Node node) {
            if (nodes_[node].bytes >= bytes) visit(Range{nodes_[node].address, nodes_[node].bytes});
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

    [[nodiscard]] std::size_t live_bytes() const noexcept { return live_bytes_; } ///< as requested
    [[nodiscard]] std::size_t live_blocks() const noexcept { return live_blocks_; }
    [[nodiscard]] std::size_t free_bytes() const noexcept { return free_bytes_; }

private:
    using Node = FreeBins::Node;

    // The tables have capacity for both keys of every node, and there is a spare node for every border between sides
    // that a block may span, so freeing never allocates.
    void reserve_node(std::size_t more);
    Node take_node() noexcept;
    void give_node(Node node) noexcept;

    /// Takes a node for a range that has none, to be handed out or filed.
    Node node_of(Range range) noexcept;
    /// Turns an unfiled node into a live block.
    const Block* hand_out(Node node, std::size_t requested) noexcept;
    /// Makes a node free.
    void file(Node node, Side side) noexcept;
    /// Removes a free node.
    void unfile(Node node) noexcept;
    /// Makes an unfiled node free and merges it with its free neighbors. Returns the merged range.
    Range merge_and_file(Node node) noexcept;
    /// Returns `neighbour` if it is free and may be merged across `border`; otherwise `none`.
    [[nodiscard]] Node mergeable(Node neighbour, Address border, Side side) const noexcept;

    [[nodiscard]] bool has(Range range, Side side) const noexcept;

    void move_all(Side to) noexcept;

    [[nodiscard]] Node node_holding(Address address) const noexcept;
    [[nodiscard]] std::vector<Range> all_free() const;

    Address seam_mask_;
    const Seams* seams_;
    std::uint64_t serial_;
    std::vector<Block> nodes_;
    std::vector<Node> spare_;
    OffsetMap starts_; // of all nodes in use
    OffsetMap ends_;   // of all free nodes
    FreeBins bins_;
    Sides sides_;
    std::size_t live_bytes_ = 0;
    std::size_t live_blocks_ = 0;
    std::size_t free_bytes_ = 0;
};

/// Throws Misuse. The text distinguishes a block freed before, a pointer into a live block, and a pointer that was
/// never handed out. `block`: the block found at the address, if any; `internal(start)`: whether a block is internal
/// rather than the program's.
template <class Internal>
[[noreturn]] void raise_misplaced(const BlockAllocator& blocks, Address address, const Block* block,
                                  const std::string& tag, Internal&& internal) {
    const std::string where = "deallocate(" + format_address(address) + ") in tag \"" + tag + "\": ";
    if (block != nullptr) {
        throw Misuse{where + "this block of " + format_bytes(block->requested) + " was freed before"};
    }
    std::string text = "no block of this tag starts here; it may have been freed before";
    blocks.for_each_live([&](const Block& live) {
        if (internal(live.address) || address <= live.address || address - live.address >= live.bytes) return;
        text = "the pointer lies inside a block of " + format_bytes(live.requested) + " that starts at " +
               format_address(live.address);
    });
    throw Misuse{where + text};
}

} // namespace detail

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/heap/block_allocator.ipp"
#endif
