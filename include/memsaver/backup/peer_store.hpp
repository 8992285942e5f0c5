// Where a PeerBackup keeps bytes: pages of another device.
#pragma once

#include "memsaver/backup/pinned_transfer.hpp"
#include "memsaver/backup/store.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace memsaver::inline v0_2 {

namespace detail {

/// Owns pages of a peer, mapped in one range that the device reaches. Gives everything back when it dies, but what
/// fails then is lost: whoever must know calls `release` before.
class PeerPages final : public CopyablePages {
public:
    /// Takes nothing yet.
    PeerPages(AnyDriver driver, AnyDriver peer, std::size_t bytes);
    ~PeerPages() override { (void)release(); }

    /// Once. Throws OutOfMemory where the peer has no room, or what else a failing call stands for; `release` then
    /// gives back what it took.
    void take(const std::string& whose);

    /// Gives everything back. What fails stays owned, to be tried again by the next call; answers the first failure.
    Status release() noexcept;

    [[nodiscard]] std::uintptr_t address() const noexcept override { return address_; }
    [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
    [[nodiscard]] bool ready(std::uintptr_t, bool) const noexcept override { return true; }
    MEMSAVER_INLINE Status prepare(std::uintptr_t, bool) noexcept override { return {}; }
    void unsettle() noexcept override { unsettled_ = true; }

private:
    /// Few handles: each costs the driver as much as many bytes.
    static constexpr std::size_t largest_handle = 1_GiB;
    struct Part {
        PageHandle handle{};
        std::size_t bytes = 0;
        bool mapped = false;
    };

    Status try_take() noexcept;

    AnyDriver driver_;
    AnyDriver peer_;
    Address address_ = 0; ///< 0: nothing is reserved
    std::size_t bytes_ = 0;
    std::vector<Part> parts_; ///< from the front of the range
    std::atomic<bool> unsettled_{false};
};

/// Locations are addresses on the peer. Copies go over the link between the two, by the device's own lanes; nothing
/// passes the host but what the program reads or writes there.
class PeerStore final : public BackupStore {
public:
    PeerStore(AnyDriver driver, AnyDriver peer, StoreOptions options);

    [[nodiscard]] std::size_t alignment() const noexcept override { return 256; }
    MEMSAVER_INLINE Room grow(std::size_t bytes, const LiveSet& live) override;
    void discard(std::uint64_t, std::size_t) noexcept override {} // pages go with their region
    MEMSAVER_INLINE void shrink(LocationSpace& space) override;
    MEMSAVER_INLINE Status clear() noexcept override;
    MEMSAVER_INLINE Status retry() noexcept override;
    void prepare(std::vector<Unit>) override {} // `grow` has taken all that it takes
    MEMSAVER_INLINE std::unique_ptr<Ticket::Work> out(std::vector<Unit> units, const LiveSet& live) override;
    MEMSAVER_INLINE std::unique_ptr<Ticket::Work> in(std::vector<Unit> units, const LiveSet& live) override;
    MEMSAVER_INLINE void compare(std::vector<Unit> units, const LiveSet& live) override;
    MEMSAVER_INLINE void change(const Unit& unit, std::size_t offset, const std::byte* from,
                                std::size_t bytes) override;
    /// A copy on the host.
    [[nodiscard]] MEMSAVER_INLINE BackupView view(std::uint64_t location, std::size_t bytes) const override;

    // ByteStore
    MEMSAVER_INLINE Status put(const std::byte* from, std::uint64_t location,
                               std::size_t bytes) const noexcept override;
    MEMSAVER_INLINE Status get(std::byte* to, std::uint64_t location, std::size_t bytes) const noexcept override;

private:
    /// What one mark covers: small enough that the first bytes are known to be there early.
    static constexpr std::size_t piece_bytes = 64_MiB;

    [[nodiscard]] std::shared_ptr<PeerPages> pages_of(std::uint64_t location) const;
    [[nodiscard]] std::vector<Piece> cut(std::vector<Unit> units, std::size_t piece,
                                         const std::vector<Range>& first = {}) const;
    std::unique_ptr<Ticket::Work> start(Direction direction, std::vector<Unit> units, const LiveSet& live);
    /// `copy(stream)` on a stream of the peer, and waits for it.
    template <class Copy>
    Status on_peer(Copy&& copy) const noexcept;

    AnyDriver driver_;
    AnyDriver peer_;
    StoreOptions options_;
    std::string whose_; ///< for the text of errors
    std::shared_ptr<Ring> ring_;
    std::shared_ptr<HostRegions> views_ = std::make_shared<HostRegions>();
    std::vector<std::shared_ptr<PeerPages>> pages_;
    std::vector<std::shared_ptr<PeerPages>> held_; ///< could not be given back
};

} // namespace detail

} // namespace memsaver::inline v0_2

#ifndef MEMSAVER_COMPILED
#include "memsaver/backup/peer_store.ipp"
#endif
