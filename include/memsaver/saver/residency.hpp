// Implements `use`, `reclaim` and evictions for allocations: resumes tags that are used and evicts idle tags. Knows
// nothing about how a tag is paused or resumed, or which threads wait for which.
#pragma once

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

inline bool over(const Deadline& deadline) { return deadline && std::chrono::steady_clock::now() >= *deadline; }

/// The working state of one call of `use` or `reclaim`, or of one attempt to make room. Not thread-safe.
class Residency {
public:
    explicit Residency(SaverState& state) : state_{state}, residents_{state.tags_.residents()} {}
    Residency& operator=(Residency&&) = delete;
    ~Residency() { tell_unneeded(); }

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
        const Deadline room = deadline_after(options.room_within);
        Deadline rest = deadline_after(options.timeout); // for everything except room
        SaverState::Tried tries{nullptr, &in, {}};
        for (Residents::Waiter waiter{residents_, residents, options.await_bytes};;) {
            tries.until = earlier(room, rest);
            try {
                if (auto used = waiter.await(room, rest)) return used;
                tries.seen = state_.room_made_.load();
                const Tried tried = try_resume(in, tries.until, rest, options.order);
                if (tried == Tried::marked) { // other moves need not wait for that work, which may wait for them
                    waiter.stop_moving();
                    waiter.await_change({}, room, true);
                    continue;
                }
                std::optional<ResidentList> others;
                if (tried == Tried::too_few && !waiter.holds_any()) others = others_in_the_way(in, residents);
                if (others) {
                    waiter.stop_moving();
                    if (make_room_anew(in)) continue;
                    if (over(room)) {
                        OutOfMemory error =
                            no_room(in, "other threads' uses did not free enough memory within .room_within");
                        if (!state_.ask_for_room(error, error.device(), state_.away(in), tries.asked)) throw error;
                        tries.asked += 1;
                        continue;
                    }
                    tell_unneeded(); // uses of the tags that hooks were told of may begin meanwhile
                    const auto since = std::chrono::steady_clock::now();
                    waiter.await_change(std::move(*others), room);
                    if (rest) *rest += std::chrono::steady_clock::now() - since;
                    continue;
                }
                std::optional<OutOfMemory> refused;
                if (tried != Tried::done) {
                    run_before_resume_hooks(in);
                    refused = move({}, in, options.order, rest, [] {});
                }
                if (!refused) {
                    if (auto used = waiter.settle()) return used;
                    continue; // the tag changed in the meantime, for example got an arena on another device
                }
                waiter.stop_moving(); // the program's callbacks may need what this move holds
                const int device = refused->device();
                if (state_.relieve(device, tries)) continue;
                if (!state_.ask_for_room(*refused, device, state_.away(in), tries.asked)) {
                    state_.say_no_room(*refused, device, {}, tries.asked, in);
                    throw *refused;
                }
                tries.asked += 1;
                tries.relief.begin_anew();
            } catch (Error& error) {
                waiter.stop_moving();
                auto* const busy = dynamic_cast<NotIdle*>(&error);
                if (busy != nullptr && done_.released_bytes + done_.handed_bytes + done_.mapped_bytes != 0)
                    busy->append(" since tags were paused or resumed for it");
                std::optional<OutOfMemory> late;
                if (busy != nullptr && over(room) && !waiter.blocked() && !moving_) late = no_room(in, busy->what());
                if (!done_.tags.empty()) (late ? *late : error).attach(std::move(done_));
                if (late) throw *late;
                const bool lacks_room = dynamic_cast<OutOfMemory*>(&error) != nullptr;
                if (busy != nullptr || (lacks_room && error.holders().empty())) state_.say_who_holds(error, in);
                throw;
            }
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
        if (!now.enough() && now.unsaved) std::rethrow_exception(now.unsaved);
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
            const Residents::Evicting evicting{residents_};
            while (!now.enough() && evict_some(now)) {
            }
        }
        if (now.got.bytes() == 0) return residents_.await_eviction(seen, deadline); // what others release may be enough
        state_.room_made_ += 1;
        return true;
    }

private:
    /// The state of one reclaim, or of one attempt to make room.
    struct Reclaiming {
        std::size_t bytes;
        int device;
        const ReclaimOptions& options;
        Deadline until{};         // of all pauses together; none: each has the timeout of the options
        bool all_or_none = false; // pauses nothing that does not suffice
        Reclaimed got{};
        std::exception_ptr unsaved{}; // why a tag was passed by
        const char* in_the_way = "";
        bool one_by_one = false; // set once one of several tags is not idle

        [[nodiscard]] bool enough() const noexcept { return got.bytes() >= bytes; }
        [[nodiscard]] std::size_t missing() const noexcept { return enough() ? 0 : bytes - got.bytes(); }
    };
    /// Pauses idle tags, if there are any. Returns false if no more can be paused.
    [[nodiscard]] bool evict_some(Reclaiming& now) {
        ResidentList out = choose_victims({{now.device, now.missing()}}, now.all_or_none);
        if (out.empty()) return false;
        if (now.one_by_one) out.resize(1);
        if (!hooks_agree(out)) return true;
        const char* const captured = "a capture is open, so no tag can be paused; ";
        if (state_.captures_.open()) {
            now.in_the_way = captured;
            return false;
        }
        Residents::Claim claim{residents_, out};
        if (claim.tags().empty()) { // some are in use now and no longer candidates
            tell_unneeded();
            return true;
        }
        moving_ = true;
        try {
            const Deadline deadline = now.until ? now.until : deadline_after(now.options.timeout);
            claim.wait_for_marks(deadline);
            std::optional<OpenCaptures::KeepOut> no_captures;
            try {
                no_captures.emplace(state_.captures_, "reclaim");
            } catch (const Misuse&) { // a capture has begun in the meantime
                now.in_the_way = captured;
                return false;
            }
            const std::optional<OutOfMemory> refused =
                move(out, Tags{}, now.options.order, deadline, [&] { // hooks run without the claim
                    claim.end();
                    no_captures.reset();
                });
            if (refused) {
                if (!pass_by_unsaved(out, *refused)) throw *refused;
                now.unsaved = std::make_exception_ptr(*refused);
                return true;
            }
        } catch (const OutOfHostMemory& error) {
            if (!moving_ || !pass_by_unsaved(out, error)) throw;
            now.unsaved = std::current_exception();
            return true;
        } catch (const NotIdle&) {
            if (!moving_) throw; // a hook's
            now.one_by_one = true;
            if (out.size() == 1) passed_by_.push_back(out.front());
            return true;
        }
        std::size_t evicted = 0; // so far
        for (const TagReport& row : done_.tags) evicted += row.device == now.device ? row.released_bytes : 0;
        // If nothing came, other threads had paused them, or their memory cannot be released now: do not retry them.
        if (evicted == now.got.evicted_bytes) passed_by_.append(out.begin(), out.end());
        now.got.evicted_bytes = evicted;
        return true;
    }
    /// The bytes that a device lacks.
    struct Shortage {
        int device;
        std::size_t bytes;
    };
    enum class Tried { done, too_few, marked, refused };

    /// Resumes the paused tags of `in`, evicting idle tags as needed. Returns `too_few` if the idle tags do not free
    /// enough memory, `marked` if work that uses of them marked takes long, and `refused` if a device repeatedly
    /// refused memory that it reports as free. `room` limits waits for users, their marks and captures; `rest` limits
    /// everything else.
    Tried try_resume(const Tags& in, const Deadline& room, const Deadline& rest, const Order& order) {
        mispredicted_.clear();
        moving_ = false;
        constexpr unsigned often_enough = 8; // bounds retries with devices that report free memory but refuse it
        std::exception_ptr unsaved;          // why a victim was passed by
        for (unsigned tries = 0; tries < often_enough;) {
            Vector<Shortage> lack = shortages(in);
            if (!lack.empty()) {
                for (const Shortage& there : lack) (void)state_.make_room(there.device, false, 0);
                lack = shortages(in);
            }
            ResidentList out;
            if (!lack.empty()) {
                out = choose_victims(lack, true);
                if (out.empty() && unsaved) std::rethrow_exception(unsaved);
                if (out.empty()) return Tried::too_few;
                if (!hooks_agree(out)) continue; // choose other tags
            }
            run_before_resume_hooks(in);
            std::optional<OpenCaptures::KeepOut> no_captures;
            if (!out.empty()) no_captures.emplace(state_.captures_, room);
            Residents::Claim claim{residents_, out};
            if (claim.tags().size() < out.size()) { // one is in use now and no longer a candidate
                no_captures.reset();
                tell_unneeded();
                continue;
            }
            try {
                constexpr std::chrono::milliseconds a_while{20};
                claim.wait_for_marks(earlier(room, std::chrono::steady_clock::now() + a_while));
            } catch (const NotIdle&) {
                if (over(room)) throw;
                return Tried::marked;
            }
            std::optional<OutOfMemory> refused;
            try {
                refused = move(out, in, order, rest, [&] { // hooks run without the claim and with captures allowed
                    claim.end();
                    no_captures.reset();
                });
            } catch (const OutOfHostMemory& error) {
                if (!moving_ || !pass_by_unsaved(out, error)) throw;
                unsaved = std::current_exception();
                moving_ = false;
                continue;
            }
            if (!refused) return Tried::done;
            tries += 1; // free memory is queried again; add only what that does not show
            (void)state_.make_room(refused->device(), false, 0);
            (void)pass_by_unsaved(out, *refused);
            if (refused->needed_bytes() <= refused->free_bytes()) mispredicted_.push_back({refused->device(), 2_MiB});
        }
        return Tried::refused;
    }
    /// Passes a victim by from now on if it is its backup that has found no room: others may do. Returns whether.
    bool pass_by_unsaved(const ResidentList& out, const Error& refused) {
        const auto* const victim = first_in(out, [&](const auto& each) { return each->tag == refused.tag(); });
        if (victim == nullptr) return false;
        state_.tell_of({(*victim)->tag}, EventKind::ignored, {refused.what()});
        passed_by_.push_back(*victim);
        return true;
    }
    /// Runs the before-resume hooks for `in`, once.
    void run_before_resume_hooks(const Tags& in) {
        if (std::exchange(resume_hooks_ran_, true)) return;
        ResumeEvent event{in.names(), {}};
        state_.run_hooks(HookKind::before_resume, event, false);
    }
    /// Makes one attempt: pauses `out`, all claimed by this thread, resumes `in`, calls `let_go()`, and runs
    /// after-hooks. Returns the error of a device without room.
    std::optional<OutOfMemory> move(const ResidentList& out, const Tags& in, const Order& order,
                                    const Deadline& deadline, FunctionRef<void()> let_go) {
        const Tags going = tags_of(out);
        PauseEvent gone{going.names(), {}}; // built now, so that no host memory is needed once the move is done
        ResumeEvent come{in.names(), {}};
        SaverState::Members leaving = state_.tags_.members(going);
        SaverState::Members coming = state_.tags_.members(in);
        gone.report.tags.reserve(leaving.size());
        come.report.tags.reserve(coming.size());
        const auto split = [&](const Report& report) {
            for (const TagReport& row : report.tags)
                (is_in(going.names(), row.tag) ? gone.report : come.report).add(row);
            gone.report.elapsed = come.report.elapsed = report.elapsed;
        };
        std::exception_ptr first;
        std::optional<OutOfMemory> refused;
        bool arrived = false;
        moving_ = true;
        const auto act = [&] {
            const bool resumes = in.size() != 0;
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
        };
        try {
            act();
            arrived = true;
        } catch (const OutOfMemory& error) {
            refused = error;
            if (refused->device() < 0) refused->attach_device(state_.driver_.device());
        } catch (...) {
            first = std::current_exception();
        }
        moving_ = first != nullptr;
        residents_.count_eviction(gone.report);
        residents_.count_arrival(come.report);
        let_go();
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
        note_hooks_ran(gone.tags);
        if (!gone.tags.empty()) state_.run_after(HookKind::after_pause, gone, first);
        if (!come.tags.empty()) state_.run_after(HookKind::after_resume, come, first);
        const std::chrono::nanoseconds elapsed = done_.elapsed + gone.report.elapsed; // which is that of both
        done_.add(gone.report);                                                       // with what hooks have added
        done_.add(come.report);
        done_.elapsed = elapsed;
        if (first) std::rethrow_exception(first);
        return refused;
    }
    /// Releases unused memory, waiting for the device if necessary; if there is none, asks the owners of elastic
    /// memory, once. Returns whether anything was released.
    bool make_room_anew(const Tags& in) {
        bool any = false;
        for (const Shortage& there : shortages(in)) {
            any = state_.make_room(there.device, true, state_.room_made_.load()) || any;
        }
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
    /// Runs the before-pause hooks of each tag whose hooks have not run yet. A tag whose hook throws is skipped from
    /// now on, and the result is false.
    [[nodiscard]] bool hooks_agree(const ResidentList& chosen) {
        bool all = true;
        if (state_.hooks_.empty(HookKind::before_pause)) return all;
        for (const auto& tag : chosen) {
            if (is_in(asked_, tag)) continue;
            PauseEvent event{{tag->tag}, {}};
            try {
                state_.run_hooks(HookKind::before_pause, event, false);
                asked_.push_back(tag);
            } catch (...) { // a hook may throw anything; this tag stays resident
                state_.run_failed_pause_hooks(event);
                passed_by_.push_back(tag);
                all = false;
            }
        }
        return all;
    }
    [[nodiscard]] OutOfMemory no_room(const Tags& in, const char* why) {
        std::size_t needed = 0;
        std::size_t free = 0;
        for (const auto& member : state_.tags_.members(in)) {
            DeviceMemory memory;
            if (needed == 0 && member->driver.memory(memory).ok()) free = memory.free_bytes;
            needed += member->arena->bytes_to_resume();
        }
        OutOfMemory error{text_of({"use of ", quoted_tags(in), " needs ", in_bytes(needed), ", ", in_bytes(free),
                                   " were free: ", why}),
                          needed, free};
        const Vector<Shortage> lack = shortages(in);
        error.attach_device(lack.empty() ? state_.driver_.device() : lack.back().device);
        state_.say_who_holds(error, in);
        return error;
    }
    /// Records that the after-pause hooks of these tags are about to run. If a tag is resumed and must be evicted
    /// again, its before-hooks run again.
    void note_hooks_ran(const std::vector<std::string>& tags) noexcept {
        erase_in(asked_, [&](const std::shared_ptr<Resident>& tag) { return is_in(tags, tag->tag); });
    }
    /// Runs the failed-pause hooks of tags whose before-hooks have run but which were not paused, and forgets that the
    /// before-hooks ran.
    void tell_unneeded() noexcept {
        const ResidentList asked = std::exchange(asked_, {});
        if (asked.empty() || state_.hooks_.empty(HookKind::after_failed_pause)) return;
        try {
            PauseEvent event{tags_of(asked).names(), {}}; // including tags that another pause has taken
            state_.run_failed_pause_hooks(event);
        } catch (const std::exception& error) {
            detail::tell(state_.options_.events, EventKind::ignored, "", state_.driver_.device(), {error.what()});
        }
    }

    SaverState& state_;
    Residents& residents_;
    ResidentList passed_by_;
    std::size_t at_most_ = ~std::size_t{0}; // tags that would release more in all stay
    ResidentList asked_;                    ///< tags whose before-hooks have run, and no after-pause hooks since
    bool resume_hooks_ran_ = false;
    bool elastic_asked_ = false;
    bool moving_ = false;           ///< an exception comes from a move: not from a hook, nor for lack of room
    Report done_;                   ///< of all moves
    Vector<Shortage> mispredicted_; ///< memory that was reported free but refused
};

} // namespace memsaver::inline v0_3::detail
