// Definitions of gate.hpp.
#pragma once

#include "memsaver/arena/arena.hpp"
#include "memsaver/arena/gates.hpp"
#include "memsaver/saver/gate.hpp"
#include "memsaver/saver/saver_core.hpp"
#include "memsaver/saver/saver_state.hpp"

namespace memsaver::inline v0_3 {

MEMSAVER_INLINE void Gate::before(StreamRef stream) const {
    if (arena_ == nullptr) detail::misuse({"use of an empty or moved-from Gate"});
    saver_->boundary("wait at a gate", *arena_, [&] {
        arena_->require_open("wait at a gate");
        if (mark_ == nullptr) return;
        if (detail::being_captured(mark_->driver, stream)) {
            saver_->state().captures_.keep(stream, mark_);
        } else if (const auto coming = arena_->arriving(); coming != nullptr && coming->failed()) {
            coming->end(); // throws its failure
        }
        check(mark_->driver.follow_outside(stream, mark_->event.get()), "make a stream wait at a gate");
    });
}

} // namespace memsaver::inline v0_3
