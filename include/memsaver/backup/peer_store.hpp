// The store of a PeerBackup: pages of another device.
#pragma once

#include "memsaver/backup/store.hpp"
#include "memsaver/core/lists.hpp"
#include "memsaver/core/pointers.hpp"
#include "memsaver/core/vector.hpp"
#include "memsaver/driver/owned.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

namespace memsaver::inline v0_3::detail {

/// Owns pages of a peer, mapped in one range that the device can access. The destructor releases everything but loses
/// what fails; call `close` first to handle failures.
class PeerPages final : public CopyablePages, public Closable {
public:
    /// Allocates nothing yet.
    PeerPages(AnyDriver driver, AnyDriver peer, std::size_t bytes)
        : driver_{std::move(driver)}, peer_{std::move(peer)}, bytes_{align_up(bytes, granularity_of(peer_))} {
        parts_.reserve(bytes_ / largest_handle + 1);
    }
    ~PeerPages() override { (void)PeerPages::close(); }

    /// Allocates the pages. Call once. Throws OutOfMemory if the peer has too little free memory, or the exception for
    /// another failing call; `close` then releases what was allocated.
    void take(const std::string& whose) {
        const Status status = try_take();
        if (status.ok()) return;
        const std::string of = text_of({whose, in_bytes(bytes_), " on ", peer_.name()});
        if (status.kind != StatusKind::out_of_memory) raise(status, "allocate backup memory on a peer", of, bytes_);
        DeviceMemory memory;
        (void)peer_.memory(memory);
        OutOfMemory error{
            text_of({"a backup of ", of, " does not fit: ", in_bytes(memory.free_bytes), " are free there"}), bytes_,
            memory.free_bytes, status};
        error.attach_device(peer_.device()); // room is to be made there, not on the tag's device
        throw error;
    }

    /// Releases everything. What fails stays owned, and the next call retries it. Returns the first failure.
    Status close() noexcept override {
        Status first;
        if (unsettled_) first = first_failure({drained(driver_), drained(peer_)}); // work of either may reach it
        if (!first.ok()) return first;
        unsettled_ = false;
        for (Part& part : parts_) {
            Status status = part.mapping.close();
            if (status.ok()) status = part.pages.close();
            if (first.ok()) first = status;
        }
        if (!first.ok()) return first;
        parts_.clear();
        return addresses_.close();
    }

    [[nodiscard]] std::uintptr_t address() const noexcept override { return addresses_.get().address; }
    [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
    [[nodiscard]] bool ready(std::uintptr_t, bool) const noexcept override { return true; }
    Status prepare(std::uintptr_t, bool) noexcept override { return {}; }
    void unsettle() noexcept override { unsettled_ = true; }

private:
    /// Large, because each handle has a cost in the driver that does not depend on its size.
    static constexpr std::size_t largest_handle = 1_GiB;
    struct Part {
        OwnedPages pages;
        Mapping mapping;
    };

    Status try_take() noexcept {
        Status status = addresses_.open(peer_, bytes_, 2_MiB);
        for (std::size_t at = 0; status.ok() && at < bytes_; at += largest_handle) {
            Part& part = parts_.emplace_back(); // reserved
            status = part.pages.open(peer_, std::min(bytes_ - at, largest_handle));
            const auto [handle, bytes] = part.pages.get();
            if (status.ok()) status = part.mapping.open(peer_, Range{address() + at, bytes}, handle);
        }
        if (status.ok()) status = peer_.allow_access(address(), bytes_);
        if (status.ok()) status = driver_.reach_peer(address(), bytes_);
        return status;
    }

    AnyDriver driver_;
    AnyDriver peer_;
    Reservation addresses_;
    std::size_t bytes_;
    Vector<Part> parts_; ///< from the front of the range
    std::atomic<bool> unsettled_{false};
};

/// Locations are addresses on the peer. Copies cross the link between the two devices, on the device's own lanes. Only
/// bytes that the program reads or writes in the backup pass through the host.
class PeerStore final : public BackupStore {
public:
    PeerStore(AnyDriver driver, AnyDriver peer, StoreOptions options)
        : BackupStore{std::move(driver), std::move(options), Ring::least_buffer, "read a backup on a peer"},
          peer_{std::move(peer)} {}

    [[nodiscard]] std::size_t alignment() const noexcept override { return 256; }
    Room grow(std::size_t bytes, const LiveSet& live) override {
        about(live);
        (void)retry(); // pages that could not be released before are free memory too
        pages_.reserve(pages_.size() + 1);
        auto pages = pool_->share(new_shared<PeerPages>(driver_, peer_, bytes));
        pages->take(error_prefix_);
        pages_.push_back(std::move(pages));
        return {pages_.back()->address(), pages_.back()->bytes()};
    }
    void discard(std::uint64_t, std::size_t) noexcept override {} // pages are released with their PeerPages
    void shrink(LocationSpace& space) noexcept override {
        erase_in(pages_, [&](const auto& pages) { return space.remove({pages->address(), pages->bytes()}); });
    }
    Status clear() noexcept override {
        pages_.clear();
        return first_failure({host_.release(), leave_ring()});
    }
    void prepare(Vector<Unit>) override {} // `grow` has allocated everything
    void change(const Unit& unit, std::size_t offset, const std::byte* from, std::size_t bytes) override {
        check(put(from, unit.location + offset, bytes), "write a backup on a peer", bytes, unit.location + offset);
    }

    [[nodiscard]] std::shared_ptr<CopyablePages> pages_of(std::uint64_t location) const override {
        for (const auto& pages : pages_) {
            if (pages->address() <= location && location < pages->address() + pages->bytes()) return pages;
        }
        return {};
    }

    // ByteStore
    Status put(const std::byte* from, std::uint64_t location, std::size_t bytes) const noexcept override {
        return on_peer(from, nullptr, location, bytes);
    }
    Status get(std::byte* to, std::uint64_t location, std::size_t bytes) const noexcept override {
        return on_peer(nullptr, to, location, bytes);
    }

private:
    /// Bytes per event: small enough that the first bytes are known to have arrived early.
    static constexpr std::size_t piece_bytes = 64_MiB;

    UniquePtr<Transfer> start(Direction direction, Vector<Unit> units, const LiveSet& live) override {
        auto pieces = reached(std::move(units), piece_bytes, live.first);
        auto work = direct_transfer(moving(direction, live), std::move(pieces), nullptr, {}, true);
        work->start();
        return work;
    }
    /// Copies from or to the host, through pages that stay for as long as the peer may use them: the caller's may not.
    Status on_peer(const std::byte* from, std::byte* to, std::uint64_t location, std::size_t bytes) const noexcept {
        const std::lock_guard lock{mutex_};
        Status status = host_.take(peer_, Ring::least_buffer, {}, false);
        for (std::size_t at = 0; status.ok() && at < bytes; at += Ring::least_buffer) {
            const std::size_t part = std::min(bytes - at, Ring::least_buffer);
            if (from != nullptr) std::memcpy(host_.data(), from + at, part);
            const auto copy = [&](StreamRef stream) {
                return from != nullptr ? peer_.copy_to_device(location + at, host_.data(), part, stream)
                                       : peer_.copy_to_host(host_.data(), location + at, part, stream);
            };
            bool busy = false;
            status = on_own_stream(peer_, copy, &busy);
            if (busy) host_.unsettle(), pages_of(location)->unsettle();
            if (status.ok() && to != nullptr) std::memcpy(to + at, host_.data(), part);
        }
        (void)host_.release();
        return status;
    }

    AnyDriver peer_;
    Vector<std::shared_ptr<PeerPages>> pages_;
    mutable std::mutex mutex_; // guards the next
    mutable PinnedBuffer host_;
};

} // namespace memsaver::inline v0_3::detail
