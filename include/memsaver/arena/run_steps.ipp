// Definitions of run_steps.hpp.
#pragma once

#include "memsaver/arena/run_steps.hpp"
#include "memsaver/backup/crew.hpp"
#include "memsaver/core/lists.hpp"
#include "memsaver/driver/streams.hpp"

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

MEMSAVER_INLINE void run_by_device(std::size_t count, FunctionRef<const AnyDriver&(std::size_t)> driver_of,
                                   FunctionRef<void(std::size_t)> act) {
    std::vector<int> device_of;
    std::vector<std::size_t> firsts;
    device_of.reserve(count);
    for (std::size_t i = 0; i < count; ++i) {
        const int device = driver_of(i).device();
        if (!is_in(device_of, device)) firsts.push_back(i);
        device_of.push_back(device);
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
    {
        FixedList<Crew> threads{firsts.size()}; // joined at the end of the scope
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
    }
    if (failure) std::rethrow_exception(failure);
}

MEMSAVER_INLINE void IdleWait::mark(StreamRef stream) {
    if (being_captured(driver_, stream)) misuse({"after(stream): cannot wait for a stream that is being captured"});
    check(owned_.emplace_back().open(driver_, stream), "open an event to wait for a stream's work");
    check(driver_.record(owned_.back().get(), stream), "record an event");
    mark(owned_.back().get());
}

MEMSAVER_INLINE void IdleWait::mark_device() {
    check(owned_.emplace_back().open(driver_), "open an event to wait for the device's work");
    check(driver_.record_device(owned_.back().get()),
          "wait for the device's work (if a stream capture is open, pass the streams: .order = after(...))");
    mark(owned_.back().get());
}

MEMSAVER_INLINE void IdleWait::wait(const Deadline& deadline) {
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
            not_idle(
                {"the timeout expired while device ", in_digits(driver_.device()), " was busy; nothing has changed"});
    }
    waited_ = std::chrono::steady_clock::now() - start;
}

MEMSAVER_INLINE Status ask_owner(const AnyDriver& driver, StreamRef stream, bool& yes) noexcept {
    const Status status = driver.owns_stream(stream, yes);
    return status.kind == StatusKind::unsupported ? Status{} : status;
}

MEMSAVER_INLINE Status ask_owner(const AnyDriver& driver, EventRef event, bool& yes) noexcept {
    const Status status = driver.owns_event(event, yes);
    return status.kind == StatusKind::unsupported ? Status{} : status;
}

MEMSAVER_INLINE const AnyDriver& without_owner(const std::vector<AnyDriver>& drivers, const Status& unknown) {
    check(unknown, "query the owner of a stream or event");
    return drivers.front();
}

MEMSAVER_INLINE std::vector<IdleWait> wait_until_idle(const std::vector<AnyDriver>& drivers, const Order& order,
                                                      const Deadline& deadline, const std::vector<AnyDriver>& others) {
    std::vector<IdleWait> waits;
    if (order.kind() == Order::Kind::idle || drivers.empty()) return waits;
    const auto wait_on = [&](const AnyDriver& driver) -> IdleWait& {
        for (IdleWait& wait : waits) {
            if (wait.driver() == driver) return wait;
        }
        return waits.emplace_back(driver);
    };
    const auto whose = [&](const auto& mark) -> const AnyDriver& {
        return drivers.size() + others.size() == 1 ? drivers.front() : owner_among(drivers, others, mark);
    };
    if (order.kind() == Order::Kind::device) {
        for (const AnyDriver& driver : drivers) wait_on(driver).mark_device();
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
    return waits;
}

/// Throws NotIdle and Misuse that are being handled again, with the tags of the steps; other exceptions as they are.
MEMSAVER_INLINE void rethrow_not_idle(const std::vector<ArenaCore::Step*>& steps) {
    std::vector<std::string> tags;
    for (const ArenaCore::Step* const step : steps) {
        if (!is_in(tags, step->tag())) tags.push_back(step->tag());
    }
    const auto text = [&](const Error& error) { return text_of({quoted_tags(tags), ": ", error.what()}); };
    try {
        throw;
    } catch (const NotIdle& error) {
        throw about_tag(only_tag(tags), NotIdle{text(error)});
    } catch (const Misuse& error) {
        misuse_of(only_tag(tags), {text(error)});
    }
}

MEMSAVER_INLINE void wait_for_work(const std::vector<ArenaCore::Step*>& steps, const Order& order,
                                   const Deadline& deadline, const std::vector<AnyDriver>& others) {
    std::vector<AnyDriver> drivers;
    for (const ArenaCore::Step* const step : steps) {
        if (!is_in(drivers, step->driver())) drivers.push_back(step->driver());
    }
    std::vector<IdleWait> waits;
    try {
        waits = wait_until_idle(drivers, order, deadline, others);
    } catch (const Error&) {
        rethrow_not_idle(steps);
    }
    for (ArenaCore::Step* const step : steps) {
        std::chrono::nanoseconds waited{0};
        for (const IdleWait& wait : waits) {
            if (wait.driver() == step->driver()) waited = wait.waited();
        }
        step->idle(waited, order.kind() == Order::Kind::device);
    }
}

MEMSAVER_INLINE Report report_of(std::size_t rows) {
    Report report;
    report.tags.reserve(rows);
    return report;
}

MEMSAVER_INLINE Report end_report(Report report, const char* what, std::chrono::steady_clock::time_point start,
                                  const std::optional<FailedRow>& failed) {
    report.elapsed = std::chrono::steady_clock::now() - start;
    if (!failed) return report;
    const TagReport& row = report.tags[failed->row];
    try {
        raise_of(failed->status, what, {"tag ", in_quotes(row.tag), " on device ", in_digits(row.device)});
    } catch (Error& error) {
        name_tag(error, row.tag);
        error.attach(std::move(report));
        throw;
    }
}

MEMSAVER_INLINE Report run_pause(FixedList<PauseStep>& steps, const Order& order, const Deadline& deadline,
                                 const std::vector<AnyDriver>& others) {
    const auto start = std::chrono::steady_clock::now();
    Report report = report_of(steps.size());
    wait_for_steps(steps, order, deadline, others);
    say(steps, Turn::Stage::moves);
    enqueue_all(steps);
    for_each_device(steps, [](PauseStep& step) { step.wait(); });
    for_each_device(steps, [](PauseStep& step) { step.release(); });
    return commit_all(steps, "release pages", start, std::move(report));
}

MEMSAVER_INLINE std::optional<Refused> create_all(FixedList<ResumeStep>& steps) {
    std::mutex mutex;
    std::optional<Refused> first;
    for_each_device(steps, [&](ResumeStep& step) {
        {
            const std::lock_guard lock{mutex};
            if (first) return;
        }
        try {
            step.create();
        } catch (OutOfMemory& error) {
            name_tag(error, step.tag());
            const std::lock_guard lock{mutex};
            if (!first) first = Refused{step.driver(), error};
        }
    });
    for (ResumeStep& step : steps) {
        if (first) step.uncreate();
    }
    return first;
}

MEMSAVER_INLINE void raise_no_room(const FixedList<ResumeStep>& steps, const Refused& there) {
    std::size_t needed = 0;
    for (const ResumeStep& step : steps) {
        if (step.driver() == there.driver) needed += step.needed_bytes();
    }
    DeviceMemory memory;
    (void)there.driver.memory(memory);
    std::string text = there.error.what();
    if (steps.size() > 1) {
        text += text_of(
            {"; the resume needs ", in_bytes(needed), " there in total, ", in_bytes(memory.free_bytes), " were free"});
    }
    OutOfMemory error{text, needed, memory.free_bytes, there.error.status()};
    name_tag(error, there.error.tag());
    error.attach_device(there.driver.device());
    throw error;
}

MEMSAVER_INLINE void begin_resume(FixedList<ResumeStep>& steps) {
    if (const std::optional<Refused> refused = create_all(steps)) raise_no_room(steps, *refused);
    say(steps, Turn::Stage::moves);
    for_each_device(steps, [](ResumeStep& step) { step.map(); });
    enqueue_all(steps);
}

MEMSAVER_INLINE Report run_resume(FixedList<ResumeStep>& steps) {
    const auto start = std::chrono::steady_clock::now();
    Report report = report_of(steps.size());
    begin_resume(steps);
    std::mutex mutex;
    try {
        translated([&] { // so that a std::bad_alloc carries the report too
            for_each_device(steps, [&](ResumeStep& step) {
                if (step.empty()) return;
                step.wait();
                TagReport row = step.commit(); // frees its host memory before the next step needs more
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

MEMSAVER_INLINE void RoomWithin::sleep() noexcept {
    const auto now = std::chrono::steady_clock::now();
    if (until_ && *until_ - now < pause_) return std::this_thread::sleep_until(*until_);
    std::this_thread::sleep_for(pause_);
    pause_ = std::min(2 * pause_, std::chrono::microseconds{20'000});
}

MEMSAVER_INLINE void require_keeps_nothing(const ResumeOptions& options) {
    if (!options.bytes || !options.bytes->keeps_bytes()) return;
    misuse({"resume with .bytes of the policy ", in_quotes(options.bytes->name()),
            ": it has not saved these bytes, so it cannot restore them; pass a policy that keeps no bytes, such "
            "as Discard{} or Zero{}"});
}

MEMSAVER_INLINE void require_keeps_bytes(const AnyPolicy& policy, const char* what, const std::string& tag) {
    if (policy.keeps_bytes()) return;
    misuse_of(tag,
              {what, ": tag ", in_quotes(tag), " has the policy ", in_quotes(policy.name()), ", which keeps no bytes"});
}

MEMSAVER_INLINE std::shared_ptr<ArenaCore>
make_arena_core(AnyDriver driver, std::string tag, AnyPolicy policy, ArenaOptions options,
                std::function<void(Range, std::shared_ptr<ArenaCore>)> on_segment) {
    auto core = std::make_unique<ArenaCore>(std::move(driver), std::move(tag), std::move(policy), std::move(options),
                                            std::move(on_segment));
    return {core.release(), [](ArenaCore* arena) {
                if (!arena->forked()) delete arena;
            }};
}

MEMSAVER_INLINE Report run_trim(FixedList<TrimStep>& steps, const Order& order, const Deadline& deadline,
                                const std::vector<AnyDriver>& others) {
    const auto start = std::chrono::steady_clock::now();
    Report report = report_of(steps.size());
    wait_for_steps(steps, order, deadline, others);
    say(steps, Turn::Stage::moves);
    for_each_device(steps, [](TrimStep& step) { step.release(); });
    return commit_all(steps, "release unused pages", start, std::move(report));
}

} // namespace detail

} // namespace memsaver::inline v0_3
