// Transfers the weights: by NCCL between GPUs if the build found it and each rank has a GPU; otherwise by MPI through
// host memory.
#pragma once

#include "world.hpp"

#include <memsaver/memsaver.hpp>
#include <memsaver/saver/registrations.hpp>

#ifdef CLUSTER_NCCL
#include <memsaver/interop/nccl.hpp>

#include <cuda_runtime_api.h>
#include <nccl.h>
#endif

#include <algorithm>
#include <cstddef>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace cluster {

using memsaver::AnyDriver;
using memsaver::Arrival;
using memsaver::MemorySaver;
using memsaver::StreamRef;

/// Copies device memory to host memory (download) or back (upload). Complete when the call returns.
inline void download(const AnyDriver& driver, void* to, const void* from, std::size_t bytes) {
    memsaver::check(driver.copy_to_host(to, reinterpret_cast<memsaver::Address>(from), bytes, nullptr), "download");
    memsaver::check(driver.drain(), "download");
}
inline void upload(const AnyDriver& driver, void* to, const void* from, std::size_t bytes) {
    memsaver::check(driver.copy_to_device(reinterpret_cast<memsaver::Address>(to), from, bytes, nullptr), "upload");
    memsaver::check(driver.drain(), "upload");
}

/// A communicator over all ranks. Its own memory on a GPU and a network-registered buffer form the tag "link". All
/// ranks pause and resume it at once, because suspending a communicator is collective.
class Link {
public:
    static constexpr std::size_t buffer_bytes = 2 << 20;

    Link(const World& world, MemorySaver<>& saver)
        : world_{world}, driver_{saver.driver()}, buffer_{saver.arena("link", memsaver::Discard{},
                                                                      memsaver::ArenaOptions{.single_handle = true}),
                                                          buffer_bytes},
          registrations_{saver} {
#ifdef CLUSTER_NCCL
        // NCCL refuses ranks that share a GPU, so either all ranks initialize it or none.
        const bool shared = world.sum(world.on_host() < memsaver::CudaDriver::device_count() ? 0 : 1) != 0;
        if (!shared && !driver_.host_addressable()) {
            ncclUniqueId id{};
            if (cudaSetDevice(driver_.device()) != cudaSuccess) throw std::runtime_error{"cudaSetDevice failed"};
            if (world.rank() == 0) demand(ncclGetUniqueId(&id), "ncclGetUniqueId");
            world.broadcast(&id, sizeof id);
            memsaver::check(driver_.drain(), "create the device's context"); // before NCCL looks for one
            demand(ncclCommInitRank(&comm_, world.size(), id, world.rank()), "ncclCommInitRank");
            suspended_.emplace(registrations_, comm_, memsaver::NcclOptions{.who = "all ranks", .tags = "link"});
            registered_ = suspended_->buffer(buffer_.data(), buffer_bytes);
            return;
        }
#endif
        registered_ = registrations_.add(buffer_.data(), buffer_bytes, // as a network card's buffer would be
                                         {.who = "the network card",
                                          .on_pause = memsaver::OnPause::renew,
                                          .on_register = [this] { known_ += 1; },
                                          .on_deregister = [this] { known_ -= 1; }});
    }
    Link(const Link&) = delete;
    Link& operator=(const Link&) = delete;
    ~Link() {
#ifdef CLUSTER_NCCL
        registered_ = {};
        suspended_.reset();
        if (comm_ != nullptr) (void)ncclCommDestroy(comm_);
#endif
    }

    /// Deregisters the buffer. Call before its memory is freed.
    void end() { registered_.end(); }

    [[nodiscard]] std::string name() const {
#ifdef CLUSTER_NCCL
        if (comm_ != nullptr) {
            const int version = suspended_->version();
            return "NCCL " + std::to_string(version / 10000) + '.' + std::to_string(version / 100 % 100) + '.' +
                   std::to_string(version % 100);
        }
#endif
        return "MPI";
    }

    /// Broadcasts rank 0's bytes into device memory of every rank.
    void broadcast(void* bytes, std::size_t count) {
        send(bytes, count, nullptr);
        memsaver::check(driver_.drain(), "broadcast");
    }
    /// The same in parts; sends each part once `coming` has restored its old bytes. An empty `coming` restores nothing.
    /// With NCCL the operations are ordered in `stream` and the call does not wait; with MPI they are complete on
    /// return.
    void broadcast(void* bytes, std::size_t count, const Arrival& coming, StreamRef stream) {
        constexpr std::size_t parts = 32, page = 4096;
        const std::size_t most = (count + parts * page - 1) / (parts * page) * page;
        for (std::size_t at = 0; at < count; at += most) {
            void* const part = static_cast<char*>(bytes) + at;
            const std::size_t size = std::min(most, count - at);
            if (coming && in_order()) coming.before(stream, part, size);
            if (coming && !in_order()) coming.wait(part, size);
            send(part, size, stream);
        }
    }

private:
    /// Returns whether operations are ordered in a stream; otherwise this thread executes them.
    [[nodiscard]] bool in_order() const {
#ifdef CLUSTER_NCCL
        return comm_ != nullptr;
#else
        return false;
#endif
    }
    void send(void* bytes, std::size_t count, [[maybe_unused]] StreamRef stream) {
        if (!registered_.registered()) throw std::runtime_error{"the link is paused"};
#ifdef CLUSTER_NCCL
        if (comm_ != nullptr) {
            const auto native = static_cast<cudaStream_t>(stream.native());
            return demand(ncclBroadcast(bytes, bytes, count, ncclChar, 0, comm_, native), "ncclBroadcast");
        }
#endif
        if (driver_.host_addressable()) return world_.broadcast(bytes, count);
        std::vector<char> host(count);
        if (world_.rank() == 0) download(driver_, host.data(), bytes, count);
        world_.broadcast(host.data(), count);
        if (world_.rank() != 0) upload(driver_, bytes, host.data(), count);
    }

#ifdef CLUSTER_NCCL
    static void demand(ncclResult_t result, const char* call) {
        if (result != ncclSuccess) throw std::runtime_error{std::string{call} + ": " + ncclGetErrorString(result)};
    }
    ncclComm_t comm_ = nullptr;
#endif
    const World& world_;
    AnyDriver driver_;
    int known_ = 0;
    memsaver::Buffer<char> buffer_;
    memsaver::Registrations registrations_;
#ifdef CLUSTER_NCCL
    std::optional<memsaver::NcclComm> suspended_;
#endif
    memsaver::Registration registered_;
};

} // namespace cluster
