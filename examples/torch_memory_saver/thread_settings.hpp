// What one thread has set: its tag, whether it is in a region, what is kept. Trivial, so that it can be asked while the
// process ends.
#pragma once

#include "settings.hpp"

#include <mutex>
#include <set>
#include <string>

namespace tms {

/// Names that live as long as the process: what `tms_get_current_tag` answers stays readable.
class Names {
public:
    /// Throws bad_alloc.
    const std::string* intern(const char* name) {
        const std::lock_guard lock{mutex_};
        return &*names_.emplace(name).first;
    }

private:
    std::mutex mutex_;
    std::set<std::string> names_;
};

struct ThreadSettings {
    bool in_region = false;
    bool cpu_backup = false;
    bool disk_backup = false;
    Keep host_memory = Keep::pinned;
    const std::string* tag = nullptr; ///< owned by Names

    static ThreadSettings first(const Settings& settings, const std::string* tag) {
        return {settings.enable, settings.cpu_backup, settings.disk_backup, settings.host_memory, tag};
    }
    /// Host memory goes before the disk: the interface excludes both at once.
    [[nodiscard]] Keep keep() const noexcept {
        return cpu_backup ? host_memory : disk_backup ? Keep::disk : Keep::nothing;
    }
};

} // namespace tms
