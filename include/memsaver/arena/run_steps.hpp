// Runs the steps of one or many arenas together: all wait, then all save, then all give back. Does not know tags.
#pragma once

#include "memsaver/arena/for_each_device.hpp"
#include "memsaver/arena/host_memory_guard.hpp"
#include "memsaver/arena/idle_wait.hpp"
#include "memsaver/arena/operation_options.hpp"
#include "memsaver/arena/pause_step.hpp"
#include "memsaver/arena/resume_step.hpp"
#include "memsaver/arena/tag_names.hpp"
#include "memsaver/arena/trim_step.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace memsaver::inline v0_1 {

/// Waits for the work that may touch what the steps take away, also on `others`, the devices that `order` may name
/// besides theirs.
template <class Step, Driver D>
void wait_for_steps(std::vector<Step>& steps, const Order& order, const Deadline& deadline,
                    const std::vector<D>& others) {
    std::vector<D> drivers;
    for (const Step& step : steps) {
        if (!step.takes()) continue;
        if (std::find(drivers.begin(), drivers.end(), step.driver()) == drivers.end()) drivers.push_back(step.driver());
    }
    const auto whose = [&](const Error& error) {
        std::vector<std::string> tags;
        for (const Step& step : steps) {
            const bool known = std::find(tags.begin(), tags.end(), step.tag()) != tags.end();
            if (step.takes() && !known) tags.push_back(step.tag());
        }
        return quoted_tags(tags) + ": " + error.what();
    };
    std::vector<IdleWait<D>> waits;
    try {
        waits = wait_until_idle(drivers, order, deadline, others);
    } catch (const NotIdle& error) {
        throw NotIdle{whose(error)};
    } catch (const Misuse& error) {
        throw Misuse{whose(error)};
    }
    for (Step& step : steps) {
        if (!step.takes()) continue;
        std::chrono::nanoseconds waited{0};
        for (const IdleWait<D>& wait : waits) {
            if (wait.driver() == step.driver()) waited = wait.waited();
        }
        step.idle(waited, order.kind() == Order::Kind::device);
    }
}

/// Ends every step. Throws what the first that failed stands for, with the whole report attached. `report` has room for
/// a row of each.
template <class Step>
Report commit_all(std::vector<Step>& steps, const char* what, std::chrono::steady_clock::time_point start,
                  Report report) {
    Status first;
    std::size_t whose = 0; // row
    for (Step& step : steps) {
        if (step.empty()) continue;
        Status status;
        report.add(step.commit(status));
        if (!first.ok() || status.ok()) continue;
        first = status;
        whose = report.tags.size() - 1;
    }
    report.elapsed = std::chrono::steady_clock::now() - start;
    if (first.ok()) return report;
    try {
        const TagReport& row = report.tags[whose];
        raise(first, what, "tag \"" + row.tag + "\" on device " + std::to_string(row.device));
    } catch (Error& error) {
        error.attach(std::move(report));
        throw;
    }
}

/// An empty report with room for `rows`, so that no host memory is needed once something has been done.
inline Report report_of(std::size_t rows) {
    Report report;
    report.tags.reserve(rows);
    return report;
}

/// Runs pauses to their end. `others`: devices that `order` may name besides the steps'. If it throws before pages go,
/// nothing has changed.
template <Driver D>
Report run_pause(std::vector<PauseStep<D>>& steps, const Order& order, const Deadline& deadline,
                 const std::vector<D>& others = {}) {
    const auto start = std::chrono::steady_clock::now();
    Report report = report_of(steps.size());
    wait_for_steps(steps, order, deadline, others);
    for (PauseStep<D>& step : steps) step.enqueue();
    for_each_device(steps, [](PauseStep<D>& step) { step.wait(); });
    for_each_device(steps, [](PauseStep<D>& step) { step.release(); });
    return commit_all(steps, "give pages back", start, std::move(report));
}

/// A device that had no room, and what the driver said.
template <Driver D>
struct NoRoom {
    D driver;
    OutOfMemory error;
};

/// Takes the memory of all steps, or stops at a device that has no room for its own; then some have theirs.
template <Driver D>
std::optional<NoRoom<D>> create_all(std::vector<ResumeStep<D>>& steps) {
    std::mutex mutex;
    std::optional<NoRoom<D>> first;
    for_each_device(steps, [&](ResumeStep<D>& step) {
        {
            const std::lock_guard lock{mutex};
            if (first) return;
        }
        try {
            step.create();
        } catch (const OutOfMemory& error) {
            const std::lock_guard lock{mutex};
            if (!first) first = NoRoom<D>{step.driver(), error};
        }
    });
    return first;
}

/// Throws what a resume needed on the device that had no room, and what is free there now.
template <Driver D>
[[noreturn]] void raise_no_room(const std::vector<ResumeStep<D>>& steps, const NoRoom<D>& there) {
    std::size_t needed = 0;
    for (const ResumeStep<D>& step : steps) {
        if (step.driver() == there.driver) needed += step.needed_bytes();
    }
    DeviceMemory memory;
    (void)there.driver.memory(memory);
    throw OutOfMemory{there.error.what(), needed, memory.free_bytes, there.error.status()};
}

/// Runs resumes to their end: all memory is taken first, then all is mapped, then all is copied. Where there is no
/// room, `relieve()` may give some back: if it answers true, taking is tried once more. Bytes arrive in the order of
/// the steps, and each step ends when its own have. If it throws, those that its report names are resumed; the others
/// are as paused as before.
template <Driver D, class Relieve>
Report run_resume(std::vector<ResumeStep<D>>& steps, Relieve&& relieve) {
    const auto start = std::chrono::steady_clock::now();
    Report report = report_of(steps.size());
    for (bool again = true;;) {
        const std::optional<NoRoom<D>> refused = create_all(steps);
        if (!refused) break;
        for (ResumeStep<D>& step : steps) step.uncreate();
        if (!std::exchange(again, false) || !relieve()) raise_no_room(steps, *refused);
    }
    for_each_device(steps, [](ResumeStep<D>& step) { step.map(); });
    for (ResumeStep<D>& step : steps) step.enqueue();
    std::mutex mutex;
    try {
        guard_host_memory([&] {
            for_each_device(steps, [&](ResumeStep<D>& step) {
                if (step.empty()) return;
                step.wait();
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
template <Driver D>
Report run_trim(std::vector<TrimStep<D>>& steps, const Order& order, const Deadline& deadline,
                const std::vector<D>& others = {}) {
    const auto start = std::chrono::steady_clock::now();
    Report report = report_of(steps.size());
    wait_for_steps(steps, order, deadline, others);
    for_each_device(steps, [](TrimStep<D>& step) { step.release(); });
    return commit_all(steps, "give unused pages back", start, std::move(report));
}

} // namespace memsaver::inline v0_1
