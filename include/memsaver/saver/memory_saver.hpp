// The saver: tags, regions, pause and resume. The class that programs use.
#pragma once

#include "memsaver/arena/host_memory_guard.hpp"
#include "memsaver/saver/arena_handle.hpp"
#include "memsaver/saver/buffer.hpp"
#include "memsaver/saver/region.hpp"
#include "memsaver/saver/saver_core.hpp"

#include <cstddef>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace memsaver::inline v0_1 {

/// Hands out device memory by tag; pauses and resumes it by tag. Every method may be called from any thread. Movable;
/// one that was moved from is of no use. What it made (arenas, regions, buffers, hooks) may outlive it. Memory goes
/// back to the device when the last of them dies, or by `close()`.
///
/// What methods throw: Misuse for what cannot be meant, OutOfMemory and OutOfHostMemory where there is no room (nothing
/// has changed, and the same call succeeds once there is), DeviceLost, and DriverError for other failures of the
/// driver. An exception of pause, resume or trim carries the report of what had been done. Repeating the call goes on
/// from there.
template <Driver D>
class MemorySaver {
public:
    using Tags = std::initializer_list<std::string_view>;

    explicit MemorySaver(D driver, SaverOptions options = {})
        : core_{guard_host_memory(
              [&] { return std::make_shared<SaverCore<D>>(std::move(driver), std::move(options)); })} {}

    // --- where memory comes from ---

    /// The memory of a tag on this saver's device, made if there is none: with `Discard` for a new tag.
    [[nodiscard]] Arena arena(std::string_view tag) { return make_arena(tag, {}, used().driver(), {}); }
    /// The same with a policy, which must be the tag's if it exists.
    [[nodiscard]] Arena arena(std::string_view tag, AnyBackup<D> policy) {
        return make_arena(tag, std::move(policy), used().driver(), {});
    }
    /// The same with options. A tag that exists on the device must have those that are not as they are by default; an
    /// event sink can be named only when it is made, for two cannot be compared.
    [[nodiscard]] Arena arena(std::string_view tag, AnyBackup<D> policy, ArenaOptions options) {
        return make_arena(tag, std::move(policy), used().driver(), std::move(options));
    }
    /// The same on another device. A tag has one policy on all of them.
    [[nodiscard]] Arena arena(std::string_view tag, AnyBackup<D> policy, const D& driver) {
        return make_arena(tag, std::move(policy), driver, {});
    }
    [[nodiscard]] Arena arena(std::string_view tag, AnyBackup<D> policy, const D& driver, ArenaOptions options) {
        return make_arena(tag, std::move(policy), driver, std::move(options));
    }

    /// Until the region ends, this thread's `allocate` serves from the tag. Arguments as for `arena`.
    template <class... Arguments>
    [[nodiscard]] Region region(std::string_view tag, Arguments&&... arguments) {
        return guard_host_memory([&] { return Region{core_, arena_of(tag, std::forward<Arguments>(arguments)...)}; });
    }
    /// Until the region ends, this thread's `allocate` serves plain memory, which is never paused.
    [[nodiscard]] Region outside() {
        return guard_host_memory([&] { return Region{core_, used().outside()}; });
    }

    /// `bytes` at a multiple of `alignment`, from this thread's innermost region. Throws Misuse outside of any.
    [[nodiscard]] void* allocate(std::size_t bytes, std::size_t alignment = ArenaBase::default_alignment) {
        return guard_host_memory([&] { return used().allocate(bytes, alignment); });
    }
    /// As safe as cudaFree: the block is not handed out again before the device's work so far has passed it. Does not
    /// wait, but for plain memory. Paused or not, whatever tag it is of. Null does nothing.
    void deallocate(void* pointer) { give_up(pointer, {}); }
    /// The block can be handed out again once `stream`, of any device of this saver, has passed here.
    void deallocate(void* pointer, StreamRef stream) { give_up(pointer, {FreeOrder::Kind::stream, stream}); }
    /// The block can be handed out again at once: no work touches it any more.
    void deallocate(void* pointer, AlreadyIdle) { give_up(pointer, {FreeOrder::Kind::idle, {}}); }

    // --- pause and resume ---

    /// Gives the physical pages of every tag back to the device; addresses stay. Waits first for the work that the
    /// device was given before the call (see PauseOptions); the program stops submitting work that touches the memory.
    /// What is paused already stays so. The bytes become what each tag's policy says.
    Report pause(const PauseOptions<D>& options = {}) {
        return guard_host_memory([&] { return used().pause({}, options); });
    }
    Report pause(std::string_view tag, const PauseOptions<D>& options = {}) { return pause(Tags{tag}, options); }
    Report pause(Tags tags, const PauseOptions<D>& options = {}) {
        return guard_host_memory([&] { return pause(names_of(tags), options); });
    }
    Report pause(const std::vector<std::string>& tags, const PauseOptions<D>& options = {}) {
        if (tags.empty()) return none("pause"); // no tag is not every tag
        return guard_host_memory([&] { return used().pause(tags, options); });
    }

    /// Fresh pages at the same addresses, and the bytes that the policies kept. All tags' memory is taken before any is
    /// mapped: without room for all, nothing changes. On return, every stream sees the bytes. Paused memory in which no
    /// block lives any more is not brought back.
    Report resume() {
        return guard_host_memory([&] { return used().resume({}); });
    }
    Report resume(std::string_view tag) { return resume(Tags{tag}); }
    Report resume(Tags tags) {
        return guard_host_memory([&] { return resume(names_of(tags)); });
    }
    Report resume(const std::vector<std::string>& tags) {
        if (tags.empty()) return none("resume");
        return guard_host_memory([&] { return used().resume(tags); });
    }

    /// Physical bytes that resuming these tags would take now.
    [[nodiscard]] std::size_t bytes_to_resume() {
        return guard_host_memory([&] { return used().bytes_to_resume({}); });
    }
    [[nodiscard]] std::size_t bytes_to_resume(std::string_view tag) { return bytes_to_resume(Tags{tag}); }
    [[nodiscard]] std::size_t bytes_to_resume(Tags tags) {
        if (tags.size() == 0) return (void)open("bytes_to_resume"), 0;
        return guard_host_memory([&] { return used().bytes_to_resume(names_of(tags)); });
    }

    /// Gives back extents in which no block lives. Waits as pause does, so that blocks freed before count.
    Report trim(const TrimOptions& options = {}) {
        return guard_host_memory([&] { return used().trim({}, options); });
    }
    Report trim(std::string_view tag, const TrimOptions& options = {}) {
        return guard_host_memory([&] { return used().trim({std::string{tag}}, options); });
    }

    /// Takes, ahead of the first pause, the host memory or the disk's room that saving the tag's live blocks would
    /// take. From any thread, while the engine works and captures graphs; the first pause is then as fast as later
    /// ones. Throws as a pause would.
    void prepare(std::string_view tag) {
        guard_host_memory([&] { used().prepare({std::string{tag}}); });
    }

    /// The kept bytes of `bytes` at `pointer` (or inside its block): while the memory is paused, and later for as long
    /// as the policy keeps them. Shares the host memory where they lie, or owns a copy of what lay in a file. Throws
    /// Misuse that says why there are none.
    [[nodiscard]] BackupView backup_view(const void* pointer, std::size_t bytes) {
        return guard_host_memory([&] { return used().backup_view(pointer, bytes); });
    }

    /// The program has changed bytes that a policy may have saved before: save them again at the next pause.
    void invalidate(std::string_view tag) {
        guard_host_memory([&] { used().invalidate({std::string{tag}}); });
    }

    // --- around it ---

    /// Hooks run on the thread that pauses or resumes, with no lock held, in the order in which they were added. If one
    /// that runs before throws, nothing happens. Those that run after all run, then the first exception is thrown
    /// again; they do not run when the operation failed. They may allocate and free, but not pause, resume, trim or
    /// close.
    [[nodiscard]] Hook before_pause(std::function<void(PauseEvent&)> function) {
        return guard_host_memory([&] { return open("before_pause").before_pause.add(std::move(function)); });
    }
    [[nodiscard]] Hook after_pause(std::function<void(PauseEvent&)> function) {
        return guard_host_memory([&] { return open("after_pause").after_pause.add(std::move(function)); });
    }
    [[nodiscard]] Hook before_resume(std::function<void(ResumeEvent&)> function) {
        return guard_host_memory([&] { return open("before_resume").before_resume.add(std::move(function)); });
    }
    [[nodiscard]] Hook after_resume(std::function<void(ResumeEvent&)> function) {
        return guard_host_memory([&] { return open("after_resume").after_resume.add(std::move(function)); });
    }

    /// The same for hooks that come as a whole, such as `trim_cuda_pools`: they add what they want to run, and where.
    template <class Parts>
    requires requires(const Parts& parts, SaverCore<D>& core) { parts.install_after_pause(core); }
    [[nodiscard]] Hook after_pause(const Parts& parts) { return parts.install_after_pause(open("after_pause")); }
    template <class Parts>
    requires requires(const Parts& parts, SaverCore<D>& core) { parts.install_after_resume(core); }
    [[nodiscard]] Hook after_resume(const Parts& parts) { return parts.install_after_resume(open("after_resume")); }

    /// Who holds what, by tag and device, and what the whole devices hold. Printable.
    [[nodiscard]] Usage usage() {
        return guard_host_memory([&] { return used().usage(); });
    }

    /// Gives everything back now, waiting for the device first. Afterwards every use is Misuse, and the destructors of
    /// what still lives are quiet. Throws the first failure after everything has been tried; may be called again.
    void close() {
        guard_host_memory([&] { used().close(); });
    }

    [[nodiscard]] bool enabled() const { return used().enabled(); }
    [[nodiscard]] const D& driver() const { return used().driver(); }

    /// What all its handles share; for what is built on savers.
    [[nodiscard]] const std::shared_ptr<SaverCore<D>>& core() const {
        (void)used();
        return core_;
    }

private:
    template <class... Arguments>
    ArenaBase& arena_of(std::string_view tag, Arguments&&... arguments) {
        return arena(tag, std::forward<Arguments>(arguments)...).base();
    }
    Arena make_arena(std::string_view tag, const std::optional<AnyBackup<D>>& policy, const D& driver,
                     const std::optional<ArenaOptions>& options) {
        return guard_host_memory([&] { return Arena{core_, used().arena(tag, policy, driver, options)}; });
    }
    void give_up(void* pointer, const FreeOrder& order) {
        guard_host_memory([&] { used().deallocate(pointer, order); });
    }
    [[nodiscard]] SaverCore<D>& used() const {
        if (core_ == nullptr) [[unlikely]]
            throw Misuse{"a MemorySaver that was moved from was used"};
        return *core_;
    }
    /// The same for what only an open saver takes.
    [[nodiscard]] SaverCore<D>& open(const char* what) const {
        used().require_open(what);
        return used();
    }
    /// What an operation of no tag reports.
    [[nodiscard]] Report none(const char* what) const {
        (void)open(what);
        return {};
    }
    static std::vector<std::string> names_of(Tags tags) { return {tags.begin(), tags.end()}; }

    std::shared_ptr<SaverCore<D>> core_;
};

} // namespace memsaver::inline v0_1
