// Who holds which memory: the rows that `usage()` returns, and their printed form.
#pragma once

#include "memsaver/core/form.hpp"

#include <chrono>
#include <cstddef>
#include <iosfwd>
#include <string>
#include <utility>
#include <vector>

namespace memsaver::inline v0_3 {

/// One row of `usage()`: one tag on one device. Sizes are in bytes.
struct ArenaUsage {
    std::string tag;
    int device = 0;
    std::string policy;
    /// "active", "paused", "partly paused", "arriving" (mapped, but its bytes are in flight or could not be restored),
    /// "empty", "plain" (switched off), "closed", or "dropped" (for an Arena that outlives its tag).
    std::string state;
    std::size_t reserved_bytes = 0;  ///< reserved addresses
    std::size_t mapped_bytes = 0;    ///< physical memory owned: the sum of all live handles, including held ones
    std::size_t held_bytes = 0;      ///< part of `mapped_bytes` that the driver refused to take back so far, or that
                                     ///< work may still touch
    std::size_t used_bytes = 0;      ///< live blocks, as requested, whether paused or not
    std::size_t paused_bytes = 0;    ///< addresses whose pages are paused
    std::size_t backed_up_bytes = 0; ///< bytes kept by the policy, on the host or in files
    std::size_t blocks = 0;          ///< live blocks
    std::size_t elastic_bytes = 0;   ///< part of `used_bytes` that is committed in elastic ranges; each step is one
                                     ///< block
    // Since the arena was made:
    std::size_t peak_mapped_bytes = 0; ///< maximum of `mapped_bytes`, without the scratch memory of a pause or resume
    std::size_t pauses = 0;            ///< number of pauses that released memory
    bool of_a_tag = true;              ///< false for plain memory, and for what a dropped tag could not release
    // For the tag, across all its devices:
    std::size_t users = 0; ///< live `Use`s that name the tag
    bool evictable =
        false;        ///< whether `use`, `reclaim` and allocations that evict may pause the tag while it is unused
    int priority = 0; ///< tags with the lowest priority are paused first
    /// Time since its last use began or ended; 0 if it was never used.
    std::chrono::nanoseconds age{0};
};

/// What `use` has done since the saver was made.
struct ResidencyUsage {
    std::size_t hits = 0;           ///< uses whose tags were all resident
    std::size_t misses = 0;         ///< uses that had to resume something, or to wait for another thread that did
    std::size_t waits = 0;          ///< uses that waited for other threads' uses, pauses or transfers
    std::size_t evictions = 0;      ///< tags that `use`, `reclaim` and allocations paused
    std::size_t brought_bytes = 0;  ///< physical memory mapped for uses
    std::size_t restored_bytes = 0; ///< bytes that uses restored from backups
    std::size_t evicted_bytes = 0;  ///< physical memory that evictions released or handed over
    std::size_t saved_bytes = 0;    ///< bytes that evictions copied to backups
};

/// A row of an exception's list of memory holders: one tag on one device.
struct Holder {
    std::string tag;
    int device = 0;
    std::size_t bytes = 0; ///< physical memory
    std::size_t users = 0; ///< live `Use`s that name the tag
    /// "in use", "idle" (may be evicted), "wanted" (idle, and named by the use that ran out of memory), "moving" (being
    /// paused) or "not evictable".
    std::string state;

    /// `"weights" 1.00 GiB in use by 2`
    friend std::ostream& operator<<(std::ostream& out, const Holder& row);
};

namespace detail {

/// One line about the largest holders: `held: "a" 1.00 GiB in use by 2, "b" 2.00 MiB idle, and 3 more`. `elsewhere`:
/// bytes of the device that none of them holds.
[[nodiscard]] std::string line_of(const std::vector<Holder>& holders, std::size_t elsewhere = 0);

} // namespace detail

/// Memory of a whole device, in bytes, whoever holds it.
struct DeviceUsage {
    int device = 0;
    std::size_t total_bytes = 0;
    std::size_t used_bytes = 0;        ///< used by everyone, as the driver reports it
    std::size_t mapped_bytes = 0;      ///< mapped by this saver
    std::size_t unexplained_bytes = 0; ///< the rest: contexts, other allocators, other processes
    bool known = true;                 ///< whether the driver reported its memory; if not, all fields except
                                       ///< `mapped_bytes` are 0
};

/// A range of ArenaUsage, in the order in which the arenas were made. Prints as a table with these columns: *reserved*
/// is addresses (not the option `reserve`, which takes memory), *mapped* is device memory now and *peak* its maximum so
/// far, *used* is live blocks, *backed up* is what the policy keeps on the host or in files.
class Usage {
public:
    Usage(std::vector<ArenaUsage> arenas, std::vector<DeviceUsage> devices, const ResidencyUsage& residency = {},
          std::size_t host_bytes = 0)
        : arenas_{std::move(arenas)}, devices_{std::move(devices)}, residency_{residency}, host_bytes_{host_bytes} {}

    [[nodiscard]] auto begin() const noexcept { return arenas_.begin(); }
    [[nodiscard]] auto end() const noexcept { return arenas_.end(); }
    [[nodiscard]] std::size_t size() const noexcept { return arenas_.size(); }
    [[nodiscard]] const std::vector<DeviceUsage>& devices() const& noexcept { return devices_; }
    /// For temporaries, returns by value, so that `for (auto& device : saver.usage().devices())` is safe.
    [[nodiscard]] std::vector<DeviceUsage> devices() && noexcept { return std::move(devices_); }

    /// What `use`, `reclaim` and evictions for allocations have done so far.
    [[nodiscard]] const ResidencyUsage& residency() const noexcept { return residency_; }

    /// Host memory that policies of this library hold, in bytes: backups, rounded up, and the buffers that bytes pass
    /// through, which the tags of a device share and `trim` gives back.
    [[nodiscard]] std::size_t host_bytes() const noexcept { return host_bytes_; }

    /// Prints users, age and priority only if some tag has been used or may be evicted.
    friend std::ostream& operator<<(std::ostream& out, const Usage& usage);

private:
    std::vector<ArenaUsage> arenas_;
    std::vector<DeviceUsage> devices_;
    ResidencyUsage residency_;
    std::size_t host_bytes_;
};

/// Returns all of it as one line of JSON:
/// {"arenas":[{"tag":"weights","device":0,"policy":"host","state":"paused","reserved_bytes":0, ...}, ...],
///  "devices":[{"device":0,"total_bytes":0,"used_bytes":0,"mapped_bytes":0,"unexplained_bytes":0,"known":true}, ...],
///  "residency":{"hits":0,"misses":0, ...},"host_bytes":0}
/// It contains every field of ArenaUsage (age as "age_ns"), DeviceUsage and ResidencyUsage. Bytes of a tag name that
/// are not valid UTF-8 are passed through unchanged.
[[nodiscard]] std::string to_json(const Usage& usage);

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/core/usage.ipp"
#endif
