// Definitions of exchange.hpp.
#pragma once

#include "memsaver/arena/exchange.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <new>
#include <optional>
#include <utility>
#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {

/// The driver's cost per handle is roughly independent of its size: below this number of granules (16 MiB on a GPU), it
/// is cheaper to create one large handle.
inline constexpr std::size_t least_handed = 8;

MEMSAVER_INLINE Handover::Handover(std::vector<PauseStep>& out, std::vector<ResumeStep>& in) : out_{out} {
    struct Offer {
        std::size_t pause;
        std::size_t extent;
    };
    std::vector<std::size_t> takers(in.size()); // resumes that restore bytes come first: they get the pages saved first
    for (std::size_t i = 0; i < in.size(); ++i) takers[i] = i;
    std::stable_partition(takers.begin(), takers.end(), [&](std::size_t i) { return in[i].brings_bytes(); });
    std::multimap<std::size_t, Offer> offers; // by size; those of equal size in the order in which they are saved
    written_.resize(out.size());
    safe_.resize(out.size(), true);
    for (std::size_t p = 0; p < out.size(); ++p) {
        written_[p].resize(out[p].extents().size(), false);
        out[p].plan_handover();
    }
    for (const std::size_t r : takers) {
        ResumeStep& step = in[r];
        offers.clear();
        for (std::size_t p = 0; p < out.size(); ++p) {
            if (!(out[p].driver() == step.driver())) continue;
            const std::vector<Extent>& extents = out[p].extents();
            std::vector<std::size_t> order(extents.size());
            for (std::size_t e = 0; e < extents.size(); ++e) order[e] = e;
            std::sort(order.begin(), order.end(),
                      [&](std::size_t a, std::size_t b) { return extents[a].address() < extents[b].address(); });
            for (const std::size_t e : order) {
                if (!written_[p][e]) offers.emplace(extents[e].bytes(), Offer{p, e}); // here: not handed over yet
            }
        }
        std::vector<Range> plan;
        for (const Range& range : step.ranges()) {
            Range rest = range;
            while (rest.bytes != 0) {
                auto offer = offers.find(rest.bytes);
                if (step.pages().options().single_handle) { // only a handle of exactly this size
                    if (offer == offers.end()) break;
                } else {
                    offer = offers.upper_bound(rest.bytes);
                    if (offer == offers.begin()) break;
                    offer = offers.lower_bound(std::prev(offer)->first);
                }
                const std::size_t bytes = offer->first;
                if (bytes < least_handed * step.pages().granularity() && bytes != rest.bytes) break;
                const auto [p, e] = offer->second;
                const Range target{rest.address, bytes};
                pairs_.push_back({p, e, {out[p].extents()[e].address(), bytes}, r, target, true, false});
                plan.push_back(target);
                written_[p][e] = true;
                offers.erase(offer);
                rest = {rest.address + bytes, rest.bytes - bytes};
            }
            if (rest.bytes == 0) continue;
            if (step.pages().options().single_handle) {
                plan.push_back(rest);
            } else { // a handed handle may be larger than a new one
                split_into_extents(rest, step.pages().granularity(), plan);
            }
        }
        if (pairs_.empty() || pairs_.back().resume != r) continue;
        step.plan(plan);
        auto extent = step.extents().begin();
        for (const Pair& pair : pairs_) {
            if (pair.resume != r) continue;
            while (extent->address() != pair.target.address) ++extent;
            step.map_of(*extent, out[pair.pause].extents()[pair.extent]);
            out[pair.pause].hand_over_to(pair.extent, *extent, step.pages());
        }
    }
    for (auto& flags : written_) std::fill(flags.begin(), flags.end(), false);
}

MEMSAVER_INLINE std::size_t Handover::left_over(const AnyDriver& driver) const noexcept {
    std::size_t bytes = 0;
    for (const PauseStep& step : out_) {
        if (!(step.driver() == driver)) continue;
        for (const Extent& extent : step.extents()) bytes += extent.physical_bytes();
        bytes += step.scratch_bytes();
    }
    for (const Pair& pair : pairs_) {
        if (out_[pair.pause].driver() == driver) bytes -= pair.source.bytes;
    }
    return bytes;
}

MEMSAVER_INLINE void Handover::save() {
    for (std::size_t p = 0; p < out_.size(); ++p) {
        bool threw = true;
        struct AtEnd { // a policy that keeps nothing writes poison over pages handed over
            ~AtEnd() {
                if (out.keeps_bytes() || (!threw && out.ticket().bytes() == 0)) return;
                for (Pair& pair : pairs) pair.written = pair.written || pair.pause == p;
            }
            PauseStep& out;
            std::deque<Pair>& pairs;
            std::size_t p;
            const bool& threw;
        };
        const AtEnd note_poison{out_[p], pairs_, p, threw};
        try {
            out_[p].enqueue();
        } catch (Error& error) {
            name_tag(error, out_[p].tag());
            throw;
        }
        threw = false;
    }
}

MEMSAVER_INLINE std::function<Status(Range)> Handover::before_write(std::size_t resume) {
    return [this, resume](Range range) -> Status {
        for (Pair& pair : pairs_) {
            if (pair.resume != resume || !overlap(pair.target, range)) continue;
            const Address begin = std::max(pair.target.address, range.address);
            const Address end = std::min(pair.target.end(), range.end());
            if (const Status status = wait_for(pair, {begin, end - begin}); !status.ok()) return status;
        }
        return {};
    };
}

MEMSAVER_INLINE Status Handover::wait_for(Pair& pair, Range target) {
    Ticket& saving = out_[pair.pause].ticket();
    const Range part{pair.source.address + (target.address - pair.target.address), target.bytes};
    Status status;
    try {
        status = saving.wait_for(saving.enqueued() ? part : pair.source);
    } catch (const std::exception&) { // rethrown to the thread that waits for the whole save
        status = {StatusKind::other, 0, "the previous bytes could not be saved"};
    }
    const std::lock_guard lock{mutex_};
    if (status.ok()) {
        pair.written = true;
    } else {
        save_failed_ = true;
    }
    return status;
}

MEMSAVER_INLINE bool Handover::save_failed() const noexcept {
    const std::lock_guard lock{mutex_};
    return save_failed_;
}

MEMSAVER_INLINE void Handover::release_written() noexcept {
    std::vector<bool>& safe = safe_; // for each pause
    for (const Pair& pair : pairs_) {
        if (!pair.written) continue;
        written_[pair.pause][pair.extent] = true;
        Status status;
        try {
            status = out_[pair.pause].ticket().wait_for(pair.source);
        } catch (const std::exception&) { // a failed save, but the device is not lost
        }
        if (status.kind == StatusKind::gone) safe[pair.pause] = false;
    }
    for (std::size_t p = 0; p < out_.size(); ++p) {
        if (std::find(written_[p].begin(), written_[p].end(), true) != written_[p].end())
            out_[p].release_only(written_[p], safe[p]);
    }
}

/// Creates the memory for which no page is handed over. If a device has no room for it now, but will have once `out` is
/// released, puts off all steps of that device.
MEMSAVER_INLINE void take_or_put_off(std::vector<ResumeStep>& in, const Handover& handover,
                                     FunctionRef<bool(int)> relieve) {
    while (const std::optional<Refused> refused = create_all(in)) {
        const AnyDriver& driver = refused->driver;
        std::size_t needed = 0;
        std::size_t margin = 0; // must stay free too
        for (ResumeStep& step : in) {
            step.uncreate();
            if (!(step.driver() == driver)) continue;
            needed += step.needed_bytes();
            margin = std::max(margin, step.pages().margin());
        }
        DeviceMemory memory;
        const std::size_t coming = driver.memory(memory).ok() ? handover.left_over(driver) : 0;
        const std::size_t free = memory.free_bytes + coming;
        if (coming != 0 && free >= needed && free - needed >= margin) {
            for (ResumeStep& step : in) {
                if (step.driver() == driver) step.put_off(true);
            }
        } else if (!relieve(driver.device())) {
            raise_no_room(in, *refused);
        }
    }
}

/// Runs `act`, which never throws, for every step; one after the other if host memory for running side by side is
/// lacking.
template <class Step, class Act>
void for_each_device_surely(std::vector<Step>& steps, const Act& act) {
    try {
        for_each_device(steps, act);
    } catch (const std::bad_alloc&) { // thrown before anything has run
        for (Step& step : steps) act(step);
    }
}

/// Creates the memory that was put off, and restores its bytes.
MEMSAVER_INLINE void bring_rest(std::vector<ResumeStep>& in, FunctionRef<bool(int)> relieve) {
    for (ResumeStep& step : in) step.put_off(false);
    while (const std::optional<Refused> refused = create_all(in)) {
        for (ResumeStep& step : in) step.uncreate();
        if (!relieve(refused->driver.device())) raise_no_room(in, *refused);
    }
    for_each_device(in, [](ResumeStep& step) { step.map(); });
    enqueue_all(in);
    for_each_device(in, [](ResumeStep& step) { step.wait(); });
}

MEMSAVER_INLINE Report run_exchange(std::vector<PauseStep>& out, std::vector<ResumeStep>& in, const Order& order,
                                    const Deadline& deadline, const std::vector<AnyDriver>& others,
                                    FunctionRef<bool(int)> relieve, FunctionRef<void(std::size_t)> ending) {
    const auto start = std::chrono::steady_clock::now();
    Report report = report_of(out.size() + in.size());
    const auto with_report = [&](std::exception_ptr failure) {
        report.elapsed = std::chrono::steady_clock::now() - start;
        try {
            std::rethrow_exception(std::move(failure));
        } catch (Error& error) {
            error.attach(std::move(report));
            throw;
        }
    };
    wait_for_steps(out, order, deadline, others);
    Handover handover{out, in};
    take_or_put_off(in, handover, relieve);
    for_each_device(in, [](ResumeStep& step) { step.map(); });
    const auto saved = [&] { for_each_device(out, [](PauseStep& step) { step.wait(); }); };
    try {
        translated([&] {
            handover.save();
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
            if (handover.save_failed()) translated(saved); // rethrows the cause; `failure` only says that a wait failed
        } catch (...) {
            failure = std::current_exception();
        }
        handover.release_written();
        (void)commit_rows(out, report);
        with_report(std::move(failure));
    }
    for_each_device_surely(out, [](PauseStep& step) { step.release(); });
    const std::optional<FailedRow> kept = commit_rows(out, report);
    try {
        translated([&] { bring_rest(in, relieve); });
    } catch (...) {
        with_report(std::current_exception());
    }
    std::mutex mutex;
    for_each_device_surely(in, [&](ResumeStep& step) {
        if (step.empty()) return;
        if (!step.ranges().empty()) ending(static_cast<std::size_t>(&step - in.data()));
        TagReport row = step.commit();
        const std::lock_guard lock{mutex};
        report.add(std::move(row)); // capacity was reserved
    });
    return end_report(std::move(report), "release pages", start, kept);
}

} // namespace detail

} // namespace memsaver::inline v0_3
