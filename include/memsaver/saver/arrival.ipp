// Definitions of arrival.hpp and of the operations that return an Arrival.
#pragma once

#include "memsaver/core/lists.hpp"
#include "memsaver/driver/streams.hpp"
#include "memsaver/saver/arrival.hpp"
#include "memsaver/saver/arrival_state.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace memsaver::inline v0_3 {

MEMSAVER_INLINE Arrival& Arrival::operator=(Arrival&& other) noexcept {
    if (this != &other) {
        end();
        state_ = std::move(other.state_);
    }
    return *this;
}

MEMSAVER_INLINE void Arrival::before(StreamRef stream, const void* pointer, std::size_t bytes) const {
    state()->before(stream, pointer, bytes);
}

MEMSAVER_INLINE void Arrival::before(StreamRef stream) const { state()->before(stream); }

MEMSAVER_INLINE void Arrival::wait(const void* pointer, std::size_t bytes) const { state()->wait(pointer, bytes); }

MEMSAVER_INLINE void Arrival::wait() const { state()->wait(); }

MEMSAVER_INLINE bool Arrival::done() const { return state()->done(); }

MEMSAVER_INLINE Report Arrival::report() const { return state()->report(); }

MEMSAVER_INLINE std::shared_ptr<detail::ArrivalState> Arrival::state() const {
    if (state_ == nullptr) detail::misuse({"use of an empty or moved-from Arrival"});
    return state_;
}

MEMSAVER_INLINE void Arrival::end() noexcept {
    if (state_ == nullptr) return;
    const std::shared_ptr<detail::ArrivalState> ending = std::move(state_); // a hook may end this object too
    ending->end();
}

namespace detail {

MEMSAVER_INLINE void ArrivalState::begin(std::vector<Part> parts, std::vector<std::string> told) noexcept {
    parts_ = std::move(parts);
    event_.tags = std::move(told);
}

MEMSAVER_INLINE void ArrivalState::before(StreamRef stream, const void* pointer, std::size_t bytes) {
    saver_->boundary("before", [&] {
        require_open("before");
        const Part& part = part_of("before", pointer, bytes);
        refuse_captured(part, stream);
        require_stayed("before", part, [&] { return saver_->here(*part.member->arena, pointer, bytes); });
        if (const auto coming = coming_now(part)) coming->follow(stream, {reinterpret_cast<Address>(pointer), bytes});
    });
}

MEMSAVER_INLINE void ArrivalState::before(StreamRef stream) {
    saver_->boundary("before", [&] {
        require_open("before");
        for (const Part& part : parts_) {
            if (coming_now(part)) refuse_captured(part, stream);
            if (!gone(part)) require_stayed("before", part, [&] { return part.member->arena->all_resident(); });
        }
        for (const Part& part : parts_) {
            if (gone(part)) continue;
            if (const auto coming = coming_now(part)) coming->follow(stream, {0, ~std::size_t{0}});
        }
    });
}

MEMSAVER_INLINE void ArrivalState::wait(const void* pointer, std::size_t bytes) {
    saver_->boundary("wait for bytes", [&] {
        require_open("wait for bytes");
        const Part& part = part_of("wait", pointer, bytes);
        if (const auto coming = coming_now(part)) coming->wait_for({reinterpret_cast<Address>(pointer), bytes});
        require_stayed("wait", part, [&] { return saver_->here(*part.member->arena, pointer, bytes); });
    });
}

MEMSAVER_INLINE void ArrivalState::wait() {
    saver_->boundary("wait for bytes", [&] {
        require_open("wait for bytes");
        finish();
        for (const Part& part : parts_) {
            if (gone(part)) continue;
            const auto coming = coming_now(part);
            if (coming == part.arriving) continue;
            try {
                coming->end();
            } catch (const Misuse&) {
                if (!gone(part)) throw;
            }
        }
    });
}

MEMSAVER_INLINE bool ArrivalState::done() {
    return saver_->boundary("query whether bytes have arrived", [&] {
        return all_in(parts_, [](const Part& part) { return part.arriving == nullptr || part.arriving->done(); });
    });
}

MEMSAVER_INLINE Report ArrivalState::report() {
    return saver_->boundary("report", [&] {
        finish();
        const std::lock_guard lock{mutex_};
        Report report = event_.report; // hooks may have changed it
        report.elapsed = elapsed_;
        return report;
    });
}

MEMSAVER_INLINE void ArrivalState::end() noexcept {
    if (saver_->forked() || reported_.load()) return;
    try {
        translated([&] { finish(); });
    } catch (const std::exception& error) {
        const auto* const known = dynamic_cast<const Error*>(&error);
        tell(saver_->events(), EventKind::ignored, known != nullptr ? known->tag() : std::string{},
             saver_->driver().device(), {error.what()});
    } catch (...) { // a hook may throw anything
        tell(saver_->events(), EventKind::ignored, "", saver_->driver().device(),
             {"at the end of an Arrival, a hook threw an object that is not a std::exception"});
    }
}

MEMSAVER_INLINE void ArrivalState::require_open(const char* what) const {
    const bool all_gone = all_in(parts_, gone);
    for (const Part& part : parts_) {
        if (all_gone || !gone(part)) part.member->arena->require_open(what);
    }
}

MEMSAVER_INLINE bool ArrivalState::gone(const Part& part) noexcept {
    return part.member->arena->dropped.load() && part.member->arena->closed();
}

MEMSAVER_INLINE void ArrivalState::refuse_captured(const Part& part, StreamRef stream) const {
    if (!saver_->enabled() || !being_captured(part.member->driver, stream)) return;
    misuse({"before: the stream is being captured, and replays of the graph would not wait; call it for the stream "
            "that launches the graph, or use a gate"});
}

MEMSAVER_INLINE const ArrivalState::Part& ArrivalState::part_of(const char* what, const void* pointer,
                                                                std::size_t bytes) const {
    for (const Part& part : parts_) {
        ArenaCore& arena = *part.member->arena;
        if (bytes != 0 && saver_->holds(arena, pointer, bytes)) return part;
    }
    std::string names;
    for (const Part& part : parts_) names += (names.empty() ? "\"" : ", \"") + part.member->tag + '"';
    misuse({what, ": ", in_bytes(bytes), " at ", in_hex(reinterpret_cast<Address>(pointer)),
            " are not in live blocks of the tags concerned (", names, ")"});
}

MEMSAVER_INLINE std::shared_ptr<ArenaCore::Arriving> ArrivalState::coming_now(const Part& part) {
    ArenaCore& core = *part.member->arena;
    if (part.pauses && core.pauses() != *part.pauses) {
        if (auto newer = core.arriving(); newer != nullptr && newer->brings_back()) return newer;
    }
    return part.arriving;
}

MEMSAVER_INLINE void ArrivalState::require_stayed(const char* what, const Part& part, FunctionRef<bool()> here) {
    ArenaCore& core = *part.member->arena;
    if (!part.pauses || core.pauses() == *part.pauses || here() || core.on_its_way()) return;
    misuse({what, ": tag ", in_quotes(part.member->tag),
            " has been paused since; to prevent this, hold a use of it with .await_bytes = false"});
}

MEMSAVER_INLINE void ArrivalState::finish() {
    std::exception_ptr first;
    for (const Part& part : parts_) {
        if (!part.arriving || part.member->arena->closed()) continue; // dropped: its bytes are no longer needed
        try {
            part.arriving->end();
        } catch (...) {
            if (!first && !gone(part)) first = std::current_exception(); // else dropped meanwhile
        }
    }
    reported_ = true;
    if (first) std::rethrow_exception(first);
    ResumeEvent event;
    {
        const std::lock_guard lock{mutex_};
        if (ended_) return;
        event = event_;
        event.report = report_of(parts_.size());
        for (const Part& part : parts_) {
            if (part.arriving && !part.member->arena->closed()) event.report.add(part.arriving->row());
        }
        elapsed_ = std::chrono::steady_clock::now() - start_;
        event.report.elapsed = elapsed_;
        event_.report = event.report;
        ended_ = true;
    }
    for (const Part& part : parts_) { // leave out tags paused since: a later resume, if any, reports them
        ArenaCore& core = *part.member->arena;
        if (core.closed() || core.pauses() != part.pauses || !core.all_resident())
            std::erase(event.tags, part.member->tag);
    }
    if (event.tags.empty()) return;
    saver_->run_after_resume(event);
    const std::lock_guard lock{mutex_};
    event_.report = std::move(event.report);
}

// --- the operations ---

MEMSAVER_INLINE Arrival SaverCore::resume_async(const Tags& tags, const ResumeAsyncOptions& options) {
    return boundary("resume_async", [&] {
        state_->refuse_in_hook("resume_async", tags);
        require_keeps_nothing({.bytes = options.bytes});
        state_->tags_.require("resume_async", tags);
        state_->require_parts_of("resume_async", state_->tags_.members(tags), options.first);
        auto arrival = std::make_shared<ArrivalState>(shared_from_this());
        if (!enabled()) {
            std::vector<ArrivalState::Part> parts;
            for (auto& member : state_->tags_.members(tags)) parts.push_back({std::move(member)});
            arrival->begin(std::move(parts));
            return Arrival{std::move(arrival)};
        }
        ResumeEvent event{state_->tags_.names(tags), {}};
        const SaverState::Members members = state_->tags_.members(tags);
        const Span resuming = state_->span_of(event.tags, "resume");
        const std::vector<std::string> told = event.tags; // a hook without host memory for a copy may change the event
        state_->run_hooks(HookKind::before_resume, event, false);
        state_->with_room({nullptr, &tags, options.room_within},
                          [&] { state_->resume_async_now(*arrival, members, options, told); });
        return Arrival{std::move(arrival)};
    });
}

MEMSAVER_INLINE void SaverCore::run_after_resume(PauseEvent& event) {
    state_->run_hooks(HookKind::after_resume, event, true);
}

MEMSAVER_INLINE void SaverState::require_parts_of(const char* what, const Members& members,
                                                  const std::vector<BytesAt>& ranges) {
    for (const BytesAt& range : ranges) {
        const bool known = range.bytes != 0 && any_in(members, [&](const auto& member) {
                               return holds(*member->arena, range.pointer, range.bytes);
                           });
        if (known) continue;
        std::string names;
        for (const auto& member : members) names += (names.empty() ? "\"" : ", \"") + member->tag + '"';
        misuse({what, " with .first: ", in_bytes(range.bytes), " at ", in_hex(reinterpret_cast<Address>(range.pointer)),
                " are not in live blocks of the tags concerned (", names, ")"});
    }
}

MEMSAVER_INLINE void SaverState::resume_async_now(ArrivalState& arrival, Members members,
                                                  const ResumeAsyncOptions& options,
                                                  const std::vector<std::string>& told) {
    using Arriving = ArenaCore::Arriving;
    const auto has = [](const Member& member, const BytesAt& range) { return member.arena->contains(range.pointer); };
    sort_by(members, [&](const std::shared_ptr<Member>& member) { // in the order of `.first`
        const auto of = std::find_if(options.first.begin(), options.first.end(),
                                     [&](const BytesAt& range) { return has(*member, range); });
        return static_cast<std::uint64_t>(of - options.first.begin());
    });
    std::vector<ArrivalState::Part> parts;
    Members busy(members.size());
    for (std::size_t i = 0; i < members.size(); ++i) {
        ArenaCore& core = *members[i]->arena;
        parts.push_back({members[i], {}, core.pauses()}); // before checking for paused memory: a later pause is noticed
        if (!core.nothing_paused()) busy[i] = members[i];
    }
    Turns turns = take_turns(busy, {}, "resume_async", true);
    FixedList<ResumeStep> steps{members.size()};
    std::vector<std::shared_ptr<Arriving>> arriving; // one per step
    for (std::size_t i = 0; i < members.size(); ++i) {
        if (!turns[i]) continue;
        ArenaCore& core = *members[i]->arena;
        parts[i].pauses = core.pauses();
        if (auto coming = core.arriving(); coming != nullptr && coming->can_be_joined()) {
            parts[i].arriving = std::move(coming);
            turns[i].reset();
            continue;
        }
        parts[i].arriving = arriving.emplace_back(std::make_shared<Arriving>(core));
        std::vector<Range> first;
        for (const BytesAt& range : options.first) {
            if (has(*members[i], range)) first.push_back({reinterpret_cast<Address>(range.pointer), range.bytes});
        }
        steps.emplace_back(core, std::move(*turns[i]), options.bytes);
        steps.back().bring_first(std::move(first));
    }
    std::vector<std::string> names = told;
    begin_resume(steps);
    for (ResumeStep& step : steps) naming(step.tag(), [&] { step.record_gates(); });
    for (std::size_t k = 0; k < steps.size(); ++k) Arriving::begin(arriving[k], std::move(steps[k]));
    arrival.begin(std::move(parts), std::move(names));
}

MEMSAVER_INLINE Arrival SaverCore::save(const Tags& tags, const SaveOptions& options) {
    return boundary("save", [&] {
        using Arriving = ArenaCore::Arriving;
        const Deadline deadline = deadline_after(options.timeout);
        const SaverState::Members members = state_->keeping("save", tags);
        auto arrival = std::make_shared<ArrivalState>(shared_from_this());
        std::vector<ArrivalState::Part> parts;
        for (const auto& member : members) parts.push_back({member});
        if (!enabled()) {
            arrival->begin(std::move(parts));
            return Arrival{std::move(arrival)};
        }
        const std::vector<std::string> names = state_->tags_.names(tags);
        const Span saving = state_->span_of(names, "save ahead");
        std::optional<OpenCaptures::KeepOut> no_captures; // the wait below would break captures
        if (options.order.kind() == Order::Kind::device) no_captures.emplace(state_->captures_, "save");
        SaverState::Turns turns = state_->take_turns(members, deadline, "save");
        if (no_captures) SaverState::await_copies(members, turns, deadline);
        FixedList<SaveAheadStep> steps{members.size()};
        std::vector<std::shared_ptr<Arriving>> arriving;
        for (std::size_t i = 0; i < members.size(); ++i) {
            if (!turns[i]) continue;
            SaveAheadStep step{*members[i]->arena, std::move(*turns[i])};
            if (!step.able() && tags.kind() == Tags::Kind::named) {
                misuse_of(members[i]->tag, {"save: the policy ", in_quotes(members[i]->policy.name()), " of tag ",
                                            in_quotes(members[i]->tag),
                                            " saves at every pause and cannot save ahead; use Refresh::once"});
            }
            if (!step.able() || !step.takes()) continue;
            parts[i].arriving = arriving.emplace_back(std::make_shared<Arriving>(*members[i]->arena));
            steps.emplace_back(std::move(step));
        }
        wait_for_steps(steps, options.order, deadline, state_->others_for(options.order));
        enqueue_all(steps);
        for (std::size_t k = 0; k < steps.size(); ++k) Arriving::begin(arriving[k], std::move(steps[k]));
        arrival->begin(std::move(parts));
        return Arrival{std::move(arrival)};
    });
}

} // namespace detail

} // namespace memsaver::inline v0_3
