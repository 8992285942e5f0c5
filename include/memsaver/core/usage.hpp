// Who holds what: the rows that `usage()` answers, and how they are printed.
#pragma once

#include "memsaver/core/form.hpp"

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
    /// "empty", "plain" (switched off) or "closed".
    std::string state;
    std::size_t reserved_bytes = 0;  ///< addresses
    std::size_t mapped_bytes = 0;    ///< physical memory owned: the sum of the handles that live, held ones included
    std::size_t held_bytes = 0;      ///< of these, what the driver refused to take back so far
    std::size_t used_bytes = 0;      ///< live blocks, as requested, paused or not
    std::size_t paused_bytes = 0;    ///< addresses whose memory is away
    std::size_t backed_up_bytes = 0; ///< held by the policy, on the host or in files
    std::size_t blocks = 0;          ///< live blocks
    // Since the arena was made:
    std::size_t peak_mapped_bytes = 0;    ///< the most that was ever mapped
    std::size_t pauses = 0;               ///< how often memory went away
    std::size_t resumes = 0;              ///< and how often it came back
    std::size_t released_total_bytes = 0; ///< physical memory that pauses gave back to the device, summed up
    std::size_t saved_total_bytes = 0;    ///< copied to the backup
    std::size_t restored_total_bytes = 0; ///< copied, or filled, from it
};

/// A whole device, in bytes, whoever holds them.
struct DeviceUsage {
    int device = 0;
    std::size_t total_bytes = 0;
    std::size_t used_bytes = 0;        ///< by everybody, as the driver reports it
    std::size_t mapped_bytes = 0;      ///< by this saver
    std::size_t unexplained_bytes = 0; ///< the rest: contexts, other allocators, other processes
    bool known = true;                 ///< whether the driver said so; else all but `mapped_bytes` is 0
};

/// A range of ArenaUsage, in the order in which the arenas were made; printable as a table.
class Usage {
public:
    Usage(std::vector<ArenaUsage> arenas, std::vector<DeviceUsage> devices)
        : arenas_{std::move(arenas)}, devices_{std::move(devices)} {}

    [[nodiscard]] auto begin() const noexcept { return arenas_.begin(); }
    [[nodiscard]] auto end() const noexcept { return arenas_.end(); }
    [[nodiscard]] std::size_t size() const noexcept { return arenas_.size(); }
    [[nodiscard]] const std::vector<DeviceUsage>& devices() const& noexcept { return devices_; }
    /// Of a temporary by value, so that `for (auto& device : saver.usage().devices())` has what to run over.
    [[nodiscard]] std::vector<DeviceUsage> devices() && noexcept { return std::move(devices_); }

    friend std::ostream& operator<<(std::ostream& out, const Usage& usage);

private:
    std::vector<ArenaUsage> arenas_;
    std::vector<DeviceUsage> devices_;
};

} // namespace memsaver::inline v0_2

#ifndef MEMSAVER_COMPILED
#include "memsaver/core/usage.ipp"
#endif
