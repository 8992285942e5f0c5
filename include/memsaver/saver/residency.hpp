// Implements `use`, `reclaim` and evictions for allocations: resumes tags that are used and evicts idle tags. Knows
// nothing about how a tag is paused or resumed, or which threads wait for which.
#pragma once

#include "memsaver/core/finally.hpp"
#include "memsaver/core/lists.hpp"
#include "memsaver/core/order.hpp"
#include "memsaver/core/pointers.hpp"
#include "memsaver/core/ranges.hpp"
#include "memsaver/core/report.hpp"
#include "memsaver/core/sizes.hpp"
#include "memsaver/core/tags.hpp"
#include "memsaver/core/vector.hpp"
#include "memsaver/saver/evictions.hpp"
#include "memsaver/saver/residents.hpp"
#include "memsaver/saver/saver_state.hpp"
#include "memsaver/saver/use_options.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace memsaver::inline v0_3::detail {

/// Returns the names of the tags.
[[nodiscard]] inline Tags tags_of(const ResidentList& residents) {
    std::vector<std::string> names;
    names.reserve(residents.size());
    for (const auto& resident : residents) names.push_back(resident->tag);
    return Tags{names};
}

/// The working state of one call of `use` or `reclaim`, or of one attempt to make room. Not thread-safe.
class Residency {
public:
    explicit Residency(SaverState& state) : state_{state}, residents_{state.tags_.residents()} {}
    Residency& operator=(Residency&&) = delete;

    /// Returns a use of these tags, all resident. Throws as MemorySaver::use does.
    [[nodiscard]] UniquePtr<UseRecord> use(const Tags& tags, const ResidentList& residents, const UseOptions& options) {
        if (state_.captures_.here()) {
            misuse(
                {"use of ", quoted_tags(tags),
                 " inside a capture: not all of it is resident, and replays would not resume it; begin the use before "
                 "the capture"});
        }
        const Tags in =
            tags.kind() == Tags::Kind::named ? tags : tags_of(residents); // excludes tags made in the meantime
        const Deadline until = earlier(deadline_after(options.room_within), deadline_after(options.timeout));
        SaverState::Tried tries{nullptr, &in, {}};
        tries.until = until;
        tries.of_use = true;
        try {
            for (Residents::Waiter waiter{residents_, residents, options.await_bytes};;) {
                if (auto used = waiter.await(until)) return used;
                if (!waiter.moves()) { // in time
                    if (!waiter.blocked() && !shortages(in).empty()) throw no_room(in, late);
                    not_idle({"use: other threads' uses, pauses or resumes had not ended when the timeout expired; "
                              "nothing has changed"});
                }
                if (auto used = take_turn(waiter, in, residents, options.order, tries)) return used;
                waiter.stop_moving();
            }
        } catch (Error& error) {
            const bool busy = dynamic_cast<NotIdle*>(&error) != nullptr;
            if (busy && done_.released_bytes + done_.handed_bytes + done_.mapped_bytes != 0)
                error.append(" since tags were paused or resumed for it");
            if (!done_.tags.empty()) error.attach(std::move(done_));
            const bool lacks_room = dynamic_cast<OutOfMemory*>(&error) != nullptr;
            if (busy || (lacks_room && error.holders().empty())) state_.say_who_holds(error, in);
            throw;
        }
    }
    [[nodiscard]] Reclaimed reclaim(std::size_t bytes, const ReclaimOptions& options) {
        const int device = options.device.value_or(state_.driver_.device());
        Reclaiming now{bytes, device, options};
        now.got.wanted_bytes = bytes;
        now.got.unused_bytes = state_.release_unused(device, false);
        if (!now.enough()) now.got.unused_bytes += state_.release_unused(device, true);
        if (!now.enough()) {
            now.got.elastic_bytes = state_.ask_elastic(device, {}, now.missing());
            if (!now.enough() && !state_.hooks_.empty(HookKind::on_reclaim))
                now.in_the_way = "owners of elastic memory keep the rest of it; ";
        }
        do {
            at_most_ = options.at_most - std::min(options.at_most, now.got.bytes());
        } while (!now.enough() && evict_some(now));
        if (!now.enough() && unsaved_) std::rethrow_exception(unsaved_);
        now.got.report = std::move(done_);
        for (Holder& row : state_.holders()) {
            if (row.device == device) now.got.holders.push_back(std::move(row));
        }
        if (!now.enough()) {
            const std::string held = line_of(now.got.holders);
            now.got.why_not_more =
                now.in_the_way + (held.empty() ? std::string{"no tag holds memory on this device"} : held);
        }
        return std::move(now.got);
    }
    /// Pauses idle tags for an allocation or a resume. Returns whether that call may find room now. Throws what a
    /// failed pause or a hook throws.
    [[nodiscard]] bool make_room(const OutOfMemory& error, int device, const LackOfRoom& lack) {
        // Other threads may wait for a hook's thread, and the wait for a capture's end would have no limit.
        if (state_.running_.here(Running::Kind::hook) || state_.captures_.open()) return false;
        constexpr std::chrono::seconds longest_wait{10}; // device work that waits for this thread would never end
        const Deadline deadline = earlier(lack.until, std::chrono::steady_clock::now() + longest_wait);
        std::size_t margin = 0;
        if (lack.arena != nullptr) {
            margin = lack.arena->margin();
            if (auto own = state_.tags_.resident_of(*lack.arena)) passed_by_.push_back(std::move(own));
        }
        for (const Tags* const own : {lack.in, lack.out}) {
            if (own == nullptr) continue;
            for (const auto& member : state_.tags_.members(*own)) {
                passed_by_.push_back(member->resident);
                if (own == lack.in) margin = std::max(margin, member->arena->margin());
            }
        }
        const std::size_t seen = residents_.counts().evictions; // before it looks
        const DeviceMemory memory = state_.memory_of(device);
        const std::size_t needed = error.needed_bytes();
        const std::size_t wanted = needed + std::min(margin, ~std::size_t{0} - needed);
        const bool enough = needed != 0 && memory.free_bytes >= wanted;
        // Released since, if the device can be believed.
        if (enough && (lack.asked == 0 || memory.free_bytes > error.free_bytes())) return true;
        const ReclaimOptions options{.device = device};
        Reclaiming now{enough ? 1 : std::max<std::size_t>(wanted - std::min(memory.free_bytes, wanted), 1), device,
                       options, deadline, true};
        {
            residents_.evicting(1);
            const Finally end{[&] { residents_.evicting(-1); }};
            while (!now.enough() && evict_some(now)) {
            }
        }
        if (now.got.bytes() == 0) return residents_.await_eviction(seen, deadline); // what others release may be enough
        state_.room_made_ += 1;
        return true;
    }

private:
    /// The bytes that a device lacks.
    struct Shortage {
        int device;
        std::size_t bytes;
    };
    /// The state of one reclaim, or of one attempt to make room.
    struct Reclaiming {
        std::size_t bytes;
        int device;
        const ReclaimOptions& options;
        Deadline until{};         // of all pauses together; each also has the timeout of the options
        bool all_or_none = false; // pauses nothing that does not suffice
        Reclaimed got{};
        const char* in_the_way = "";
        bool one_by_one = false; // set once one of several tags is not idle

        [[nodiscard]] bool enough() const noexcept { return got.bytes() >= bytes; }
        [[nodiscard]] std::size_t missing() const noexcept { return enough() ? 0 : bytes - got.bytes(); }
    };
    static constexpr const char* late = "other threads' uses did not free enough memory in time";

    /// What came of an attempt to move tags. `again`: other victims are to be chosen; `busy`: `busy_` says for what;
    /// `refused`: the device of `refused_` had no room.
    enum class Moved { done, again, busy, refused };

    /// One turn of a waiter: resumes the paused tags of `in`, evicting idle tags as needed. Returns the use, or null if
    /// another turn may succeed.
    UniquePtr<UseRecord> take_turn(Residents::Waiter& waiter, const Tags& in, const ResidentList& residents,
                                   const Order& order, SaverState::Tried& tries) {
        tries.seen = state_.room_made_.load();
        Vector<Shortage> lack = shortages(in);
        if (!lack.empty()) {
            for (const Shortage& there : lack) (void)state_.make_room(there.device, false, 0);
            lack = shortages(in);
        }
        const ResidentList out = lack.empty() ? ResidentList{} : choose_victims(lack, true);
        const bool too_few = !lack.empty() && out.empty();
        if (too_few) {
            if (!waiter.holds_any()) {
                if (std::optional<ResidentList> others = others_in_the_way(in, residents)) {
                    await_others(waiter, in, std::move(*others), tries);
                    return nullptr;
                }
            }
            if (unsaved_) std::rethrow_exception(unsaved_);
        }
        switch (move(out, in, order, tries.until, {})) {
        case Moved::done: return waiter.settle(); // null if the tag got an arena on another device in the meantime
        case Moved::again: return nullptr;
        case Moved::busy: std::rethrow_exception(busy_);
        case Moved::refused: break;
        }
        waiter.stop_moving(); // the program's callbacks may need what this move holds
        const int device = refused_->device();
        constexpr unsigned often_enough = 8; // bounds retries with devices that report free memory but refuse it
        if (!too_few && ++refusals_ < often_enough) { // free memory is queried again; add only what that does not show
            (void)state_.make_room(device, false, 0);
            if (refused_->needed_bytes() <= refused_->free_bytes()) mispredicted_.push_back({device, 2_MiB});
            return nullptr;
        }
        refusals_ = 0;
        mispredicted_.clear();
        if (!state_.may_retry(*refused_, tries)) throw *refused_;
        return nullptr;
    }
    /// Makes room for `in` without evictions, or waits until other threads' uses of `others` may have ended. After the
    /// deadline asks the program, or throws OutOfMemory.
    void await_others(Residents::Waiter& waiter, const Tags& in, ResidentList others, SaverState::Tried& tries) {
        waiter.stop_moving();
        if (make_room_anew(in, tries)) return;
        if (!over(tries.until)) return waiter.await_change(std::move(others), tries.until);
        OutOfMemory error = no_room(in, late);
        if (!state_.ask_for_room(error, error.device(), state_.away(in), tries.asked)) throw error;
        tries.asked += 1;
    }
    /// Pauses idle tags, if there are any. Returns false if no more can be paused.
    [[nodiscard]] bool evict_some(Reclaiming& now) {
        ResidentList out = choose_victims({{now.device, now.missing()}}, now.all_or_none);
        if (out.empty()) return false;
        if (state_.captures_.open()) {
            now.in_the_way = "a capture is open, so no tag can be paused; ";
            return false;
        }
        if (now.one_by_one) out.resize(1);
        switch (move(out, Tags{}, now.options.order, now.until, now.options.timeout)) {
        case Moved::done: break;
        case Moved::again: return true;
        case Moved::busy:
            if (state_.captures_.open()) return true; // then none can be paused
            now.one_by_one = true;
            if (out.size() == 1) passed_by_.push_back(out.front());
            return true;
        case Moved::refused: throw *refused_;
        }
        std::size_t evicted = 0; // so far
        for (const TagReport& row : done_.tags) evicted += row.device == now.device ? row.released_bytes : 0;
        // If nothing came, other threads had paused them, or their memory cannot be released now: do not retry them.
        if (evicted == now.got.evicted_bytes) passed_by_.append(out.begin(), out.end());
        now.got.evicted_bytes = evicted;
        return true;
    }
    /// Runs the before-pause hooks of each tag, and adds it to `told`. A tag whose hook throws is passed by from now
    /// on, and the result is false.
    [[nodiscard]] bool hooks_agree(const ResidentList& chosen, std::vector<std::string>& told) {
        bool all = true;
        if (state_.hooks_.empty(HookKind::before_pause)) return all;
        for (const auto& tag : chosen) {
            PauseEvent event{{tag->tag}, {}};
            try {
                state_.run_hooks(HookKind::before_pause, event, false);
                told.push_back(tag->tag);
            } catch (...) { // a hook may throw anything; this tag stays resident
                state_.run_failed_pause_hooks(event);
                passed_by_.push_back(tag);
                all = false;
            }
        }
        return all;
    }
    /// Runs the before-resume hooks for `in`, once.
    void run_before_resume_hooks(const Tags& in) {
        if (in.size() == 0 || std::exchange(resume_hooks_ran_, true)) return;
        ResumeEvent event{in.names(), {}};
        state_.run_hooks(HookKind::before_resume, event, false);
    }
    /// Passes a victim by from now on if it is its backup that has found no room: others may do. Returns whether.
    bool pass_by_unsaved(const ResidentList& out, const Error& refused) {
        const auto* const victim = first_in(out, [&](const auto& each) { return each->tag == refused.tag(); });
        if (victim == nullptr) return false;
        state_.tell_of({(*victim)->tag}, EventKind::ignored, {refused.what()});
        passed_by_.push_back(*victim);
        unsaved_ = std::current_exception();
        return true;
    }
    /// Makes one attempt: pauses `out`, if all are idle, and resumes `in`, with the hooks of both. Waits for marked
    /// work, captures and `order` until the deadline, and no longer than `timeout` once the hooks have run; for
    /// captures only if it resumes. Throws what hooks and failed driver calls throw.
    Moved move(const ResidentList& out, const Tags& in, const Order& order, const Deadline& until,
               const TimeLimit& timeout) {
        const bool resumes = in.size() != 0;
        PauseEvent told; // the tags whose before-pause hooks have run and which are not paused
        const Finally undo{[&] {
            if (!told.tags.empty()) state_.run_failed_pause_hooks(told);
        }};
        if (!hooks_agree(out, told.tags)) return Moved::again;
        run_before_resume_hooks(in);
        const Tags going = tags_of(out);
        PauseEvent gone{going.names(), {}}; // built now, so that no host memory is needed once the move is done
        ResumeEvent come{in.names(), {}};
        const auto split = [&](const Report& report) {
            for (const TagReport& row : report.tags)
                (is_in(going.names(), row.tag) ? gone.report : come.report).add(row);
            gone.report.elapsed = come.report.elapsed = report.elapsed;
        };
        std::exception_ptr first;
        Moved moved = Moved::done;
        try {
            std::optional<OpenCaptures::KeepOut> no_captures;
            if (resumes && !out.empty()) no_captures.emplace(state_.captures_, until);
            Residents::Claim claim{residents_, out};
            if (claim.tags().size() < out.size()) return Moved::again; // one is in use now and no longer a candidate
            const Deadline deadline = earlier(until, deadline_after(timeout));
            claim.wait_for_marks(deadline);
            if (!resumes) no_captures.emplace(state_.captures_, Deadline{std::chrono::steady_clock::now()});
            SaverState::Members leaving = state_.tags_.members(going);
            SaverState::Members coming = state_.tags_.members(in);
            gone.report.tags.reserve(leaving.size());
            come.report.tags.reserve(coming.size());
            const Span span = out.empty() ? state_.span_of(in.names(), "resume")
                                          : state_.span_of(going.names(), resumes ? "exchange" : "pause");
            try {
                split(out.empty() ? state_.resume_now(std::move(coming), {}, deadline)
                      : !resumes
                          ? state_.pause_now(std::move(leaving), {.order = order}, deadline)
                          : state_.exchange_now(std::move(leaving), std::move(coming), {.order = order}, deadline));
            } catch (const Error& error) {
                split(error.report());
                throw;
            }
        } catch (const NotIdle&) {
            busy_ = std::current_exception();
            moved = Moved::busy;
        } catch (const OutOfMemory& error) {
            moved = pass_by_unsaved(out, error) ? Moved::again : Moved::refused;
            refused_ = error;
            if (refused_->device() < 0) refused_->attach_device(state_.driver_.device());
        } catch (const OutOfHostMemory& error) {
            moved = Moved::again;
            if (!pass_by_unsaved(out, error)) first = std::current_exception();
        } catch (...) {
            first = std::current_exception();
        }
        const bool arrived = moved == Moved::done && !first;
        residents_.count_eviction(gone.report);
        residents_.count_arrival(come.report);
        const auto in_report = [](const Report& report, const std::string& tag) {
            return any_in(report.tags, [&](const TagReport& row) { return row.tag == tag; });
        };
        for (TagReport& row : done_.tags) { // this move reports what is held now
            if (!in_report(gone.report, row.tag) && !in_report(come.report, row.tag)) continue;
            done_.held_bytes -= row.held_bytes;
            row.held_bytes = 0;
        }
        // A failed move may have paused or resumed only some of the tags, or part of one.
        erase_in(gone.tags, [&](const std::string& tag) {
            return !in_report(gone.report, tag) || (!arrived && state_.tags_.any_resident(tag));
        });
        erase_in(come.tags, [&](const std::string& tag) {
            return !arrived && (!in_report(come.report, tag) || !state_.tags_.all_resident(tag));
        });
        erase_in(told.tags, [&](const std::string& tag) { return is_in(gone.tags, tag); });
        if (!gone.tags.empty()) state_.run_after(HookKind::after_pause, gone, first);
        if (!come.tags.empty()) state_.run_after(HookKind::after_resume, come, first);
        const std::chrono::nanoseconds elapsed = done_.elapsed + gone.report.elapsed; // which is that of both
        done_.add(gone.report);                                                       // with what hooks have added
        done_.add(come.report);
        done_.elapsed = elapsed;
        if (first) std::rethrow_exception(first);
        return moved;
    }
    /// Makes room without the help of the program; if there is none, asks the owners of elastic memory, once. Returns
    /// whether there may be room now: not for ever, however much others allocate and free meanwhile.
    bool make_room_anew(const Tags& in, SaverState::Tried& tries) {
        bool any = false;
        for (const Shortage& there : shortages(in)) any = state_.relieve(there.device, tries) || any;
        if (any || std::exchange(elastic_asked_, true)) return any;
        for (const Shortage& there : shortages(in)) {
            any = state_.ask_elastic(there.device, in.names(), there.bytes) != 0 || any;
        }
        return any;
    }
    /// Returns the bytes that each device lacks for resuming these tags; empty if there is enough.
    [[nodiscard]] Vector<Shortage> shortages(const Tags& in) {
        const SaverState::Members members = state_.tags_.members(in);
        Vector<Shortage> lack;
        for (const AnyDriver& driver : state_.tags_.drivers()) {
            std::size_t needed = 0;
            std::size_t margin = 0;
            for (const auto& member : members) {
                if (member->driver.device() != driver.device() || member->arena->all_resident()) continue;
                needed += member->arena->bytes_to_resume();
                margin = std::max(margin, member->arena->margin());
            }
            DeviceMemory memory;
            if (needed == 0 || !driver.memory(memory).ok()) continue; // unknown: the resume reports a shortage
            needed += margin;
            for (const Shortage& more : mispredicted_) needed += more.device == driver.device() ? more.bytes : 0;
            if (needed > memory.free_bytes) lack.push_back({driver.device(), needed - memory.free_bytes});
        }
        return lack;
    }
    /// Returns idle tags, in eviction order, that together cover all shortages, without those that turn out not to be
    /// needed. If they do not suffice: empty if `all_or_none`, else all that help. With `but`, also tags that are in
    /// use, but none of these.
    [[nodiscard]] ResidentList choose_victims(const Vector<Shortage>& shortages, bool all_or_none,
                                              const ResidentList* but = nullptr) {
        SaverState::Members members = state_.tags_.members(Tags::all());
        sort_by(members, [](const auto& member) { return key_of(member->resident.get()); });
        Vector<Residents::Candidate> held;
        for (const auto& member : members) {
            const std::size_t bytes = member->arena->bytes_to_pause();
            if (bytes == 0 || member->arena->dropped.load() || is_in(passed_by_, member->resident)) continue;
            if (held.empty() || held.back().resident != member->resident)
                held.push_back({member->resident, Vector<std::size_t>(shortages.size())});
            for (std::size_t i = 0; i < shortages.size(); ++i)
                held.back().bytes[i] += shortages[i].device == member->driver.device() ? bytes : 0;
        }
        residents_.rank(held);
        Vector<std::size_t> got(shortages.size());
        const auto enough = [&](const Residents::Candidate* without = nullptr) {
            for (std::size_t i = 0; i < shortages.size(); ++i) {
                if (got[i] - (without != nullptr ? without->bytes[i] : 0) < shortages[i].bytes) return false;
            }
            return true;
        };
        Vector<const Residents::Candidate*> chosen;
        for (const Residents::Candidate& each : held) {
            if (enough()) break;
            if (but == nullptr ? !each.idle : is_in(*but, each.resident)) continue;
            bool of_use = false;
            for (std::size_t i = 0; i < shortages.size(); ++i)
                of_use = of_use || (each.bytes[i] != 0 && got[i] < shortages[i].bytes);
            if (!of_use || got[0] + each.bytes[0] > at_most_) continue;
            for (std::size_t i = 0; i < shortages.size(); ++i) got[i] += each.bytes[i];
            chosen.push_back(&each);
        }
        const bool all = enough();
        if (all_or_none && !all) return {};
        for (std::size_t n = all ? chosen.size() : 0;
             n-- > 0;) { // the last ones will be used soonest: keep them if possible
            if (!enough(chosen[n])) continue;
            for (std::size_t i = 0; i < shortages.size(); ++i) got[i] -= chosen[n]->bytes[i];
            chosen.erase(chosen.begin() + static_cast<std::ptrdiff_t>(n));
        }
        ResidentList victims;
        for (const Residents::Candidate* const each : chosen) victims.push_back(each->resident);
        return victims;
    }
    /// Returns tags, in use or idle, whose memory would cover what `in` lacks; nothing if that of all would not.
    [[nodiscard]] std::optional<ResidentList> others_in_the_way(const Tags& in, const ResidentList& residents) {
        for (int look = 0; look < 2; ++look) { // a tag that changes during the first look is seen by the second
            const Vector<Shortage> lack = shortages(in);
            ResidentList others = choose_victims(lack, true, &residents);
            if (lack.empty() || !others.empty()) return others;
        }
        return std::nullopt;
    }
    [[nodiscard]] OutOfMemory no_room(const Tags& in, const char* why) {
        const Vector<Shortage> lack = shortages(in);
        const int device = lack.empty() ? state_.driver_.device() : lack.back().device;
        std::size_t needed = 0;
        DeviceMemory memory{};
        for (const auto& member : state_.tags_.members(in)) {
            if (member->driver.device() != device) continue;
            if (needed == 0) (void)member->driver.memory(memory);
            needed += member->arena->bytes_to_resume();
        }
        OutOfMemory error{text_of({"use of ", quoted_tags(in), " needs ", in_bytes(needed), ", ",
                                   in_bytes(memory.free_bytes), " were free: ", why}),
                          needed, memory.free_bytes};
        error.attach_device(device);
        state_.say_who_holds(error, in);
        return error;
    }
    SaverState& state_;
    Residents& residents_;
    ResidentList passed_by_;
    std::size_t at_most_ = ~std::size_t{0}; // tags that would release more in all stay
    bool resume_hooks_ran_ = false;
    bool elastic_asked_ = false;
    std::exception_ptr unsaved_{};         ///< why a victim was passed by
    std::exception_ptr busy_{};            ///< the NotIdle of the last move
    std::optional<OutOfMemory> refused_{}; ///< by the device, in the last move
    unsigned refusals_ = 0;
    Report done_;                   ///< of all moves
    Vector<Shortage> mispredicted_; ///< memory that was reported free but refused
};

} // namespace memsaver::inline v0_3::detail
