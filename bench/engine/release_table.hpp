// Attributes device memory to its owners while the engine runs and while it is paused. Sums and prints; measures
// nothing.
#pragma once

#include "json.hpp"

#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

namespace engine {

/// Signed, because values are differences of measurements.
using Bytes = std::int64_t;

inline std::string mib(Bytes bytes) {
    char text[32];
    std::snprintf(text, sizeof text, "%.1f MiB", static_cast<double>(bytes) / (1 << 20));
    return text;
}

/// An owner whose memory stays during a pause (a context, modules, graphs in the driver) or is released (a tag, a
/// pool).
struct Holder {
    std::string name;
    Bytes running = 0;
    Bytes paused = 0;
    std::string how; ///< how it was measured
};

class ReleaseTable {
public:
    void add(Holder holder) { holders_.push_back(std::move(holder)); }
    /// Sets the totals of the whole device, measured from outside: before the engine started, with only its context,
    /// running, paused.
    void set_totals(Bytes idle, Bytes context, Bytes running, Bytes paused) {
        idle_ = idle;
        context_ = context;
        running_ = running;
        paused_ = paused;
    }

    /// Returns the bytes that the paused process holds and no holder explains.
    [[nodiscard]] Bytes unexplained_paused() const { return paused_ - idle_ - sum(&Holder::paused); }
    [[nodiscard]] Bytes unexplained_running() const { return running_ - idle_ - sum(&Holder::running); }
    /// Returns the bytes that remain above the bare context during a pause.
    [[nodiscard]] Bytes left_above_context() const noexcept { return paused_ - idle_ - context_; }
    /// Returns the released share of the bytes that the process held above its bare context.
    [[nodiscard]] double released_share() const noexcept {
        const auto held = static_cast<double>(running_ - idle_ - context_);
        return held > 0 ? static_cast<double>(running_ - paused_) / held : 0;
    }

    void print(std::FILE* out) const {
        std::fprintf(out, "  %-34s %14s %14s   %s\n", "device memory owner", "running", "paused", "measured by");
        const auto row = [&](const std::string& name, Bytes running, Bytes paused, const std::string& how) {
            std::fprintf(out, "  %-34s %14s %14s   %s\n", name.c_str(), mib(running).c_str(), mib(paused).c_str(),
                         how.c_str());
        };
        for (const Holder& holder : holders_) row(holder.name, holder.running, holder.paused, holder.how);
        row("what is left", unexplained_running(), unexplained_paused(), "the total, minus all of the above");
        row("total of the process", running_ - idle_, paused_ - idle_, "");
    }

    [[nodiscard]] Json json() const {
        std::vector<Json> rows;
        for (const Holder& holder : holders_) {
            rows.push_back(Json{}
                               .put("holder", holder.name)
                               .put("running", holder.running)
                               .put("paused", holder.paused)
                               .put("measured_by", holder.how));
        }
        return Json{}
            .put("rows", rows)
            .put("idle", idle_)
            .put("context", context_)
            .put("running", running_)
            .put("paused", paused_)
            .put("unexplained_running", unexplained_running())
            .put("unexplained_paused", unexplained_paused())
            .put("left_above_context", left_above_context())
            .put("released_share", released_share());
    }

private:
    [[nodiscard]] Bytes sum(Bytes Holder::*column) const {
        Bytes total = 0;
        for (const Holder& holder : holders_) total += holder.*column;
        return total;
    }

    std::vector<Holder> holders_;
    Bytes idle_ = 0;
    Bytes context_ = 0;
    Bytes running_ = 0;
    Bytes paused_ = 0;
};

} // namespace engine
