// The duration of a pause and a resume, compared with the driver's own calls on the same bytes; and the first replay of
// a graph after a resume, compared with later ones.
#pragma once

#include "session.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace engine {

class Timings {
public:
    Timings(Session& session, Engine& engine) : session_{session}, engine_{engine} {
        check_cuda(cudaDeviceGetAttribute(&multiprocessors_, cudaDevAttrMultiProcessorCount, session.options.device),
                   "query the number of multiprocessors");
    }

    void run() {
        session_.log.phase("timed rounds (not sampled)");
        const auto quiet = session_.log.quiet(); // sampling from outside would disturb
        const int rounds = session_.options.rounds;
        std::printf("Timed, %d rounds\n", rounds);
        without_weights(rounds);
        with_weights(rounds);
        session_.log.phase("idle");
    }

private:
    using Samples = std::vector<double>;

    struct Replays {
        Samples first, later;           ///< between two events on the stream, ms
        Samples first_wall, later_wall; ///< from the call until the host knows the result, ms
    };

    void without_weights(int rounds) {
        Samples pauses, resumes, rested, floors;
        Replays replays;
        std::size_t mapped = 0;
        std::size_t restored = 0;
        for (int i = 0; i < rounds; ++i) {
            warm_clocks();
            pauses.push_back(timed([&] { engine_.saver().pause(light_tags); }));
            resumes.push_back(timed([&] {
                const memsaver::Report report = engine_.saver().resume(light_tags);
                mapped = report.mapped_bytes;
                restored = report.restored_bytes;
            }));
            replay(session_.options.batches.front(), replays);
        }
        for (int i = 0; i < std::min(rounds, 5); ++i) { // pages that had time to be cleared
            engine_.saver().pause(light_tags);
            std::this_thread::sleep_for(std::chrono::milliseconds{500});
            rested.push_back(timed([&] { engine_.saver().resume(light_tags); }));
        }
        for (int i = 0; i < std::min(rounds, 5);
             ++i) { // the same bytes, the same state of the device, without memsaver
            engine_.saver().pause(light_tags);
            floors.push_back(take_by_the_driver(mapped));
            engine_.saver().resume(light_tags);
        }
        if (session_.options.memsaver) {
            const double gib = static_cast<double>(mapped) / (1 << 30);
            const double copy = static_cast<double>(restored) / 50e9 * 1000;
            std::printf(
                "  cache, graphs and workspaces, %.2f GiB, of which %s is copied: pause %.2f ms, resume %.2f ms "
                "(first %.2f ms, after a rest %.2f ms, the driver's calls alone %.2f ms)\n",
                gib, mib(static_cast<Bytes>(restored)).c_str(), median(pauses), median(resumes), resumes.front(),
                median(rested), median(floors));
            session_.aim("resume of cache, graphs and workspaces", median(resumes), 3 * std::max(1.0, gib / 20) + copy,
                         true, "ms");
        }
        session_.results.put("without_weights", Json{}
                                                    .put("mapped_bytes", mapped)
                                                    .put("restored_bytes", restored)
                                                    .put("pause_ms", pauses)
                                                    .put("resume_ms", resumes)
                                                    .put("resume_rested_ms", rested)
                                                    .put("driver_take_ms", floors)
                                                    .put("replay", json_of(replays, session_.options.batches.front())));
        told(replays, session_.options.batches.front());
    }

    void with_weights(int rounds) {
        Samples pauses, resumes;
        Replays replays;
        for (int i = 0; i < rounds; ++i) {
            warm_clocks();
            pauses.push_back(timed([&] { engine_.saver().pause(); }));
            resumes.push_back(timed([&] { engine_.saver().resume(); }));
            replay(session_.options.largest_batch(), replays);
        }
        std::printf("  all tags: pause %.1f ms (weights unchanged: nothing to save), resume %.1f ms\n", median(pauses),
                    median(resumes));
        session_.results.put("all_tags", Json{}
                                             .put("pause_ms", pauses)
                                             .put("resume_ms", resumes)
                                             .put("replay", json_of(replays, session_.options.largest_batch())));
        told(replays, session_.options.largest_batch());
    }

    /// Times one replay right after a resume, then later ones, with the clocks up.
    void replay(int batch, Replays& replays) {
        const memsaver::Graph& graph = engine_.decoder().graph_for(batch).graph;
        warm_clocks();
        replay_once(graph, replays.first, replays.first_wall);
        Samples skipped;
        replay_once(graph, skipped, skipped);
        for (int i = 0; i < 5; ++i) replay_once(graph, replays.later, replays.later_wall);
    }
    void replay_once(const memsaver::Graph& graph, Samples& device, Samples& wall) {
        check_cuda(cudaEventRecord(begin_.get(), engine_.stream()), "record the start event");
        wall.push_back(timed([&] {
            graph.launch(engine_.stream());
            engine_.synchronize();
        }));
        check_cuda(cudaEventRecord(end_.get(), engine_.stream()), "record the end event");
        check_cuda(cudaEventSynchronize(end_.get()), "wait for the end event");
        float milliseconds = 0;
        check_cuda(cudaEventElapsedTime(&milliseconds, begin_.get(), end_.get()), "read the elapsed time");
        device.push_back(static_cast<double>(milliseconds));
    }
    void told(const Replays& replays, int batch) {
        std::printf("  batch of %d: first replay after a resume %.3f ms, later replays %.3f ms (medians)\n", batch,
                    median(replays.first), median(replays.later));
        session_.aim("first replay / later replay, batch of " + std::to_string(batch),
                     median(replays.first) / median(replays.later), 1.1, true, "");
    }
    static Json json_of(const Replays& replays, int batch) {
        return Json{}
            .put("batch", batch)
            .put("first_ms", replays.first)
            .put("later_ms", replays.later)
            .put("first_wall_ms", replays.first_wall)
            .put("later_wall_ms", replays.later_wall);
    }

    /// Measures allocating and mapping the same size with driver calls alone, in handles of 1 GiB.
    double take_by_the_driver(std::size_t bytes) {
        using namespace memsaver::literals;
        if (bytes == 0) return 0;
        const memsaver::CudaDriver& driver = engine_.driver();
        constexpr std::size_t piece = 1_GiB;
        const std::size_t whole = round_up(bytes, 2_MiB);
        std::vector<std::pair<std::size_t, memsaver::PageHandle>> pieces;
        memsaver::Address at = 0;
        memsaver::check(driver.reserve(whole, 2_MiB, at), "reserve addresses");
        const double elapsed = timed([&] {
            for (std::size_t done = 0; done < whole; done += piece) {
                const std::size_t size = std::min(piece, whole - done);
                memsaver::PageHandle handle;
                memsaver::check(driver.create(size, handle), "create pages");
                memsaver::check(driver.map(at + done, size, handle), "map pages");
                pieces.emplace_back(size, handle);
            }
            memsaver::check(driver.allow_access(at, whole), "allow access");
        });
        std::size_t done = 0;
        for (const auto& [size, handle] : pieces) {
            memsaver::check(driver.unmap(at + done, size), "unmap pages");
            memsaver::check(driver.release(handle), "release pages");
            done += size;
        }
        memsaver::check(driver.unreserve(at, whole), "unreserve addresses");
        return elapsed;
    }

    void warm_clocks() {
        spin(50'000'000, multiprocessors_, engine_.stream());
        engine_.synchronize();
    }
    template <class Act>
    static double timed(Act&& act) {
        const auto start = Clock::now();
        act();
        return milliseconds_since(start);
    }

    Session& session_;
    Engine& engine_;
    TimedEvent begin_ = make_event();
    TimedEvent end_ = make_event();
    int multiprocessors_ = 0;
};

} // namespace engine
