// Definitions of tagged_arena.hpp.
#pragma once

#include "memsaver/arena/run_steps.hpp"
#include "memsaver/arena/tagged_arena.hpp"
#include "memsaver/core/vector.hpp"
#include "memsaver/driver/host_cells.hpp"

#include <algorithm>
#include <functional>
#include <new>
#include <vector>

namespace memsaver::inline v0_3::detail {

MEMSAVER_INLINE void OwnedArena::say_who_holds(Error& error, const ArenaCore& arena) noexcept {
    auto* const lacking = dynamic_cast<OutOfMemory*>(&error);
    if (lacking == nullptr) return;
    if (lacking->device() < 0) lacking->attach_device(arena.device());
    DeviceMemory memory;
    if (!arena.driver().memory(memory).ok()) return;
    try {
        const std::size_t own = arena.mapped_bytes();
        const std::size_t used = memory.total_bytes - std::min(memory.free_bytes, memory.total_bytes);
        std::vector<Holder> rows;
        if (own != 0) rows.push_back({.tag = arena.tag(), .device = arena.device(), .bytes = own, .state = {}});
        const std::string text = line_of(rows, used - std::min(own, used), "this tag");
        error.attach(std::move(rows));
        if (!text.empty()) error.append("; " + text);
    } catch (const std::bad_alloc&) { // then the error has no holders
    }
}

template <class Act, class... Arguments>
decltype(auto) OwnedArena::run(Act&& act, Arguments&&... arguments) const {
    ArenaCore& arena = core();
    try {
        return translated([&]() -> decltype(auto) { return std::invoke(act, arena, arguments...); });
    } catch (Error& error) {
        name_tag(error, arena.tag());
        say_who_holds(error, arena);
        throw;
    }
}

MEMSAVER_INLINE OwnedArena::OwnedArena(AnyDriver driver, std::string tag, AnyPolicy policy, ArenaOptions options)
    : core_{translated([&] {
          if (!options.host_budget) options.host_budget = new_shared<HostBudget>();
          return make_arena_core(std::move(driver), std::move(tag), std::move(policy), std::move(options));
      })} {
    run(&ArenaCore::reserve);
}

MEMSAVER_INLINE void* OwnedArena::allocate(const Request& request) { return run(&ArenaCore::allocate, request); }

MEMSAVER_INLINE void OwnedArena::free(void* pointer, const FreeOrder& order) {
    run([&](ArenaCore& arena) { arena.deallocate(pointer, order); });
}

MEMSAVER_INLINE Report OwnedArena::pause(const PauseOptions& options) {
    return run([&](ArenaCore& arena) {
        const Deadline deadline = deadline_after(options.timeout);
        Vector<PauseStep> steps;
        steps.reserve(1);
        Turn::Hold turn = arena.take_turn(deadline, "pause");
        if (options.order.kind() != Order::Kind::after) arena.await_copies(deadline);
        steps.emplace_back(arena, std::move(turn), options.bytes);
        return run_release(steps, options.order, deadline);
    });
}

MEMSAVER_INLINE Report OwnedArena::resume(const ResumeOptions& options) {
    return run([&](ArenaCore& arena) {
        require_keeps_nothing(options);
        Relief relief;
        for (RoomWithin patience{options.room_within};;) {
            try {
                Vector<ResumeStep> steps;
                steps.reserve(1);
                steps.emplace_back(arena, arena.take_turn({}, "resume"), options.bytes);
                return run_resume(steps);
            } catch (const OutOfMemory&) {
                const auto release = [&](bool wait) {
                    if (wait) arena.wait_for_frees();
                    return arena.release_unused(wait) != 0;
                };
                if (relief.again(release, [&] { return arena.wait_for_copies(patience.until()); })) continue;
                if (patience.over()) throw;
            }
            patience.sleep();
        }
    });
}

MEMSAVER_INLINE Report OwnedArena::trim(const TrimOptions& options) {
    return run([&](ArenaCore& arena) {
        const Deadline deadline = deadline_after(options.timeout);
        Vector<TrimStep> steps;
        steps.reserve(1);
        Turn::Hold turn = arena.take_turn(deadline, "trim");
        if (options.order.kind() == Order::Kind::device) arena.await_copies(deadline);
        steps.emplace_back(arena, std::move(turn));
        arena.trim_host();
        return run_release(steps, options.order, deadline);
    });
}

MEMSAVER_INLINE void OwnedArena::prepare() {
    run([](ArenaCore& arena) {
        require_keeps_bytes(arena.policy(), "prepare", arena.tag());
        arena.prepare();
    });
}

MEMSAVER_INLINE void OwnedArena::invalidate() {
    run([](ArenaCore& arena) {
        require_keeps_bytes(arena.policy(), "invalidate", arena.tag());
        arena.invalidate();
    });
}

MEMSAVER_INLINE void OwnedArena::forget_backup() { run(&ArenaCore::forget_backup); }

MEMSAVER_INLINE BackupView OwnedArena::backup_view(const void* pointer, std::size_t bytes) {
    return run(&ArenaCore::backup_view, pointer, bytes);
}

MEMSAVER_INLINE void OwnedArena::write_backup(void* pointer, const void* from, std::size_t bytes) {
    run(&ArenaCore::write_backup, pointer, from, bytes);
}

MEMSAVER_INLINE void OwnedArena::load(void* pointer, std::size_t bytes, const std::string& path, std::size_t offset) {
    run(&ArenaCore::load, pointer, FileRange{path, offset, bytes});
}

MEMSAVER_INLINE void OwnedArena::invalidate(const void* pointer, std::size_t bytes) {
    run([&](ArenaCore& arena) { arena.invalidate(pointer, bytes); });
}

MEMSAVER_INLINE std::size_t OwnedArena::bytes_to_resume() const { return run(&ArenaCore::bytes_to_resume); }

MEMSAVER_INLINE ArenaUsage OwnedArena::usage() const { return run(&ArenaCore::usage); }

MEMSAVER_INLINE void OwnedArena::close() {
    run([](ArenaCore& arena) { arena.close(); });
}

MEMSAVER_INLINE const std::string& OwnedArena::tag() const { return core().tag(); }

MEMSAVER_INLINE ArenaCore& OwnedArena::core() const {
    if (core_ == nullptr) [[unlikely]]
        misuse({"use of a moved-from TaggedArena"});
    return *core_;
}

} // namespace memsaver::inline v0_3::detail
