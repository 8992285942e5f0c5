// Implements torch_memory_saver's interface on a MemorySaver, for any driver. Independent of thread settings and the C
// functions.
#pragma once

#include "margin.hpp"
#include "settings.hpp"
#include "switched_backup.hpp"

#include "memsaver/driver/fork_check.hpp"
#include "memsaver/saver/saver.hpp"

#include <algorithm>
#include <atomic>
#include <compare>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <set>
#include <shared_mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace tms {

/// Where an allocation belongs.
struct Placement {
    std::string tag = "default";
    Keep keep = Keep::nothing;
    std::string directory{}; ///< for Keep::disk
    int device = 0;
    friend auto operator<=>(const Placement&, const Placement&) = default;
};

/// All methods are thread-safe and throw the exceptions of MemorySaver. Opens no driver before the first allocation. A
/// tag of the interface maps to one memsaver tag for each way of keeping bytes, because a memsaver tag has one policy.
template <memsaver::Driver Base>
class Engine {
public:
    using D = WithMargin;

    struct Options {
        std::function<Base(int device)> open;
        std::size_t disk_ring_bytes = 0; ///< 0: memsaver's default
        bool retain = false;
        memsaver::EventSink events{};
    };

    explicit Engine(Options options)
        : options_{std::move(options)}, retain_{std::make_shared<std::atomic<bool>>(options_.retain)} {}

    /// Throws OutOfMemory also for requests that exceed the address space.
    [[nodiscard]] void* allocate(const Placement& placement, std::size_t bytes) {
        const Place& chosen = place(placement);
        try {
            return chosen.arena.allocate(bytes, alignment);
        } catch (const memsaver::Misuse& error) {
            throw memsaver::OutOfMemory{error.what(), bytes, 0};
        }
    }

    /// Returns whether `pointer` lies in memory of this engine. In a forked child, which has no device memory but its
    /// parent's, all does.
    [[nodiscard]] bool owns(const void* pointer) const noexcept { return fork_.forked() || find(pointer) != nullptr; }

    /// Like cudaFree: returns once the device has completed the submitted work, and pages that no block needs are
    /// released. A foreign pointer is left alone; returns false. In a forked child, so is the parent's memory.
    bool free(void* pointer) {
        if (fork_.forked()) return true;
        Place* const place = find(pointer);
        if (place == nullptr) return false;
        memsaver::check(place->driver.drain(), "wait for the device");
        place->arena.deallocate(pointer, memsaver::already_idle);
        try {
            saver_->trim(place->name, {.order = memsaver::already_idle});
            // The host memory of a freed block is freed by the tag's next pause or resume; for the last block it is
            // freed now.
            const bool kept = place->keep != Keep::nothing && place->arena.usage().blocks == 0;
            if (kept) saver_->prepare(place->name);
        } catch (const memsaver::Error&) { // the block is free anyway; the next trim retries
        }
        return true;
    }
    /// Like cudaFreeAsync: does not wait. The memory is reused once `stream` has completed all work submitted before
    /// this call.
    bool free(void* pointer, memsaver::StreamRef stream) {
        if (fork_.forked()) return true;
        Place* const place = find(pointer);
        if (place == nullptr) return false;
        place->arena.deallocate(pointer, stream);
        return true;
    }

    /// Like cudaMalloc and cudaFree: device memory that is never paused. If the device is out of memory, releases
    /// unused pages and retries.
    [[nodiscard]] void* allocate_plain(int device, std::size_t bytes) {
        const D driver = driver_of(device);
        memsaver::Address address = 0;
        memsaver::Status status = driver.allocate_plain(bytes, address);
        if (status.kind == memsaver::StatusKind::out_of_memory && trim() != 0)
            status = driver.allocate_plain(bytes, address);
        memsaver::check(status, "allocate plain memory");
        return reinterpret_cast<void*>(address); // NOLINT(performance-no-int-to-ptr): device addresses are numbers
    }
    void free_plain(int device, void* pointer) {
        memsaver::check(driver_of(device).free_plain(reinterpret_cast<memsaver::Address>(pointer)),
                        "free plain memory");
    }

    /// Returns false if nothing has that tag. An empty tag means all tags.
    bool pause(const std::string& tag) {
        const std::vector<std::string> names = names_of(tag);
        if (!names.empty()) saver_->pause(names);
        return !names.empty() || tag.empty();
    }
    bool resume(const std::string& tag) {
        const std::vector<std::string> names = names_of(tag);
        const Margin::Lifted lifted{*margin_};
        if (!names.empty()) saver_->resume(names);
        return !names.empty() || tag.empty();
    }
    /// Releases pages that no block needs. Returns the released bytes.
    std::size_t trim() {
        return names_of("").empty() ? 0 : saver_->trim({.order = memsaver::already_idle}).released_bytes;
    }

    /// Returns the host address of the backup of `bytes` bytes of a block, or null. Valid while the memory is paused
    /// and, if a resume retained the backup, until a resume that does not. The address is stable.
    [[nodiscard]] const void* backup_of(const void* pointer, std::size_t bytes) {
        const Place* const place = find(pointer);
        if (place == nullptr || place->keep == Keep::nothing || place->keep == Keep::disk) return nullptr;
        if (place->arena.usage().paused_bytes == 0 && !*place->retained) return nullptr;
        try {
            return place->arena.backup_view(pointer, bytes).data();
        } catch (const memsaver::Misuse&) {
            return nullptr;
        }
    }

    // Around a fork, which keeps only the thread that forks: no other thread is inside then, and the child's lock is
    // free.

    void before_fork() noexcept { mutex_.lock(); }
    void after_fork(bool child) noexcept {
        if (child)
            new (&mutex_) std::shared_mutex; // it knows its owner by the parent's number of the thread
        else
            mutex_.unlock();
    }

    void set_margin(std::size_t bytes) noexcept { margin_->set(bytes); }
    void set_retain(bool retain) noexcept { *retain_ = retain; }
    [[nodiscard]] bool retain() const noexcept { return *retain_; }
    /// Empty before the first allocation.
    [[nodiscard]] std::vector<memsaver::ArenaUsage> usage() {
        if (names_of("").empty()) return {};
        const memsaver::Usage usage = saver_->usage();
        return {usage.begin(), usage.end()};
    }

private:
    static constexpr std::size_t alignment = 512; // PyTorch's allocator splits its blocks at multiples of this

    struct Place {
        D driver;
        std::string name; ///< the tag's name in the saver
        Keep keep;
        memsaver::Arena arena;
        std::shared_ptr<const std::atomic<bool>> retained; ///< whether the last resume retained the backup
    };

    /// Returns the arena for a placement; makes it if needed.
    Place& place(const Placement& placement) {
        {
            const std::shared_lock lock{mutex_};
            if (const auto known = places_.find(placement); known != places_.end()) return known->second;
        }
        const std::lock_guard lock{mutex_};
        if (const auto known = places_.find(placement); known != places_.end()) return known->second;
        const D driver = open(placement.device);
        if (!saver_) saver_.emplace(driver, memsaver::SaverOptions{.events = options_.events});
        const std::string name = placement.tag + " (" + std::to_string(places_.size()) + ")";
        const auto retained = std::make_shared<std::atomic<bool>>(false);
        memsaver::Arena arena = saver_->arena(name, policy_of(placement, retained), driver);
        return places_.emplace(placement, Place{driver, name, placement.keep, std::move(arena), retained})
            .first->second;
    }
    D driver_of(int device) {
        const std::lock_guard lock{mutex_};
        return open(device);
    }
    /// Requires the lock.
    const D& open(int device) {
        const auto known = drivers_.find(device);
        if (known != drivers_.end()) return known->second;
        return drivers_.emplace(device, D{options_.open(device), margin_}).first->second;
    }
    [[nodiscard]] memsaver::AnyPolicy policy_of(const Placement& placement,
                                                const std::shared_ptr<std::atomic<bool>>& retained) const {
        const unsigned threads = std::clamp(std::thread::hardware_concurrency(), 2U, 16U);
        switch (placement.keep) {
        case Keep::pinned: return SwitchedBackup{memsaver::Storage::pinned, threads, retain_, retained};
        case Keep::mmap: return SwitchedBackup{memsaver::Storage::pageable, threads, retain_, retained};
        case Keep::disk: {
            memsaver::FileBackup backup{.directory = placement.directory, .retain = false};
            if (options_.disk_ring_bytes != 0) backup.ring_bytes = options_.disk_ring_bytes;
            return backup;
        }
        case Keep::nothing: break;
        }
        return memsaver::Discard{};
    }

    /// Null in a forked child: threads that it lacks may have an arena's lock.
    [[nodiscard]] Place* find(const void* pointer) const noexcept {
        if (fork_.forked()) return nullptr;
        const std::shared_lock lock{mutex_};
        for (const auto& [placement, place] : places_) {
            if (place.arena.base().contains(pointer)) return const_cast<Place*>(&place);
        }
        return nullptr;
    }
    [[nodiscard]] std::vector<std::string> names_of(const std::string& tag) const {
        const std::shared_lock lock{mutex_};
        std::vector<std::string> names;
        for (const auto& [placement, place] : places_) {
            if (tag.empty() || placement.tag == tag) names.push_back(place.name);
        }
        return names;
    }

    Options options_;
    const memsaver::detail::ForkCheck fork_;
    std::shared_ptr<std::atomic<bool>> retain_;
    std::shared_ptr<Margin> margin_ = std::make_shared<Margin>();
    mutable std::shared_mutex mutex_; // guards the members below; map entries have stable addresses
    std::map<int, D> drivers_;
    std::map<Placement, Place> places_;
    std::optional<memsaver::MemorySaver<D>> saver_;
};

} // namespace tms
