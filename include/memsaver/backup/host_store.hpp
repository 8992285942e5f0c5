// Room for bytes in host memory. Knows locations, not blocks.
#pragma once

#include "memsaver/backup/backup_concept.hpp"
#include "memsaver/backup/compare.hpp"
#include "memsaver/backup/location_space.hpp"
#include "memsaver/backup/store_options.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace memsaver::inline v0_1 {

/// Regions of host pages; locations are their addresses. Pinned: copies reach them directly. Else: ordinary pages,
/// which bytes reach through a ring of pinned buffers; so too, for good, where pinning is refused at once.
template <class D>
requires Copies<D> && HostPages<D>
class HostStore {
public:
    static constexpr std::size_t alignment = 256;

    HostStore(D driver, bool pinned, StoreOptions options)
        : driver_{driver}, pinned_{pinned}, options_{std::move(options)}, ring_{std::make_shared<Ring<D>>(
                                                                              driver, options_.ring_bytes,
                                                                              options_.crew.threads, in_caches)} {}

    Room grow(std::size_t bytes, const LiveSet& live) {
        whose_ = of_tag(live.tag);
        auto promise = HostBudget::take(live.host_budget, driver_, bytes, whose_);
        auto region = host_memory_->make(driver_, bytes, std::move(promise), whose_);
        if (pinned_ && regions_.empty() && !region->prepare(region->address(), true).ok()) {
            if (!region->ready(region->address(), false)) check_taken(region->prepare(region->address(), false), bytes);
            pinned_ = false;
            fell_back_ = true;
        }
        regions_.push_back(region);
        return {region->address(), region->bytes()};
    }
    void shrink(LocationSpace& space) {
        for (auto region = regions_.begin(); region != regions_.end();) { // no erase_if: `remove` may throw
            region =
                space.remove((*region)->address(), (*region)->bytes()) ? regions_.erase(region) : std::next(region);
        }
    }
    void discard(std::uint64_t location, std::size_t bytes) noexcept { // pages go with their region
        if (options_.observer) options_.observer->discarded(location, bytes);
    }
    Status clear() noexcept {
        for (const auto& region : regions_) discard(region->address(), region->bytes());
        regions_.clear();
        const Status ring = ring_->clear();
        return first_failure({ring, retry()});
    }
    Status retry() noexcept { return host_memory_->retry(); }

    void prepare(std::vector<Unit> units) {
        if (!pinned_) ring_->prepare(cut(units, ring_->buffer_bytes()).size(), whose_);
        const std::vector<Piece> pieces = cut(std::move(units), HostRegion<D>::cell_bytes);
        std::atomic<std::size_t> next{0};
        Crew crew{options_.crew};
        crew.start(pieces.size(), [&] {
            for (std::size_t i = next++; i < pieces.size(); i = next++) {
                const auto region = region_of(pieces[i].location());
                const Status status = region->prepare(pieces[i].location(), pinned_);
                if (!status.ok() && !region->ready(pieces[i].location(), false)) check_taken(status, pieces[i].bytes());
            }
        });
        crew.join();
        if (const auto failure = crew.failure()) std::rethrow_exception(failure);
    }

    std::unique_ptr<Ticket::Work> out(std::vector<Unit> units, const LiveSet& live) {
        return start(Direction::out, std::move(units), live);
    }
    std::unique_ptr<Ticket::Work> in(std::vector<Unit> units, const LiveSet& live) {
        return start(Direction::in, std::move(units), live);
    }

    void compare(std::vector<Unit> units, const LiveSet& live) {
        compare_with(*this, driver_, units, cut(units, ring_->buffer_bytes()), ring_, options_.crew, live.tag);
    }

    [[nodiscard]] BackupView view(std::uint64_t location, std::size_t bytes) const {
        return {region_of(location), at(location), bytes};
    }

    // ByteStore, for bytes that come through the ring
    Status put(const std::byte* from, std::uint64_t location, std::size_t bytes) const noexcept {
        constexpr std::uintptr_t page = 4096;
        const std::uintptr_t begin = align_up(location, page); // whole pages of these bytes alone
        const std::uintptr_t end = align_down(location + bytes, page);
        if (begin < end) {
            if (const Status status = driver_.populate_host(at(begin), end - begin); !status.ok()) return status;
            region_of(location)->touched(end - begin);
        }
        std::byte* const to = at(location);
        std::memcpy(to, from, bytes);
        return {};
    }
    Status get(std::byte* to, std::uint64_t location, std::size_t bytes) const noexcept {
        std::memcpy(to, at(location), bytes);
        return {};
    }

private:
    /// Bytes that are in and out of a ring's buffer while the processors' caches still hold them pass nearly twice as
    /// fast as through 32 MiB (decision 15).
    static constexpr std::size_t in_caches = Ring<D>::least_buffer;

    static std::byte* at(std::uint64_t location) noexcept {
        return reinterpret_cast<std::byte*>(location); // NOLINT(performance-no-int-to-ptr): a host address
    }
    [[nodiscard]] std::shared_ptr<HostRegion<D>> region_of(std::uint64_t location) const {
        for (const auto& region : regions_) {
            if (region->address() <= location && location < region->end()) return region;
        }
        return {};
    }
    [[nodiscard]] std::vector<Piece> cut(std::vector<Unit> units, std::size_t cell) const {
        return cut_into_pieces(
            cut_for_observer(std::move(units), options_, driver_), cell,
            [&](const Unit& a, const Unit& b) { return region_of(a.location) != region_of(b.location); });
    }

    void check_taken(const Status& status, std::size_t bytes) const {
        if (!status.ok()) raise(status, "take host pages", whose_ + format_bytes(bytes));
    }
    /// Once for all: it will not get better.
    void tell_refused(const std::function<void(const std::string&)>& tell) {
        if (!told_.exchange(true) && tell) tell("host pages cannot be pinned: the backup is slower for it");
    }

    std::unique_ptr<Ticket::Work> start(Direction direction, std::vector<Unit> units, const LiveSet& live) {
        if (std::exchange(fell_back_, false)) tell_refused(live.tell);
        if (options_.observer) options_.observer->about(live.tag);
        CopyLane<D> lane{driver_, direction};
        if (pinned_) {
            std::vector<typename PinnedTransfer<D>::Cargo> cargo;
            for (Piece& piece : cut(std::move(units), HostRegion<D>::cell_bytes)) {
                auto region = region_of(piece.location());
                cargo.push_back({std::move(piece), std::move(region)});
            }
            auto work = std::make_unique<PinnedTransfer<D>>(std::move(lane), std::move(cargo), options_.crew,
                                                            options_.observer.get(), live.progress,
                                                            [this, tell = live.tell] { tell_refused(tell); });
            work->start();
            return work;
        }
        auto work = std::make_unique<RingTransfer<D, HostStore>>(
            std::move(lane), cut(std::move(units), ring_->buffer_bytes()), *this, ring_, options_.crew,
            options_.observer.get(), live.progress, of_tag(live.tag));
        work->start();
        return work;
    }

    D driver_;
    bool pinned_;
    bool fell_back_ = false;
    std::atomic<bool> told_{false};
    StoreOptions options_;
    std::string whose_; ///< for the text of errors
    std::shared_ptr<Ring<D>> ring_;
    std::shared_ptr<HostRegions<D>> host_memory_ = std::make_shared<HostRegions<D>>();
    std::vector<std::shared_ptr<HostRegion<D>>> regions_;
};

} // namespace memsaver::inline v0_1
