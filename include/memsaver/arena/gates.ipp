// Definitions of gates.hpp.
#pragma once

#include "memsaver/arena/gates.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <tuple>
#include <utility>
#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {

/// A gate, and when it opens.
struct ArenaGates::Due {
    std::shared_ptr<GateMark> gate;
    std::vector<Ticket*> tickets;
    std::size_t last = 0;  // index of the last ticket with bytes of the gate
    std::size_t place = 0; // place in that ticket
    bool by_host = false;  // some bytes are not on their stream yet
};

MEMSAVER_INLINE std::shared_ptr<GateMark> ArenaGates::add(Range range, Address block, std::uint64_t serial) {
    if (fork_ == nullptr) fork_ = std::make_shared<const ForkCheck>();
    if (gates_.size() == gates_.capacity()) { // so that destroyed gates cost nothing
        std::erase_if(gates_, [](const auto& gate) { return gate.expired(); });
        gates_.reserve(2 * gates_.size() + 16);
    }
    auto made = std::make_unique<GateMark>(driver_, range, block, serial);
    if (!copies_.owns()) check(copies_.open(driver_), "open a stream for gates");
    check(made->event.open(driver_, copies_.get()), "open an event for a gate");
    check(driver_.follow_outside(copies_.get(), made->event.get()),
          "create a gate"); // checks that the driver has gates
    check(driver_.record(made->event.get(), copies_.get()), "record the event of a gate");
    std::shared_ptr<GateMark> gate{made.release(), [fork = fork_](GateMark* ended) {
                                       if (!fork->forked()) delete ended;
                                   }};
    gates_.push_back(gate); // capacity was reserved
    return gate;
}

MEMSAVER_INLINE std::vector<ArenaGates::Due> ArenaGates::due(const std::vector<Bringing>& coming,
                                                             FunctionRef<bool(const GateMark&)> lives) {
    std::vector<Due> all;
    for (const auto& known : gates_) {
        Due next;
        next.gate = known.lock();
        if (next.gate == nullptr || !lives(*next.gate)) continue;
        const Range range = next.gate->range;
        bool by_kernels = false;
        for (std::size_t i = 0; i < coming.size(); ++i) {
            const auto& brought = coming[i].ranges;
            if (std::none_of(brought.begin(), brought.end(), [&](const Range& r) { return overlap(r, range); }))
                continue;
            next.tickets.push_back(coming[i].ticket);
            next.last = i;
            next.place = coming[i].ticket->place(range);
            next.by_host = next.by_host || !coming[i].ticket->enqueued();
            by_kernels = by_kernels || coming[i].ticket->by_kernels();
        }
        if (by_kernels) next.by_host = false; // `record` waits for these itself
        if (!next.tickets.empty()) all.push_back(std::move(next));
    }
    std::stable_sort(all.begin(), all.end(),
                     [](const Due& a, const Due& b) { return std::tie(a.last, a.place) < std::tie(b.last, b.place); });
    return all;
}

MEMSAVER_INLINE std::unique_ptr<ArenaGates::Opening>
ArenaGates::record(const std::vector<Bringing>& coming, FunctionRef<bool(const GateMark&)> lives,
                   FunctionRef<void(const Status&, Ticket&)> moved) {
    if (gates_.empty()) return nullptr;
    std::vector<Due> gates = due(coming, lives);
    const bool any_by_host = std::any_of(gates.begin(), gates.end(), [](const Due& gate) { return gate.by_host; });
    const bool host = any_by_host && can_wait();
    std::vector<Opening::Part> parts;
    std::vector<Opening::Closed> closed;
    std::uint32_t value = promised_; // changes only under the turn
    for (const Due& gate : gates) {
        if (!host || !gate.by_host) continue;
        value += 1;
        closed.push_back({gate.gate, value});
        for (Ticket* const ticket : gate.tickets) parts.push_back({ticket, gate.gate->range, value});
    }
    std::unique_ptr<Opening> opening;
    if (!parts.empty()) opening = std::make_unique<Opening>(*this, std::move(parts), std::move(closed));
    try {
        for (const Due& gate : gates) {
            if (host && gate.by_host) continue;
            for (Ticket* const ticket : gate.tickets) {
                const Status status = ticket->follow(copies_.get(), gate.gate->range);
                if (!status.ok()) moved(status, *ticket);
            }
            check(driver_.record(gate.gate->event.get(), copies_.get()), "record the event of a gate");
        }
    } catch (...) {
        give_up();
        throw;
    }
    return opening;
}

MEMSAVER_INLINE bool ArenaGates::can_wait() {
    if (opened_count_ != nullptr) return true;
    constexpr std::size_t bytes = 4096;
    const Status taken = page_.take(driver_, bytes);
    if (taken.kind == StatusKind::unsupported) return false;
    check(taken, "allocate a host page for gates");
    if (!page_.pinned()) return false;
    if (!host_wait_stream_.owns()) check(host_wait_stream_.open(driver_), "open a stream for gates");
    const std::lock_guard lock{mutex_};
    opened_count_ = new (page_.data()) std::atomic<std::uint32_t>{promised_};
    return true;
}

MEMSAVER_INLINE void ArenaGates::promise(std::uint32_t value) noexcept {
    if (Neighbours* const all = driver_.neighbours()) all->words_wait(); // before taking the lock: it may wait
    const std::lock_guard lock{mutex_};
    waiting_ = true;
    promised_ = value;
    if (gave_up_) raise_to(promised_);
}

MEMSAVER_INLINE void ArenaGates::raise_to(std::uint32_t value) noexcept {
    if (!waiting_) return;
    if (static_cast<std::int32_t>(value - opened_count_->load()) > 0) opened_count_->store(value);
    if (opened_count_->load() != promised_) return;
    waiting_ = false;
    if (Neighbours* const all = driver_.neighbours()) all->words_set();
}

MEMSAVER_INLINE void ArenaGates::open(std::uint32_t value) noexcept {
    const std::lock_guard lock{mutex_};
    raise_to(value);
}

MEMSAVER_INLINE void ArenaGates::begin() noexcept {
    const std::lock_guard lock{mutex_};
    gave_up_ = false;
}

MEMSAVER_INLINE void ArenaGates::give_up() noexcept {
    const std::lock_guard lock{mutex_};
    gave_up_ = true;
    raise_to(promised_);
}

MEMSAVER_INLINE bool ArenaGates::gave_up() noexcept {
    const std::lock_guard lock{mutex_};
    return gave_up_;
}

MEMSAVER_INLINE Status ArenaGates::close() noexcept {
    const Status copies = copies_.close();
    const Status words = host_wait_stream_.close();
    {
        const std::lock_guard lock{mutex_};
        opened_count_ = nullptr;
    }
    const Status page = page_.release();
    return !copies.ok() ? copies : !words.ok() ? words : page;
}

MEMSAVER_INLINE ArenaGates::Opening::Opening(ArenaGates& gates, std::vector<Part> parts, std::vector<Closed> closed)
    : gates_{gates}, parts_{std::move(parts)}, closed_{std::move(closed)},
      crew_{CrewOptions{.threads = 1, .numa_node = gates.driver_.numa_node()}} {}

MEMSAVER_INLINE void ArenaGates::Opening::start() {
    const AnyDriver& driver = gates_.driver_;
    const StreamRef words = gates_.host_wait_stream_.get();
    try {
        gates_.promise(closed_.back().value);
        for (const Closed& closed : closed_) {
            check(driver.wait_word(words, *gates_.opened_count_, closed.value), "make a stream wait for the host");
            check(driver.record(closed.gate->event.get(), words), "record the event of a gate");
        }
        closed_.clear();
        crew_.start(1, [this] { run(); });
    } catch (...) {
        gates_.give_up();
        throw;
    }
}

MEMSAVER_INLINE Status ArenaGates::Opening::wait() noexcept {
    crew_.join();
    if (!status_.ok() || !gates_.gave_up()) return status_;
    return {StatusKind::other, 0, "gates were opened before their bytes arrived"};
}

MEMSAVER_INLINE void ArenaGates::Opening::run() noexcept {
    status_ = open_each();
    if (!status_.ok()) gates_.give_up();
}

MEMSAVER_INLINE Status ArenaGates::Opening::open_each() noexcept {
    try {
        for (std::size_t i = 0; i < parts_.size(); ++i) {
            const Status status = parts_[i].ticket->wait_for(parts_[i].range);
            if (!status.ok()) return status;
            if (i + 1 == parts_.size() || parts_[i + 1].value != parts_[i].value) gates_.open(parts_[i].value);
        }
        return {};
    } catch (...) { // the ticket reports the failure
        return {StatusKind::other, 0, "bytes that gates wait for could not be restored"};
    }
}

} // namespace detail

} // namespace memsaver::inline v0_3
