// Owners of host memory for copies: budgets, mappings that are pinned cell by cell, and buffers.
#pragma once

#include "memsaver/core/error.hpp"
#include "memsaver/core/sizes.hpp"
#include "memsaver/driver/any_driver.hpp"
#include "memsaver/driver/attic.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {

/// Waits for all of the device's work and clears `unsettled`, if it is set. A lost device counts as idle. On failure
/// the memory must be neither released nor reused. `Flag` is a bool or an atomic bool.
template <class Flag>
Status settle(const AnyDriver& driver, Flag& unsettled) noexcept {
    if (!unsettled) return {};
    const Status drained = driver.drain();
    if (!drained.ok() && drained.kind != StatusKind::gone) return drained;
    unsettled = false;
    return {};
}

class HostCells;
class HostCellsPool;
class Ring;

/// The host memory of backups that are made side by side, such as those of a saver's tags: what is promised but not yet
/// touched, what is taken, and what they share. The system's report of available memory does not count pages that are
/// about to be touched: without a shared budget, several backups that query it before any touches a page would each be
/// told that they fit. Thread-safe.
class HostBudget {
public:
    /// The untouched part of a promise. Move-only; returned to the budget on destruction.
    class Promise {
    public:
        Promise() = default;
        Promise(Promise&& other) noexcept
            : budget_{std::move(other.budget_)}, bytes_{std::exchange(other.bytes_, 0)}, taken_{std::exchange(
                                                                                             other.taken_, 0)} {}
        Promise& operator=(Promise&& other) noexcept;
        ~Promise() { end(); }

        /// `bytes` of the promise have been touched: the system counts them from now on, and so does `taken_bytes`, for
        /// as long as the promise lives.
        void touched(std::size_t bytes) noexcept;

    private:
        friend class HostBudget;
        Promise(std::shared_ptr<HostBudget> budget, std::size_t bytes) : budget_{std::move(budget)}, bytes_{bytes} {}

        void end() noexcept;

        std::shared_ptr<HostBudget> budget_;
        std::size_t bytes_ = 0; // untouched; guarded by the budget's mutex, as the next
        std::size_t taken_ = 0;
    };

    HostBudget();
    HostBudget(const HostBudget&) = delete;
    HostBudget& operator=(const HostBudget&) = delete;
    ~HostBudget();

    /// Throws OutOfHostMemory if the system and its control groups would not provide `bytes` in addition to the
    /// promises already made. Without a budget, only the memory available now counts. `whose` and `what` are used in
    /// the text of the exception.
    static Promise take(const std::shared_ptr<HostBudget>& budget, const AnyDriver& driver, std::size_t bytes,
                        const std::string& whose = {}, const char* what = "a backup");

    [[nodiscard]] std::size_t promised_bytes() const noexcept;
    /// Returns the host memory whose promises live, and which has been touched.
    [[nodiscard]] std::size_t taken_bytes() const noexcept;

    /// Frees the buffers of rings that no transfer uses (ring.hpp). Returns the first failure; the next call retries.
    Status trim() noexcept;
    /// Frees what could not be freed before. Returns the first failure.
    Status retry() noexcept;

private:
    friend class Ring;
    friend struct HostPart;
    struct Slab;
    struct SharedRing {
        AnyDriver driver;
        std::size_t buffer_bytes = 0;
        std::weak_ptr<Ring> ring{};
        std::unique_ptr<SharedRing> next{};
    };

    void give(HostCells* cells, std::uintptr_t address, std::size_t bytes) noexcept;

    std::atomic<std::size_t> taken_{0}; // read without the lock, under which the system is asked
    mutable std::mutex mutex_;          // guards the next two
    std::size_t promised_ = 0;
    std::unique_ptr<SharedRing> first_ring_;
    std::shared_ptr<HostCellsPool> pool_; ///< keeps rings and slabs that could not be freed
    std::mutex slabs_mutex_;              // guards the next
    std::vector<std::unique_ptr<Slab>> slabs_;
};

/// Pages that copies of a device reach directly, prepared part by part. Thread-safe.
class CopyablePages {
public:
    CopyablePages() = default;
    CopyablePages(const CopyablePages&) = delete;
    CopyablePages& operator=(const CopyablePages&) = delete;
    virtual ~CopyablePages() = default;

    [[nodiscard]] virtual std::uintptr_t address() const noexcept = 0;
    /// Returns whether the part around an address is ready: allocated, and pinned if `pinned` is set.
    [[nodiscard]] virtual bool ready(std::uintptr_t at, bool pinned) const noexcept = 0;
    /// Prepares that part.
    virtual Status prepare(std::uintptr_t at, bool pinned) noexcept = 0;
    /// Records that work which could not be waited for may still touch the pages: they are not released before the
    /// device is idle.
    virtual void unsettle() noexcept = 0;
};

/// Owns mapped host pages, which are allocated and pinned in cells: the parts between multiples of `cell_bytes` of the
/// host address. Not movable. Releases everything on destruction; failures then leak, unless HostCellsPool keeps the
/// mapping. `ready` and `prepare` may be called from any thread; calls for different cells do not wait for each other.
class HostCells final : public CopyablePages, public Closable {
public:
    /// A cell is large enough to be pinned and copied at full speed, and small enough that the first copy starts early.
    static constexpr std::size_t cell_bytes = 64_MiB;

    /// Reserves addresses for `bytes`, rounded up to small pages; `promise` covers the memory; `whose` is used in error
    /// texts. Throws OutOfHostMemory, or the exception for the failing call.
    HostCells(AnyDriver driver, std::size_t bytes, HostBudget::Promise promise = {}, const std::string& whose = {});
    ~HostCells() override { (void)HostCells::close(); }

    /// Releases everything, once no user is left. Parts that fail stay owned and are retried by the next call. Returns
    /// the first failure. A lost device holds no pins.
    MEMSAVER_INLINE Status close() noexcept override;

    [[nodiscard]] std::uintptr_t address() const noexcept override { return reinterpret_cast<std::uintptr_t>(pages_); }
    [[nodiscard]] std::uintptr_t end() const noexcept { return address() + bytes_; }
    [[nodiscard]] std::byte* data() const noexcept { return static_cast<std::byte*>(pages_); }
    [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

    /// Allocates all pages, and pins none.
    Status take() noexcept;
    void unsettle() noexcept override { unsettled_ = true; }
    [[nodiscard]] bool unsettled() const noexcept { return unsettled_.load(); }
    [[nodiscard]] const AnyDriver& driver() const noexcept { return driver_; }
    /// `bytes` bytes, in cells that were not prepared, have been touched by their owner: they count as allocated.
    void touched(std::size_t bytes) noexcept { promise_.touched(bytes); }
    /// For the cell of a host address. If pinning fails, the cell stays allocated.
    [[nodiscard]] MEMSAVER_INLINE bool ready(std::uintptr_t at, bool pinned) const noexcept override;
    MEMSAVER_INLINE Status prepare(std::uintptr_t at, bool pinned) noexcept override;

private:
    enum class State : unsigned char { untouched, populated, pinned };
    struct Cell {
        mutable std::mutex mutex; // two transfers may use the same cell
        State state = State::untouched;
    };

    [[nodiscard]] std::size_t index_of(std::uintptr_t at) const noexcept { return at / cell_bytes - first_cell_; }
    [[nodiscard]] std::pair<void*, std::size_t> cell_range(std::size_t index) const noexcept;

    AnyDriver driver_;
    HostBudget::Promise promise_;
    void* pages_ = nullptr;
    std::size_t bytes_;
    std::size_t first_cell_ = 0;
    std::vector<Cell> cells_;
    std::atomic<bool> unsettled_{false};
};

/// Shares mappings. A mapping is released when its last user drops it, on that user's thread. If that fails, it is kept
/// here. Lives as long as its mappings. Thread-safe.
class HostCellsPool : public Attic, public std::enable_shared_from_this<HostCellsPool> {
public:
    /// Returns `what`, which its last user closes; the pool keeps it if that fails.
    [[nodiscard]] std::shared_ptr<Closable> share(std::shared_ptr<Closable> what);
    /// See HostCells's constructor.
    [[nodiscard]] std::shared_ptr<HostCells> make(const AnyDriver& driver, std::size_t bytes,
                                                  HostBudget::Promise promise = {}, const std::string& whose = {});
};

/// Host pages that one backup uses alone: a mapping, or a part of one that small backups share.
struct HostPart {
    std::shared_ptr<HostCells> cells; ///< of the whole mapping; the last copy gives the part back
    std::uintptr_t address = 0;
    std::size_t bytes = 0;

    /// Backups below this size share mappings: a mapping of their own would take huge pages for small ones.
    static constexpr std::size_t shared_below = 2_MiB;

    /// Takes at least `bytes` from the budget. Small parts with the same driver and the same `pinned` lie in mappings
    /// that grow with what they hold. `pool` keeps a mapping of the part's own that could not be freed. Throws as
    /// HostBudget::take and HostCells do.
    static HostPart take(const std::shared_ptr<HostBudget>& budget, const std::shared_ptr<HostCellsPool>& pool,
                         const AnyDriver& driver, std::size_t bytes, bool pinned, const std::string& whose);
};

/// Owns host pages that are allocated and, if the driver allows it, pinned; or nothing. Move-only.
class PinnedBuffer {
public:
    PinnedBuffer() = default;
    /// Throws OutOfHostMemory, or the exception for the failing call.
    PinnedBuffer(const AnyDriver& driver, std::size_t bytes);
    PinnedBuffer(PinnedBuffer&& other) noexcept { swap(other); }
    PinnedBuffer& operator=(PinnedBuffer&& other) noexcept;
    ~PinnedBuffer() { (void)release(); }

    /// Allocates `bytes`, or continues after an earlier `take` or `release` failed. A smaller buffer is released first,
    /// a larger one stays. Without pinning, copies are only slower. `promise` covers the memory.
    Status take(const AnyDriver& driver, std::size_t bytes, HostBudget::Promise promise = {}) noexcept;
    /// Returns whether `take` would allocate.
    [[nodiscard]] bool lacks(std::size_t bytes) const noexcept { return !ready_ || bytes_ < bytes; }

    /// Releases the pages. On failure they stay owned; release can be retried, or the buffer taken again. A lost device
    /// holds no pins.
    Status release() noexcept;

    /// Records that work which could not be waited for may still touch the buffer: it is neither taken again nor
    /// released before the device is idle.
    void unsettle() noexcept { unsettled_ = true; }
    [[nodiscard]] bool unsettled() const noexcept { return unsettled_; }
    /// Waits for the device, if that is required before the buffer can be taken again.
    Status settle() noexcept;

    [[nodiscard]] bool owns() const noexcept { return driver_.has_value(); }
    [[nodiscard]] bool pinned() const noexcept { return pinned_; }
    [[nodiscard]] std::byte* data() const noexcept { return static_cast<std::byte*>(pages_); }

private:
    void swap(PinnedBuffer& other) noexcept;

    std::optional<AnyDriver> driver_;
    void* pages_ = nullptr;
    std::size_t bytes_ = 0;
    bool ready_ = false; // allocated, and pinned if possible
    bool pinned_ = false;
    bool unsettled_ = false;
    HostBudget::Promise promise_;
};

} // namespace detail

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/driver/host_cells.ipp"
#endif
