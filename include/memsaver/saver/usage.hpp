// Who holds what: the rows that `usage()` answers, and how they are printed.
#pragma once

#include "memsaver/arena/arena_base.hpp"
#include "memsaver/base/base.hpp"

#include <cstddef>
#include <ostream>
#include <string>
#include <vector>

namespace memsaver::inline v0_1 {

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
    [[nodiscard]] const std::vector<DeviceUsage>& devices() const noexcept { return devices_; }

    friend std::ostream& operator<<(std::ostream& out, const Usage& usage) {
        const auto print = [&](const std::string& tag, const std::string& device, const std::string& policy,
                               const std::string& state, const std::string& reserved, const std::string& mapped,
                               const std::string& used, const std::string& backed_up) {
            out << padded(tag, -16) << padded(device, 7) << ' ' << padded(policy, -17) << padded(state, -14)
                << padded(reserved, 11) << padded(mapped, 12) << padded(used, 12) << padded(backed_up, 12) << '\n';
        };
        print("tag", "device", "policy", "state", "reserved", "mapped", "used", "backed up");
        for (const ArenaUsage& row : usage) {
            print(row.tag, std::to_string(row.device), row.policy, row.state, format_bytes(row.reserved_bytes),
                  format_bytes(row.mapped_bytes), format_bytes(row.used_bytes), format_bytes(row.backed_up_bytes));
            if (row.held_bytes != 0)
                out << "  of these, " << format_bytes(row.held_bytes) << " could not be given back yet\n";
        }
        for (const DeviceUsage& device : usage.devices_) {
            out << "device " << device.device << ": ";
            if (!device.known) {
                out << "does not answer, " << format_bytes(device.mapped_bytes) << " by these tags\n";
                continue;
            }
            out << format_bytes(device.used_bytes) << " of " << format_bytes(device.total_bytes) << " used, "
                << format_bytes(device.mapped_bytes) << " by these tags, " << format_bytes(device.unexplained_bytes)
                << " by others\n";
        }
        return out;
    }

private:
    /// `text` in at least `width` columns, to the left if that is negative.
    static std::string padded(const std::string& text, int width) {
        const auto columns = static_cast<std::size_t>(width < 0 ? -width : width);
        const std::string room(columns > text.size() ? columns - text.size() : 0, ' ');
        return width < 0 ? text + room : room + text;
    }

    std::vector<ArenaUsage> arenas_;
    std::vector<DeviceUsage> devices_;
};

} // namespace memsaver::inline v0_1
