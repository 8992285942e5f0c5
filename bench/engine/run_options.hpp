// The command line. Does not use CUDA.
#pragma once

#include "../../examples/engine/options.hpp"

#include <algorithm>
#include <charconv>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace engine {

struct RunOptions : Options {
    bool save_ahead = false; ///< save changed weights while the engine computes
    int models = 1;          ///< number of models that take turns on the device, by exchange

    int rounds = 0; ///< timed pauses and resumes
    int cycles = 0; ///< update cycles
    bool release_table = false;
    bool check = false; ///< only compare with a reference on the host
    bool watch = false; ///< run as the process that measures the device from outside
    bool help = false;
    std::string json{};
    std::string log{};
};

inline constexpr const char* usage_text =
    "engine_bench [options]: a transformer that generates, pauses and resumes (see README.md)\n"
    "  --layers N --hidden N --heads N --kv-heads N --head-dim 64|128 --ffn N --vocab N --max-positions N\n"
    "  --cache-gib X --page-tokens N --batches 1,2,4,...  --prompt N --new N --seed N --device N\n"
    "  --backup pinned|pageable --compressed --backup-threads N --no-memsaver\n"
    "  --stream-weights (compute during resume) --save-ahead (save while computing) --models 1|2 (alternating)\n"
    "  --rounds N (timed pauses) --cycles N (weight updates) --release-table --json FILE --log FILE\n"
    "  --check: compare a tiny model with a reference on the host\n";

/// Parses all of `text` as an integer. Throws std::invalid_argument.
template <class T>
T parse_number(std::string_view name, std::string_view text) {
    T value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size())
        throw std::invalid_argument{std::string{name} + ": \"" + std::string{text} + "\" is not a valid number"};
    return value;
}

inline std::vector<int> parse_batches(std::string_view text) {
    std::vector<int> batches;
    while (true) {
        const std::size_t comma = text.find(',');
        batches.push_back(parse_number<int>("--batches", text.substr(0, comma)));
        if (comma == std::string_view::npos) break;
        text.remove_prefix(comma + 1);
    }
    std::sort(batches.begin(), batches.end());
    batches.erase(std::unique(batches.begin(), batches.end()), batches.end());
    if (batches.front() < 1) throw std::invalid_argument{"--batches: each must be at least 1"};
    return batches;
}

/// Throws std::invalid_argument for invalid arguments.
inline RunOptions parse_options(const std::vector<std::string_view>& arguments) {
    RunOptions o;
    const auto number = [](auto& into) {
        return [&into](std::string_view name, std::string_view text) {
            into = parse_number<std::remove_reference_t<decltype(into)>>(name, text);
        };
    };
    const auto file = [](std::string& into) {
        return [&into](std::string_view, std::string_view text) { into = text; };
    };
    const std::map<std::string_view, bool*> flags{{"--release-table", &o.release_table},
                                                  {"--check", &o.check},
                                                  {"--watch", &o.watch},
                                                  {"--help", &o.help},
                                                  {"--compressed", &o.compressed},
                                                  {"--stream-weights", &o.stream_weights},
                                                  {"--save-ahead", &o.save_ahead}};
    const std::map<std::string_view, std::function<void(std::string_view, std::string_view)>> values{
        {"--layers", number(o.model.layers)},
        {"--hidden", number(o.model.hidden)},
        {"--heads", number(o.model.heads)},
        {"--kv-heads", number(o.model.kv_heads)},
        {"--head-dim", number(o.model.head_dim)},
        {"--ffn", number(o.model.ffn)},
        {"--vocab", number(o.model.vocab)},
        {"--max-positions", number(o.model.max_positions)},
        {"--cache-gib", number(o.cache_gib)},
        {"--page-tokens", number(o.page_tokens)},
        {"--prompt", number(o.prompt_tokens)},
        {"--new", number(o.new_tokens)},
        {"--seed", number(o.seed)},
        {"--device", number(o.device)},
        {"--backup-threads", number(o.backup_threads)},
        {"--models", number(o.models)},
        {"--rounds", number(o.rounds)},
        {"--cycles", number(o.cycles)},
        {"--json", file(o.json)},
        {"--log", file(o.log)},
        {"--batches", [&](auto, std::string_view text) { o.batches = parse_batches(text); }},
        {"--backup",
         [&](auto, std::string_view text) {
             if (text != "pinned" && text != "pageable")
                 throw std::invalid_argument{"--backup must be pinned or pageable, not " + std::string{text}};
             o.pageable = text == "pageable";
         }},
    };
    for (std::size_t i = 0; i < arguments.size(); ++i) {
        const std::string_view name = arguments[i];
        if (name == "--no-memsaver") {
            o.memsaver = false;
        } else if (const auto flag = flags.find(name); flag != flags.end()) {
            *flag->second = true;
        } else if (const auto value = values.find(name); value != values.end()) {
            if (++i == arguments.size()) throw std::invalid_argument{std::string{name} + " needs a value"};
            value->second(name, arguments[i]);
        } else {
            throw std::invalid_argument{"unknown option " + std::string{name}};
        }
    }
    o.model.validate();
    if (!(o.cache_gib > 0) || o.page_tokens < 1 || o.prompt_tokens < 1 || o.new_tokens < 1 || o.rounds < 0 ||
        o.cycles < 0 || o.device < 0)
        throw std::invalid_argument{
            "--page-tokens, --prompt and --new must be at least 1, --cache-gib positive, the others at least 0"};
    if (o.models < 1 || o.models > 2) throw std::invalid_argument{"--models must be 1 or 2"};
    if (!o.memsaver && (o.compressed || o.stream_weights || o.save_ahead || o.models != 1))
        throw std::invalid_argument{
            "--no-memsaver excludes --compressed, --stream-weights, --save-ahead and --models 2"};
    if (o.prompt_tokens + o.new_tokens > o.model.max_positions)
        throw std::invalid_argument{"--prompt plus --new exceeds --max-positions"};
    return o;
}

} // namespace engine
