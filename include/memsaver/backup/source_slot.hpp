// The slot of bytes that have a file as their home. Knows when they are read; not which they are, nor how a file is
// read.
#pragma once

#include "memsaver/backup/policy.hpp"
#include "memsaver/backup/ticket.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace memsaver::inline v0_2 {

namespace detail {

class SourceBooks;

/// What the books (SourceBooks) say lies in a file is read from it, the rest is a StoredSlot's.
class SourceSlot {
public:
    explicit SourceSlot(std::shared_ptr<SourceBooks> books) : books_{std::move(books)} {}

    void prepare(const LiveSet& live);
    Ticket save(const LiveSet& live);
    Ticket restore(const LiveSet& live);
    static constexpr bool asks_before_write = true;
    void saved_in_part(const std::vector<Range>& away) noexcept;
    Status resumed() noexcept;
    void set_retain(bool yes) noexcept;
    Status close() noexcept;
    void forget(std::uint64_t serial) noexcept;
    /// All bytes changed: none has its home in a file any more.
    void invalidate() noexcept;
    void invalidate(const LiveBlock& block, std::size_t offset, std::size_t bytes);
    /// What is kept may be old; what lies in files is not.
    void outdated() noexcept;
    [[nodiscard]] std::size_t backed_up_bytes() const noexcept;
    [[nodiscard]] BackupView view(std::uint64_t serial, std::size_t offset, std::size_t bytes) const;
    /// Bytes that have other contents from now on have no home in a file.
    void write(const LiveBlock& block, std::size_t offset, const std::byte* from, std::size_t bytes);

    /// Reads a part of a block, all of which is mapped, and notes that it has its home there. Throws before anything
    /// has changed where the file cannot be had; where reading fails, some bytes may be the new ones, and these have no
    /// home.
    void load(const LiveBlock& block, std::size_t offset, const FileRange& from, const LiveSet& live);

private:
    std::shared_ptr<SourceBooks> books_;
};

} // namespace detail

} // namespace memsaver::inline v0_2

#ifndef MEMSAVER_COMPILED
#include "memsaver/backup/source_slot.ipp"
#endif
