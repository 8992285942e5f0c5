// Uses and reclaims: which tags are resumed, which are evicted, and which stay because they are in use.
#pragma once

#include "failure/operation_states.hpp"

namespace test {

/// Adds an evictable tag that does not fit beside "swept". The margin simulates a full device.
inline void with_rival(Populated& world) {
    world.tags["rival"].becomes = Becomes::kept;
    (void)world.saver->arena("rival", HostBackup{.threads = 1}, ArenaOptions{.evictable = true});
    world.allocate("rival", 768_KiB);
    if (!world.setting.enabled) return;
    world.saver->set_margin(memory_of(world.driver.inner()).free_bytes - world.saver->bytes_to_resume("swept") +
                            16_KiB);
}

/// Resumes "swept" by a use, and marks the work that a stream was given for it.
inline void use_swept(Populated& world) {
    Use use = world.saver->use("swept");
    use.until(world.stream);
    const Unmetered own;
    CHECK(world.is("active"));
    CHECK(row_of(*world.saver, "swept").users == 1);
}

/// "swept" may be evicted, and loses its bytes if its policy keeps none.
inline void lose_swept(Populated& world) {
    Populated::Tag& tag = world.tags["swept"];
    for (Populated::Block& block : tag.blocks) {
        if (tag.becomes != Becomes::kept) block.content = tag.becomes;
    }
}

inline void reclaim_all(Populated& world) {
    (void)world.saver->reclaim(1_GiB);
    if (world.setting.enabled) lose_swept(world);
}

inline void check_resumed(Populated& world) {
    world.saver->set_margin(0);
    CHECK(row_of(*world.saver, "swept").users == 0);
    is_resumed(world);
}

inline void check_resumed_for_rival(Populated& world) {
    CHECK(world.is("paused", "rival"));
    check_resumed(world);
    world.check_bytes("rival");
}

inline std::vector<Operation> residency() {
    return {
        {"use: of a paused tag", pause_swept, use_swept, check_resumed},
        {"use: of a resident tag", [](Populated& world) { use_swept(world); }, use_swept, check_resumed},
        {"use: evicts another tag", all_of(pause_swept, with_rival), use_swept, check_resumed_for_rival},
        {"pause: of a tag that uses have marked", nothing,
         [](Populated& world) {
             use_swept(world);
             // An earlier attempt may have dropped its bytes
             for (Populated::Block& block : world.tags["swept"].blocks) {
                 if (world.tags["swept"].becomes != Becomes::kept) block.content = Becomes::unknown;
             }
             world.pause({"swept"}, PauseOptions{.order = already_idle});
         },
         is_paused},
        {"reclaim", [](Populated& world) { world.saver->set_evictable("swept", true); }, reclaim_all, is_paused},
    };
}

/// Operations of a saver whose allocations and resumes evict.
inline std::vector<Operation> evicting() {
    return {
        {"allocate: evicts another tag",
         [](Populated& world) {
             world.saver->set_evictable("swept", true);
             world.saver->set_margin(memory_of(world.driver.inner()).free_bytes - 16_KiB);
         },
         [](Populated& world) {
             world.allocate("beside", 32_KiB);
             world.saver->set_margin(0);
             lose_swept(world);
         },
         [](Populated& world) {
             (void)world.saver->trim("swept", {.order = already_idle}); // what could not be released at first
             is_paused(world);
         }},
        {"resume: evicts another tag", all_of(pause_swept, with_rival), resume_swept, check_resumed_for_rival},
    };
}
} // namespace test
