// Operations that pause and resume, and what is asked of paused memory.
#pragma once

#include "failure/operation_states.hpp"

#include <chrono>
#include <cstddef>
#include <utility>
#include <vector>

namespace test {

inline std::vector<Operation> pausing() {
    const auto paused = [](Populated& world) {
        CHECK(world.is("paused"));
        CHECK(swept_bytes(world) == 0);
        world.check_bytes("swept");
    };
    const auto with_options = [](auto make) {
        return [make](Populated& world) { world.pause({"swept"}, make(world)); };
    };
    using Options = PauseOptions;
    const auto prepare_swept = [](Populated& world) { world.prepare_tag("swept"); };
    return {
        {"pause: the first", nothing, pause_swept, paused},
        {"pause: a later one, of changed bytes",
         [](Populated& world) {
             world.pause("swept");
             world.resume("swept");
             world.rewrite("swept");
         },
         pause_swept, paused},
        {"pause: a later one, of the same bytes",
         [](Populated& world) {
             world.pause("swept");
             world.resume("swept");
         },
         pause_swept, paused},
        {"pause: what is not paused yet", paused_in_batches, pause_swept, paused},
        {"pause: bytes dropped this once", nothing,
         [](Populated& world) { world.pause({"swept"}, Options{.bytes = Discard{.poison = poison}}, Becomes::poison); },
         paused},
        {"pause: after a stream, with patience", nothing, with_options([](Populated& world) {
             return Options{.order = after(world.stream), .timeout = std::chrono::minutes{5}};
         }),
         paused},
        {"pause: already idle", nothing, with_options([](Populated&) { return Options{.order = already_idle}; }),
         paused},
        {"pause: two tags", nothing,
         [](Populated& world) {
             world.pause({"beside", "swept"});
         },
         [paused](Populated& world) {
             paused(world);
             CHECK(world.is("paused", "beside"));
         },
         About::all},
        {"pause: all", nothing, [](Populated& world) { world.pause_all(); },
         [](Populated& world) { CHECK(world.tags_bytes() == 0); }, About::all},
        {"prepare", nothing, prepare_swept, [](Populated& world) { CHECK(world.is("active")); }},
        {"prepare: paused", pause_swept, prepare_swept, [](Populated& world) { CHECK(world.is("paused")); }},
        {"prepare: paused in part", paused_in_batches, prepare_swept,
         [](Populated& world) { CHECK(world.is("partly paused")); }},
    };
}

inline std::vector<Operation> resuming() {
    const auto resumed = [](Populated& world) {
        CHECK(world.is("active"));
        world.check_bytes("swept");
    };
    const auto resume_swept = [](Populated& world) { world.resume("swept"); };
    return {
        {"resume", pause_swept, resume_swept, resumed},
        {"resume: batches with holes", paused_in_batches, resume_swept, resumed},
        {"resume: two tags",
         [](Populated& world) {
             world.pause({"swept", "beside"});
         },
         [](Populated& world) {
             world.resume({"swept", "beside"});
         },
         [resumed](Populated& world) {
             resumed(world);
             world.check_bytes("beside");
         },
         About::all},
        {"resume: all", [](Populated& world) { world.pause_all(); },
         [](Populated& world) { (void)world.saver->resume(); },
         [resumed](Populated& world) {
             resumed(world);
             for (const char* tag : {"beside", "away"}) CHECK(world.is("active", tag));
         },
         About::all},
        {"resume: with room only for what others do not use",
         [](Populated& world) {
             world.pause("swept");
             world.saver->deallocate(world.saver->arena("beside").allocate(2_MiB), already_idle);
             world.ballast.emplace(world.driver, 1_MiB + 64_KiB);
         },
         resume_swept, resumed},
        {"invalidate, bytes_to_resume, usage", pause_swept,
         [](Populated& world) {
             world.invalidate("swept");
             const std::size_t need = world.saver->bytes_to_resume("swept");
             CHECK((need > 0 || !world.saver->enabled()));
             (void)world.saver->usage();
         },
         [](Populated& world) { CHECK(world.is("paused")); }},
        {"backup_view", pause_swept,
         [](Populated& world) {
             const auto& block = world.tags["swept"].blocks[2];
             if (world.policy.becomes != Becomes::kept || !world.setting.enabled) return;
             const BackupView view = world.saver->backup_view(block.at, block.bytes);
             CHECK(Populated::same(view.data(), expected_bytes(block.bytes, block.seed)));
         },
         [](Populated& world) { CHECK(world.is("paused")); }},
        {"backup_view: after a resume, while it is kept",
         [](Populated& world) {
             world.pause("swept");
             world.resume("swept");
         },
         [](Populated& world) {
             const auto& block = world.tags["swept"].blocks[2];
             if (row_of(*world.saver, "swept").backed_up_bytes == 0) return; // given back, or never kept
             const BackupView view = world.saver->backup_view(block.at, block.bytes);
             CHECK(Populated::same(view.data(), expected_bytes(block.bytes, block.seed)));
         },
         resumed},
    };
}

} // namespace test
