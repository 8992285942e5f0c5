// Who holds what: the rows that `usage()` answers, and how they are printed.
#pragma once

#include "memsaver/core/form.hpp"

#include <chrono>
#include <cstddef>
#include <iosfwd>
#include <string>
#include <utility>
#include <vector>

namespace memsaver::inline v0_2 {

/// A row of `usage()`: one tag on one device. Bytes.
struct ArenaUsage {
    std::string tag;
    int device = 0;
    std::string policy;
    /// "active", "paused", "partly paused", "arriving" (mapped, its bytes on their way, or they could not be brought),
    /// "empty", "plain" (switched off), "closed", or, of an Arena that outlives its tag, "dropped".
    std::string state;
    std::size_t reserved_bytes = 0;  ///< addresses
    std::size_t mapped_bytes = 0;    ///< physical memory owned: the sum of the handles that live, held ones included
    std::size_t held_bytes = 0;      ///< of these, what the driver refused to take back so far, or work may still touch
    std::size_t used_bytes = 0;      ///< live blocks, as requested, paused or not
    std::size_t paused_bytes = 0;    ///< addresses whose memory is away
    std::size_t backed_up_bytes = 0; ///< held by the policy, on the host or in files
    std::size_t blocks = 0;          ///< live blocks
    std::size_t elastic_bytes = 0;   ///< of what is used: committed in elastic ranges, a block each step
    // Since the arena was made:
    std::size_t peak_mapped_bytes = 0;    ///< the most that was ever mapped
    std::size_t pauses = 0;               ///< how often memory went away
    std::size_t resumes = 0;              ///< and how often it came back
    std::size_t released_total_bytes = 0; ///< physical memory that pauses gave back to the device, summed up
    std::size_t saved_total_bytes = 0;    ///< copied to the backup
    std::size_t restored_total_bytes = 0; ///< copied, or filled, from it
    // Of the tag, whatever its devices:
    std::size_t users = 0;  ///< living `Use`s that name it
    bool evictable = false; ///< whether `use` and `reclaim` may pause it while nobody uses it
    int priority = 0;       ///< those of the lowest are paused first
    /// Since its last use began or ended; 0 if it was never in one.
    std::chrono::nanoseconds age{0};
};

/// What `use` has done since the saver was made.
struct ResidencyUsage {
    std::size_t hits = 0;           ///< uses whose tags were all there
    std::size_t misses = 0;         ///< uses that had to bring something, or to wait for who did
    std::size_t waits = 0;          ///< uses that waited for other threads' uses, pauses or moves
    std::size_t evictions = 0;      ///< tags that `use` and `reclaim` paused
    std::size_t brought_bytes = 0;  ///< physical memory that uses took from the device
    std::size_t restored_bytes = 0; ///< of backups, that uses brought back
    std::size_t evicted_bytes = 0;  ///< physical memory that evictions gave back
    std::size_t saved_bytes = 0;    ///< that evictions copied to backups
    std::size_t most_passed = 0;    ///< the most later uses that one waiting use was ever passed by
};

/// A row of what an exception says about who holds a device's memory: one tag on one device.
struct Holder {
    std::string tag;
    int device = 0;
    std::size_t bytes = 0; ///< physical memory
    std::size_t users = 0; ///< living `Use`s that name the tag
    /// "in use", "idle" (may be evicted), "wanted" (idle, and of the use that found no room), "moving" (is being
    /// paused) or "kept" (is not evicted).
    std::string state;

    /// `"weights" 1.00 GiB in use by 2`
    friend std::ostream& operator<<(std::ostream& out, const Holder& row);
};

namespace detail {

/// One line about the largest of them: `held: "a" 1.00 GiB in use by 2, "b" 2.00 MiB idle, and 3 more`.
[[nodiscard]] std::string line_of(const std::vector<Holder>& holders);

} // namespace detail

/// A whole device, in bytes, whoever holds them.
struct DeviceUsage {
    int device = 0;
    std::size_t total_bytes = 0;
    std::size_t used_bytes = 0;        ///< by everybody, as the driver reports it
    std::size_t mapped_bytes = 0;      ///< by this saver
    std::size_t unexplained_bytes = 0; ///< the rest: contexts, other allocators, other processes
    bool known = true;                 ///< whether the driver said so; else all but `mapped_bytes` is 0
};

/// A range of ArenaUsage, in the order in which the arenas were made; printable as a table. Its columns: *reserved* are
/// addresses (not the option `reserve`, which takes memory), *mapped* is the device's memory now and *peak* the most of
/// it so far, *used* are live blocks, *backed up* is what the policy keeps on the host or in files.
class Usage {
public:
    Usage(std::vector<ArenaUsage> arenas, std::vector<DeviceUsage> devices, const ResidencyUsage& residency = {})
        : arenas_{std::move(arenas)}, devices_{std::move(devices)}, residency_{residency} {}

    [[nodiscard]] auto begin() const noexcept { return arenas_.begin(); }
    [[nodiscard]] auto end() const noexcept { return arenas_.end(); }
    [[nodiscard]] std::size_t size() const noexcept { return arenas_.size(); }
    [[nodiscard]] const std::vector<DeviceUsage>& devices() const& noexcept { return devices_; }
    /// Of a temporary by value, so that `for (auto& device : saver.usage().devices())` has what to run over.
    [[nodiscard]] std::vector<DeviceUsage> devices() && noexcept { return std::move(devices_); }

    /// What `use` and `reclaim` have done so far.
    [[nodiscard]] const ResidencyUsage& residency() const noexcept { return residency_; }

    /// Users, age and priority are shown where some tag has been used, or may be evicted.
    friend std::ostream& operator<<(std::ostream& out, const Usage& usage);

private:
    std::vector<ArenaUsage> arenas_;
    std::vector<DeviceUsage> devices_;
    ResidencyUsage residency_;
};

/// All of it as JSON, in one line:
/// {"arenas":[{"tag":"weights","device":0,"policy":"host","state":"paused","reserved_bytes":0, ...}, ...],
///  "devices":[{"device":0,"total_bytes":0,"used_bytes":0,"mapped_bytes":0,"unexplained_bytes":0,"known":true}, ...],
///  "residency":{"hits":0,"misses":0, ...}}
/// The fields are those of ArenaUsage (its age as "age_ns"), of DeviceUsage and of ResidencyUsage, all of them. Bytes
/// of a tag's name that are no UTF-8 pass as they are.
[[nodiscard]] std::string to_json(const Usage& usage);

} // namespace memsaver::inline v0_2

#ifndef MEMSAVER_COMPILED
#include "memsaver/core/usage.ipp"
#endif
