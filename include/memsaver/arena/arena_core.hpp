// One tag's memory on one device: grows, hands out blocks, and lets steps pause and resume it.
// Does not know other tags.
#pragma once

#include "memsaver/arena/address_space.hpp"
#include "memsaver/arena/arena_base.hpp"
#include "memsaver/arena/arena_options.hpp"
#include "memsaver/arena/extent_sizes.hpp"
#include "memsaver/arena/heaps.hpp"
#include "memsaver/arena/turn.hpp"
#include "memsaver/backup/backup.hpp"
#include "memsaver/memory/memory.hpp"

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace memsaver::inline v0_1 {

template <Driver D>
class PauseStep;
template <Driver D>
class ResumeStep;
template <Driver D>
class TrimStep;

/// Locks, in the order in which they are taken: the turn (one operation at a time; held across waits and copies), then
/// `growing_` (one thread grows; held across driver calls that do not wait), then `mutex_` or the heaps' (bookkeeping).
template <Driver D>
class ArenaCore final : public ArenaBase {
public:
    /// Throws Misuse for impossible options, OutOfMemory if `options.reserve` does not fit, or what a failing driver
    /// call stands for.
    ArenaCore(D driver, std::string tag, AnyBackup<D> policy, ArenaOptions options)
        : driver_{std::move(driver)}, tag_{std::move(tag)}, policy_{std::move(policy)}, options_{std::move(options)},
          granularity_{ask_granularity(driver_)},
          reservation_{driver_, capacity(), std::max<std::size_t>(granularity_, 1_MiB)}, space_{{reservation_.address(),
                                                                                                 reservation_.bytes()}},
          heaps_{driver_, space_.all(), granularity_}, slot_{policy_.open(driver_)} {
        if (options_.reserve != 0) grow(0, options_.reserve, granularity_);
    }

    ~ArenaCore() override {
        try {
            close();
        } catch (const std::exception& error) {
            tell(options_.events, [&] { return Event{EventKind::ignored, tag_, device(), error.what()}; });
        }
    }

    void* allocate(std::size_t bytes, std::size_t alignment) override {
        const std::size_t size = check_request(bytes, alignment);
        try {
            for (bool fenced = false;;) {
                require_open("allocate");
                const std::uint64_t seen = growths_.load();
                if (const Address address = heaps_.allocate(size, alignment, bytes)) return pointer(address);
                if (heaps_.fence_is_worth_it(size, growth_step(physical_bytes_.load(), granularity_))) {
                    heaps_.fence();
                    continue;
                }
                try {
                    grow(seen, size, alignment);
                } catch (const Error&) { // no room: what waits to be reused may be room enough
                    if (fenced || !heaps_.anything_fenced()) throw;
                    heaps_.fence();
                    fenced = true;
                }
            }
        } catch (const std::bad_alloc&) {
            throw OutOfHostMemory{"allocate(" + format_bytes(bytes) + ") in tag \"" + tag_ +
                                  "\": no host memory for it"};
        }
    }

    void deallocate(void* pointer, FreeOrder order) override {
        if (pointer == nullptr) return;
        require_open("deallocate");
        if (!contains(pointer)) {
            throw Misuse{"deallocate(" + format_address(address_of(pointer)) + "): not a pointer of tag \"" + tag_ +
                         '"'};
        }
        try {
            slot_->forget(heaps_.deallocate(address_of(pointer), order, tag_));
        } catch (const std::bad_alloc&) {
            throw OutOfHostMemory{"deallocate in tag \"" + tag_ + "\": no host memory for it"};
        }
    }

    void deallocate_quietly(void* pointer) noexcept override {
        if (closed_.load()) return;
        try {
            deallocate(pointer, {});
        } catch (const std::exception& error) {
            tell(options_.events, [&] { return Event{EventKind::ignored, tag_, device(), error.what()}; });
        }
    }

    [[nodiscard]] bool contains(const void* pointer) const noexcept override {
        const auto address = reinterpret_cast<Address>(pointer);
        return address >= space_.all().address && address < space_.all().end();
    }

    [[nodiscard]] ArenaUsage usage() override {
        const auto sums = heaps_.sums();
        const std::lock_guard lock{mutex_};
        ArenaUsage row;
        row.tag = tag_;
        row.device = device();
        row.policy = policy_.name();
        row.reserved_bytes = reservation_.address() == 0 ? 0 : reservation_.bytes();
        row.mapped_bytes = physical_bytes_.load();
        for (const Held& held : held_) row.held_bytes += held.extent.physical_bytes();
        row.used_bytes = sums.live_bytes;
        row.blocks = sums.live_blocks;
        for (const Batch& batch : paused_) {
            for (const Range& range : batch.ranges) row.paused_bytes += range.bytes;
        }
        row.backed_up_bytes = slot_->backed_up_bytes();
        const bool some_active = row.mapped_bytes > row.held_bytes;
        row.state = closed_.load()          ? "closed"
                    : row.paused_bytes == 0 ? (some_active ? "active" : "empty")
                                            : (some_active ? "partly paused" : "paused");
        return row;
    }

    [[nodiscard]] const std::string& tag() const noexcept override { return tag_; }
    [[nodiscard]] int device() const noexcept override { return driver_.device(); }
    [[nodiscard]] const D& driver() const noexcept { return driver_; }
    [[nodiscard]] const AnyBackup<D>& policy() const noexcept { return policy_; }
    [[nodiscard]] const ArenaOptions& options() const noexcept { return options_; }

    /// The right to run one operation. Throws NotIdle once the deadline has passed, Misuse after `close`.
    Turn::Hold take_turn(const Deadline& deadline = {}) {
        auto hold = turn_.take(deadline);
        require_open("use");
        return hold;
    }

    /// The same if it is to be had at once.
    std::optional<Turn::Hold> try_turn() { return closed_.load() ? std::optional<Turn::Hold>{} : turn_.try_take(); }

    /// All addresses that its blocks can have.
    [[nodiscard]] Range addresses() const noexcept { return space_.all(); }

    /// Physical bytes that a resume would take now.
    [[nodiscard]] std::size_t bytes_to_resume() {
        std::size_t bytes = 0;
        for (const Range& range : ranges_to_resume()) bytes += range.bytes;
        return bytes;
    }

    /// The program changed bytes that the policy may have saved before: save them again at the next pause.
    void invalidate() {
        const auto turn = take_turn();
        slot_->invalidate();
    }

    /// Gives everything back, waiting for the device first. Later calls throw Misuse, but for those of destructors. A
    /// lost device is no failure here. Throws what the first failing driver call stands for, after everything has been
    /// tried; what is left is tried again by the next call.
    void close() {
        const auto turn = turn_.take();
        const std::lock_guard growing{growing_};
        const bool first_time = !closed_.exchange(true);
        if (first_time) {
            const Status drained = driver_.drain(); // memory that work still uses is not pulled away
            if (!drained.ok() && drained.kind != StatusKind::gone) {
                closed_.store(false);
                check(drained, "wait for the device before an arena closes");
            }
        }
        const std::lock_guard lock{mutex_};
        Status first;
        const auto note = [&](const Status& status) {
            if (!status.ok() && status.kind != StatusKind::gone && first.ok()) first = status;
        };
        std::erase_if(held_, [&](Held& held) { return note_and_drop(held.extent, note); });
        std::erase_if(active_, [&](Extent<D>& extent) { return note_and_drop(extent, note); });
        paused_.clear();
        if (active_.empty() && held_.empty()) note(reservation_.close());
        check(first, "give back an arena's memory");
    }

private:
    friend class PauseStep<D>;
    friend class ResumeStep<D>;
    friend class TrimStep<D>;

    /// Memory that one pause took away, and what holds its bytes.
    struct Batch {
        std::vector<Range> ranges; // sorted
        std::shared_ptr<AnySlot> slot;
    };
    /// An extent whose pages could not be given back so far.
    struct Held {
        Extent<D> extent;
        bool owns_addresses; // else they belong to a paused range
    };

    static std::size_t ask_granularity(const D& driver) {
        std::size_t granularity = 0;
        check(driver.granularity(granularity), "ask for the granularity of pages");
        return granularity;
    }
    [[nodiscard]] std::size_t capacity() const {
        std::size_t bytes = options_.capacity;
        if (bytes == 0) {
            DeviceMemory memory;
            check(driver_.memory(memory), "ask for the device's memory");
            bytes = 2 * memory.total_bytes;
        }
        if (!can_align_up(bytes, granularity_)) throw Misuse{"arena \"" + tag_ + "\": the capacity is too large"};
        return align_up(bytes, granularity_);
    }

    [[nodiscard]] std::size_t check_request(std::size_t bytes, std::size_t alignment) const {
        const auto refuse = [&](const std::string& why) {
            throw Misuse{"allocate(" + std::to_string(bytes) + " bytes) in tag \"" + tag_ + "\": " + why};
        };
        if (bytes == 0) refuse("the size is 0");
        if (alignment == 0 || (alignment & (alignment - 1)) != 0) {
            refuse("the alignment of " + std::to_string(alignment) + " is not a power of two");
        }
        if (bytes > reservation_.bytes() || alignment > reservation_.bytes()) {
            refuse("more than the tag's capacity of " + format_bytes(reservation_.bytes()));
        }
        return align_up(bytes, BlockAllocator::unit);
    }
    void require_open(const char* what) const {
        if (closed_.load()) throw Misuse{std::string{what} + ": tag \"" + tag_ + "\" has been closed"};
    }

    static Address address_of(const void* pointer) noexcept { return reinterpret_cast<Address>(pointer); }
    static void* pointer(Address address) noexcept {
        return reinterpret_cast<void*>(address); // NOLINT(performance-no-int-to-ptr): device addresses are numbers
    }

    // --- physical memory: every handle is created and released here, so that the sum is always true ---

    Status create(Extent<D>& extent) noexcept {
        const Status status = extent.create(driver_);
        if (status.ok()) physical_bytes_ += extent.bytes();
        return status;
    }
    Status release(Extent<D>& extent) noexcept {
        const std::size_t bytes = extent.physical_bytes();
        const Status status = extent.release();
        if (status.ok()) physical_bytes_ -= bytes;
        return status;
    }
    /// Unmaps and releases; what fails stays in the extent.
    Status drop(Extent<D>& extent) noexcept {
        const Status status = extent.unmap();
        return status.ok() ? release(extent) : status;
    }
    template <class Note>
    bool note_and_drop(Extent<D>& extent, Note&& note) noexcept {
        const Status status = drop(extent);
        note(status);
        return status.ok();
    }

    /// Releases pages that were created but never mapped; the extents may be filled again.
    void give_up_pages(std::vector<Extent<D>>& extents) noexcept {
        for (Extent<D>& extent : extents) {
            if (extent.state() == ExtentState::paused) continue;
            if (const Status status = release(extent); !status.ok()) {
                const Range range{extent.address(), extent.bytes()};
                hold(std::move(extent), false, status);
                extent = Extent<D>{range.address, range.bytes};
            }
        }
    }
    /// Undoes what a failed operation took. What cannot be given back is held, and told.
    void abandon(std::vector<Extent<D>>& extents, bool owns_addresses) noexcept {
        for (Extent<D>& extent : extents) {
            const Status status = drop(extent);
            if (!status.ok()) hold(std::move(extent), owns_addresses, status);
        }
        extents.clear();
    }
    void hold(Extent<D>&& extent, bool owns_addresses, const Status& status) noexcept {
        tell(options_.events, [&] {
            return Event{EventKind::ignored, tag_, device(),
                         failure_text(status, "give pages back; it will be tried again")};
        });
        const std::lock_guard lock{mutex_};
        held_.push_back({std::move(extent), owns_addresses}); // room is reserved whenever an extent is made
    }
    /// Tries again to give back what is held. With the turn held.
    Status retry_held() {
        const std::lock_guard lock{mutex_};
        Status first;
        std::erase_if(held_, [&](Held& held) {
            const Status status = drop(held.extent);
            if (!status.ok()) {
                if (first.ok()) first = status;
                return false;
            }
            if (held.owns_addresses) space_.give({held.extent.address(), held.extent.bytes()});
            return true;
        });
        return first;
    }

    /// Creates pages for all of `extents`, or for none. Answers out_of_memory too if less than the margin would be
    /// left.
    Status create_all(std::vector<Extent<D>>& extents) noexcept {
        if (options_.margin != 0) {
            std::size_t needed = options_.margin;
            for (const Extent<D>& extent : extents) needed += extent.bytes();
            DeviceMemory memory;
            const Status status = driver_.memory(memory);
            if (!status.ok()) return status;
            if (memory.free_bytes < needed)
                return {StatusKind::out_of_memory, 0, "less than the margin would be left free"};
        }
        for (Extent<D>& extent : extents) {
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
    /// Extents without pages for `ranges`, and room to hold them all should giving them back fail.
    std::vector<Extent<D>> plan(const std::vector<Range>& ranges) {
        std::vector<Range> pieces;
        for (const Range& range : ranges) split_into_extents(range, granularity_, pieces);
        std::vector<Extent<D>> extents;
        extents.reserve(pieces.size());
        for (const Range& piece : pieces) extents.emplace_back(piece.address, piece.bytes);
        const std::lock_guard lock{mutex_};
        active_.reserve(active_.size() + pieces.size());
        held_.reserve(held_.size() + active_.capacity() + pieces.size());
        return extents;
    }

    // --- growth ---

    /// Takes open memory for a block of `bytes`, unless somebody has grown the arena since `seen`.
    void grow(std::uint64_t seen, std::size_t bytes, std::size_t alignment) {
        const std::lock_guard growing{growing_};
        require_open("allocate");
        if (growths_.load() != seen) return;
        const std::size_t needed = align_up(bytes, granularity_);
        const std::size_t step = std::max(needed, growth_step(physical_bytes_.load(), granularity_));
        Range range = take_addresses(step, needed, alignment);
        Status status = grow_into(range);
        if (status.kind == StatusKind::out_of_memory && range.bytes != needed) {
            range = take_addresses(needed, needed, alignment);
            status = grow_into(range);
        }
        if (!status.ok()) raise_no_room(status, "take memory for an allocation", needed);
        growths_ += 1;
    }
    /// Addresses for `wanted` bytes, or for the `needed` ones where the capacity allows no more.
    Range take_addresses(std::size_t wanted, std::size_t needed, std::size_t alignment) {
        const std::lock_guard lock{mutex_};
        for (const std::size_t bytes : {wanted, needed}) {
            if (const Address address = space_.take(bytes, std::max(alignment, granularity_))) return {address, bytes};
        }
        throw Misuse{"tag \"" + tag_ + "\": no room for " + format_bytes(needed) + " more in its capacity of " +
                     format_bytes(reservation_.bytes())};
    }
    /// Puts open memory at addresses that have been taken; on failure they are given back.
    Status grow_into(Range range) {
        std::vector<Extent<D>> extents;
        try {
            extents = plan({range});
            Status status = create_all(extents);
            for (std::size_t i = 0; status.ok() && i < extents.size(); ++i) status = extents[i].map(driver_);
            if (!status.ok()) {
                abandon_growth(range, extents);
                return status;
            }
            heaps_.add(range);
        } catch (const std::bad_alloc&) {
            abandon_growth(range, extents);
            throw;
        }
        const std::lock_guard lock{mutex_};
        for (Extent<D>& extent : extents) active_.push_back(std::move(extent));
        return {};
    }
    void abandon_growth(Range range, std::vector<Extent<D>>& extents) {
        std::vector<Range> kept;
        kept.reserve(extents.size());
        for (const Extent<D>& extent : extents) kept.push_back({extent.address(), extent.bytes()});
        abandon(extents, true);
        const std::lock_guard lock{mutex_};
        std::erase_if(kept, [&](const Range& piece) { return !holds(piece.address); });
        for (const Range& rest : without({range}, kept)) space_.give(rest);
    }
    [[nodiscard]] bool holds(Address address) const noexcept {
        return std::any_of(held_.begin(), held_.end(),
                           [&](const Held& held) { return held.owns_addresses && held.extent.address() == address; });
    }

    // --- what is paused ---

    /// The paused ranges, sorted.
    [[nodiscard]] std::vector<Range> paused_ranges() {
        const std::lock_guard lock{mutex_};
        std::vector<Range> ranges;
        for (const Batch& batch : paused_) ranges.insert(ranges.end(), batch.ranges.begin(), batch.ranges.end());
        sort(ranges);
        return ranges;
    }
    /// The parts of paused ranges in which no block lives, in whole granules, long enough to be worth leaving out.
    [[nodiscard]] std::vector<Range> dead_ranges(const std::vector<Range>& paused) {
        std::vector<Range> dead;
        for (const Range& free : heaps_.free_ranges(granularity_, Side::shut)) {
            const Address begin = align_up(free.address, granularity_);
            const Address end = align_down(free.end(), granularity_);
            if (begin < end) dead.push_back({begin, end - begin});
        }
        sort(dead);
        dead = intersection(dead, paused);
        std::erase_if(dead, [&](const Range& range) { // short, and not the whole of what is between others
            if (range.bytes >= shortest_cut) return false;
            const auto whole = [&](const Range& held) {
                return held.address >= range.address && held.end() <= range.end();
            };
            return std::none_of(paused.begin(), paused.end(), whole);
        });
        return dead;
    }
    [[nodiscard]] std::vector<Range> ranges_to_resume() {
        const std::vector<Range> paused = paused_ranges();
        return without(paused, dead_ranges(paused));
    }
    /// Paused ranges in which no block lives are dropped, and their addresses given back. With the turn held. May throw
    /// bad_alloc; what has been dropped by then is gone, and was nobody's.
    void forget_paused(const std::vector<Range>& dead) {
        for (const Range& range : dead) {
            if (!heaps_.remove_if_free(range, Side::shut)) continue; // cannot be: nothing is allocated there
            const std::lock_guard lock{mutex_};
            for (Batch& batch : paused_) batch.ranges = without(batch.ranges, {range});
            space_.give(range);
        }
        const std::lock_guard lock{mutex_};
        std::erase_if(paused_, [](const Batch& batch) { return batch.ranges.empty(); });
    }
    void open_all() noexcept {
        const std::vector<Range> none;
        try {
            heaps_.end_operation(&none, [](Address) { return false; });
        } catch (const std::bad_alloc&) { // opening everything needs no memory
        }
    }
    /// Ends a step. Blocks given up in paused memory become free: no work can touch them. With `shut_stays`, exactly
    /// what was shut during the step is paused now.
    void end_operation(bool shut_stays) noexcept {
        try {
            const std::vector<Range> paused = paused_ranges();
            const auto passed = [&](Address address) {
                const auto after = std::upper_bound(paused.begin(), paused.end(), address,
                                                    [](Address a, const Range& range) { return a < range.address; });
                return after != paused.begin() && address < std::prev(after)->end();
            };
            heaps_.end_operation(shut_stays ? nullptr : &paused, passed);
        } catch (const std::bad_alloc&) { // what is open stays shut: it serves nobody until the next step ends
            tell(options_.events, [&] {
                return Event{EventKind::ignored, tag_, device(), "no host memory to reopen memory"};
            });
        }
    }
    static void sort(std::vector<Range>& ranges) noexcept {
        std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) { return a.address < b.address; });
    }

    D driver_;
    std::string tag_;
    AnyBackup<D> policy_;
    ArenaOptions options_;
    std::size_t granularity_;
    Reservation<D> reservation_; // before what is mapped in it, so that it dies later
    std::atomic<bool> closed_{false};
    std::atomic<std::size_t> physical_bytes_{0};
    std::atomic<std::uint64_t> growths_{0};
    Turn turn_;
    std::mutex growing_;
    std::mutex mutex_; // guards the next four
    AddressSpace space_;
    std::vector<Extent<D>> active_;
    std::vector<Batch> paused_;
    std::vector<Held> held_;
    Heaps<D> heaps_;
    std::shared_ptr<AnySlot> slot_;
};

} // namespace memsaver::inline v0_1
