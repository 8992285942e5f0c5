// The slot of FileSource. Knows when files are read, but not which bytes are in files or how files are read.
#pragma once

#include "memsaver/backup/stored_slot.hpp"

#include <cstddef>
#include <memory>

namespace memsaver::inline v0_3::detail {

class SourceStore;

/// A StoredSlot over a SourceStore.
class SourceSlot : public StoredSlot {
public:
    SourceSlot(std::shared_ptr<SourceStore> store, bool retain);

    /// If it does not retain, only the kept bytes are freed: the others are still read from their files.
    Status resumed() noexcept;
    /// All bytes changed: none is read from a file any more.
    void invalidate() noexcept;
    void invalidate(const LiveBlock& block, std::size_t offset, std::size_t bytes);
    /// Every pause saves kept bytes again. Bytes in files are not affected.
    void outdated() noexcept {}

    /// Reads a part of a block, all of which is mapped, and records its origin. If the file cannot be opened, throws
    /// before anything has changed. If reading fails, some bytes may be new, and none of them has an origin.
    void load(const LiveBlock& block, std::size_t offset, const FileRange& from, const LiveSet& live);

private:
    [[nodiscard]] SourceStore& store() const noexcept;
};

} // namespace memsaver::inline v0_3::detail

#ifndef MEMSAVER_COMPILED
#include "memsaver/backup/source_slot.ipp"
#endif
