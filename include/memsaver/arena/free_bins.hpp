// Lists of free nodes by size. Knows numbers of nodes, not addresses.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace memsaver::inline v0_1 {

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
    void reserve(std::size_t count) {
        const std::size_t before = links_.size();
        if (before >= 2 * bins + count) return;
        links_.resize(2 * bins + count);
        for (Node head = static_cast<Node>(before); head < 2 * bins; ++head) links_[head] = {head, head};
    }

    /// The class that a block of `bytes` belongs to; blocks of every higher class are larger.
    static constexpr std::size_t bin_of(std::size_t bytes) noexcept {
        const std::size_t units = bytes / unit;
        if (units < 8) return units;
        const auto power = static_cast<std::size_t>(std::bit_width(units)) - 1;
        const std::size_t bin = (power - 2) * 8 + ((units >> (power - 3)) & 7U);
        return bin < bins ? bin : bins - 1;
    }

    void insert(Node node, std::size_t bytes, Side side) noexcept {
        const std::size_t bin = bin_of(bytes);
        splice_in(head_of(bin, side), link_of(node), link_of(node));
        words(side)[bin / 64] |= std::uint64_t{1} << (bin % 64);
    }

    void remove(Node node) noexcept {
        const Link link = links_[link_of(node)];
        links_[link.previous].next = link.next;
        links_[link.next].previous = link.previous;
    }

    /// Every node of `from` joins the other side.
    void move_all(Side from) noexcept {
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

    /// Calls `visit(node)` for the nodes of a side from class `bin` upwards, at most `per_bin` of each class, until one
    /// call answers true; answers that node, or `none`.
    template <class Visit>
    Node search(std::size_t bin, Side side, std::size_t per_bin, Visit&& visit) {
        for (bin = first_at_or_after(bin, side); bin < bins; bin = first_at_or_after(bin + 1, side)) {
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
    void splice_in(Node head, Node first, Node last) noexcept {
        const Node second = links_[head].next;
        links_[head].next = first;
        links_[first].previous = head;
        links_[last].next = second;
        links_[second].previous = last;
    }

    std::size_t first_at_or_after(std::size_t bin, Side side) noexcept {
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
            bits[bin / 64] &= ~(std::uint64_t{1} << (bin % 64)); // its last node has left since
            ++bin;
        }
        return bins;
    }

    std::vector<Link> links_;
    Words open_{};
    Words shut_{};
};

} // namespace memsaver::inline v0_1
