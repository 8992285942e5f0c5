// The store of a PeerBackup: pages of another device.
#pragma once

#include "memsaver/backup/store.hpp"
#include "memsaver/driver/owned.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {

/// Owns pages of a peer, mapped in one range that the device can access. The destructor releases everything but loses
/// what fails; call `close` first to handle failures.
class PeerPages final : public CopyablePages, public Closable {
public:
    /// Allocates nothing yet.
    PeerPages(AnyDriver driver, AnyDriver peer, std::size_t bytes);
    ~PeerPages() override { (void)PeerPages::close(); }

    /// Allocates the pages. Call once. Throws OutOfMemory if the peer has too little free memory, or the exception for
    /// another failing call; `close` then releases what was allocated.
    void take(const std::string& whose);

    /// Releases everything. What fails stays owned, and the next call retries it. Returns the first failure.
    MEMSAVER_INLINE Status close() noexcept override;

    [[nodiscard]] std::uintptr_t address() const noexcept override { return addresses_.get().address; }
    [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
    [[nodiscard]] bool ready(std::uintptr_t, bool) const noexcept override { return true; }
    MEMSAVER_INLINE Status prepare(std::uintptr_t, bool) noexcept override { return {}; }
    void unsettle() noexcept override { unsettled_ = true; }

private:
    /// Large, because each handle has a cost in the driver that does not depend on its size.
    static constexpr std::size_t largest_handle = 1_GiB;
    struct Part {
        OwnedPages pages;
        Mapping mapping;
    };

    Status try_take() noexcept;

    AnyDriver driver_;
    AnyDriver peer_;
    Reservation addresses_;
    std::size_t bytes_ = 0;
    std::vector<Part> parts_; ///< from the front of the range
    std::atomic<bool> unsettled_{false};
};

/// Locations are addresses on the peer. Copies cross the link between the two devices, on the device's own lanes. Only
/// bytes that the program reads or writes in the backup pass through the host.
class PeerStore final : public KeptStore {
public:
    PeerStore(AnyDriver driver, AnyDriver peer, StoreOptions options);

    [[nodiscard]] std::size_t alignment() const noexcept override { return 256; }
    MEMSAVER_INLINE Room grow(std::size_t bytes, const LiveSet& live) override;
    void discard(std::uint64_t, std::size_t) noexcept override {} // pages are released with their PeerPages
    MEMSAVER_INLINE void shrink(LocationSpace& space) noexcept override;
    MEMSAVER_INLINE Status clear() noexcept override;
    void prepare(std::vector<Unit>) override {} // `grow` has allocated everything
    MEMSAVER_INLINE void change(const Unit& unit, std::size_t offset, const std::byte* from,
                                std::size_t bytes) override;

    // ByteStore
    MEMSAVER_INLINE Status put(const std::byte* from, std::uint64_t location,
                               std::size_t bytes) const noexcept override;
    MEMSAVER_INLINE Status get(std::byte* to, std::uint64_t location, std::size_t bytes) const noexcept override;

private:
    /// Bytes per event: small enough that the first bytes are known to have arrived early.
    static constexpr std::size_t piece_bytes = 64_MiB;

    [[nodiscard]] std::shared_ptr<PeerPages> pages_of(std::uint64_t location) const;
    [[nodiscard]] bool apart(const Unit& a, const Unit& b) const override {
        return pages_of(a.location) != pages_of(b.location);
    }
    MEMSAVER_INLINE std::unique_ptr<Transfer> start(Direction direction, std::vector<Unit> units, const LiveSet& live,
                                                    const std::vector<Range>& first) override;
    /// Runs `copy(stream)` on a stream of the peer and waits for it.
    template <class Copy>
    Status on_peer(Copy&& copy) const noexcept;

    AnyDriver peer_;
    std::vector<std::shared_ptr<PeerPages>> pages_;
};

} // namespace detail

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/backup/peer_store.ipp"
#endif
