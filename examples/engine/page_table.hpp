// Assigns the pages of a cache to sequences. Bookkeeping on the host: independent of the pages' bytes and of devices.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace engine {

/// A cache has `pages` pages of `page_tokens` tokens. A sequence opens a slot, which is a row of the table, and takes
/// pages as it grows. Slot 0 and page 0 are reserved for padding rows of a batch.
class PageTable {
public:
    /// `order` shuffles the pages: results must not depend on where a sequence's pages are.
    PageTable(int pages, int page_tokens, int slots, int pages_per_slot, std::uint64_t order = 0)
        : page_tokens_{page_tokens}, pages_per_slot_{pages_per_slot} {
        if (pages < 2 || page_tokens < 1 || slots < 2 || pages_per_slot < 1)
            throw std::invalid_argument{"page table: needs 2 or more pages and slots (one each is reserved), 1 or more "
                                        "tokens and pages per slot"};
        entries_.resize(static_cast<std::size_t>(slots) * static_cast<std::size_t>(pages_per_slot));
        taken_.assign(static_cast<std::size_t>(slots), 0);
        open_.assign(static_cast<std::size_t>(slots), false);
        free_.resize(static_cast<std::size_t>(pages - 1));
        std::iota(free_.rbegin(), free_.rend(), 1);
        if (order != 0) {
            std::mt19937_64 engine{order};
            for (std::size_t i = free_.size() - 1; i > 0; --i) std::swap(free_[i], free_[engine() % (i + 1)]);
        }
    }

    /// Opens a slot without pages. Throws std::runtime_error if all slots are taken.
    [[nodiscard]] int open() {
        for (std::size_t slot = 1; slot < open_.size(); ++slot) {
            if (open_[slot]) continue;
            open_[slot] = true;
            return static_cast<int>(slot);
        }
        throw std::runtime_error{"page table: no slot is free"};
    }

    /// Ensures that the slot has pages for its first `tokens` tokens. Strong exception guarantee: throws
    /// std::runtime_error if the cache or the slot's row has too few pages.
    void grow(int slot, int tokens) {
        const std::size_t at = checked(slot);
        const int wanted = (tokens + page_tokens_ - 1) / page_tokens_;
        if (wanted > pages_per_slot_)
            throw std::runtime_error{"page table: " + std::to_string(tokens) + " tokens exceed a slot's maximum of " +
                                     std::to_string(pages_per_slot_ * page_tokens_)};
        const int missing = std::max(0, wanted - taken_[at]);
        if (static_cast<std::size_t>(missing) > free_.size())
            throw std::runtime_error{"page table: " + std::to_string(missing) + " pages needed, " +
                                     std::to_string(free_.size()) + " free"};
        for (; taken_[at] < wanted; ++taken_[at]) {
            entries_[first(at) + static_cast<std::size_t>(taken_[at])] = free_.back();
            free_.pop_back();
        }
    }

    /// Frees the slot and its pages.
    void close(int slot) {
        const std::size_t at = checked(slot);
        for (; taken_[at] > 0; --taken_[at]) {
            std::int32_t& entry = entries_[first(at) + static_cast<std::size_t>(taken_[at]) - 1];
            free_.push_back(entry);
            entry = 0;
        }
        open_[at] = false;
    }

    /// Returns all rows, one after the other, as they are copied to the device.
    [[nodiscard]] std::span<const std::int32_t> entries() const noexcept { return entries_; }
    [[nodiscard]] std::span<const std::int32_t> pages_of(int slot) const {
        const std::size_t at = checked(slot);
        return entries().subspan(first(at), static_cast<std::size_t>(taken_[at]));
    }
    [[nodiscard]] std::size_t free_pages() const noexcept { return free_.size(); }
    [[nodiscard]] int page_tokens() const noexcept { return page_tokens_; }
    [[nodiscard]] int pages_per_slot() const noexcept { return pages_per_slot_; }
    [[nodiscard]] int slots() const noexcept { return static_cast<int>(open_.size()); }

private:
    [[nodiscard]] std::size_t first(std::size_t slot) const noexcept {
        return slot * static_cast<std::size_t>(pages_per_slot_);
    }
    [[nodiscard]] std::size_t checked(int slot) const {
        const auto at = static_cast<std::size_t>(slot);
        if (slot < 1 || at >= open_.size() || !open_[at])
            throw std::invalid_argument{"page table: slot " + std::to_string(slot) + " is not open"};
        return at;
    }

    int page_tokens_;
    int pages_per_slot_;
    std::vector<std::int32_t> entries_; // slots x pages_per_slot
    std::vector<int> taken_;            // pages of each slot
    std::vector<bool> open_;
    std::vector<std::int32_t> free_;
};

} // namespace engine
