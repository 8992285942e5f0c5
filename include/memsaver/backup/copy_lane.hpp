// The streams on which the library copies.
#pragma once

#include "memsaver/backup/kernel_copies.hpp"
#include "memsaver/backup/pieces.hpp"
#include "memsaver/backup/ticket.hpp"
#include "memsaver/driver/neighbours.hpp"
#include "memsaver/driver/owned.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <thread>
#include <utility>

namespace memsaver::inline v0_3::detail {

/// Enqueues copies in order. Copies use the copy engine; once `watch` or another transfer has found the engine slow,
/// they use a kernel on a stream of this object. Thread-safe, except `watch`.
class CopyLane {
public:
    /// `to_peer`: copies between the device and memory of a peer, not the host. Throws the exception for a failing
    /// driver call.
    explicit CopyLane(AnyDriver driver, Direction direction, bool to_peer = false)
        : driver_{std::move(driver)}, direction_{direction}, to_peer_{to_peer} {
        const Status lane = driver_.lane(direction, stream_);
        if (lane.kind == StatusKind::unsupported) {
            check(own_.open(driver_), "open a stream for copies");
            stream_ = own_.get();
        } else {
            check(lane, "open a lane for copies");
        }
        if (to_peer || driver_.neighbours() == nullptr) return;
        shared_ = &driver_.neighbours()->lane(direction);
        shared_->transfers.fetch_add(1);
    }
    CopyLane& operator=(CopyLane&&) = delete;
    ~CopyLane() {
        if (shared_ != nullptr) shared_->transfers.fetch_sub(1);
    }

    [[nodiscard]] const AnyDriver& driver() const noexcept { return driver_; }
    [[nodiscard]] Direction direction() const noexcept { return direction_; }
    [[nodiscard]] StreamRef stream() const noexcept { return stream_; }

    /// Returns whether the first copies should be watched: no other transfer uses the lane. Call before enqueuing
    /// anything. If another transfer uses the lane, this one adopts its result, but only for `look_again`: a transfer
    /// may exist long after its copies completed, until somebody waits for it.
    [[nodiscard]] bool to_be_watched() noexcept {
        if (shared_ == nullptr) return false;
        const auto since =
            std::chrono::steady_clock::now().time_since_epoch() - std::chrono::nanoseconds{shared_->looked};
        if (shared_->transfers.load() == 1 || since > look_again) return true;
        if (shared_->stalled.load()) switch_to_kernel();
        return false;
    }
    /// Copies whose end is marked by an event.
    struct Sent {
        EventRef mark;
        std::size_t bytes = 0;
    };
    /// Waits until all of `sent` has completed, or until the options say that it takes too long. In that case
    /// everything enqueued later is copied by a kernel. Call before other threads use the object.
    Status watch(std::span<const Sent> sent, const KernelCopyOptions& options) noexcept {
        using Clock = std::chrono::steady_clock;
        using Nanoseconds = std::chrono::duration<double, std::nano>;
        double all = 0;
        for (const Sent& each : sent) all += static_cast<double>(each.bytes);
        const auto begin = Clock::now();
        auto start = begin;   // of the measured copies; copies that completed before are left out
        auto not_yet = begin; // last time at which a copy had not completed
        bool waited = false;  // whether there was such a time
        double fastest = 0;   // a lower bound, in bytes per nanosecond
        const auto too_slow = [&] {
            return options.slower > 0 && Nanoseconds{not_yet - start}.count() * fastest > options.slower * all;
        };
        bool stalled = false;
        for (std::size_t i = 0; i < sent.size() && !stalled; ++i) {
            const bool timed = waited; // the previous copy had not completed at `not_yet`
            const auto before = not_yet;
            for (;;) {
                bool passed = false;
                if (const Status status = driver_.query(sent[i].mark, passed); !status.ok()) return status;
                const auto now = Clock::now();
                if (passed && !waited) {
                    all -= static_cast<double>(sent[i].bytes);
                    start = now;
                } else if (passed && timed) {
                    fastest = std::max(fastest, static_cast<double>(sent[i].bytes) / Nanoseconds{now - before}.count());
                }
                if (passed) break;
                waited = true;
                not_yet = now;
                stalled = now - begin >= options.after || too_slow();
                if (stalled) break;
                std::this_thread::yield();
            }
        }
        stalled = stalled || too_slow(); // the last copy may have been seen late
        shared_->stalled.store(stalled);
        shared_->looked.store(std::chrono::nanoseconds{Clock::now().time_since_epoch()}.count());
        if (stalled) switch_to_kernel();
        return {};
    }

    /// Enqueues the copies of a piece between the device and `base + (location - origin)` on the other side, and
    /// records `mark` after them. If it fails, some may be in flight. For copies by a kernel the host pages must be
    /// pinned.
    Status enqueue(const Piece& piece, std::byte* base, std::uint64_t origin, OwnedEvent& mark) const noexcept {
        const StreamRef stream = kernel_stream_.owns() ? kernel_stream_.get() : stream_;
        Status status = mark.get() ? Status{} : mark.open(driver_, stream);
        if (!status.ok()) return status;
        status = piece.each_copy(
            [&](const Unit& unit) { return copy(unit.device, base + (unit.location - origin), unit.bytes, stream); });
        const Status marked = driver_.record(mark.get(), stream);
        return status.ok() ? marked : status;
    }

private:
    static constexpr std::chrono::milliseconds look_again{500};

    Status copy(Address device, std::byte* host, std::size_t bytes, StreamRef stream) const noexcept {
        CopyPart part{device, reinterpret_cast<Address>(host), bytes};
        if (direction_ == Direction::out) std::swap(part.to, part.from);
        if (to_peer_) return driver_.copy_peer(part.to, part.from, bytes, stream);
        if (kernel_stream_.owns()) {
            const Status status = driver_.copy_by_kernel(part.to, part.from, bytes, stream);
            if (status.kind != StatusKind::unsupported) return status;
        }
        return detail::copy(driver_, direction_, part, stream);
    }
    void switch_to_kernel() noexcept { (void)kernel_stream_.open(driver_); } // on failure: the engine

    AnyDriver driver_;
    Direction direction_;
    bool to_peer_;
    Neighbours::Lane* shared_ = nullptr; // by all transfers of the machine in this direction; null: none
    OwnedStream own_;
    StreamRef stream_;
    OwnedStream kernel_stream_; // for copies by a kernel; opened on first use
};

} // namespace memsaver::inline v0_3::detail
