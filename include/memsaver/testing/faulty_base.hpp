// The state that copies of a FaultyDriver share: the wrapped driver, planned failures, counts, log, observer and
// ledger; and the path that every call takes through them. Does not know the individual calls.
#pragma once

#include "memsaver/driver/concepts.hpp"
#include "memsaver/testing/call_log.hpp"
#include "memsaver/testing/failure.hpp"
#include "memsaver/testing/ledger.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace memsaver::inline v0_3 {

/// The part of FaultyDriver that is not the driver interface: failure injection, observation and statistics.
template <Driver D>
class FaultyBase {
public:
    /// Called before each driver call. May block, plan failures (the current call counts as the next one) and make
    /// driver calls. If it throws, the call fails and is not forwarded.
    using Observer = std::function<void(const CallRecord&)>;

    friend bool operator==(const FaultyBase& a, const FaultyBase& b) noexcept { return a.state_ == b.state_; }

    /// The wrapped driver. Calls made to it directly are neither counted nor tracked.
    [[nodiscard]] const D& inner() const noexcept { return state_->inner; }

    // --- Failure injection and observation ---

    /// Adds a planned failure. Throws Misuse if it could never occur, and std::bad_alloc.
    void fail(const Failure& failure) const {
        const std::lock_guard lock{state_->mutex};
        state_->plan.add(failure);
    }
    /// Removes all planned failures.
    void heal() const noexcept {
        const std::lock_guard lock{state_->mutex};
        state_->plan.clear();
    }
    /// Number of failures injected so far.
    [[nodiscard]] std::uint64_t injected() const noexcept {
        return read(&State::plan, [](const FailurePlan& plan) { return plan.injected(); });
    }
    /// Number of failures injected into calls of one kind.
    [[nodiscard]] std::uint64_t injected(Call call) const noexcept {
        return read(&State::plan, [&](const FailurePlan& plan) { return plan.injected(call); });
    }

    /// Sets the observer of all later calls, replacing an earlier one. An empty function removes it; calls in progress
    /// may still run the old one. An observer that holds a copy of this driver keeps it alive until it is removed.
    void on_call(Observer observer) const {
        auto shared = observer ? std::make_shared<const Observer>(std::move(observer)) : nullptr;
        const std::lock_guard lock{state_->mutex};
        state_->observer.swap(shared);
    }

    // --- Statistics ---

    /// Number of calls of a kind so far, including failed calls and calls in progress.
    [[nodiscard]] std::uint64_t calls(Call call) const noexcept {
        return read(&State::log, [&](const CallLog& log) { return log.count(call); });
    }
    [[nodiscard]] std::uint64_t calls() const noexcept { return read(&State::log, &CallLog::total); }
    /// The latest calls, one line each, for the failure message of a test.
    [[nodiscard]] std::string log() const { return read(&State::log, &CallLog::text); }

    /// Number of resources of each kind that were taken through this driver and not returned.
    [[nodiscard]] Outstanding outstanding() const noexcept {
        return read(&State::ledger, &detail::Ledger::outstanding);
    }
    /// Returns whether `outstanding()` is 0 for every kind.
    [[nodiscard]] bool everything_given_back() const noexcept { return outstanding() == Outstanding{}; }
    /// Describes the outstanding resources; empty if there are none.
    [[nodiscard]] std::string leaks() const { return read(&State::ledger, &detail::Ledger::held_text); }
    /// Bytes of handles that were created and not released, mapped or not.
    [[nodiscard]] std::size_t handle_bytes() const noexcept {
        return read(&State::ledger, &detail::Ledger::handle_bytes);
    }
    /// Bytes of addresses with mapped pages.
    [[nodiscard]] std::size_t mapped_bytes() const noexcept {
        return read(&State::ledger, &detail::Ledger::mapped_bytes);
    }
    /// Bytes of addresses that were reserved and not unreserved.
    [[nodiscard]] std::size_t reserved_bytes() const noexcept {
        return read(&State::ledger, &detail::Ledger::reserved_bytes);
    }
    /// Bytes of plain allocations that were not freed.
    [[nodiscard]] std::size_t plain_bytes() const noexcept {
        return read(&State::ledger, &detail::Ledger::plain_bytes);
    }
    /// Bytes of host pages that were mapped and not unmapped.
    [[nodiscard]] std::size_t host_bytes() const noexcept { return read(&State::ledger, &detail::Ledger::host_bytes); }
    /// Bytes of host pages that were pinned and not unpinned.
    [[nodiscard]] std::size_t pinned_bytes() const noexcept {
        return read(&State::ledger, &detail::Ledger::pinned_bytes);
    }

    /// Returns detected misuse, one line each, at most one hundred: unmapping, releasing, closing or freeing something
    /// that is not held; mapping a released handle, part of a handle, over a live mapping or outside a reservation;
    /// unreserving with live mappings or with another size; copying to or from the host, or filling, where nothing is
    /// mapped or access is not allowed; copying across the end of a pinned range; pinning twice; unmapping pinned host
    /// pages; using a closed file.
    [[nodiscard]] std::vector<std::string> violations() const {
        return read(&State::ledger, &detail::Ledger::violations);
    }

protected:
    explicit FaultyBase(D driver) : state_{std::make_shared<State>(std::move(driver))} {}
    FaultyBase(const FaultyBase&) noexcept = default; // no moves: a moved-from handle would be empty
    FaultyBase& operator=(const FaultyBase&) noexcept = default;
    ~FaultyBase() = default;

    /// Runs one driver call. `make` forwards it and fills in its results.
    template <class Make>
    Status call(CallRecord made, Make make) const noexcept {
        State& state = *state_;
        try {
            std::shared_ptr<const Observer> observer;
            {
                const std::lock_guard lock{state.mutex};
                made.number = state.log.begin(made.call);
                observer = state.observer;
            }
            if (observer) (*observer)(made);
            detail::Ledger::Entries entries;
            {
                const std::lock_guard lock{state.mutex};
                if (const std::optional<Status> failure = state.plan.next(made.call)) {
                    made.status = *failure;
                    made.injected = true;
                    state.log.end(made);
                    return made.status;
                }
                entries = state.ledger.begin(made);
            }
            made.status = make(made);
            const std::lock_guard lock{state.mutex};
            state.ledger.end(made, std::move(entries));
            state.log.end(made);
            return made.status;
        } catch (const std::bad_alloc&) {
            return {StatusKind::out_of_host_memory, Failure::injected_code, "no host memory for the ledger"};
        } catch (...) {
            return {StatusKind::other, Failure::injected_code, "the observer threw an exception"};
        }
    }

    /// Checks a copy that is part of a larger call for misuse, without recording it.
    void look(const CallRecord& part) const {
        const std::lock_guard lock{state_->mutex};
        (void)state_->ledger.begin(part);
    }

private:
    struct State {
        explicit State(D driver) : inner{std::move(driver)} {}

        const D inner;
        std::mutex mutex; // guards the members below
        CallLog log;
        FailurePlan plan;
        detail::Ledger ledger;
        std::shared_ptr<const Observer> observer;
    };

    /// Returns `get(part)` under the lock.
    template <class Part, class Get>
    auto read(Part State::*part, Get get) const {
        const std::lock_guard lock{state_->mutex};
        return std::invoke(get, std::as_const(*state_).*part);
    }

    std::shared_ptr<State> state_;
};

} // namespace memsaver::inline v0_3
