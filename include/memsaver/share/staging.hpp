// Bytes of the device through a buffer of the host, and their hashes. Works on any device, at the speed of the link.
#pragma once

#include "memsaver/core/error.hpp"
#include "memsaver/core/function_ref.hpp"
#include "memsaver/core/sizes.hpp"
#include "memsaver/driver/owned.hpp"
#include "memsaver/share/xxh64.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {

/// Pages that are mapped for a while.
struct Window {
    Window(const AnyDriver& driver, PageHandle pages, std::size_t bytes, Rights rights) {
        std::size_t granularity = 0;
        check(driver.granularity(granularity), "query the granularity");
        check(addresses.open(driver, bytes, granularity), "reserve addresses", bytes, 0);
        check(mapping.open(driver, Range{address(), bytes}, pages), "map pages", bytes, address());
        check(driver.allow_access(address(), bytes, rights), "allow access", bytes, address());
    }
    [[nodiscard]] Address address() const noexcept { return addresses.get().address; }

    Reservation addresses;
    Mapping mapping;
};

class Staging {
public:
    static constexpr std::size_t bytes = 4_MiB;
    static constexpr std::size_t hashed_at_once = 64_KiB;
    static constexpr std::size_t unpinned = 1_MiB; ///< pinning costs more than it gains for so little

    /// `at_most`: what is copied at once, if that is less.
    explicit Staging(AnyDriver driver, std::size_t at_most = bytes)
        : driver_{std::move(driver)}, size_{std::clamp(align_up(at_most, hashed_at_once), hashed_at_once, bytes)} {
        check(stream_.open(driver_), "open a stream");
        check(event_.open(driver_, stream_.get()), "open an event");
        if (size_ <= unpinned) {
            small_.resize(size_);
            buffer_ = small_.data();
            return;
        }
        check(driver_.map_host(size_, buffer_), "map host memory");
        Status status = driver_.populate_host(buffer_, size_);
        if (status.ok()) status = driver_.pin_host(buffer_, size_);
        if (status.ok()) return;
        (void)driver_.unmap_host(buffer_, size_);
        check(status, "allocate host memory");
    }
    Staging(const Staging&) = delete;
    Staging& operator=(const Staging&) = delete;
    ~Staging() {
        if (!small_.empty()) return;
        // Pages that cannot be unpinned stay: their addresses must not be used for others.
        if (driver_.unpin_host(buffer_).ok() || driver_.unpin_host(buffer_).ok())
            (void)driver_.unmap_host(buffer_, size_);
    }

    void zero(Range range) {
        check(driver_.fill(range.address, 0, range.bytes, stream_.get()), "fill", range.bytes, range.address);
        check(wait(), "fill");
    }
    void copy(Address to, Address from, std::size_t count) {
        each_part({from, count}, [&](std::size_t done, std::size_t part) {
            check(driver_.copy_to_device(to + done, buffer_, part, stream_.get()), "copy to the device", part, to);
            check(wait(), "copy to the device");
        });
    }
    /// Writes the hash of each 64 KiB of a part, at most as large as the buffer.
    void hash(Range part, std::uint64_t* hashes) {
        each_part(part, [&](std::size_t, std::size_t count) {
            for (std::size_t i = 0; i < count; i += hashed_at_once)
                *hashes++ = xxh64(static_cast<const char*>(buffer_) + i, std::min(hashed_at_once, count - i));
        });
    }

private:
    void each_part(Range range, FunctionRef<void(std::size_t, std::size_t)> act) {
        for (std::size_t done = 0; done < range.bytes; done += size_) {
            const std::size_t part = std::min(size_, range.bytes - done);
            check(driver_.copy_to_host(buffer_, range.address + done, part, stream_.get()), "copy to the host", part,
                  range.address + done);
            check(wait(), "copy to the host");
            act(done, part);
        }
    }
    /// Nothing is in flight afterwards.
    Status wait() noexcept {
        Status status = driver_.record(event_.get(), stream_.get());
        if (status.ok()) status = driver_.wait(event_.get());
        if (!status.ok()) (void)driver_.drain();
        return status;
    }

    const AnyDriver driver_;
    const std::size_t size_;
    OwnedStream stream_;
    OwnedEvent event_;
    std::vector<char> small_;
    void* buffer_ = nullptr;
};

/// XXH64 of each 64 KiB of a range, then of those; of several ranges, on several threads.
inline std::vector<std::uint64_t> hashes_of(const AnyDriver& driver, const std::vector<Range>& ranges) {
    struct Part {
        Range range;
        std::uint64_t* to;
    };
    std::vector<std::vector<std::uint64_t>> hashes;
    std::vector<Part> parts;
    for (const Range& each : ranges) {
        hashes.emplace_back((each.bytes + Staging::hashed_at_once - 1) / Staging::hashed_at_once);
        for (std::size_t done = 0; done < each.bytes; done += Staging::bytes)
            parts.push_back({{each.address + done, std::min(Staging::bytes, each.bytes - done)},
                             hashes.back().data() + done / Staging::hashed_at_once});
    }
    std::atomic<std::size_t> next{0};
    std::mutex mutex;
    std::exception_ptr failure;
    const auto work = [&] {
        try {
            Staging staging{driver};
            for (std::size_t i = next++; i < parts.size(); i = next++) staging.hash(parts[i].range, parts[i].to);
        } catch (...) {
            const std::lock_guard lock{mutex};
            if (failure == nullptr) failure = std::current_exception();
            next = parts.size();
        }
    };
    constexpr std::size_t most = 8; // more than the link needs
    std::vector<std::thread> threads;
    try {
        const std::size_t useful = std::min({most, parts.size() / 4, std::size_t{std::thread::hardware_concurrency()}});
        threads.reserve(useful);
        while (threads.size() + 1 < useful) threads.emplace_back(work);
    } catch (const std::exception&) { // fewer threads do it too
    }
    work();
    for (std::thread& each : threads) each.join();
    if (failure != nullptr) std::rethrow_exception(failure);
    std::vector<std::uint64_t> all;
    for (const auto& each : hashes) all.push_back(xxh64(each.data(), each.size() * sizeof(std::uint64_t)));
    return all;
}

} // namespace detail

} // namespace memsaver::inline v0_3
