// Helpers shared by the groups of operations: they bring a world to the state in which an operation is tried.
#pragma once

#include "failure/sweeping.hpp"

namespace test {
using About = Operation::About;

inline void with_new_tag(Populated& world) { world.tags["new"].becomes = world.policy.becomes; }
inline void pause_swept(Populated& world) { world.pause("swept"); }

/// Paused in two batches, with some active memory, a large hole and a small one.
inline void paused_in_batches(Populated& world) {
    world.allocate("swept", 256_KiB);
    world.pause("swept");
    world.allocate("swept", 22'500);
    world.pause("swept");
    world.deallocate(4);
    world.deallocate(1);
    world.allocate("swept", 10'000);
}

/// Plain memory is never released: 0 if the saver is disabled.
inline std::size_t swept_bytes(Populated& world) {
    return world.setting.enabled ? row_of(*world.saver, "swept").mapped_bytes : 0;
}
inline std::size_t swept_blocks(Populated& world) { return row_of(*world.saver, "swept").blocks; }

// What many operations do, and what they must have done.

inline void resume_swept(Populated& world) { world.resume("swept"); }
inline void close_saver(Populated& world) { world.saver->close(); }

inline void is_resumed(Populated& world) {
    CHECK(world.is("active"));
    world.check_bytes("swept");
}
inline void is_paused(Populated& world) {
    CHECK(world.is("paused"));
    CHECK(swept_bytes(world) == 0);
    world.check_bytes("swept");
}
/// Checks that a tag is in a state.
inline auto is_in(const char* state, const char* tag = "swept") {
    return [=](Populated& world) { CHECK(world.is(state, tag)); };
}
inline void is_closed(Populated& world) {
    CHECK(world.closed());
    CHECK(world.driver.handle_bytes() + world.driver.plain_bytes() + world.driver.reserved_bytes() == 0);
}

/// All of these, one after the other.
template <class... Acts>
auto all_of(Acts... acts) {
    return [acts...](Populated& world) { (acts(world), ...); };
}
} // namespace test
