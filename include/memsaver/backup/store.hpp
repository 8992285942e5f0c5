// A place with room for bytes, as a slot sees it: memory or a file. Knows locations, not blocks.
#pragma once

#include "memsaver/backup/kernel_copies.hpp"
#include "memsaver/backup/policy.hpp"
#include "memsaver/backup/ring_transfer.hpp"

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

namespace memsaver::inline v0_2 {

namespace detail {

struct StoreOptions {
    CrewOptions crew{};
    std::size_t ring_bytes = 64_MiB; ///< pinned memory for bytes on their way
    std::shared_ptr<PieceObserver> observer{};
    KernelCopyOptions kernel_copies{};
};

/// Room that a place has made: never at location 0.
struct Room {
    std::uint64_t location = 0;
    std::size_t bytes = 0;
};

/// Whose bytes an error is about, as the beginning of its text.
inline std::string of_tag(const std::string& tag) { return tag.empty() ? tag : "tag \"" + tag + "\", "; }

/// The first that is not ok, if there is one.
Status first_failure(std::initializer_list<Status> all) noexcept;

/// What is checked piece by piece is cut so that every part of a block that may come or go alone has pieces of its own.
std::vector<Unit> cut_for_observer(std::vector<Unit> units, const StoreOptions& options, const AnyDriver& driver);

/// Best fit, from the front of a free range, so that blocks placed one after the other into fresh room lie side by
/// side. Nothing reaches from one room into the next, though they may be neighbours: each is pinned, and given back, by
/// itself. Locations are not 0. Not thread safe. What throws bad_alloc has changed nothing; `take` and `clear` never
/// do.
class LocationSpace {
public:
    /// One more room.
    void add(std::uint64_t location, std::size_t bytes);

    /// The location of `bytes` free bytes, or 0.
    std::uint64_t take(std::size_t bytes) noexcept;

    void give(std::uint64_t location, std::size_t bytes);

    /// Takes a range out for good if all of it is free.
    bool remove(std::uint64_t location, std::size_t bytes);

    void clear() noexcept;

    [[nodiscard]] std::size_t free_bytes() const noexcept { return free_; }
    /// Whether a room begins there.
    [[nodiscard]] bool has_room(std::uint64_t location) const noexcept { return starts_.count(location) != 0; }

private:
    void insert(std::uint64_t location, std::size_t bytes);
    /// A range becomes another one, without a need for memory.
    void change(std::uint64_t from, std::size_t old_bytes, std::uint64_t to, std::size_t bytes) noexcept;
    void erase(std::uint64_t location, std::size_t bytes) noexcept;

    std::map<std::uint64_t, std::size_t> by_location_;
    std::set<std::pair<std::size_t, std::uint64_t>> by_size_;
    std::set<std::uint64_t> starts_; // of rooms
    std::size_t free_ = 0;
};

/// A place with room for bytes: a HostStore (host_store.hpp), a FileStore (file_store.hpp), or one around another.
class BackupStore : public ByteStore {
public:
    /// More Room; throws where there is none.
    virtual Room grow(std::size_t bytes, const LiveSet& live) = 0;
    /// These bytes are not needed any more.
    virtual void discard(std::uint64_t location, std::size_t bytes) noexcept = 0;
    /// Gives back room that is free as a whole. May throw bad_alloc.
    virtual void shrink(LocationSpace& space) = 0;
    /// Gives all room back; `retry`: what could not be given back so far. Both answer the first failure.
    virtual Status clear() noexcept = 0;
    virtual Status retry() noexcept = 0;
    /// Takes ahead of time what saving these would take. May throw.
    virtual void prepare(std::vector<Unit> units) = 0;
    /// Start a transfer, out of the device or into it.
    virtual std::unique_ptr<Ticket::Work> out(std::vector<Unit> units, const LiveSet& live) = 0;
    virtual std::unique_ptr<Ticket::Work> in(std::vector<Unit> units, const LiveSet& live) = 0;
    /// Throws Misuse where the device's bytes differ from the kept ones.
    virtual void compare(std::vector<Unit> units, const LiveSet& live) = 0;
    /// Other bytes for a part of a unit that is kept, as `out` was given it, from `offset` on; the observer sees what
    /// it has seen of it again. If it throws, some of them may be in place.
    virtual void change(const Unit& unit, std::size_t offset, const std::byte* from, std::size_t bytes) = 0;
    /// Host memory with these bytes, and what keeps it alive.
    [[nodiscard]] virtual BackupView view(std::uint64_t location, std::size_t bytes) const = 0;

    // For stores of which not all have something to say.

    /// Host memory of these bytes, made ready for copies; null where bytes pass by `put` and `get` alone. A copy does
    /// not span two cells of HostRegion. Different bytes from several threads at once, as `put` and `get`.
    virtual Status reach(std::uint64_t /*location*/, std::size_t /*bytes*/, std::byte*& at) {
        at = nullptr;
        return {};
    }
    /// Takes the host memory that `reach` would take, and pins none of it; false if there is none to take. What fails
    /// is for `reach` to tell. From several threads at once, and while others reach the same bytes.
    virtual bool take_ahead(std::uint64_t /*location*/, std::size_t /*bytes*/) noexcept { return false; }
    /// Whether what was reached there is pinned.
    [[nodiscard]] virtual bool pinned(std::uint64_t /*location*/, std::size_t /*bytes*/) const { return false; }
    /// Bytes will pass by `reach`, `put` and `get` for this save or restore.
    virtual void about(const LiveSet& /*live*/) {}
    /// Work that could not be waited for may still touch what was reached there.
    virtual void unsettle(std::uint64_t /*location*/) noexcept {}
    /// What `saved` bytes, all that are kept, take here.
    [[nodiscard]] virtual std::size_t taken_by(std::size_t saved) const noexcept { return saved; }
    /// Device memory that moving bytes takes; may be null.
    [[nodiscard]] virtual std::shared_ptr<DeviceScratch> scratch() const noexcept { return {}; }
};

/// A ByteStore that keeps nothing and notes where what it is given differs from what another has.
class ComparingStore final : public ByteStore {
public:
    explicit ComparingStore(const ByteStore& store) noexcept : store_{store} {}

    [[nodiscard]] std::size_t alignment() const noexcept override { return store_.alignment(); }
    MEMSAVER_INLINE Status put(const std::byte* from, std::uint64_t location,
                               std::size_t bytes) const noexcept override;
    MEMSAVER_INLINE Status get(std::byte* to, std::uint64_t location, std::size_t bytes) const noexcept override;
    [[nodiscard]] bool differs() const noexcept { return first_.load() != none; }
    /// The first location whose byte differs, of those seen so far.
    [[nodiscard]] std::uint64_t first_difference() const noexcept { return first_.load(); }

private:
    static constexpr std::uint64_t none = std::numeric_limits<std::uint64_t>::max();

    void note(std::uint64_t location) const noexcept;

    const ByteStore& store_;
    mutable std::atomic<std::uint64_t> first_{none};
};

/// `act(part)` for the parts of pieces that have any of the range of locations.
template <class Act>
void each_unit_in(const std::vector<Piece>& pieces, std::uint64_t location, std::size_t bytes, Act&& act) {
    for (const Piece& piece : pieces) {
        for (const Unit& unit : piece.units) {
            if (unit.location < location + bytes && location < unit.location + unit.bytes) act(unit);
        }
    }
}

/// Whether all of a unit is in the range of locations.
inline bool replaced_whole(const Unit& unit, std::uint64_t location, std::size_t bytes) noexcept {
    return location <= unit.location && unit.location + unit.bytes <= location + bytes;
}

/// What is wrong, with the block in question: the unit that has the location.
std::string difference_text(const std::vector<Unit>& units, std::uint64_t location, const std::string& tag);

/// Throws Misuse if the device's bytes are not those of `store`. `units` are of whole blocks, `pieces` what they are
/// cut into.
void compare_with(const ByteStore& store, const AnyDriver& driver, const std::vector<Unit>& units,
                  std::vector<Piece> pieces, std::shared_ptr<Ring> ring, const CrewOptions& crew,
                  const std::string& tag);

} // namespace detail

} // namespace memsaver::inline v0_2

#ifndef MEMSAVER_COMPILED
#include "memsaver/backup/store.ipp"
#endif
