// State shared by all parts of a run: the engine, the meter, the log and the results.
#pragma once

#include "device_meter.hpp"
#include "engine.hpp"
#include "json.hpp"
#include "memory_log.hpp"
#include "release_table.hpp"
#include "run_options.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

namespace engine {

using Clock = std::chrono::steady_clock;

inline double milliseconds_since(Clock::time_point start) {
    return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}
inline double median(std::vector<double> values) {
    if (values.empty()) return 0;
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

/// A hash of tokens, for comparison with another run.
class Digest {
public:
    void add(const std::vector<Tokens>& texts) {
        for (const Tokens& text : texts) {
            for (const std::int32_t token : text)
                value_ = (value_ ^ static_cast<std::uint64_t>(static_cast<std::uint32_t>(token))) * 0x100000001b3ull;
        }
    }
    [[nodiscard]] std::string text() const {
        char text[24];
        std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value_));
        return text;
    }

private:
    std::uint64_t value_ = 0xcbf29ce484222325ull;
};

struct Session {
    const RunOptions& options;
    DeviceMeter& meter;
    MemoryLog& log;
    Json results{};
    std::vector<Json> goals{};
    bool good = true;

    /// Returns the bytes in use on the whole device, measured from outside, once the value is stable.
    [[nodiscard]] Bytes used() {
        auto last = meter.used_bytes();
        for (int i = 0; i < 100; ++i) {
            std::this_thread::sleep_for(std::chrono::milliseconds{2});
            const auto now = meter.used_bytes();
            if (now == last) break;
            last = now;
        }
        return static_cast<Bytes>(last);
    }

    /// Records a condition that must hold for any model size; it determines the exit code.
    void must(const std::string& what, bool holds) {
        std::printf("  %s: %s\n", what.c_str(), holds ? "yes" : "NO");
        goals.push_back(Json{}.put("goal", what).put("must", true).put("reached", holds));
        good &= holds;
    }
    /// Records a goal for large engines; it is only reported.
    void aim(const std::string& what, double value, double limit, bool at_most, const char* unit) {
        const bool reached = at_most ? value <= limit : value >= limit;
        std::printf("  %s: %.4g%s%s, %s %.4g: %s\n", what.c_str(), value, *unit != '\0' ? " " : "", unit,
                    at_most ? "at most" : "at least", limit, reached ? "reached" : "MISSED");
        goals.push_back(
            Json{}.put("goal", what).put("value", value).put("limit", limit).put("unit", unit).put("reached", reached));
    }
};

} // namespace engine
