// The pages of one arena: active extents, paused ranges, held handles, and their byte counts. Knows nothing about
// blocks.
#pragma once

#include "memsaver/arena/options.hpp"
#include "memsaver/backup/policy.hpp"
#include "memsaver/core/event.hpp"
#include "memsaver/core/function_ref.hpp"
#include "memsaver/core/order.hpp"
#include "memsaver/core/ranges.hpp"
#include "memsaver/core/sizes.hpp"
#include "memsaver/driver/owned.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <utility>
#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {

/// Returns the driver's granularity: sizes and addresses of pages are multiples of it. Throws the error of a failing
/// driver call.
[[nodiscard]] std::size_t granularity_of(const AnyDriver& driver);

/// Derived from what an extent owns; never assigned.
enum class ExtentState : unsigned char {
    active, ///< pages are mapped, the memory is usable
    held,   ///< unmapped, but the driver refused to release the pages; to be retried
    paused, ///< addresses only
};

/// A range of addresses behind one handle. Move-only. The destructor unmaps, then releases.
class Extent {
public:
    Extent(Address address, std::size_t bytes) noexcept : address_{address}, bytes_{bytes} {}

    [[nodiscard]] Address address() const noexcept { return address_; }
    [[nodiscard]] Address end() const noexcept { return address_ + bytes_; }
    [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

    [[nodiscard]] ExtentState state() const noexcept;

    /// Returns the physical bytes owned, mapped or held.
    [[nodiscard]] std::size_t physical_bytes() const noexcept { return pages_.get().bytes; }

    /// Creates pages for a paused extent, without mapping them.
    Status create(const AnyDriver& driver) noexcept { return pages_.open(driver, bytes_); }

    /// Maps the created pages and allows access. After a failure, call `unmap` to undo what was done.
    Status map(const AnyDriver& driver) noexcept { return map(driver, *this); }
    /// Maps the pages of another extent of the same size, which stays their owner.
    Status map(const AnyDriver& driver, const Extent& owner) noexcept;
    /// Takes ownership of pages that it has mapped.
    void take_pages(Extent& owner) noexcept { pages_ = std::move(owner.pages_); }
    [[nodiscard]] bool owns_pages() const noexcept { return pages_.owns(); }

    /// Active to held. If it fails, the extent stays active.
    Status unmap() noexcept { return mapping_.close(); }

    /// Held to paused. If it fails, the extent stays held.
    Status release() noexcept { return pages_.close(); }

private:
    Address address_;
    std::size_t bytes_;
    OwnedPages pages_; // declared before the mapping, so that it is destroyed after it
    Mapping mapping_;
};

/// The driver's cost per handle is roughly independent of its size up to about this size; larger handles gain nothing.
inline constexpr std::size_t largest_extent = 1_GiB;

/// Returns how many bytes an arena that owns `owned` bytes should create next: doubling from one granule to 32 MiB,
/// then a sixteenth of `owned` in multiples of 32 MiB, up to the largest extent. So at most a sixteenth of an arena, or
/// 32 MiB, is ahead of the program's needs. The next resume joins adjacent extents into one handle.
constexpr std::size_t growth_step(std::size_t owned, std::size_t granularity) noexcept {
    const std::size_t unit = std::max<std::size_t>(granularity, 32_MiB);
    const std::size_t doubling = std::clamp<std::size_t>(std::bit_floor(owned), granularity, unit);
    const std::size_t part = align_down(owned / 16, unit);
    return std::max(granularity, std::min(std::max(doubling, part), std::max(granularity, largest_extent)));
}

/// Returns the ranges of `dead` to leave out of a resume of `total` paused bytes. Ranges of at least 16 MiB are always
/// left out. Shorter ones are left out from the longest on, until the dead bytes that are resumed are at most a
/// sixty-fourth of the live bytes, because each cut costs a handle.
std::vector<Range> worth_cutting(std::vector<Range> dead, std::size_t total);

/// Appends to `pieces` the parts of `range` for one handle each, as few as possible.
void split_into_extents(Range range, std::size_t granularity, std::vector<Range>& pieces);

/// Returns how many bytes of addresses to reserve next, given that `reserved` bytes are reserved and `needed` are
/// requested: doubling, from 256 MiB to 64 GiB at once.
constexpr std::size_t segment_bytes(std::size_t reserved, std::size_t needed) noexcept {
    return std::max<std::size_t>(needed, std::clamp<std::size_t>(reserved, 256_MiB, 64_GiB));
}

/// Allocates addresses, first fit from the lowest address, so that ranges in use stay together. With a gap, leaves
/// `gap` bytes free between each range and its neighbors. Not thread-safe.
class AddressSpace {
public:
    explicit AddressSpace(Range all, std::size_t gap = 0) : all_{all}, gap_{gap} {}

    /// Returns whether no part of the space is in use.
    [[nodiscard]] bool unused() const noexcept { return taken_.empty(); }

    /// Takes the lowest gap of `bytes` aligned to `alignment` (a power of two). Returns its address, or 0 if no gap is
    /// large enough. Strong exception guarantee: throws std::bad_alloc and changes nothing.
    Address take(std::size_t bytes, std::size_t alignment);

    /// Splits the range in use that contains `at`, so that freeing the part that ends at `at` needs no host memory.
    /// Strong exception guarantee: throws std::bad_alloc and changes nothing.
    void split(Address at);

    /// Frees a range in use, in one or several pieces. Strong exception guarantee: throws std::bad_alloc and changes
    /// nothing.
    void give(Range range);

    [[nodiscard]] Range all() const noexcept { return all_; }

private:
    static Address align(Address at, std::size_t alignment) noexcept;

    Range all_;
    std::size_t gap_;
    std::map<Address, Address> taken_; // begin to end; adjacent ranges are not merged
};

/// Creates and releases every handle of an arena, so that their sum is always exact. Used only by an ArenaCore, whose
/// operations take turns; `mutex` protects the lists from concurrent growth and queries. It is held across driver calls
/// only when an earlier release is completed or retried, when addresses are undone, and when the arena closes.
class ArenaPages {
public:
    /// Memory paused by one pause, and the slot that keeps its bytes.
    struct Batch {
        std::vector<Range> ranges; // sorted
        std::shared_ptr<AnySlot> slot;
    };
    /// An extent whose pages could not be released so far.
    struct Held {
        Extent extent;
        bool owns_addresses;                     // otherwise they belong to a paused or an elastic range
        std::shared_ptr<const WorkMark> until{}; // work that an elastic release waits for; nothing failed
        [[nodiscard]] Range range() const noexcept { return {extent.address(), extent.bytes()}; }
    };

    /// `on_segment` is called with a new range of addresses before anything is mapped there; growth passes on what it
    /// throws. Throws the error of a failing driver call.
    ArenaPages(AnyDriver driver, std::string tag, ArenaOptions options, std::function<void(Range)> on_segment);

    [[nodiscard]] const AnyDriver& driver() const noexcept { return driver_; }
    [[nodiscard]] const std::string& tag() const noexcept { return tag_; }
    [[nodiscard]] const ArenaOptions& options() const noexcept { return options_; }
    [[nodiscard]] std::size_t granularity() const noexcept { return granularity_; }
    [[nodiscard]] std::size_t capacity() const noexcept { return capacity_.load(); }
    void set_capacity(std::size_t bytes) noexcept { capacity_.store(bytes); }
    [[nodiscard]] std::size_t margin() const noexcept { return margin_.load(); }
    void set_margin(std::size_t bytes) noexcept { margin_.store(bytes); }
    /// Returns the bytes of all segments. Requires the mutex.
    [[nodiscard]] std::size_t reserved_bytes() const noexcept;
    [[nodiscard]] std::size_t peak_bytes() const noexcept { return peak_bytes_.load(); }
    [[nodiscard]] std::size_t physical_bytes() const noexcept { return physical_bytes_.load(); } // of all handles

    // --- one extent ---

    Status create(Extent& extent) noexcept;
    /// If one of these fails, the extent keeps what it could not release.
    Status release(Extent& extent) noexcept;
    Status drop(Extent& extent) noexcept;
    /// Releases pages that were never mapped. On failure, they stay with their extent. All extents may be created
    /// again.
    void give_up_pages(std::vector<Extent>& extents) noexcept;
    /// Undoes a failed operation: `extents` are no longer in hand. What cannot be released is held and reported.
    /// `in_use`: the library's own copies may still touch the pages, so waits for the device before unmapping them.
    void abandon(std::vector<Extent>& extents, bool owns_addresses, bool in_use = false) noexcept;
    void hold(Extent&& extent, bool owns_addresses, const Status& status) noexcept;
    /// Holds an extent until the work of `until` has completed.
    void hold_until(Extent&& extent, const std::shared_ptr<const WorkMark>& until) noexcept;
    /// Returns the physical bytes that `hold_until` holds.
    [[nodiscard]] std::size_t waiting_bytes() noexcept;
    [[nodiscard]] bool anything_waits() noexcept { return waiting_bytes() != 0; }
    /// Returns the marks that held extents in any of `ranges` wait for. May throw std::bad_alloc.
    [[nodiscard]] std::vector<std::shared_ptr<const WorkMark>> awaited_in(const std::vector<Range>& ranges);
    /// Notes that copies of a failed operation may still be in flight. `settle` waits for them; nothing is released
    /// before.
    void unsettle() noexcept { unsettled_.store(true); }
    Status settle() noexcept;
    /// Returns the ranges of held extents that could not be unmapped, sorted.
    [[nodiscard]] std::vector<Range> mapped_and_held();
    /// Retries the release of held extents, except those that still wait for work. Requires the turn.
    Status retry_held();

    /// Transfers ownership of the pages of `extent`, a mapped extent of `from`, to `to`, an extent of this arena that
    /// has them mapped too.
    void take_over(Extent& to, ArenaPages& from, Extent& extent) noexcept;
    /// Creates pages for all paused extents, stopping at the first failure. Returns out_of_memory also if less than the
    /// margin would be left free. `beside`: bytes that will be created in addition.
    Status create_all(std::vector<Extent>& extents, std::size_t beside = 0) noexcept;
    [[noreturn]] void raise_no_room(const Status& status, const char* what, std::size_t needed) const;
    /// Returns extents without pages for `ranges`: as few as possible, or one for each range if every block needs a
    /// single handle. They are in hand until `activate` or `abandon`.
    std::vector<Extent> plan(const std::vector<Range>& ranges);
    /// Replaces planned extents, which own nothing yet, by one for each of `ranges`, of any size. Strong exception
    /// guarantee.
    void plan_again(std::vector<Extent>& extents, const std::vector<Range>& ranges);
    /// Makes extents in hand active. Requires the mutex.
    void activate(std::vector<Extent>& extents) noexcept;

    // --- growth ---

    /// Takes addresses for `bytes` from a segment that has them, or reserves another segment. One thread at a time.
    Range take_addresses(std::size_t bytes, std::size_t alignment);
    /// Maps active memory at addresses that were taken, and calls `offer(range)`. On failure, frees the addresses.
    template <class Offer>
    Status grow_into(Range range, Offer&& offer) {
        std::vector<Extent> extents;
        try {
            extents = plan({range});
            Status status = create_all(extents);
            for (std::size_t i = 0; status.ok() && i < extents.size(); ++i) status = extents[i].map(driver_);
            if (!status.ok()) {
                abandon_growth(range, extents);
                return status;
            }
            offer(range);
        } catch (const std::bad_alloc&) {
            abandon_growth(range, extents);
            throw;
        }
        const std::lock_guard lock{mutex};
        activate(extents);
        return {};
    }
    /// Undoes a failed growth. Needs host memory only if pages could not be released.
    void abandon_growth(Range range, std::vector<Extent>& extents);

    // --- paused memory ---

    /// Returns the paused ranges, sorted.
    [[nodiscard]] std::vector<Range> paused_ranges();
    /// If `take_out()` returns true, drops a paused range that contains no block and frees its addresses. Strong
    /// exception guarantee: throws std::bad_alloc and changes nothing.
    template <class TakeOut>
    void forget_paused(Range range, TakeOut&& take_out) {
        const std::lock_guard lock{mutex};
        std::vector<std::vector<Range>> left;
        for (const Batch& batch : paused) left.push_back(without(batch.ranges, {range}));
        space_of(range).split(range.end());
        if (!take_out()) return;
        space_of(range).give(range);
        for (std::size_t i = 0; i < left.size(); ++i) paused[i].ranges.swap(left[i]);
        std::erase_if(paused, [](const Batch& batch) { return batch.ranges.empty(); });
    }
    /// Drops ranges, but keeps their addresses taken: they are not paused any more, and their active extents move to
    /// `extents`, in hand. Calls `act()` once nothing else can fail, with the mutex held. Strong exception guarantee:
    /// throws std::bad_alloc and changes nothing.
    void take_out(const std::vector<Range>& ranges, std::vector<Extent>& extents, FunctionRef<void()> act);
    /// Tells the slots of single pauses, which are all except `own`, that a block is gone.
    void forget_block(std::uint64_t serial, const AnySlot* own) noexcept;
    void free_addresses(Range range);
    /// Releases everything. A lost device is not a failure. Returns the first failure; the next call retries what is
    /// left.
    Status close() noexcept;

private:
    void note_peak(std::size_t now) noexcept;
    /// Returns extents without pages, one for each of `ranges`, in hand.
    std::vector<Extent> plan_each(const std::vector<Range>& ranges);

    /// Addresses reserved at once. One extra, unused granule separates it from the next segment, so that no extent ever
    /// spans two.
    struct Segment {
        Reservation reservation;
        AddressSpace space;
    };

    /// Returns the segment that contains a range. Requires the mutex.
    [[nodiscard]] AddressSpace& space_of(Range range) noexcept;

    AnyDriver driver_;
    std::string tag_;
    ArenaOptions options_;
    std::size_t granularity_;
    std::function<void(Range)> on_segment_;
    std::atomic<std::size_t> capacity_;
    std::atomic<std::size_t> margin_;
    std::atomic<std::size_t> physical_bytes_{0};
    std::atomic<std::size_t> peak_bytes_{0};
    std::atomic<bool> unsettled_{false};
    std::deque<Segment> segments_; // declared before what is mapped in them, so that they are destroyed later

public:
    std::mutex mutex; // guards the members below, and the segments
    std::vector<Extent> active;
    std::vector<Batch> paused;
    std::vector<Held> held;
    std::size_t in_hand = 0; // extents of growth and operations: `active` and `held` have spare capacity for each
};

} // namespace detail

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/arena/pages.ipp"
#endif
