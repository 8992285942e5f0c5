// Definitions of arriving.hpp, and of ArenaCore's methods for bytes in flight.
#pragma once

#include "memsaver/arena/arriving.hpp"
#include "memsaver/arena/run_steps.hpp"
#include "memsaver/core/lists.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {

// --- saving ahead ---

MEMSAVER_INLINE ArenaCore::SaveAhead::SaveAhead(ArenaCore& core, Turn::Hold turn)
    : Step{core, std::move(turn)}, able_{core.own_->saves_once()} {
    core.give_up_failed_arrival();
    {
        const std::lock_guard lock{core.mutex_};
        for (const auto& memory : core.memories_) {
            if (memory->state == Memory::State::active && !memory->extents.empty()) memories_.push_back(memory.get());
        }
        for (const Memory* const memory : memories_) {
            for (const Extent& extent : memory->extents) ranges_.push_back(extent.range());
        }
    }
    sort_by_address(ranges_);
    for (const LiveBlock& block : core.live_blocks(memories_)) living_.push_back(block.serial);
    std::sort(living_.begin(), living_.end());
}

MEMSAVER_INLINE ArenaCore::SaveAhead::~SaveAhead() {
    if (core_ == nullptr || !enqueued_) return;
    ticket_ = {}; // nothing would invalidate what it saved, so that may be stale when it is next needed
    core_->own_->outdated();
    core_->unsettle();
}

MEMSAVER_INLINE void ArenaCore::SaveAhead::enqueue() {
    if (ranges_.empty()) return;
    saving_ = Span{core_->options_.events, core_->tag(), core_->device(), "save"};
    LiveSet live = core_->live_set(memories_, "saving");
    live.extents = ranges_;
    live.blocks = [core = core_.get(), memories = memories_, ranges = ranges_, living = living_] {
        std::vector<LiveBlock> blocks = core->live_blocks(memories); // new blocks are left to the pause
        erase_in(blocks, [&](const LiveBlock& block) {
            return !covers(ranges, {block.address, block.bytes}) ||
                   !std::binary_search(living.begin(), living.end(), block.serial);
        });
        return blocks;
    };
    enqueued_ = true;
    ticket_ = core_->own_->save(live);
}

// --- bytes in flight ---

MEMSAVER_INLINE ArenaCore::Arriving::Arriving(ArenaCore& core) : core_{core} {
    row_.tag = core.tag();
    row_.device = core.device();
    saving_.reserve(1);
}

MEMSAVER_INLINE void ArenaCore::Arriving::begin(const std::shared_ptr<Arriving>& arriving, Resume&& coming) noexcept {
    arriving->coming_back_ = true;
    arriving->coming_.emplace(std::move(coming));
    arriving->coming_->becomes_resident(); // whoever sees it on its way also sees what it does not bring back
    arriving->core_.set_arriving(arriving);
    arriving->coming_->go_on_alone();
}

MEMSAVER_INLINE void ArenaCore::Arriving::begin(const std::shared_ptr<Arriving>& arriving,
                                                SaveAhead&& saving) noexcept {
    saving.enqueued_ = false;
    arriving->row_.waited = saving.row_.waited;
    arriving->saving_.push_back(std::move(saving.ticket_)); // capacity was reserved
    arriving->span_ = std::move(saving.saving_);
    arriving->core_.set_arriving(arriving);
    const Turn::Hold given_up{std::move(saving.turn_)};
}

MEMSAVER_INLINE void ArenaCore::Arriving::settle(const Deadline& deadline) {
    if (!in(State::under_way)) return;
    if (deadline) poll_until(deadline);
    std::exception_ptr failure;
    try {
        named([&] { wait_for_all(); });
    } catch (...) {
        failure = std::current_exception();
    }
    if (failure) {
        for (Ticket& ticket : tickets()) { // all transfers must end, even after a failure
            try {
                (void)ticket.wait();
            } catch (...) { // the first failure counts
            }
        }
        if (coming_back_) return finish(State::failed, failure);
        core_.unsettle(); // copies may still be in flight after a failure
    }
    if (std::optional<Resume> arrived = take(failure)) row_ = arrived->commit();
    span_.end();
    finish(State::over, failure);
}

MEMSAVER_INLINE void ArenaCore::Arriving::give_up() noexcept {
    if (!in(State::failed)) return;
    const std::exception_ptr failure = failure_; // no lock: the turn is held
    (void)take(failure);
    finish(State::over, failure);
}

MEMSAVER_INLINE bool ArenaCore::Arriving::done() noexcept {
    const std::shared_lock lock{mutex_};
    for (Ticket& ticket : tickets()) {
        bool done = false;
        if (ticket.query(done).ok() && !done) return false;
    }
    return true;
}

MEMSAVER_INLINE bool ArenaCore::Arriving::follow_all(StreamRef stream, const char* what) {
    if (failed()) {
        misuse({what, ": the bytes of tag ", in_quotes(core_.tag()), " could not be restored; resume it again first"});
    }
    const Range all{0, ~std::size_t{0}};
    return each_ticket(what, all, [&](Ticket& ticket) { return ticket.follow(stream, all); });
}

MEMSAVER_INLINE void ArenaCore::Arriving::end() {
    while (in(State::under_way)) {
        if (core_.finish_arriving() || !in(State::under_way)) continue;
        misuse({"wait for bytes of tag ", in_quotes(core_.tag()), " inside an operation on it"});
    }
    const std::shared_lock lock{mutex_};
    if (failure_) std::rethrow_exception(failure_);
}

MEMSAVER_INLINE void ArenaCore::Arriving::cancel() noexcept {
    const std::shared_lock lock{mutex_};
    for (Ticket& ticket : tickets()) ticket.cancel();
}

MEMSAVER_INLINE bool ArenaCore::Arriving::in(State state) noexcept {
    const std::shared_lock lock{mutex_};
    return state_ == state;
}

MEMSAVER_INLINE void ArenaCore::Arriving::named(FunctionRef<void()> act) {
    try {
        act();
    } catch (Error& error) {
        const std::lock_guard lock{naming_};
        if (error.tag() != core_.tag()) name_tag(error, core_.tag());
        throw;
    }
}

MEMSAVER_INLINE bool ArenaCore::Arriving::each_ticket(const char* what, Range range, FunctionRef<Status(Ticket&)> act) {
    const std::shared_lock lock{mutex_};
    if (tickets().empty() && failure_) std::rethrow_exception(failure_);
    for (Ticket& ticket : tickets()) {
        named([&] {
            const Status status = act(ticket);
            if (status.ok()) return;
            core_.check_moved(ticket.wait(), what, ticket.bytes()); // the ticket reports the cause
            core_.check_moved(status, what, range.bytes);
        });
    }
    return state_ != State::over;
}

MEMSAVER_INLINE void ArenaCore::Arriving::poll_until(const Deadline& deadline) {
    for (Ticket& ticket : tickets()) (void)ticket.wait_for({}); // its executor may wait for this thread
    if (!detail::poll_until(deadline, [&] { return done(); })) {
        not_idle({"tag ", in_quotes(core_.tag()),
                  ": the timeout expired while its bytes were still arriving; nothing has changed"});
    }
}

MEMSAVER_INLINE void ArenaCore::Arriving::wait_for_all() {
    if (coming_) return coming_->wait();
    for (Ticket& ticket : saving_) {
        core_.check_moved(ticket.wait(), "save bytes ahead", ticket.bytes());
        row_.saved_bytes += ticket.bytes();
    }
}

MEMSAVER_INLINE std::optional<ArenaCore::Resume> ArenaCore::Arriving::take(const std::exception_ptr& failure) noexcept {
    const std::lock_guard lock{mutex_};
    failure_ = failure;
    saving_.clear();
    std::optional<Resume> coming{std::move(coming_)};
    coming_.reset();
    return coming;
}

MEMSAVER_INLINE void ArenaCore::Arriving::finish(State state, const std::exception_ptr& failure) noexcept {
    const std::lock_guard lock{mutex_};
    state_ = state;
    failure_ = failure;
}

// --- ArenaCore's methods ---

MEMSAVER_INLINE std::shared_ptr<ArenaCore::Arriving> ArenaCore::arriving() noexcept {
    const std::lock_guard lock{mutex_};
    return arriving_;
}

MEMSAVER_INLINE bool ArenaCore::coming_back() noexcept {
    const auto coming = arriving();
    return coming != nullptr && coming->brings_back();
}

MEMSAVER_INLINE bool ArenaCore::on_its_way() noexcept {
    const auto coming = arriving();
    return coming != nullptr && coming->can_be_joined();
}

MEMSAVER_INLINE bool ArenaCore::finish_arriving() noexcept {
    if (forked()) return false;
    const auto coming = arriving();
    if (coming == nullptr || coming->failed()) return false;
    try {
        const auto turn = turn_.take({}, tag_);
        commit_arriving();
        return true;
    } catch (const std::exception&) { // this thread is inside an operation on the tag
        return false;
    }
}

MEMSAVER_INLINE bool ArenaCore::follow_arriving(StreamRef stream, const char* what) {
    const auto coming = arriving();
    return coming != nullptr && coming->brings_back() && coming->follow_all(stream, what);
}

MEMSAVER_INLINE void ArenaCore::cancel_arriving() noexcept {
    if (const auto coming = arriving()) coming->cancel();
}

MEMSAVER_INLINE std::shared_ptr<GateMark> ArenaCore::gate(const void* pointer, std::size_t bytes) {
    const Asked asked{*this, "gate", pointer, bytes, {}, true};
    const LiveBlock block = asked.block();
    std::shared_ptr<GateMark> gate = gates_.add(asked.range(), block.address, block.serial);
    if (const auto coming = arriving(); coming != nullptr && coming->can_be_joined()) {
        coming->follow(gates_.relay(), asked.range());
        check(driver_.record(gate->event.get(), gates_.relay()), "record the event of a gate");
    }
    return gate;
}

MEMSAVER_INLINE void ArenaCore::require_restored() {
    if (const auto coming = arriving(); coming != nullptr && coming->brings_back() && coming->failed()) coming->end();
}

MEMSAVER_INLINE bool ArenaCore::wait_for_copies(const Deadline& deadline) noexcept {
    if (closed_.load() || forked()) return false;
    try {
        if (turn_.wait_for_copies(deadline)) return true;
        const auto hold = turn_.try_take(); // an operation that waits for the program's work is not waited for
        if (!hold || arriving_ == nullptr || arriving_->failed()) return false;
        commit_arriving(deadline);
        return true;
    } catch (const std::exception&) { // the deadline
        return false;
    }
}

MEMSAVER_INLINE void ArenaCore::set_arriving(std::shared_ptr<Arriving> arriving) noexcept {
    const std::lock_guard lock{mutex_};
    arriving_ = std::move(arriving);
}

MEMSAVER_INLINE void ArenaCore::commit_arriving(const Deadline& deadline, bool join) {
    const auto coming = arriving_; // no lock: the turn is held
    if (coming == nullptr || (join && coming->can_be_joined() && !coming->done())) return;
    coming->settle(deadline);
    if (!coming->failed()) set_arriving(nullptr);
}

MEMSAVER_INLINE bool ArenaCore::try_settle_arriving() noexcept {
    const auto coming = arriving_;
    if (coming == nullptr || coming->failed()) return true;
    if (!coming->done()) return false;
    coming->settle({});
    if (!coming->failed()) set_arriving(nullptr);
    return true;
}

MEMSAVER_INLINE void ArenaCore::give_up_failed_arrival() noexcept {
    const auto failed = arriving_;
    if (failed == nullptr) return;
    failed->give_up();
    set_arriving(nullptr);
}

MEMSAVER_INLINE void ArenaCore::recover() {
    give_up_failed_arrival();
    check_of_tag(settle(), "wait for copies of an earlier operation");
}

MEMSAVER_INLINE void ArenaCore::await_copies(const Deadline& deadline) {
    if (!deadline) return; // whatever needs it waits
    if (!unsettled_.load() && (arriving_ == nullptr || !arriving_->failed())) return;
    IdleWait device{driver_};
    device.mark_device();
    device.wait(deadline);
}

} // namespace detail

} // namespace memsaver::inline v0_3
