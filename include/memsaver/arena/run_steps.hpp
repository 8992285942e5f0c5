// Runs the steps of one or many arenas together: all wait, then all save, then all release. Does not know tags.
#pragma once

#include "memsaver/arena/arena_core.hpp"
#include "memsaver/core/function_ref.hpp"
#include "memsaver/core/tags.hpp"

#include <algorithm>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace memsaver::inline v0_2 {

namespace detail {

/// Calls `act(i)` for the number of every driver; those of different devices at the same time, those of one device in
/// order. The first device's run here, each other one's on a thread of its own, near that device, or here too where no
/// thread is to be had. Where `act` throws, the rest of that device is left out. All have ended when it returns; then
/// the first exception is thrown again. Throws bad_alloc before anything has run.
void run_by_device(const std::vector<AnyDriver>& drivers, FunctionRef<void(std::size_t)> act);

/// The same of items, each on its driver: `act(item)`. Errors name the item's tag, if it has one.
template <class Item, class Act>
void for_each_device(std::vector<Item>& items, Act&& act) {
    std::vector<AnyDriver> drivers; // asked before anything runs: an item that `act` ends on one thread is none to ask
    drivers.reserve(items.size());
    for (const Item& item : items) drivers.push_back(item.driver());
    run_by_device(drivers, [&](std::size_t i) {
        if constexpr (requires { items[i].tag(); }) {
            try {
                act(items[i]);
            } catch (Error& error) {
                name_tag(error, items[i].tag());
                throw;
            }
        } else {
            act(items[i]);
        }
    });
}

/// What is waited for on one device, and how long that took. Marked first, then waited for.
class IdleWait {
public:
    explicit IdleWait(AnyDriver driver) : driver_{std::move(driver)} {}

    [[nodiscard]] const AnyDriver& driver() const noexcept { return driver_; }
    [[nodiscard]] std::chrono::nanoseconds waited() const noexcept { return waited_; }

    /// An event of the program's.
    void mark(EventRef event) { marks_.push_back(event); }
    /// What the stream has been given so far. Throws Misuse if it is being captured.
    void mark(StreamRef stream);
    /// What the whole device has been given so far.
    void mark_device();

    /// Throws NotIdle once the deadline has passed.
    void wait(const Deadline& deadline);

private:
    void wait_until(EventRef event, std::chrono::steady_clock::time_point deadline) const;

    AnyDriver driver_;
    std::vector<OwnedEvent> owned_;
    std::vector<EventRef> marks_;
    std::chrono::nanoseconds waited_{0};
};

/// Whether a stream or an event is of the driver's device. One that cannot tell says no.
[[nodiscard]] Status ask_owner(const AnyDriver& driver, StreamRef stream, bool& yes) noexcept;

[[nodiscard]] Status ask_owner(const AnyDriver& driver, EventRef event, bool& yes) noexcept;

/// The first of `drivers` that says that a stream or an event is its own; null where none does. A call that fails says
/// nothing: where nobody else says yes, the first failure is `unknown`.
template <class Mark>
[[nodiscard]] const AnyDriver* owner_among(const std::vector<AnyDriver>& drivers, const Mark& mark,
                                           Status& unknown) noexcept {
    for (const AnyDriver& driver : drivers) {
        bool yes = false;
        const Status status = ask_owner(driver, mark, yes);
        if (status.ok() && yes) return &driver;
        if (unknown.ok()) unknown = status;
    }
    return nullptr;
}

/// Waits until the work that `order` names has passed: each device's at the same time, and answers how long for which.
/// By default that is what each of `drivers` has been given so far. Streams and events that `order` names may also be
/// of `others`, and are asked about through the driver whose they are; if none says so, through the first, which is as
/// good on machines whose devices share one driver. The default stream is that of each of `drivers`. Throws NotIdle
/// once the deadline has passed, Misuse for a stream that is being captured, and what a failing driver call stands for.
std::vector<IdleWait> wait_until_idle(const std::vector<AnyDriver>& drivers, const Order& order,
                                      const Deadline& deadline, const std::vector<AnyDriver>& others = {});

/// Waits for the work that may touch what the steps take away, also on `others`, the devices that `order` may name
/// besides theirs.
template <class Step>
void wait_for_steps(std::vector<Step>& steps, const Order& order, const Deadline& deadline,
                    const std::vector<AnyDriver>& others) {
    std::vector<AnyDriver> drivers;
    for (const Step& step : steps) {
        if (!step.takes()) continue;
        if (std::find(drivers.begin(), drivers.end(), step.driver()) == drivers.end()) drivers.push_back(step.driver());
    }
    const auto named = [&](const auto& error) {
        std::vector<std::string> tags;
        for (const Step& step : steps) {
            const bool known = std::find(tags.begin(), tags.end(), step.tag()) != tags.end();
            if (step.takes() && !known) tags.push_back(step.tag());
        }
        return about_tag(only_tag(tags), std::remove_cvref_t<decltype(error)>{quoted_tags(tags) + ": " + error.what()});
    };
    std::vector<IdleWait> waits;
    try {
        waits = wait_until_idle(drivers, order, deadline, others);
    } catch (const NotIdle& error) {
        throw named(error);
    } catch (const Misuse& error) {
        throw named(error);
    }
    for (Step& step : steps) {
        if (!step.takes()) continue;
        std::chrono::nanoseconds waited{0};
        for (const IdleWait& wait : waits) {
            if (wait.driver() == step.driver()) waited = wait.waited();
        }
        step.idle(waited, order.kind() == Order::Kind::device);
    }
}

/// What failed while a row of a report was made.
struct FailedRow {
    Status status;
    std::size_t row;
};

/// Ends every step; `report` has room for a row of each. Answers the first that failed.
template <class Step>
std::optional<FailedRow> commit_rows(std::vector<Step>& steps, Report& report) {
    std::optional<FailedRow> first;
    for (Step& step : steps) {
        if (step.empty()) continue;
        Status status;
        report.add(step.commit(status));
        if (!first && !status.ok()) first = FailedRow{status, report.tags.size() - 1};
    }
    return first;
}

/// The report, or, with it attached, what the row that failed stands for.
Report end_report(Report report, const char* what, std::chrono::steady_clock::time_point start,
                  const std::optional<FailedRow>& failed);

/// Ends every step. Throws what the first that failed stands for, with the whole report attached. `report` has room for
/// a row of each.
template <class Step>
Report commit_all(std::vector<Step>& steps, const char* what, std::chrono::steady_clock::time_point start,
                  Report report) {
    const std::optional<FailedRow> failed = commit_rows(steps, report);
    return end_report(std::move(report), what, start, failed);
}

/// Enqueues the copies of all steps, in order. An error names its tag.
template <class Step>
void enqueue_all(std::vector<Step>& steps) {
    for (Step& step : steps) naming(step.tag(), [&] { step.enqueue(); });
}

/// An empty report with room for `rows`, so that no host memory is needed once something has been done.
Report report_of(std::size_t rows);

/// Runs pauses to their end. `others`: devices that `order` may name besides the steps'. If it throws before pages go,
/// nothing has changed.
Report run_pause(std::vector<PauseStep>& steps, const Order& order, const Deadline& deadline,
                 const std::vector<AnyDriver>& others = {});

/// A device that had no room, and what the driver said.
struct Refused {
    AnyDriver driver;
    OutOfMemory error;
};

/// Takes the memory of all steps, or stops at a device that has no room for its own; then some have theirs.
std::optional<Refused> create_all(std::vector<ResumeStep>& steps);

/// Throws what a resume needed on the device that had no room, and what is free there now.
[[noreturn]] void raise_no_room(const std::vector<ResumeStep>& steps, const Refused& there);

/// What a call that finds no room asks of memory that nobody uses: first what can be given back at once, then what the
/// device's work so far still holds.
class Relief {
public:
    /// `trim(wait)` answers whether anything was given back. Whether to try again.
    template <class Trim>
    bool again(Trim&& trim) {
        while (stage_ < 2) {
            if (trim(stage_++ == 1)) return true;
        }
        return false;
    }

    /// The same for who has no operation under way: once, `wait_for_others()` waits for those that are, and answers
    /// whether there were any; what they had in hand may be there then.
    template <class Trim, class Wait>
    bool again(Trim&& trim, Wait&& wait_for_others) {
        if (again(trim)) return true;
        if (waited_) return false;
        waited_ = true;
        stage_ = 0;
        return wait_for_others();
    }

private:
    int stage_ = 0;
    bool waited_ = false;
};

/// ResumeOptions::room_within: tries that find no room end when it is over, and sleep ever longer in between.
class RoomWithin {
public:
    explicit RoomWithin(const std::optional<std::chrono::nanoseconds>& time)
        : until_{time ? deadline_after(time) : Deadline{std::chrono::steady_clock::time_point::min()}} {}
    [[nodiscard]] bool over() const noexcept { return until_ && std::chrono::steady_clock::now() >= *until_; }
    void sleep() noexcept;

private:
    Deadline until_; // none: for ever
    std::chrono::microseconds pause_{200};
};

/// Throws Misuse if a resume is to bring bytes that were never saved.
void require_keeps_nothing(const ResumeOptions& options);
/// Throws Misuse, beginning with `what`, if a tag's policy keeps no bytes.
void require_keeps_bytes(const AnyPolicy& policy, const char* what, const std::string& tag);

/// An arena in shared hands, which a forked child leaves to its parent. Throws as ArenaCore's constructor.
std::shared_ptr<ArenaCore> make_arena_core(AnyDriver driver, std::string tag, AnyPolicy policy, ArenaOptions options,
                                           std::function<void(Range)> on_segment = {});

/// Takes the memory of all steps, maps it and enqueues its bytes. `relieve` as for `run_resume`. If it throws, the
/// steps are to be dropped.
template <class Relieve>
void begin_resume(std::vector<ResumeStep>& steps, Relieve&& relieve) {
    while (const std::optional<Refused> refused = create_all(steps)) {
        for (ResumeStep& step : steps) step.uncreate();
        if (!relieve(refused->driver.device())) raise_no_room(steps, *refused);
    }
    for_each_device(steps, [](ResumeStep& step) { step.map(); });
    enqueue_all(steps);
}

/// Runs resumes to their end: all memory is taken first, then all is mapped, then all is copied. Where there is no
/// room, `relieve(device)` may give some back: for as long as it answers true, taking is tried again. Bytes arrive in
/// the order of the steps, and each step ends when its own have, after `ending(its number)` if it brings any, from any
/// thread. If it throws, those that its report names are resumed; the others are as paused as before.
template <class Relieve>
Report run_resume(std::vector<ResumeStep>& steps, Relieve&& relieve, FunctionRef<void(std::size_t)> ending) {
    const auto start = std::chrono::steady_clock::now();
    Report report = report_of(steps.size());
    begin_resume(steps, relieve);
    std::mutex mutex;
    try {
        translated([&] { // the host's bad_alloc too carries the report
            for_each_device(steps, [&](ResumeStep& step) {
                if (step.empty()) return;
                step.wait();
                if (!step.ranges().empty()) ending(static_cast<std::size_t>(&step - steps.data()));
                TagReport row = step.commit(); // gives its host memory back before the next one needs more
                const std::lock_guard lock{mutex};
                report.add(std::move(row));
            });
        });
    } catch (Error& error) {
        report.elapsed = std::chrono::steady_clock::now() - start;
        error.attach(std::move(report));
        throw;
    }
    report.elapsed = std::chrono::steady_clock::now() - start;
    return report;
}

/// Runs trims to their end. `others` as for `run_pause`.
Report run_trim(std::vector<TrimStep>& steps, const Order& order, const Deadline& deadline,
                const std::vector<AnyDriver>& others = {});

} // namespace detail

} // namespace memsaver::inline v0_2

#ifndef MEMSAVER_COMPILED
#include "memsaver/arena/run_steps.ipp"
#endif
