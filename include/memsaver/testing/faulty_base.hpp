// What a FaultyDriver shares among its copies: the driver inside, the planned failures, the counts, the log, the
// observer and the books; and the way that every call takes through them. Does not know which calls there are.
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

namespace memsaver::inline v0_2 {

/// The part of FaultyDriver that is not a driver: failing on purpose, watching, and what happened.
template <Driver D>
class FaultyBase {
public:
    /// Sees each call before it is made. May block, plan failures (this call counts as the next) and call drivers;
    /// if it throws, the call fails and is not forwarded.
    using Observer = std::function<void(const CallRecord&)>;

    friend bool operator==(const FaultyBase& a, const FaultyBase& b) noexcept { return a.state_ == b.state_; }

    /// The driver inside. Calls made to it directly are not counted and not in the books.
    [[nodiscard]] const D& inner() const noexcept { return state_->inner; }

    // --- Failing on purpose, and watching ---

    /// Plans a failure, besides those planned already. Throws Misuse if it could never be seen, std::bad_alloc.
    void fail(const Failure& failure) const {
        const std::lock_guard lock{state_->mutex};
        state_->plan.add(failure);
    }
    /// Forgets all planned failures.
    void heal() const noexcept {
        const std::lock_guard lock{state_->mutex};
        state_->plan.clear();
    }
    /// How many calls failed on purpose so far.
    [[nodiscard]] std::uint64_t injected() const noexcept {
        return read(&State::plan, [](const FailurePlan& plan) { return plan.injected(); });
    }
    /// The same for calls of one kind.
    [[nodiscard]] std::uint64_t injected(Call call) const noexcept {
        return read(&State::plan, [&](const FailurePlan& plan) { return plan.injected(call); });
    }

    /// Shows every later call to `observer`, in the place of an earlier one; an empty function ends that, though calls
    /// that are under way may still be in it. An observer that holds a copy of this driver keeps it alive until then.
    void on_call(Observer observer) const {
        auto shared = observer ? std::make_shared<const Observer>(std::move(observer)) : nullptr;
        const std::lock_guard lock{state_->mutex};
        state_->observer.swap(shared);
    }

    // --- What happened ---

    /// Calls of a kind so far, failed ones too, and those that are under way.
    [[nodiscard]] std::uint64_t calls(Call call) const noexcept {
        return read(&State::log, [&](const CallLog& log) { return log.count(call); });
    }
    [[nodiscard]] std::uint64_t calls() const noexcept { return read(&State::log, &CallLog::total); }
    /// The latest calls, a line each, for the text of a test that failed.
    [[nodiscard]] std::string log() const { return read(&State::log, &CallLog::text); }

    /// How much of each sort was taken through this driver and not given back.
    [[nodiscard]] Outstanding outstanding() const noexcept {
        return read(&State::ledger, &detail::Ledger::outstanding);
    }
    /// Whether `outstanding()` is 0 of every sort.
    [[nodiscard]] bool everything_given_back() const noexcept { return outstanding() == Outstanding{}; }
    /// What is still held, by name; empty if everything was given back.
    [[nodiscard]] std::string leaks() const { return read(&State::ledger, &detail::Ledger::held_text); }
    /// Bytes of handles that were created and not released, mapped or not.
    [[nodiscard]] std::size_t handle_bytes() const noexcept {
        return read(&State::ledger, &detail::Ledger::handle_bytes);
    }
    /// Bytes of addresses that have pages mapped at them.
    [[nodiscard]] std::size_t mapped_bytes() const noexcept {
        return read(&State::ledger, &detail::Ledger::mapped_bytes);
    }
    /// Bytes of addresses that were reserved and not given back.
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

    /// Misuse, a line each: unmapping, releasing, closing or freeing what is not held; mapping a released handle, a
    /// part of one, over a live mapping or outside a reservation; unreserving with live mappings or with another size;
    /// copying or filling where nothing is mapped or no access was allowed; copying across the end of a pin; pinning
    /// twice, unmapping pinned host pages; using a closed file. The first hundred.
    [[nodiscard]] std::vector<std::string> violations() const {
        return read(&State::ledger, &detail::Ledger::violations);
    }

protected:
    explicit FaultyBase(D driver) : state_{std::make_shared<State>(std::move(driver))} {}
    FaultyBase(const FaultyBase&) noexcept = default; // no moves: a handle that was moved from would be hollow
    FaultyBase& operator=(const FaultyBase&) noexcept = default;
    ~FaultyBase() = default;

    /// Every call goes through here. `make` forwards it and fills in what the driver gave.
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
            return {StatusKind::out_of_host_memory, Failure::injected_code, "no host memory for the books"};
        } catch (...) {
            return {StatusKind::other, Failure::injected_code, "the observer threw"};
        }
    }

    /// A copy that is a part of a call: notes misuse, and no more.
    void look(const CallRecord& part) const {
        const std::lock_guard lock{state_->mutex};
        (void)state_->ledger.begin(part);
    }

private:
    struct State {
        explicit State(D driver) : inner{std::move(driver)} {}

        const D inner;
        std::mutex mutex; // over everything below
        CallLog log;
        FailurePlan plan;
        detail::Ledger ledger;
        std::shared_ptr<const Observer> observer;
    };

    /// What `get` gives for a part of the state while nobody else touches it.
    template <class Part, class Get>
    auto read(Part State::*part, Get get) const {
        const std::lock_guard lock{state_->mutex};
        return std::invoke(get, std::as_const(*state_).*part);
    }

    std::shared_ptr<State> state_;
};

} // namespace memsaver::inline v0_2
