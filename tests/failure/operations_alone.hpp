// Operations of an arena with a saver of its own. The saver beside it must stay unchanged.
#pragma once

#include "failure/operation_states.hpp"

namespace test {

inline std::vector<Operation> of_one_arena() {
    constexpr std::size_t bytes = 25'000;
    constexpr std::uint64_t seed = 77;
    const auto make = [](Populated& world) {
        if (!world.alone) {
            world.alone.emplace(world.driver, "alone", ChosenPolicy{world.policy.policy},
                                ArenaOptions{.capacity = 256_KiB});
        }
        if (world.filled == nullptr) world.filled = world.alone->allocate(bytes);
    };
    const auto made = [make](Populated& world) {
        make(world);
        std::memcpy(world.filled, expected_bytes(bytes, seed).data(), bytes);
    };
    const auto paused = [made](Populated& world) {
        made(world);
        (void)world.alone->pause();
    };
    const auto kept = [](Populated& world) {
        if (world.policy.becomes != Becomes::kept) return;
        const BackupView view = world.alone->backup_view(world.filled, bytes);
        CHECK(Populated::same(view.data(), expected_bytes(bytes, seed)));
    };
    const auto resumed = [](Populated& world) {
        CHECK(world.alone->usage().state == "active");
        CHECK(Populated::holds({world.filled, bytes, seed, world.policy.becomes}));
    };
    const auto close = [](Populated& world) { world.alone->close(); };
    const auto closed = [](Populated& world) {
        CHECK(world.alone->usage().state == "closed");
        CHECK(world.alone->usage().mapped_bytes == 0);
    };
    return {
        {"TaggedArena: made, and its first block", nothing, make,
         [](Populated& world) { CHECK(world.alone->usage().blocks == 1); }},
        {"TaggedArena::prepare, pause, backup_view", made,
         [kept](Populated& world) {
             if (world.alone->usage().state == "active") world.alone->prepare();
             (void)world.alone->pause();
             kept(world);
         },
         [kept](Populated& world) {
             CHECK(world.alone->usage().state == "paused");
             CHECK(world.alone->usage().mapped_bytes == 0);
             kept(world);
             (void)world.alone->resume();
         }},
        {"TaggedArena::invalidate, resume", paused,
         [](Populated& world) {
             world.alone->invalidate();
             const std::size_t need = world.alone->bytes_to_resume();
             CHECK((need != 0 || world.alone->usage().state == "active" || world.alone->usage().held_bytes != 0));
             (void)world.alone->resume();
         },
         resumed},
        {"TaggedArena::deallocate, trim", made,
         [](Populated& world) {
             if (world.filled != nullptr) world.alone->deallocate(world.filled);
             world.filled = nullptr;
             (void)world.alone->trim();
         },
         [](Populated& world) {
             (void)world.alone->trim(); // as for a saver's arena
             CHECK(world.alone->usage().state == "empty");
         }},
        {"TaggedArena::close: active", made, close, closed},
        {"TaggedArena::close: paused", paused, close, closed},
    };
}
} // namespace test
