// The owner of a range of host pages, pinned cell by cell. Does not know what lies in it.
#pragma once

#include "memsaver/driver/concepts.hpp"
#include "memsaver/memory/host_budget.hpp"
#include "memsaver/memory/settle.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace memsaver::inline v0_1 {

/// Owns mapped host pages. They are taken, and pinned, in cells: the parts between multiples of `cell_bytes` of the
/// host address. Not movable; gives everything back when it dies, but what fails then is lost: HostRegions keeps it.
/// `ready` and `prepare` from any thread; those of different cells do not wait for each other.
template <HostPages D>
class HostRegion {
public:
    /// A cell is large enough to be pinned and copied at full speed, and small enough that the first copy starts early.
    static constexpr std::size_t cell_bytes = 64_MiB;

    /// Addresses for `bytes`, `promise` being the memory; `whose` is for the text of errors. Throws OutOfHostMemory, or
    /// what else a failing call stands for.
    HostRegion(D driver, std::size_t bytes, HostBudget::Promise promise = {}, const std::string& whose = {})
        : driver_{std::move(driver)}, promise_{std::move(promise)}, bytes_{align_up(bytes, 2_MiB)},
          cells_(bytes_ / cell_bytes + 2) {
        const Status status = driver_.map_host(bytes_, pages_);
        if (!status.ok()) raise(status, "map host pages", whose + format_bytes(bytes_));
        first_cell_ = address() / cell_bytes;
    }
    HostRegion(const HostRegion&) = delete;
    HostRegion& operator=(const HostRegion&) = delete;
    ~HostRegion() { (void)release(); }

    /// Gives everything back, once nobody uses it any more. What fails stays owned, to be tried again by the next call;
    /// answers the first failure. A lost device holds no pins.
    Status release() noexcept {
        promise_ = {};
        Status first = settle(driver_, unsettled_);
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
        // What the driver still holds is not pulled away from under it: others might be given the same addresses.
        if (!first.ok() || pages_ == nullptr) return first;
        const Status status = driver_.unmap_host(pages_, bytes_);
        if (status.ok()) pages_ = nullptr;
        return status;
    }

    [[nodiscard]] std::uintptr_t address() const noexcept { return reinterpret_cast<std::uintptr_t>(pages_); }
    [[nodiscard]] std::uintptr_t end() const noexcept { return address() + bytes_; }
    [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

    /// Takes all of it, and pins nothing.
    Status take() noexcept {
        for (std::size_t i = 0; i < cells_.size(); ++i) {
            const auto [begin, bytes] = cell_range(i);
            if (bytes == 0) continue;
            const Status status = prepare(reinterpret_cast<std::uintptr_t>(begin), false);
            if (!status.ok()) return status;
        }
        return {};
    }
    /// Work that could not be waited for may still touch it: it is not given back before the device has been.
    void unsettle() noexcept { unsettled_ = true; }
    /// So many bytes of it, in cells that nobody prepared, have been touched by who owns it: they count as taken.
    void touched(std::size_t bytes) noexcept { promise_.touched(bytes); }
    /// Whether the cell of a host address is ready: taken, and pinned if that is wanted.
    [[nodiscard]] bool ready(std::uintptr_t at, bool pinned) const noexcept {
        const Cell& cell = cells_[index_of(at)];
        const std::lock_guard lock{cell.mutex};
        return cell.state == State::pinned || (!pinned && cell.state == State::populated);
    }
    /// Makes it so. A refused pin leaves the cell taken.
    Status prepare(std::uintptr_t at, bool pinned) noexcept {
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
        mutable std::mutex mutex; // two transfers may want the same cell
        State state = State::untouched;
    };

    [[nodiscard]] std::size_t index_of(std::uintptr_t at) const noexcept { return at / cell_bytes - first_cell_; }
    [[nodiscard]] std::pair<void*, std::size_t> cell_range(std::size_t index) const noexcept {
        const std::uintptr_t begin = std::max(address(), (first_cell_ + index) * cell_bytes);
        const std::uintptr_t past = std::min(end(), (first_cell_ + index + 1) * cell_bytes);
        return {static_cast<std::byte*>(pages_) + (begin - address()), past > begin ? past - begin : 0};
    }

    D driver_;
    HostBudget::Promise promise_;
    void* pages_ = nullptr;
    std::size_t bytes_;
    std::size_t first_cell_ = 0;
    std::vector<Cell> cells_;
    std::atomic<bool> unsettled_{false};
};

} // namespace memsaver::inline v0_1
