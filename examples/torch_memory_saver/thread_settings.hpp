// The settings of one thread: its tag, whether it is in a region, what is kept. Trivially destructible, so that it can
// be read while the process ends.
#pragma once

#include "settings.hpp"

#include <mutex>
#include <set>
#include <string>

namespace tms {

/// Names that live as long as the process: the result of `tms_get_current_tag` stays valid.
class Names {
public:
    /// Throws std::bad_alloc.
    const std::string* intern(const char* name) {
        const std::lock_guard lock{mutex_};
        return &*names_.emplace(name).first;
    }

    // See Engine.

    void before_fork() noexcept { mutex_.lock(); }
    void after_fork() noexcept { mutex_.unlock(); }

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
    /// Host memory takes precedence over disk: the interface allows only one.
    [[nodiscard]] Keep keep() const noexcept {
        return cpu_backup ? host_memory : disk_backup ? Keep::disk : Keep::nothing;
    }
};

} // namespace tms
