// Blocks that grow where they are, in memory that is never paused: pages of their own at addresses of their own.
// Does not know what they are used for.
#pragma once

#include "memsaver/arena/growing_block.hpp"
#include "memsaver/arena/order.hpp"
#include "memsaver/driver/system_fork.hpp"
#include "memsaver/memory/memory.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace memsaver::inline v0_1 {

/// What a PlainArena has of them, by address. Thread safe; the lock is held over driver calls.
template <Driver D>
class PlainGrowth {
public:
    /// `margin`: bytes of the device's memory that growth leaves free. `fork` outlives this.
    PlainGrowth(D driver, std::string tag, EventSink events, std::size_t margin, const ForkMark& fork)
        : driver_{std::move(driver)}, tag_{std::move(tag)}, events_{std::move(events)}, margin_{margin}, fork_{fork} {}

    /// Addresses for `cap` bytes. Throws Misuse if that cannot be, or what a failing driver call stands for.
    Range reserve(std::size_t cap) {
        const std::size_t granularity = granularity_of(driver_);
        if (cap == 0 || !can_align_up(cap, granularity)) {
            throw Misuse{"tag \"" + tag_ + "\": addresses for " + format_bytes(cap) + " cannot be"};
        }
        const std::lock_guard lock{mutex_};
        require_open("reserve addresses for", cap);
        Grown grown{Reservation<D>{driver_, align_up(cap, granularity), granularity}, granularity, {}, {}};
        const Range range{grown.addresses.address(), grown.addresses.bytes()};
        grown_.emplace(range.address, std::move(grown));
        return range;
    }

    /// Memory behind the block's first `bytes`, in whole pages; answers how many there are then. Throws what a failing
    /// driver call stands for; then nothing has changed.
    std::size_t grow(Address address, std::size_t bytes) {
        fork_.require_parent("grow a block");
        const std::lock_guard lock{mutex_};
        require_open("grow a block to", bytes);
        Grown& grown = grown_.at(address);
        std::size_t have = 0;
        for (const Extent<D>& extent : grown.extents) have += extent.bytes();
        Extent<D> more{address + have, align_up(bytes, grown.granularity) - have};
        grown.extents.reserve(grown.extents.size() + 1);
        left_.reserve(left_.size() + 1);
        Status status = give_left();
        if (status.ok()) status = take(more);
        if (!status.ok()) {
            DeviceMemory memory;
            (void)driver_.memory(memory);
            const std::size_t needed = more.bytes();
            if (!give(more).ok()) left_.push_back(std::move(more));
            raise(status, "take memory for a block that grows", "tag \"" + tag_ + "\" needs " + format_bytes(needed),
                  needed, memory.free_bytes);
        }
        grown.extents.push_back(std::move(more));
        return have + grown.extents.back().bytes();
    }

    /// Gives a block back, waiting for the device first, as freeing does; one that replays touch, when its graph is let
    /// go. What fails is told, and tried again by `close`. In a forked child it does nothing: the pages are the
    /// parent's.
    void give_back(Address address, const FreeOrder& order) noexcept {
        if (fork_.forked()) return;
        if (order.kind != FreeOrder::Kind::replayed) {
            return give_back_where([&](const auto& entry) { return entry.first == address; });
        }
        const std::lock_guard lock{mutex_};
        const auto found = grown_.find(address);
        if (found != grown_.end()) found->second.graph = order.graph; // else closed before
    }
    /// A graph is gone: the blocks that ended while it was captured.
    void let_go(std::uint64_t graph) noexcept {
        if (fork_.forked()) return;
        give_back_where([&](const auto& entry) { return entry.second.graph == graph; });
    }

    /// Gives everything back. Answers the first failure; what failed is kept, to be tried again.
    Status close() noexcept {
        const std::lock_guard lock{mutex_};
        closed_ = true;
        if (grown_.empty()) return {};
        const Status drained = driver_.drain();
        return drained.ok() ? give_where([](const auto&) { return true; }) : drained;
    }

    /// Physical bytes, the sum of the handles that live: of blocks, and of those that ended but are kept for graphs.
    [[nodiscard]] std::size_t bytes() const noexcept {
        const std::lock_guard lock{mutex_};
        std::size_t sum = bytes_where(false);
        for (const Extent<D>& extent : left_) sum += extent.physical_bytes();
        return sum;
    }
    [[nodiscard]] std::size_t kept_bytes() const noexcept {
        const std::lock_guard lock{mutex_};
        return bytes_where(true);
    }
    [[nodiscard]] std::size_t blocks() const noexcept {
        const std::lock_guard lock{mutex_};
        return static_cast<std::size_t>(
            std::count_if(grown_.begin(), grown_.end(), [](const auto& entry) { return !entry.second.graph; }));
    }
    [[nodiscard]] const std::string& tag() const noexcept { return tag_; }
    [[nodiscard]] bool contains(Address address) const noexcept {
        const std::lock_guard lock{mutex_};
        const auto after = grown_.upper_bound(address);
        return after != grown_.begin() &&
               address - std::prev(after)->first < std::prev(after)->second.addresses.bytes();
    }
    /// Whether a range has memory.
    [[nodiscard]] bool holds(Range range) const noexcept {
        const std::lock_guard lock{mutex_};
        const auto after = grown_.upper_bound(range.address);
        if (after == grown_.begin() || std::prev(after)->second.extents.empty()) return false;
        if (std::prev(after)->second.graph) return false;
        const Address end = std::prev(after)->second.extents.back().end();
        return range.address < end && range.bytes <= end - range.address;
    }

private:
    struct Grown {
        Reservation<D> addresses; // declared before what is mapped in it, so that it dies later
        std::size_t granularity;
        std::vector<Extent<D>> extents;
        std::optional<std::uint64_t> graph; // it has ended, but replays of this one may touch it
    };

    void require_open(const char* what, std::size_t bytes) const {
        if (closed_) throw Misuse{what + (' ' + format_bytes(bytes)) + ": tag \"" + tag_ + "\" has been closed"};
    }
    Status take(Extent<D>& extent) noexcept {
        if (margin_ != 0) {
            DeviceMemory memory;
            if (const Status status = driver_.memory(memory); !status.ok()) return status;
            if (memory.free_bytes < margin_ || memory.free_bytes - margin_ < extent.bytes())
                return {StatusKind::out_of_memory, 0, "less than the margin would be left free"};
        }
        const Status status = extent.create(driver_);
        return status.ok() ? extent.map(driver_) : status;
    }
    [[nodiscard]] std::size_t bytes_where(bool kept) const noexcept {
        std::size_t sum = 0;
        for (const auto& [address, grown] : grown_) {
            if (grown.graph.has_value() != kept) continue;
            for (const Extent<D>& extent : grown.extents) sum += extent.physical_bytes();
        }
        return sum;
    }

    /// Waits for the device, then gives back the blocks that `which(entry)` picks, if there are any.
    template <class Which>
    void give_back_where(const Which& which) noexcept {
        {
            const std::lock_guard lock{mutex_};
            if (std::none_of(grown_.begin(), grown_.end(), which)) return;
        }
        Status status = driver_.drain(); // waits: outside the lock
        if (status.ok()) {
            const std::lock_guard lock{mutex_};
            status = give_where(which);
        }
        if (status.ok()) return;
        tell(events_, [&] {
            return Event{EventKind::ignored, tag_, driver_.device(), failure_text(status, "free plain memory")};
        });
    }
    /// With the lock held. Answers the first failure; what failed is kept.
    template <class Which>
    Status give_where(const Which& which) noexcept {
        Status first;
        for (auto grown = grown_.begin(); grown != grown_.end();) {
            if (!which(*grown)) {
                ++grown;
                continue;
            }
            const Status status = give(grown->second);
            if (first.ok()) first = status;
            grown = status.ok() ? grown_.erase(grown) : std::next(grown);
        }
        return first;
    }

    static Status give(Extent<D>& extent) noexcept {
        const Status status = extent.unmap();
        return status.ok() ? extent.release() : status;
    }
    /// What growth that failed could not give back.
    Status give_left() noexcept {
        for (; !left_.empty(); left_.pop_back()) {
            if (const Status status = give(left_.back()); !status.ok()) return status;
        }
        return {};
    }
    Status give(Grown& grown) noexcept {
        if (const Status status = give_left(); !status.ok()) return status;
        for (; !grown.extents.empty(); grown.extents.pop_back()) {
            if (const Status status = give(grown.extents.back()); !status.ok()) return status;
        }
        return grown.addresses.close();
    }

    D driver_;
    std::string tag_;
    EventSink events_;
    std::size_t margin_;
    const ForkMark& fork_;
    mutable std::mutex mutex_;
    bool closed_ = false;
    std::map<Address, Grown> grown_;
    std::vector<Extent<D>> left_; // dies before the addresses that it may be mapped at
};

/// A growing block of a PlainArena.
template <Driver D>
class PlainGrowingBlock final : public GrowingBlock {
public:
    PlainGrowingBlock(PlainGrowth<D>& growth, std::size_t cap) : growth_{growth} { reserved_ = growth.reserve(cap); }
    ~PlainGrowingBlock() override { growth_.give_back(reserved_.address, order_); }

    void grow(std::size_t bytes) override {
        if (bytes <= bytes_) return;
        if (bytes > cap()) {
            throw Misuse{"a block at " + format_address(address()) + " in tag \"" + growth_.tag() +
                         "\" cannot grow to " + format_bytes(bytes) + ": its cap is " + format_bytes(cap())};
        }
        bytes_ = growth_.grow(address(), bytes);
    }

private:
    PlainGrowth<D>& growth_;
};

} // namespace memsaver::inline v0_1
