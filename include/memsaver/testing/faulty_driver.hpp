// A driver that wraps another driver: injects failures, counts and logs calls, shows them to an observer, and tracks
// outstanding resources. Does not know the individual calls: DeviceAround forwards them.
#pragma once

#include "memsaver/driver/device_around.hpp"
#include "memsaver/testing/call_log.hpp"
#include "memsaver/testing/failure.hpp"
#include "memsaver/testing/ledger.hpp"

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {

/// The machine of a FaultyDriver: planned failures, counts, log, observer and ledger, and the path that every call
/// takes through them.
class FaultyDevice final : public DeviceAround {
public:
    using Observer = std::function<void(const CallRecord&)>;

    using DeviceAround::DeviceAround;

    std::mutex mutex; // guards the members below
    CallLog log;
    FailurePlan plan;
    Ledger ledger;
    std::shared_ptr<const Observer> observer;

protected:
    Status around(CallRecord& made, FunctionRef<Status()> forward) noexcept override {
        try {
            std::shared_ptr<const Observer> watching;
            {
                const std::lock_guard lock{mutex};
                made.number = log.begin(made.call);
                watching = observer;
            }
            if (watching) (*watching)(made);
            Ledger::Entries entries;
            {
                const std::lock_guard lock{mutex};
                if (const std::optional<Status> failure = plan.next(made.call)) {
                    made.status = *failure;
                    made.injected = true;
                    log.end(made);
                    return made.status;
                }
                entries = ledger.begin(made);
            }
            made.status = forward();
            const std::lock_guard lock{mutex};
            ledger.end(made, std::move(entries));
            log.end(made);
            return made.status;
        } catch (const std::bad_alloc&) {
            return {StatusKind::out_of_host_memory, Failure::injected_code, "no host memory for the ledger"};
        } catch (...) {
            return {StatusKind::other, Failure::injected_code, "the observer threw an exception"};
        }
    }
};

} // namespace detail

/// The part of FaultyDriver that does not depend on the type of the driver inside: failures, observation and
/// statistics.
class FaultyBase : public AnyDriver {
    using State = detail::FaultyDevice;
    using Thing = detail::Ledger::Thing;

    [[nodiscard]] State& state() const noexcept { return static_cast<State&>(machine()); }

    /// Returns `get(part)` under the lock.
    template <class Part, class Get>
    auto read(Part State::*part, Get get) const {
        const std::lock_guard lock{state().mutex};
        return std::invoke(get, std::as_const(state()).*part);
    }
    [[nodiscard]] std::size_t bytes_of(Thing thing) const noexcept {
        return read(&State::ledger, [&](const detail::Ledger& ledger) { return ledger.sum(thing); });
    }

public:
    /// Called before each driver call. May block, plan failures (the current call counts as the next one) and make
    /// driver calls. If it throws, the call fails and is not forwarded.
    using Observer = detail::FaultyDevice::Observer;

    // --- Failure injection and observation ---

    /// Adds a planned failure. Throws Misuse if it could never occur, and std::bad_alloc.
    void fail(const Failure& failure) const {
        const std::lock_guard lock{state().mutex};
        state().plan.add(failure);
    }
    /// Removes all planned failures.
    void heal() const noexcept {
        const std::lock_guard lock{state().mutex};
        state().plan.clear();
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
        const std::lock_guard lock{state().mutex};
        state().observer.swap(shared);
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
    [[nodiscard]] std::size_t handle_bytes() const noexcept { return bytes_of(Thing::handle); }
    /// Bytes of addresses with mapped pages.
    [[nodiscard]] std::size_t mapped_bytes() const noexcept { return bytes_of(Thing::mapping); }
    /// Bytes of addresses that were reserved and not unreserved.
    [[nodiscard]] std::size_t reserved_bytes() const noexcept { return bytes_of(Thing::reservation); }
    /// Bytes of plain allocations that were not freed.
    [[nodiscard]] std::size_t plain_bytes() const noexcept { return bytes_of(Thing::plain); }
    /// Bytes of host pages that were mapped and not unmapped.
    [[nodiscard]] std::size_t host_bytes() const noexcept { return bytes_of(Thing::host_pages); }
    /// Bytes of host pages that were pinned and not unpinned.
    [[nodiscard]] std::size_t pinned_bytes() const noexcept { return bytes_of(Thing::pin); }

    /// Returns detected misuse, one line each, at most one hundred: unmapping, releasing, closing or freeing something
    /// that is not held; mapping a released handle, part of a handle, over a live mapping or outside a reservation;
    /// unreserving with live mappings or with another size; copying to or from the host, or filling, where nothing is
    /// mapped or access is not allowed; copying across the end of a pinned range; pinning twice; unmapping pinned host
    /// pages; using a closed file.
    [[nodiscard]] std::vector<std::string> violations() const {
        return read(&State::ledger, &detail::Ledger::violations);
    }

protected:
    explicit FaultyBase(const AnyDriver& faulty) : AnyDriver{faulty} {}
};

/// Wraps any driver for tests: `FaultyDriver driver{HostDriver{1_GiB}}`. Copies compare equal and share everything: the
/// wrapped driver, planned failures, counts and ledger. Whatever the wrapped driver has, it has. Thread-safe; no lock
/// is held while the observer or the wrapped driver runs.
///
/// A call with an injected failure is not forwarded: it has no effect, and its outputs are untouched. Misuse is
/// recorded in `violations()` and still forwarded. The calls are those of the enumeration Call; others are forwarded,
/// and cannot be failed.
template <Driver D>
class FaultyDriver : public FaultyBase {
public:
    /// Wraps `driver`, a D or what one is made from: FaultyDriver<AnyDriver> takes every driver.
    template <class T>
    requires(!std::derived_from<std::remove_cvref_t<T>, FaultyDriver> &&
             std::constructible_from<D, T>) explicit FaultyDriver(T&& driver)
        : FaultyDriver{std::in_place, D{std::forward<T>(driver)}} {}

    /// The driver as a FaultyDriver<D>, if it is one; see AnyDriver::as.
    [[nodiscard]] static std::optional<FaultyDriver> from(const AnyDriver& driver) {
        const auto* const faulty = dynamic_cast<const detail::FaultyDevice*>(&driver.machine());
        std::optional<D> inner = faulty != nullptr ? faulty->inner().as<D>() : std::nullopt;
        if (!inner) return std::nullopt;
        return FaultyDriver{driver, std::move(*inner)};
    }

    /// The wrapped driver. Calls made to it directly are neither counted nor tracked.
    [[nodiscard]] const D& inner() const noexcept { return inner_; }

private:
    FaultyDriver(std::in_place_t, D inner)
        : FaultyDriver{AnyDriver{std::make_shared<detail::FaultyDevice>(inner)}, inner} {}
    FaultyDriver(const AnyDriver& faulty, D inner) : FaultyBase{faulty}, inner_{std::move(inner)} {}

    D inner_;
};

template <class D>
FaultyDriver(D) -> FaultyDriver<D>;

} // namespace memsaver::inline v0_3
