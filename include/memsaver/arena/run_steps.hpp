// Runs the steps of one or several arenas together: all wait, then all save, then all release. Knows nothing about
// tags.
#pragma once

#include "memsaver/arena/operations.hpp"
#include "memsaver/backup/crew.hpp"
#include "memsaver/core/function_ref.hpp"
#include "memsaver/core/lists.hpp"
#include "memsaver/core/pointers.hpp"
#include "memsaver/core/tags.hpp"
#include "memsaver/core/vector.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace memsaver::inline v0_3::detail {

/// Calls `act(i)` for 0 .. count-1: concurrently for different devices, in order for those whose `driver_of(i)` is of
/// one device. The first device's calls run on the calling thread, those of each other device on a thread of its own
/// near that device, or on the calling thread if no thread can be started. If `act` throws, the remaining calls for
/// that device are skipped. Returns after all have ended, then rethrows the first exception. Without host memory for
/// this, all are treated as of one device. `driver_of(i)` is not called any more once `act(i)` has been.
inline void run_by_device(std::size_t count, FunctionRef<const AnyDriver&(std::size_t)> driver_of,
                          FunctionRef<void(std::size_t)> act) {
    std::vector<int> device_of;
    Vector<std::size_t> firsts;
    Vector<Crew> threads;
    try {
        device_of.reserve(count);
        for (std::size_t i = 0; i < count; ++i) {
            const int device = driver_of(i).device();
            if (!is_in(device_of, device)) firsts.push_back(i);
            device_of.push_back(device);
        }
        threads.reserve(firsts.size());
    } catch (const std::bad_alloc&) {
        for (std::size_t i = 0; i < count; ++i) act(i);
        return;
    }
    std::mutex mutex;
    std::exception_ptr failure;
    const auto run = [&](std::size_t first) noexcept {
        for (std::size_t i = first; i < device_of.size(); ++i) {
            if (device_of[i] != device_of[first]) continue;
            try {
                act(i);
            } catch (...) {
                const std::lock_guard lock{mutex};
                if (!failure) failure = std::current_exception();
                return;
            }
        }
    };
    for (std::size_t k = 1; k < firsts.size(); ++k) {
        const std::size_t first = firsts[k];
        try {
            threads.emplace_back(CrewOptions{1, {}, driver_of(first).numa_node()}).start(1, [&run, first] {
                run(first);
            });
        } catch (...) { // no host memory for a thread; nothing of this device has run
            run(first);
        }
    }
    if (!firsts.empty()) run(firsts.front());
    threads.clear(); // joins them
    if (failure) std::rethrow_exception(failure);
}

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
    void mark(StreamRef stream) {
        if (being_captured(driver_, stream)) misuse({"after(stream): cannot wait for a stream that is being captured"});
        check(owned_.emplace_back().open(driver_, stream), "open an event to wait for a stream's work");
        check(driver_.record(owned_.back().get(), stream), "record an event");
        mark(owned_.back().get());
    }
    /// Adds all work submitted to the device so far.
    void mark_device() {
        check(owned_.emplace_back().open(driver_), "open an event to wait for the device's work");
        check(driver_.record_device(owned_.back().get()),
              "wait for the device's work (if a stream capture is open, pass the streams: .order = after(...))");
        mark(owned_.back().get());
    }

    /// Throws NotIdle once the deadline has passed.
    void wait(const Deadline& deadline) {
        const auto start = std::chrono::steady_clock::now();
        for (const EventRef event : marks_) {
            if (!deadline) {
                check(driver_.wait(event), "wait for an event");
                continue;
            }
            const bool passed = poll_until(deadline, [&] {
                bool yes = false;
                check(driver_.query(event, yes), "query an event");
                return yes;
            });
            if (!passed)
                not_idle({"the timeout expired while device ", in_digits(driver_.device()),
                          " was busy; nothing has changed"});
        }
        waited_ = std::chrono::steady_clock::now() - start;
    }

private:
    AnyDriver driver_;
    Vector<OwnedEvent> owned_;
    std::vector<EventRef> marks_;
    std::chrono::nanoseconds waited_{0};
};

/// Returns the first of `drivers` and of `others` that owns a stream or an event; if none does, the first of `drivers`,
/// unless a query failed: then throws its error.
template <class Mark>
[[nodiscard]] const AnyDriver& owner_among(const Vector<AnyDriver>& drivers, const Vector<AnyDriver>& others,
                                           const Mark& mark) {
    Status unknown;
    for (const Vector<AnyDriver>* const some : {&drivers, &others}) {
        for (const AnyDriver& driver : *some) {
            bool yes = false;
            Status status;
            if constexpr (std::same_as<Mark, StreamRef>) {
                status = driver.owns_stream(mark, yes);
            } else {
                status = driver.owns_event(mark, yes);
            }
            if (status.ok() && yes) return driver;
            if (unknown.ok() && status.kind != StatusKind::unsupported) unknown = status; // that driver cannot tell
        }
    }
    check(unknown, "query the owner of a stream or event");
    return drivers.front();
}

/// Throws NotIdle and Misuse that are being handled again, with the tags of the steps; other exceptions as they are.
inline void rethrow_not_idle(const Vector<ArenaCore::Step*>& steps) {
    std::vector<std::string> tags;
    const auto text = [&](const Error& error) {
        for (const ArenaCore::Step* const step : steps) {
            if (!is_in(tags, step->tag())) tags.push_back(step->tag());
        }
        return text_of({quoted_tags(tags), ": ", error.what()});
    };
    try {
        throw;
    } catch (const NotIdle& error) {
        const NotIdle about{text(error)};
        throw about_tag(only_tag(tags), about);
    } catch (const Misuse& error) {
        const std::string about = text(error);
        misuse_of(only_tag(tags), {about});
    }
}

/// Waits for the work that may touch memory that these steps release, on all their devices concurrently. By default,
/// that is everything submitted to the devices so far. Streams and events that `order` names may also belong to
/// `others`, and are queried through the driver that owns them; if no driver claims one, through that of the first
/// step, which is correct on machines whose devices share one driver. The default stream means that of each of the
/// steps' devices. Throws NotIdle once the deadline has passed, Misuse for a stream that is being captured, and the
/// error of a failing driver call.
inline void wait_for_work(const Vector<ArenaCore::Step*>& steps, const Order& order, const Deadline& deadline,
                          const Vector<AnyDriver>& others) {
    if (order.kind() == Order::Kind::idle || steps.empty()) return;
    Vector<AnyDriver> drivers;
    for (const ArenaCore::Step* const step : steps) {
        if (!is_in(drivers, step->driver())) drivers.push_back(step->driver());
    }
    Vector<IdleWait> waits;
    const auto wait_on = [&](const AnyDriver& driver) -> IdleWait& {
        IdleWait* const known = first_in(waits, [&](const IdleWait& wait) { return wait.driver() == driver; });
        return known != nullptr ? *known : waits.emplace_back(driver);
    };
    const auto whose = [&](const auto& mark) -> const AnyDriver& {
        return drivers.size() + others.size() == 1 ? drivers.front() : owner_among(drivers, others, mark);
    };
    const bool whole_device = order.kind() == Order::Kind::device;
    try {
        for (const AnyDriver& driver : drivers) {
            if (whole_device) wait_on(driver).mark_device();
        }
        for (const EventRef event : order.events()) wait_on(whose(event)).mark(event);
        for (const StreamRef stream : order.streams()) {
            if (stream != StreamRef{}) {
                wait_on(whose(stream)).mark(stream);
                continue;
            }
            for (const AnyDriver& driver : drivers) wait_on(driver).mark(stream);
        }
        for_each_device(waits, [&](IdleWait& wait) { wait.wait(deadline); });
    } catch (const Error&) {
        rethrow_not_idle(steps);
    }
    for (ArenaCore::Step* const step : steps) {
        const IdleWait* const wait =
            first_in(waits, [&](const IdleWait& each) { return each.driver() == step->driver(); });
        step->idle(wait != nullptr ? wait->waited() : std::chrono::nanoseconds{0}, whole_device);
    }
}

/// The same for those of the steps that release memory.
template <class Step>
void wait_for_steps(Vector<Step>& steps, const Order& order, const Deadline& deadline,
                    const Vector<AnyDriver>& others) {
    Vector<ArenaCore::Step*> taking;
    for (Step& step : steps) {
        if (step.takes()) taking.push_back(&step);
    }
    wait_for_work(taking, order, deadline, others);
}

/// Says what the operations wait for from now on.
template <class Step>
void say(Vector<Step>& steps, Turn::Stage stage) noexcept {
    for (Step& step : steps) step.core().now(stage);
}

/// A failure, and the index of its row in the report.
struct FailedRow {
    Status status;
    std::size_t row;
};

/// Commits every step; `report` has capacity for a row of each. Returns the first failure.
template <class Step>
std::optional<FailedRow> commit_rows(Vector<Step>& steps, Report& report) {
    std::optional<FailedRow> first;
    for (Step& step : steps) {
        if (step.empty()) continue;
        Status status;
        report.add(step.commit(status));
        if (!first && !status.ok()) first = FailedRow{status, report.tags.size() - 1};
    }
    return first;
}

/// Calls `act()`, whose error gets the report of what was done.
inline void reporting(Report& report, std::chrono::steady_clock::time_point start, FunctionRef<void()> act) {
    try {
        translated(act); // so that a std::bad_alloc carries the report too
    } catch (Error& error) {
        report.elapsed = std::chrono::steady_clock::now() - start;
        error.attach(std::move(report));
        throw;
    }
}

/// Returns the report, or throws the error of the failed row with the report attached.
inline Report end_report(Report report, const char* what, std::chrono::steady_clock::time_point start,
                         const std::optional<FailedRow>& failed) {
    reporting(report, start, [&] {
        if (!failed) return;
        const TagReport& row = report.tags[failed->row];
        naming(row.tag, [&] {
            raise_of(failed->status, what, {"tag ", in_quotes(row.tag), " on device ", in_digits(row.device)});
        });
    });
    report.elapsed = std::chrono::steady_clock::now() - start;
    return report;
}

/// Enqueues the copies of all steps, in order. An error names its tag.
template <class Step>
void enqueue_all(Vector<Step>& steps) {
    for (Step& step : steps) naming(step.tag(), [&] { step.enqueue(); });
}

/// Returns an empty report with capacity for `rows`, so that no host memory is needed after something has been done.
inline Report report_of(std::size_t rows) {
    Report report;
    report.tags.reserve(rows);
    return report;
}

/// Runs pauses or trims, whose work has been waited for, to their end; `report` has capacity for a row of each. If
/// pauses throw before pages are released, nothing has changed.
template <class Step>
Report end_release(Vector<Step>& steps, Report report, std::chrono::steady_clock::time_point start) {
    constexpr bool pauses = std::same_as<Step, PauseStep>;
    say(steps, Turn::Stage::moves);
    if constexpr (pauses) {
        enqueue_all(steps);
        for_each_device(steps, [](Step& step) { step.wait(); });
    }
    for_each_device(steps, [](Step& step) { step.release(); });
    const std::optional<FailedRow> failed = commit_rows(steps, report);
    return end_report(std::move(report), pauses ? "release pages" : "release unused pages", start, failed);
}

/// Runs pauses or trims. `others`: devices that `order` may name in addition to those of the steps.
template <class Step>
Report run_release(Vector<Step>& steps, const Order& order, const Deadline& deadline,
                   const Vector<AnyDriver>& others = {}) {
    const auto start = std::chrono::steady_clock::now();
    Report report = report_of(steps.size());
    wait_for_steps(steps, order, deadline, others);
    return end_release(steps, std::move(report), start);
}

/// Creates the memory of all steps, or of none if devices are out of memory: the first step that is refused on each has
/// the error then. Returns whether all was created.
inline bool create_all(Vector<ResumeStep>& steps) {
    std::atomic<bool> refused{false}; // by any device
    for (ResumeStep& step : steps) step.refused.reset();
    for_each_device(steps, [&](ResumeStep& step) {
        const auto refuses = [&](const ResumeStep& each) { return each.driver() == step.driver() && each.refused; };
        if (refused && any_in(steps, refuses)) return;
        try {
            step.create();
        } catch (OutOfMemory& error) {
            name_tag(error, step.tag());
            step.refused.emplace(error);
            refused = true;
        }
    });
    if (!refused) return true;
    for (ResumeStep& step : steps) step.uncreate();
    return false;
}

/// Throws an error with the bytes that a resume needed on the device that refused a step, and its free bytes now.
[[noreturn]] inline void raise_no_room(const Vector<ResumeStep>& steps, const ResumeStep& there) {
    std::size_t needed = 0;
    for (const ResumeStep& step : steps) {
        if (step.driver() == there.driver()) needed += step.needed_bytes();
    }
    DeviceMemory memory;
    (void)there.driver().memory(memory);
    std::string text = there.refused->what();
    if (steps.size() > 1) {
        text += text_of(
            {"; the resume needs ", in_bytes(needed), " there in total, ", in_bytes(memory.free_bytes), " were free"});
    }
    OutOfMemory error{text, needed, memory.free_bytes, there.refused->status()};
    name_tag(error, there.refused->tag());
    error.attach_device(there.driver().device());
    throw error;
}

/// Throws Misuse if a resume is to restore bytes that were never saved.
inline void require_keeps_nothing(const std::optional<AnyPolicy>& bytes) {
    if (!bytes || !bytes->keeps_bytes()) return;
    misuse({"resume with .bytes of the policy ", in_quotes(bytes->name()),
            ": it has not saved these bytes, so it cannot restore them; pass a policy that keeps no bytes, such "
            "as Discard{} or Zero{}"});
}
/// Creates the memory of all steps, maps it and enqueues its copies. If it throws, the steps must be dropped.
inline void begin_resume(Vector<ResumeStep>& steps) {
    if (!create_all(steps))
        raise_no_room(steps, *first_in(steps, [](const ResumeStep& step) { return step.refused.has_value(); }));
    say(steps, Turn::Stage::moves);
    for_each_device(steps, [](ResumeStep& step) { step.map(); });
    enqueue_all(steps);
}

/// Waits for the bytes of each step, commits it and adds its row; `report` has capacity for a row of each.
inline void end_resume(Vector<ResumeStep>& steps, Report& report) {
    std::mutex mutex;
    for_each_device(steps, [&](ResumeStep& step) {
        if (step.empty()) return;
        step.wait();
        TagReport row = step.commit(); // frees its host memory before the next step needs more
        const std::lock_guard lock{mutex};
        report.add(std::move(row));
    });
}

/// Runs resumes to their end: all memory is created first, then all is mapped, then all bytes are restored. Bytes
/// arrive in the order of the steps. Each step is committed when its own bytes have arrived. If it throws, the steps
/// named in its report are resumed; the others are paused as before.
inline Report run_resume(Vector<ResumeStep>& steps) {
    const auto start = std::chrono::steady_clock::now();
    Report report = report_of(steps.size());
    begin_resume(steps);
    reporting(report, start, [&] { end_resume(steps, report); });
    report.elapsed = std::chrono::steady_clock::now() - start;
    return report;
}

} // namespace memsaver::inline v0_3::detail
