// Where a Compressed backup keeps bytes: coded chunks, packed into another store. Knows neither blocks nor the codec's
// library.
#pragma once

#include "memsaver/backup/codec.hpp"
#include "memsaver/backup/device_scratch.hpp"
#include "memsaver/backup/store.hpp"

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <vector>

namespace memsaver::inline v0_2 {

namespace detail {

struct CodedOptions {
    std::shared_ptr<const Codec> codec{};
    std::size_t piece_bytes = 32_MiB; ///< what is coded at once
    unsigned pieces = 3;              ///< under way at the same time
};

///     locations, as the slot sees them   |  chunk  |  chunk  | chunk |       of 1 MiB of one block at most
///                                             |         |        `---.
///     records                              coded      as it is     coded
///                                             |         |            |
///     the store inside                   | packed |  packed   | packed |    slabs of it, in which rooms are given out
///
/// The slot's locations are only names. A chunk is the part of a block between two multiples of the chunk's size on the
/// device, so that what may come or go alone is whole chunks. Chunks that do not shrink stay as they are.
///
/// A transfer moves pieces, which are as many chunks as are coded at once. Each worker has a stream and a part of the
/// scratch, and takes piece after piece: coding, copies out and decoding of different workers overlap. While host
/// memory is to be taken, other threads touch it ahead of them, and leave pinning to the workers: it holds up their
/// calls of the driver whoever does it, and more threads do not make it faster.
class CodedStore final : public BackupStore {
public:
    [[nodiscard]] std::size_t alignment() const noexcept override { return 256; }

    inline CodedStore(AnyDriver driver, std::shared_ptr<BackupStore> inside, StoreOptions options, CodedOptions coding);

    inline Room grow(std::size_t bytes, const LiveSet& live) override;
    inline void discard(std::uint64_t location, std::size_t bytes) noexcept override;
    inline void shrink(LocationSpace& names) override;
    inline Status clear() noexcept override;
    inline Status retry() noexcept override;

    /// Room for 0.7 of the bytes, the scratch, if the device has it, and the codec's arrays.
    inline void prepare(std::vector<Unit> units) override;
    inline std::unique_ptr<Ticket::Work> out(std::vector<Unit> units, const LiveSet& live) override;
    inline std::unique_ptr<Ticket::Work> in(std::vector<Unit> units, const LiveSet& live) override;
    inline void compare(std::vector<Unit> units, const LiveSet& live) override;
    /// Chunks that change are kept as they are from then on, until they are saved again.
    inline void change(const Unit& unit, std::size_t offset, const std::byte* from, std::size_t bytes) override;
    /// A copy of the bytes. Where the codec cannot decode on the host, the device does: that takes a little of its
    /// memory meanwhile, OutOfMemory if there is none.
    [[nodiscard]] inline BackupView view(std::uint64_t location, std::size_t bytes) const override;

    [[nodiscard]] std::size_t taken_by(std::size_t saved) const noexcept override {
        return saved == 0 ? 0 : kept_bytes_.load();
    }
    [[nodiscard]] std::shared_ptr<DeviceScratch> scratch() const noexcept override { return scratch_; }

    /// Names are no place for bytes.
    Status put(const std::byte*, std::uint64_t, std::size_t) const noexcept override { return no_bytes; }
    Status get(std::byte*, std::uint64_t, std::size_t) const noexcept override { return no_bytes; }

private:
    class Loan;
    class Transfer;
    class Worker;

    static constexpr Status no_bytes{StatusKind::unsupported, 0, "a coded store keeps no plain bytes"};
    /// Smaller chunks are not worth a try.
    static constexpr std::size_t least_coded = 4096;
    static constexpr std::size_t largest_chunk = 1_MiB;

    struct Record {
        std::uint64_t location = 0; ///< in the store inside
        std::size_t bytes = 0;      ///< plain
        std::size_t stored = 0;
        std::uint32_t sum = 0; ///< of coded chunks
        bool coded = false;
        bool whole = false;     ///< the bytes are there
        bool discarded = false; ///< nobody's; its room could not be given back yet
    };
    using Records = std::map<std::uint64_t, Record>; // by name

    /// What is asked of the scratch: so many parts, each with the codec's work memory and an area for coded chunks.
    struct Plan {
        std::size_t parts = 0;
        std::size_t area = 0;
        std::size_t work = 0;
        [[nodiscard]] std::size_t bytes() const noexcept { return parts * (work + area); }
    };

    [[nodiscard]] std::size_t stride(std::size_t bytes) const noexcept { return align_up(bytes, inside_->alignment()); }
    /// What a coded chunk may take of an area.
    [[nodiscard]] std::size_t area_of(std::size_t bytes) const noexcept { return align_up(bytes + overhead_, 256); }
    [[nodiscard]] std::size_t most_area() const noexcept {
        return std::max<std::size_t>(1, coding_.piece_bytes / chunk_bytes_) * area_of(chunk_bytes_);
    }
    [[nodiscard]] std::size_t most_chunks() const noexcept { return 4 * (coding_.piece_bytes / chunk_bytes_) + 64; }
    /// For chunks that take so much area in all.
    [[nodiscard]] inline Plan plan(std::size_t area) const noexcept;

    /// Asks, once, how large chunks are and what they become. Throws what a failing call stands for.
    inline void measure();
    inline void remember(const LiveSet& live);
    [[nodiscard]] inline std::vector<Unit> chunks_of(const std::vector<Unit>& units) const;
    /// Chunks in the order in which they are moved, as many in each piece as can be coded at once.
    [[nodiscard]] inline std::vector<std::vector<Unit>> pieces_of(const std::vector<Unit>& units,
                                                                  const std::vector<Range>& first) const;

    /// Of all coded chunks, what they may take of areas.
    [[nodiscard]] inline std::size_t coded_bytes() const;

    // The books, with their mutex held.
    inline void give_room(const Record& record);
    inline Records::iterator erase(Records::iterator record);
    inline void sweep();
    inline void count(const Record& record, bool more) noexcept;

    inline void forget(const std::vector<Unit>& chunks);
    [[nodiscard]] inline Record record_of(const Unit& chunk) const;
    /// Room in the store inside, which grows as it must.
    inline std::uint64_t take_room(std::size_t bytes, std::size_t grow_by) const;
    inline void grow_inside(std::size_t bytes) const;
    /// Of the parts that nobody has lent: pinned memory for the codec's arrays is taken, or, `settled`, the device
    /// waited for where work may still touch it.
    inline void ready_rows(std::size_t parts, bool settled) noexcept;
    inline void give_part(std::size_t part) noexcept;
    /// Pinned host memory for the codec's arrays, of a part that this thread has lent. Null: it wants none, or work may
    /// still touch it.
    inline PinnedBuffer* take_rows(std::size_t part) noexcept;
    /// What the store inside readies at once, so far as it is not pinned: its rooms, cut at the borders of cells.
    [[nodiscard]] inline std::vector<Room> cells() const;

    /// The plain bytes of a chunk, through `space`, of the store's alignment, with room for a stride of the record.
    inline void decode_to(std::byte* to, std::byte* space, const Record& record, Address device) const;
    inline Status read(std::byte* to, const Record& record) const;
    inline Status write(const std::byte* from, std::uint64_t location, std::size_t bytes) const;
    inline std::shared_ptr<HostRegion> host_copy(std::size_t bytes) const;
    inline std::unique_ptr<Ticket::Work> start(Direction direction, const std::vector<Unit>& units, const Plan& plan,
                                               const LiveSet& live);
    inline void check_of(const Status& status, const Attempt& attempt, std::size_t bytes) const;
    [[noreturn]] inline void raise_damaged(Address device, std::size_t bytes) const;

    AnyDriver driver_;
    std::shared_ptr<BackupStore> inside_;
    StoreOptions options_;
    CodedOptions coding_;
    std::shared_ptr<Ring> ring_; ///< for stores that copies do not reach
    std::shared_ptr<DeviceScratch> scratch_;
    std::shared_ptr<HostRegions> views_ = std::make_shared<HostRegions>();
    std::size_t chunk_bytes_ = 0;
    std::size_t overhead_ = 0;
    std::size_t work_bytes_ = 0;
    std::size_t granularity_ = 0;
    bool told_ = false;
    std::uint64_t next_name_ = 1_MiB;
    LiveSet whose_; ///< tag and budget of the last operation
    std::string tag_text_;
    std::mutex
        parts_mutex_; ///< over which parts of the scratch are lent; those of transfers at the same time are equal
    std::condition_variable part_free_;
    std::vector<bool> lent_;
    std::vector<PinnedBuffer> rows_; ///< of each part, for the codec; kept until all is cleared
    std::atomic<bool> unsettled_{
        false}; ///< work that could not be waited for may be under way on a stream that is gone
    mutable std::shared_mutex inside_mutex_; ///< exclusive while the store inside grows
    mutable std::optional<Room> made_;       ///< room that there was no memory to note so far
    mutable std::mutex mutex_;               // over what follows
    mutable LocationSpace packed_;
    mutable std::vector<Room> slabs_;
    Records records_;
    std::size_t coded_area_ = 0; ///< of coded chunks
    std::atomic<std::size_t> kept_bytes_{0};
};

} // namespace detail

} // namespace memsaver::inline v0_2

#include "memsaver/backup/coded_store.ipp"
