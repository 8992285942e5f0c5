// Device memory that a slot uses in addition to the pages that it saves and restores. Knows nothing about its purpose.
#pragma once

#include "memsaver/core/sizes.hpp"
#include "memsaver/driver/host_cells.hpp"
#include "memsaver/driver/owned.hpp"

#include <atomic>
#include <cstddef>
#include <utility>

namespace memsaver::inline v0_3::detail {

/// Scratch memory, allocated and released like other pages. `held_bytes`, `wanted_bytes` and `want` are thread-safe;
/// the other methods belong to the thread that runs the slot's operation. The destructor releases the memory.
class DeviceScratch {
public:
    explicit DeviceScratch(AnyDriver driver) : driver_{std::move(driver)} {}
    DeviceScratch& operator=(DeviceScratch&&) = delete;
    ~DeviceScratch() { (void)give(); }

    [[nodiscard]] std::size_t held_bytes() const noexcept { return held_.load(); }
    /// Returns the memory that restoring the current backup would allocate, in bytes; 0 if the memory held is enough.
    [[nodiscard]] std::size_t wanted_bytes() const noexcept {
        const std::size_t wanted = wanted_.load();
        return held_.load() < wanted ? wanted : 0; // memory that is too small is released first
    }
    /// Sets the memory that a restore needs in all, in bytes, a multiple of the granularity.
    void want(std::size_t bytes) noexcept { wanted_.store(bytes); }

    /// Allocates what a restore needs. On failure it holds nothing, unless the memory is in use or could not be
    /// released.
    Status take() noexcept { return take(wanted_.load()); }
    Status take(std::size_t bytes) noexcept {
        if (bytes == 0 || range(bytes).bytes != 0) return {};
        if (users_.load() != 0) return {StatusKind::out_of_memory, 0, "the scratch memory is in use and too small"};
        if (const Status status = give(); !status.ok()) return status;
        const Status status = open(bytes);
        if (!status.ok()) (void)give();
        return status;
    }
    /// Releases all memory. No-op while it is in use. If it fails, the next call retries.
    Status give() noexcept {
        if (users_.load() != 0) return {};
        if (const Status status = settle(driver_, unsettled_); !status.ok()) return status;
        if (const Status status = mapping_.close(); !status.ok()) return status;
        ready_ = false;
        const Status released = pages_.close();
        if (released.ok()) held_.store(0);
        const Status unreserved = addresses_.close();
        return released.ok() ? unreserved : released;
    }
    /// Returns mapped memory of at least `bytes` bytes, or an empty range.
    [[nodiscard]] Range range(std::size_t bytes) const noexcept {
        return bytes != 0 && ready_ && mapping_.get().bytes >= bytes ? mapping_.get() : Range{};
    }
    /// Marks the memory as possibly still in use by work that could not be waited for: `give` waits for the device
    /// first.
    void unsettle() noexcept { unsettled_ = true; }

    /// Keeps the memory from being released for as long as this object lives.
    class UseGuard {
    public:
        explicit UseGuard(DeviceScratch& scratch) noexcept : scratch_{scratch} { scratch_.users_ += 1; }
        UseGuard& operator=(UseGuard&&) = delete;
        ~UseGuard() { scratch_.users_ -= 1; }

    private:
        DeviceScratch& scratch_;
    };

private:
    Status open(std::size_t bytes) noexcept {
        std::size_t granularity = 0;
        if (const Status status = driver_.granularity(granularity); !status.ok()) return status;
        const std::size_t whole = align_up(bytes, granularity);
        if (const Status status = pages_.open(driver_, whole); !status.ok())
            return status; // first, because it is the step most likely to fail
        held_.store(whole);
        if (const Status status = addresses_.open(driver_, whole, granularity); !status.ok()) return status;
        if (const Status status = mapping_.open(driver_, addresses_.get(), pages_.get().handle); !status.ok())
            return status;
        const Status status = driver_.allow_access(addresses_.get().address, whole);
        ready_ = status.ok();
        return status;
    }

    AnyDriver driver_;
    Reservation addresses_; // destroyed in reverse order: mapping, pages, addresses
    OwnedPages pages_;
    Mapping mapping_;
    bool ready_ = false; ///< mapped and accessible
    std::atomic<bool> unsettled_{false};
    std::atomic<std::size_t> users_{0};
    std::atomic<std::size_t> held_{0};
    std::atomic<std::size_t> wanted_{0};
};

} // namespace memsaver::inline v0_3::detail
