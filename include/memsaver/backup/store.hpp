// A store as a slot sees it: storage in memory or a file. Knows locations, not blocks.
#pragma once

#include "memsaver/backup/host_share.hpp"
#include "memsaver/backup/kernel_copies.hpp"
#include "memsaver/backup/policy.hpp"
#include "memsaver/backup/refresh.hpp"
#include "memsaver/backup/transfer.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {

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

/// Returns the first status that is not ok, or ok.
Status first_failure(std::initializer_list<Status> all) noexcept;

/// If there is an observer, cuts units so that each part of a block that can be paused or resumed alone has its own
/// units.
std::vector<Unit> cut_for_observer(std::vector<Unit> units, const StoreOptions& options, const AnyDriver& driver);

class BackupStore;

/// Keeps the free locations of a store. Allocates best fit, from the front of a free range, so that blocks placed one
/// after the other into fresh storage are adjacent. No allocation spans two Rooms, even adjacent ones, because each
/// Room is pinned and freed separately. Locations are not 0. Not thread-safe. `grow`, `add` and `give` may throw
/// bad_alloc; nothing has changed then.
class LocationSpace {
public:
    /// `alignment`: of the Rooms, and of the ranges that are in use.
    explicit LocationSpace(std::size_t alignment = 1) noexcept : alignment_{alignment} {}

    /// Adds a Room that the store allocates. If the Room cannot be recorded for lack of memory, the next call adds it.
    void grow(BackupStore& store, std::size_t bytes, const LiveSet& live);

    /// Adds a Room, all of it free.
    void add(std::uint64_t location, std::size_t bytes);

    /// Returns the location of `bytes` free bytes, which are then in use. It has the same offset in an alignment unit
    /// as the address or name `like`: where that is split, at multiples of a larger size, the range can then be split
    /// too. Without free space, returns 0 and adds what is missing to `missing`.
    std::uint64_t take(std::size_t bytes, std::uint64_t like, std::size_t& missing) noexcept;
    std::uint64_t take(std::size_t bytes) noexcept {
        std::size_t missing = 0;
        return take(bytes, 0, missing);
    }

    void give(std::uint64_t location, std::size_t bytes);

    /// Returns the whole alignment units that bytes are in.
    [[nodiscard]] Room around(std::uint64_t location, std::size_t bytes) const noexcept {
        const std::uint64_t begin = align_down(location, alignment_);
        return {begin, static_cast<std::size_t>(align_up(location + bytes, alignment_) - begin)};
    }

    /// Removes a Room for good if all of it is free. Returns whether it was.
    bool remove(Room room) noexcept;

    void clear() noexcept;

    [[nodiscard]] std::size_t free_bytes() const noexcept { return free_; }
    /// Returns whether a Room begins at the location.
    [[nodiscard]] bool has_room(std::uint64_t location) const noexcept { return starts_.count(location) != 0; }

private:
    void insert(std::uint64_t location, std::size_t bytes);
    /// Replaces a free range by another one without allocating memory.
    void change(std::uint64_t from, std::size_t old_bytes, std::uint64_t to, std::size_t bytes) noexcept;
    void erase(std::uint64_t location, std::size_t bytes) noexcept;

    std::size_t alignment_;
    std::map<std::uint64_t, std::size_t> by_location_;
    std::set<std::pair<std::size_t, std::uint64_t>> by_size_;
    std::set<std::uint64_t> starts_; // of Rooms
    std::size_t free_ = 0;
    Room made_; // storage that could not be recorded
};

using CompareWith = decltype(&compare_with);

/// A store: a HostStore (host_store.hpp), a FileStore (file_store.hpp), or a store that wraps another.
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
    virtual Status retry() noexcept = 0;
    /// Allocates ahead of time what saving these units would need. May throw.
    virtual void prepare(std::vector<Unit> units) = 0;
    /// Start a transfer out of the device or into it.
    virtual std::unique_ptr<Transfer> out(std::vector<Unit> units, const LiveSet& live) = 0;
    virtual std::unique_ptr<Transfer> in(std::vector<Unit> units, const LiveSet& live) = 0;
    /// Throws Misuse if the device's bytes differ from the kept ones. `compare_with` compares them (Check).
    virtual void compare(std::vector<Unit> units, const LiveSet& live, CompareWith compare_with) = 0;
    /// Overwrites `bytes` bytes of a kept unit, starting at `offset`. `unit` is as it was passed to `out`; the observer
    /// sees the affected parts again. If it throws, some of the bytes may have been written.
    virtual void change(const Unit& unit, std::size_t offset, const std::byte* from, std::size_t bytes) = 0;
    /// Returns host memory with these bytes, and its owner.
    [[nodiscard]] virtual BackupView view(std::uint64_t location, std::size_t bytes) const = 0;

    // Optional: not all stores implement these.

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
    /// Returns the first cell from a location on that `reach` would pin, or an empty one.
    [[nodiscard]] virtual Room unpinned_cell(std::uint64_t /*from*/) const noexcept { return {}; }
    /// Allocates the memory of such a cell, without pinning it. Returns false if that fails; `reach` reports failures.
    /// Callable from several threads at once, also while others reach the same bytes.
    virtual bool take_ahead(std::uint64_t /*cell*/) noexcept { return false; }
    /// Announces a save or restore that uses `reach`, `put` and `get`.
    virtual void about(const LiveSet& /*live*/) {}
    /// Marks all memory as possibly still in use by work that could not be waited for.
    virtual void unsettle() noexcept {}
    /// Returns the storage in use, in bytes, when `saved` bytes are kept in all.
    [[nodiscard]] virtual std::size_t taken_by(std::size_t saved) const noexcept { return saved; }
    /// Returns the device memory that transfers use. May be null.
    [[nodiscard]] virtual std::shared_ptr<DeviceScratch> scratch() const noexcept { return {}; }
};

/// What the stores that keep bytes themselves have in common: cuts units into pieces and moves them. What derives from
/// it knows where bytes are.
class KeptStore : public BackupStore {
public:
    MEMSAVER_INLINE std::unique_ptr<Transfer> out(std::vector<Unit> units, const LiveSet& live) override;
    MEMSAVER_INLINE std::unique_ptr<Transfer> in(std::vector<Unit> units, const LiveSet& live) override;
    MEMSAVER_INLINE void compare(std::vector<Unit> units, const LiveSet& live, CompareWith compare_with) override;
    /// Unless overridden, returns a copy of the bytes.
    [[nodiscard]] MEMSAVER_INLINE BackupView view(std::uint64_t location, std::size_t bytes) const override;
    MEMSAVER_INLINE void about(const LiveSet& live) override;
    Status retry() noexcept override { return share_.retry(); }

protected:
    /// `reading`: what an error says of a failed `get`.
    KeptStore(AnyDriver driver, StoreOptions options, std::size_t largest_buffer, const Attempt& reading);

    /// Starts a transfer. `first`: the ranges whose bytes are needed first.
    virtual std::unique_ptr<Transfer> start(Direction direction, std::vector<Unit> units, const LiveSet& live,
                                            const std::vector<Range>& first) = 0;
    /// Returns whether two neighbors must not be in one piece.
    [[nodiscard]] virtual bool apart(const Unit&, const Unit&) const { return false; }

    [[nodiscard]] std::vector<Piece> cut(std::vector<Unit> units, std::size_t cell,
                                         const std::vector<Range>& first = {}) const;
    /// Starts a transfer whose bytes pass through the ring, and `put` and `get`.
    std::unique_ptr<Transfer> through_ring(Direction direction, std::vector<Unit> units, const LiveSet& live,
                                           const std::vector<Range>& first);
    /// Throws the exception for a failed status, which names the tag.
    void check_of(const Status& status, const Attempt& attempt, std::size_t bytes) const;

    AnyDriver driver_;
    StoreOptions options_;
    std::string error_prefix_; ///< for error messages
    HostShare share_;          ///< also keeps what could not be closed
    Attempt reading_;
};

/// A ByteStore that keeps nothing. `put` compares bytes with those of another store and records differences.
class ComparingStore final : public ByteStore {
public:
    explicit ComparingStore(const ByteStore& store) noexcept : store_{store} {}

    [[nodiscard]] std::size_t alignment() const noexcept override { return store_.alignment(); }
    MEMSAVER_INLINE Status put(const std::byte* from, std::uint64_t location,
                               std::size_t bytes) const noexcept override;
    MEMSAVER_INLINE Status get(std::byte* to, std::uint64_t location, std::size_t bytes) const noexcept override;
    [[nodiscard]] bool differs() const noexcept { return first_.load() != none; }
    /// Returns the lowest location whose byte differs, of those compared so far.
    [[nodiscard]] std::uint64_t first_difference() const noexcept { return first_.load(); }

private:
    static constexpr std::uint64_t none = std::numeric_limits<std::uint64_t>::max();

    void note(std::uint64_t location) const noexcept;

    const ByteStore& store_;
    mutable std::atomic<std::uint64_t> first_{none};
};

/// Calls `act(part)` for each unit that overlaps the range of locations.
template <class Act>
void each_unit_in(const std::vector<Piece>& pieces, std::uint64_t location, std::size_t bytes, Act&& act) {
    for (const Piece& piece : pieces) {
        for (const Unit& unit : piece.units) {
            if (unit.location < location + bytes && location < unit.location + unit.bytes) act(unit);
        }
    }
}

/// Returns whether the range of locations contains all of the unit.
inline bool replaced_whole(const Unit& unit, std::uint64_t location, std::size_t bytes) noexcept {
    return location <= unit.location && unit.location + unit.bytes <= location + bytes;
}

/// Returns an error message that names the block with the location.
std::string difference_text(const std::vector<Unit>& units, std::uint64_t location, const std::string& tag);

} // namespace detail

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/backup/store.ipp"
#endif
