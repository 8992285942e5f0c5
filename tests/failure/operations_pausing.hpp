// Operations that pause and resume, and queries of paused memory.
#pragma once

#include "failure/operation_states.hpp"

namespace test {

inline std::vector<Operation> pausing() {
    const auto with_options = [](auto make) {
        return [make](Populated& world) { world.pause({"swept"}, make(world)); };
    };
    using Options = PauseOptions;
    const auto prepare_swept = [](Populated& world) { world.prepare_tag("swept"); };
    return {
        {"pause: the first", nothing, pause_swept, is_paused},
        {"pause: a later one, of changed bytes",
         all_of(pause_swept, resume_swept, [](Populated& world) { world.rewrite("swept"); }), pause_swept, is_paused},
        {"pause: a later one, of the same bytes", all_of(pause_swept, resume_swept), pause_swept, is_paused},
        {"pause: the part that is not paused yet", paused_in_batches, pause_swept, is_paused},
        {"pause: bytes dropped for this call", nothing,
         [](Populated& world) { world.pause({"swept"}, Options{.bytes = Discard{.poison = poison}}, Becomes::poison); },
         is_paused},
        {"a pause, saved by another policy for this call, and a resume", nothing,
         [](Populated& world) {
             world.pause({"swept"}, Options{.bytes = HostBackup{.threads = 1}}, Becomes::kept);
             world.resume("swept");
         },
         is_in("active")},
        {"pause: after a stream, with a timeout", nothing, with_options([](Populated& world) {
             return Options{.order = after(world.stream), .timeout = std::chrono::minutes{5}};
         }),
         is_paused},
        {"pause: already idle", nothing, with_options([](Populated&) { return Options{.order = already_idle}; }),
         is_paused},
        {"pause: two tags", nothing,
         [](Populated& world) {
             world.pause({"beside", "swept"});
         },
         [](Populated& world) {
             is_paused(world);
             CHECK(world.is("paused", "beside"));
         },
         About::all},
        {"pause: all", nothing, [](Populated& world) { world.pause_all(); },
         [](Populated& world) { CHECK(world.tags_bytes() == 0); }, About::all},
        {"prepare", nothing, prepare_swept, is_in("active")},
        {"prepare: paused", pause_swept, prepare_swept, is_in("paused")},
        {"prepare: paused in part", paused_in_batches, prepare_swept, is_in("partly paused")},
    };
}

inline std::vector<Operation> resuming() {
    const auto both = [](Populated& world) {
        is_resumed(world);
        world.check_bytes("beside");
    };
    return {
        {"resume", pause_swept, resume_swept, is_resumed},
        {"resume: batches with holes", paused_in_batches, resume_swept, is_resumed},
        {"resume: two tags",
         [](Populated& world) {
             world.pause({"swept", "beside"});
         },
         [](Populated& world) {
             world.resume({"swept", "beside"});
         },
         both, About::all},
        {"resume: all", [](Populated& world) { world.pause_all(); },
         [](Populated& world) { (void)world.saver->resume(); },
         [](Populated& world) {
             is_resumed(world);
             for (const char* tag : {"beside", "away"}) CHECK(world.is("active", tag));
         },
         About::all},
        {"resume: with room only in other tags' unused memory",
         [](Populated& world) {
             world.pause("swept");
             world.saver->deallocate(world.saver->arena("beside").allocate(512_KiB), already_idle);
             world.ballast.emplace(world.driver, 256_KiB + 16_KiB);
         },
         resume_swept, is_resumed},
        {"invalidate, bytes_to_resume, usage", pause_swept,
         [](Populated& world) {
             world.invalidate("swept");
             const std::size_t need = world.saver->bytes_to_resume("swept");
             CHECK((need > 0 || !world.saver->enabled()));
             (void)world.saver->usage();
         },
         is_in("paused")},
        {"backup_view", pause_swept,
         [](Populated& world) {
             const auto& block = world.tags["swept"].blocks[2];
             if (world.policy.becomes != Becomes::kept || !world.setting.enabled) return;
             const BackupView view = world.saver->backup_view(block.at, block.bytes);
             CHECK(Populated::same(view.data(), expected_bytes(block.bytes, block.seed)));
         },
         is_in("paused")},
        {"write_backup", pause_swept,
         [](Populated& world) {
             auto& block = world.tags["swept"].blocks[2];
             if (world.policy.becomes != Becomes::kept) return;
             block.seed = 55;
             block.kept = false;
             block.content = Becomes::unknown; // if it fails; switched off, it writes to memory
             world.saver->write_backup(block.at, expected_bytes(block.bytes, block.seed).data(), block.bytes);
             block.content = Becomes::kept;
             block.kept = true;
         },
         is_paused},
        {"backup_view: after a resume, while it is kept", all_of(pause_swept, resume_swept),
         [](Populated& world) {
             const auto& block = world.tags["swept"].blocks[2];
             if (row_of(*world.saver, "swept").backed_up_bytes == 0) return; // backup freed, or never kept
             const BackupView view = world.saver->backup_view(block.at, block.bytes);
             CHECK(Populated::same(view.data(), expected_bytes(block.bytes, block.seed)));
         },
         is_resumed},
    };
}

/// Makes two tags that both have pages worth handing over, and some that are not.
inline void make_exchangeable(Populated& world) {
    world.allocate("swept", 128_KiB);
    world.resume("away");
    world.allocate("away", 144_KiB);
}

inline std::vector<Operation> exchanging() {
    const auto away_waits = [](Populated& world) {
        make_exchangeable(world);
        world.pause("away");
    };
    const auto swept_waits = [](Populated& world) {
        make_exchangeable(world);
        world.pause("swept");
    };
    const auto tight = [](Populated& world) { // the difference between the two, and the margin
        world.ballast.emplace(world.driver, memory_of(world.driver.inner()).free_bytes - 256_KiB - 64_KiB);
    };
    const auto went = [](Populated& world) {
        CHECK(world.is("paused"));
        CHECK(world.is("active", "away"));
        world.check_bytes("swept");
        world.check_bytes("away");
    };
    const auto came = [](Populated& world) {
        CHECK(world.is("active"));
        CHECK(world.is("paused", "away"));
        world.check_bytes("swept");
        world.check_bytes("away");
    };
    const auto goes = [](Populated& world) { world.exchange({"swept"}, {"away"}); };
    const auto comes = [](Populated& world) { world.exchange({"away"}, {"swept"}); };
    return {
        {"exchange: out", away_waits, goes, went, About::all},
        {"exchange: in", swept_waits, comes, came, About::all},
        {"exchange: out, without room beside", [=](Populated& world) { away_waits(world), tight(world); }, goes, went,
         About::all},
        {"exchange: in, without room beside", [=](Populated& world) { swept_waits(world), tight(world); }, comes, came,
         About::all},
        {"exchange: out, with another tag",
         [=](Populated& world) {
             world.allocate("beside", 175'000);
             away_waits(world);
         },
         [](Populated& world) {
             world.exchange({"beside", "swept"}, {"away"});
         },
         [went](Populated& world) {
             went(world);
             CHECK(world.is("paused", "beside"));
             world.check_bytes("beside");
         },
         About::all},
        {"exchanges, back and forth", away_waits,
         [](Populated& world) {
             world.exchange({"swept"}, {"away"});
             world.exchange({"away"}, {"swept"});
         },
         came, About::all},
    };
}
} // namespace test
