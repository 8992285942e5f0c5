// The store of a Compressed backup: coded chunks, packed into another store. Knows neither blocks nor the codec's
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
#include <shared_mutex>
#include <string>
#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {

struct CodedOptions {
    std::shared_ptr<const Codec> codec{};
    std::size_t piece_bytes = 32_MiB; ///< size of a piece
    unsigned pieces = 3;              ///< pieces in flight
};

///     locations, as the slot sees them   |  chunk  |  chunk  | chunk |       at most 1 MiB of one block each
///                                             |         |        `---.
///     records                              coded      uncoded      coded
///                                             |         |            |
///     the inner store                    | packed |  packed   | packed |    in slabs, its Rooms
///
/// Keeps coded chunks in an inner store. The slot's locations are only names. A chunk is the part of a block between
/// two multiples of the chunk size on the device, so that any part that can be paused or resumed alone is whole chunks.
/// Chunks that do not shrink are kept uncoded.
///
/// A transfer moves pieces; a piece is the chunks that are coded together. Each worker has a stream and a part of the
/// scratch, and takes piece after piece: coding, copying and decoding by different workers overlap. While host memory
/// is being allocated, other threads touch it ahead of the workers. Pinning is left to the workers: it delays their
/// driver calls whichever thread does it, and more threads do not make it faster.
class CodedStore final : public KeptStore {
public:
    [[nodiscard]] std::size_t alignment() const noexcept override { return 256; }

    inline CodedStore(AnyDriver driver, std::shared_ptr<BackupStore> inside, StoreOptions options, CodedOptions coding);

    inline Room grow(std::size_t bytes, const LiveSet& live) override;
    inline void discard(std::uint64_t location, std::size_t bytes) override;
    inline void shrink(LocationSpace& names) noexcept override;
    inline Status clear() noexcept override;
    inline Status retry() noexcept override;
    inline void about(const LiveSet& live) override;

    /// Allocates storage for 0.7 of the bytes, the codec's arrays and, if the device has enough memory, the scratch.
    inline void prepare(std::vector<Unit> units) override;
    inline void compare(std::vector<Unit> units, const LiveSet& live, CompareWith compare_with) override;
    /// Changed chunks are kept uncoded until they are saved again.
    inline void change(const Unit& unit, std::size_t offset, const std::byte* from, std::size_t bytes) override;
    /// Returns a copy of the bytes. If the codec cannot decode on the host, the device decodes, which needs a small
    /// amount of device memory for the duration of the call. Throws OutOfMemory if there is none.
    [[nodiscard]] inline BackupView view(std::uint64_t location, std::size_t bytes) const override;

    [[nodiscard]] std::size_t taken_by(std::size_t saved) const noexcept override {
        return saved == 0 ? 0 : kept_bytes_.load();
    }
    [[nodiscard]] std::shared_ptr<DeviceScratch> scratch() const noexcept override { return scratch_; }

    /// Names hold no bytes.
    Status get(std::byte*, std::uint64_t, std::size_t) const noexcept override { return no_bytes; }

private:
    class CodedWay;
    class Worker;

    static constexpr Status no_bytes{StatusKind::unsupported, 0, "a compressed store has no plain bytes"};
    /// Smaller chunks are not worth coding.
    static constexpr std::size_t least_coded = 4096;
    static constexpr std::size_t largest_chunk = 1_MiB;
    static constexpr std::size_t page = 4096;

    struct Record {
        std::uint64_t location = 0; ///< in the inner store
        std::size_t bytes = 0;      ///< uncoded size
        std::size_t stored = 0;
        std::uint32_t sum = 0; ///< checksum of a coded chunk
        bool coded = false;
        bool whole = false; ///< the bytes have been stored
    };
    using Records = std::map<std::uint64_t, Record>; // by name

    /// Layout of the scratch: `parts` parts of equal size, each with the codec's work memory and an area for coded
    /// chunks.
    struct Plan {
        std::size_t parts = 0;
        std::size_t each = 0;
        [[nodiscard]] std::size_t bytes() const noexcept { return parts * each; }
    };

    [[nodiscard]] std::size_t stride(std::size_t bytes) const noexcept { return align_up(bytes, inside_->alignment()); }
    /// Returns the area that coding a chunk needs, in bytes; 0 if it is not coded.
    [[nodiscard]] std::size_t area_of(std::size_t bytes) const noexcept {
        return bytes < least_coded ? 0 : align_up(bytes + overhead_, 256);
    }
    [[nodiscard]] std::size_t most_area() const noexcept {
        return coding_.piece_bytes / chunk_bytes_ * area_of(chunk_bytes_);
    }
    [[nodiscard]] std::size_t most_chunks() const noexcept { return 4 * (coding_.piece_bytes / chunk_bytes_) + 64; }
    /// Returns the bytes of a buffer that are for the codec's arrays.
    [[nodiscard]] std::size_t row_bytes() const noexcept {
        return align_up(coding_.codec->row_bytes(most_chunks()), page);
    }
    /// Returns the size of a buffer of the ring, for the codec's arrays and, unless copies reach the inner store, the
    /// bytes of a transfer of `bytes` bytes.
    [[nodiscard]] std::size_t buffer_bytes(std::size_t bytes) const noexcept {
        return inside_->reachable() ? row_bytes()
                                    : std::min(share_.buffer_bytes(), row_bytes() + align_up(bytes, 64_KiB));
    }
    /// Returns the ring of the buffers. It is this store's alone if copies reach the inner store: tags then do not wait
    /// for each other.
    inline const std::shared_ptr<Ring>& ring();
    /// Returns the plan for chunks that need `area` bytes of area in all.
    [[nodiscard]] inline Plan plan(std::size_t area) const noexcept;

    /// Queries the chunk size and the codec's sizes, once. Throws the exception for a failing call.
    inline void measure();
    /// Returns the chunks in the order in which they are moved, grouped into pieces.
    [[nodiscard]] inline std::vector<Piece> pieces_of(const std::vector<Unit>& units,
                                                      const std::vector<Range>& first) const;
    /// Allocates scratch and storage for saving chunks. Returns a plan without parts, and tells so once, if the device
    /// has too little memory.
    inline Plan allocate(const std::vector<Unit>& chunks, const std::function<void(const std::string&)>& tell);
    inline std::unique_ptr<Transfer> start(Direction direction, std::vector<Unit> units, const LiveSet& live,
                                           const std::vector<Range>& first) override;

    // Bookkeeping. `free_location`, `erase` and `count` need mutex_ to be held; the others lock it.
    inline void free_location(const Record& record);
    inline Records::iterator erase(Records::iterator record);
    inline void count(const Record& record, bool more) noexcept;

    [[nodiscard]] inline Record record_of(const Unit& chunk) const;
    [[nodiscard]] inline std::vector<Room> unpinned_cells() const;
    /// Returns a location in the inner store, which grows if needed.
    inline std::uint64_t take_room(std::size_t bytes, std::size_t grow_by);

    /// Decodes a chunk. `space` has the inner store's alignment and room for a stride of the record.
    inline void decode_to(std::byte* to, std::byte* space, const Record& record, Address device) const;
    inline Status write(const std::byte* from, std::uint64_t location, std::size_t bytes) const;
    [[noreturn]] inline void raise_damaged(Address device, std::size_t bytes) const;

    std::shared_ptr<BackupStore> inside_;
    CodedOptions coding_;
    std::shared_ptr<DeviceScratch> scratch_;
    std::shared_ptr<Ring> own_ring_;
    std::size_t chunk_bytes_ = 0;
    std::size_t overhead_ = 0;
    std::size_t work_bytes_ = 0;
    std::size_t granularity_ = 0;
    bool reported_ = false;
    std::uint64_t next_name_ = 1_MiB;
    LiveSet last_live_;      ///< tag and host budget of the last operation
    std::mutex parts_mutex_; ///< guards lent_; parts of concurrent transfers have equal sizes
    std::condition_variable part_free_;
    std::vector<char> lent_;
    std::atomic<bool> unsettled_{false};     ///< work that could not be waited for may still run on a closed stream
    mutable std::shared_mutex inside_mutex_; ///< exclusive while the inner store grows
    mutable std::mutex mutex_;               // guards the members below
    LocationSpace packed_;
    Records records_;
    std::size_t coded_area_ = 0; ///< of coded chunks
    std::atomic<std::size_t> kept_bytes_{0};
};

} // namespace detail

} // namespace memsaver::inline v0_3

#include "memsaver/backup/coded_store.ipp"
