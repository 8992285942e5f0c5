// Owners of host memory that copies reach: what has been promised, regions pinned cell by cell, and buffers.
#pragma once

#include "memsaver/core/error.hpp"
#include "memsaver/core/sizes.hpp"
#include "memsaver/driver/any_driver.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace memsaver::inline v0_2 {

namespace detail {

/// Waits for all of the device's work if `unsettled` says that some could not be waited for, and then takes it back.
/// A lost device works no more. On failure the memory is not to be given back, nor to be used anew. `Flag` is a bool,
/// or an atomic one.
template <class Flag>
Status settle(const AnyDriver& driver, Flag& unsettled) noexcept {
    if (!unsettled) return {};
    const Status drained = driver.drain();
    if (!drained.ok() && drained.kind != StatusKind::gone) return drained;
    unsettled = false;
    return {};
}

/// What the system says it would still give does not know of pages that are about to be touched: of several backups
/// that ask before any of them touches a page, each would be told that it fits. Those that share a budget are not.
/// Thread safe.
class HostBudget {
public:
    /// The part of a promise that has not been touched. Move-only; ends with its owner.
    class Promise {
    public:
        Promise() = default;
        Promise(Promise&& other) noexcept : budget_{std::move(other.budget_)}, bytes_{std::exchange(other.bytes_, 0)} {}
        Promise& operator=(Promise&& other) noexcept;
        ~Promise() { touched(bytes_); }

        /// `bytes` of it are the system's to count from now on.
        void touched(std::size_t bytes) noexcept;

    private:
        friend class HostBudget;
        Promise(std::shared_ptr<HostBudget> budget, std::size_t bytes) : budget_{std::move(budget)}, bytes_{bytes} {}

        std::shared_ptr<HostBudget> budget_;
        std::size_t bytes_ = 0; // guarded by the budget's mutex
    };

    /// Throws OutOfHostMemory if the system and its control groups would not give `bytes` more than has been promised
    /// already. Without a budget, only what they would give now counts. `whose` is for the text of the exception.
    static Promise take(const std::shared_ptr<HostBudget>& budget, const AnyDriver& driver, std::size_t bytes,
                        const std::string& whose = {});

    [[nodiscard]] std::size_t promised_bytes() const noexcept;

private:
    mutable std::mutex mutex_;
    std::size_t promised_ = 0;
};

/// Pages that copies of a device reach directly, made ready part by part. Any thread.
class CopyablePages {
public:
    CopyablePages() = default;
    CopyablePages(const CopyablePages&) = delete;
    CopyablePages& operator=(const CopyablePages&) = delete;
    virtual ~CopyablePages() = default;

    [[nodiscard]] virtual std::uintptr_t address() const noexcept = 0;
    /// Whether the part around an address is ready: taken, and pinned if that is wanted.
    [[nodiscard]] virtual bool ready(std::uintptr_t at, bool pinned) const noexcept = 0;
    /// Makes it so.
    virtual Status prepare(std::uintptr_t at, bool pinned) noexcept = 0;
    /// Work that could not be waited for may still touch it: it is not given back before the device has been.
    virtual void unsettle() noexcept = 0;
};

/// Owns mapped host pages. They are taken, and pinned, in cells: the parts between multiples of `cell_bytes` of the
/// host address. Not movable; gives everything back when it dies, but what fails then is lost: HostRegions keeps it.
/// `ready` and `prepare` from any thread; those of different cells do not wait for each other.
class HostRegion final : public CopyablePages {
public:
    /// A cell is large enough to be pinned and copied at full speed, and small enough that the first copy starts early.
    static constexpr std::size_t cell_bytes = 64_MiB;

    /// Addresses for `bytes`, `promise` being the memory; `whose` is for the text of errors. Throws OutOfHostMemory, or
    /// what else a failing call stands for.
    HostRegion(AnyDriver driver, std::size_t bytes, HostBudget::Promise promise = {}, const std::string& whose = {});
    ~HostRegion() override { (void)release(); }

    /// Gives everything back, once nobody uses it any more. What fails stays owned, to be tried again by the next call;
    /// answers the first failure. A lost device holds no pins.
    Status release() noexcept;

    [[nodiscard]] std::uintptr_t address() const noexcept override { return reinterpret_cast<std::uintptr_t>(pages_); }
    [[nodiscard]] std::uintptr_t end() const noexcept { return address() + bytes_; }
    [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

    /// Takes all of it, and pins nothing.
    Status take() noexcept;
    void unsettle() noexcept override { unsettled_ = true; }
    /// So many bytes of it, in cells that nobody prepared, have been touched by who owns it: they count as taken.
    void touched(std::size_t bytes) noexcept { promise_.touched(bytes); }
    /// Of the cell of a host address. A refused pin leaves the cell taken.
    [[nodiscard]] MEMSAVER_INLINE bool ready(std::uintptr_t at, bool pinned) const noexcept override;
    MEMSAVER_INLINE Status prepare(std::uintptr_t at, bool pinned) noexcept override;

private:
    enum class State : unsigned char { untouched, populated, pinned };
    struct Cell {
        mutable std::mutex mutex; // two transfers may want the same cell
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

/// A region goes back to the system when the last who shares it lets it go, on whatever thread that is. What fails then
/// is kept here, and `retry` tries again. Lives as long as its regions. Thread safe; no lock is held over a driver
/// call.
class HostRegions : public std::enable_shared_from_this<HostRegions> {
public:
    /// See HostRegion's constructor.
    [[nodiscard]] std::shared_ptr<HostRegion> make(const AnyDriver& driver, std::size_t bytes,
                                                   HostBudget::Promise promise = {}, const std::string& whose = {});

    /// Tries again to give back what could not be given back so far. Answers the first failure.
    Status retry() noexcept;

private:
    using Regions = std::list<HostRegion>; // from one to another without a need for memory

    void give_back(typename Regions::iterator region) noexcept;

    std::mutex mutex_;
    Regions used_;
    Regions held_;
};

/// Owns host pages that are taken and, if the driver lets it, pinned; or nothing. Move-only.
class PinnedBuffer {
public:
    PinnedBuffer() = default;
    /// Throws OutOfHostMemory, or what else a failing call stands for.
    PinnedBuffer(const AnyDriver& driver, std::size_t bytes);
    PinnedBuffer(PinnedBuffer&& other) noexcept { swap(other); }
    PinnedBuffer& operator=(PinnedBuffer&& other) noexcept;
    ~PinnedBuffer() { (void)release(); }

    /// Takes `bytes`, or goes on where an earlier call, or giving back, failed. A refused pin is no failure, only slow.
    Status take(const AnyDriver& driver, std::size_t bytes) noexcept;

    /// Gives it back. On failure it stays owned, to be tried again, or taken again. A lost device holds no pins.
    Status release() noexcept;

    /// Work that could not be waited for may still touch it: it is not taken again, nor given back, before the device
    /// has been.
    void unsettle() noexcept { unsettled_ = true; }
    [[nodiscard]] bool unsettled() const noexcept { return unsettled_; }
    /// Waits for the device, if that is to be done before it can be taken again.
    Status settle() noexcept;

    [[nodiscard]] bool owns() const noexcept { return driver_.has_value(); }
    [[nodiscard]] bool pinned() const noexcept { return pinned_; }
    [[nodiscard]] std::byte* data() const noexcept { return static_cast<std::byte*>(pages_); }

private:
    void swap(PinnedBuffer& other) noexcept;

    std::optional<AnyDriver> driver_;
    void* pages_ = nullptr;
    std::size_t bytes_ = 0;
    bool ready_ = false; // taken, and pinned if that could be
    bool pinned_ = false;
    bool unsettled_ = false;
};

} // namespace detail

} // namespace memsaver::inline v0_2

#ifndef MEMSAVER_COMPILED
#include "memsaver/driver/host_memory.ipp"
#endif
