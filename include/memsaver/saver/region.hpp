// The scope form of an arena.
#pragma once

#include "memsaver/saver/arena_handle.hpp"

#include <cstddef>
#include <memory>
#include <utility>

namespace memsaver::inline v0_1 {

/// From its creation to its end, `saver.allocate` on the thread that made it serves from its arena; an inner region
/// overrides an outer one. Cannot be moved. What was allocated lives on.
class [[nodiscard]] Region {
public:
    Region(std::shared_ptr<SaverBase> saver, ArenaBase& arena) : arena_{saver, arena}, saver_{std::move(saver)} {
        saver_->enter(arena, this);
    }
    Region(const Region&) = delete;
    Region& operator=(const Region&) = delete;
    ~Region() { saver_->leave(arena_.base(), this); }

    /// See Arena::allocate; any thread.
    [[nodiscard]] void* allocate(std::size_t bytes, std::size_t alignment = ArenaBase::default_alignment) const {
        return arena_.allocate(bytes, alignment);
    }

    [[nodiscard]] const Arena& arena() const noexcept { return arena_; }

private:
    Arena arena_;
    std::shared_ptr<SaverBase> saver_;
};

} // namespace memsaver::inline v0_1
