// Which bytes of an arena's addresses belong to which block. Pure bookkeeping: knows no driver, no pages, no threads.
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

namespace memsaver::inline v0_2 {

namespace detail {

/// What is known of a block that has been handed out.
struct Block {
    enum class State : unsigned char { free, live, freed }; ///< `freed`: deallocated, but not yet to be reused

    Address address = 0;
    std::size_t bytes = 0;     ///< a multiple of 256
    std::size_t requested = 0; ///< what was asked for; 0 if not handed out
    std::uint64_t serial = 0;
    State state = State::free;

    /// Those in which the program's bytes may lie.
    [[nodiscard]] std::size_t used_bytes() const noexcept { return requested == 0 ? bytes : align_up(requested, 256); }
};

/// Which of two sets a free node is in: `open` serves allocations, `shut` lies in paused memory.
enum class Side : unsigned char { open, shut };

/// Circular doubly linked lists, one for each size class and side, with heads of their own: a node leaves its list
/// without anybody knowing which one it was in, and a whole side moves to the other in constant time, however many
/// nodes it has. Size classes: eight to each power of two, in units of 256 bytes. Not thread safe.
class FreeBins {
public:
    using Node = std::uint32_t;
    static constexpr Node none = ~Node{0};
    static constexpr std::size_t unit = 256;
    static constexpr std::size_t bins = 40 * 8;

    /// Makes room for nodes 0 .. count-1. May throw bad_alloc; then nothing changed.
    void reserve(std::size_t count);

    /// The class that a block of `bytes` belongs to; blocks of every higher class are larger.
    static constexpr std::size_t bin_of(std::size_t bytes) noexcept {
        const std::size_t units = bytes / unit;
        if (units < 8) return units;
        const auto power = static_cast<std::size_t>(std::bit_width(units)) - 1;
        const std::size_t bin = (power - 2) * 8 + ((units >> (power - 3)) & 7U);
        return bin < bins ? bin : bins - 1;
    }

    void insert(Node node, std::size_t bytes, Side side) noexcept;

    void remove(Node node) noexcept;

    /// Every node of `from` joins the other side.
    void move_all(Side from) noexcept;

    /// Calls `visit(node)` for the nodes of a side from class `bin` upwards, at most `per_bin` of each class, until one
    /// call answers true, or class `last_bin` is done; answers that node, or `none`.
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
    using Words = std::array<std::uint64_t, bins / 64>; // a bit for each class that may have nodes

    static constexpr Node head_of(std::size_t bin, Side side) noexcept {
        return static_cast<Node>(bin + (side == Side::shut ? bins : 0));
    }
    static constexpr Node link_of(Node node) noexcept { return node + static_cast<Node>(2 * bins); }
    Words& words(Side side) noexcept { return side == Side::open ? open_ : shut_; }

    /// The chain `first` .. `last` goes to the front of the list of `head`.
    void splice_in(Node head, Node first, Node last) noexcept;

    std::size_t first_at_or_after(std::size_t bin, Side side) noexcept;

    std::vector<Link> links_;
    Words open_{};
    Words shut_{};
};

/// Open addressing, linear probing, deletion by shifting back. Keys are non-zero multiples of 256. Not thread safe.
class OffsetMap {
public:
    static constexpr std::uint32_t none = ~std::uint32_t{0};

    /// Makes room for `count` keys in all. The only method that may throw (bad_alloc), and then nothing changed.
    void reserve(std::size_t count);

    [[nodiscard]] std::uint32_t find(Address key) const noexcept;

    /// Room for the key has been reserved.
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

/// A sorted list of ranges without overlap, each on one side. A handful for an arena. Not thread safe.
class Sides {
public:
    struct Part {
        Address begin;
        Address end;
        Side side;
    };

    /// Makes room for `count` more calls of `add` or `remove`. May throw bad_alloc; then nothing changed.
    void reserve_more(std::size_t count) { list_.reserve(list_.size() + count); }

    void add(Range range, Side side) noexcept;

    /// Cuts a range out, whatever sides it spans. Room for one more part has been reserved.
    void remove(Range range) noexcept;

    void set_all(Side side) noexcept;

    /// The side of an address that some part holds.
    [[nodiscard]] Side side(Address address) const noexcept;

    /// `visit(part, side)` for each part of `range` that lies in one part. All of it lies in some.
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

/// Where free memory is not to grow together: what lies on one side is returned without the other.
class Seams {
public:
    [[nodiscard]] virtual bool at(Address border) const noexcept = 0;

protected:
    Seams() = default;
    Seams(const Seams&) = default;
    Seams& operator=(const Seams&) = default;
    ~Seams() = default;
};

/// Good-fit with immediate coalescing; splits and merges at multiples of 256 bytes. Freeing takes constant
/// time, allocating too unless no block of the eight first of each class fits; so does shutting or opening everything
/// at once, however many blocks there are. A free block lies on the side of its part, and never spans two sides. Not
/// thread safe; only methods that say so throw, and only bad_alloc.
class BlockAllocator {
public:
    static constexpr std::size_t unit = FreeBins::unit;

    /// Blocks are not merged across multiples of `seam` (a power of two; 0: there are none) at which `seams`, if given,
    /// says that one is. Serial numbers start above `first_serial`.
    explicit BlockAllocator(std::size_t seam = 0, std::uint64_t first_serial = 0, const Seams* seams = nullptr)
        : seam_mask_{seam == 0 ? ~Address{0} : Address{seam} - 1}, seams_{seams}, serial_{first_serial} {}

    /// A new open range: free, or one live block. May throw; then nothing changed.
    void add(Range range, Block::State as = Block::State::free);

    /// New open ranges, each of them one live block. May throw; then nothing changed.
    void add_live(const std::vector<Range>& blocks);

    /// Makes room for `count` calls of `take_out`. May throw; then nothing changed.
    void reserve_to_take_out(std::size_t count) { sides_.reserve_more(count + 1); }
    /// A live block goes, and its bytes with it.
    void take_out(Address block) noexcept;

    /// Takes a range out whose every byte is free. May throw; then nothing changed.
    void remove(Range range);

    /// A block of `bytes` (a multiple of 256) at a multiple of `alignment` (a power of two), or nullptr. Valid until
    /// the next call. May throw; then nothing changed.
    /// `exact`: only from a free range of just so many bytes.
    const Block* allocate(std::size_t bytes, std::size_t alignment, std::size_t requested, bool exact = false);

    /// The block that was handed out at just this address and not reclaimed since, or nullptr.
    [[nodiscard]] const Block* find(Address address) const noexcept;

    /// A live block is deallocated: no longer the program's, not yet anybody else's.
    void mark_freed(const Block& block) noexcept;

    /// A freed block is live again, as another one: with a new serial number.
    void revive(Address address, std::size_t requested) noexcept;

    /// A freed block can be handed out again. Answers the free range that its first byte is now part of.
    Range reclaim(Address address) noexcept;

    void shut_all() noexcept { move_all(Side::shut); }
    void open_all() noexcept { move_all(Side::open); }
    /// Exactly these ranges become shut, all others open. Takes time in proportion to the number of free blocks. May
    /// throw; then nothing changed.
    void set_shut(const std::vector<Range>& shut);
    [[nodiscard]] Side side(Address address) const noexcept { return sides_.side(address); }
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
    void reserve_node(std::size_t more);
    Node take_node() noexcept;
    void give_node(Node node) noexcept;

    /// A node of a range that has none, to be handed out or filed.
    Node node_of(Range range) noexcept;
    /// A node that is not filed becomes a live block.
    const Block* hand_out(Node node, std::size_t requested) noexcept;
    /// A node becomes free.
    void file(Node node, Side side) noexcept;
    /// A free node goes.
    void unfile(Node node) noexcept;
    /// A node that is not filed becomes free, and grows together with its neighbours. Answers all of it.
    Range merge_and_file(Node node) noexcept;
    /// `neighbour` if it is free and nothing keeps it apart at `border`.
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
    OffsetMap starts_; // of every node in use
    OffsetMap ends_;   // of free nodes
    FreeBins bins_;
    Sides sides_;
    std::size_t live_bytes_ = 0;
    std::size_t live_blocks_ = 0;
    std::size_t free_bytes_ = 0;
};

/// Throws Misuse that tells a block freed before from a pointer into a live block and from one that was never handed
/// out. `block`: what was found at the address, if anything; `internal(start)`: blocks that are not the program's.
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

} // namespace memsaver::inline v0_2

#ifndef MEMSAVER_COMPILED
#include "memsaver/heap/block_allocator.ipp"
#endif
