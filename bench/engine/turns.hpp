// Two models in one process take turns on the device, by `exchange`.
#pragma once

#include "session.hpp"

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

namespace engine {

class Turns {
public:
    Turns(Session& session, Engine& engine) : session_{session}, engine_{engine} {}

    void run() {
        session_.log.phase("alternating models (not sampled)");
        const auto quiet = session_.log.quiet();
        engine_.add_model();
        const std::vector<Tokens> prompts = make_prompts(session_.options, session_.options.batches.front());
        std::vector<std::vector<Tokens>> expected(2);
        expected[1] = engine_.generate(prompts, session_.options.new_tokens); // the new one is active
        engine_.switch_to(0);
        expected[0] = engine_.generate(prompts, session_.options.new_tokens);
        std::vector<double> switches, answers;
        bool same = true;
        for (int i = 0; i < 2 * std::max(2, session_.options.rounds); ++i) {
            const std::size_t next = i % 2 == 0 ? 1 : 0;
            const auto start = Clock::now();
            engine_.switch_to(next);
            switches.push_back(milliseconds_since(start));
            const std::vector<Tokens> first = engine_.generate(prompts, 1);
            answers.push_back(milliseconds_since(start));
            same &= engine_.generate(prompts, session_.options.new_tokens) == expected[next];
        }
        engine_.switch_to(0);
        const double gib = static_cast<double>(session_.options.model.weight_bytes()) / (1 << 30);
        std::printf("Two alternating models: a switch of %.2f GiB takes %.1f ms, the first token comes after %.1f ms\n",
                    gib, median(switches), median(answers));
        session_.must("the tokens of both models are identical after every switch", same);
        session_.must("the models generate different tokens", expected[0] != expected[1]);
        session_.results.put("turns", Json{}.put("switch_ms", switches).put("first_token_ms", answers));
        session_.log.phase("idle");
    }

private:
    Session& session_;
    Engine& engine_;
};

} // namespace engine
