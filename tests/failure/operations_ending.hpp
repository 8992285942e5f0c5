// How savers and their handles end.
#pragma once

#include "failure/operation_states.hpp"

#include <vector>

namespace test {

inline std::vector<Operation> ending() {
    const auto busy = [](Populated& world) {
        world.deallocate(0);
        world.deallocate(3, world.stream);
    };
    const auto close = [](Populated& world) { world.saver->close(); };
    const auto closed = [](Populated& world) {
        CHECK(world.closed());
        CHECK(world.driver.handle_bytes() + world.driver.plain_bytes() + world.driver.reserved_bytes() == 0);
    };
    const auto with_handles = [](Populated& world) {
        world.counted = false;
        world.buffer.emplace(world.saver->arena("swept"), 30'000);
        world.handle = world.saver->arena("swept");
    };
    return {
        {"close: active", busy, close, closed, About::the_end},
        {"close: paused", pause_swept, close, closed, About::the_end},
        {"close: paused in part", paused_in_batches, close, closed, About::the_end},
        {"~Buffer, ~Arena", with_handles,
         [](Populated& world) {
             world.buffer.reset();
             world.handle = {};
         },
         nothing},
        {"~Buffer: paused",
         [with_handles](Populated& world) {
             with_handles(world);
             world.pause("swept");
         },
         [](Populated& world) { world.buffer.reset(); }, nothing},
    };
}

/// Who dies with failures has nobody who could repeat it.
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
