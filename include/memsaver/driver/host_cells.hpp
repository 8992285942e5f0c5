// Owners of host memory for copies: budgets, mappings that are pinned cell by cell, and buffers.
#pragma once

#include "memsaver/core/error.hpp"
#include "memsaver/core/lists.hpp"
#include "memsaver/core/pointers.hpp"
#include "memsaver/core/sizes.hpp"
#include "memsaver/core/vector.hpp"
#include "memsaver/driver/any_driver.hpp"
#include "memsaver/driver/attic.hpp"
#include "memsaver/driver/fork_check.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <utility>

namespace memsaver::inline v0_3::detail {

/// Waits for all of the device's work. A lost device counts as idle.
inline Status drained(const AnyDriver& driver) noexcept {
    const Status status = driver.drain();
    return status.kind == StatusKind::gone ? Status{} : status;
}

/// As `drained`, if `unsettled` is set, which it clears. On failure the memory must be neither released nor reused.
/// `Flag` is a bool or an atomic bool.
template <class Flag>
Status settle(const AnyDriver& driver, Flag& unsettled) noexcept {
    if (!unsettled) return {};
    const Status status = drained(driver);
    if (status.ok()) unsettled = false;
    return status;
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
    /// The untouched part of a promise. Move-only; returned to the budget on destruction. Does not own the budget,
    /// which may keep what could not be freed, with its promise.
    class Promise {
    public:
        Promise() = default;
        Promise(Promise&& other) noexcept { *this = std::move(other); }
        Promise& operator=(Promise&& other) noexcept {
            std::swap(budget_, other.budget_);
            std::swap(bytes_, other.bytes_);
            std::swap(taken_, other.taken_);
            return *this;
        }
        ~Promise() { end(); }

        /// `bytes` of the promise have been touched: the system counts them from now on, and so does `taken_bytes`, for
        /// as long as the promise lives.
        void touched(std::size_t bytes) noexcept {
            const std::shared_ptr<HostBudget> budget = budget_.lock();
            if (!budget) return;
            const std::lock_guard lock{budget->mutex_};
            bytes = std::min(bytes, bytes_);
            budget->promised_ -= bytes;
            bytes_ -= bytes;
            budget->taken_ += bytes;
            taken_ += bytes;
        }

    private:
        friend class HostBudget;
        Promise(const std::shared_ptr<HostBudget>& budget, std::size_t bytes) : budget_{budget}, bytes_{bytes} {}

        void end() noexcept {
            const std::shared_ptr<HostBudget> budget = budget_.lock(); // it may be the last owner of the mutex
            if (!budget) return;
            const std::lock_guard lock{budget->mutex_};
            budget->promised_ -= std::exchange(bytes_, 0);
            budget->taken_ -= std::exchange(taken_, 0);
        }

        std::weak_ptr<HostBudget> budget_;
        std::size_t bytes_ = 0; // untouched; guarded by the budget's mutex, as the next
        std::size_t taken_ = 0;
    };

    HostBudget();
    HostBudget& operator=(HostBudget&&) = delete;
    ~HostBudget();

    /// Throws OutOfHostMemory if the system and its control groups would not provide `bytes` in addition to the
    /// promises already made. Without a budget, only the memory available now counts. `whose` and `what` are used in
    /// the text of the exception.
    static Promise take(const std::shared_ptr<HostBudget>& budget, const AnyDriver& driver, std::size_t bytes,
                        const std::string& whose = {}, const char* what = "a backup");

    [[nodiscard]] std::size_t promised_bytes() const noexcept {
        const std::lock_guard lock{mutex_};
        return promised_;
    }
    /// Returns the host memory whose promises live, and which has been touched.
    [[nodiscard]] std::size_t taken_bytes() const noexcept { return taken_.load(); }

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
        UniquePtr<SharedRing> next{};
    };

    void give(HostCells* cells, std::uintptr_t address, std::size_t bytes) noexcept;

    std::atomic<std::size_t> taken_{0}; // read without the lock, under which the system is asked
    mutable std::mutex mutex_;          // guards the next two
    std::size_t promised_ = 0;
    UniquePtr<SharedRing> first_ring_;
    std::shared_ptr<HostCellsPool> pool_; ///< keeps rings and slabs that could not be freed
    std::mutex slabs_mutex_;              // guards the next
    UniquePtr<Slab> first_slab_;          ///< the newest
};

/// Pages that copies of a device reach directly, prepared part by part. Thread-safe.
class CopyablePages {
public:
    CopyablePages& operator=(CopyablePages&&) = delete;
    virtual ~CopyablePages() = default;

    [[nodiscard]] virtual std::uintptr_t address() const noexcept = 0;
    /// Returns whether the part around an address is ready: allocated, and pinned if `pinned` is set.
    [[nodiscard]] virtual bool ready(std::uintptr_t at, bool pinned) const noexcept = 0;
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
    /// As the size of a cell: all pages are one.
    static constexpr std::size_t one_cell = ~(~std::size_t{0} >> 1);

    /// Reserves addresses for `bytes`, rounded up to small pages; `promise` covers the memory; `whose` is used in error
    /// texts. Throws OutOfHostMemory, or the exception for the failing call.
    HostCells(AnyDriver driver, std::size_t bytes, HostBudget::Promise promise = {}, const std::string& whose = {})
        : HostCells{std::move(driver), bytes, std::move(promise), cell_bytes} {
        if (!mapped_.ok()) raise_of(mapped_, "map host pages", {whose, in_bytes(bytes_)});
    }
    /// As above, with cells of another size. The caller looks at `mapped`.
    HostCells(AnyDriver driver, std::size_t bytes, HostBudget::Promise promise, std::size_t cell)
        : driver_{std::move(driver)}, promise_{std::move(promise)}, bytes_{align_up(bytes, 4096)}, cell_{cell},
          cells_(bytes_ / cell + 2), mapped_{driver_.map_host(bytes_, pages_)}, first_cell_{address() / cell} {}
    ~HostCells() override { (void)HostCells::close(); }

    /// Releases everything, once no user is left. Parts that fail stay owned and are retried by the next call. Returns
    /// the first failure. A lost device holds no pins.
    Status close() noexcept override {
        Status first = settle();
        if (!first.ok()) return first;
        for (std::size_t i = 0; i < cells_.size(); ++i) {
            if (cells_[i].state != State::pinned) continue;
            const Status status = driver_.unpin_host(cell_range(i).first);
            if (status.ok() || status.kind == StatusKind::gone) {
                cells_[i].state = State::populated;
            } else if (first.ok()) {
                first = status;
            }
        }
        // Do not unmap pages that the driver still has pinned: another mapping could get the same addresses.
        if (!first.ok() || pages_ == nullptr) return first;
        const Status status = driver_.unmap_host(pages_, bytes_);
        if (!status.ok()) return status;
        pages_ = nullptr;
        promise_ = {};
        return status;
    }

    [[nodiscard]] std::uintptr_t address() const noexcept override { return reinterpret_cast<std::uintptr_t>(pages_); }
    [[nodiscard]] std::uintptr_t end() const noexcept { return address() + bytes_; }
    [[nodiscard]] std::byte* data() const noexcept { return static_cast<std::byte*>(pages_); }
    [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

    [[nodiscard]] const Status& mapped() const noexcept { return mapped_; }
    /// Waits for the device, if that is required before the pages can be used again.
    Status settle() noexcept { return detail::settle(driver_, unsettled_); }

    /// Allocates all pages, and pins none.
    Status take() noexcept {
        for (std::size_t i = 0; i < cells_.size(); ++i) {
            const auto [begin, bytes] = cell_range(i);
            if (bytes == 0) continue;
            const Status status = prepare(reinterpret_cast<std::uintptr_t>(begin), false);
            if (!status.ok()) return status;
        }
        return {};
    }
    void unsettle() noexcept override { unsettled_ = true; }
    [[nodiscard]] bool unsettled() const noexcept { return unsettled_.load(); }
    [[nodiscard]] const AnyDriver& driver() const noexcept { return driver_; }
    /// `bytes` bytes, in cells that were not prepared, have been touched by their owner: they count as allocated.
    void touched(std::size_t bytes) noexcept { promise_.touched(bytes); }
    /// For the cell of a host address. If pinning fails, the cell stays allocated.
    [[nodiscard]] bool ready(std::uintptr_t at, bool pinned) const noexcept override {
        const Cell& cell = cells_[index_of(at)];
        const std::lock_guard lock{cell.mutex};
        return cell.state == State::pinned || (!pinned && cell.state == State::populated);
    }
    Status prepare(std::uintptr_t at, bool pinned) noexcept override {
        Cell& cell = cells_[index_of(at)];
        const auto [begin, bytes] = cell_range(index_of(at));
        const std::lock_guard lock{cell.mutex};
        if (cell.state == State::untouched) {
            if (const Status status = driver_.populate_host(begin, bytes); !status.ok()) return status;
            cell.state = State::populated;
            promise_.touched(bytes);
        }
        if (pinned && cell.state == State::populated) {
            if (const Status status = driver_.pin_host(begin, bytes); !status.ok()) return status;
            cell.state = State::pinned;
        }
        return {};
    }

private:
    enum class State : unsigned char { untouched, populated, pinned };
    struct Cell {
        mutable std::mutex mutex; // two transfers may use the same cell
        State state = State::untouched;
    };

    [[nodiscard]] std::size_t index_of(std::uintptr_t at) const noexcept { return at / cell_ - first_cell_; }
    [[nodiscard]] std::pair<void*, std::size_t> cell_range(std::size_t index) const noexcept {
        const std::uintptr_t begin = std::max(address(), (first_cell_ + index) * cell_);
        const std::uintptr_t past = std::min(end(), (first_cell_ + index) * cell_ + cell_);
        return {static_cast<std::byte*>(pages_) + (begin - address()), past > begin ? past - begin : 0};
    }

    AnyDriver driver_;
    HostBudget::Promise promise_;
    void* pages_ = nullptr;
    std::size_t bytes_;
    std::size_t cell_; // its size
    Vector<Cell> cells_;
    Status mapped_;
    std::size_t first_cell_;
    std::atomic<bool> unsettled_{false};
};

/// Shares mappings. A mapping is released when its last user drops it, on that user's thread. If that fails, it is kept
/// here. Lives as long as its mappings. In a forked child, where others may be at their addresses, nothing is released.
/// Thread-safe.
class HostCellsPool : public Attic, public std::enable_shared_from_this<HostCellsPool> {
public:
    /// Returns `what`, which its last user closes; the pool keeps it if that fails.
    template <class T>
    [[nodiscard]] std::shared_ptr<T> share(std::shared_ptr<T> what) {
        T* const shared = what.get();
        return {kept(std::move(what)), shared};
    }
    [[nodiscard]] std::shared_ptr<HostCells> make(const AnyDriver& driver, std::size_t bytes,
                                                  HostBudget::Promise promise = {}, const std::string& whose = {}) {
        return share(new_shared<HostCells>(driver, bytes, std::move(promise), whose));
    }
    [[nodiscard]] bool forked() const noexcept { return fork_.forked(); }

private:
    /// Not a template: what closes it is compiled once for all types.
    [[nodiscard]] std::shared_ptr<Closable> kept(std::shared_ptr<Closable> what) {
        Closable* const shared = what.get();
        return {shared, [self = shared_from_this(), what = std::move(what)](Closable*) mutable noexcept {
                    if (self->forked()) {
                        (void)new (std::nothrow) std::pair{std::move(self), std::move(what)}; // stays the parent's
                    } else {
                        (void)self->add(std::move(what));
                    }
                }};
    }

    const ForkCheck fork_;
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

/// Owns host pages that are allocated and, if the driver allows it, pinned; or nothing. Not movable.
class PinnedBuffer {
public:
    /// Allocates `bytes`, or continues after an earlier `take` or `release` failed. A smaller buffer is released first,
    /// a larger one stays. Without pinning, copies are only slower. `promise` covers the memory.
    Status take(const AnyDriver& driver, std::size_t bytes, HostBudget::Promise promise = {}, bool pin = true) noexcept
        try {
        const Status idle = cells_ && cells_->bytes() < bytes ? release() : settle();
        if (!idle.ok() || !lacks(bytes)) return idle;
        if (!cells_) {
            auto fresh = UniquePtr<HostCells>::make(driver, bytes, std::move(promise), HostCells::one_cell);
            if (!fresh->mapped().ok()) return fresh->mapped();
            cells_ = std::move(fresh);
        }
        if (const Status status = cells_->prepare(cells_->address(), false); !status.ok()) return status;
        if (pin) (void)cells_->prepare(cells_->address(), true);
        ready_ = true;
        return {};
    } catch (const std::bad_alloc&) {
        return {StatusKind::out_of_host_memory, 0, "no host memory for a buffer"};
    }
    /// Returns whether `take` would allocate.
    [[nodiscard]] bool lacks(std::size_t bytes) const noexcept { return !ready_ || cells_->bytes() < bytes; }
    /// Releases the pages. On failure they stay owned; release can be retried, or the buffer taken again.
    Status release() noexcept {
        ready_ = false;
        const Status status = cells_ ? cells_->close() : Status{};
        if (status.ok()) cells_.reset();
        return status;
    }

    /// Records that work which could not be waited for may still touch the buffer: it is neither taken again nor
    /// released before the device is idle.
    void unsettle() noexcept { cells_->unsettle(); }
    [[nodiscard]] bool unsettled() const noexcept { return cells_ && cells_->unsettled(); }
    /// Waits for the device, if that is required before the buffer can be taken again.
    Status settle() noexcept { return cells_ ? cells_->settle() : Status{}; }

    [[nodiscard]] bool pinned() const noexcept { return cells_ && cells_->ready(cells_->address(), true); }
    [[nodiscard]] std::byte* data() const noexcept { return cells_ ? cells_->data() : nullptr; }

private:
    UniquePtr<HostCells> cells_; // of one cell
    bool ready_ = false;         // the cell is allocated; known without its lock
};

/// Pages of at most HostPart::shared_below bytes, in a mapping that small backups share.
struct HostBudget::Slab {
    static constexpr std::size_t page = 4096;

    Slab(std::shared_ptr<HostCells> mapping, bool pins) : cells{std::move(mapping)}, pinned{pins} {}
    [[gnu::noinline]] ~Slab() = default; // of a list: not each in the one before

    /// Marks the first free range as used. Returns its address, or 0.
    std::uintptr_t take(std::size_t bytes) noexcept {
        const std::size_t wanted = bytes / page;
        std::size_t found = 0;
        for (std::size_t at = 0; at < cells->bytes() / page; ++at) {
            found = used[at] != 0 ? 0 : found + 1;
            if (found < wanted) continue;
            const std::size_t first = at + 1 - wanted;
            std::memset(&used[first], 1, wanted);
            return cells->address() + first * page;
        }
        return 0;
    }

    std::shared_ptr<HostCells> cells;
    bool pinned;
    std::array<char, HostPart::shared_below / page> used{}; // of each page
    UniquePtr<Slab> next;
};

inline HostBudget::HostBudget() : pool_{new_shared<HostCellsPool>()} {}

inline HostBudget::~HostBudget() = default;

inline Status HostBudget::retry() noexcept { return pool_->retry(); }

inline HostBudget::Promise HostBudget::take(const std::shared_ptr<HostBudget>& budget, const AnyDriver& driver,
                                            std::size_t bytes, const std::string& whose, const char* what) {
    std::unique_lock<std::mutex> lock;
    if (budget) lock = std::unique_lock{budget->mutex_};
    std::size_t available = 0;
    const Status asked = driver.host_available(available);
    if (!asked.ok())
        raise_of(asked, "query the available host memory (driver concept HostPages)", {whose, in_bytes(bytes)});
    const std::size_t promised = budget ? budget->promised_ : 0;
    available -= std::min(available, promised);
    if (bytes > available) {
        const std::string others =
            promised == 0 ? "" : text_of({" after subtracting the ", in_bytes(promised), " of other backups"});
        out_of_host_memory({whose, what, " of ", in_bytes(bytes),
                            " does not fit: available host memory (system and control groups) is ", in_bytes(available),
                            others});
    }
    if (!budget) return {};
    budget->promised_ += bytes;
    return {budget, bytes};
}

inline void HostBudget::give(HostCells* cells, std::uintptr_t address, std::size_t bytes) noexcept {
    UniquePtr<Slab> unused; // freed without the lock
    const std::lock_guard lock{slabs_mutex_};
    UniquePtr<Slab>* slab = &first_slab_;
    while ((*slab)->cells.get() != cells) slab = &(*slab)->next;
    std::memset(&(*slab)->used[(address - cells->address()) / Slab::page], 0, bytes / Slab::page);
    if (is_in((*slab)->used, char{1})) return;
    unused = std::move(*slab);
    *slab = std::move(unused->next);
}

inline HostPart HostPart::take(const std::shared_ptr<HostBudget>& budget, const std::shared_ptr<HostCellsPool>& pool,
                               const AnyDriver& driver, std::size_t bytes, bool pinned, const std::string& whose) {
    using Slab = HostBudget::Slab;
    bytes = align_up(bytes, Slab::page);
    const bool shares = budget && bytes < shared_below;
    std::unique_lock<std::mutex> lock;
    std::size_t there = 0;
    HostPart part{{}, 0, bytes};
    HostCells* cells = nullptr;
    if (shares) {
        lock = std::unique_lock{budget->slabs_mutex_};
        for (Slab* slab = budget->first_slab_.get(); slab != nullptr && part.address == 0; slab = slab->next.get()) {
            if (slab->pinned != pinned || slab->cells->driver() != driver) continue;
            there += slab->cells->bytes();
            if (slab->cells->unsettled()) continue; // copies that were not waited for may still reach it
            part.address = slab->take(bytes);
            cells = slab->cells.get();
        }
    }
    if (part.address == 0) {
        const std::size_t wanted = shares ? std::clamp(there, bytes, shared_below) : bytes;
        auto promise = HostBudget::take(budget, driver, wanted, whose);
        part.cells = (shares ? budget->pool_ : pool)->make(driver, wanted, std::move(promise), whose);
        cells = part.cells.get();
        part.address = cells->address();
        if (!shares) return part;
        auto slab = UniquePtr<Slab>::make(std::move(part.cells), pinned);
        (void)slab->take(bytes);
        slab->next = std::move(budget->first_slab_);
        budget->first_slab_ = std::move(slab);
    }
    lock.unlock();
    part.cells = {cells, [budget, address = part.address, bytes](HostCells* of) noexcept {
                      if (!budget->pool_->forked()) budget->give(of, address, bytes);
                  }};
    return part;
}

} // namespace memsaver::inline v0_3::detail

#include "memsaver/driver/ring.hpp" // what it only declares
