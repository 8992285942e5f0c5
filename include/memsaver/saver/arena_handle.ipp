// Definitions of arena_handle.hpp.
#pragma once

#include "memsaver/arena/arena.hpp"
#include "memsaver/backup/file_source.hpp"
#include "memsaver/core/pointers.hpp"
#include "memsaver/saver/arena_handle.hpp"
#include "memsaver/saver/elastic.hpp"
#include "memsaver/saver/gate.hpp"
#include "memsaver/saver/saver_core.hpp"
#include "memsaver/saver/saver_state.hpp"

#include <exception>

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
    if (arena_ == nullptr || saver_->forked() || arena_->closed()) return;
    try {
        if (pointer != nullptr) saver_->state().free(*arena_, pointer, {});
    } catch (const std::exception& error) {
        detail::tell(arena_->options().events, EventKind::ignored, tag(), device(), {error.what()});
    }
}

MEMSAVER_INLINE Elastic Arena::elastic(std::size_t bytes) const { return elastic(bytes, {}); }

MEMSAVER_INLINE Elastic Arena::elastic(std::size_t bytes, const ElasticOptions& options) const {
    return saver().boundary("elastic", *arena_, [&] {
        Elastic made{detail::new_shared<const Arena>(*this), saver_->reserve(*this, bytes, options.granularity, false)};
        if (options.on_reclaim && saver_->enabled())
            made.asked_ = saver_->state().add_owner(made.arena_, *arena_, made.range_, options.on_reclaim);
        return made;
    });
}

MEMSAVER_INLINE BackupView Arena::backup_view(const void* pointer, std::size_t bytes) const {
    return saver().boundary("backup_view", *arena_, [&] {
        if (saver_->state().always_there("backup_view", *arena_, pointer, bytes) == nullptr)
            return arena_->backup_view(pointer, bytes);
        detail::misuse({"backup_view(", detail::in_hex(pointer), ", ", detail::in_bytes(bytes), ") in tag ",
                        detail::in_quotes(tag()), ": this is plain memory, which is never paused"});
    });
}

MEMSAVER_INLINE void Arena::write_backup(void* pointer, const void* from, std::size_t bytes) const {
    saver().boundary("write_backup", *arena_, [&] {
        detail::PlainMemory* const plain = saver_->state().always_there("write_backup", *arena_, pointer, bytes);
        plain != nullptr ? plain->write(*plain, *arena_, pointer, from, bytes)
                         : arena_->write_backup(pointer, from, bytes);
    });
}

MEMSAVER_INLINE void Arena::load(void* pointer, std::size_t bytes, const std::string& path, std::size_t offset) const {
    saver().boundary("load", *arena_, [&] {
        constexpr AnyPolicy (*reader)() = [] { return AnyPolicy{FileSource{}}; };
        const detail::FileRange from{path, offset, bytes};
        detail::PlainMemory* const plain = saver_->state().always_there("load", *arena_, pointer, bytes);
        plain != nullptr ? plain->load(*plain, *arena_, pointer, from, reader) : arena_->load(pointer, from);
    });
}

MEMSAVER_INLINE void Arena::invalidate(const void* pointer, std::size_t bytes) const {
    saver().boundary("invalidate", *arena_, [&] {
        if (saver_->state().always_there("invalidate", *arena_, pointer, bytes) != nullptr) return; // it is never saved
        arena_->invalidate(pointer, bytes);
    });
}

MEMSAVER_INLINE Gate Arena::gate(const void* pointer, std::size_t bytes) const {
    return saver().boundary("gate", *arena_, [&] {
        std::shared_ptr<detail::GateMark> mark;
        if (saver_->state().always_there("gate", *arena_, pointer, bytes) == nullptr)
            mark = arena_->gate(pointer, bytes);
        return Gate{saver_, arena_, std::move(mark)};
    });
}

MEMSAVER_INLINE const std::string& Arena::tag() const { return base().tag(); }

MEMSAVER_INLINE int Arena::device() const { return base().device(); }

MEMSAVER_INLINE ArenaUsage Arena::usage() const {
    return saver().boundary("usage", *arena_, [&] {
        detail::SaverState& state = saver_->state();
        ArenaUsage row = state.usage_of(*arena_);
        if (const auto resident = state.tags_.resident_of(*arena_)) state.tags_.residents().fill(*resident, row);
        return row;
    });
}

MEMSAVER_INLINE detail::ArenaCore& Arena::base() const {
    (void)saver();
    return *arena_;
}

MEMSAVER_INLINE detail::SaverCore& Arena::saver() const {
    if (arena_ == nullptr) [[unlikely]]
        detail::misuse({"use of an empty or moved-from Arena"});
    return *saver_;
}

MEMSAVER_INLINE Region::Region(Arena arena) : arena_{std::move(arena)} {
    detail::SaverCore& saver = arena_.saver();
    saver.boundary("begin a region", arena_.base(), [&] { saver.state().regions_.enter(arena_.base(), this); });
}

MEMSAVER_INLINE Region::~Region() { arena_.saver().leave(arena_.base(), this); }

} // namespace memsaver::inline v0_3
