// Runs the steps of one or many arenas together: all wait, then all save, then all give back. Does not know tags.
#pragma once

#include "memsaver/arena/idle_wait.hpp"
#include "memsaver/arena/operation_options.hpp"
#include "memsaver/arena/pause_step.hpp"
#include "memsaver/arena/resume_step.hpp"
#include "memsaver/arena/trim_step.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace memsaver::inline v0_1 {

/// Calls `act(step)` for every step; those of different devices at the same time, those of one device in order. All
/// have ended when it returns; then the first exception is thrown again.
template <class Step, class Act>
void for_each_device(std::vector<Step>& steps, Act&& act) {
    std::vector<int> devices;
    std::vector<int> device_of; // asked before anything runs: a step that `act` ends on one thread is none to ask
    for (const Step& step : steps) {
        device_of.push_back(step.driver().device());
        if (std::find(devices.begin(), devices.end(), device_of.back()) == devices.end()) {
            devices.push_back(device_of.back());
        }
    }
    std::mutex mutex;
    std::exception_ptr first;
    const auto run = [&](int device) {
        for (std::size_t i = 0; i < steps.size(); ++i) {
            if (device_of[i] != device) continue;
            try {
                act(steps[i]);
            } catch (...) {
                const std::lock_guard lock{mutex};
                if (!first) first = std::current_exception();
                return;
            }
        }
    };
    std::vector<std::thread> threads;
    threads.reserve(devices.size());
    for (std::size_t i = 1; i < devices.size(); ++i) {
        try {
            threads.emplace_back(run, devices[i]);
        } catch (const std::system_error&) { // no thread to be had: one after the other
            run(devices[i]);
        }
    }
    if (!devices.empty()) run(devices.front());
    for (std::thread& thread : threads) thread.join();
    if (first) std::rethrow_exception(first);
}

template <class Step>
void wait_for_steps(std::vector<Step>& steps, const Order& order, const Deadline& deadline) {
    using D = std::remove_cvref_t<decltype(steps.front().driver())>;
    const auto start = std::chrono::steady_clock::now();
    std::vector<D> drivers;
    for (const Step& step : steps) {
        if (step.empty()) continue; // nothing to take away, so nothing to wait for
        if (std::find(drivers.begin(), drivers.end(), step.driver()) == drivers.end()) drivers.push_back(step.driver());
    }
    wait_until_idle(drivers, order, deadline);
    const auto waited = std::chrono::steady_clock::now() - start;
    for (Step& step : steps) {
        if (!step.empty()) step.idle(waited, order.kind() == Order::Kind::device);
    }
}

/// Ends every step. Throws what the first that failed stands for, with the whole report attached.
template <class Step>
Report commit_all(std::vector<Step>& steps, const char* what, std::chrono::steady_clock::time_point start) {
    Report report;
    Status first;
    for (Step& step : steps) {
        if (step.empty()) continue;
        Status status;
        report.add(step.commit(status));
        if (first.ok()) first = status;
    }
    report.elapsed = std::chrono::steady_clock::now() - start;
    if (first.ok()) return report;
    try {
        raise(first, what);
    } catch (Error& error) {
        error.attach(std::move(report));
        throw;
    }
}

/// Runs pauses to their end. If it throws before pages go, nothing has changed.
template <Driver D>
Report run_pause(std::vector<PauseStep<D>>& steps, const Order& order, const Deadline& deadline) {
    const auto start = std::chrono::steady_clock::now();
    wait_for_steps(steps, order, deadline);
    for (PauseStep<D>& step : steps) step.enqueue();
    for_each_device(steps, [](PauseStep<D>& step) { step.wait(); });
    for_each_device(steps, [](PauseStep<D>& step) { step.release(); });
    return commit_all(steps, "give pages back", start);
}

/// Runs resumes to their end: all memory is taken first, then all is mapped, then all is copied. Where there is no
/// room, `relieve()` may give some back: if it answers true, taking is tried once more. Bytes arrive in the order of
/// the steps, and each step ends when its own have. If it throws, those that its report names are resumed; the others
/// are as paused as before.
template <Driver D, class Relieve>
Report run_resume(std::vector<ResumeStep<D>>& steps, Relieve&& relieve) {
    const auto start = std::chrono::steady_clock::now();
    std::size_t needed = 0;
    for (const ResumeStep<D>& step : steps) needed += step.needed_bytes();
    for (bool again = true;;) {
        try {
            for_each_device(steps, [](ResumeStep<D>& step) { step.create(); });
            break;
        } catch (const OutOfMemory& error) {
            for (ResumeStep<D>& step : steps) step.uncreate();
            if (!std::exchange(again, false) || !relieve()) {
                DeviceMemory memory; // now that the steps that had theirs have given it back
                (void)steps.front().driver().memory(memory);
                throw OutOfMemory{error.what(), needed, memory.free_bytes, error.status()};
            }
        }
    }
    for_each_device(steps, [](ResumeStep<D>& step) { step.map(); });
    for (ResumeStep<D>& step : steps) step.enqueue();
    Report report;
    std::mutex mutex;
    try {
        for_each_device(steps, [&](ResumeStep<D>& step) {
            if (step.empty()) return;
            step.wait();
            TagReport row = step.commit(); // gives its host memory back before the next one needs more
            const std::lock_guard lock{mutex};
            report.add(std::move(row));
        });
    } catch (Error& error) {
        report.elapsed = std::chrono::steady_clock::now() - start;
        error.attach(std::move(report));
        throw;
    }
    report.elapsed = std::chrono::steady_clock::now() - start;
    return report;
}

/// Runs trims to their end.
template <Driver D>
Report run_trim(std::vector<TrimStep<D>>& steps, const Order& order, const Deadline& deadline) {
    const auto start = std::chrono::steady_clock::now();
    wait_for_steps(steps, order, deadline);
    for_each_device(steps, [](TrimStep<D>& step) { step.release(); });
    return commit_all(steps, "give unused pages back", start);
}

} // namespace memsaver::inline v0_1
