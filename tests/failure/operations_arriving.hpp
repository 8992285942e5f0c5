// Operations that return while their bytes are in flight.
#pragma once

#include "failure/operation_states.hpp"

namespace test {

inline std::vector<Operation> arriving() {
    const auto coming = [](Populated& world) { // requested first: a late block, and a part of an early one
        const auto& blocks = world.tags["swept"].blocks;
        const auto* const early = static_cast<const char*>(blocks[2].at);
        std::optional<Unmetered> own{std::in_place};
        const ResumeAsyncOptions options{.first = {{blocks[3].at, 17'500}, {early + 100, 16'500}}};
        own.reset();
        return world.saver->resume_async("swept", options);
    };
    // Misuse for policies that save at every pause or keep nothing.
    const auto save = [](Populated& world) {
        std::optional<Arrival> saved;
        try {
            saved = world.saver->save("swept", {.order = after(world.stream)});
        } catch (const Misuse&) {
            CHECK(!contains(world.policy.name, "once"));
        }
        return saved;
    };
    return {
        {"resume_async, wait", pause_swept,
         [coming](Populated& world) {
             const Arrival arrival = coming(world);
             CHECK((world.setting.enabled || arrival.done()));
             arrival.wait();
         },
         is_resumed},
        {"resume_async: batches with holes", paused_in_batches,
         [](Populated& world) { world.saver->resume_async("swept").wait(); }, is_resumed},
        {"resume_async: a stream and the thread wait for parts, a second one joins", pause_swept,
         [coming](Populated& world) {
             const Arrival first = coming(world);
             const Arrival second = world.saver->resume_async({"swept", "beside"});
             const auto& blocks = world.tags["swept"].blocks;
             first.before(world.stream, blocks[3].at, 1000);
             second.wait(blocks[1].at, 6912);
             second.before(world.stream);
             (void)second.done();
             second.wait();
             first.wait();
         },
         is_resumed},
        {"resume_async, then a resume", pause_swept,
         [coming](Populated& world) {
             const Arrival arrival = coming(world);
             world.resume("swept");
         },
         is_resumed},
        {"resume_async, then a pause", pause_swept,
         [coming](Populated& world) {
             const Arrival arrival = coming(world);
             world.pause("swept");
         },
         is_paused},
        {"resume_async, then a use that does not wait for the bytes", pause_swept,
         [coming](Populated& world) {
             const Arrival arrival = coming(world);
             const Use use = world.saver->use("swept", {.await_bytes = false});
             arrival.wait();
         },
         is_resumed},
        {"resume_async: nobody waits", pause_swept,
         [coming](Populated& world) {
             { const Arrival arrival = coming(world); }
             world.resume("swept"); // the failure was reported to the event sink
         },
         is_resumed},
        {"gate: over paused, arriving and resident memory", pause_swept,
         [coming](Populated& world) {
             const void* const block = world.tags["swept"].blocks[3].at;
             const Gate away = world.saver->gate(block, 1000);
             const Gate other = world.saver->gate(world.tags["swept"].blocks[1].at, 6912);
             {
                 const Arrival arrival = coming(world);
                 const Gate late = world.saver->gate(block, 17'500);
                 late.before(world.stream);
                 away.before(world.stream);
                 arrival.wait();
             }
             world.saver->gate(block, 1).before(world.stream);
             other.before(world.stream);
             world.saver->resume("swept");
         },
         is_resumed},
        {"resume_async: with gates that a graph waits at",
         [](Populated& world) {
             world.counted = false;
             const auto* const first = static_cast<const char*>(world.tags["swept"].blocks[2].at);
             world.graph = capture(*world.saver, "beside", world.stream, [&] {
                 for (std::size_t i = 0; i < 3; ++i) world.saver->gate(first + 12'500 * i, 10'000).before(world.stream);
             });
             world.pause("swept");
         },
         [coming](Populated& world) {
             const Arrival arrival = coming(world);
             world.graph.launch(world.stream);
             arrival.wait();
         },
         is_resumed},
        {"save ahead", nothing,
         [save](Populated& world) {
             if (const auto saved = save(world)) saved->wait();
         },
         is_resumed},
        {"save ahead, then a pause", nothing,
         [save](Populated& world) {
             const auto saved = save(world);
             world.pause("swept");
         },
         is_paused},
    };
}
} // namespace test
