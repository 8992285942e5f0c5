// Gives out host regions and takes them back. Knows which could not be given back to the system so far; not what they
// are for.
#pragma once

#include "memsaver/memory/host_region.hpp"

#include <cstddef>
#include <iterator>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

namespace memsaver::inline v0_1 {

/// A region goes back to the system when the last who shares it lets it go, on whatever thread that is. What fails then
/// is kept here, and `retry` tries again. Lives as long as its regions. Thread safe; no lock is held over a driver
/// call.
template <HostPages D>
class HostRegions : public std::enable_shared_from_this<HostRegions<D>> {
public:
    /// See HostRegion's constructor.
    [[nodiscard]] std::shared_ptr<HostRegion<D>> make(const D& driver, std::size_t bytes,
                                                      HostBudget::Promise promise = {}, const std::string& whose = {}) {
        Regions fresh;
        fresh.emplace_back(driver, bytes, std::move(promise), whose);
        const auto region = fresh.begin();
        {
            const std::lock_guard lock{mutex_};
            used_.splice(used_.end(), fresh);
        }
        return {&*region, [self = this->shared_from_this(), region](HostRegion<D>*) { self->give_back(region); }};
    }

    /// Tries again to give back what could not be given back so far. Answers the first failure.
    Status retry() noexcept {
        Regions trying;
        {
            const std::lock_guard lock{mutex_};
            trying.swap(held_);
        }
        Status first;
        for (auto region = trying.begin(); region != trying.end();) {
            const Status status = region->release();
            if (first.ok()) first = status;
            region = status.ok() ? trying.erase(region) : std::next(region);
        }
        const std::lock_guard lock{mutex_};
        held_.splice(held_.end(), trying);
        return first;
    }

private:
    using Regions = std::list<HostRegion<D>>; // from one to another without a need for memory

    void give_back(typename Regions::iterator region) noexcept {
        const bool released = region->release().ok();
        Regions gone; // dies after the lock
        const std::lock_guard lock{mutex_};
        Regions& to = released ? gone : held_;
        to.splice(to.end(), used_, region);
    }

    std::mutex mutex_;
    Regions used_;
    Regions held_;
};

} // namespace memsaver::inline v0_1
