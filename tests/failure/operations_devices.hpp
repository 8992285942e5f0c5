// Operations on a tag on two devices, one of which fails. "beside", "away" and the plain memory are on the saver's own
// device.
#pragma once

#include "failure/operation_states.hpp"

namespace test {

inline std::vector<Operation> on_devices() {
    const auto paused = [](Populated& world) {
        CHECK(world.is("paused"));
        CHECK(world.state_on("swept", world.well->device()) == "paused");
        world.check_bytes("swept");
    };
    const auto closed = [](Populated& world) {
        is_closed(world);
        CHECK(world.well->everything_given_back());
    };
    return {
        {"two devices, arena: a tag's first block", with_new_tag,
         [](Populated& world) {
             const auto& policy = world.policy;
             (void)world.saver->arena("new", policy.policy, *world.well);
             void* const block = world.saver->arena("new", policy.policy, world.driver).allocate(17'500);
             world.add("new", block, 17'500, world.driver.device());
         },
         nothing},
        {"two devices, pause", nothing, pause_swept, paused},
        {"two devices, pause: after a stream", nothing,
         [](Populated& world) { world.pause({"swept"}, {.order = after(world.stream)}); }, paused},
        {"two devices, prepare", nothing, [](Populated& world) { world.prepare_tag("swept"); }, is_resumed},
        {"two devices, resume", pause_swept, resume_swept, is_resumed},
        {"two devices, trim",
         [](Populated& world) {
             world.allocate("swept", 256_KiB);
             world.deallocate(5);
             world.deallocate(0, already_idle);
         },
         [](Populated& world) { (void)world.saver->trim(); },
         [](Populated& world) {
             (void)world.saver->trim();
             CHECK(world.state_on("swept", world.well->device()) == "empty");
         },
         About::all},
        {"two devices, close: active", nothing, close_saver, closed, About::the_end},
        {"two devices, close: paused", pause_swept, close_saver, closed, About::the_end},
    };
}
} // namespace test
