// Baselines for backups: one plain pinned copy, raw direct I/O, cudaMallocHost. Independent of tags and policies.
#pragma once

#include "bench.hpp"
#include "memsaver/driver/host_cells.hpp"
#include "memsaver/driver/owned.hpp"

#if MEMSAVER_BENCH_CUDART
#include <cuda_runtime_api.h>
#endif

#include <atomic>
#include <deque>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace bench {

/// Pinned host memory of a size.
struct PinnedMemory : PinnedBuffer {
    PinnedMemory(const AnyDriver& driver, std::size_t bytes) { check(take(driver, bytes), "allocate pinned memory"); }
};

/// The first touch of a machine's memory can be far slower than later ones: virtual machines grow as memory is used,
/// and shrink when memory has been free for a while. Touches `bytes`, or three quarters of the available memory if that
/// is less, and frees them, so that allocations right after this are fast.
template <Driver D>
void warm_host_memory(const D& driver, std::size_t bytes, unsigned threads = 16) {
    if (on_host<D>) return;
    std::size_t available = 0;
    check(driver.host_available(available), "query the available host memory");
    bytes = align_down(std::min(bytes, available / 4 * 3), 1_GiB);
    if (bytes == 0) return;
    void* pages = nullptr;
    check(driver.map_host(bytes, pages), "map host pages");
    std::atomic<std::size_t> next{0};
    std::vector<std::thread> crew;
    for (unsigned i = 0; i < threads; ++i) {
        crew.emplace_back([&] {
            for (std::size_t at = next.fetch_add(1_GiB); at < bytes; at = next.fetch_add(1_GiB)) {
                (void)driver.populate_host(static_cast<std::byte*>(pages) + at, 1_GiB);
            }
        });
    }
    for (std::thread& thread : crew) thread.join();
    check(driver.unmap_host(pages, bytes), "unmap host pages");
}

/// Copies a whole range to and from one pinned buffer of its size.
template <Driver D>
class PlainCopy {
public:
    PlainCopy(const D& driver, void* device, std::size_t bytes)
        : driver_{driver}, device_{reinterpret_cast<Address>(device)}, bytes_{bytes}, host_{driver, bytes} {
        if (!host_.pinned()) throw std::runtime_error{"host pages cannot be pinned on this machine"};
        check(stream_.open(driver_), "open a stream");
        check(event_.open(driver_, stream_.get()), "open an event");
    }
    void out() {
        check(driver_.copy_to_host(host_.data(), device_, bytes_, stream_.get()), "copy out");
        finish();
    }
    void in() {
        check(driver_.copy_to_device(device_, host_.data(), bytes_, stream_.get()), "copy in");
        finish();
    }

private:
    void finish() {
        check(driver_.record(event_.get(), stream_.get()), "record");
        check(driver_.wait(event_.get()), "wait for a copy");
    }

    D driver_;
    Address device_;
    std::size_t bytes_;
    PinnedMemory host_;
    OwnedStream stream_;
    OwnedEvent event_;
};

/// A file of the same kind as a backup's, written and read by the same number of threads in parts of the same size,
/// with nothing else.
template <Driver D>
class RawFile {
public:
    RawFile(const D& driver, std::string directory, std::size_t bytes, unsigned threads, std::size_t part)
        : driver_{driver}, directory_{std::move(directory)}, bytes_{bytes}, part_{part} {
        for (unsigned i = 0; i < threads; ++i) {
            buffers_.emplace_back(driver_, part);
            std::fill_n(buffers_.back().data(), part, std::byte{0x5A});
        }
    }
    /// Writes to a new file, whose space is preallocated.
    void write() {
        check(file_.open(driver_, directory_.c_str()), "open a file");
        check(driver_.allocate_file(file_.get(), 0, bytes_), "allocate file space");
        each_part([&](std::byte* buffer, std::size_t at, std::size_t bytes) {
            return driver_.write_file(file_.get(), buffer, bytes, at);
        });
    }
    void read() {
        each_part([&](std::byte* buffer, std::size_t at, std::size_t bytes) {
            return driver_.read_file(file_.get(), buffer, bytes, at);
        });
    }
    void close() { file_ = {}; }
    [[nodiscard]] bool direct() const noexcept { return file_.get().direct; }

private:
    template <class Act>
    void each_part(Act&& act) {
        std::atomic<std::size_t> next{0};
        std::vector<Status> failed(buffers_.size());
        std::vector<std::thread> crew;
        for (std::size_t i = 0; i < buffers_.size(); ++i) {
            crew.emplace_back([&, i] {
                for (std::size_t at = next.fetch_add(part_); at < bytes_; at = next.fetch_add(part_)) {
                    const Status status = act(buffers_[i].data(), at, std::min(part_, bytes_ - at));
                    if (!status.ok()) failed[i] = status;
                }
            });
        }
        for (std::thread& thread : crew) thread.join();
        for (const Status& status : failed) check(status, "read or write a file");
    }

    D driver_;
    std::string directory_;
    std::size_t bytes_;
    std::size_t part_;
    std::deque<PinnedMemory> buffers_;
    OwnedFile file_;
};

#if MEMSAVER_BENCH_CUDART
/// The naive approach: cudaMallocHost and one copy, in milliseconds. Excludes freeing it.
inline double allocate_and_copy(const void* device, std::size_t bytes) {
    const auto must = [](cudaError_t error) {
        if (error != cudaSuccess) throw std::runtime_error{cudaGetErrorString(error)};
    };
    void* host = nullptr;
    const double took = milliseconds([&] {
        must(cudaMallocHost(&host, bytes));
        must(cudaMemcpy(host, device, bytes, cudaMemcpyDeviceToHost));
    });
    must(cudaFreeHost(host));
    return took;
}
#endif

} // namespace bench
