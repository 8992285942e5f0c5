// Operations on an elastic range of "swept": each committed step is one block of the model.
#pragma once

#include "failure/operation_states.hpp"

namespace test {

inline constexpr std::size_t elastic_step = 32_KiB;

inline void* step_at(Populated& world, std::size_t n) {
    return static_cast<unsigned char*>(world.elastic.data()) + n * elastic_step;
}

inline void make_elastic(Populated& world) {
    const ElasticOptions options{.granularity = elastic_step, .on_reclaim = [](std::size_t) { return std::size_t{0}; }};
    if (!world.elastic) world.elastic = world.swept_on(world.driver).elastic(2_MiB, options);
}

/// Makes the model contain exactly these steps.
inline void note_steps(Populated& world, std::initializer_list<std::size_t> steps) {
    Populated::Blocks& blocks = world.tags["swept"].blocks;
    for (std::size_t n = 0; n < world.elastic.capacity() / elastic_step; ++n) {
        void* const at = step_at(world, n);
        const bool wanted = std::find(steps.begin(), steps.end(), n) != steps.end();
        const auto known = std::find_if(blocks.begin(), blocks.end(), [&](const auto& each) { return each.at == at; });
        if (known == blocks.end() && wanted) world.add("swept", at, elastic_step);
        if (known != blocks.end() && !wanted) known->at = nullptr;
    }
}

/// Commits steps 0, 1, 2 and 8.
inline void with_elastic(Populated& world) {
    make_elastic(world);
    world.elastic.commit(0, 3 * elastic_step);
    world.elastic.commit(8 * elastic_step, elastic_step);
    note_steps(world, {0, 1, 2, 8});
}

inline std::vector<Operation> elastic() {
    const auto blocks = [](std::size_t count) {
        return [count](Populated& world) {
            (void)world.saver->trim(); // releases blocks that waited for work
            CHECK(row_of(*world.saver, "swept").blocks == 4 + count);
            CHECK(world.elastic.committed_bytes() == count * elastic_step);
            CHECK(row_of(*world.saver, "swept").held_bytes == 0);
            world.check_bytes("swept");
        };
    };
    const auto commit = [](Populated& world) {
        world.elastic.commit(2 * elastic_step, 3 * elastic_step);
        note_steps(world, {0, 1, 2, 3, 4, 8});
    };
    const auto release = [](const auto& order) {
        return [order](Populated& world) {
            if (world.elastic.committed_bytes() == 4 * elastic_step)
                world.elastic.release(elastic_step, 2 * elastic_step, order(world));
            note_steps(world, {0, 8});
        };
    };
    const auto device = release([](Populated&) { return Order{}; });
    const auto idle = release([](Populated&) { return Order{already_idle}; });
    const auto on_stream = release([](Populated& world) { return after(world.stream); });
    return {
        {"elastic: made", nothing, make_elastic, blocks(0)},
        {"elastic: commit", with_elastic, commit, blocks(6)},
        {"elastic: commit, with room only in other tags' unused memory",
         [](Populated& world) {
             with_elastic(world);
             world.saver->deallocate(world.saver->arena("beside").allocate(512_KiB), already_idle);
             world.ballast.emplace(world.driver, 256_KiB + 16_KiB);
         },
         commit, blocks(6)},
        {"elastic: commit where a release still waits", all_of(with_elastic, device),
         [](Populated& world) {
             world.elastic.commit(0, 3 * elastic_step);
             note_steps(world, {0, 1, 2, 8});
         },
         blocks(4)},
        {"elastic: release", with_elastic, device, blocks(2)},
        {"elastic: release, already idle", with_elastic, idle, blocks(2)},
        {"elastic: release, after a stream", with_elastic, on_stream, blocks(2)},
        {"elastic: release while paused", all_of(with_elastic, pause_swept), device,
         [blocks](Populated& world) {
             CHECK(world.is("paused"));
             blocks(2)(world);
         }},
        {"elastic: resize, either way", with_elastic,
         [](Populated& world) {
             world.elastic.resize(10 * elastic_step);
             note_steps(world, {0, 1, 2, 8, 9});
             world.elastic.resize(2 * elastic_step, already_idle);
             note_steps(world, {0, 1});
         },
         blocks(2)},
        {"elastic: reclaim", with_elastic, [](Populated& world) { (void)world.saver->reclaim(1_GiB); }, blocks(4)},
        {"elastic: pause, with a release that waits", all_of(with_elastic, device), pause_swept, is_paused},
        {"elastic: resume", all_of(with_elastic, idle, pause_swept), resume_swept, blocks(2)},
        {"elastic: its end", all_of(with_elastic, device),
         [](Populated& world) {
             if (world.elastic) note_steps(world, {});
             world.elastic = {};
         },
         [](Populated& world) { CHECK(row_of(*world.saver, "swept").blocks == 4); }},
    };
}
} // namespace test
