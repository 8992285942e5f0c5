// Definitions of arena_handle.hpp.
#pragma once

#include "memsaver/arena/arena.hpp"
#include "memsaver/saver/arena_handle.hpp"
#include "memsaver/saver/elastic.hpp"
#include "memsaver/saver/gate.hpp"
#include "memsaver/saver/saver_core.hpp"

namespace memsaver::inline v0_3 {

MEMSAVER_INLINE void* Arena::allocate(std::size_t bytes, std::size_t alignment) const {
    return saver().allocate(*arena_, {bytes, alignment, {}});
}

MEMSAVER_INLINE void* Arena::allocate(std::size_t bytes, StreamRef stream, std::size_t alignment) const {
    return saver().allocate(*arena_, {bytes, alignment, stream});
}

MEMSAVER_INLINE void Arena::deallocate(void* pointer) const { saver().deallocate(*arena_, pointer, {}); }

MEMSAVER_INLINE void Arena::deallocate(void* pointer, StreamRef stream) const {
    saver().deallocate(*arena_, pointer, {detail::FreeOrder::Kind::stream, stream});
}

MEMSAVER_INLINE void Arena::deallocate(void* pointer, AlreadyIdle) const {
    saver().deallocate(*arena_, pointer, {detail::FreeOrder::Kind::idle, {}});
}

MEMSAVER_INLINE void Arena::deallocate_quietly(void* pointer) const noexcept {
    if (arena_ != nullptr) saver_->deallocate_quietly(*arena_, pointer);
}

MEMSAVER_INLINE Elastic Arena::elastic(std::size_t bytes) const { return elastic(bytes, {}); }

MEMSAVER_INLINE Elastic Arena::elastic(std::size_t bytes, const ElasticOptions& options) const {
    return saver().elastic(*this, bytes, options);
}

MEMSAVER_INLINE BackupView Arena::backup_view(const void* pointer, std::size_t bytes) const {
    return saver().backup_view(*arena_, pointer, bytes);
}

MEMSAVER_INLINE void Arena::write_backup(void* pointer, const void* from, std::size_t bytes) const {
    saver().write_backup(*arena_, pointer, from, bytes);
}

MEMSAVER_INLINE void Arena::load(void* pointer, std::size_t bytes, const std::string& path, std::size_t offset) const {
    saver().load(*arena_, pointer, {path, offset, bytes});
}

MEMSAVER_INLINE void Arena::invalidate(const void* pointer, std::size_t bytes) const {
    saver().invalidate(*arena_, pointer, bytes);
}

MEMSAVER_INLINE Gate Arena::gate(const void* pointer, std::size_t bytes) const {
    return saver().gate(arena_, pointer, bytes);
}

MEMSAVER_INLINE const std::string& Arena::tag() const { return base().tag(); }

MEMSAVER_INLINE int Arena::device() const { return base().device(); }

MEMSAVER_INLINE ArenaUsage Arena::usage() const { return saver().usage(*arena_); }

MEMSAVER_INLINE detail::ArenaCore& Arena::base() const {
    (void)saver();
    return *arena_;
}

MEMSAVER_INLINE detail::SaverCore& Arena::saver() const {
    if (arena_ == nullptr) [[unlikely]]
        detail::misuse({"use of an empty or moved-from Arena"});
    return *saver_;
}

MEMSAVER_INLINE Region::Region(Arena arena) : arena_{std::move(arena)} { arena_.saver().enter(arena_.base(), this); }

MEMSAVER_INLINE Region::~Region() { arena_.saver().leave(arena_.base(), this); }

} // namespace memsaver::inline v0_3
