// Definitions of copy_lane.hpp.
#pragma once

#include "memsaver/backup/copy_lane.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <thread>
#include <utility>

namespace memsaver::inline v0_3 {

namespace detail {

MEMSAVER_INLINE CopyLane::CopyLane(AnyDriver driver, Direction direction, bool to_peer)
    : driver_{std::move(driver)}, direction_{direction}, to_peer_{to_peer},
      use_{to_peer || driver_.neighbours() == nullptr ? nullptr : &driver_.neighbours()->lane(direction)} {
    const Status lane = driver_.lane(direction, stream_);
    if (lane.kind == StatusKind::unsupported) {
        check(own_.open(driver_), "open a stream for copies");
        stream_ = own_.get();
    } else {
        check(lane, "open a lane for copies");
    }
}

MEMSAVER_INLINE bool CopyLane::to_be_watched() noexcept {
    if (use_.lane() == nullptr) return false;
    const auto since =
        std::chrono::steady_clock::now().time_since_epoch() - std::chrono::nanoseconds{use_.lane()->looked};
    if (use_.lane()->transfers.load() == 1 || since > look_again) return true;
    if (use_.lane()->stalled.load()) switch_to_kernel();
    return false;
}

MEMSAVER_INLINE Status CopyLane::watch(std::span<const Sent> sent, const KernelCopyOptions& options) noexcept {
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
    use_.lane()->stalled.store(stalled);
    use_.lane()->looked.store(std::chrono::nanoseconds{Clock::now().time_since_epoch()}.count());
    if (stalled) switch_to_kernel();
    return {};
}

MEMSAVER_INLINE void CopyLane::switch_to_kernel() noexcept {
    (void)kernel_stream_.open(driver_);
} // on failure: the engine

MEMSAVER_INLINE Status CopyLane::copy(Address device, std::byte* host, std::size_t bytes,
                                      StreamRef stream) const noexcept {
    const bool out = direction_ == Direction::out;
    const auto other = reinterpret_cast<Address>(host);
    if (to_peer_) return driver_.copy_peer(out ? other : device, out ? device : other, bytes, stream);
    if (kernel_stream_.owns()) {
        const Status status = driver_.copy_by_kernel(out ? other : device, out ? device : other, bytes, stream);
        if (status.kind != StatusKind::unsupported) return status;
    }
    return out ? driver_.copy_to_host(host, device, bytes, stream)
               : driver_.copy_to_device(device, host, bytes, stream);
}

MEMSAVER_INLINE Status CopyLane::enqueue(const Piece& piece, std::byte* base, std::uint64_t origin,
                                         OwnedEvent& mark) const noexcept {
    const StreamRef stream = kernel_stream_.owns() ? kernel_stream_.get() : stream_;
    Status status = mark.get() ? Status{} : mark.open(driver_, stream);
    if (!status.ok()) return status;
    status = piece.each_copy(
        [&](const Unit& unit) { return copy(unit.device, base + (unit.location - origin), unit.bytes, stream); });
    const Status marked = driver_.record(mark.get(), stream);
    if (status.ok() && marked.ok()) return status;
    (void)(marked.ok() ? driver_.wait(mark.get()) : drain());
    return status.ok() ? marked : status;
}

} // namespace detail

} // namespace memsaver::inline v0_3
