// Definitions of arrival.hpp and of the operations that return an Arrival.
#pragma once

#include "memsaver/core/lists.hpp"
#include "memsaver/core/vector.hpp"
#include "memsaver/saver/arrival.hpp"
#include "memsaver/saver/arrival_state.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace memsaver::inline v0_3 {

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

// --- the operations ---

MEMSAVER_INLINE void resume_async_now(SaverState& saver, ArrivalState& arrival, SaverState::Members members,
                                      const ResumeAsyncOptions& options, const std::vector<std::string>& told) {
    using Arriving = ArenaCore::Arriving;
    const auto has = [](const TagTable::Member& member, const BytesAt& range) {
        return member.arena->contains(range.pointer);
    };
    sort_by(members, [&](const auto& member) { // in the order of `.first`
        const auto of = std::find_if(options.first.begin(), options.first.end(),
                                     [&](const BytesAt& range) { return has(*member, range); });
        return static_cast<std::uint64_t>(of - options.first.begin());
    });
    Vector<ArrivalState::Part> parts;
    SaverState::Members busy(members.size());
    for (std::size_t i = 0; i < members.size(); ++i) {
        ArenaCore& core = *members[i]->arena;
        parts.push_back({members[i], {}, core.pauses()}); // before checking for paused memory: a later pause is noticed
        if (!core.nothing_paused()) busy[i] = members[i];
    }
    SaverState::Turns turns = saver.take_turns(busy, {}, "resume_async", true);
    Vector<ResumeStep> steps;
    steps.reserve(members.size());
    Vector<std::shared_ptr<Arriving>> arriving; // one per step
    for (std::size_t i = 0; i < members.size(); ++i) {
        if (!turns[i]) continue;
        ArenaCore& core = *members[i]->arena;
        parts[i].pauses = core.pauses();
        if (auto coming = core.arriving(); coming != nullptr && coming->can_be_joined()) {
            parts[i].arriving = std::move(coming);
            turns[i].reset();
            continue;
        }
        parts[i].arriving = arriving.emplace_back(new_shared<Arriving>(core));
        std::vector<Range> first;
        for (const BytesAt& range : options.first) {
            if (has(*members[i], range)) first.push_back({as_address(range.pointer), range.bytes});
        }
        steps.emplace_back(core, std::move(turns[i]), options.bytes);
        steps.back().bring_first(std::move(first));
    }
    std::vector<std::string> names = told;
    begin_resume(steps);
    for (ResumeStep& step : steps) naming(step.tag(), [&] { step.record_gates(); });
    for (std::size_t k = 0; k < steps.size(); ++k) Arriving::begin(arriving[k], std::move(steps[k]));
    arrival.begin(std::move(parts), std::move(names));
}

MEMSAVER_INLINE Arrival SaverCore::resume_async(const Tags& tags, const ResumeAsyncOptions& options) {
    return boundary("resume_async", tags, [&] {
        state_->refuse_in_hook("resume_async", tags);
        require_keeps_nothing(options.bytes);
        state_->tags_.require("resume_async", tags);
        Vector<ArrivalState::Part> parts;
        for (auto& member : state_->tags_.members(tags)) parts.push_back({std::move(member)});
        for (const BytesAt& range : options.first)
            (void)ArrivalState::part_of("resume_async with .first", *state_, parts, range.pointer, range.bytes);
        auto arrival = new_shared<ArrivalState>(shared_from_this());
        if (!enabled()) {
            arrival->begin(std::move(parts));
            return Arrival{std::move(arrival)};
        }
        ResumeEvent event{state_->tags_.names(tags), {}};
        const SaverState::Members members = state_->tags_.members(tags);
        const Span resuming = state_->span_of(event.tags, "resume");
        const std::vector<std::string> told = event.tags; // a hook without host memory for a copy may change the event
        state_->run_hooks(HookKind::before_resume, event, false);
        state_->with_room({nullptr, &tags, options.room_within},
                          [&] { resume_async_now(*state_, *arrival, members, options, told); });
        return Arrival{std::move(arrival)};
    });
}

MEMSAVER_INLINE Arrival SaverCore::save(const Tags& tags, const SaveOptions& options) {
    return boundary("save", tags, [&] {
        using Arriving = ArenaCore::Arriving;
        const Deadline deadline = deadline_after(options.timeout);
        const SaverState::Members members = state_->keeping("save", tags);
        auto arrival = new_shared<ArrivalState>(shared_from_this());
        Vector<ArrivalState::Part> parts;
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
        Vector<SaveAheadStep> steps;
        steps.reserve(members.size());
        Vector<std::shared_ptr<Arriving>> arriving;
        for (std::size_t i = 0; i < members.size(); ++i) {
            if (!turns[i]) continue;
            SaveAheadStep step{*members[i]->arena, std::move(turns[i])};
            if (!step.able() && tags.kind() == Tags::Kind::named) {
                misuse_of(members[i]->tag, {"save: the policy ", in_quotes(members[i]->policy.name()), " of tag ",
                                            in_quotes(members[i]->tag),
                                            " saves at every pause and cannot save ahead; use Refresh::once"});
            }
            if (!step.able() || !step.takes()) continue;
            parts[i].arriving = arriving.emplace_back(new_shared<Arriving>(*members[i]->arena));
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
