// The end of savers, their handles and their tags.
#pragma once

#include "failure/operation_states.hpp"

namespace test {

inline std::vector<Operation> ending() {
    const auto busy = [](Populated& world) {
        world.deallocate(0);
        world.deallocate(3, world.stream);
    };
    const auto with_handles = [](Populated& world) {
        world.counted = false;
        world.buffer.emplace(world.saver->arena("swept"), 7500);
        world.handle = world.saver->arena("swept");
    };
    return {
        {"close: active", busy, close_saver, is_closed, About::the_end},
        {"close: paused", pause_swept, close_saver, is_closed, About::the_end},
        {"close: paused in part", paused_in_batches, close_saver, is_closed, About::the_end},
        {"close: bytes on their way",
         [](Populated& world) {
             world.pause("swept");
             world.coming = world.saver->resume_async("swept");
         },
         close_saver, is_closed, About::the_end},
        {"~Buffer, ~Arena", with_handles,
         [](Populated& world) {
             world.buffer.reset();
             world.handle = {};
         },
         nothing},
        {"~Buffer: paused", all_of(with_handles, pause_swept), [](Populated& world) { world.buffer.reset(); }, nothing},
    };
}

/// Operations that end one more tag, "extra", whose blocks are not checked.
inline std::vector<Operation> living() {
    const auto extra = [](Populated& world) {
        const Arena arena = world.saver->arena("extra", world.policy.policy);
        (void)arena.allocate(50'000);
        world.saver->deallocate(arena.allocate(5000));
    };
    const auto away = [extra](Populated& world) {
        extra(world);
        (void)world.saver->pause("extra");
    };
    const auto partly_away = [away](Populated& world) {
        away(world);
        (void)world.saver->arena("extra").allocate(17'500, world.stream);
    };
    const auto known = [](Populated& world) {
        const Usage usage = world.saver->usage();
        return std::any_of(usage.begin(), usage.end(), [](const ArenaUsage& row) { return row.tag == "extra"; });
    };
    const auto drop = [known](Populated& world) {
        if (known(world)) world.saver->drop("extra");
    };
    const auto gone = [known](Populated& world) { CHECK(!known(world)); };
    const auto forget = [](Populated& world) { world.saver->forget_backup("extra"); };
    const auto nothing_kept = [](Populated& world) {
        CHECK(row_of(*world.saver, "extra").backed_up_bytes == 0);
        CHECK(world.is("paused", "extra"));
    };
    return {
        {"drop: active", extra, drop, gone},
        {"drop: paused", away, drop, gone},
        {"drop: paused in part", partly_away, drop, gone},
        {"forget_backup", away, forget, nothing_kept},
        {"resume: bytes dropped for this call", away,
         [](Populated& world) { (void)world.saver->resume("extra", {.bytes = Discard{}, .room_within = {}}); },
         is_in("active", "extra")},
        {"allocate: a block that this stream freed",
         [extra](Populated& world) {
             extra(world);
             const Arena arena = world.saver->arena("extra");
             arena.deallocate(arena.allocate(22'500), world.stream);
         },
         [](Populated& world) {
             if (world.filled == nullptr) world.filled = world.saver->arena("extra").allocate(22'500, world.stream);
         },
         [](Populated& world) { CHECK(world.saver->owns(world.filled)); }},
    };
}

/// Operations that destroy a saver: after failures, nothing is left to retry them.
inline std::vector<Operation> dying() {
    const auto die = [](Populated& world) {
        world.died = true;
        world.saver.reset();
    };
    return {
        {"~MemorySaver: active", nothing, die, nothing, About::the_end},
        {"~MemorySaver: paused", pause_swept, die, nothing, About::the_end},
        {"~MemorySaver: paused in part", paused_in_batches, die, nothing, About::the_end},
    };
}
} // namespace test
