// The saver: tags, regions, pause and resume. The class that programs use.
#pragma once

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
#include <optional>
#include <utility>

namespace memsaver::inline v0_2 {

/// Hands out device memory by tag; pauses and resumes it by tag. Every method may be called from any thread. Move-only;
/// one that was moved from is of no use. What it made (arenas, regions, buffers, hooks) may outlive it. Memory goes
/// back to the device when the last of them dies, or by `close()`.
///
/// `MemorySaver<>`, what a class holds that does not name its machine, is made of any driver, or of a temporary or
/// moved MemorySaver of any.
///
/// Operations on tags take `Tags`: one name, a braced list, any range of names, `Tags::under(prefix)`; without any they
/// concern every tag. `arena` and `region` take one name.
///
/// What methods throw: Misuse for what cannot be meant, OutOfMemory and OutOfHostMemory where there is no room (nothing
/// has changed, and the same call succeeds once there is), DeviceLost, and DriverError for other failures of the
/// driver. An exception of pause, resume or trim carries the report of what had been done. Repeating the call goes on
/// from there. In a forked child every call is Misuse.
template <class D>
class MemorySaver {
    static_assert(Driver<D>, "MemorySaver<D>: D must satisfy the concept Driver (memsaver/driver/concepts.hpp)");

public:
    explicit MemorySaver(D driver, SaverOptions options = {})
        : core_{detail::SaverCore::make(std::move(driver), std::move(options))} {}
    MemorySaver(MemorySaver&&) noexcept = default;
    MemorySaver& operator=(MemorySaver&&) noexcept = default;
    ~MemorySaver() = default;

    /// The same saver, which forgets the type of its driver.
    template <class Any>
    requires(std::same_as<Any, AnyDriver> && !std::same_as<D, AnyDriver>) operator MemorySaver<Any>() && {
        return MemorySaver<Any>{std::move(core_)};
    }

    // --- where memory comes from ---

    /// The memory of a tag on this saver's device, made if there is none. A new tag has the saver's default policy; a
    /// saver with `NewTags::with_policy` throws Misuse for one.
    [[nodiscard]] Arena arena(TagName tag) { return used().arena(tag); }
    /// The same with a policy, which must be the tag's if it exists.
    [[nodiscard]] Arena arena(TagName tag, AnyPolicy policy) { return used().arena(tag, std::move(policy)); }
    /// The same with options. A tag that exists on the device must have those that are not as they are by default; an
    /// event sink can be named only when it is made, for two cannot be compared.
    [[nodiscard]] Arena arena(TagName tag, ArenaOptions options) {
        return used().arena(tag, {}, {}, std::move(options));
    }
    [[nodiscard]] Arena arena(TagName tag, AnyPolicy policy, ArenaOptions options) {
        return used().arena(tag, std::move(policy), {}, std::move(options));
    }
    /// The same on another device. A tag has one policy on all of them.
    [[nodiscard]] Arena arena(TagName tag, AnyPolicy policy, const AnyDriver& driver) {
        return used().arena(tag, std::move(policy), driver);
    }
    [[nodiscard]] Arena arena(TagName tag, AnyPolicy policy, const AnyDriver& driver, ArenaOptions options) {
        return used().arena(tag, std::move(policy), driver, std::move(options));
    }

    /// Until the region ends, this thread's `allocate` serves from the tag. Arguments as for `arena`.
    template <class... Arguments>
    [[nodiscard]] Region region(TagName tag, Arguments&&... arguments) {
        return Region{arena(tag, std::forward<Arguments>(arguments)...)};
    }
    /// Until the region ends, this thread's `allocate` serves plain memory, which is never paused.
    [[nodiscard]] Region outside() { return Region{used().outside()}; }

    /// `bytes` at a multiple of `alignment`, from this thread's innermost region; see Arena::allocate. Throws Misuse
    /// outside of any.
    [[nodiscard]] void* allocate(std::size_t bytes, std::size_t alignment = detail::Request::default_alignment) {
        return used().allocate({bytes, alignment, {}});
    }
    [[nodiscard]] void* allocate(std::size_t bytes, StreamRef stream,
                                 std::size_t alignment = detail::Request::default_alignment) {
        return used().allocate({bytes, alignment, stream});
    }
    /// As safe as cudaFree: the block is not handed out again before the device's work so far has passed it. Does not
    /// wait, but for plain memory. Paused or not, whatever tag it is of. Null does nothing.
    void deallocate(void* pointer) { used().deallocate(pointer, {}); }
    /// The block can be handed out again once `stream`, of any device of this saver, has passed here.
    void deallocate(void* pointer, StreamRef stream) {
        used().deallocate(pointer, {detail::FreeOrder::Kind::stream, stream});
    }
    /// The block can be handed out again at once: no work touches it any more.
    void deallocate(void* pointer, AlreadyIdle) { used().deallocate(pointer, {detail::FreeOrder::Kind::idle, {}}); }

    /// Whether a pointer points to or into a live block of this saver, paused or not, plain memory included.
    [[nodiscard]] bool owns(const void* pointer) const { return used().owns(pointer); }

    // --- pause and resume ---

    /// Gives the physical pages of every tag back to the device; addresses stay. Waits first for the work that the
    /// device was given before the call (see PauseOptions); the program stops submitting work that touches the memory.
    /// What is paused already stays so. The bytes become what each tag's policy says.
    Report pause(const PauseOptions& options = {}) { return used().pause(Tags::all(), options); }
    Report pause(const Tags& tags, const PauseOptions& options = {}) { return used().pause(tags, options); }

    /// Fresh pages at the same addresses, and the bytes that the policies kept. All tags' memory is taken before any is
    /// mapped: without room for all, nothing changes. On return, every stream sees the bytes. Paused memory in which no
    /// block lives any more is not brought back. Bytes arrive in the order of the list.
    Report resume(const ResumeOptions& options = {}) { return used().resume(Tags::all(), options); }
    Report resume(const Tags& tags, const ResumeOptions& options = {}) { return used().resume(tags, options); }

    /// As `resume`, but does not wait for the bytes: when it returns, all memory has been taken and is mapped, and
    /// bytes are on their way, those of `.first` first. Until a block's bytes have come it must not be touched but by
    /// work of a stream that `Arrival::before` was called with, or after `Arrival::wait`: it may be freed at any time,
    /// and then stays out of use until the bytes have arrived and the device's work has passed it. Graph::launch has
    /// its stream wait for its own tag. Meanwhile a `resume` of the tag waits for the bytes and a `resume_async` joins:
    /// its Arrival is of the same bytes, whatever its options say. Pause, exchange, trim, invalidate and prepare wait
    /// for them; `close` and `drop` keep back what is not on its way yet. A saver's hooks `before_resume` run first,
    /// those `after_resume` once the bytes are here: see Arrival::wait.
    ///
    /// Throws as `resume`, and Misuse for ranges in `.first` that are not in live blocks of the tags; then nothing has
    /// changed.
    [[nodiscard]] Arrival resume_async(const ResumeAsyncOptions& options = {}) {
        return used().resume_async(Tags::all(), options);
    }
    [[nodiscard]] Arrival resume_async(const Tags& tags, const ResumeAsyncOptions& options = {}) {
        return used().resume_async(tags, options);
    }

    /// A gate of `bytes` at `pointer` (or inside its block): work behind it, captured graphs included, waits for just
    /// these bytes whenever a `resume_async` has them on their way; see Gate. The memory may be paused or on its way.
    /// The first gate of a tag opens a stream, each an event; a `resume_async` then makes a few driver calls for each
    /// gate that lives. Waits for an operation on the tag that is under way, and of bytes that are on their way now as
    /// Arrival::before does.
    ///
    /// Throws Misuse for what is not, as a whole, in one live block; Unavailable where the driver has no gates; or what
    /// a failing driver call stands for. Switched off, and for plain memory, a gate never waits and costs nothing.
    [[nodiscard]] Gate gate(const void* pointer, std::size_t bytes) { return used().gate(pointer, bytes); }

    /// Saves what a pause of these tags would save, ahead of it: copies while the engine works, so that the pause only
    /// gives pages back. For policies that save once. Waits for `.order` here, then starts; the memory stays active,
    /// and may be read; allocations and frees go on. What is written after `.order`, or to a new block, is for the
    /// program to tell: `invalidate`, as ever with Refresh::once, which waits for the copies and undoes them. Other
    /// operations on the tags wait for them too. Blocks that are allocated meanwhile are saved by the pause.
    ///
    /// Throws Misuse for a tag that was named and whose policy keeps nothing, or saves at every pause; NotIdle,
    /// OutOfHostMemory, and what `pause` throws for failures of the driver. Nothing has changed then.
    [[nodiscard]] Arrival save(const SaveOptions& options = {}) { return used().save(Tags::all(), options); }
    [[nodiscard]] Arrival save(const Tags& tags, const SaveOptions& options = {}) { return used().save(tags, options); }

    /// Pauses `out` and resumes `in`, so that one steps aside for the other: pages pass from tag to tag without being
    /// released, and bytes are saved and restored at the same time, so that it takes about as long as the slower of the
    /// two. Pages pass between tags of equal drivers, as whole handles (those of less than 16 MiB only where one fills
    /// a range); only what `in` has more is taken from the device, only what it has less is given back. Waits, runs
    /// hooks and is refused as a pause of `out` followed by a resume of `in`; tags of `out` that are paused and tags of
    /// `in` that are active stay so. Before it returns, nothing of either may be touched; then every stream sees the
    /// bytes of `in`.
    ///
    /// Throws Misuse for a tag in both lists. Without room for what `in` has more, nothing changes (OutOfMemory),
    /// unless it was others that took what `out` gave back. After another failure `in` is paused and its backup whole;
    /// of `out`, what the report says was handed on or released is paused and saved, the rest is active; the same call
    /// goes on.
    Report exchange(const Tags& out, const Tags& in, const ExchangeOptions& options = {}) {
        return used().exchange(out, in, options);
    }

    /// Physical bytes that resuming these tags would take now.
    [[nodiscard]] std::size_t bytes_to_resume() const { return used().bytes_to_resume(Tags::all()); }
    [[nodiscard]] std::size_t bytes_to_resume(const Tags& tags) const { return used().bytes_to_resume(tags); }

    /// Gives back extents in which no block lives. Waits as pause does, so that blocks freed before count.
    Report trim(const TrimOptions& options = {}) { return used().trim(Tags::all(), options); }
    Report trim(const Tags& tags, const TrimOptions& options = {}) { return used().trim(tags, options); }

    /// Takes, ahead of the first pause, the host memory or the disk's room that saving the tags' live blocks would
    /// take. From any thread, while the engine works and captures graphs; the first pause is then as fast as later
    /// ones. Throws as a pause would, and Misuse for a tag that was named and whose policy keeps nothing.
    void prepare() { used().prepare(Tags::all()); }
    void prepare(const Tags& tags) { used().prepare(tags); }

    /// The program has changed bytes that a policy may have saved before: save them again at the next pause. Throws
    /// Misuse for a tag that was named and whose policy keeps nothing.
    void invalidate() { used().invalidate(Tags::all()); }
    void invalidate(const Tags& tags) { used().invalidate(tags); }

    /// What is kept of these tags' paused memory goes, and the host memory or disk's room with it: a resume brings the
    /// memory back with undefined bytes, as if it had been paused with `.bytes = Discard{}`. What is active is not
    /// concerned, and the next pause is as ever.
    void forget_backup(const Tags& tags) { used().forget_backup(tags); }

    /// The kept bytes of `bytes` at `pointer` (or inside its block): while the memory is paused, and later for as long
    /// as the policy keeps them. Shares the host memory where they lie, or owns a copy of what lay in a file. Throws
    /// Misuse that says why there are none, or that they are not in one place.
    [[nodiscard]] BackupView backup_view(const void* pointer, std::size_t bytes) {
        return used().backup_view(pointer, bytes);
    }

    /// Other bytes, from the host, for `bytes` at `pointer` (or inside its block), whose memory is paused: they are
    /// changed where the policy keeps them, so that a weight update can come while its tag is away. The next resume
    /// brings them; with Refresh::once they count as saved. Waits for an operation on the tag that is under way. Throws
    /// Misuse for memory that is active, and where nothing is kept; if a file cannot be written, some of the bytes may
    /// be the new ones, and the same call goes on. Switched off, when nothing is ever away, writes to the memory
    /// itself.
    void write_backup(void* pointer, const void* from, std::size_t bytes) { used().write_backup(pointer, from, bytes); }

    /// Fills `bytes` at `pointer` (or inside its block), in a tag whose policy is FileSource, with those of a file from
    /// `offset` on, now and at every later resume; a pause saves nothing of them. Returns once every stream sees the
    /// bytes. Like a copy from the host it waits for no work that still uses the old ones: the program has. Any thread;
    /// loads into one tag on one device pass one after the other, each with all of the policy's readers. Of ranges that
    /// overlap the later load wins. The path is used again as it stands: a relative one wants the same directory.
    ///
    /// Throws Misuse (no bytes, not in one live block, paused, another policy, fewer bytes in the file), an Error that
    /// names the file where it cannot be opened or read, and SourceChanged where it changed while being read. If the
    /// file could not be had at all, nothing has changed; if reading failed, some of the bytes are the new ones, and
    /// all of them are kept like those that were never loaded. Switched off, loads this once.
    void load(void* pointer, std::size_t bytes, const std::string& path, std::size_t offset = 0) {
        used().load(pointer, {path, offset, bytes});
    }
    /// The program changed `bytes` at `pointer` (or inside its block). With FileSource they have no home in a file from
    /// now on: pauses save them. While they are away the next resume still reads them from the file. Other policies
    /// take it for their tag's `invalidate`. Throws Misuse for what is not in one live block, and for policies that
    /// keep no bytes.
    void invalidate(const void* pointer, std::size_t bytes) { used().invalidate(pointer, bytes); }

    // --- residency: more tags than memory ---

    /// Brings these tags, and keeps them here for as long as the Use lives and what its `until` marked has not passed.
    /// A pause or a drop of them meanwhile waits (or throws NotIdle at its timeout); without a timeout it is Misuse on
    /// a thread that would wait for itself. What is here already costs no driver call.
    ///
    /// Room is made by pausing tags that nobody uses, as a whole, of the lowest priority first and of these the one
    /// that was used longest ago: only tags that were once named in a `use`, or made evictable. That waits for what
    /// their uses marked, not for the whole device: the end of a use says that all else of it has passed. Hooks run on
    /// this thread; a tag whose before-hook throws stays, and another one goes. Where idle tags do not make enough
    /// room, this waits for other threads' uses to end, first come, first served; uses of what is here pass by, a
    /// bounded number of times. OutOfMemory, at once, where no end of theirs could make enough, and on a thread that
    /// holds a Use, which never waits for another. NotIdle once `timeout` has passed. Both carry who holds what
    /// (Error::holders). Misuse inside a hook, and inside a capture where not all is here already.
    ///
    /// On return, every stream sees the bytes. Switched off, uses are counted and nothing moves.
    [[nodiscard]] Use use(const Tags& tags, const UseOptions& options = {}) { return used().use(tags, options); }

    /// Gives `bytes` or more back to a device: first what nobody uses (waiting for the device's work, if freed blocks
    /// wait for that), then what the owners of elastic memory release when they are asked (ElasticOptions::on_reclaim),
    /// then idle tags, whole ones, in the order in which `use` would evict them. Never waits for a use. Less than that
    /// is no failure: the answer says what was got, and why not more. Throws what a failing pause or an owner throws,
    /// and Misuse inside a hook and for a device on which no tag lives.
    Reclaimed reclaim(std::size_t bytes, const ReclaimOptions& options = {}) { return used().reclaim(bytes, options); }

    /// Whether `use` of other tags and `reclaim` may pause these tags while nobody uses them. A tag that was named in a
    /// `use` is so from then on; `false` takes that back until the next one.
    void set_evictable(const Tags& tags, bool yes) { used().set_evictable(tags, yes); }
    /// As ArenaOptions::priority, from now on.
    void set_priority(const Tags& tags, int priority) { used().set_priority(tags, priority); }

    // --- the life of a tag ---

    /// Ends these tags: waits for the device, then gives back their blocks, pages, addresses and backups. The names are
    /// unknown again. Buffers of theirs end quietly; using their arenas is Misuse. Throws the first failure after all
    /// has been tried; what could not be given back is a tag still, and the same call, or `close`, tries again.
    void drop(const Tags& tags) { used().drop(tags); }
    /// The most that each of these tags may have mapped on each device from now on, in bytes; 0: no bound. What is
    /// mapped already stays.
    void set_capacity(const Tags& tags, std::size_t bytes) { used().set_capacity(tags, bytes); }
    /// Whether these tags' backups keep their host memory or their files' room after a resume, for the next pause, from
    /// the next resume on. The policy that `arena` compares stays as it was named. Waits for an operation that is under
    /// way. Throws Misuse for a tag that was named and whose policy keeps nothing, or has no such choice.
    void set_retain(const Tags& tags, bool yes) { used().set_retain(tags, yes); }
    /// As SaverOptions::margin, from now on; not for tags that have a margin of their own.
    void set_margin(std::size_t bytes) { used().set_margin(bytes); }

    // --- around it ---

    /// Hooks run on the thread that pauses or resumes, with no lock held, in the order in which they were added. If one
    /// that runs before throws, nothing happens. Those that run after all run, then the first exception is thrown
    /// again; they do not run when the operation failed. They may allocate and free, but not pause, resume, trim, drop
    /// or close. What those that run after write into the event's report is in what the operation returns. Where the
    /// saver is switched off none runs.
    ///
    /// This one runs before anything is waited for or saved.
    [[nodiscard]] Hook before_pause(std::function<void(PauseEvent&)> function) {
        return used().before_pause(std::move(function));
    }
    /// Runs once the pages have gone back.
    [[nodiscard]] Hook after_pause(std::function<void(PauseEvent&)> function) {
        return used().after_pause(std::move(function));
    }
    /// Runs where hooks before a pause (an exchange, an eviction) have begun to run, and then one of them or the pause
    /// itself failed, or it turned out not to be needed: they may undo what they did. Some of the memory may be away
    /// all the same. What it throws is told as `ignored`: the failure is what the program is told.
    [[nodiscard]] Hook after_failed_pause(std::function<void(PauseEvent&)> function) {
        return used().after_failed_pause(std::move(function));
    }
    /// Runs before any memory is taken.
    [[nodiscard]] Hook before_resume(std::function<void(ResumeEvent&)> function) {
        return used().before_resume(std::move(function));
    }
    /// Runs once the memory is back and every stream sees the bytes.
    [[nodiscard]] Hook after_resume(std::function<void(ResumeEvent&)> function) {
        return used().after_resume(std::move(function));
    }

    /// The same for hooks that come as a whole, such as `trim_cuda_pools`: they add what they want to run, and where.
    template <class Parts>
    requires requires(const Parts& parts, detail::SaverCore& core) { parts.install_after_pause(core); }
    [[nodiscard]] Hook after_pause(const Parts& parts) {
        return used().install("after_pause", [&] { return parts.install_after_pause(used()); });
    }
    template <class Parts>
    requires requires(const Parts& parts, detail::SaverCore& core) { parts.install_after_resume(core); }
    [[nodiscard]] Hook after_resume(const Parts& parts) {
        return used().install("after_resume", [&] { return parts.install_after_resume(used()); });
    }

    /// Who holds what, by tag and device, and what the whole devices hold. Printable.
    [[nodiscard]] Usage usage() const { return used().usage(); }

    /// Gives everything back now, waiting for the device first, but for no `use`: end them before. Afterwards every use
    /// is Misuse, and the destructors of what still lives are quiet. Throws the first failure after everything has been
    /// tried; may be called again.
    void close() { used().close(); }

    /// SaverOptions::enabled, as it was made: whether its memory is paused at all.
    [[nodiscard]] bool enabled() const { return used().enabled(); }
    /// The driver that it was made with, of the device on which tags live unless `arena` names another.
    [[nodiscard]] const D& driver() const { return detail::driver_as<D>(used().driver()); }

    /// What all its handles share; for what is built on savers.
    [[nodiscard]] const std::shared_ptr<detail::SaverCore>& core() const { return (void)used(), core_; }

private:
    template <class>
    friend class MemorySaver;

    explicit MemorySaver(std::shared_ptr<detail::SaverCore> core) noexcept : core_{std::move(core)} {}
    [[nodiscard]] detail::SaverCore& used() const { return detail::used(core_); }

    std::shared_ptr<detail::SaverCore> core_;
};

} // namespace memsaver::inline v0_2
