// Runs pauses and resumes against each other: pages are handed over, and copies run in both directions at once.
#pragma once

#include "memsaver/arena/run_steps.hpp"
#include "memsaver/core/function_ref.hpp"
#include "memsaver/core/lists.hpp"
#include "memsaver/core/vector.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <exception>
#include <functional>
#include <mutex>
#include <new>
#include <optional>
#include <utility>

namespace memsaver::inline v0_3::detail {

/// The driver's cost per handle is roughly independent of its size: below this number of granules (16 MiB on a GPU), it
/// is cheaper to create one large handle.
inline constexpr std::size_t least_handed = 8;

/// Tracks which pages are handed over from which pause to which resume.
///
///     pause   |  A: 1 GiB  |  B: 1 GiB  | C: 2 MiB |          saved piece by piece, mapped here until the end
///                   |            |           `-> released
///     resume  |  A: 1 GiB  |  B: 1 GiB  | new: 512 MiB |      mapped here too: a piece is restored once the old
///                                                             bytes in its place have been saved
///
/// Only whole handles are handed over, between equal drivers; the largest that fits comes first.
class Handover {
public:
    Handover& operator=(Handover&&) = delete;
    /// Plans, and maps the pages that are handed over at their new addresses. Throws the error of a failing driver
    /// call, and std::bad_alloc; then the resumes must be dropped, and nothing else has changed.
    Handover(Vector<PauseStep>& out, Vector<ResumeStep>& in) : out_{out}, in_{in} {
        written_.resize(out.size());
        for (const bool brings : {true, false}) { // resumes that restore bytes get the pages saved first
            for (std::size_t i = 0; i < in.size(); ++i) {
                if (in[i].brings_bytes() == brings) plan(i);
            }
        }
    }

    /// Returns the bytes of a device that are released because no resume can use them as they are.
    [[nodiscard]] std::size_t left_over(const AnyDriver& driver) const noexcept {
        std::size_t bytes = 0;
        for (PauseStep& step : out_) {
            if (step.driver() == driver) bytes += step.bytes_freed();
        }
        return bytes;
    }

    /// Starts saving. Throws what a policy throws.
    void save() {
        for (std::size_t p = 0; p < out_.size(); ++p) {
            // A policy that keeps nothing writes poison over pages handed over.
            const bool poisons =
                !out_[p].keeps_bytes() && any_in(pairs_, [&](const Pair& pair) { return pair.pause == p; });
            written_[p] = poisons ? 1 : 0; // also if it throws
            naming(out_[p].tag(), [&] { out_[p].enqueue(); });
            if (out_[p].ticket().bytes() == 0) written_[p] = 0;
        }
    }
    /// From here on, pages that are handed over may be written to.
    void write() noexcept {
        for (const Pair& pair : pairs_) written_[pair.pause] = 1;
    }
    /// Returns LiveSet::before_write for a resume. Any thread may call it.
    [[nodiscard]] std::function<Status(Range)> before_write(std::size_t resume) {
        return [this, resume](Range range) -> Status {
            for (const Pair& pair : pairs_) {
                if (pair.resume != resume || !overlap(pair.target, range)) continue;
                const Address begin = std::max(pair.target.address, range.address);
                const Address end = std::min(pair.target.end(), range.end());
                try {
                    const Status status = out_[pair.pause].ticket().wait_for(
                        {pair.source.address + (begin - pair.target.address), end - begin});
                    if (!status.ok()) return status;
                } catch (const std::exception&) { // rethrown to the thread that waits for the whole save
                    return {StatusKind::other, 0, "the previous bytes could not be saved"};
                }
            }
            return {};
        };
    }

    /// Hands over nothing. Nothing may have been written.
    void call_off() {
        for (PauseStep& step : out_) step.hand_over_nothing();
        for (ResumeStep& step : in_) naming(step.tag(), [&] { step.unmap_handed(); });
        pairs_.clear();
    }
    /// After a failure, once the resumes are destroyed: pauses the memory whose pages may have been written to, because
    /// its saves complete unless the device is lost. The rest stays active.
    void end_written() noexcept {
        for (std::size_t p = 0; p < out_.size(); ++p) {
            out_[p].hand_over_nothing();
            if (written_[p] == 0) continue;
            out_[p].saved_anyway();
            out_[p].release();
        }
    }

private:
    struct Offer {
        std::size_t bytes;
        std::size_t pause;
        PauseStep::Leaving* from;
    };
    struct Pair {
        std::size_t pause;
        PauseStep::Leaving* from;
        Range source;
        std::size_t resume;
        Range target;
    };

    /// Plans the extents of a resume, and maps those that are handed over.
    void plan(std::size_t resume) {
        ResumeStep& step = in_[resume];
        const std::size_t granularity = step.core().granularity();
        Vector<Offer> offers; // by size; those of equal size in the order in which they are saved
        for (std::size_t p = 0; p < out_.size(); ++p) {
            if (!(out_[p].driver() == step.driver())) continue;
            for (PauseStep::Leaving& each : out_[p].extents()) {
                if (each.target == nullptr && !each.extent->sealed) offers.push_back({each.extent->bytes, p, &each});
            }
        }
        sort_by(offers, [](const Offer& offer) { return std::uint64_t{offer.bytes}; });
        for (Memory* const memory : step.memories()) {
            Vector<Extent> extents;
            std::size_t next_pair = pairs_.size();
            const auto take = [&](Extent target, Offer* offer) {
                target.bytes = offer->bytes;
                pairs_.push_back({offer->pause, offer->from, offer->from->extent->range(), resume, target.range()});
                extents.push_back(target);
                offers.erase(offer);
            };
            const auto fill = [&](Range run) {
                while (run.bytes != 0) {
                    Offer* offer = at_least(run.bytes + 1, offers);
                    if (offer == offers.begin()) break;
                    offer = at_least(offer[-1].bytes, offers); // the largest that fits, of these the first
                    const std::size_t bytes = offer->bytes;
                    if (bytes < least_handed * granularity && bytes != run.bytes) break;
                    take({.address = run.address}, offer);
                    run = {run.address + bytes, run.bytes - bytes};
                }
                split_into_extents(run, granularity, false, extents);
            };
            for_each_run(memory->extents, fill, [&](const Extent& extent) {
                Offer* const offer = at_least(extent.bytes, offers); // only a handle of exactly this size
                const bool kept = extent.owns || extent.mapped;
                if (!kept && offer != offers.end() && offer->bytes == extent.bytes) {
                    take({.address = extent.address, .fixed = true}, offer);
                } else {
                    extents.push_back(extent);
                }
            });
            step.plan(*memory, std::move(extents));
            for (Extent& target : memory->extents) { // in the order of the pairs
                if (next_pair == pairs_.size() || target.address != pairs_[next_pair].target.address) continue;
                PauseStep::Leaving& from = *pairs_[next_pair++].from;
                step.map_of(target, from.extent->pages);
                from.target = &target;
                from.to = &step.core();
            }
        }
    }
    [[nodiscard]] static Offer* at_least(std::size_t bytes, Vector<Offer>& offers) {
        return std::lower_bound(offers.begin(), offers.end(), bytes,
                                [](const Offer& offer, std::size_t wanted) { return offer.bytes < wanted; });
    }

    Vector<PauseStep>& out_;
    Vector<ResumeStep>& in_;
    Vector<Pair> pairs_;
    Vector<char> written_; // for each pause: some of its pages may have been written to
};

/// Creates the memory for which no page is handed over. Returns false if a device has no room for it now, but will have
/// once `out` is released.
inline bool create_beside(Vector<ResumeStep>& in, const Handover& handover) {
    if (create_all(in)) return true;
    for (const ResumeStep& there : in) {
        if (!there.refused) continue;
        std::size_t needed = 0;
        std::size_t margin = 0; // must stay free too
        for (ResumeStep& step : in) {
            if (!(step.driver() == there.driver())) continue;
            needed += step.needed_bytes();
            margin = std::max(margin, step.core().margin());
        }
        DeviceMemory memory;
        const std::size_t coming = there.driver().memory(memory).ok() ? handover.left_over(there.driver()) : 0;
        const std::size_t free = memory.free_bytes + coming;
        if (coming == 0 || free < needed || free - needed < margin) raise_no_room(in, there);
    }
    return false;
}

/// Runs an exchange to its end. `out` have been begun and wait for `order`; `in` have been begun. Copies run in both
/// directions at once if every save of `out` is entirely on its streams once it has begun; otherwise all is saved
/// first. If there is no memory now for what `in` needs beyond the pages of `out`, nothing is handed over: `out` is
/// paused, then `in` resumed. If it throws, the report says what was done: each
/// of `out` is paused and saved, or active as it was; of `in`, either everything is resumed or nothing.
inline Report run_exchange(Vector<PauseStep>& out, Vector<ResumeStep>& in, const Order& order, const Deadline& deadline,
                           const Vector<AnyDriver>& others) {
    const auto start = std::chrono::steady_clock::now();
    Report report = report_of(out.size() + in.size());
    wait_for_steps(out, order, deadline, others);
    Handover handover{out, in};
    if (!create_beside(in, handover)) {
        handover.call_off();
        report = end_release(out, std::move(report), start);
        reporting(report, start, [&] {
            begin_resume(in);
            for_each_device(in, [](ResumeStep& step) { step.wait(); });
        });
        end_resume(in, report);
        return end_report(std::move(report), "release pages", start, {});
    }
    say(out, Turn::Stage::moves);
    say(in, Turn::Stage::moves);
    for_each_device(in, [](ResumeStep& step) { step.map(); });
    const auto saved = [&] { for_each_device(out, [](PauseStep& step) { step.wait(); }); };
    bool writing = false;
    try {
        translated([&] {
            handover.save();
            // Else a page could be written to whose save might still fail.
            if (!all_in(out, [](PauseStep& step) { return step.ticket().enqueued(); })) saved();
            handover.write();
            writing = true;
            for_each_device(in, [&](ResumeStep& step) {
                step.enqueue(handover.before_write(static_cast<std::size_t>(&step - in.data())));
            });
            for_each_device(in, [](ResumeStep& step) { step.wait(); });
            saved();
        });
    } catch (...) {
        std::exception_ptr failure = std::current_exception();
        in.clear(); // no copies into handed pages are in flight afterwards, and they are unmapped there
        try {
            if (writing) translated(saved); // if a save failed, it is the cause
        } catch (...) {
            failure = std::current_exception();
        }
        handover.end_written();
        (void)commit_rows(out, report);
        reporting(report, start, [&] { std::rethrow_exception(failure); });
    }
    for_each_device(out, [](PauseStep& step) { step.release(); });
    const std::optional<FailedRow> kept = commit_rows(out, report);
    end_resume(in, report);
    return end_report(std::move(report), "release pages", start, kept);
}

} // namespace memsaver::inline v0_3::detail
