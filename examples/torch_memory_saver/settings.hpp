// Settings from the environment, read once. Knows the names and values of the variables, not their effects.
#pragma once

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstddef>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

namespace tms {

/// How the bytes of an allocation are kept while it is paused.
enum class Keep : unsigned char { nothing, pinned, mmap, disk };

/// Parses "pinned" or "mmap", the interface's names for the two kinds of host memory.
inline std::optional<Keep> host_memory_of(std::string_view name) {
    if (name == "pinned") return Keep::pinned;
    if (name == "mmap") return Keep::mmap;
    return {};
}

struct Settings {
    // Initial settings of every thread, as in torch_memory_saver.
    bool enable = false;             ///< TMS_INIT_ENABLE
    bool cpu_backup = false;         ///< TMS_INIT_ENABLE_CPU_BACKUP
    Keep host_memory = Keep::pinned; ///< TMS_INIT_CPU_BACKUP_BACKEND
    bool disk_backup = false;        ///< TMS_INIT_ENABLE_DISK_BACKUP
    // For the process.
    bool retain = false;                 ///< TMS_RETAIN_CPU_BACKUP
    std::string disk_directory = "/tmp"; ///< TMS_DISK_BACKUP_DIR
    std::size_t disk_chunk_bytes = 0;    ///< TMS_DISK_BACKUP_CHUNK_MB: pinned memory for copies; 0: memsaver's default
    // Specific to memsaver.
    std::size_t driver_min_bytes = 0; ///< MEMSAVER_DRIVER_MIN_BYTES; 0: driver allocations are not intercepted
    std::string control;              ///< MEMSAVER_CONTROL; empty: no control pipe

    /// `get(name)` behaves like getenv. An invalid value is reported to `say` and replaced by the default.
    static Settings read(const std::function<const char*(const char*)>& get,
                         const std::function<void(const std::string&)>& say);
};

/// Reads variables one at a time.
class EnvironmentReader {
public:
    EnvironmentReader(const std::function<const char*(const char*)>& get,
                      const std::function<void(const std::string&)>& say)
        : get_{get}, say_{say} {}

    void text(const char* name, std::string& value) {
        if (const char* found = get_(name); found != nullptr && *found != '\0') value = found;
    }
    void flag(const char* name, bool& value) {
        const char* found = get_(name);
        if (found == nullptr) return;
        std::string word = found;
        std::transform(word.begin(), word.end(), word.begin(),
                       [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
        const bool yes = word == "1" || word == "true" || word == "yes";
        if (yes || word == "0" || word == "false" || word == "no") {
            value = yes;
        } else {
            refuse(name, found, "1, true, yes, 0, false or no", value ? "1" : "0");
        }
    }
    /// Parses a positive number of units of `unit` bytes each.
    void bytes(const char* name, std::size_t unit, std::size_t& value) {
        const char* found = get_(name);
        if (found == nullptr) return;
        const std::string_view digits = found;
        std::size_t number = 0;
        const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
        const bool whole = error == std::errc{} && end == digits.data() + digits.size();
        if (whole && number != 0 && number <= std::numeric_limits<std::size_t>::max() / unit) {
            value = number * unit;
        } else {
            refuse(name, found, "a positive integer in range", "as if unset");
        }
    }
    void host_memory(const char* name, Keep& value) {
        const char* found = get_(name);
        if (found == nullptr) return;
        if (const auto kind = host_memory_of(found)) {
            value = *kind;
        } else {
            refuse(name, found, "pinned or mmap", "pinned");
        }
    }

private:
    void refuse(const std::string& name, const std::string& found, const std::string& wanted,
                const std::string& instead) {
        say_(name + "=\"" + found + "\": must be " + wanted + "; using the default, " + instead);
    }

    const std::function<const char*(const char*)>& get_;
    const std::function<void(const std::string&)>& say_;
};

inline Settings Settings::read(const std::function<const char*(const char*)>& get,
                               const std::function<void(const std::string&)>& say) {
    Settings settings;
    EnvironmentReader reader{get, say};
    reader.flag("TMS_INIT_ENABLE", settings.enable);
    reader.flag("TMS_INIT_ENABLE_CPU_BACKUP", settings.cpu_backup);
    reader.host_memory("TMS_INIT_CPU_BACKUP_BACKEND", settings.host_memory);
    reader.flag("TMS_INIT_ENABLE_DISK_BACKUP", settings.disk_backup);
    if (settings.cpu_backup && settings.disk_backup) {
        say("TMS_INIT_ENABLE_CPU_BACKUP and TMS_INIT_ENABLE_DISK_BACKUP exclude each other; using host memory");
        settings.disk_backup = false;
    }
    reader.flag("TMS_RETAIN_CPU_BACKUP", settings.retain);
    reader.text("TMS_DISK_BACKUP_DIR", settings.disk_directory);
    reader.bytes("TMS_DISK_BACKUP_CHUNK_MB", std::size_t{1} << 20, settings.disk_chunk_bytes);
    reader.bytes("MEMSAVER_DRIVER_MIN_BYTES", 1, settings.driver_min_bytes);
    reader.text("MEMSAVER_CONTROL", settings.control);
    return settings;
}

} // namespace tms
