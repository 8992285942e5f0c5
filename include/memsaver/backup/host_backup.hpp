// The policy that keeps bytes in host memory.
#pragma once

#include "memsaver/backup/pinned_transfer.hpp"
#include "memsaver/backup/stored_slot.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace memsaver::inline v0_2 {

namespace detail {

/// Regions of host pages; locations are their addresses. Pinned: copies reach them directly. Else: ordinary pages,
/// which bytes reach through a ring of pinned buffers; so too, for good, where pinning is refused at once.
class HostStore final : public BackupStore {
public:
    [[nodiscard]] std::size_t alignment() const noexcept override { return 256; }

    HostStore(AnyDriver driver, bool pinned, StoreOptions options);

    MEMSAVER_INLINE Room grow(std::size_t bytes, const LiveSet& live) override;
    MEMSAVER_INLINE void shrink(LocationSpace& space) override;
    MEMSAVER_INLINE void discard(std::uint64_t location, std::size_t bytes) noexcept override;
    MEMSAVER_INLINE Status clear() noexcept override;
    Status retry() noexcept override { return host_memory_->retry(); }

    MEMSAVER_INLINE void prepare(std::vector<Unit> units) override;

    MEMSAVER_INLINE std::unique_ptr<Ticket::Work> out(std::vector<Unit> units, const LiveSet& live) override;
    MEMSAVER_INLINE std::unique_ptr<Ticket::Work> in(std::vector<Unit> units, const LiveSet& live) override;

    MEMSAVER_INLINE void compare(std::vector<Unit> units, const LiveSet& live) override;

    [[nodiscard]] MEMSAVER_INLINE BackupView view(std::uint64_t location, std::size_t bytes) const override;

    // ByteStore, for bytes that come through the ring
    MEMSAVER_INLINE Status put(const std::byte* from, std::uint64_t location,
                               std::size_t bytes) const noexcept override;
    MEMSAVER_INLINE Status get(std::byte* to, std::uint64_t location, std::size_t bytes) const noexcept override;

private:
    /// Bytes that are in and out of a ring's buffer while the processors' caches still hold them pass nearly twice as
    /// fast as through 32 MiB (decision 15).
    static constexpr std::size_t in_caches = Ring::least_buffer;

    static std::byte* at(std::uint64_t location) noexcept;
    [[nodiscard]] std::shared_ptr<HostRegion> region_of(std::uint64_t location) const;
    [[nodiscard]] std::vector<Piece> cut(std::vector<Unit> units, std::size_t cell) const;

    void check_taken(const Status& status, std::size_t bytes) const;
    /// Once for all: it will not get better.
    void tell_refused(const std::function<void(const std::string&)>& tell);

    std::unique_ptr<Ticket::Work> start(Direction direction, std::vector<Unit> units, const LiveSet& live);

    AnyDriver driver_;
    bool pinned_;
    bool fell_back_ = false;
    std::atomic<bool> told_{false};
    StoreOptions options_;
    std::string whose_; ///< for the text of errors
    std::shared_ptr<Ring> ring_;
    std::shared_ptr<HostRegions> host_memory_ = std::make_shared<HostRegions>();
    std::vector<std::shared_ptr<HostRegion>> regions_;
};

} // namespace detail

/// What the host memory of a HostBackup is.
enum class Storage : unsigned char {
    pinned,   ///< copies reach it at the link's full speed; it cannot be swapped
    pageable, ///< ordinary memory, reached through a bounded ring of pinned buffers
};

/// Live blocks are bit-identical after resume. Host memory is taken at the first pause, or ahead of it by
/// `saver.prepare(tag)`; it is checked against what the system and its control groups allow before it is touched
/// (OutOfHostMemory, and the memory stays active). Kept out of core dumps.
struct HostBackup {
    Storage storage = Storage::pinned;
    Refresh refresh = Refresh::every_pause;
    /// The host memory is kept after a resume, at the same addresses, for the next pause, which is then as fast as the
    /// link; otherwise it is given back before `resume` returns. With Refresh::once it is kept whatever this says: the
    /// later pauses, which save nothing, need it.
    bool retain = true;
    /// With Refresh::once: every pause compares the device's bytes with the kept ones, and throws Misuse, the memory
    /// still active, if they differ although nobody called `invalidate`. A test mode: it costs a whole copy.
    bool check = false;
    /// Threads that take, pin and copy host memory. None is left behind between operations.
    unsigned threads = 8;
    /// The most pinned memory of a pageable backup, on each device: two buffers of 2 MiB for each thread, or for fewer.
    std::size_t ring_bytes = 64_MiB;
    /// The engine's own threads instead.
    std::shared_ptr<Executor> executor{};

    [[nodiscard]] std::string_view name() const noexcept;
    /// All its options for people: "pinned, saved at every pause, retained, ..., threads 8, ring 64.00 MiB, ...".
    [[nodiscard]] std::string describe() const;

    [[nodiscard]] detail::StoredSlot open(const AnyDriver& driver,
                                          std::shared_ptr<detail::PieceObserver> observer = {}) const;

    friend bool operator==(const HostBackup&, const HostBackup&) = default;
};

} // namespace memsaver::inline v0_2

#ifndef MEMSAVER_COMPILED
#include "memsaver/backup/host_backup.ipp"
#endif
