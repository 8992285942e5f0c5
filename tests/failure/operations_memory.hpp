// Operations that allocate and free memory.
#pragma once

#include "failure/operation_states.hpp"

namespace test {

inline std::vector<Operation> allocating() {
    const auto grown = [](Populated& world) { CHECK(world.tags["swept"].blocks.size() == 5); };
    const auto not_counted = [](Populated& world) { world.counted = false; };
    return {
        {"arena: a new tag and its first block", with_new_tag,
         [](Populated& world) {
             const Arena arena = world.saver->arena("new", world.policy.policy, {.capacity = 2_MiB, .reserve = 32_KiB});
             void* const block = arena.allocate(17'500);
             world.add("new", block, 17'500);
         },
         [](Populated& world) { CHECK(row_of(*world.saver, "new").blocks == 1); }},
        {"allocate: growing", nothing, [](Populated& world) { world.allocate("swept", 256_KiB + 5); }, grown},
        {"region: a small block", nothing,
         [](Populated& world) {
             const auto region = world.saver->region("swept");
             world.add("swept", world.saver->allocate(3000), 3000);
         },
         grown},
        {"allocate: while the tag is paused", pause_swept, [](Populated& world) { world.allocate("swept", 20'000); },
         is_in("partly paused")},
        {"allocate: a freed block that waits",
         [](Populated& world) {
             const Arena arena = world.saver->arena("tight", world.policy.policy, {.capacity = 64_KiB});
             world.filled = arena.allocate(64_KiB);
             arena.deallocate(world.filled);
             world.tags["tight"].becomes = world.policy.becomes;
         },
         [](Populated& world) { world.allocate("tight", 48_KiB); },
         [](Populated& world) { // switched off, the machine's own allocator chooses the address
             CHECK((!world.setting.enabled || world.tags["tight"].blocks.at(0).at == world.filled));
         }},
        {"outside: plain memory", nothing,
         [](Populated& world) {
             const auto out = world.saver->outside();
             if (world.filled == nullptr) world.filled = world.saver->allocate(3000);
             world.saver->deallocate(world.filled);
             world.filled = nullptr;
         },
         nothing},
        {"Buffer: its life", not_counted,
         [](Populated& world) {
             Buffer<int>{world.saver->arena("swept"), 20'000}.reset();
         },
         nothing},
        {"Buffer: its life, given up with a stream", not_counted,
         [](Populated& world) {
             if (!world.buffer) world.buffer.emplace(world.saver->arena("swept"), 20'000);
             world.buffer->reset(world.stream);
         },
         [](Populated& world) { CHECK((world.buffer->empty() && swept_blocks(world) == 4)); }},
        {"allocate: with room only in other tags' unused memory",
         [](Populated& world) {
             world.saver->deallocate(world.saver->arena("beside").allocate(512_KiB), already_idle);
             world.ballast.emplace(world.driver, 256_KiB + 16_KiB);
         },
         [](Populated& world) { world.allocate("swept", 256_KiB + 5); },
         [grown](Populated& world) {
             grown(world);
             CHECK(row_of(*world.saver, "beside").mapped_bytes < 512_KiB);
         }},
    };
}

inline std::vector<Operation> freeing() {
    const auto done = [](Populated& world) { CHECK(swept_blocks(world) == 2); };
    const auto with_holes = [](Populated& world) {
        world.allocate("swept", 256_KiB);
        world.allocate("swept", 256_KiB);
        world.deallocate(4);
        world.deallocate(5, world.stream);
        world.deallocate(0, already_idle);
    };
    const auto trimmed = [](Populated& world) {
        (void)world.saver->trim(); // a mark whose query failed was treated as not completed
        CHECK(swept_bytes(world) < 256_KiB);
    };
    const auto plainly = [](Populated& world) { world.deallocate(0), world.deallocate(2); };
    const auto on_stream = [](Populated& world) {
        world.deallocate(0, world.stream), world.deallocate(2, world.stream);
    };
    const auto idle = [](Populated& world) { world.deallocate(0, already_idle), world.deallocate(2, already_idle); };
    return {
        {"deallocate", nothing, plainly, done},
        {"deallocate: with a stream", nothing, on_stream, done},
        {"deallocate: already idle", nothing, idle, done},
        {"deallocate: paused", pause_swept, plainly, done},
        {"deallocate: paused, with a stream", pause_swept, on_stream, done},
        {"deallocate: paused, already idle", pause_swept, idle, done},
        {"trim", with_holes, [](Populated& world) { (void)world.saver->trim(); }, trimmed, About::all},
        {"trim: one tag, after a stream", with_holes,
         [](Populated& world) {
             TrimOptions options;
             options.order = after(world.stream);
             (void)world.saver->trim("swept", options);
         },
         trimmed},
        {"deallocate: paused in part, in every way", paused_in_batches,
         [](Populated& world) {
             world.deallocate(0);
             world.deallocate(2, already_idle);
             world.deallocate(5, world.stream);
             world.deallocate(6, world.stream);
         },
         [](Populated& world) { CHECK(swept_blocks(world) == 1); }},
        {"trim: paused in part",
         [](Populated& world) {
             paused_in_batches(world);
             world.allocate("swept", 256_KiB);
             world.deallocate(7);
         },
         [](Populated& world) { (void)world.saver->trim("swept"); },
         [trimmed](Populated& world) {
             trimmed(world);
             CHECK(world.is("partly paused"));
         }},
    };
}
} // namespace test
