// Runs the steps of one or several arenas together: all wait, then all save, then all release. Knows nothing about
// tags.
#pragma once

#include "memsaver/arena/operations.hpp"
#include "memsaver/core/fixed_list.hpp"
#include "memsaver/core/function_ref.hpp"
#include "memsaver/core/lists.hpp"
#include "memsaver/core/tags.hpp"

#include <algorithm>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {

/// Calls `act(i)` for 0 .. count-1: concurrently for different devices, in order for those whose `driver_of(i)` is of
/// one device. The first device's calls run on the calling thread, those of each other device on a thread of its own
/// near that device, or on the calling thread if no thread can be started. If `act` throws, the remaining calls for
/// that device are skipped. Returns after all have ended, then rethrows the first exception. Throws std::bad_alloc
/// before anything has run. `driver_of(i)` is not called any more once `act(i)` has been.
void run_by_device(std::size_t count, FunctionRef<const AnyDriver&(std::size_t)> driver_of,
                   FunctionRef<void(std::size_t)> act);

/// The same for items, each on its driver: calls `act(item)`. Errors name the item's tag, if it has one.
template <class Items, class Act>
void for_each_device(Items& items, Act&& act) {
    run_by_device(
        items.size(), [&](std::size_t i) -> const AnyDriver& { return items[i].driver(); },
        [&](std::size_t i) {
            if constexpr (requires { items[i].tag(); }) {
                naming(items[i].tag(), [&] { act(items[i]); });
            } else {
                act(items[i]);
            }
        });
}

/// The events to wait for on one device, and the time that took. First `mark`, then `wait`.
class IdleWait {
public:
    explicit IdleWait(AnyDriver driver) : driver_{std::move(driver)} {}

    [[nodiscard]] const AnyDriver& driver() const noexcept { return driver_; }
    [[nodiscard]] std::chrono::nanoseconds waited() const noexcept { return waited_; }

    /// Adds an event of the program.
    void mark(EventRef event) { marks_.push_back(event); }
    /// Adds all work submitted to the stream so far. Throws Misuse if the stream is being captured.
    void mark(StreamRef stream);
    /// Adds all work submitted to the device so far.
    void mark_device();

    /// Throws NotIdle once the deadline has passed.
    void wait(const Deadline& deadline);

private:
    AnyDriver driver_;
    std::vector<OwnedEvent> owned_;
    std::vector<EventRef> marks_;
    std::chrono::nanoseconds waited_{0};
};

/// Sets `yes` to whether a stream or an event belongs to the driver's device; leaves it unchanged if the driver cannot
/// tell.
[[nodiscard]] Status ask_owner(const AnyDriver& driver, StreamRef stream, bool& yes) noexcept;

[[nodiscard]] Status ask_owner(const AnyDriver& driver, EventRef event, bool& yes) noexcept;

/// Returns the first driver, for a stream or event that none owns. Throws the error of a query that failed.
const AnyDriver& without_owner(const std::vector<AnyDriver>& drivers, const Status& unknown);

/// Returns the first of `drivers` and of `others` that owns a stream or an event; if none does, the first of `drivers`,
/// unless a query failed: then throws its error.
template <class Mark>
[[nodiscard]] const AnyDriver& owner_among(const std::vector<AnyDriver>& drivers, const std::vector<AnyDriver>& others,
                                           const Mark& mark) {
    Status unknown;
    for (const std::vector<AnyDriver>* const some : {&drivers, &others}) {
        for (const AnyDriver& driver : *some) {
            bool yes = false;
            const Status status = ask_owner(driver, mark, yes);
            if (status.ok() && yes) return driver;
            if (unknown.ok()) unknown = status;
        }
    }
    return without_owner(drivers, unknown);
}

/// Waits until the work that `order` names has completed, on all devices concurrently. Returns the time for each
/// device. By default, that work is everything submitted to each of `drivers` so far. Streams and events that `order`
/// names may also belong to `others`, and are queried through the driver that owns them; if no driver claims one,
/// through the first of `drivers`, which is correct on machines whose devices share one driver. The default stream
/// means that of each of `drivers`. Throws NotIdle once the deadline has passed, Misuse for a stream that is being
/// captured, and the error of a failing driver call.
std::vector<IdleWait> wait_until_idle(const std::vector<AnyDriver>& drivers, const Order& order,
                                      const Deadline& deadline, const std::vector<AnyDriver>& others = {});

/// Waits for the work that may touch memory that these steps release. `others`: devices that `order` may name in
/// addition.
void wait_for_work(const std::vector<ArenaCore::Step*>& steps, const Order& order, const Deadline& deadline,
                   const std::vector<AnyDriver>& others);

/// The same for those of the steps that release memory.
template <class Step>
void wait_for_steps(FixedList<Step>& steps, const Order& order, const Deadline& deadline,
                    const std::vector<AnyDriver>& others) {
    std::vector<ArenaCore::Step*> taking;
    for (Step& step : steps) {
        if (step.takes()) taking.push_back(&step);
    }
    wait_for_work(taking, order, deadline, others);
}

/// Says what the operations wait for from now on.
template <class Step>
void say(FixedList<Step>& steps, Turn::Stage stage) noexcept {
    for (Step& step : steps) step.core().now(stage);
}

/// A failure, and the index of its row in the report.
struct FailedRow {
    Status status;
    std::size_t row;
};

/// Commits every step; `report` has capacity for a row of each. Returns the first failure.
template <class Step>
std::optional<FailedRow> commit_rows(FixedList<Step>& steps, Report& report) {
    std::optional<FailedRow> first;
    for (Step& step : steps) {
        if (step.empty()) continue;
        Status status;
        report.add(step.commit(status));
        if (!first && !status.ok()) first = FailedRow{status, report.tags.size() - 1};
    }
    return first;
}

/// Returns the report, or throws the error of the failed row with the report attached.
Report end_report(Report report, const char* what, std::chrono::steady_clock::time_point start,
                  const std::optional<FailedRow>& failed);

/// Commits every step. Throws the error of the first that failed, with the whole report attached. `report` has capacity
/// for a row of each.
template <class Step>
Report commit_all(FixedList<Step>& steps, const char* what, std::chrono::steady_clock::time_point start,
                  Report report) {
    const std::optional<FailedRow> failed = commit_rows(steps, report);
    return end_report(std::move(report), what, start, failed);
}

/// Enqueues the copies of all steps, in order. An error names its tag.
template <class Step>
void enqueue_all(FixedList<Step>& steps) {
    for (Step& step : steps) naming(step.tag(), [&] { step.enqueue(); });
}

/// Returns an empty report with capacity for `rows`, so that no host memory is needed after something has been done.
Report report_of(std::size_t rows);

/// Runs pauses to their end. `others`: devices that `order` may name in addition to those of the steps. If it throws
/// before pages are released, nothing has changed.
Report run_pause(FixedList<PauseStep>& steps, const Order& order, const Deadline& deadline,
                 const std::vector<AnyDriver>& others = {});

/// A device that was out of memory, and the driver's error.
struct Refused {
    AnyDriver driver;
    OutOfMemory error;
};

/// Creates the memory of all steps, or of none if a device is out of memory.
std::optional<Refused> create_all(FixedList<ResumeStep>& steps);

/// Throws an error with the bytes that a resume needed on the device that was out of memory, and its free bytes now.
[[noreturn]] void raise_no_room(const FixedList<ResumeStep>& steps, const Refused& there);

/// What a call does that found no room, before it tries again: releases unused memory; then waits for the device, and
/// releases what is unused now; then waits for other threads' copies, once. Called with no lock or turn held.
class Relief {
public:
    /// Calls `release(wait)` and `copies()`, which return whether there may be room now. Returns whether to try again.
    bool again(FunctionRef<bool(bool wait)> release, FunctionRef<bool()> copies) {
        while (stage_ < 2) {
            if (release(stage_++ == 1)) return true;
        }
        stage_ = 0; // what is freed from here on may have to be waited for
        return !std::exchange(waited_, true) && copies();
    }
    /// Others have made room: their copies may give back more.
    void begin_anew() noexcept { waited_ = false; }

private:
    int stage_ = 0;
    bool waited_ = false; // for copies
};

/// ResumeOptions::room_within: limits the time for retries, with increasing pauses between them.
class RoomWithin {
public:
    explicit RoomWithin(const TimeLimit& time)
        : set_{static_cast<bool>(time)}, until_{time ? deadline_after(time)
                                                     : Deadline{std::chrono::steady_clock::time_point::min()}} {}
    /// The end of the time, if one was set.
    [[nodiscard]] Deadline until() const noexcept { return set_ ? until_ : Deadline{}; }
    [[nodiscard]] bool over() const noexcept { return until_ && std::chrono::steady_clock::now() >= *until_; }
    /// The time that is left in nanoseconds; 0 if none was set, negative without a limit.
    [[nodiscard]] std::int64_t left() const noexcept {
        if (!set_) return 0;
        if (!until_) return -1;
        return std::max<std::int64_t>((*until_ - std::chrono::steady_clock::now()).count(), 0);
    }
    void sleep() noexcept;

private:
    bool set_;
    Deadline until_; // none: no limit
    std::chrono::microseconds pause_{200};
};

/// Throws Misuse if a resume is to restore bytes that were never saved.
void require_keeps_nothing(const ResumeOptions& options);
/// Throws Misuse, beginning with `what`, if a tag's policy keeps no bytes.
void require_keeps_bytes(const AnyPolicy& policy, const char* what, const std::string& tag);

/// Returns a shared arena that a forked child does not destroy, because it belongs to the parent. Throws as ArenaCore's
/// constructor.
std::shared_ptr<ArenaCore> make_arena_core(AnyDriver driver, std::string tag, AnyPolicy policy, ArenaOptions options,
                                           std::function<void(Range, std::shared_ptr<ArenaCore>)> on_segment = {});

/// Creates the memory of all steps, maps it and enqueues its copies. If it throws, the steps must be dropped.
void begin_resume(FixedList<ResumeStep>& steps);

/// Runs resumes to their end: all memory is created first, then all is mapped, then all bytes are restored. Bytes
/// arrive in the order of the steps. Each step is committed when its own bytes have arrived. If it throws, the steps
/// named in its report are resumed; the others are paused as before.
Report run_resume(FixedList<ResumeStep>& steps);

/// Runs trims to their end. `others` as for `run_pause`.
Report run_trim(FixedList<TrimStep>& steps, const Order& order, const Deadline& deadline,
                const std::vector<AnyDriver>& others = {});

} // namespace detail

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/arena/run_steps.ipp"
#endif
