// Bytes of the device through a buffer of the host, and their hashes: by a kernel, or by the host at the speed of the
// link.
#pragma once

#include "memsaver/backup/crew.hpp"
#include "memsaver/core/error.hpp"
#include "memsaver/core/function_ref.hpp"
#include "memsaver/core/sizes.hpp"
#include "memsaver/core/vector.hpp"
#include "memsaver/driver/host_cells.hpp"
#include "memsaver/driver/owned.hpp"
#include "memsaver/share/hash_kernel.hpp"
#include "memsaver/share/xxh64.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace memsaver::inline v0_3::detail {

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
    static constexpr std::size_t unpinned = 1_MiB; ///< pinning costs more than it gains for so little

    /// `at_most`: what is copied at once, if that is less.
    explicit Staging(AnyDriver driver, std::size_t at_most = bytes)
        : driver_{std::move(driver)}, size_{std::clamp(align_up(at_most, hashed_at_once), hashed_at_once, bytes)} {
        check(stream_.open(driver_), "open a stream");
        check(event_.open(driver_, stream_.get()), "open an event");
        check(buffer_.take(driver_, size_, {}, size_ > unpinned), "allocate host memory");
    }
    Staging& operator=(Staging&&) = delete;
    ~Staging() { (void)buffer_.release(); } // once more when it is destroyed
    /// Whether some of its work could not be waited for.
    [[nodiscard]] bool unsettled() const noexcept { return buffer_.unsettled(); }

    void zero(Range range) {
        check(driver_.fill(range.address, 0, range.bytes, stream_.get()), "fill", range.bytes, range.address);
        check(wait(), "fill");
    }
    void read(std::byte* to, Range from) {
        each_part(from, [&](std::size_t done, std::size_t part) { std::memcpy(to + done, buffer_.data(), part); });
    }
    /// Writes what `fill(done, buffer, part)` puts into the buffer, part after part.
    void write(Range to, FunctionRef<void(std::size_t, void*, std::size_t)> fill) {
        for (std::size_t done = 0; done < to.bytes; done += size_) {
            const std::size_t part = std::min(size_, to.bytes - done);
            fill(done, buffer_.data(), part);
            check(driver_.copy_to_device(to.address + done, buffer_.data(), part, stream_.get()), "copy to the device",
                  part, to.address + done);
            check(wait(), "copy to the device");
        }
    }
    /// Writes the hash of each 64 KiB of a part, at most as large as the buffer.
    void hash(Range part, std::uint64_t* hashes) {
        each_part(part, [&](std::size_t, std::size_t count) {
            for (std::size_t i = 0; i < count; i += hashed_at_once)
                *hashes++ = xxh64(buffer_.data() + i, std::min(hashed_at_once, count - i));
        });
    }
    /// Writes the hashes of so many parts of 64 KiB. False, and nothing has happened, if the device has no kernel for
    /// it, or the kernel cannot reach the buffer.
    bool hash_by_kernel(Address from, std::size_t parts, std::uint64_t* hashes) {
        if (!buffer_.pinned()) return false;
        const std::size_t most = size_ / sizeof(std::uint64_t);
        for (std::size_t done = 0; done < parts; done += most) {
            const std::size_t count = std::min(most, parts - done);
            const Range range{from + done * hashed_at_once, count * hashed_at_once};
            const Status status =
                driver_.run_kernel({.code = &hash_kernel,
                                    .arguments = {range.address, reinterpret_cast<Address>(buffer_.data()), count},
                                    .blocks = static_cast<unsigned>((count + hash_threads - 1) / hash_threads),
                                    .threads = hash_threads,
                                    .reads = range},
                                   stream_.get());
            if (status.kind == StatusKind::unsupported && done == 0) return false;
            check(status, "hash", range.bytes, range.address);
            check(wait(), "hash", range.bytes, range.address);
            std::memcpy(hashes + done, buffer_.data(), count * sizeof(std::uint64_t));
        }
        return true;
    }

private:
    void each_part(Range range, FunctionRef<void(std::size_t, std::size_t)> act) {
        for (std::size_t done = 0; done < range.bytes; done += size_) {
            const std::size_t part = std::min(size_, range.bytes - done);
            check(driver_.copy_to_host(buffer_.data(), range.address + done, part, stream_.get()), "copy to the host",
                  part, range.address + done);
            check(wait(), "copy to the host");
            act(done, part);
        }
    }
    /// Nothing is in flight afterwards, unless it is unsettled.
    Status wait() noexcept {
        Status status = driver_.record(event_.get(), stream_.get());
        if (status.ok()) status = driver_.wait(event_.get());
        if (!status.ok()) buffer_.unsettle();
        (void)buffer_.settle();
        return status;
    }

    const AnyDriver driver_;
    const std::size_t size_;
    OwnedStream stream_;
    OwnedEvent event_;
    PinnedBuffer buffer_;
};

/// The hash that hashes_of() makes, of bytes of the host.
inline std::uint64_t hash_of(const std::byte* bytes, std::size_t count) {
    Vector<std::uint64_t> parts;
    for (std::size_t done = 0; done < count; done += hashed_at_once)
        parts.push_back(xxh64(bytes + done, std::min(hashed_at_once, count - done)));
    return xxh64(parts.data(), parts.size() * sizeof(std::uint64_t));
}

/// XXH64 of each 64 KiB of a range, then of those; of several ranges. From `kernel_from` bytes on by a kernel, which is
/// loaded first, and otherwise on several threads.
inline Vector<std::uint64_t> hashes_of(const AnyDriver& driver, const std::vector<Range>& ranges,
                                       std::size_t kernel_from = 512_MiB) {
    struct Part {
        Range range;
        std::uint64_t* to;
    };
    Vector<Vector<std::uint64_t>> hashes;
    Vector<Part> parts;
    std::size_t all_bytes = 0;
    for (const Range& each : ranges) all_bytes += each.bytes;
    std::optional<Staging> staging; // of the kernel
    if (driver.features().kernels && all_bytes >= kernel_from) staging.emplace(driver);
    for (const Range& each : ranges) {
        hashes.emplace_back((each.bytes + hashed_at_once - 1) / hashed_at_once);
        std::size_t done = 0; // by the kernel: whole parts
        if (staging && each.address % 16 == 0) {
            const std::size_t whole = each.bytes / hashed_at_once;
            if (whole != 0 && staging->hash_by_kernel(each.address, whole, hashes.back().data()))
                done = whole * hashed_at_once;
        }
        for (; done < each.bytes; done += Staging::bytes)
            parts.push_back({{each.address + done, std::min(Staging::bytes, each.bytes - done)},
                             hashes.back().data() + done / hashed_at_once});
    }
    staging.reset();
    constexpr std::size_t most = 8; // more than the link needs
    std::atomic<std::size_t> next{0};
    Crew crew{{.threads = static_cast<unsigned>(std::min<std::size_t>(most, std::thread::hardware_concurrency()))}};
    if (!parts.empty())
        crew.start(parts.size() / 4, [&] {
            try {
                Staging own{driver};
                for (std::size_t i = next++; i < parts.size(); i = next++) own.hash(parts[i].range, parts[i].to);
            } catch (...) {
                next = parts.size(); // the others need not go on
                throw;
            }
        });
    crew.join();
    if (const auto failure = crew.failure()) std::rethrow_exception(failure);
    Vector<std::uint64_t> all;
    for (const auto& each : hashes) all.push_back(xxh64(each.data(), each.size() * sizeof(std::uint64_t)));
    return all;
}

} // namespace memsaver::inline v0_3::detail
