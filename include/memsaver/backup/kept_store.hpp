// What the stores that keep bytes themselves have in common.
#pragma once

#include "memsaver/backup/host_share.hpp"
#include "memsaver/backup/store.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {

/// Cuts units into pieces and moves them; what derives from it knows where bytes are.
class KeptStore : public BackupStore {
public:
    MEMSAVER_INLINE std::unique_ptr<Ticket::Work> out(std::vector<Unit> units, const LiveSet& live) override;
    MEMSAVER_INLINE std::unique_ptr<Ticket::Work> in(std::vector<Unit> units, const LiveSet& live) override;
    MEMSAVER_INLINE void compare(std::vector<Unit> units, const LiveSet& live, CompareWith compare_with) override;
    /// Unless overridden, returns a copy of the bytes.
    [[nodiscard]] MEMSAVER_INLINE BackupView view(std::uint64_t location, std::size_t bytes) const override;
    MEMSAVER_INLINE void about(const LiveSet& live) override;
    Status retry() noexcept override { return share_.retry(); }

protected:
    /// `reading`: what an error says of a failed `get`.
    KeptStore(AnyDriver driver, StoreOptions options, std::size_t largest_buffer, const Attempt& reading);

    /// Starts a transfer. `first`: the ranges whose bytes are needed first.
    virtual std::unique_ptr<Ticket::Work> start(Direction direction, std::vector<Unit> units, const LiveSet& live,
                                                const std::vector<Range>& first) = 0;
    /// Returns whether two neighbors must not be in one piece.
    [[nodiscard]] virtual bool apart(const Unit&, const Unit&) const { return false; }

    [[nodiscard]] std::vector<Piece> cut(std::vector<Unit> units, std::size_t cell,
                                         const std::vector<Range>& first = {}) const;
    /// Starts a transfer whose bytes pass through the ring, and `put` and `get`.
    std::unique_ptr<Ticket::Work> through_ring(Direction direction, std::vector<Unit> units, const LiveSet& live,
                                               const std::vector<Range>& first);
    /// Throws the exception for a failed status, which names the tag.
    void check_of(const Status& status, const Attempt& attempt, std::size_t bytes) const;

    AnyDriver driver_;
    StoreOptions options_;
    std::string error_prefix_; ///< for error messages
    HostShare share_;          ///< also keeps what could not be closed
    Attempt reading_;
};

} // namespace detail

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/backup/kept_store.ipp"
#endif
