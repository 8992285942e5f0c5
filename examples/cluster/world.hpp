// The ranks, over MPI, and the points where they must agree before they continue.
#pragma once

#include <mpi.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

namespace cluster {

/// The ranks disagree. Every rank throws the same error.
struct Disagreement : std::runtime_error {
    using std::runtime_error::runtime_error;
};

/// All ranks. If an MPI call fails or a rank dies, MPI ends the job with its own message.
class World {
public:
    World(int* argc, char*** argv) {
        MPI_Init(argc, argv);
        MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
        MPI_Comm_size(MPI_COMM_WORLD, &size_);
        MPI_Comm host = MPI_COMM_NULL;
        MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &host);
        MPI_Comm_rank(host, &on_host_);
        MPI_Comm_free(&host);
    }
    World(const World&) = delete;
    World& operator=(const World&) = delete;
    ~World() { MPI_Finalize(); }

    [[nodiscard]] int rank() const { return rank_; }
    [[nodiscard]] int size() const { return size_; }
    /// Returns this rank's number among the ranks on its host, which selects its GPU.
    [[nodiscard]] int on_host() const { return on_host_; }
    /// The first half of the ranks trains, the second half generates rollouts.
    [[nodiscard]] bool trains() const { return rank_ < (size_ + 1) / 2; }

    void broadcast(void* bytes, std::size_t count) const { // rank 0's bytes; MPI counts in int
        constexpr std::size_t most = std::size_t{1} << 30;
        for (std::size_t at = 0; at < count; at += most) {
            const auto part = static_cast<int>(std::min(most, count - at));
            MPI_Bcast(static_cast<char*>(bytes) + at, part, MPI_BYTE, 0, MPI_COMM_WORLD);
        }
    }

    /// Throws Disagreement on every rank, naming two ranks that differ, unless all ranks of each group pass the same
    /// `said`.
    void require_same(const std::string& what, const std::string& said) const {
        using Text = std::array<char, 512>;
        Text mine{};
        mine[0] = trains() ? 't' : 'r';
        std::memcpy(mine.data() + 1, said.data(), std::min(said.size(), mine.size() - 2));
        std::vector<Text> all(static_cast<std::size_t>(size_));
        MPI_Allgather(mine.data(), sizeof mine, MPI_CHAR, all.data(), sizeof mine, MPI_CHAR, MPI_COMM_WORLD);
        for (std::size_t a = 0; a < all.size(); ++a) {
            for (std::size_t b = a + 1; b < all.size(); ++b) {
                if (all[a][0] != all[b][0] || all[a] == all[b]) continue;
                throw Disagreement{what + ": rank " + std::to_string(a) + " has " + (all[a].data() + 1) + ", rank " +
                                   std::to_string(b) + " has " + (all[b].data() + 1)};
            }
        }
    }

    /// Runs `act` on all ranks or on none: if one rank fails, those that succeeded undo it with `step_back` and all
    /// ranks retry. Returns the number of failed attempts; throws on all ranks after too many.
    int together(const char* what, const std::function<void()>& act, const std::function<void()>& step_back) const {
        constexpr int often_enough = 3;
        for (int failed = 0;; ++failed) {
            std::string error;
            try {
                act();
            } catch (const std::exception& caught) {
                error = caught.what();
                std::cerr << "rank " << rank_ << ": " << what << ": " << error << std::endl;
            }
            int ok = error.empty() ? 1 : 0;
            MPI_Allreduce(MPI_IN_PLACE, &ok, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
            if (ok == 1) return failed;
            if (error.empty()) step_back(); // the failed rank has changed nothing
            if (failed + 1 == often_enough)
                throw std::runtime_error{std::string{what} + " failed on " + (error.empty() ? "another" : "this") +
                                         " rank"};
        }
    }

    /// Reduces over all ranks.
    [[nodiscard]] int sum(int value) const {
        MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        return value;
    }
    [[nodiscard]] double slowest(double seconds) const {
        MPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
        return seconds;
    }

private:
    int rank_ = 0;
    int size_ = 1;
    int on_host_ = 0;
};

} // namespace cluster
