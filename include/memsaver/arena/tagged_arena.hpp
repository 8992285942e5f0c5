// One arena without a saver: the typed form.
#pragma once

#include "memsaver/arena/host_memory_guard.hpp"
#include "memsaver/arena/run_steps.hpp"

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace memsaver::inline v0_1 {

/// Owns memory that can be paused and resumed as one. Movable, and of no use once moved from; gives everything back
/// when it dies, waiting for the device. Every method may be called from any thread.
template <Driver D, Backup<D> Policy = Discard>
class TaggedArena {
public:
    /// Throws Misuse for impossible options, OutOfMemory if `options.reserve` does not fit, or what a failing driver
    /// call stands for.
    TaggedArena(D driver, std::string tag, Policy policy = {}, ArenaOptions options = {})
        : core_{guard_host_memory([&] {
              auto core = std::make_unique<ArenaCore<D>>(std::move(driver), std::move(tag), std::move(policy),
                                                         std::move(options));
              core->reserve();
              return core;
          })} {}
    TaggedArena(TaggedArena&&) noexcept = default;
    TaggedArena& operator=(TaggedArena&& other) noexcept {
        std::swap(core_, other.core_);
        return *this;
    }
    ~TaggedArena() {
        if (core_ && core_->forked()) (void)core_.release(); // the parent's
    }

    /// See ArenaBase::allocate.
    [[nodiscard]] void* allocate(std::size_t bytes, std::size_t alignment = ArenaBase::default_alignment) {
        return used().allocate(bytes, alignment);
    }
    /// The block is not handed out again before the device's work so far has passed it. Never waits.
    void deallocate(void* pointer) { used().deallocate(pointer, {}); }
    /// The block can be handed out again once `stream` has passed here.
    void deallocate(void* pointer, StreamRef stream) { used().deallocate(pointer, {FreeOrder::Kind::stream, stream}); }
    /// The block can be handed out again at once.
    void deallocate(void* pointer, AlreadyIdle) { used().deallocate(pointer, {FreeOrder::Kind::idle, {}}); }

    /// Gives the physical pages back; addresses stay. See MemorySaver::pause.
    Report pause(const PauseOptions<D>& options = {}) {
        return guard_host_memory([&] {
            const Deadline deadline = deadline_after(options.timeout);
            std::vector<PauseStep<D>> steps;
            steps.emplace_back(used(), used().take_turn(deadline, "pause"), options.bytes);
            return run_pause(steps, options.order, deadline);
        });
    }
    /// Fresh pages at the same addresses, of its own unused ones if the device has no others. See MemorySaver::resume.
    Report resume() {
        return guard_host_memory([&] {
            std::vector<ResumeStep<D>> steps;
            steps.emplace_back(used(), used().take_turn({}, "resume"));
            return run_resume(steps, [&] { return trim_now(used()) != 0; });
        });
    }
    /// Gives back extents in which no block lives.
    Report trim(const TrimOptions& options = {}) {
        return guard_host_memory([&] {
            const Deadline deadline = deadline_after(options.timeout);
            std::vector<TrimStep<D>> steps;
            steps.emplace_back(used(), used().take_turn(deadline, "trim"));
            return run_trim(steps, options.order, deadline);
        });
    }

    /// Takes host memory ahead of the first pause. See MemorySaver::prepare.
    void prepare() {
        guard_host_memory([&] { used().prepare(); });
    }
    /// See MemorySaver::backup_view.
    [[nodiscard]] BackupView backup_view(const void* pointer, std::size_t bytes) {
        return guard_host_memory([&] { return used().backup_view(pointer, bytes); });
    }
    void invalidate() {
        guard_host_memory([&] { used().invalidate(); });
    }
    [[nodiscard]] std::size_t bytes_to_resume() {
        return guard_host_memory([&] { return used().bytes_to_resume(); });
    }
    [[nodiscard]] ArenaUsage usage() const {
        return guard_host_memory([&] { return used().usage(); });
    }
    [[nodiscard]] const std::string& tag() const { return used().tag(); }
    [[nodiscard]] const D& driver() const { return used().driver(); }

    /// Gives everything back now; later calls throw Misuse. See ArenaCore::close.
    void close() {
        guard_host_memory([&] { used().close(); });
    }

    /// The steps of its operations, for programs that interleave them with their own.
    [[nodiscard]] ArenaCore<D>& core() { return used(); }

private:
    [[nodiscard]] ArenaCore<D>& used() const {
        if (core_ == nullptr) [[unlikely]]
            throw Misuse{"a TaggedArena that was moved from was used"};
        return *core_;
    }

    std::unique_ptr<ArenaCore<D>> core_;
};

} // namespace memsaver::inline v0_1
