// The engine's command line, and values derived from a model's sizes.
#include "../../bench/engine/run_options.hpp"
#include "support/machines.hpp"

namespace engine_options_test {
using engine::ModelSize;
using engine::parse_options;
using engine::RunOptions;

TEST_CASE("options set their values, and the others keep their defaults") {
    const RunOptions o = parse_options({"--layers", "7", "--cache-gib", "2.5", "--batches", "8,1,2,8", "--no-memsaver",
                                        "--backup", "pageable", "--json", "a b", "--seed", "18446744073709551615"});
    CHECK(o.model.layers == 7);
    CHECK(o.model.hidden == ModelSize{}.hidden);
    CHECK(o.cache_bytes() == 2684354560u);
    CHECK(o.batches == std::vector<int>{1, 2, 8});
    CHECK(o.largest_batch() == 8);
    CHECK_FALSE(o.memsaver);
    CHECK(o.pageable);
    CHECK(o.json == "a b");
    CHECK(o.seed == 18446744073709551615u);
    CHECK_FALSE(o.check);
    CHECK(parse_options({}).memsaver);
    CHECK(parse_options({}).batches.size() >= 8);
    CHECK(parse_options({"--check", "--release-table"}).release_table);
    const RunOptions all = parse_options({"--stream-weights", "--save-ahead", "--compressed", "--models", "2"});
    CHECK(all.stream_weights);
    CHECK(all.save_ahead);
    CHECK(all.compressed);
    CHECK(all.models == 2);
    CHECK(parse_options({}).models == 1);
}

TEST_CASE("misuse is refused") {
    const std::vector<std::vector<std::string_view>> bad{{"--layer", "7"},
                                                         {"--layers"},
                                                         {"--layers", "7x"},
                                                         {"--layers", ""},
                                                         {"--layers", "-1"},
                                                         {"--batches", "1,,2"},
                                                         {"--batches", "0,1"},
                                                         {"--head-dim", "96"},
                                                         {"--heads", "5"},
                                                         {"--hidden", "100"},
                                                         {"--cache-gib", "0"},
                                                         {"--prompt", "0"},
                                                         {"--backup", "nowhere"},
                                                         {"--cycles", "-1"},
                                                         {"--max-positions", "9"},
                                                         {"--device", "-1"},
                                                         {"--models", "0"},
                                                         {"--models", "3"},
                                                         {"--no-memsaver", "--stream-weights"},
                                                         {"--no-memsaver", "--models", "2"},
                                                         {"--seed", "99999999999999999999"}};
    for (const auto& arguments : bad) {
        CAPTURE(arguments.front());
        CHECK_THROWS_AS((void)parse_options(arguments), std::invalid_argument);
    }
}

TEST_CASE("a model's parameters are those of its matrices") {
    ModelSize size;
    size.layers = 2;
    size.hidden = 16;
    size.heads = 2;
    size.kv_heads = 1;
    size.head_dim = 64;
    size.ffn = 24;
    size.vocab = 40;
    CHECK(size.qkv() == 4 * 64);
    CHECK(size.attended() == 2 * 64);
    constexpr std::size_t layer = 16 + 16 * 256 + 128 * 16 + 16 + 16 * 48 + 24 * 16;
    CHECK(size.layer_parameters() == layer);
    CHECK(size.parameters() == 2 * layer + 40 * 16 + 16 + 40 * 16);
    CHECK(size.weight_bytes() == 2 * size.parameters());
    CHECK(size.kv_bytes() == 2 * 64 * 2);
}
} // namespace engine_options_test
