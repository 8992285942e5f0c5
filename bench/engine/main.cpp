// Measures the engine of examples/engine: README.md describes how.
#include "engine.hpp"
#include "saved_ahead.hpp"
#include "self_check.hpp"
#include "session.hpp"
#include "story.hpp"
#include "streamed.hpp"
#include "timings.hpp"
#include "turns.hpp"
#include "update_cycles.hpp"
#include "watch.hpp"

#include <cstdlib>
#include <ctime>
#include <exception>
#include <fstream>
#include <iostream>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

constexpr int skipped = 77; // the exit code for skipped tests

engine::Json about_run(const engine::RunOptions& options) {
    cudaDeviceProp device{};
    engine::check_cuda(cudaGetDeviceProperties(&device, options.device), "query the device's properties");
    char date[16] = {};
    const std::time_t now = std::time(nullptr);
    std::strftime(date, sizeof date, "%Y-%m-%d", std::gmtime(&now));
    std::string driver = "unknown"; // "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  ..."
    if (std::ifstream file{"/proc/driver/nvidia/version"}; file) {
        std::string line;
        std::getline(file, line);
        std::istringstream words{line};
        for (std::string word; words >> word;) {
            if (word.find('.') == std::string::npos || word.find_first_not_of("0123456789.") != std::string::npos)
                continue;
            driver = word;
            break;
        }
    }
    const char* const commit = std::getenv("MEMSAVER_COMMIT");
    const auto version = [](int number) {
        return std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
    };
    return engine::Json{}
        .put("gpu", static_cast<const char*>(device.name))
        .put("gpus", "1")
        .put("driver", driver)
        .put("toolkit", version(CUDART_VERSION))
        .put("date", static_cast<const char*>(date))
        .put("commit", commit != nullptr ? commit : "unknown");
}

engine::Json json_of(const engine::RunOptions& o) {
    std::vector<double> batches(o.batches.begin(), o.batches.end());
    return engine::Json{}
        .put("layers", o.model.layers)
        .put("hidden", o.model.hidden)
        .put("heads", o.model.heads)
        .put("kv_heads", o.model.kv_heads)
        .put("head_dim", o.model.head_dim)
        .put("ffn", o.model.ffn)
        .put("vocab", o.model.vocab)
        .put("parameters", o.model.parameters())
        .put("weight_bytes", o.model.weight_bytes())
        .put("cache_bytes", o.cache_bytes())
        .put("batches", batches)
        .put("prompt_tokens", o.prompt_tokens)
        .put("new_tokens", o.new_tokens)
        .put("memsaver", o.memsaver)
        .put("backup", o.pageable ? "pageable" : "pinned")
        .put("compressed", o.compressed)
        .put("stream_weights", o.stream_weights)
        .put("save_ahead", o.save_ahead)
        .put("models", o.models);
}

int run(const engine::RunOptions& options) {
    if (const auto found = memsaver::CudaDriver::available(options.device); !found) {
        std::cout << "skipped: " << found.reason << '\n';
        return skipped;
    }
    engine::DeviceMeter meter{options.device}; // before anything is on the device
    if (options.check) return engine::SelfCheck::run(options) ? EXIT_SUCCESS : EXIT_FAILURE;

    engine::MemoryLog log{meter, options.log,
                          engine::Json{}.put("total", meter.total_bytes()).put("meter", meter.source())};
    engine::Session session{options, meter, log};
    engine::Story story{session};
    const std::unique_ptr<engine::Engine> made = story.build();
    engine::Engine& engine = *made;
    story.run(engine);
    if (options.rounds > 0) engine::Timings{session, engine}.run();
    if (options.stream_weights) engine::StreamedResumes{session, engine}.run();
    if (options.save_ahead) engine::SavedAhead{session, engine}.run();
    if (options.cycles > 0) engine::UpdateCycles{session, engine}.run();
    if (options.models > 1) engine::Turns{session, engine}.run();
    std::cout << engine.saver().usage() << engine.workspaces().stats() << '\n';
    if (!options.json.empty()) {
        std::ofstream out{options.json, std::ios::trunc};
        const std::vector<engine::Json> none;
        out << engine::Json{}
                   .put("context", about_run(options))
                   .put("benchmarks", none) // same format as the other results, but without rows
                   .put("meter", meter.source())
                   .put("config", json_of(options))
                   .put("goals", session.goals)
                   .put("results", session.results)
                   .text()
            << '\n';
        if (!out.flush()) throw std::runtime_error{"cannot write " + options.json};
    }
    return session.good ? EXIT_SUCCESS : EXIT_FAILURE;
}

} // namespace

int main(int argc, char** argv) {
    try {
        const engine::RunOptions options = engine::parse_options({argv + 1, argv + argc});
        if (options.help) {
            std::cout << engine::usage_text;
            return EXIT_SUCCESS;
        }
        if (options.watch) return engine::Watch{options.device}.run();
        return run(options);
    } catch (const std::invalid_argument& error) {
        std::cerr << error.what() << "\n\n" << engine::usage_text;
    } catch (const std::exception& error) {
        std::cerr << "engine_bench: " << error.what() << '\n';
    }
    return EXIT_FAILURE;
}
