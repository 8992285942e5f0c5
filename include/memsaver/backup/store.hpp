// A store as a slot sees it: storage in memory or a file. Knows locations, not blocks.
#pragma once

#include "memsaver/backup/kernel_copies.hpp"
#include "memsaver/backup/policy.hpp"
#include "memsaver/backup/refresh.hpp"
#include "memsaver/backup/transfer.hpp"
#include "memsaver/core/error.hpp"
#include "memsaver/core/lists.hpp"
#include "memsaver/core/pointers.hpp"
#include "memsaver/core/vector.hpp"
#include "memsaver/driver/ring.hpp"
#include "memsaver/heap/block_allocator.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

namespace memsaver::inline v0_3::detail {

struct StoreOptions {
    CrewOptions crew{};
    std::size_t ring_bytes = 64_MiB; ///< pinned memory of the ring, in bytes
    std::shared_ptr<PieceObserver> observer{};
    KernelCopyOptions kernel_copies{};
};

/// Storage that a store has added. Never at location 0.
struct Room {
    std::uint64_t location = 0;
    std::size_t bytes = 0;
};

/// Returns the beginning of an error message, which names the tag.
inline std::string of_tag(const std::string& tag) {
    return tag.empty() ? tag : text_of({"tag ", in_quotes(tag), ", "});
}

inline Status first_failure(std::initializer_list<Status> all) noexcept {
    for (const Status& status : all) {
        if (!status.ok()) return status;
    }
    return {};
}

class BackupStore;

/// Keeps the free locations of a store. Allocates from the front of a free range that fits well, so that blocks placed
/// one after the other into fresh storage are adjacent. No allocation spans two Rooms, even adjacent ones, because each
/// Room is pinned and freed separately. Locations are not 0. Not thread-safe. `grow`, `add`, `take` and `give` may
/// throw bad_alloc; nothing has changed then.
class LocationSpace {
public:
    /// `alignment`: of the Rooms, and of the ranges that are in use; at least 256.
    explicit LocationSpace(std::size_t alignment) noexcept : alignment_{alignment} {}

    /// Adds a Room that the store allocates. If the Room cannot be recorded for lack of memory, the next call adds it.
    void grow(BackupStore& store, std::size_t bytes, const LiveSet& live);

    void add(std::uint64_t location, std::size_t bytes) {
        const Address at = places_.empty() ? alignment_ : places_.back().at + places_.back().room.bytes + alignment_;
        places_.push_back({{location, bytes}, at});
        try {
            free_.add({at, bytes});
        } catch (...) {
            places_.pop_back();
            throw;
        }
        unused_ += 1;
    }

    /// Returns the location of `bytes` free bytes, which are then in use. It has the same offset in an alignment unit
    /// as the address or name `like`: where that is split, at multiples of a larger size, the range can then be split
    /// too. Without free space, returns 0 and adds what is missing to `missing`.
    std::uint64_t take(std::size_t bytes, std::uint64_t like, std::size_t& missing) {
        const std::uint64_t skipped = like % alignment_;
        bytes = around(skipped, bytes).bytes;
        const Block* const block = free_.allocate(bytes, alignment_, bytes);
        if (block == nullptr) {
            missing += bytes;
            return 0;
        }
        const Address at = block->address;
        free_.take_out(at); // what is in use costs no host memory here
        Place* const place = first_in(places_, [&](const Place& each) { return at < each.at + each.room.bytes; });
        if (place->used == 0) unused_ -= 1;
        place->used += bytes;
        return place->room.location + (at - place->at) + skipped;
    }
    std::uint64_t take(std::size_t bytes) {
        std::size_t missing = 0;
        return take(bytes, 0, missing);
    }

    void give(std::uint64_t location, std::size_t bytes) {
        const Room room = around(location, bytes);
        Place* const place = first_in(places_, [&](const Place& each) {
            return each.room.location <= room.location && room.location - each.room.location < each.room.bytes;
        });
        free_.add({place->at + (room.location - place->room.location), room.bytes});
        place->used -= room.bytes;
        if (place->used == 0) unused_ += 1;
    }

    /// Returns the whole alignment units that bytes are in.
    [[nodiscard]] Room around(std::uint64_t location, std::size_t bytes) const noexcept {
        const std::uint64_t begin = align_down(location, alignment_);
        return {begin, static_cast<std::size_t>(align_up(location + bytes, alignment_) - begin)};
    }

    /// Removes a Room for good if all of it is free. Returns whether it was, and could be.
    bool remove(Room room) noexcept {
        if (unused_ == 0) return false; // a store asks for each of its Rooms
        Place* const place = first_in(places_, [&](const Place& each) { return each.room.location == room.location; });
        if (place == nullptr || place->used != 0) return false;
        try {
            free_.remove({place->at, place->room.bytes});
        } catch (const std::bad_alloc&) {
            return false;
        }
        places_.erase(place);
        unused_ -= 1;
        return true;
    }

    void clear() noexcept {
        made_ = {};
        places_.clear();
        unused_ = 0;
        free_ = BlockAllocator{serials_};
    }

    [[nodiscard]] std::size_t free_bytes() const noexcept {
        std::size_t bytes = 0;
        for (const Place& place : places_) bytes += place.room.bytes - place.used;
        return bytes;
    }
    [[nodiscard]] bool has_room(std::uint64_t location) const noexcept {
        return any_in(places_, [&](const Place& each) { return each.room.location == location; });
    }

private:
    /// A Room, and where it is in `free_`: with a gap before the next one, because adjacent free ranges are merged.
    struct Place {
        Room room;
        Address at = 0;
        std::size_t used = 0;
    };

    std::size_t alignment_;
    Vector<Place> places_;   // sorted by `at`
    std::size_t unused_ = 0; // places that are entirely free
    std::uint64_t serials_ = 0;
    BlockAllocator free_{serials_}; // has no blocks, only free ranges
    Room made_;                     // storage that could not be recorded
};

using CompareWith = decltype(&compare_with);

/// Keeps bytes of units: cuts them into pieces and moves these. What derives from it knows where bytes are, in memory
/// or a file, or wraps another store.
class BackupStore : public ByteStore {
public:
    /// Adds storage. Throws if there is not enough.
    virtual Room grow(std::size_t bytes, const LiveSet& live) = 0;
    /// These bytes are no longer needed. May throw bad_alloc: the next call, for the same bytes, does the rest.
    virtual void discard(std::uint64_t location, std::size_t bytes) = 0;
    /// Frees each Room that is entirely free.
    virtual void shrink(LocationSpace& space) noexcept = 0;
    /// `clear` frees all storage; `retry` frees what could not be freed before. Both return the first failure.
    virtual Status clear() noexcept = 0;
    virtual Status retry() noexcept {
        const Status own = pool_->retry();
        const Status shared = budget_ ? budget_->retry() : Status{};
        return own.ok() ? shared : own;
    }
    /// Allocates ahead of time what saving these units would need. May throw.
    virtual void prepare(Vector<Unit> units) = 0;
    /// Starts a transfer of these units.
    UniquePtr<Transfer> move(Direction direction, Vector<Unit> units, const LiveSet& live) {
        about(live);
        return start(direction, std::move(units), live);
    }
    /// Throws Misuse if the device's bytes differ from the kept ones. `compare_with` compares them (Check).
    void compare(Vector<Unit> units, const LiveSet& live, CompareWith compare_with) {
        join(live.host_budget);
        compare_with(*this, driver_, units, cut(units, shape_.buffer_bytes), shared_ring(), options_.crew, live.tag);
    }
    /// Overwrites `bytes` bytes of a kept unit, starting at `offset`. `unit` is as it was passed to `move`; the
    /// observer sees the affected parts again. If it throws, some of the bytes may have been written.
    virtual void change(const Unit& unit, std::size_t offset, const std::byte* from, std::size_t bytes) = 0;
    /// Returns host memory with these bytes, and its owner: a copy, unless overridden. Throws also what `get` throws.
    [[nodiscard]] virtual BackupView view(std::uint64_t location, std::size_t bytes) const {
        const std::uint64_t begin = align_down(location, alignment());
        const auto span = static_cast<std::size_t>(align_up(location + bytes, alignment()) - begin);
        const auto copy = pages_for(span);
        std::byte* const data = copy->data();
        check_of(get(data, begin, span), reading_, bytes);
        return {copy, data + (location - begin), bytes};
    }
    virtual void about(const LiveSet& live) {
        error_prefix_ = of_tag(live.tag);
        join(live.host_budget);
        if (options_.observer) options_.observer->about(live.tag);
    }

    // Optional: not all stores implement these.

    /// Returns the pages that copies of the bytes at a location reach; null if bytes can only pass through `put` and
    /// `get`.
    [[nodiscard]] virtual std::shared_ptr<CopyablePages> pages_of(std::uint64_t /*location*/) const { return {}; }
    /// Returns whether `reach` reaches anything. Does not change once there is a Room.
    [[nodiscard]] virtual bool reachable() const noexcept { return false; }
    /// Host memory, ready for copies.
    struct Reached {
        std::byte* at = nullptr; ///< null: bytes can only pass through `put` and `get`
        bool pinned = false;
    };
    /// Sets `host` to the memory of these bytes. One copy must not span two cells of HostCells. Like `put` and `get`,
    /// callable from several threads at once for different bytes.
    virtual Status reach(std::uint64_t /*location*/, std::size_t /*bytes*/, Reached& host) {
        host = {};
        return {};
    }
    /// Returns the cells that `reach` would pin.
    [[nodiscard]] virtual Vector<Room> unpinned_cells() const { return {}; }
    /// Marks all memory as possibly still in use by work that could not be waited for.
    virtual void unsettle() noexcept {}
    /// Returns the storage in use, in bytes, when `saved` bytes are kept in all.
    [[nodiscard]] virtual std::size_t taken_by(std::size_t saved) const noexcept { return saved; }
    /// Returns the device memory that transfers use. May be null.
    [[nodiscard]] virtual std::shared_ptr<DeviceScratch> scratch() const noexcept { return {}; }

    [[nodiscard]] Vector<Piece> reached(Vector<Unit> units, std::size_t cell,
                                        const std::vector<Range>& first = {}) const {
        Vector<Piece> pieces = cut(std::move(units), cell, first);
        for (Piece& piece : pieces) piece.pages = pages_of(piece.location());
        return pieces;
    }

protected:
    /// `reading`: what an error says of a failed `get`.
    BackupStore(AnyDriver driver, StoreOptions options, std::size_t largest_buffer, const Attempt& reading)
        : driver_{std::move(driver)}, options_{std::move(options)}, reading_{reading}, shape_{options_.ring_bytes,
                                                                                              options_.crew.threads,
                                                                                              largest_buffer} {}

    virtual UniquePtr<Transfer> start(Direction direction, Vector<Unit> units, const LiveSet& live) = 0;

    /// Cuts units into pieces, in the order in which their bytes are needed. Also cuts at the borders of `first`, so
    /// that those bytes wait for nothing else. If there is an observer, a given block is always cut into the same units
    /// instead, of which each part of a block that can be paused or resumed alone has its own.
    [[nodiscard]] Vector<Piece> cut(Vector<Unit> units, std::size_t cell, const std::vector<Range>& first = {}) const {
        if (options_.observer) units = cut_at_addresses(units, granularity_of(driver_));
        const auto apart = [&](const Unit& a, const Unit& b) { return pages_of(a.location) != pages_of(b.location); };
        Vector<Piece> pieces;
        for (Vector<Unit>& group : in_wanted_order(std::move(units), first, !options_.observer))
            for (Piece& piece : cut_into_pieces(std::move(group), cell, apart)) pieces.push_back(std::move(piece));
        return pieces;
    }
    /// Returns the ring, which all stores with this budget share. It allocates nothing until bytes pass through it.
    const std::shared_ptr<Ring>& shared_ring() {
        if (!budget_) budget_ = new_shared<HostBudget>(); // it keeps what cannot be freed
        if (!ring_) ring_ = Ring::shared(budget_, driver_, shape_);
        return ring_;
    }
    /// Lets go of the ring, which the last user frees. Returns the first failure to free anything.
    Status leave_ring() noexcept {
        ring_.reset();
        return BackupStore::retry();
    }
    /// Allocates pages for a copy of kept bytes: aligned to pages, and not in core dumps. Throws OutOfHostMemory.
    [[nodiscard]] std::shared_ptr<HostCells> pages_for(std::size_t bytes) const {
        auto promise = HostBudget::take(budget_, driver_, bytes, error_prefix_, "a copy");
        auto pages = pool_->make(driver_, bytes, std::move(promise), error_prefix_);
        check_of(pages->take(), "allocate host pages", bytes);
        return pages;
    }
    /// Allocates what `through_ring` needs to save these units.
    void prepare_ring(Vector<Unit> units) {
        const Vector<Piece> pieces = cut(std::move(units), shape_.buffer_bytes);
        if (!pieces.empty()) shared_ring()->prepare(pieces.size(), most_bytes(pieces, alignment()), error_prefix_);
    }
    [[nodiscard]] Moving moving(Direction direction, const LiveSet& live) const noexcept {
        return {driver_, direction, options_.crew, options_.observer.get(), live.progress, live.before_write};
    }
    /// Starts a transfer whose bytes pass through the ring, and `put` and `get`.
    UniquePtr<Transfer> through_ring(Direction direction, Vector<Unit> units, const LiveSet& live) {
        auto work = staged_transfer(moving(direction, live), cut(std::move(units), shape_.buffer_bytes, live.first),
                                    *this, shared_ring(), error_prefix_);
        work->start();
        return work;
    }
    void check_of(const Status& status, const Attempt& attempt, std::size_t bytes) const {
        if (!status.ok()) raise_of(status, attempt, {error_prefix_, in_bytes(bytes)}, bytes);
    }

    AnyDriver driver_;
    StoreOptions options_;
    std::string error_prefix_; ///< for error messages
    Attempt reading_;
    Ring::Shape shape_;                  ///< of the ring
    std::shared_ptr<HostBudget> budget_; ///< what the tags of a saver share; until a call has one, nothing is shared
    std::shared_ptr<HostCellsPool> pool_ = new_shared<HostCellsPool>(); ///< also keeps what could not be closed

private:
    /// Uses a budget from now on. Null: none is known.
    void join(const std::shared_ptr<HostBudget>& budget) {
        if (!budget || budget == budget_) return;
        budget_ = budget;
        ring_.reset();
    }

    std::shared_ptr<Ring> ring_;
};

/// A store that keeps its bytes in another one, whose space it allots itself. Its locations are only names.
class NamingStore : public BackupStore {
public:
    Room grow(std::size_t bytes, const LiveSet& live) override {
        about(live);
        const Room names{next_name_, bytes};
        next_name_ += align_up(bytes, alignment());
        return names;
    }
    void about(const LiveSet& live) override {
        if (last_live_.tag == live.tag && last_live_.host_budget == live.host_budget)
            return; // running transfers read it
        last_live_.tag = live.tag;
        last_live_.host_budget = live.host_budget;
        BackupStore::about(live);
    }
    Status retry() noexcept override { return first_failure({inside_->retry(), BackupStore::retry()}); }
    [[nodiscard]] std::size_t taken_by(std::size_t saved) const noexcept override {
        return saved == 0 ? 0 : kept_bytes_.load();
    }

protected:
    NamingStore(AnyDriver driver, std::shared_ptr<BackupStore> inside, StoreOptions options, std::size_t largest_buffer,
                const Attempt& reading)
        : BackupStore{std::move(driver), std::move(options), largest_buffer, reading}, inside_{std::move(inside)},
          packed_{inside_->alignment()} {}

    std::shared_ptr<BackupStore> inside_;
    LocationSpace packed_; ///< of the inner store
    LiveSet last_live_;    ///< tag and host budget of the last operation
    std::atomic<std::size_t> kept_bytes_{0};

private:
    std::uint64_t next_name_ = 1_MiB;
};

/// A ByteStore that keeps nothing. `put` compares bytes with those of another store and records differences.
class ComparingStore final : public ByteStore {
public:
    explicit ComparingStore(const ByteStore& store) noexcept : store_{store} {}

    [[nodiscard]] std::size_t alignment() const noexcept override { return store_.alignment(); }
    Status put(const std::byte* from, std::uint64_t location, std::size_t bytes) const override {
        constexpr std::size_t step = 1_MiB;
        const std::unique_ptr<std::byte[]> memory{new (std::nothrow) std::byte[step + alignment()]};
        if (!memory) return {StatusKind::out_of_host_memory, 0, "no host memory to compare bytes"};
        void* start = memory.get();
        std::size_t space = step + alignment();
        auto* const kept = static_cast<std::byte*>(std::align(alignment(), step, start, space));
        for (std::size_t done = 0; done < bytes; done += step) {
            const std::size_t part = std::min(bytes - done, step);
            if (const Status status = store_.get(kept, location + done, part); !status.ok()) return status;
            if (std::memcmp(kept, from + done, part) == 0) continue;
            const std::byte* const other = std::mismatch(kept, kept + part, from + done).first;
            note(location + done + static_cast<std::size_t>(other - kept));
        }
        return {};
    }
    Status get(std::byte* to, std::uint64_t location, std::size_t bytes) const override {
        return store_.get(to, location, bytes);
    }
    [[nodiscard]] bool differs() const noexcept { return first_.load() != none; }
    /// Returns the lowest location whose byte differs, of those compared so far.
    [[nodiscard]] std::uint64_t first_difference() const noexcept { return first_.load(); }

private:
    static constexpr std::uint64_t none = std::numeric_limits<std::uint64_t>::max();

    void note(std::uint64_t location) const noexcept {
        std::uint64_t first = first_.load();
        while (location < first && !first_.compare_exchange_weak(first, location)) {
        }
    }

    const ByteStore& store_;
    mutable std::atomic<std::uint64_t> first_{none};
};

inline Vector<Unit> units_in(const Vector<Piece>& pieces, std::uint64_t location, std::size_t bytes) {
    Vector<Unit> units;
    for (const Piece& piece : pieces) {
        for (const Unit& unit : piece.units) {
            if (unit.location < location + bytes && location < unit.location + unit.bytes) units.push_back(unit);
        }
    }
    return units;
}

inline bool replaced_whole(const Unit& unit, std::uint64_t location, std::size_t bytes) noexcept {
    return location <= unit.location && unit.location + unit.bytes <= location + bytes;
}

inline std::string difference_text(const Vector<Unit>& units, std::uint64_t location, const std::string& tag) {
    std::string text = text_of({"tag ", in_quotes(tag), ": bytes have changed since their only save"});
    for (const Unit& unit : units) {
        if (location < unit.location || location - unit.location >= unit.bytes) continue;
        text += text_of({", for example at ", in_hex(unit.device + (location - unit.location)), ", in a block of ",
                         in_bytes(unit.bytes), " at ", in_hex(unit.device)});
    }
    return text_of({text, "; call invalidate(", in_quotes(tag), ") after changing them"});
}

inline void LocationSpace::grow(BackupStore& store, std::size_t bytes, const LiveSet& live) {
    if (made_.bytes == 0) made_ = store.grow(bytes, live);
    add(made_.location, made_.bytes);
    made_ = {};
}

} // namespace memsaver::inline v0_3::detail
