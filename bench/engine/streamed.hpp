// The latency of an engine after a pause: its first tokens while its weights are being restored, compared with the
// lower bound, which is the longer of a plain copy of the weights and the computation.
#pragma once

#include "session.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <string>
#include <thread>
#include <vector>

namespace engine {

class StreamedResumes {
public:
    StreamedResumes(Session& session, Engine& engine) : session_{session}, engine_{engine} {}

    void run() {
        session_.log.phase("streamed resumes (not sampled)");
        const auto quiet = session_.log.quiet();
        const std::vector<Tokens> prompts = make_prompts(session_.options, session_.options.batches.front());
        const std::vector<Tokens> expected = engine_.generate(prompts, session_.options.new_tokens);
        std::vector<double> streamed, whole, prefill;
        bool same = true;
        for (int i = 0; i < std::max(3, session_.options.rounds); ++i) {
            streamed.push_back(first_token(prompts, true));
            same &= engine_.generate(prompts, session_.options.new_tokens) == expected;
            whole.push_back(first_token(prompts, false));
            prefill.push_back(timed([&] { (void)engine_.generate(prompts, 1); }));
            // All of it during the restore: prefill by kernels, the rest by graphs.
            engine_.saver().pause();
            const memsaver::Arrival coming = engine_.resume_streamed();
            same &= engine_.generate(prompts, session_.options.new_tokens) == expected;
            coming.wait();
        }
        const double copy = plain_copy();
        const double least = std::max(copy, median(prefill));
        std::printf(
            "Streamed resumes: first token after %.1f ms, %.1f ms if all bytes are waited for; a plain copy of the "
            "weights takes %.1f ms, computing the token %.1f ms\n",
            median(streamed), median(whole), copy, median(prefill));
        session_.must("the tokens are identical during a streamed resume, with graphs", same);
        session_.aim("first token after a streamed resume / the larger of copy and prefill", median(streamed) / least,
                     1.1, true, "");
        session_.results.put("streamed", Json{}
                                             .put("first_token_ms", streamed)
                                             .put("first_token_whole_ms", whole)
                                             .put("prefill_ms", prefill)
                                             .put("plain_copy_ms", copy));
        session_.log.phase("idle");
    }

private:
    double first_token(const std::vector<Tokens>& prompts, bool streamed) {
        engine_.saver().pause();
        std::this_thread::sleep_for(std::chrono::milliseconds{500}); // until the device has cleared the released memory
        memsaver::Arrival coming;
        const double elapsed = timed([&] {
            if (streamed)
                coming = engine_.resume_streamed();
            else
                engine_.saver().resume();
            (void)engine_.generate(prompts, 1);
        });
        if (streamed) coming.wait();
        return elapsed;
    }

    /// Copies the size of the weights, repeatedly from one pinned buffer.
    double plain_copy() {
        constexpr std::size_t piece = std::size_t{1} << 28;
        const Pinned<unsigned char> host = make_pinned<unsigned char>(piece);
        std::vector<double> all;
        for (int i = 0; i < 3; ++i) {
            all.push_back(timed([&] {
                std::size_t left = session_.options.model.weight_bytes();
                void* const scratch = engine_.cache().layer(0);
                const std::size_t room = std::min(piece, engine_.cache().layer_bytes());
                for (; left != 0; left -= std::min(left, room))
                    check_cuda(cudaMemcpyAsync(scratch, host.get(), std::min(left, room), cudaMemcpyHostToDevice,
                                               engine_.stream()),
                               "copy the weights");
                engine_.synchronize();
            }));
        }
        return median(all);
    }
    template <class Act>
    static double timed(Act&& act) {
        const auto start = Clock::now();
        act();
        return milliseconds_since(start);
    }

    Session& session_;
    Engine& engine_;
};

} // namespace engine
