// Records device memory over time as lines of JSON, which plot.py draws. Independent of the meaning of the phases.
#pragma once

#include "device_meter.hpp"
#include "json.hpp"

#include <chrono>
#include <condition_variable>
#include <fstream>
#include <mutex>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>

namespace engine {

/// Samples every few milliseconds on its own thread, and at each change of phase. Writes a line if something changed:
/// {"t": seconds, "used": bytes on the whole device, "phase": "..."}. A no-op without a file.
class MemoryLog {
public:
    using Clock = std::chrono::steady_clock;

    MemoryLog(DeviceMeter& meter, const std::string& file, const Json& about) : meter_{meter} {
        if (file.empty()) return;
        out_.open(file, std::ios::trunc);
        if (!out_) throw std::runtime_error{"cannot write " + file};
        out_ << about.text() << '\n';
        sampler_ = std::jthread{[this](const std::stop_token& stop) { run(stop); }};
    }

    void phase(std::string name) {
        const std::lock_guard lock{mutex_};
        if (!out_.is_open()) return;
        sample(); // the last moment of the previous phase
        phase_ = std::move(name);
        sample();
    }

    /// Suspends sampling as long as it lives, because samples would disturb timings.
    class [[nodiscard]] Quiet {
    public:
        explicit Quiet(MemoryLog& log) : log_{log} { log_.set_quiet(true); }
        Quiet(const Quiet&) = delete;
        Quiet& operator=(const Quiet&) = delete;
        ~Quiet() { log_.set_quiet(false); }

    private:
        MemoryLog& log_;
    };
    Quiet quiet() { return Quiet{*this}; }

private:
    void run(const std::stop_token& stop) {
        std::unique_lock lock{mutex_};
        while (!stop.stop_requested()) {
            try {
                if (!quiet_) sample();
            } catch (const std::exception&) { // the watching process has ended; the next measurement reports it
                return;
            }
            due_.wait_for(lock, stop, std::chrono::milliseconds{10}, [] { return false; });
        }
    }
    void sample() {
        const auto used = meter_.used_bytes();
        const auto now = Clock::now();
        const bool same = used == last_used_ && phase_ == last_phase_;
        if (same && now - last_time_ < std::chrono::seconds{1}) {
            pending_ = now;
            return;
        }
        if (pending_ > last_time_) write(pending_, last_used_, last_phase_); // unchanged until here
        write(now, used, phase_);
        last_used_ = used;
        last_phase_ = phase_;
        last_time_ = now;
    }
    void write(Clock::time_point when, unsigned long long used, const std::string& phase) {
        const double seconds = std::chrono::duration<double>(when - start_).count();
        out_ << Json{}.put("t", seconds).put("used", used).put("phase", phase).text() << '\n';
    }
    void set_quiet(bool quiet) {
        const std::lock_guard lock{mutex_};
        quiet_ = quiet;
    }

    DeviceMeter& meter_;
    std::mutex mutex_;
    std::condition_variable_any due_;
    std::ofstream out_;
    std::string phase_ = "start";
    std::string last_phase_;
    unsigned long long last_used_ = 0;
    Clock::time_point start_ = Clock::now();
    Clock::time_point last_time_{};
    Clock::time_point pending_{};
    bool quiet_ = false;
    std::jthread sampler_; // joins before the other members are destroyed
};

} // namespace engine
