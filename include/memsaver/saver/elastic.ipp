// Definitions of elastic.hpp.
#pragma once

#include "memsaver/arena/arena.hpp"
#include "memsaver/saver/arena_handle.hpp"
#include "memsaver/saver/elastic.hpp"
#include "memsaver/saver/saver_core.hpp"
#include "memsaver/saver/saver_state.hpp"

#include <utility>

namespace memsaver::inline v0_3 {

MEMSAVER_INLINE Elastic& Elastic::operator=(Elastic&& other) noexcept {
    Elastic taken{std::move(other)}; // what this had ends with it
    arena_.swap(taken.arena_);
    range_.swap(taken.range_);
    std::swap(asked_, taken.asked_);
    return *this;
}

MEMSAVER_INLINE Elastic::~Elastic() {
    asked_ = {};
    if (range_ != nullptr) arena_->saver().end(arena_->base(), std::move(range_));
}

MEMSAVER_INLINE void* Elastic::data() const {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): device addresses are numbers
    return reinterpret_cast<void*>(range().address());
}

MEMSAVER_INLINE void Elastic::commit(std::size_t offset, std::size_t bytes) {
    detail::ElasticRange& own = range();
    detail::SaverCore& saver = arena_->saver();
    saver.boundary("commit", arena_->base(),
                   [&] { saver.state().with_room(arena_->base(), [&] { own.commit(offset, bytes); }); });
}

MEMSAVER_INLINE void Elastic::release(std::size_t offset, std::size_t bytes, const Order& order) {
    detail::ElasticRange& own = range();
    detail::SaverCore& saver = arena_->saver();
    saver.boundary("release", arena_->base(),
                   [&] { own.release(offset, bytes, saver.state().release_order(arena_->base(), order)); });
}

MEMSAVER_INLINE void Elastic::resize(std::size_t bytes, const Order& order) {
    detail::ElasticRange& own = range();
    detail::SaverCore& saver = arena_->saver();
    saver.boundary("resize", arena_->base(), [&] {
        saver.state().with_room(arena_->base(), [&] {
            if (!own.grow(bytes)) own.shrink(bytes, saver.state().release_order(arena_->base(), order));
        });
    });
}

MEMSAVER_INLINE std::size_t Elastic::granularity() const { return range().step(); }

MEMSAVER_INLINE std::size_t Elastic::committed_bytes() const { return range().committed_bytes(); }

MEMSAVER_INLINE std::size_t Elastic::capacity() const { return range().bytes(); }

MEMSAVER_INLINE const Arena& Elastic::arena() const {
    (void)range();
    return *arena_;
}

MEMSAVER_INLINE detail::ElasticRange& Elastic::range() const {
    if (range_ == nullptr) detail::misuse({"use of an empty or moved-from Elastic"});
    return *range_;
}

} // namespace memsaver::inline v0_3
