// The cost of saving changed weights while the engine computes: the duration of steps during the save, compared with
// other steps.
#pragma once

#include "session.hpp"

#include <algorithm>
#include <string>
#include <vector>

namespace engine {

class SavedAhead {
public:
    SavedAhead(Session& session, Engine& engine) : session_{session}, engine_{engine} {}

    void run() {
        session_.log.phase("saves ahead (not sampled)");
        const auto quiet = session_.log.quiet();
        for (const int batch : {session_.options.batches.front(), session_.options.largest_batch()}) measure(batch);
        session_.log.phase("idle");
    }

private:
    void measure(int batch) {
        const memsaver::Graph& graph = engine_.decoder().graph_for(batch).graph;
        const auto step = [&] {
            const auto start = Clock::now();
            graph.launch(engine_.stream());
            engine_.synchronize();
            return milliseconds_since(start);
        };
        std::vector<double> otherwise, meanwhile, saves;
        for (int i = 0; i < std::max(3, session_.options.rounds / 4); ++i) {
            (void)step();
            for (int k = 0; k < 16; ++k) otherwise.push_back(step());
            engine_.saver().invalidate("weights");
            const auto start = Clock::now();
            const memsaver::Arrival saved = engine_.saver().save("weights");
            while (!saved.done()) meanwhile.push_back(step());
            saves.push_back(milliseconds_since(start));
        }
        std::printf("Saving ahead takes %.1f ms; a step of batch %d takes %.3f ms meanwhile, %.3f ms otherwise\n",
                    median(saves), batch, median(meanwhile), median(otherwise));
        session_.aim("step while the weights are saved / other step, batch of " + std::to_string(batch),
                     median(meanwhile) / median(otherwise), 1.05, true, "");
        session_.results.put(
            "saved_ahead_" + std::to_string(batch),
            Json{}.put("save_ms", saves).put("step_meanwhile_ms", meanwhile).put("step_otherwise_ms", otherwise));
    }

    Session& session_;
    Engine& engine_;
};

} // namespace engine
