// A trainer group and a rollout group, with one saver per rank. While one group works, the other is paused. New weights
// reach the rollout by broadcast into resumed weights while its cache is still paused, into the paused backup, or part
// by part into weights that are still being restored. See README.md.
#include "link.hpp"
#include "world.hpp"

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

using namespace memsaver;
using cluster::download;
using cluster::upload;

namespace {

/// Parses a fault from the environment: "2:17" selects rank 2 in round 17.
struct Planted {
    explicit Planted(const char* variable) {
        const char* const text = std::getenv(variable);
        if (text == nullptr) return;
        char* end = nullptr;
        rank = static_cast<int>(std::strtol(text, &end, 10));
        if (*end == ':') round = static_cast<int>(std::strtol(end + 1, nullptr, 10));
    }
    [[nodiscard]] bool now(const cluster::World& world, int in) const { return rank == world.rank() && round == in; }
    int rank = -1;
    int round = 0;
};

std::size_t number(const char* variable, std::size_t otherwise) {
    const char* const text = std::getenv(variable);
    return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

std::uint64_t checksum(const std::vector<std::uint64_t>& words) { // FNV-1a, one word at a time
    std::uint64_t sum = 14695981039346656037ULL;
    for (const std::uint64_t word : words) sum = (sum ^ word) * 1099511628211ULL;
    return sum;
}

AnyDriver own_device(const cluster::World& world, std::size_t bytes) {
    const int gpus = CudaDriver::available() ? CudaDriver::device_count() : 0;
    if (gpus > 0) return CudaDriver{world.on_host() % gpus};
    return HostDriver{4 * bytes + 64_MiB, {.device = world.rank()}};
}

class Rank {
public:
    Rank(const cluster::World& world, std::size_t bytes)
        : world_{world}, driver_{own_device(world, bytes)}, saver_{driver_}, link_{world, saver_},
          other_tag_{world.trains() ? "optimizer" : "cache"}, own_{"weights", other_tag_},
          weights_{saver_.arena("weights", HostBackup{}), bytes / 8},
          other_{world.trains() ? saver_.arena("optimizer", HostBackup{}) : saver_.arena("cache", Discard{}), bytes},
          model_(bytes / 8) {
        check(driver_.open_stream(stream_), "open a stream");
        check(driver_.map_host(page, token_), "map host memory"); // a graph can copy to it
        check(driver_.pin_host(token_, page), "pin host memory");
        upload(driver_, weights_.data(), model_.data(), bytes);
        if (world.trains()) {
            saver_.pause(own_); // the rollout starts
            return;
        }
        decode_ = capture(saver_, "graph", stream_, [&] { // reads the weights, writes the cache
            check(driver_.copy_to_host(token_, at(weights_.data()), page, stream_), "decode");
            check(driver_.fill(at(other_.data()), 7, bytes, stream_), "decode");
        });
    }
    Rank(const Rank&) = delete;
    Rank& operator=(const Rank&) = delete;
    ~Rank() {
        decode_.reset();
        (void)driver_.unpin_host(token_);
        (void)driver_.unmap_host(token_, page);
        (void)driver_.close_stream(stream_);
    }

    void round(int n) {
        const bool rollout = !world_.trains();
        const Tags none{std::vector<std::string>{}};
        const bool planted = fail_.now(world_, n);
        if (rollout) replay();
        require_same_plan(disagree_.now(world_, n));
        pause_together("pause of the rollout", rollout ? own_ : none);
        pause_together("pause of the link", "link");
        resume_together("resume of the trainer", rollout ? none : own_);
        if (!rollout) train(n); // all trainers compute the same, like data-parallel ranks after an all-reduce
        resume_together("resume of the link", "link");
        const Tags weights = rollout ? Tags{"weights"} : none;
        const Tags cache = rollout ? Tags{"cache"} : none;
        if (n % 3 == 0) { // into resumed weights, while the cache is still paused
            resume_together("resume of the weights", weights, {.bytes = Discard{}}, planted);
            link_.broadcast(weights_.data(), bytes());
            pause_together("pause of the trainer", rollout ? none : own_);
            resume_together("resume of the cache", cache);
        } else if (n % 3 == 1) { // into the backup, while the whole rollout is paused
            world_.broadcast(model_.data(), bytes());
            if (rollout) saver_.write_backup(weights_.data(), model_.data(), bytes());
            pause_together("pause of the trainer", rollout ? none : own_);
            resume_together("resume of the rollout", rollout ? own_ : none, {}, planted);
        } else { // into weights that are being restored, each part after its old bytes
            Arrival coming;
            resume_together("streamed resume of the weights", weights, {}, planted, rollout ? &coming : nullptr);
            resume_together("resume of the cache", cache);
            link_.broadcast(weights_.data(), bytes(), coming, stream_);
            check(driver_.drain(), "broadcast");
            if (rollout) coming.wait();
            pause_together("pause of the trainer", rollout ? none : own_);
        }
        compare();
    }

    /// The cost of an update for a paused rollout: resume its weights and cache, broadcast new weights, replay the
    /// graph. Compared with one plain copy of the same size and with the broadcast alone. In milliseconds: the slowest
    /// rank, median of several runs. Trainers are paused before and after.
    struct Measured {
        double copy = 0;
        double broadcast = 0;
        double streamed = 0;       ///< each part of the new weights follows the restored part of the old ones
        double with_old_bytes = 0; ///< all old bytes are restored first
        double without = 0;        ///< no old bytes are restored
        double link_sleeps = 0;
        double link_wakes = 0;
        std::size_t link_bytes = 0; ///< additional free bytes on rank 0's device while the link is paused
    };
    Measured measure() {
        const bool rollout = !world_.trains();
        const Tags none{std::vector<std::string>{}};
        Measured found;
        resume_together("resume of the trainer", rollout ? none : own_);
        void* host = nullptr;
        check(driver_.map_host(bytes(), host), "map host memory");
        check(driver_.pin_host(host, bytes()), "pin host memory");
        download(driver_, host, weights_.data(), bytes());
        found.copy = median_of([] {}, [&] { upload(driver_, weights_.data(), host, bytes()); });
        check(driver_.unpin_host(host), "unpin host memory");
        check(driver_.unmap_host(host, bytes()), "unmap host memory");
        found.broadcast = median_of([] {}, [&] { link_.broadcast(weights_.data(), bytes()); });
        const auto update = [&](auto&& resume_and_send) {
            return median_of(
                [&] {
                    if (rollout) saver_.pause(own_);
                },
                [&] {
                    resume_and_send();
                    if (rollout) decode_.launch(stream_);
                    check(driver_.drain(), "decode");
                });
        };
        Arrival coming;
        found.streamed = update([&] {
            if (rollout) coming = saver_.resume_async("weights");
            if (rollout) saver_.resume("cache");
            link_.broadcast(weights_.data(), bytes(), coming, stream_);
        });
        const auto in_turn = [&](const ResumeOptions& options) {
            if (rollout) saver_.resume(own_, options);
            link_.broadcast(weights_.data(), bytes());
        };
        found.with_old_bytes = update([&] { in_turn({}); });
        found.without = update([&] { in_turn({.bytes = Discard{}}); });
        DeviceMemory awake, asleep;
        check(driver_.memory(awake), "query free memory");
        found.link_sleeps = timed([&] { pause_together("pause of the link", "link"); });
        check(driver_.memory(asleep), "query free memory");
        found.link_bytes = asleep.free_bytes - awake.free_bytes;
        found.link_wakes = timed([&] { resume_together("resume of the link", "link"); });
        pause_together("pause of the trainer", rollout ? none : own_);
        compare();
        return found;
    }

    [[nodiscard]] std::string link() const { return link_.name(); }
    [[nodiscard]] int retried() const { return retried_; }
    void close() {
        decode_.reset();
        link_.end();
        saver_.close();
    }

private:
    static constexpr std::size_t page = 4096;
    static Address at(const void* pointer) { return reinterpret_cast<Address>(pointer); }
    [[nodiscard]] std::size_t bytes() const { return weights_.size_bytes(); }

    /// Throws unless the ranks of each group are about to pause or resume the same tags and bytes. `planted`: this rank
    /// differs on the first attempt.
    void require_same_plan(bool planted) {
        const auto agree = [&] {
            std::string plan;
            for (const ArenaUsage& row : saver_.usage()) {
                if (row.tag == "weights" || row.tag == other_tag_)
                    plan += (plan.empty() ? "" : ", ") + row.tag + " of " + format_bytes(row.used_bytes);
            }
            world_.require_same("tags to pause differ; nothing was paused", plan);
        };
        Buffer<char> more;
        if (planted) more = Buffer<char>{saver_.arena(other_tag_), 1_MiB};
        try {
            agree();
        } catch (const cluster::Disagreement& error) { // on all ranks
            if (world_.rank() == 0) std::cerr << error.what() << std::endl;
            more.reset();
            agree();
        }
    }

    void pause_together(const char* what, const Tags& tags) {
        world_.together(
            what, [&] { saver_.pause(tags); }, [&] { saver_.resume(tags); });
    }
    /// `planted`: on the first attempt, another allocation takes all of the device. `coming`: the call returns while
    /// bytes are still being restored.
    void resume_together(const char* what, const Tags& tags, const ResumeOptions& options = {}, bool planted = false,
                         Arrival* coming = nullptr) {
        retried_ += world_.together(
            what,
            [&] {
                const Region outside = saver_.outside();
                std::optional<Buffer<char>> somebody;
                DeviceMemory memory;
                check(driver_.memory(memory), "query free memory");
                if (std::exchange(planted, false)) somebody.emplace(outside, memory.free_bytes / 2_MiB * 2_MiB);
                if (coming != nullptr) {
                    *coming = saver_.resume_async(tags);
                } else {
                    saver_.resume(tags, options);
                }
            },
            [&] { saver_.pause(tags, {.bytes = options.bytes}); });
    }

    template <class Step>
    [[nodiscard]] double timed(const Step& step) const {
        (void)world_.sum(0); // all ranks start together
        const double begun = MPI_Wtime();
        step();
        return 1000 * world_.slowest(MPI_Wtime() - begun);
    }
    template <class Before, class Step>
    [[nodiscard]] double median_of(const Before& before, const Step& step) const {
        std::vector<double> all;
        for (int i = 0; i < 6; ++i) {
            before();
            const double took = timed(step);
            if (i > 0) all.push_back(took); // discards the first run as warm-up
        }
        std::nth_element(all.begin(), all.begin() + 2, all.end());
        return all[2];
    }

    void train(int n) {
        download(driver_, model_.data(), weights_.data(), bytes());
        for (std::size_t i = 0; i < model_.size(); ++i) model_[i] = model_[i] * 3 + i + static_cast<std::uint64_t>(n);
        upload(driver_, weights_.data(), model_.data(), bytes());
    }

    /// Replays the graph captured at the beginning. The current weights are at the same addresses.
    void replay() {
        decode_.launch(stream_);
        check(driver_.drain(), "decode");
        std::vector<char> cache(bytes());
        download(driver_, cache.data(), other_.data(), cache.size());
        download(driver_, model_.data(), weights_.data(), bytes());
        if (std::memcmp(token_, model_.data(), page) != 0 || cache.front() != 7 || cache.back() != 7)
            throw std::runtime_error{"the graph replay read or wrote wrong memory"};
    }

    /// Throws unless every rank has the same weights. The rollout's are read from the device, the trainers' from the
    /// backup.
    void compare() {
        const bool rollout = !world_.trains();
        if (rollout) download(driver_, model_.data(), weights_.data(), bytes());
        if (!rollout) std::memcpy(model_.data(), saver_.backup_view(weights_.data(), bytes()).data(), bytes());
        std::uint64_t first = checksum(model_);
        const std::uint64_t mine = first;
        world_.broadcast(&first, sizeof first);
        if (world_.sum(first == mine ? 0 : 1) == 0) return;
        throw std::runtime_error{
            std::string{"the checksum of the weights on "} +
            (first == mine ? "another rank differs from that of rank 0" : "this rank differs from that of rank 0")};
    }

    const cluster::World& world_;
    AnyDriver driver_;
    MemorySaver<> saver_;
    cluster::Link link_;
    std::string other_tag_;
    Tags own_;
    Buffer<std::uint64_t> weights_;
    Buffer<char> other_;               // the optimizer's moments, or the cache
    std::vector<std::uint64_t> model_; // on the host
    StreamRef stream_;
    void* token_ = nullptr;
    Graph decode_;
    const Planted fail_{"CLUSTER_FAIL"};
    const Planted disagree_{"CLUSTER_DISAGREE"};
    int retried_ = 0;
};

} // namespace

int main(int argc, char** argv) {
    cluster::World world{&argc, &argv};
    try {
        if (world.size() < 2) throw std::runtime_error{"needs two ranks or more; run it with mpirun -n 4"};
        const auto rounds = static_cast<int>(number("CLUSTER_ROUNDS", 50));
        const std::size_t bytes = (number("CLUSTER_BYTES", 8_MiB) + 4095) / 4096 * 4096;
        Rank rank{world, bytes};
        const Planted killed{"CLUSTER_KILL"};
        const double begun = MPI_Wtime();
        for (int n = 0; n < rounds; ++n) {
            if (killed.now(world, n)) std::raise(SIGKILL);
            rank.round(n);
        }
        const double seconds = world.slowest(MPI_Wtime() - begun);
        std::optional<Rank::Measured> measured;
        if (std::getenv("CLUSTER_MEASURE") != nullptr) measured = rank.measure();
        rank.close();
        const int retried = world.sum(rank.retried()) / world.size();
        if (world.rank() == 0) {
            std::cout << rounds << " rounds on " << world.size() << " ranks over " << rank.link() << ": "
                      << 1000 * seconds / rounds << " ms each, " << retried << " retried, all weights identical\n";
            if (measured) {
                std::cout << "{\"ranks\": " << world.size() << ", \"link\": \"" << rank.link()
                          << "\", \"bytes\": " << bytes << ", \"rounds\": " << rounds
                          << ", \"round_ms\": " << 1000 * seconds / rounds << ", \"plain_copy_ms\": " << measured->copy
                          << ", \"broadcast_ms\": " << measured->broadcast << ", \"update_ms\": " << measured->streamed
                          << ", \"update_in_turn_ms\": " << measured->with_old_bytes
                          << ", \"update_without_old_bytes_ms\": " << measured->without
                          << ", \"ratio\": " << measured->streamed / (measured->copy + measured->broadcast)
                          << ", \"link_sleeps_ms\": " << measured->link_sleeps
                          << ", \"link_wakes_ms\": " << measured->link_wakes
                          << ", \"link_given_back_bytes\": " << measured->link_bytes << "}\n";
            }
        }
    } catch (const std::exception& error) {
        std::cerr << "rank " << world.rank() << ": " << error.what() << std::endl;
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}
