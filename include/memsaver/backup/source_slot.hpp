// The slot of FileSource. Knows when files are read, but not which bytes are in files or how files are read.
#pragma once

#include "memsaver/backup/policy.hpp"
#include "memsaver/backup/ticket.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {

class SourceIndex;

/// Reads bytes from files as its SourceIndex say; a StoredSlot keeps the rest.
class SourceSlot {
public:
    explicit SourceSlot(std::shared_ptr<SourceIndex> index) : index_{std::move(index)} {}

    void prepare(const LiveSet& live);
    Ticket save(const LiveSet& live);
    Ticket restore(const LiveSet& live);
    static constexpr bool asks_before_write = true;
    void saved_in_part(const std::vector<Range>& away) noexcept;
    Status resumed() noexcept;
    void set_retain(bool yes) noexcept;
    Status close() noexcept;
    void forget(std::uint64_t serial) noexcept;
    /// None of it is read from a file any more.
    void drop(std::uint64_t serial) noexcept { forget(serial); }
    /// All bytes changed: none is read from a file any more.
    void invalidate() noexcept;
    void invalidate(const LiveBlock& block, std::size_t offset, std::size_t bytes);
    /// Marks kept bytes as out of date. Bytes in files are not affected.
    void outdated() noexcept;
    [[nodiscard]] std::size_t backed_up_bytes() const noexcept;
    [[nodiscard]] BackupView view(std::uint64_t serial, std::size_t offset, std::size_t bytes) const;
    /// The written bytes are kept from now on, and no longer read from a file.
    void write(const LiveBlock& block, std::size_t offset, const std::byte* from, std::size_t bytes);

    /// Reads a part of a block, all of which is mapped, and records its origin. If the file cannot be opened, throws
    /// before anything has changed. If reading fails, some bytes may be new, and none of them has an origin.
    void load(const LiveBlock& block, std::size_t offset, const FileRange& from, const LiveSet& live);

private:
    std::shared_ptr<SourceIndex> index_;
};

} // namespace detail

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/backup/source_slot.ipp"
#endif
