// Update cycles, as in reinforcement learning: the weights are resumed and changed in place; then the cache and the
// graphs are resumed and the engine generates; then everything is paused for the trainer.
#pragma once

#include "session.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

namespace engine {

class UpdateCycles {
public:
    UpdateCycles(Session& session, Engine& engine) : session_{session}, engine_{engine} {}

    void run() {
        session_.log.phase("update cycles");
        const int cycles = session_.options.cycles;
        const std::vector<int>& batches = session_.options.batches;
        Saver& saver = engine_.saver();
        Digest digest;
        std::vector<double> used, resident, seconds, pauses;
        bool same_weights = true;
        std::uint64_t sum = engine_.weights().checksum(engine_.stream());
        saver.pause();
        for (int i = 0; i < cycles; ++i) {
            const auto start = Clock::now();
            saver.resume("weights");
            same_weights &= engine_.weights().checksum(engine_.stream()) == sum;
            engine_.weights().update(static_cast<std::uint64_t>(i + 1), engine_.stream());
            saver.invalidate("weights");
            sum = engine_.weights().checksum(engine_.stream());
            memsaver::Arrival saved;
            if (session_.options.save_ahead) saved = saver.save("weights"); // while it generates
            saver.resume(light_tags);
            used.push_back(static_cast<double>(session_.used()));
            resident.push_back(resident_bytes());
            const int batch = batches[static_cast<std::size_t>(i) % batches.size()];
            digest.add(engine_.generate(make_prompts(session_.options, batch), session_.options.new_tokens,
                                        static_cast<std::uint64_t>(i)));
            const auto aside = Clock::now();
            saver.pause();
            pauses.push_back(milliseconds_since(aside));
            seconds.push_back(milliseconds_since(start) / 1000);
        }
        saver.resume();
        session_.log.phase("idle");
        const auto [low, high] = std::minmax_element(used.begin(), used.end());
        const double away = std::max(*high - used.front(), used.front() - *low);
        std::printf(
            "%d update cycles in %.2f s each (median): device memory after each resume within %s of the first, the "
            "process' resident memory from %s to %s, token hash %s\n",
            cycles, median(seconds), mib(static_cast<Bytes>(away)).c_str(),
            mib(static_cast<Bytes>(resident.front())).c_str(), mib(static_cast<Bytes>(resident.back())).c_str(),
            digest.text().c_str());
        session_.must("the weights are bit-identical after every pause", same_weights);
        session_.aim("device memory after each resume, difference from the first", away / (1 << 20), 2, true, "MiB");
        session_.results.put("cycles", Json{}
                                           .put("count", cycles)
                                           .put("tokens", digest.text())
                                           .put("seconds", seconds)
                                           .put("saved_ahead", session_.options.save_ahead)
                                           .put("pause_ms", pauses)
                                           .put("used_bytes", used)
                                           .put("resident_bytes", resident));
    }

private:
    static double resident_bytes() {
        std::ifstream file{"/proc/self/statm"};
        long long size = 0;
        long long resident = 0;
        file >> size >> resident;
        return static_cast<double>(resident) * static_cast<double>(::sysconf(_SC_PAGESIZE));
    }

    Session& session_;
    Engine& engine_;
};

} // namespace engine
