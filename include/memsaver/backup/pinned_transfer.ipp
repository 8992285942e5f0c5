// Definitions of pinned_transfer.hpp.
#pragma once

#include "memsaver/backup/pinned_transfer.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <exception>
#include <functional>
#include <iterator>
#include <mutex>
#include <utility>
#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {

MEMSAVER_INLINE
PinnedTransfer::PinnedTransfer(CopyLane lane, std::vector<PinnedPiece> cargo, const CrewOptions& crew,
                               PieceObserver* observer, const ProgressSink& progress, std::function<void()> refused,
                               const std::function<Status(Range)>& before_write, const KernelCopyOptions& kernel_copies)
    : lane_{std::move(lane)}, cargo_{std::move(cargo)},
      marks_(cargo_.size()), observer_{observer}, progress_{progress, bytes_of(cargo_)}, refused_{std::move(refused)},
      before_write_{before_write}, kernel_copies_{kernel_copies}, under_way_(cargo_.size(), 0),
      shown_(cargo_.size(), 0), crew_{crew} {}

MEMSAVER_INLINE PinnedTransfer::~PinnedTransfer() {
    try {
        (void)PinnedTransfer::wait();
    } catch (...) { // the caller did not ask for the result
    }
}

MEMSAVER_INLINE void PinnedTransfer::start() {
    bool ready = observer_ == nullptr; // an observer needs threads
    for (const PinnedPiece& cargo : cargo_) ready = ready && cargo.region->ready(cargo.piece.location(), true);
    if (!ready) {
        readies_kernel_ = observer_ == nullptr && lane_.direction() == Direction::out &&
                          may_go_by_kernel(bytes_of(cargo_), kernel_copies_);
        return crew_.start(cargo_.size(), [this] { work(); });
    }
    Status status;
    for (std::size_t i = send_ahead(status); i < cargo_.size() && status.ok(); ++i) status = enqueue(i);
    at_once_ = status.ok();
    if (!status.ok()) fail(status);
}

MEMSAVER_INLINE std::size_t PinnedTransfer::send_ahead(Status& status) {
    const std::size_t bytes = bytes_of(cargo_);
    // In an exchange the first bytes may have to wait for other pages to be saved: no probe.
    if (!may_go_by_kernel(bytes, kernel_copies_) || before_write_ || !lane_.to_be_watched()) return 0;
    const std::size_t ahead = std::min(most_ahead, bytes / parts_ahead);
    const std::size_t step = std::max<std::size_t>(align_down(ahead / parts_ahead, 4096), 4096);
    const std::size_t count = cut_first(ahead, step);
    std::vector<CopyLane::Sent> sent;
    sent.reserve(count);
    for (std::size_t i = 0; i < count && status.ok(); ++i) {
        status = enqueue(i);
        sent.push_back({marks_[i].get(), cargo_[i].piece.bytes()});
    }
    if (status.ok()) status = lane_.watch(sent, kernel_copies_);
    return count;
}

MEMSAVER_INLINE std::size_t PinnedTransfer::cut_first(std::size_t bytes, std::size_t step) {
    std::vector<PinnedPiece> parts;
    std::size_t cut = 0;
    std::size_t count = 0; // of parts that begin before `bytes`
    for (std::size_t taken = 0; cut < cargo_.size() && taken < bytes; ++cut) {
        const auto together = [](const Unit&, const Unit&) { return false; };
        for (Piece& part : cut_into_pieces(cargo_[cut].piece.units, step, together)) {
            if (taken < bytes) ++count;
            taken += part.bytes();
            parts.push_back({std::move(part), cargo_[cut].region});
        }
    }
    const auto first = cargo_.begin() + static_cast<std::ptrdiff_t>(cut);
    parts.insert(parts.end(), std::move_iterator{first}, std::move_iterator{cargo_.end()});
    cargo_ = std::move(parts);
    marks_ = std::vector<OwnedEvent>(cargo_.size());
    under_way_.assign(cargo_.size(), 0);
    shown_.assign(cargo_.size(), 0);
    return count;
}

MEMSAVER_INLINE Status PinnedTransfer::query(bool& done) noexcept {
    done = crew_.done();
    for (std::size_t i = 0; done && i < marks_.size(); ++i) {
        if (!marks_[i].get()) continue;
        if (const Status status = lane_.driver().query(marks_[i].get(), done); !status.ok()) return status;
    }
    return {};
}

MEMSAVER_INLINE Status PinnedTransfer::wait() {
    if (!waited_) {
        crew_.join();
        settle();
        failure_ = crew_.failure();
        waited_ = true;
    }
    if (failure_) std::rethrow_exception(failure_);
    const std::lock_guard lock{mutex_};
    return status_;
}

MEMSAVER_INLINE Status PinnedTransfer::follow(StreamRef stream, Range range) noexcept {
    return each_of(range, under_way_, [&](std::size_t i) { return lane_.driver().follow(stream, marks_[i].get()); });
}

MEMSAVER_INLINE Status PinnedTransfer::wait_for(Range range) {
    const bool seen = observer_ != nullptr && lane_.direction() == Direction::out;
    return each_of(range, seen ? shown_ : under_way_, [&](std::size_t i) {
        const Status status = lane_.driver().wait(marks_[i].get());
        return status.ok() || !lane_.drain().ok() ? status : Status{};
    });
}

MEMSAVER_INLINE void PinnedTransfer::cancel() noexcept {
    if (!at_once_ && !crew_.done()) fail({StatusKind::other, 0, "the transfer was canceled"});
}

MEMSAVER_INLINE Status PinnedTransfer::each_of(Range range, const std::vector<char>& so_far,
                                               FunctionRef<Status(std::size_t)> act) {
    crew_.help();
    for (std::size_t i = 0; i < cargo_.size(); ++i) {
        if (!cargo_[i].piece.holds(range)) continue;
        {
            std::unique_lock lock{mutex_};
            changed_.wait(lock, [&] { return so_far[i] || stopped_.load() || crew_.done(); });
            if (!so_far[i] && !status_.ok()) return status_;
            if (!so_far[i]) return {StatusKind::other, 0, "the transfer failed before these bytes arrived"};
        }
        if (const Status status = act(i); !status.ok()) return status;
    }
    return {};
}

MEMSAVER_INLINE std::size_t PinnedTransfer::bytes_of(const std::vector<PinnedPiece>& cargo) {
    std::size_t sum = 0;
    for (const PinnedPiece& one : cargo) sum += one.piece.bytes();
    return sum;
}

MEMSAVER_INLINE void PinnedTransfer::work() {
    try {
        if (readies_kernel_.exchange(false)) (void)lane_.driver().copy_by_kernel(0, 0, 0, {});
        move_all();
    } catch (...) {
        const std::lock_guard lock{mutex_};
        stopped_ = true;
        changed_.notify_all();
        throw;
    }
}

MEMSAVER_INLINE void PinnedTransfer::move_all() {
    const bool out = lane_.direction() == Direction::out;
    std::size_t under_way = cargo_.size(); // the last that this thread enqueued; shown after the next one
    for (std::size_t i = next_++; i < cargo_.size() && !stopped_.load(); i = next_++) {
        const PinnedPiece& cargo = cargo_[i];
        Status status = cargo.region->prepare(cargo.piece.location(), true);
        if (!status.ok() && cargo.region->ready(cargo.piece.location(), false)) {
            status = {}; // usable, but not pinned
            if (refused_ && !pin_refused_.exchange(true)) refused_();
        }
        if (status.ok() && !out) show(cargo, &PieceObserver::restoring);
        if (status.ok()) status = enqueue(i);
        if (!status.ok()) return fail(status);
        if (out) show_saved(std::exchange(under_way, i));
    }
    show_saved(under_way);
}

MEMSAVER_INLINE void PinnedTransfer::show_saved(std::size_t i) {
    if (observer_ == nullptr || i == cargo_.size() || stopped_.load()) return;
    if (const Status status = lane_.driver().wait(marks_[i].get()); !status.ok()) return fail(status);
    show(cargo_[i], &PieceObserver::saved);
    const std::lock_guard lock{mutex_};
    shown_[i] = 1;
    changed_.notify_all();
}

MEMSAVER_INLINE void PinnedTransfer::show(const PinnedPiece& cargo,
                                          void (PieceObserver::*see)(const Unit&, const std::byte*)) {
    if (observer_ == nullptr) return;
    for (const Unit& unit : cargo.piece.units) {
        // NOLINTNEXTLINE(performance-no-int-to-ptr): a host address
        (observer_->*see)(unit, reinterpret_cast<const std::byte*>(unit.location));
    }
}

MEMSAVER_INLINE Status PinnedTransfer::enqueue(std::size_t i) {
    const PinnedPiece& cargo = cargo_[i];
    if (before_write_) {
        const Status may = cargo.piece.each_copy([&](const Unit& unit) {
            return before_write_(Range{unit.device, unit.bytes});
        });
        if (!may.ok()) return may;
    }
    auto* const base = reinterpret_cast<std::byte*>(cargo.region->address()); // NOLINT(performance-no-int-to-ptr)
    const Status status = lane_.enqueue(cargo.piece, base, cargo.region->address(), marks_[i]);
    if (!status.ok()) drain(i);
    if (!status.ok()) return status;
    const std::lock_guard lock{mutex_};
    under_way_[i] = 1;
    changed_.notify_all();
    return {};
}

MEMSAVER_INLINE void PinnedTransfer::drain(std::size_t i) noexcept {
    const Status drained = lane_.drain();
    if (!drained.ok() && drained.kind != StatusKind::gone) cargo_[i].region->unsettle();
}

MEMSAVER_INLINE void PinnedTransfer::fail(const Status& status) noexcept {
    const std::lock_guard lock{mutex_};
    if (!stopped_.exchange(true)) status_ = status;
    changed_.notify_all();
}

MEMSAVER_INLINE void PinnedTransfer::settle() noexcept {
    for (std::size_t i = 0; i < marks_.size(); ++i) {
        if (!marks_[i].get()) continue;
        const Status status = lane_.driver().wait(marks_[i].get());
        if (!status.ok()) drain(i);
        if (!status.ok()) {
            const std::lock_guard lock{mutex_};
            if (status_.ok()) status_ = status;
        }
        progress_.add(cargo_[i].piece.bytes());
    }
}

} // namespace detail

} // namespace memsaver::inline v0_3
