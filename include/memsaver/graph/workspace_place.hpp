// One range of addresses that workspaces of a group share: the pool's own, which grows, or memory that somebody lent.
// Does not know names.
#pragma once

#include "memsaver/saver/saver.hpp"

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

namespace memsaver::inline v0_1 {

class WorkspacePlace {
public:
    /// Addresses of the arena's; throws what ArenaBase::reserve_block throws.
    WorkspacePlace(const Arena& arena, std::string group, std::size_t cap)
        : arena_{arena}, group_{std::move(group)}, own_{arena.reserve_block(cap)} {}
    /// `bytes` at `memory`, which lie in `arena`.
    WorkspacePlace(const Arena& arena, std::string group, std::shared_ptr<void> memory, std::size_t bytes)
        : arena_{arena}, group_{std::move(group)}, lent_{std::move(memory)}, lent_bytes_{bytes} {}
    WorkspacePlace(const WorkspacePlace&) = delete;
    WorkspacePlace& operator=(const WorkspacePlace&) = delete;
    ~WorkspacePlace() { arena_.end(std::move(own_)); }

    [[nodiscard]] const std::string& group() const noexcept { return group_; }
    [[nodiscard]] bool lent() const noexcept { return own_ == nullptr; }
    [[nodiscard]] void* data() const noexcept {
        // NOLINTNEXTLINE(performance-no-int-to-ptr): device addresses are numbers
        return own_ ? reinterpret_cast<void*>(own_->address()) : lent_.get();
    }
    /// Bytes with memory behind them.
    [[nodiscard]] std::size_t bytes() const noexcept { return own_ ? own_->bytes() : lent_bytes_; }
    /// Bytes that it can grow to.
    [[nodiscard]] std::size_t cap() const noexcept { return own_ ? own_->cap() : lent_bytes_; }

    /// Throws what GrowingBlock::grow throws.
    void grow(std::size_t bytes) {
        if (own_) arena_.grow(*own_, bytes);
    }
    void zero(std::size_t bytes, StreamRef stream) { arena_.base().zero(data(), bytes, stream); }

private:
    Arena arena_; // declared before its block, so that it dies later
    std::string group_;
    std::unique_ptr<GrowingBlock> own_;
    std::shared_ptr<void> lent_;
    std::size_t lent_bytes_ = 0;
};

} // namespace memsaver::inline v0_1
