// Pauses and resumes with hooks: whether they ran, and the state after one of them fails.
#pragma once

#include "failure/operation_states.hpp"
#include "memsaver/arena/arena.hpp"

namespace test {

/// What an engine does in a hook: allocates memory and frees it. May fail, and the operation with it.
inline void flush(Populated& world) {
    const Arena arena = world.saver->arena("beside");
    arena.deallocate(arena.allocate(256_KiB), already_idle);
}

/// Adds a hook that flushes before a pause.
inline void with_pause_hooks(Populated& world) {
    world.hooks.push_back(world.saver->before_pause([&world](PauseEvent&) {
        flush(world);
        ++world.begun;
    }));
    world.hooks.push_back(world.saver->after_pause([&world](PauseEvent&) {
        CHECK(world.is("paused"));
        ++world.ended;
    }));
}
/// Adds a hook that flushes after a resume.
inline void with_resume_hooks(Populated& world) {
    world.hooks.push_back(world.saver->before_resume([&world](ResumeEvent&) { ++world.begun; }));
    world.hooks.push_back(world.saver->after_resume([&world](ResumeEvent&) {
        CHECK(world.is("active"));
        ++world.ended;
        flush(world);
    }));
}

/// Wraps a pause or resume: "after" hooks run if and only if it succeeded; "before" hooks may refuse it.
template <class Act>
auto hooked(Act act) {
    return [act](Populated& world) {
        if (!world.setting.enabled) return act(world); // hooks do not run either
        const int begun = world.begun;
        const int ended = world.ended;
        const std::string before = world.state_on("swept");
        try {
            act(world);
        } catch (const Error&) {
            if (world.begun == begun) CHECK(world.state_on("swept") == before); // nothing has happened
            throw;
        }
        CHECK(world.begun == begun + 1);
        CHECK(world.ended == ended + 1);
    };
}

/// Registers every block of "swept" with a network card.
inline void with_registrations(Populated& world) {
    world.registrations.emplace(*world.saver);
    for (const Populated::Block& block : world.tags["swept"].blocks) {
        world.registered.push_back(world.registrations->add(block.at, block.bytes,
                                                            {.who = "card",
                                                             .on_pause = OnPause::renew,
                                                             .on_register = [&world] { world.begun += 1; },
                                                             .on_deregister = [&world] { world.begun -= 1; }}));
    }
}
/// Checks that exactly the resident memory is registered, whatever the result of the pause or resume.
template <class Act>
auto registered(Act act) {
    return [act](Populated& world) {
        const auto as_it_is = [&] {
            const Unmetered own;
            int here = 0;
            for (std::size_t i = 0; i < world.registered.size(); ++i) {
                const Populated::Block& block = world.tags["swept"].blocks[i];
                const bool is =
                    !world.setting.enabled ||
                    world.saver->core()->holder("ask for", block.at, block.bytes)->here(block.at, block.bytes);
                CHECK(world.registered[i].registered() == is);
                here += is ? 1 : 0;
            }
            CHECK(world.begun == here);
        };
        try {
            act(world);
        } catch (const OutOfHostMemory&) { // a resume may not have run its hooks: the next one does
            throw;
        } catch (const Error&) {
            as_it_is();
            throw;
        }
        as_it_is();
    };
}

inline std::vector<Operation> with_hooks() {
    const auto make_hooks = [](Populated& world) {
        const Hook before = world.saver->before_pause([](PauseEvent&) {});
        const Hook after = world.saver->after_resume([](ResumeEvent&) {});
        const Hook trim = world.saver->after_pause(trim_cuda_pools);
    };
    const auto no_registrations = [](Populated& world) {
        world.registered.clear();
        world.registrations.reset();
        CHECK(world.begun == 0);
    };
    return {
        {"hooks: made", nothing, make_hooks, nothing},
        {"registrations: made", with_registrations, all_of(no_registrations, with_registrations), registered(nothing)},
        {"pause: with hooks", with_pause_hooks, hooked(pause_swept), is_paused},
        {"pause: with registrations", with_registrations, registered(pause_swept), is_paused},
        {"resume: with registrations", all_of(with_registrations, pause_swept), registered(resume_swept), is_resumed},
        {"resume: with hooks", all_of(pause_swept, with_resume_hooks), hooked(resume_swept), is_resumed},
    };
}
} // namespace test
