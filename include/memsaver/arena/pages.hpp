// The pages of one arena: which extents are active, which ranges are paused, what is held, and the books of them all.
// Does not know which bytes are whose.
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

namespace memsaver::inline v0_2 {

namespace detail {

/// All pages' sizes and addresses are multiples of it. Throws what a failing driver call stands for.
[[nodiscard]] std::size_t granularity_of(const AnyDriver& driver);

/// What an extent owns says what state it is in; nothing is assigned.
enum class ExtentState : unsigned char {
    active, ///< pages are mapped: its bytes can be used
    held,   ///< out of sight, but the driver refused to take the pages back; to be tried again
    paused, ///< addresses only
};

/// Move-only. Dies in the right order: unmapped, then released.
class Extent {
public:
    Extent(Address address, std::size_t bytes) noexcept : address_{address}, bytes_{bytes} {}

    [[nodiscard]] Address address() const noexcept { return address_; }
    [[nodiscard]] Address end() const noexcept { return address_ + bytes_; }
    [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

    [[nodiscard]] ExtentState state() const noexcept;

    /// Physical bytes owned, mapped or held.
    [[nodiscard]] std::size_t physical_bytes() const noexcept { return pages_.get().bytes; }

    /// Takes pages for a paused extent, not mapped yet.
    Status create(const AnyDriver& driver) noexcept { return pages_.open(driver, bytes_); }

    /// Maps created pages and allows access. On failure call `unmap`, which undoes as much as was done.
    Status map(const AnyDriver& driver) noexcept { return map(driver, *this); }
    /// The same of another extent's pages, which has as many bytes and stays their owner.
    Status map(const AnyDriver& driver, const Extent& owner) noexcept;
    /// Pages that it has mapped become its own.
    void take_pages(Extent& owner) noexcept { pages_ = std::move(owner.pages_); }
    [[nodiscard]] bool owns_pages() const noexcept { return pages_.owns(); }

    /// Active to held. On failure it stays active.
    Status unmap() noexcept { return mapping_.close(); }

    /// Held to paused. On failure it stays held.
    Status release() noexcept { return pages_.close(); }

private:
    Address address_;
    std::size_t bytes_;
    OwnedPages pages_; // declared before the mapping, so that it dies after it
    Mapping mapping_;
};

/// A handle costs the driver about as much whatever its size, up to about this one; larger ones gain nothing.
inline constexpr std::size_t largest_extent = 1_GiB;

/// How many bytes an arena that owns `owned` bytes should take next: from one granule to 32 MiB by doubling, then a
/// sixteenth of what it owns in multiples of 32 MiB, up to the largest extent. So at most a sixteenth of an arena, or
/// 32 MiB, is ahead of the program's needs; neighbours come back behind one handle at the next resume.
constexpr std::size_t growth_step(std::size_t owned, std::size_t granularity) noexcept {
    const std::size_t unit = std::max<std::size_t>(granularity, 32_MiB);
    const std::size_t doubling = std::clamp<std::size_t>(std::bit_floor(owned), granularity, unit);
    const std::size_t part = align_down(owned / 16, unit);
    return std::max(granularity, std::min(std::max(doubling, part), std::max(granularity, largest_extent)));
}

/// Which dead ranges, of `total` bytes that were paused, to leave out at resume. Each cut costs a handle, so of those
/// shorter than 16 MiB only the longest go, until what comes back for nothing is at most a sixty-fourth of the rest.
std::vector<Range> worth_cutting(std::vector<Range> dead, std::size_t total);

/// `range` in pieces for one handle each: as few as can be.
void split_into_extents(Range range, std::size_t granularity, std::vector<Range>& pieces);

/// How many bytes of addresses to reserve next, where `reserved` have been and `needed` are wanted: doubling, from
/// 256 MiB to 64 GiB at once.
constexpr std::size_t segment_bytes(std::size_t reserved, std::size_t needed) noexcept {
    return std::max<std::size_t>(needed, std::clamp<std::size_t>(reserved, 256_MiB, 64_GiB));
}

/// First fit from the lowest address, so that what is taken stays together. With a gap, so many bytes are left free
/// between what is taken at once and its neighbours. Not thread safe.
class AddressSpace {
public:
    explicit AddressSpace(Range all, std::size_t gap = 0) : all_{all}, gap_{gap} {}

    /// Whether nothing of it is taken.
    [[nodiscard]] bool unused() const noexcept { return taken_.empty(); }

    /// Takes the lowest gap of `bytes` at a multiple of `alignment` (a power of two). Answers its address, or 0 if
    /// there is none. May throw bad_alloc; then nothing changed.
    Address take(std::size_t bytes, std::size_t alignment);

    /// So that giving back what ends at `at`, of a range that was taken, needs no memory. May throw bad_alloc; then
    /// nothing changed.
    void split(Address at);

    /// Gives back a range that was taken, in whatever pieces. May throw bad_alloc; then nothing changed.
    void give(Range range);

    [[nodiscard]] Range all() const noexcept { return all_; }

private:
    static Address align(Address at, std::size_t alignment) noexcept;

    Range all_;
    std::size_t gap_;
    std::map<Address, Address> taken_; // begin to end; neighbours are not merged
};

/// Every handle of the arena is created and released here, so that the sum is always true. Used by an ArenaCore only,
/// whose operations take turns; `mutex` guards the lists against those who grow and ask meanwhile. It is held over
/// driver calls only where what an earlier call left behind is tried again, and when the arena closes.
class ArenaPages {
public:
    /// Memory that one pause took away, and what holds its bytes.
    struct Batch {
        std::vector<Range> ranges; // sorted
        std::shared_ptr<AnySlot> slot;
    };
    /// An extent whose pages could not be given back so far.
    struct Held {
        Extent extent;
        bool owns_addresses;                     // else they belong to a paused or an elastic range
        std::shared_ptr<const WorkMark> until{}; // work that may still touch it: it was released, and nothing failed
        [[nodiscard]] Range range() const noexcept { return {extent.address(), extent.bytes()}; }
    };

    /// `on_segment` is told of addresses before anything is put there; what it throws, growth throws. Throws what a
    /// failing driver call stands for.
    ArenaPages(AnyDriver driver, std::string tag, ArenaOptions options, std::function<void(Range)> on_segment);

    [[nodiscard]] const AnyDriver& driver() const noexcept { return driver_; }
    [[nodiscard]] const std::string& tag() const noexcept { return tag_; }
    [[nodiscard]] const ArenaOptions& options() const noexcept { return options_; }
    [[nodiscard]] std::size_t granularity() const noexcept { return granularity_; }
    [[nodiscard]] std::size_t capacity() const noexcept { return capacity_.load(); }
    void set_capacity(std::size_t bytes) noexcept { capacity_.store(bytes); }
    [[nodiscard]] std::size_t margin() const noexcept { return margin_.load(); }
    void set_margin(std::size_t bytes) noexcept { margin_.store(bytes); }
    /// Bytes of all segments. With the mutex held.
    [[nodiscard]] std::size_t reserved_bytes() const noexcept;
    [[nodiscard]] std::size_t peak_bytes() const noexcept { return peak_bytes_.load(); }
    [[nodiscard]] std::size_t physical_bytes() const noexcept { return physical_bytes_.load(); } // of handles that live

    // --- one extent ---

    Status create(Extent& extent) noexcept;
    /// What fails stays in the extent.
    Status release(Extent& extent) noexcept;
    Status drop(Extent& extent) noexcept;
    /// Releases pages that were never mapped. What fails stays with its extent; all may be filled again.
    void give_up_pages(std::vector<Extent>& extents) noexcept;
    /// Undoes what a failed operation took: `extents` are no longer in hand. What cannot be given back is held, and
    /// told. `in_use`: work of the library's own may still touch the pages; they are not unmapped before the device has
    /// passed it.
    void abandon(std::vector<Extent>& extents, bool owns_addresses, bool in_use = false) noexcept;
    void hold(Extent&& extent, bool owns_addresses, const Status& status) noexcept;
    /// The same of what goes once `until` has passed.
    void hold_until(Extent&& extent, const std::shared_ptr<const WorkMark>& until) noexcept;
    /// Physical bytes that wait so.
    [[nodiscard]] std::size_t waiting_bytes() noexcept;
    [[nodiscard]] bool anything_waits() noexcept { return waiting_bytes() != 0; }
    /// What is waited for by what lies in any of `ranges`. May throw bad_alloc.
    [[nodiscard]] std::vector<std::shared_ptr<const WorkMark>> awaited_in(const std::vector<Range>& ranges);
    /// Copies that a failed operation began may still be under way: nothing goes before `settle` has waited for them.
    void unsettle() noexcept { unsettled_.store(true); }
    Status settle() noexcept;
    /// Where pages are that could not be unmapped, sorted.
    [[nodiscard]] std::vector<Range> mapped_and_held();
    /// Tries again to give back what is held, but for what still waits for work. With the turn held.
    Status retry_held();

    /// Pages of a mapped extent of `from`'s become those of `to`, an extent of this arena that has them mapped too.
    void take_over(Extent& to, ArenaPages& from, Extent& extent) noexcept;
    /// Creates pages where there are none and nothing is mapped, as far as it goes. out_of_memory too if less than the
    /// margin would be left.
    Status create_all(std::vector<Extent>& extents, std::size_t beside = 0) noexcept;
    [[noreturn]] void raise_no_room(const Status& status, const char* what, std::size_t needed) const;
    /// Extents without pages for `ranges`, as few as can be; one each where every block has a single handle. They are
    /// in hand until `activate` or `abandon` takes them.
    std::vector<Extent> plan(const std::vector<Range>& ranges);
    /// Extents that were planned, and have nothing yet, are planned otherwise: one for each of `ranges`, however large.
    /// May throw; then nothing changed.
    void plan_again(std::vector<Extent>& extents, const std::vector<Range>& ranges);
    /// Extents in hand become active. With the mutex held.
    void activate(std::vector<Extent>& extents) noexcept;

    // --- growth ---

    /// Addresses for `bytes`, in a segment that has them or in one more. One thread at a time.
    Range take_addresses(std::size_t bytes, std::size_t alignment);
    /// Puts active memory at addresses that have been taken, and calls `offer(range)`; on failure they are given back.
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
    /// Needs memory only if pages could not be given back.
    void abandon_growth(Range range, std::vector<Extent>& extents);

    // --- what is paused ---

    /// The paused ranges, sorted.
    [[nodiscard]] std::vector<Range> paused_ranges();
    /// A paused range that nobody needs is dropped, and its addresses given back, if `take_out()` says so. May throw
    /// bad_alloc; then nothing changed.
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
    /// Ranges go whose addresses stay taken: they are paused no more, and the active extents in them are moved to
    /// `extents`, in hand. `act()` is called once nothing else can fail, with the mutex held. May throw bad_alloc; then
    /// nothing changed.
    void take_out(const std::vector<Range>& ranges, std::vector<Extent>& extents, FunctionRef<void()> act);
    /// Tells the slots that hold the bytes of one pause each, which are all but `own`.
    void forget_block(std::uint64_t serial, const AnySlot* own) noexcept;
    void give_addresses(Range range);
    /// Gives everything back. A lost device is no failure. Answers the first failure; what is left is tried again by
    /// the next call.
    Status close() noexcept;

private:
    void note_peak(std::size_t now) noexcept;
    /// Extents without pages, one for each of `ranges`, in hand.
    std::vector<Extent> plan_each(const std::vector<Range>& ranges);

    /// Addresses reserved at once. A granule more than is ever used lies between it and the next one, so that no extent
    /// ever spans two.
    struct Segment {
        Reservation reservation;
        AddressSpace space;
    };

    /// The segment that a range lies in. With the mutex held.
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
    std::deque<Segment> segments_; // declared before what is mapped in them, so that they die later

public:
    std::mutex mutex; // guards these, and the segments
    std::vector<Extent> active;
    std::vector<Batch> paused;
    std::vector<Held> held;
    std::size_t in_hand = 0; // extents that growth and operations have: `active` and `held` have room for each of them
};

} // namespace detail

} // namespace memsaver::inline v0_2

#ifndef MEMSAVER_COMPILED
#include "memsaver/arena/pages.ipp"
#endif
