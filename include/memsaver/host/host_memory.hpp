// The simulated device's memory: reserved addresses, pages, pinned ranges and pools.
#pragma once

#include "memsaver/core/error.hpp"
#include "memsaver/core/handles.hpp"
#include "memsaver/core/sizes.hpp"
#include "memsaver/host/fault_names.hpp"
#include "memsaver/host/host_options.hpp"
#include "memsaver/host/page_source.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {

class HostViolations {
public:
    /// Records a violation. `whose`: the name of the addresses, if they have one.
    void note(const char* what, HostRange where, const char* whose = nullptr) noexcept;

    [[nodiscard]] const std::vector<std::string>& texts() const noexcept { return texts_; }

private:
    std::vector<std::string> texts_;
};

/// The device's access to mapped memory.
enum class HostAccess : unsigned char { none, read, write };

/// One mapping of a handle's pages, or a plain allocation.
struct HostMapping {
    static constexpr std::uint64_t no_handle = 0;

    std::size_t bytes = 0;
    std::uint64_t handle = no_handle;
    std::uint64_t room = no_handle; // a plain allocation's, in the table of pages
    std::uint64_t serial = 0;
    std::size_t users = 0; // pieces of unfinished work
    HostAccess access = HostAccess::none;

    [[nodiscard]] bool plain() const noexcept { return handle == no_handle; }
};

class HostMappings {
public:
    using Table = std::map<Address, HostMapping>;

    [[nodiscard]] Table& table() noexcept { return table_; }
    [[nodiscard]] const Table& table() const noexcept { return table_; }

    /// Adds a mapping. Strong exception guarantee: throws std::bad_alloc.
    HostMapping& add(HostRange range, std::uint64_t handle, HostAccess access);

    /// Calls `f` with every mapping that overlaps `range`. Returns whether they cover it without holes.
    template <class F>
    bool each(HostRange range, F f) noexcept {
        if (range.bytes == 0) return true;
        auto it = table_.upper_bound(range.address);
        if (it != table_.begin() && std::prev(it)->first + std::prev(it)->second.bytes > range.address) --it;
        Address next = range.address;
        bool covered = true;
        for (; it != table_.end() && it->first < range.end(); ++it) {
            covered = covered && it->first <= next;
            f(it->second);
            next = it->first + it->second.bytes;
        }
        return covered && next >= range.end();
    }

    /// Returns whether `range` consists of whole mappings of pages without holes. Sets `in_use` if work uses any of
    /// them.
    [[nodiscard]] bool whole(HostRange range, bool* in_use = nullptr) const noexcept;

    [[nodiscard]] bool touch(HostRange range) noexcept;

    /// Returns whether the device has `access` to every byte.
    [[nodiscard]] bool accessible(HostRange range, HostAccess access) noexcept;

    [[nodiscard]] bool in_use(HostRange range) noexcept;

    /// Marks the mappings in `range` as used by unfinished work. The result must be passed to `unpin`.
    std::uint64_t pin(HostRange range) noexcept;
    void unpin(HostRange range, std::uint64_t pinned) noexcept;

private:
    Table table_;
    std::uint64_t next_serial_ = 1;
};

class HostMemory {
public:
    HostMemory(std::size_t capacity, const HostDriverOptions& options, HostViolations& violations);
    ~HostMemory();
    HostMemory(const HostMemory&) = delete;
    HostMemory& operator=(const HostMemory&) = delete;

    [[nodiscard]] std::size_t granularity() const noexcept { return granularity_; }
    [[nodiscard]] HostMappings& mappings() noexcept { return mappings_; }
    [[nodiscard]] DeviceMemory memory() const noexcept { return {capacity_ - source_->taken(), capacity_}; }
    [[nodiscard]] bool exports() const noexcept { return source_->exports(); }

    void count(HostCounts& counts) const noexcept;

    Status reserve(std::size_t bytes, std::size_t alignment, Address& out);

    Status unreserve(HostRange range);

    /// Sets the name that faults in a reservation are reported with. A no-op if `range` is not a whole reservation.
    void name(HostRange range, const char* name) noexcept;
    /// Returns the name of the reservation that contains the address, or null.
    [[nodiscard]] const char* name_at(Address address) const noexcept;

    /// `shared`: for `export_pages`.
    Status create(std::size_t bytes, PageHandle& out, bool shared = false);
    /// As on CUDA, only pages that were created as shared, by this process, can be exported.
    Status export_pages(PageHandle handle, int& descriptor) noexcept;
    Status import_pages(int descriptor, PageHandle& out);

    Status release(PageHandle handle);

    Status map(HostRange range, PageHandle handle);

    /// Checks whether `range` may be unmapped, and sets `in_use` to whether unfinished work uses it.
    Status check_unmap(HostRange range, bool& in_use) noexcept;

    /// Unmaps a range that `check_unmap` accepted. With `scraps`, running work uses the range: it is given anonymous
    /// scrap pages until `seal_scraps`, because a real fault would end the process.
    Status unmap(HostRange range, bool scraps);

    Status allow(HostRange range, HostAccess access) noexcept;

    Status allocate_plain(std::size_t bytes, Address& out);

    /// Returns the whole plain allocation at `address`. If there is none, returns `{}` and records a violation.
    HostRange plain_range(Address address) noexcept;

    /// Frees an allocation found by `plain_range`.
    void free_plain(HostRange range) noexcept;

    /// Removes the scrap pages for which `busy(range)` is false.
    template <class Busy>
    void seal_scraps(Busy busy) noexcept {
        std::erase_if(scraps_, [&](const HostRange& scrap) { return !busy(scrap) && seal(scrap); });
    }

private:
    static constexpr int empty_flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

    struct Pages : HostPages {
        std::size_t mappings = 0;
        bool shared = false;
        bool released = false;
    };
    struct Reserved {
        std::size_t bytes = 0;
        FaultName name{};
    };
    using PagesTable = std::unordered_map<std::uint64_t, Pages>;

    Status misuse(const char* what, HostRange where) noexcept;

    [[nodiscard]] bool in_pages(std::size_t bytes) const noexcept { return bytes != 0 && bytes % granularity_ == 0; }

    [[nodiscard]] bool reserved(HostRange range) const noexcept;

    void discard(PagesTable::iterator pages) noexcept;

    /// Remaps a range of reserved addresses without pages of the device.
    [[nodiscard]] static bool clear(HostRange range, int protection) noexcept;

    [[nodiscard]] bool has_scraps(HostRange range) const noexcept;

    /// Clears the parts of `scrap` that have not been mapped again, and restores the protection of those that have.
    bool seal(HostRange scrap) noexcept;

    std::size_t capacity_;
    std::size_t granularity_;
    bool poison_;
    bool tell_faults_;
    HostViolations& violations_;
    std::unique_ptr<HostPageSource> source_;
    std::map<Address, Reserved> reservations_;
    PagesTable pages_; // including released handles that are still mapped
    HostMappings mappings_;
    std::vector<HostRange> scraps_;
    std::vector<HostRange> abandoned_;
    std::uint64_t next_handle_ = 1;
    std::size_t released_ = 0;
    std::size_t plain_count_ = 0;
};

class HostPins {
public:
    /// `limit`: maximum bytes pinned at once.
    explicit HostPins(std::size_t limit) noexcept : limit_{limit} {}

    /// Pins pages. Fails if any part is already pinned or the limit is exceeded.
    Status pin(const void* pages, std::size_t bytes) noexcept;
    Status unpin(const void* pages) noexcept;

    /// Returns whether a copy may use these bytes: false if they lie partly inside and partly outside a pinned range.
    [[nodiscard]] bool whole(const void* host, std::size_t bytes) noexcept;

    /// Returns whether a byte is pinned.
    [[nodiscard]] bool pinned(const void* host) noexcept;

    [[nodiscard]] std::size_t pinned_bytes() noexcept;

private:
    [[nodiscard]] bool overlaps(std::uintptr_t begin, std::size_t bytes) const noexcept;

    std::size_t limit_;
    std::mutex mutex_;
    std::map<std::uintptr_t, std::size_t> pins_;
    std::size_t pinned_bytes_ = 0;
};

class HostPools {
public:
    /// Adds pages to a pool, in use, taken from the machine's capacity. Strong exception guarantee: may throw
    /// std::bad_alloc.
    Status add(HostMemory& memory, PoolRef pool, std::size_t bytes);
    /// Frees everything in a pool, which keeps the memory.
    void free(PoolRef pool) noexcept;

    [[nodiscard]] std::size_t bytes(PoolRef pool) const noexcept;
    void trim(HostMemory& memory, PoolRef pool, std::size_t keep) noexcept;

private:
    struct Chunk {
        PoolRef pool;
        std::size_t bytes;
        bool in_use;
        PageHandle pages;
    };
    std::vector<Chunk> chunks_;
};

} // namespace detail

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/host/host_memory.ipp"
#endif
