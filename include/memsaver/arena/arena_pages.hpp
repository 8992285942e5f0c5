// The pages of one arena: which extents are active, which ranges are paused, what is held, and the books of them all.
// Does not know which bytes are whose.
#pragma once

#include "memsaver/arena/address_space.hpp"
#include "memsaver/arena/arena_options.hpp"
#include "memsaver/arena/extent_sizes.hpp"
#include "memsaver/backup/backup.hpp"
#include "memsaver/memory/memory.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <utility>
#include <vector>

namespace memsaver::inline v0_1 {

/// Every handle of the arena is created and released here, so that the sum is always true. Used by an ArenaCore and its
/// steps only, which take turns; `mutex` guards the lists against those who grow and ask meanwhile, and is not held
/// over a driver call, but for retries.
template <Driver D>
class ArenaPages {
public:
    /// Memory that one pause took away, and what holds its bytes.
    struct Batch {
        std::vector<Range> ranges; // sorted
        std::shared_ptr<AnySlot> slot;
    };
    /// An extent whose pages could not be given back so far.
    struct Held {
        Extent<D> extent;
        bool owns_addresses; // else they belong to a paused range
        [[nodiscard]] Range range() const noexcept { return {extent.address(), extent.bytes()}; }
    };

    /// Throws Misuse for an impossible capacity, or what a failing driver call stands for.
    ArenaPages(D driver, std::string tag, ArenaOptions options)
        : driver_{std::move(driver)}, tag_{std::move(tag)}, options_{std::move(options)},
          granularity_(granularity_of(driver_)), reservation_(reserve()),
          space_(Range{reservation_.address(), reservation_.bytes()}) {}

    [[nodiscard]] const D& driver() const noexcept { return driver_; }
    [[nodiscard]] const std::string& tag() const noexcept { return tag_; }
    [[nodiscard]] const ArenaOptions& options() const noexcept { return options_; }
    [[nodiscard]] std::size_t granularity() const noexcept { return granularity_; }
    [[nodiscard]] Range addresses() const noexcept { return space_.all(); }
    [[nodiscard]] std::size_t physical_bytes() const noexcept { return physical_bytes_.load(); } // of handles that live

    // --- one extent ---

    Status create(Extent<D>& extent) noexcept {
        const Status status = extent.create(driver_);
        if (status.ok()) physical_bytes_ += extent.bytes();
        return status;
    }
    /// What fails stays in the extent.
    Status release(Extent<D>& extent) noexcept {
        const std::size_t before = extent.physical_bytes();
        const Status status = extent.release();
        if (status.ok()) physical_bytes_ -= before;
        return status;
    }
    Status drop(Extent<D>& extent) noexcept {
        const Status status = extent.unmap();
        return status.ok() ? release(extent) : status;
    }
    /// Releases pages that were never mapped. What fails stays with its extent; all may be filled again.
    void give_up_pages(std::vector<Extent<D>>& extents) noexcept {
        for (Extent<D>& extent : extents) {
            if (extent.state() == ExtentState::held) (void)release(extent);
        }
    }
    /// Undoes what a failed operation took: `extents` are no longer in hand. What cannot be given back is held, and
    /// told. `in_use`: work of the library's own may still touch the pages; they are not unmapped before the device has
    /// passed it.
    void abandon(std::vector<Extent<D>>& extents, bool owns_addresses, bool in_use = false) noexcept {
        const Status drained = in_use ? driver_.drain() : Status{};
        for (Extent<D>& extent : extents) {
            const Status status = drained.ok() ? drop(extent) : drained;
            if (!status.ok()) hold(std::move(extent), owns_addresses, status);
        }
        const std::lock_guard lock{mutex};
        in_hand -= extents.size();
        extents.clear();
    }
    void hold(Extent<D>&& extent, bool owns_addresses, const Status& status) noexcept {
        const EventSink none; // a lost device keeps nothing, and there is nothing to try
        tell(status.kind == StatusKind::gone ? none : options_.events, [&] {
            return Event{EventKind::ignored, tag_, driver_.device(),
                         failure_text(status, "give pages back; it will be tried again")};
        });
        const std::lock_guard lock{mutex};
        held.push_back({std::move(extent), owns_addresses}); // there is room for whatever is in hand
    }
    /// Where pages are that could not be unmapped, sorted.
    [[nodiscard]] std::vector<Range> mapped_and_held() {
        const std::lock_guard lock{mutex};
        std::vector<Range> ranges;
        for (const Held& each : held) {
            if (each.extent.state() == ExtentState::active) ranges.push_back(each.range());
        }
        sort_by_address(ranges);
        return ranges;
    }
    /// Tries again to give back what is held. With the turn held.
    Status retry_held() {
        if (!mapped_and_held().empty()) { // by an operation that failed, perhaps while its own work was under way
            if (const Status drained = driver_.drain(); !drained.ok()) return drained;
        }
        const std::lock_guard lock{mutex};
        Status first;
        for (std::size_t i = 0; i < held.size();) { // no erase_if: `give` may throw
            Held& kept = held[i];
            if (const Status status = drop(kept.extent); !status.ok()) {
                if (first.ok()) first = status;
                ++i;
                continue;
            }
            if (kept.owns_addresses) space_.give(kept.range());
            if (i + 1 != held.size()) kept = std::move(held.back());
            held.pop_back();
        }
        return first;
    }

    /// Creates pages where there are none, as far as it goes. out_of_memory too if less than the margin would be left.
    Status create_all(std::vector<Extent<D>>& extents) noexcept {
        std::size_t needed = 0;
        for (const Extent<D>& extent : extents) needed += extent.bytes() - extent.physical_bytes();
        if (options_.margin != 0 && needed != 0) {
            DeviceMemory memory;
            if (const Status status = driver_.memory(memory); !status.ok()) return status;
            if (memory.free_bytes < options_.margin || memory.free_bytes - options_.margin < needed)
                return {StatusKind::out_of_memory, 0, "less than the margin would be left free"};
        }
        for (Extent<D>& extent : extents) {
            if (extent.state() == ExtentState::held) continue; // could not be given back when there was no room
            const Status status = create(extent);
            if (!status.ok()) return status;
        }
        return {};
    }
    [[noreturn]] void raise_no_room(const Status& status, const char* what, std::size_t needed) const {
        DeviceMemory memory;
        (void)driver_.memory(memory);
        raise(status, what,
              "tag \"" + tag_ + "\" on " + driver_.name() + " needs " + format_bytes(needed) + ", " +
                  format_bytes(memory.free_bytes) + " are free",
              needed, memory.free_bytes);
    }
    /// Extents without pages for `ranges`. They are in hand until `activate` or `abandon` takes them.
    std::vector<Extent<D>> plan(const std::vector<Range>& ranges) {
        std::vector<Range> pieces;
        for (const Range& range : ranges) split_into_extents(range, granularity_, pieces);
        std::vector<Extent<D>> extents;
        extents.reserve(pieces.size());
        for (const Range& piece : pieces) extents.emplace_back(piece.address, piece.bytes);
        const std::lock_guard lock{mutex};
        active.reserve(active.size() + in_hand + pieces.size());
        held.reserve(held.size() + active.size() + in_hand + pieces.size());
        in_hand += pieces.size();
        return extents;
    }
    /// Extents in hand become active. With the mutex held.
    void activate(std::vector<Extent<D>>& extents) noexcept {
        for (Extent<D>& extent : extents) active.push_back(std::move(extent));
        in_hand -= extents.size();
        extents.clear();
    }

    // --- growth ---

    /// Addresses for `wanted` bytes, or for the `needed` ones where the capacity allows no more.
    Range take_addresses(std::size_t wanted, std::size_t needed, std::size_t alignment) {
        const std::lock_guard lock{mutex};
        for (const std::size_t bytes : {wanted, needed}) {
            if (const Address address = space_.take(bytes, std::max(alignment, granularity_))) return {address, bytes};
        }
        throw Misuse{"tag \"" + tag_ + "\": no room for " + format_bytes(needed) + " more in its capacity of " +
                     format_bytes(reservation_.bytes())};
    }
    /// Puts active memory at addresses that have been taken, and calls `offer(range)`; on failure they are given back.
    template <class Offer>
    Status grow_into(Range range, Offer&& offer) {
        std::vector<Extent<D>> extents;
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
    void abandon_growth(Range range, std::vector<Extent<D>>& extents) {
        abandon(extents, true);
        const std::lock_guard lock{mutex};
        std::vector<Range> kept; // their addresses go once their pages do
        for (const Held& each : held) {
            if (each.owns_addresses && overlap(range, each.range())) kept.push_back(each.range());
        }
        if (kept.empty()) return space_.give(range);
        sort_by_address(kept);
        for (const Range& rest : without({range}, kept)) space_.give(rest);
    }

    // --- what is paused ---

    /// The paused ranges, sorted.
    [[nodiscard]] std::vector<Range> paused_ranges() {
        const std::lock_guard lock{mutex};
        std::vector<Range> ranges;
        for (const Batch& batch : paused) ranges.insert(ranges.end(), batch.ranges.begin(), batch.ranges.end());
        sort_by_address(ranges);
        return ranges;
    }
    /// A paused range that nobody needs is dropped, and its addresses given back, if `take_out()` says so. May throw
    /// bad_alloc; then nothing changed.
    template <class TakeOut>
    void forget_paused(Range range, TakeOut&& take_out) {
        const std::lock_guard lock{mutex};
        std::vector<std::vector<Range>> left;
        for (const Batch& batch : paused) left.push_back(without(batch.ranges, {range}));
        space_.split(range.end());
        if (!take_out()) return;
        space_.give(range);
        for (std::size_t i = 0; i < left.size(); ++i) paused[i].ranges.swap(left[i]);
        std::erase_if(paused, [](const Batch& batch) { return batch.ranges.empty(); });
    }
    /// Tells the slots that hold the bytes of one pause each, which are all but `own`.
    void forget_block(std::uint64_t serial, const AnySlot* own) noexcept {
        const std::lock_guard lock{mutex};
        for (const Batch& batch : paused) {
            if (batch.slot.get() != own) batch.slot->forget(serial);
        }
    }
    void give_addresses(Range range) { // that no extent needs any more
        const std::lock_guard lock{mutex};
        space_.give(range);
    }
    /// Gives everything back, addresses only if `bare` of what others mapped there. A lost device is no failure.
    /// Answers the first failure; what is left is tried again by the next call.
    Status close(bool bare = true) noexcept {
        const std::lock_guard lock{mutex};
        Status first;
        const auto try_to = [&](const Status& status) {
            if (!status.ok() && status.kind != StatusKind::gone && first.ok()) first = status;
            return status.ok();
        };
        std::erase_if(held, [&](Held& kept) { return try_to(drop(kept.extent)); });
        std::erase_if(active, [&](Extent<D>& extent) { return try_to(drop(extent)); });
        paused.clear();
        if (bare && active.empty() && held.empty()) try_to(reservation_.close());
        return first;
    }
    [[nodiscard]] bool reserved() const noexcept { return reservation_.address() != 0; }

private:
    [[nodiscard]] Reservation<D> reserve() const {
        std::size_t bytes = options_.capacity;
        if (bytes == 0) {
            DeviceMemory memory;
            check(driver_.memory(memory), "ask for the device's memory");
            bytes = 2 * memory.total_bytes;
        }
        if (!can_align_up(bytes, granularity_)) throw Misuse{"arena \"" + tag_ + "\": the capacity is too large"};
        return {driver_, align_up(bytes, granularity_), std::max<std::size_t>(granularity_, 1_MiB)};
    }

    D driver_;
    std::string tag_;
    ArenaOptions options_;
    std::size_t granularity_;
    Reservation<D> reservation_; // declared before what is mapped in it, so that it dies later
    AddressSpace space_;
    std::atomic<std::size_t> physical_bytes_{0};

public:
    std::mutex mutex; // guards these, and the address space
    std::vector<Extent<D>> active;
    std::vector<Batch> paused;
    std::vector<Held> held;
    std::size_t in_hand = 0; // extents that growth and operations have: `active` and `held` have room for each of them
};

} // namespace memsaver::inline v0_1
