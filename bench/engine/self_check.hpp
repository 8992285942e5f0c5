// Compares the engine on the device with the reference on the host, on tiny models: logits, graphs against single
// kernels, pages in another order, after a pause, after an update.
#pragma once

#include "engine.hpp"
#include "reference.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <utility>
#include <vector>

namespace engine {

class SelfCheck {
public:
    /// Prints the comparisons; returns whether all succeeded.
    static bool run(const Options& base) {
        bool good = true;
        for (const int head_dim : {64, 128}) good &= SelfCheck{base, head_dim}.run_one();
        std::printf("self-check: %s\n", good ? "passed" : "FAILED");
        return good;
    }

private:
    using Logits = std::map<std::pair<int, std::int32_t>, std::vector<float>>; // by sequence and position
    struct Run {
        std::vector<Tokens> tokens;
        Logits logits;
        friend bool operator==(const Run&, const Run&) = default;
    };
    static constexpr int new_tokens = 13;

    SelfCheck(const Options& base, int head_dim) : options_{tiny(base, head_dim)}, engine_{options_} {}

    static Options tiny(const Options& base, int head_dim) {
        Options o = base;
        o.model = {.layers = 3,
                   .hidden = 256,
                   .heads = 6,
                   .kv_heads = 2,
                   .head_dim = head_dim,
                   .ffn = 512,
                   .vocab = 512,
                   .max_positions = 64};
        o.cache_gib = 1.0 / 64;
        o.page_tokens = 4;
        o.batches = {1, 2, 4, 8};
        o.prompt_tokens = 17;
        return o;
    }

    Run generate(std::uint64_t page_order, bool graphs) {
        Run run;
        const auto vocab = static_cast<std::size_t>(options_.model.vocab);
        const StepObserver observe = [&](std::span<const Row> rows, const float* logits) {
            for (std::size_t i = 0; i < rows.size(); ++i) {
                std::vector<float>& here = run.logits[{rows[i].sequence, rows[i].position}];
                here.resize(vocab);
                check_cuda(cudaMemcpy(here.data(), logits + i * vocab, vocab * sizeof(float), cudaMemcpyDeviceToHost),
                           "read logits");
            }
        };
        run.tokens = engine_.generate(prompts_, new_tokens, page_order, graphs, observe);
        return run;
    }

    bool compare_with_reference(const char* what, const Run& run) {
        const Reference reference{options_.model, engine_.weights()};
        double error = 0;
        double largest = 0;
        int compared = 0;
        int agreed = 0;
        for (std::size_t s = 0; s < prompts_.size(); ++s) {
            Tokens text = prompts_[s];
            text.insert(text.end(), run.tokens[s].begin(), run.tokens[s].end() - 1);
            Reference::Sequence sequence;
            for (std::size_t at = 0; at < text.size(); ++at) {
                const Reference::Values wanted = reference.step(sequence, text[at]);
                const auto found = run.logits.find({static_cast<int>(s), static_cast<std::int32_t>(at)});
                if (found == run.logits.end()) return said(what, false, "the logits of a step are missing");
                for (std::size_t i = 0; i < wanted.size(); ++i) {
                    const double gap = std::abs(static_cast<double>(found->second[i]) - static_cast<double>(wanted[i]));
                    error = std::isfinite(gap) ? std::max(error, gap) : INFINITY;
                    largest = std::max(largest, std::abs(static_cast<double>(wanted[i])));
                }
                const auto best = [](const std::vector<float>& values) {
                    return std::max_element(values.begin(), values.end()) - values.begin();
                };
                ++compared;
                agreed += best(found->second) == best(wanted) ? 1 : 0;
                if (at + 1 >= prompts_[s].size() &&
                    run.tokens[s][at + 1 - prompts_[s].size()] != static_cast<std::int32_t>(best(found->second)))
                    return said(what, false, "a token is not that of the largest logit");
            }
        }
        char text[160];
        std::snprintf(text, sizeof text, "max error %.4f, largest logit %.2f (%.2f %%), %d of %d tokens agree", error,
                      largest, 100 * error / largest, agreed, compared);
        return said(what, error <= 0.03 * largest && agreed >= compared * 9 / 10, text);
    }

    bool run_one() {
        std::printf("tiny model, head_dim %d:\n", options_.model.head_dim);
        const Run first = generate(0, true);
        bool good = compare_with_reference("compared with the host", first);
        good &= said("graphs and single kernels", generate(0, false) == first, "bit-identical");
        good &= said("other page order", generate(99, true) == first, "bit-identical");
        const std::uint64_t sum = engine_.weights().checksum(engine_.stream());
        engine_.saver().pause();
        engine_.saver().resume();
        good &= said("weights after a pause", engine_.weights().checksum(engine_.stream()) == sum, "bit-identical");
        good &= said("after a pause", generate(7, true) == first, "bit-identical");
        engine_.weights().update(1, engine_.stream());
        engine_.saver().invalidate("weights");
        const Run updated = generate(0, true);
        good &= said("an update changes the logits", updated.logits != first.logits, "");
        good &= compare_with_reference("update, compared with the host", updated);
        engine_.saver().pause();
        engine_.saver().resume();
        good &= said("updated, after a pause", generate(3, true) == updated, "bit-identical");
        return good;
    }

    static bool said(const char* what, bool good, const char* how) {
        std::printf("  %-30s %s  %s\n", what, good ? "ok    " : "FAILED", how);
        return good;
    }

    Options options_;
    Engine engine_;
    std::vector<Tokens> prompts_ = make_prompts(options_, 7); // eight rows, one of them padding
};

} // namespace engine
