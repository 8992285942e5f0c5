// The main measurement: an engine generates, pauses, resumes, and generates the same tokens. Also records who held
// memory in each phase.
#pragma once

#include "session.hpp"

#include <chrono>
#include <cstdio>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace engine {

class Story {
public:
    explicit Story(Session& session) : session_{session}, idle_{session.used()} {}

    /// Makes the engine and records the memory that each part takes.
    std::unique_ptr<Engine> build() {
        session_.log.phase("start");
        const auto start = Clock::now();
        Bytes used_before = idle_;
        Bytes own_before = 0;
        std::vector<Json> parts;
        const auto note = [&](const std::string& part, std::size_t mapped, std::size_t pools) {
            const Bytes now = session_.used();
            const Bytes own = static_cast<Bytes>(mapped + pools);
            const Bytes besides = (now - used_before) - (own - own_before);
            if (part == "context")
                context_ = besides;
            else if (part == "cuBLAS")
                handle_ = besides;
            else if (part == "graphs")
                graphs_ = besides;
            else if (part == "backup")
                backup_ = besides;
            else
                modules_ += besides;
            parts.push_back(Json{}.put("part", part).put("device", now - used_before).put("besides_memory", besides));
            used_before = now;
            own_before = own;
            session_.log.phase(next_phase(part));
        };
        auto engine = std::make_unique<Engine>(session_.options, note);
        session_.results.put("built", parts);
        std::printf("Engine ready after %.1f s: %.2f GiB of weights, %.2f GiB of cache, graphs of %zu batch sizes\n",
                    milliseconds_since(start) / 1000,
                    static_cast<double>(session_.options.model.weight_bytes()) / (1 << 30),
                    static_cast<double>(session_.options.cache_bytes()) / (1 << 30), engine->decoder().size());
        std::printf("  device memory in use, measured by another process (%s): %s before, %s now\n",
                    session_.meter.source().c_str(), mib(idle_).c_str(), mib(session_.used()).c_str());
        return engine;
    }

    void run(Engine& engine) {
        const std::string before = generate(engine, 1);
        const std::uint64_t sum = engine.weights().checksum(engine.stream());
        const Bytes running = session_.used();
        const long smi_running = nvidia_smi();

        const Bytes paused = pause(engine, running);
        session_.log.phase("paused");
        if (!session_.options.log.empty()) std::this_thread::sleep_for(std::chrono::seconds{1}); // for the plot
        std::printf(
            "Paused: %s in use, %s more than before the engine started (nvidia-smi: %ld MiB, running: %ld MiB)\n",
            mib(paused).c_str(), mib(paused - idle_).c_str(), nvidia_smi(), smi_running);

        session_.log.phase("resume");
        const memsaver::Report resumed = engine.saver().resume();
        std::printf("Resumed: %s\n", text_of(resumed).c_str());
        const bool same_weights = engine.weights().checksum(engine.stream()) == sum;
        const std::string after = generate(engine, 2); // uses other pages of the cache
        session_.log.phase("idle");
        const Bytes again = session_.used();

        session_.must("the weights are bit-identical after the pause", same_weights);
        session_.must("the tokens are identical after the pause, with graphs", before == after);
        session_.results.put("tokens_before", before).put("tokens_after", after).put("used_after_resume", again);
        session_.results.put("nvidia_smi_running_mib", smi_running);
        if (session_.options.memsaver) report(running, paused);
    }

private:
    static const char* next_phase(const std::string& part) {
        const std::pair<const char*, const char*> following[] = {{"context", "load"},
                                                                 {"weights", "cache"},
                                                                 {"cache", "warm up"},
                                                                 {"warm-up", "capture"},
                                                                 {"graphs", "prepare"}};
        for (const auto& [done, next] : following) {
            if (part == done) return next;
        }
        return part == "cuBLAS" ? "load" : "idle";
    }

    /// Generates a continuation for every captured batch size; returns a hash of all tokens.
    std::string generate(Engine& engine, std::uint64_t page_order) {
        session_.log.phase("generate");
        const auto start = Clock::now();
        Digest digest;
        std::size_t tokens = 0;
        for (const int batch : session_.options.batches) {
            const std::vector<Tokens> texts =
                engine.generate(make_prompts(session_.options, batch), session_.options.new_tokens, page_order);
            for (const Tokens& text : texts) tokens += text.size();
            digest.add(texts);
        }
        std::printf("Generated %zu tokens in batches of %d to %d in %.2f s, hash %s\n", tokens,
                    session_.options.batches.front(), session_.options.largest_batch(),
                    milliseconds_since(start) / 1000, digest.text().c_str());
        return digest.text();
    }

    /// Pauses one tag after the other, so that each tag's release is visible. Returns the bytes in use afterwards.
    Bytes pause(Engine& engine, Bytes running) {
        session_.log.phase("pause");
        Bytes used = running;
        const std::size_t pools_before = engine.pool_bytes();
        std::vector<Json> steps;
        for (const char* const tag : {"prefill", "workspace", "graphs", "cache", "weights"}) {
            const std::size_t pools = engine.pool_bytes();
            const memsaver::Report report = engine.saver().pause(tag);
            const Bytes now = session_.used();
            const Bytes trimmed = static_cast<Bytes>(pools) - static_cast<Bytes>(engine.pool_bytes());
            tags_.push_back({std::string{"tag "} + tag, used - now - trimmed, 0, "pausing it"});
            std::printf("  paused %-10s %s\n", tag, text_of(report).c_str());
            steps.push_back(Json{}
                                .put("tag", tag)
                                .put("device", used - now)
                                .put("released_bytes", report.released_bytes)
                                .put("saved_bytes", report.saved_bytes)
                                .put("elapsed_ms", elapsed_ms(report)));
            used = now;
        }
        tags_.push_back({"CUDA's memory pools", static_cast<Bytes>(pools_before),
                         static_cast<Bytes>(engine.pool_bytes()), "the reserved bytes that they report"});
        session_.results.put("paused", steps);
        return used;
    }

    void report(Bytes running, Bytes paused) {
        ReleaseTable table;
        table.set_totals(idle_, context_, running, paused);
        table.add({"bare context", context_, context_, "creating it"});
        table.add({"loaded modules", modules_, modules_, "running each kernel once, minus memory allocated meanwhile"});
        table.add({"graphs (driver memory)", graphs_, graphs_,
                   "capturing and launching them, minus memory allocated meanwhile"});
        table.add({"cuBLAS handle", handle_, handle_, "creating it"});
        table.add({"page tables of the pinned backup", backup_, backup_, "preparing it"});
        for (const Holder& tag : tags_) table.add(tag);
        if (session_.options.release_table) table.print(stdout);
        session_.results.put("release_table", table.json());
        session_.aim("share of memory released, excluding the bare context", 100 * table.released_share(), 99.5, false,
                     "%");
        const Bytes left = table.left_above_context() - modules_ - graphs_;
        session_.aim("memory left in use, excluding context, modules and the driver's graph memory",
                     static_cast<double>(left) / (1 << 20), 64, true, "MiB");
    }

    static double elapsed_ms(const memsaver::Report& report) {
        return std::chrono::duration<double, std::milli>(report.elapsed).count();
    }
    static std::string text_of(const memsaver::Report& report) {
        std::ostringstream out;
        out << report;
        return out.str();
    }

    /// Returns the device memory reported by nvidia-smi, in MiB; -1 if it is not available.
    [[nodiscard]] long nvidia_smi() const {
        char place[32] = {};
        if (cudaDeviceGetPCIBusId(place, sizeof place, session_.options.device) != cudaSuccess) return -1;
        const std::string command =
            std::string{"nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits -i "} + place +
            " 2>/dev/null";
        std::FILE* const out = ::popen(command.c_str(), "r");
        if (out == nullptr) return -1;
        long value = -1;
        if (std::fscanf(out, "%ld", &value) != 1) value = -1;
        (void)::pclose(out);
        return value;
    }

    Session& session_;
    Bytes idle_;
    Bytes context_ = 0;
    Bytes handle_ = 0;
    Bytes modules_ = 0;
    Bytes graphs_ = 0;
    Bytes backup_ = 0;
    std::vector<Holder> tags_;
};

} // namespace engine
