// `MemorySaver`: tags, regions, pause and resume. The main class of the library.
#pragma once

#include "memsaver/core/definitions.hpp"
#include "memsaver/fwd.hpp"
#include "memsaver/saver/arena_handle.hpp"
#include "memsaver/saver/arrival.hpp"
#include "memsaver/saver/buffer.hpp"
#include "memsaver/saver/elastic.hpp"
#include "memsaver/saver/gate.hpp"
#include "memsaver/saver/saver_core.hpp"
#include "memsaver/saver/use.hpp"

#include <concepts>
#include <cstddef>
#include <functional>
#include <memory>
#include <utility>

namespace memsaver::inline v0_3 {

/// Allocates device memory under tags, and pauses and resumes it by tag. Every method is thread-safe. Move-only; using
/// a moved-from saver throws Misuse. Objects made from a saver (arenas, regions, buffers, hooks) may outlive it. The
/// memory is freed when the last of them is destroyed, or by `close()`.
///
/// `MemorySaver<>` is for classes that do not name their driver's type. It can be constructed from any driver, and from
/// a temporary or moved MemorySaver of any driver type.
///
/// Operations on tags take `Tags`: one name, a braced list, any range of names, or `Tags::under(prefix)`. Without an
/// argument they apply to every tag. `arena` and `region` take one name.
///
/// Exceptions: Misuse for invalid arguments or calls in the wrong state; OutOfMemory and OutOfHostMemory when memory is
/// short (nothing has changed, and the same call succeeds once there is enough); DeviceLost; and DriverError for other
/// driver failures. An exception from pause, resume or trim carries the report of the work done before the failure;
/// repeating the call continues from there. In a forked child every call throws Misuse.
template <class D>
class MemorySaver {
    static_assert(Driver<D>, "MemorySaver<D>: D must be AnyDriver or a driver derived from it");

public:
    explicit MemorySaver(D driver, SaverOptions options = {})
        : driver_{std::move(driver)}, core_{detail::SaverCore::make(driver_, std::move(options))} {
        detail::include_memsaver_impl_hpp_in_one_source_file();
    }
    MemorySaver(MemorySaver&&) noexcept = default;
    MemorySaver& operator=(MemorySaver&&) noexcept = default;
    ~MemorySaver() = default;

    /// Converts to a saver that hides its driver's type; it is the same saver.
    template <class Any>
    requires(std::same_as<Any, AnyDriver> && !std::same_as<D, AnyDriver>) operator MemorySaver<Any>() && {
        return MemorySaver<Any>{driver_, std::move(core_)};
    }

    // --- allocation ---

    /// Returns the arena of a tag on this saver's device; creates the tag if it does not exist. A new tag gets the
    /// saver's default policy. If the saver was made with `NewTags::with_policy`, a new tag throws Misuse instead.
    [[nodiscard]] Arena arena(TagName tag) { return used().arena(tag); }
    /// As above, with a policy. An existing tag must have the same policy.
    [[nodiscard]] Arena arena(TagName tag, AnyPolicy policy) { return used().arena(tag, std::move(policy)); }
    /// As above, with options. If the tag exists on the device, each non-default option must match it. An event sink
    /// can be passed only when the tag is created, because two sinks cannot be compared.
    [[nodiscard]] Arena arena(TagName tag, ArenaOptions options) {
        return used().arena(tag, {}, {}, std::move(options));
    }
    [[nodiscard]] Arena arena(TagName tag, AnyPolicy policy, ArenaOptions options) {
        return used().arena(tag, std::move(policy), {}, std::move(options));
    }
    /// As above, on another device. A tag has the same policy on all of its devices.
    [[nodiscard]] Arena arena(TagName tag, AnyPolicy policy, const AnyDriver& driver) {
        return used().arena(tag, std::move(policy), driver);
    }
    [[nodiscard]] Arena arena(TagName tag, AnyPolicy policy, const AnyDriver& driver, ArenaOptions options) {
        return used().arena(tag, std::move(policy), driver, std::move(options));
    }

    /// Opens a region: until it ends, this thread's `allocate` allocates in the tag. Takes the same arguments as
    /// `arena`.
    template <class... Arguments>
    [[nodiscard]] Region region(TagName tag, Arguments&&... arguments) {
        return Region{arena(tag, std::forward<Arguments>(arguments)...)};
    }
    /// Opens a region of plain memory: until it ends, this thread's `allocate` returns memory that is never paused.
    [[nodiscard]] Region outside() { return Region{used().outside()}; }

    /// Allocates `bytes` bytes, aligned to `alignment`, in this thread's innermost region; see Arena::allocate. Throws
    /// Misuse if this thread has no open region.
    [[nodiscard]] void* allocate(std::size_t bytes, std::size_t alignment = detail::Request::default_alignment) {
        return used().allocate({bytes, alignment, {}});
    }
    [[nodiscard]] void* allocate(std::size_t bytes, StreamRef stream,
                                 std::size_t alignment = detail::Request::default_alignment) {
        return used().allocate({bytes, alignment, stream});
    }
    /// Frees a block of any tag, paused or active. As safe as cudaFree: the block is not reused until all work
    /// submitted to the device before this call has completed. Does not wait, except for plain memory. Null is a no-op.
    void deallocate(void* pointer) { used().deallocate(pointer, {}); }
    /// As above, but the block can be reused once `stream` has completed all work submitted to it before this call.
    /// Misuse if the stream is known to be of another device than the block.
    void deallocate(void* pointer, StreamRef stream) {
        used().deallocate(pointer, {detail::FreeOrder::Kind::stream, stream});
    }
    /// As above, but the block can be reused immediately: the caller guarantees that no work still touches it.
    void deallocate(void* pointer, AlreadyIdle) { used().deallocate(pointer, {detail::FreeOrder::Kind::idle, {}}); }

    /// Returns whether `pointer` points to or into a live block of this saver: paused, active or plain.
    [[nodiscard]] bool owns(const void* pointer) const { return used().owns(pointer); }

    // --- pause and resume ---

    /// Releases the physical pages of every tag, or of `tags`; the addresses stay reserved. First waits for all work
    /// submitted to the tags' devices before the call (see PauseOptions). The program must not submit work that touches
    /// the memory until it is resumed. Tags that are already paused stay paused. Each tag's policy decides whether its
    /// bytes are saved.
    Report pause(const PauseOptions& options = {}) { return used().pause(Tags::all(), options); }
    Report pause(const Tags& tags, const PauseOptions& options = {}) { return used().pause(tags, options); }

    /// Maps new pages at the same addresses and restores the bytes that the policies saved. Creates the pages of all
    /// tags before it maps any: if memory is short, nothing changes. On return the bytes are visible to every stream.
    /// Paused memory that no longer holds a live block is not resumed. Bytes are restored in the order of the list.
    Report resume(const ResumeOptions& options = {}) { return used().resume(Tags::all(), options); }
    Report resume(const Tags& tags, const ResumeOptions& options = {}) { return used().resume(tags, options); }

    /// Like `resume`, but does not wait for the bytes. On return, all pages are mapped and the restore is in flight;
    /// the ranges in `.first` are restored first. Until a block's bytes have arrived, only work of a stream passed to
    /// `Arrival::before`, or behind a Gate, may access the block; after `Arrival::wait` any work may. The block may be
    /// freed at any time; it is then not reused until its bytes have arrived and the device has completed the work
    /// submitted before. Graph::launch makes its stream wait for its own tag.
    ///
    /// While bytes are in flight, `resume` of the tag waits for them, and another `resume_async` joins: its Arrival
    /// covers the same bytes, and its options have no effect on them. Pause, exchange, trim, invalidate and prepare
    /// wait for the bytes. `close` and `drop` cancel copies that have not been enqueued. `before_resume` hooks run
    /// first; `after_resume` hooks run once the bytes have arrived, see Arrival::wait.
    ///
    /// Throws as `resume` does, and Misuse if a range in `.first` is not inside live blocks of the tags; then nothing
    /// has changed.
    [[nodiscard]] Arrival resume_async(const ResumeAsyncOptions& options = {}) {
        return used().resume_async(Tags::all(), options);
    }
    [[nodiscard]] Arrival resume_async(const Tags& tags, const ResumeAsyncOptions& options = {}) {
        return used().resume_async(tags, options);
    }

    /// Makes a gate for `bytes` bytes at `pointer`, which may point inside a block. Work behind the gate, including
    /// captured graphs, waits for exactly these bytes whenever a `resume_async` has them in flight; see Gate. The
    /// memory may be paused or arriving. The first gate of a tag opens a stream; every gate opens an event. Each later
    /// `resume_async` makes a few driver calls per live gate. This call waits for an operation in progress on the tag;
    /// if the bytes are in flight, it waits as Arrival::before does.
    ///
    /// Throws Misuse if the range is not entirely inside one live block, Unavailable if the driver does not support
    /// gates, or the exception for a failed driver call. If the saver is switched off, and for plain memory, a gate
    /// never waits and costs nothing.
    [[nodiscard]] Gate gate(const void* pointer, std::size_t bytes) {
        return used().owner("gate", pointer, bytes).gate(pointer, bytes);
    }

    /// Saves the tags' bytes ahead of a pause: the copies run while the engine works, so the pause only has to release
    /// pages. For policies that save once. Waits for `.order`, then starts the copies. The memory stays active and
    /// readable; allocations and frees continue. If the program writes to the memory after `.order`, or to a new block,
    /// it must call `invalidate`, as always with Refresh::once; `invalidate` waits for the copies and discards them.
    /// Other operations on the tags wait for the copies too. Blocks allocated during the save are saved by the pause.
    ///
    /// Throws Misuse if a tag was named whose policy keeps no bytes or saves at every pause; also NotIdle,
    /// OutOfHostMemory, and what `pause` throws for driver failures. In each case nothing has changed.
    [[nodiscard]] Arrival save(const SaveOptions& options = {}) { return used().save(Tags::all(), options); }
    [[nodiscard]] Arrival save(const Tags& tags, const SaveOptions& options = {}) { return used().save(tags, options); }

    /// Pauses `out` and resumes `in` in one operation. Pages are handed over from tag to tag without being released,
    /// and bytes are saved and restored concurrently, so the call takes about as long as the slower of the two. Pages
    /// are handed over between tags of equal drivers, as whole handles; a handle smaller than 16 MiB is handed over
    /// only if it fills a range. Only the difference is created or released: pages that `in` needs beyond those of
    /// `out` are created, and surplus pages of `out` are released. Waiting, hooks and refusals are those of a pause of
    /// `out` followed by a resume of `in`. Paused tags of `out` and active tags of `in` are left unchanged. The program
    /// must not touch memory of either until the call returns; then the bytes of `in` are visible to every stream.
    ///
    /// Throws Misuse for a tag in both lists. Throws OutOfMemory if there is no room for the additional pages of `in`;
    /// then nothing has changed, unless others took the memory that `out` released. After any other failure, `in` is
    /// paused and its backup is complete; each tag of `out` is, on each of its devices, paused and saved, or active as
    /// it was. If the only failure is that pages could not be unmapped or released, `out` is paused, and `in` is
    /// resumed unless it had to wait for these pages. Repeating the call continues from there.
    Report exchange(const Tags& out, const Tags& in, const ExchangeOptions& options = {}) {
        return used().exchange(out, in, options);
    }

    /// Returns the physical bytes that a resume of these tags would take now.
    [[nodiscard]] std::size_t bytes_to_resume(const Tags& tags = Tags::all()) const {
        return used().bytes_to_resume(tags);
    }

    /// Releases extents that hold no live block. Waits as `pause` does, so that blocks freed before the call count as
    /// free.
    Report trim(const TrimOptions& options = {}) { return used().trim(Tags::all(), options); }
    Report trim(const Tags& tags, const TrimOptions& options = {}) { return used().trim(tags, options); }

    /// Allocates, before the first pause, the host memory or disk space needed to save the tags' live blocks, so that
    /// the first pause is as fast as later ones. May be called from any thread while the engine works and captures
    /// graphs. Throws as `pause` would, and Misuse if a tag was named whose policy keeps no bytes.
    void prepare(const Tags& tags = Tags::all()) { used().prepare(tags); }

    /// Marks saved bytes as stale: the program has changed them, so the next pause saves them again. Throws Misuse if a
    /// tag was named whose policy keeps no bytes.
    void invalidate(const Tags& tags = Tags::all()) { used().invalidate(tags); }

    /// Discards the backups of these tags' paused memory and frees their host memory or disk space. A resume then maps
    /// the memory with undefined bytes, as after a pause with `.bytes = Discard{}`. Does not affect active memory or
    /// later pauses.
    void forget_backup(const Tags& tags) { used().forget_backup(tags); }

    /// Returns a view of the backup of `bytes` bytes at `pointer`, which may point inside a block. Available while the
    /// memory is paused, and afterwards for as long as the policy keeps the backup. The view shares the backup's host
    /// memory, or owns a copy if the bytes were in a file. Throws Misuse, with the reason, if there is no backup or the
    /// bytes are not contiguous in it.
    [[nodiscard]] BackupView backup_view(const void* pointer, std::size_t bytes) {
        return used().owner("backup_view", pointer, bytes).backup_view(pointer, bytes);
    }

    /// Overwrites the backup of paused memory: copies `bytes` bytes from host memory at `from` to the backup of
    /// `pointer`, which may point inside a block. This updates weights while their tag is paused. The next resume
    /// restores the new bytes; with Refresh::once they count as saved. Waits for an operation in progress on the tag.
    /// Throws Misuse if the memory is active or has no backup. If a file cannot be written, part of the backup may
    /// already be updated; repeating the call continues. If the saver is switched off, nothing is ever paused, and this
    /// writes to the memory itself after all work submitted to the device before this call.
    void write_backup(void* pointer, const void* from, std::size_t bytes) {
        used().owner("write_backup", pointer, bytes).write_backup(pointer, from, bytes);
    }

    /// Loads `bytes` bytes of a file, starting at `offset`, to `pointer`, which may point inside a block; the tag's
    /// policy must be FileSource. Every later resume loads them again, and pauses do not save them. On return the bytes
    /// are visible to every stream. Like a copy from the host, it does not wait for work that still uses the old bytes:
    /// the caller must. Thread-safe; loads into one tag on one device run one at a time, each with all of the policy's
    /// readers. If loaded ranges overlap, the later load wins. A relative path is that of the
    /// working directory at the time of this call.
    ///
    /// Throws Misuse (0 bytes, not inside one live block, paused memory, another policy, file too short), an Error that
    /// names the file if it cannot be opened or read, and SourceChanged if it changed while being read. If the file
    /// could not be opened, nothing has changed. If reading failed, some of the bytes are new, and the whole range is
    /// saved by pauses like bytes that were never loaded. If the saver is switched off, loads once, now.
    void load(void* pointer, std::size_t bytes, const std::string& path, std::size_t offset = 0) {
        used().owner("load", pointer, bytes, path).load(pointer, bytes, path, offset);
    }
    /// Marks `bytes` bytes at `pointer`, which may point inside a block, as changed by the program. With FileSource,
    /// the range is then detached from its file and pauses save it; if it is paused now, the next resume still reads it
    /// from the file. Other policies treat the call as `invalidate` of the whole tag. Throws Misuse if the range is not
    /// inside one live block or the policy keeps no bytes.
    void invalidate(const void* pointer, std::size_t bytes) {
        used().owner("invalidate", pointer, bytes).invalidate(pointer, bytes);
    }

    // --- residency: more tags than device memory ---

    /// Resumes these tags if necessary and keeps them resident while the Use lives and until the work marked by its
    /// `until` has completed. A pause or drop of the tags waits for that (or throws NotIdle at its timeout); a pause
    /// without a timeout throws Misuse on a thread that would wait for itself. Tags that are resident already cost no
    /// driver call.
    ///
    /// If memory is short, `use` evicts idle tags: it pauses whole tags, lowest priority first and, at equal priority,
    /// least recently used first. Only tags that were named in a `use` before, or made evictable, are candidates. An
    /// eviction waits for the work marked by the tag's uses, not for the whole device, because ending a use asserts
    /// that all its other work has completed. Hooks run on this thread; if a before-hook throws, its tag stays resident
    /// and another tag is evicted.
    ///
    /// If idle tags do not free enough memory, `use` waits in first-come, first-served order for other threads' uses to
    /// end. Uses whose tags are all resident overtake it, except of tags that it needs to be given up: on threads that
    /// hold no use, new uses of these wait behind it. Instead of waiting, it throws OutOfMemory immediately if ending
    /// other uses could not free enough, or if this thread already holds a Use, because such a thread never waits for
    /// another use. At the deadline of UseOptions it throws OutOfMemory if room was lacking, or NotIdle. Both
    /// exceptions list the holders of the memory (Error::holders). Throws Misuse inside a hook, and inside a capture
    /// unless all tags are resident.
    ///
    /// On return the bytes are visible to every stream. If the saver is switched off, uses are counted and nothing
    /// moves.
    [[nodiscard]] Use use(const Tags& tags, const UseOptions& options = {}) { return used().use(tags, options); }

    /// Releases at least `bytes` bytes of a device, if possible: first unused memory (waiting for the device's work if
    /// freed blocks wait for it), then memory that owners of elastic ranges release on request
    /// (ElasticOptions::on_reclaim), then idle tags, whole tags in the order in which `use` would evict them. Never
    /// waits for a use. Releasing less is not an error: the result says how much was released and why not more. Throws
    /// what a failed pause or an owner's callback throws, and Misuse inside a hook or if no tag is on the device.
    Reclaimed reclaim(std::size_t bytes, const ReclaimOptions& options = {}) { return used().reclaim(bytes, options); }

    /// Sets whether these tags may be evicted, by `use` of other tags, by `reclaim` and by allocations
    /// (SaverOptions::evict_for_allocations), while they are idle. A tag
    /// named in a `use` becomes evictable; `false` reverts that until its next use.
    void set_evictable(const Tags& tags, bool yes) { used().set_evictable(tags, yes); }
    /// Sets the tags' eviction priority; see ArenaOptions::priority.
    void set_priority(const Tags& tags, int priority) { used().set_priority(tags, priority); }

    // --- tag lifetime and limits ---

    /// Drops these tags: waits for the device, then frees their blocks, pages, addresses and backups. Their names
    /// become unknown. Destructors of their buffers are silent; using their arenas throws Misuse. Tries everything,
    /// then throws the first failure; a tag that could not be freed completely still exists, and repeating the call, or
    /// `close`, retries.
    void drop(const Tags& tags) { used().drop(tags); }
    /// Limits the bytes that each of these tags may have mapped on each device from now on; 0: no limit. Memory that is
    /// already mapped stays mapped.
    void set_capacity(const Tags& tags, std::size_t bytes) { used().set_capacity(tags, bytes); }
    /// Sets whether these tags' backups keep their host memory or disk space after a resume, for the next pause. Takes
    /// effect at the next resume. The policy that `arena` compares with does not change. Waits for an operation in
    /// progress. Throws Misuse if a tag was named whose policy keeps no bytes or has no such option.
    void set_retain(const Tags& tags, bool yes) { used().set_retain(tags, yes); }
    /// Sets the margin; see SaverOptions::margin. Does not apply to tags with a margin of their own.
    void set_margin(std::size_t bytes) { used().set_margin(bytes); }

    // --- hooks and state ---

    /// Adds a hook that runs before a pause waits for or saves anything.
    ///
    /// All hooks run on the thread that pauses or resumes, with no lock held, in the order in which they were added. If
    /// a before-hook throws, the operation does not begin. After-hooks run only if the operation succeeded; all of them
    /// run, then the first exception is rethrown. Hooks may allocate and free, and pause, resume, exchange, trim and
    /// drop other tags than those they run for; they may not use, reclaim or close. Rows that an after-hook adds to the
    /// event's report appear in the report that the operation returns. If the saver is switched off, no hook runs.
    [[nodiscard]] Hook before_pause(std::function<void(PauseEvent&)> function) {
        return used().add_hook(detail::HookKind::before_pause, std::move(function));
    }
    /// Adds a hook that runs after a pause has released its pages.
    [[nodiscard]] Hook after_pause(std::function<void(PauseEvent&)> function) {
        return used().add_hook(detail::HookKind::after_pause, std::move(function));
    }
    /// Adds a hook that runs if before-pause hooks have started (for a pause, exchange or eviction) and then one of
    /// them or the pause itself failed, or the pause turned out not to be needed. It lets the before-hooks' work be
    /// undone. Some of the memory may be paused nevertheless. An exception thrown by this hook is reported as
    /// `ignored`; the program receives the original failure.
    [[nodiscard]] Hook after_failed_pause(std::function<void(PauseEvent&)> function) {
        return used().add_hook(detail::HookKind::after_failed_pause, std::move(function));
    }
    /// Adds a hook that runs before a resume takes any memory.
    [[nodiscard]] Hook before_resume(std::function<void(ResumeEvent&)> function) {
        return used().add_hook(detail::HookKind::before_resume, std::move(function));
    }
    /// Adds a hook that runs once the memory is resumed and its bytes are visible to every stream.
    [[nodiscard]] Hook after_resume(std::function<void(ResumeEvent&)> function) {
        return used().add_hook(detail::HookKind::after_resume, std::move(function));
    }

    /// Installs a predefined set of hooks, such as `trim_cuda_pools`; the object adds its own functions at the right
    /// places.
    template <class Parts>
    requires requires(const Parts& parts, detail::SaverCore& core) { parts.install_after_pause(core); }
    [[nodiscard]] Hook after_pause(const Parts& parts) {
        return used().boundary("after_pause", [&] { return parts.install_after_pause(used()); });
    }
    template <class Parts>
    requires requires(const Parts& parts, detail::SaverCore& core) { parts.install_after_resume(core); }
    [[nodiscard]] Hook after_resume(const Parts& parts) {
        return used().boundary("after_resume", [&] { return parts.install_after_resume(used()); });
    }

    /// Returns the memory usage of each tag on each device, and of each device as a whole. Printable.
    [[nodiscard]] Usage usage() const { return used().usage(); }

    /// Frees everything now. Waits for the device first, but not for uses: end them before. Afterwards every call that
    /// would do something throws Misuse (`usage` is empty), and the destructors of remaining objects are silent. Tries
    /// everything, then throws the first failure; may be called again.
    void close() { used().close(); }

    /// Returns SaverOptions::enabled as given at construction; if false, memory is never paused.
    [[nodiscard]] bool enabled() const { return used().enabled(); }
    /// Returns the driver given at construction. Tags live on its device unless `arena` names another driver.
    [[nodiscard]] const D& driver() const { return (void)used(), driver_; }

    /// Returns the state shared by all handles of this saver; for code that builds on savers.
    [[nodiscard]] const std::shared_ptr<detail::SaverCore>& core() const { return (void)used(), core_; }

private:
    template <class>
    friend class MemorySaver;

    MemorySaver(const AnyDriver& driver, std::shared_ptr<detail::SaverCore> core) noexcept
        : driver_{driver}, core_{std::move(core)} {}
    [[nodiscard]] detail::SaverCore& used() const { return detail::used(core_); }

    D driver_; // the core's, with the type that it was given as
    std::shared_ptr<detail::SaverCore> core_;
};

} // namespace memsaver::inline v0_3
