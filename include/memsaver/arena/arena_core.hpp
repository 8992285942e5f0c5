// One tag's memory on one device: grows, allocates blocks, pauses and resumes. Knows nothing about other tags.
#pragma once

#include "memsaver/arena/addresses.hpp"
#include "memsaver/arena/gates.hpp"
#include "memsaver/arena/graph_keeps.hpp"
#include "memsaver/arena/memory.hpp"
#include "memsaver/arena/options.hpp"
#include "memsaver/backup/device_scratch.hpp"
#include "memsaver/backup/discard.hpp"
#include "memsaver/backup/policy.hpp"
#include "memsaver/backup/policy_options.hpp"
#include "memsaver/core/event.hpp"
#include "memsaver/core/function_ref.hpp"
#include "memsaver/core/lists.hpp"
#include "memsaver/core/order.hpp"
#include "memsaver/core/pointers.hpp"
#include "memsaver/core/ranges.hpp"
#include "memsaver/core/report.hpp"
#include "memsaver/core/thread_mark.hpp"
#include "memsaver/core/usage.hpp"
#include "memsaver/core/vector.hpp"
#include "memsaver/driver/attic.hpp"
#include "memsaver/driver/fork_check.hpp"
#include "memsaver/driver/host_cells.hpp"
#include "memsaver/driver/ring.hpp"
#include "memsaver/heap/frees.hpp"
#include "memsaver/heap/live_block.hpp"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace memsaver::inline v0_3::detail {

class ElasticRange;

/// The right to run an operation on an arena. Like a mutex, but held across waits, copies and driver calls, so code
/// that must be fast (`allocate`, `deallocate`, `usage`) never takes it.
class Turn {
public:
    struct End {
        void operator()(Turn* turn) const noexcept {
            const std::lock_guard lock{turn->mutex_};
            turn->taken_ = false;
            turn->ended_ += 1;
            turn->freed_.notify_all(); // under the lock: the turn may be destroyed as soon as it is free
        }
    };
    /// Holds the turn until it is destroyed; null: holds none.
    using Hold = std::unique_ptr<Turn, End>;

    /// Waits for the turn. Throws NotIdle, naming `tag`, once the deadline has passed; Misuse if this thread holds it,
    /// for it would wait for itself.
    [[nodiscard]] Hold take(const Deadline& deadline = {}, const std::string& tag = {}) {
        std::unique_lock lock{mutex_};
        const auto free = [&] { return !taken_; };
        if (taken_ && owner_.is_here()) {
            misuse({"tag ", in_quotes(tag),
                    ": this thread is inside an operation on it; what that operation calls, such as an "
                    "event sink, must not begin another one"});
        }
        if (!deadline) {
            freed_.wait(lock, free);
        } else if (!freed_.wait_until(lock, *deadline, free)) {
            not_idle({"tag ", in_quotes(tag),
                      ": the timeout expired while another operation on it was running; nothing has changed"});
        }
        return begin();
    }

    /// Returns the turn if it is free now, otherwise null.
    [[nodiscard]] Hold try_take() {
        const std::lock_guard lock{mutex_};
        return taken_ ? Hold{} : begin();
    }

    /// What an operation waits for: the program's own work (or other arenas), or only for its own copies.
    enum class Stage : unsigned char { waits, moves };
    /// Says what the holder waits for from now on. A new holder begins with `waits`.
    void now(Stage stage) noexcept {
        const std::lock_guard lock{mutex_};
        stage_ = stage;
    }

    /// If another thread holds the turn and has only its own copies left, waits for its operation to end. Returns
    /// whether there was one.
    bool wait_for_copies(const Deadline& deadline) {
        std::unique_lock lock{mutex_};
        if (!taken_ || stage_ != Stage::moves || owner_.is_here()) return false;
        const std::uint64_t seen = ended_; // not for a free turn: another thread may take it immediately
        const auto ended = [&] { return ended_ != seen; };
        if (deadline) return freed_.wait_until(lock, *deadline, ended);
        freed_.wait(lock, ended);
        return true;
    }

    /// Returns how many operations have ended.
    [[nodiscard]] std::uint64_t ended() const noexcept { return ended_.load(); }

private:
    Hold begin() noexcept {
        taken_ = true;
        stage_ = Stage::waits;
        owner_ = ThreadMark::here_if_possible();
        return Hold{this};
    }

    std::mutex mutex_;
    std::condition_variable freed_;
    bool taken_ = false;
    Stage stage_ = Stage::waits;
    ThreadMark owner_; ///< valid while the turn is taken
    std::atomic<std::uint64_t> ended_{0};
};

[[nodiscard]] inline Address as_address(const void* pointer) noexcept { return reinterpret_cast<Address>(pointer); }
[[nodiscard]] inline void* pointer_of(Address address) noexcept {
    return reinterpret_cast<void*>(address); // NOLINT(performance-no-int-to-ptr): device addresses are numbers
}

/// As note_first, but nothing is left on a lost device.
inline bool note_left(Status& first, const Status& status) noexcept {
    if (status.kind != StatusKind::gone) (void)note_first(first, status);
    return status.ok();
}

inline LiveBlock live_of(const Block& block) noexcept {
    return {block.address, block.used_bytes(), block.serial, block.requested};
}

inline std::string Request::text() const {
    const bool negative = bytes > std::numeric_limits<std::size_t>::max() / 2;
    return "allocate(" + std::to_string(bytes) + " bytes" + (negative ? ", a negative number?" : "") + ')';
}
inline void Request::check(const std::string& tag) const {
    if (bytes == 0) refuse(tag, {"the size is 0"});
    if (alignment == 0) refuse(tag, {"the alignment is 0; to pass the default stream, use nullptr"});
    if ((alignment & (alignment - 1)) != 0)
        refuse(tag, {"the alignment of ", in_digits(alignment), " is not a power of two"});
}
inline void Request::refuse(const std::string& tag, Bits why) const {
    misuse({text(), " in tag ", in_quotes(tag), ": ", text_of(why)});
}

/// One tag's memory on one device: a list of memories (see Memory), one slot that keeps their bytes, and addresses.
///
/// Locks: the turn (one operation at a time, held across waits, copies and driver calls), then the mutex (bookkeeping
/// only: never held during a wait, a copy, a call of the driver or of the program). Between them is a second turn: one
/// thread at a time creates and maps new pages.
class ArenaCore final : public std::enable_shared_from_this<ArenaCore> {
public:
    class Step;
    class Pause; // the operations, in steps; run_steps.hpp runs those of many arenas
    class Resume;
    class Trim;
    class SaveAhead;
    class Arriving; // bytes in flight while no operation holds the turn: arriving.hpp

    struct KeepAlive {
        void operator()(ArenaCore*) const noexcept {}
    };
    /// The arena of a step, which is null once the step has ended or has been moved from.
    using Borrowed = std::unique_ptr<ArenaCore, KeepAlive>;

    static constexpr std::size_t default_alignment = Request::default_alignment;

    /// `on_segment` is called with every new range of addresses, and the arena, before blocks are allocated from it.
    /// Throws Misuse for invalid options, or the error of a failing driver call.
    ArenaCore(AnyDriver driver, std::string tag, AnyPolicy policy, ArenaOptions options,
              std::function<void(Range, std::shared_ptr<ArenaCore>)> on_segment = {})
        : driver_{std::move(driver)}, tag_{std::move(tag)}, options_{std::move(options)},
          granularity_(granularity_of(driver_)), policy_{std::move(policy)},
          on_segment_{std::move(on_segment)}, capacity_{options_.capacity}, margin_{options_.margin},
          addresses_{options_.single_handle ? granularity_ : 0}, // blocks never join across a gap
          own_{policy_.open(driver_)}, own_scratch_{own_->scratch()}, gates_{driver_} {
        if (!can_align_up(options_.capacity, granularity_) || !can_align_up(options_.reserve, granularity_)) {
            misuse({"tag ", in_quotes(tag_), ": a capacity of ", in_bytes(options_.capacity), " or a reserve of ",
                    in_bytes(options_.reserve), " is too large"});
        }
        if (options_.capacity != 0 && options_.reserve > options_.capacity) {
            misuse({"tag ", in_quotes(tag_), ": a reserve of ", in_bytes(options_.reserve),
                    " is more than the capacity of ", in_bytes(options_.capacity)});
        }
    }
    ~ArenaCore() {
        try {
            close();
        } catch (const std::exception& error) {
            emit_ignored(error.what());
            for (const auto& memory : memories_) { // once more, because nobody else will
                for (Extent& extent : memory->extents) (void)drop(extent);
            }
            for (Leftover& leftover : attic_) (void)drop(leftover.extent);
        }
    }

    /// Allocates the memory that `options.reserve` requests. The owner calls it after construction, and again after a
    /// failure. Throws OutOfMemory if the memory does not fit.
    void reserve() {
        for (std::size_t owned = 0; (owned = physical_bytes_.load()) < options_.reserve;)
            grow(options_.reserve - owned, granularity_);
    }

    // --- blocks ---

    /// Allocates device memory with undefined content. Throws Misuse (size 0 or too large for the arena, alignment not
    /// a power of two, closed), OutOfMemory, or the error of a failing driver call; `reclaim` may then help.
    void* allocate(const Request& request) { return pointer_of(take_block(check_request(request), request)); }
    /// Frees a block, paused or not. Throws Misuse unless `pointer` was returned by `allocate` and has not been freed
    /// since. Null is a no-op. `graph`: of the graph whose replays touch the block, if it is freed in a capture. If it
    /// is of a capture unknown to the saver, the block stays until the arena closes.
    void deallocate(void* pointer, const FreeOrder& order, const std::shared_ptr<GraphKeeps>& graph = {}) {
        using Kind = FreeOrder::Kind;
        if (pointer == nullptr) return;
        const Address address = as_address(pointer);
        const auto still_open = [&] {
            require_open_for([&] { return text_of({"deallocate(", in_hex(address), ")"}); });
        };
        still_open();
        Kind kind = order.kind;
        Frees::Place place{frees_};
        if (kind == Kind::stream) {
            if (being_captured(driver_, order.stream)) {
                // The default stream cannot be captured. It reports a capture while a stream that synchronizes with it
                // is captured: a mark in it would break that capture, so the block waits for the whole device.
                kind = order.stream == StreamRef{} ? Kind::device : Kind::replayed;
            } else if (order.stream.per_thread()) { // that handle names a different stream in each thread
                kind = Kind::device;
            } else if (const Status status = place.record(order.stream); !status.ok()) {
                const Frees::Lock lock = Frees::lock(mutex_);
                const auto [memory, block] = live_block(address);
                const bool active = memory->state == Memory::State::active; // else no mark is needed
                if (active) check(status, "record a CUDA event for a deallocation", block->requested, address);
                kind = Kind::device;
            }
        }
        std::shared_ptr<Kept> kept;
        if (kind == Kind::replayed && graph != nullptr) {
            kept = new_shared<Kept>(shared_from_this());
            graph->add(kept);
        }
        const Frees::Lock lock = Frees::lock(mutex_);
        still_open(); // also now
        for (const Range& owned : owned_) {
            if (address < owned.address || address >= owned.end()) continue;
            refuse_free(address, {"it is in a workspace or in an elastic range; only its owner can free it"});
        }
        const auto [memory, block] = live_block(address);
        if (kind == Kind::replayed) { // replays may touch it, so its bytes still matter
            if (kept != nullptr) kept->block = address;
            return memory->blocks.keep(*block);
        }
        const bool paused = memory->state == Memory::State::paused; // no work can touch it
        // Of copies of the library's own that may be in flight only a wait for the device tells that they have ended.
        const bool precise = memory->state == Memory::State::active && !unsettled_.load();
        const bool now = paused || (kind == Kind::idle && precise);
        if (!now && kind == Kind::stream && precise) {
            frees_.after_stream(address, block->bytes, order.stream, place);
        } else if (!now) {
            frees_.after_fence(address, block->bytes);
        }
        frees_.give_back(place);
        forget(*memory, block->serial);
        memory->blocks.mark_freed(*block);
        if (now) memory->blocks.reclaim(address);
    }

    /// Fills `bytes` of a live block of this arena with zeros, in stream order; recorded if `stream` is being captured.
    /// Waits for bytes that are being restored. Throws Misuse if they are paused or being paused, or the error of a
    /// failing driver call.
    void zero(void* pointer, std::size_t bytes, StreamRef stream) {
        const Range range{as_address(pointer), bytes};
        require_open_for([&] { return text_of({"zero ", in_bytes(bytes), " at ", in_hex(range.address)}); });
        const auto away = [&] {
            const std::lock_guard lock{mutex_};
            return any_away(range);
        };
        if (away()) (void)finish_arriving();
        if (away()) {
            misuse({in_bytes(bytes), " at ", in_hex(range.address), " in tag ", in_quotes(tag_),
                    " cannot be zeroed: the memory is paused; resume it first"});
        }
        check(driver_.fill(range.address, 0, bytes, stream), "zero memory", bytes, range.address);
    }

    /// Reserves addresses for `bytes`, rounded up to whole steps of `step` bytes (rounded up to whole pages), without
    /// memory. Throws Misuse (a size is 0 or too large, closed), or the error of a failing driver call. `whole`: what
    /// is committed together is one block and can only be released together, as workspaces want it.
    [[nodiscard]] UniquePtr<ElasticRange> reserve_elastic(std::size_t bytes, std::size_t step, bool whole = false);

    // --- their bytes ---

    /// Returns the kept bytes of `bytes` at `pointer`, which may point into a block: available while it is paused, and
    /// later for as long as the policy keeps them. Throws Misuse with the reason if there are none.
    [[nodiscard]] BackupView backup_view(const void* pointer, std::size_t bytes) {
        const Asked asked{*this, "backup_view", pointer, bytes};
        const LiveBlock block = asked.block(std::max<std::size_t>(bytes, 1)); // no store maps 0 bytes
        check_of_tag(settle(), "wait for copies of an earlier operation");
        std::shared_ptr<AnySlot> slot;
        {
            const std::lock_guard lock{mutex_};
            const Memory* const memory = memory_with_block(block.address);
            slot = memory == nullptr ? own_ : slot_of(*memory);
        }
        try {
            BackupView view = slot->view(block.serial, asked.offset_in(block), std::max<std::size_t>(bytes, 1));
            view.size_bytes = bytes;
            return view;
        } catch (const Misuse& error) {
            asked.refuse(error.what());
        }
    }
    /// Replaces kept bytes of paused memory. See MemorySaver::write_backup.
    void write_backup(void* pointer, const void* from, std::size_t bytes) {
        const Asked asked{*this, "write_backup", pointer, bytes};
        if (bytes == 0) asked.refuse("the size is 0");
        if (from == nullptr) asked.refuse("the source pointer is null");
        const LiveBlock block = asked.block();
        recover();
        now(Turn::Stage::moves);
        std::shared_ptr<AnySlot> slot;
        {
            const std::lock_guard lock{mutex_};
            const Memory* const memory = memory_with_block(block.address);
            if (memory != nullptr && memory->state == Memory::State::paused) slot = slot_of(*memory);
        }
        if (slot == nullptr) asked.refuse("it is not paused; write to the memory directly");
        try {
            if (slot != own_) own_->invalidate(block, asked.offset_in(block), bytes); // what it saved becomes stale
            slot->write(block, asked.offset_in(block), static_cast<const std::byte*>(from), bytes);
        } catch (const Misuse& error) {
            asked.refuse(error.what());
        }
    }
    /// Reads bytes from a file, now and at every resume. See MemorySaver::load.
    void load(void* pointer, const FileRange& given) {
        const FileRange from{absolute_path(given.path), given.offset, given.bytes}; // later resumes read it again
        const Asked asked{*this, "load", pointer, from.bytes,
                          text_of({", ", in_quotes(from.path), ", ", in_digits(from.offset)})};
        const LiveBlock block = asked.block();
        {
            const std::lock_guard lock{mutex_};
            if (any_away({block.address, block.bytes}))
                asked.refuse("its block is paused or partly paused; resume the tag first");
        }
        now(Turn::Stage::moves);
        try {
            LiveSet live = live_set({}, "loading");
            live.extents.push_back({block.address, block.bytes});
            live.blocks = [block] { return std::vector<LiveBlock>{block}; };
            if (own_->load(block, asked.offset_in(block), from, live)) return;
        } catch (const Misuse& error) {
            asked.refuse(error.what());
        } catch (...) {
            unsettle(); // its copies may still be in flight
            throw;
        }
        asked.refuse(text_of({"its policy is ", in_quotes(policy_.name()), ", not FileSource"}).c_str());
    }
    /// Marks these bytes as changed. See MemorySaver::invalidate.
    void invalidate(const void* pointer, std::size_t bytes) {
        const Asked asked{*this, "invalidate", pointer, bytes};
        const LiveBlock block = asked.block();
        if (!policy_.keeps_bytes()) asked.refuse("its policy keeps no bytes");
        own_->invalidate(block, asked.offset_in(block), bytes);
    }
    /// Marks all saved bytes as out of date, because the program changed them: the next pause saves them again.
    void invalidate() {
        const auto turn = take_turn({}, "invalidate");
        own_->invalidate();
    }
    /// Allocates in advance the resources that saving the live blocks needs. Thread-safe; allocations continue
    /// meanwhile.
    void prepare() {
        const auto turn = take_turn({}, "prepare");
        now(Turn::Stage::moves);
        own_->prepare(live_set(memories_in(Memory::State::active), "preparing"));
    }
    /// Drops the backup of memory that is paused now: a resume then behaves as after a pause with `Discard`.
    void forget_backup() {
        const auto turn = take_turn({}, "forget_backup");
        recover();
        now(Turn::Stage::moves);
        const std::shared_ptr<AnySlot> nothing{AnyPolicy{Discard{}}.open(driver_)};
        const Vector<Memory*> paused = memories_in(Memory::State::paused);
        if (paused.empty()) return;
        Vector<std::shared_ptr<AnySlot>> old;
        old.reserve(paused.size());
        note_loss();
        bool all = true;
        {
            const std::lock_guard lock{mutex_};
            for (Memory* const memory : paused) {
                memory->blocks.for_each_saved([&](const Block& block) { all = own_->drop(block.serial) && all; });
                old.push_back(std::exchange(memory->once, nothing));
            }
        }
        if (!all) own_->invalidate();
        tell_kept(own_->resumed());
        for (std::shared_ptr<AnySlot>& slot : old) retire_slot(std::move(slot));
    }
    /// Returns false if the policy has no such option. Empty: only asks. Waits for an operation that is in progress.
    bool set_retain(std::optional<bool> yes) {
        const auto turn = take_turn({}, "set_retain");
        return own_->set_retain(yes);
    }
    /// Frees the host memory that copies pass through, of all arenas that share this one's budget.
    void trim_host() noexcept {
        if (options_.host_budget) tell_kept(options_.host_budget->trim());
    }
    /// Returns the gate of `bytes` at `pointer`, which may point into a block. See MemorySaver::gate.
    [[nodiscard]] std::shared_ptr<GateMark> gate(const void* pointer, std::size_t bytes);

    // --- queries ---

    /// Throws Misuse, beginning with `what`, after `close`.
    void require_open(const char* what) const {
        require_open_for([&] { return std::string{what}; });
    }
    /// Throws Misuse, beginning with `what`, if any of the memory is paused or being paused, or the arena is closed. If
    /// bytes are being restored, makes `stream` wait for them; throws Misuse if they could not be restored.
    void require_resumed(const char* what, StreamRef stream);
    /// Returns whether a stream belongs to the arena's device. True for the default stream, and if the driver cannot
    /// tell.
    [[nodiscard]] bool owns_stream(StreamRef stream) const {
        bool yes = true;
        const Status status = driver_.owns_stream(stream, yes);
        if (status.kind != StatusKind::unsupported) check(status, "query the owner of a stream");
        return yes;
    }
    /// Returns whether an address lies in this arena.
    [[nodiscard]] bool contains(const void* pointer) const noexcept {
        const std::lock_guard lock{mutex_};
        return addresses_.contain(as_address(pointer));
    }
    /// Returns whether `bytes` at `pointer`, which may point into a block, lie in live blocks.
    [[nodiscard]] bool holds(const void* pointer, std::size_t bytes) {
        const Range range{as_address(pointer), bytes};
        if (closed_.load() || !contains(pointer) || range.end() < range.address) return false;
        for (Address at = range.address; at < range.end();) { // a workspace is a row of live blocks
            const std::optional<LiveBlock> block = block_holding(at);
            if (!block) return false;
            at = block->address + block->bytes;
        }
        return true;
    }
    /// Returns whether these bytes lie in live blocks and are resident: not paused, not being paused and not in flight.
    [[nodiscard]] bool here(const void* pointer, std::size_t bytes) {
        if (!holds(pointer, bytes)) return false;
        const std::lock_guard lock{mutex_};
        return !any_away({as_address(pointer), bytes});
    }
    [[nodiscard]] ArenaUsage usage() {
        fork_check_.require_parent("usage");
        const bool arriving = coming_back();
        ArenaUsage row;
        row.tag = tag_;
        row.device = device();
        row.policy = policy_.name();
        const bool open = !closed_.load();
        const std::lock_guard lock{mutex_};
        row.reserved_bytes = addresses_.bytes();
        row.mapped_bytes = mapped_bytes();
        row.held_bytes = held().bytes;
        row.peak_mapped_bytes = std::max(peak_bytes_.load(), physical_bytes_.load());
        row.backed_up_bytes = own_ ? own_->backed_up_bytes() : 0;
        row.elastic_bytes = open ? elastic_bytes_.load() : 0;
        row.pauses = pauses_.load();
        for (const auto& memory : memories_) {
            if (open) { // `close` does not clear these counts
                row.used_bytes += memory->blocks.live_bytes();
                row.blocks += memory->blocks.live_blocks();
            }
            if (memory->state == Memory::State::paused || memory->state == Memory::State::arriving)
                row.paused_bytes += memory->bytes();
            const auto* const first = first_in(memories_, [&](const auto& each) { return each->once == memory->once; });
            if (!memory->once || first != &memory) continue;
            row.backed_up_bytes += memory->once->backed_up_bytes();
            if (const auto scratch = memory->once->scratch()) row.mapped_bytes += scratch->held_bytes();
        }
        spent_.each([&](const Closable& slot) {
            const auto scratch = static_cast<const AnySlot&>(slot).scratch();
            if (scratch && scratch != own_scratch_) row.mapped_bytes += scratch->held_bytes();
        });
        const bool some_active = physical_bytes_.load() > row.held_bytes;
        if (arriving) row.paused_bytes = 0;
        row.state = !open                   ? end()
                    : arriving              ? "arriving"
                    : row.paused_bytes == 0 ? (some_active ? "active" : "empty")
                                            : (some_active ? "partly paused" : "paused");
        return row;
    }

    [[nodiscard]] const std::string& tag() const noexcept { return tag_; }
    [[nodiscard]] int device() const noexcept { return driver_.device(); }
    [[nodiscard]] const AnyDriver& driver() const noexcept { return driver_; }
    [[nodiscard]] const AnyPolicy& policy() const noexcept { return policy_; }
    [[nodiscard]] const ArenaOptions& options() const noexcept { return options_; }
    [[nodiscard]] std::size_t granularity() const noexcept { return granularity_; }
    void set_capacity(std::size_t bytes) noexcept { capacity_.store(bytes); }
    [[nodiscard]] std::size_t capacity() const noexcept { return capacity_.load(); }
    void set_margin(std::size_t bytes) noexcept { margin_.store(bytes); }
    [[nodiscard]] std::size_t margin() const noexcept { return margin_.load(); }
    /// Before any allocation. A handle of exactly this size is a publication that others keep.
    void set_borrowed(std::size_t bytes) noexcept { borrowed_.store(bytes); }
    /// What is sealed is kept as long as this lives. Requires the turn.
    void set_published(std::weak_ptr<const void> publication) noexcept {
        const std::lock_guard lock{mutex_};
        published_.swap(publication);
    }

    /// Returns out_of_memory if less than the margin would be left free beside `needed` more bytes.
    [[nodiscard]] Status leaves_margin(std::size_t needed) const noexcept {
        const std::size_t margin = margin_.load();
        if (margin == 0 || needed == 0) return {};
        DeviceMemory memory;
        const Status status = driver_.memory(memory);
        if (!status.ok() || (memory.free_bytes >= margin && memory.free_bytes - margin >= needed)) return status;
        return {StatusKind::out_of_memory, 0, "less than the margin would remain free"};
    }
    /// Throws the error of an attempt to get `needed` bytes: says who wanted them, and what was free.
    [[noreturn]] void raise_no_room(const Status& status, const char* what, std::size_t needed) const {
        DeviceMemory memory;
        (void)driver_.memory(memory);
        const std::string name = driver_.name();
        if (status.kind != StatusKind::out_of_memory) raise_of(status, what, {"tag ", in_quotes(tag_), " on ", name});
        const std::string margins =
            margin() != 0 ? text_of({", of which ", in_bytes(margin()), " are the margin"}) : "";
        raise_of(status, what,
                 {"tag ", in_quotes(tag_), " on ", name, " needs ", in_bytes(needed), ", ", in_bytes(memory.free_bytes),
                  " are free", margins},
                 needed, memory.free_bytes);
    }
    /// Returns the physical bytes of all existing handles.
    [[nodiscard]] std::size_t mapped_bytes() const noexcept {
        return physical_bytes_.load() + (own_scratch_ ? own_scratch_->held_bytes() : 0);
    }
    /// Returns those that a pause of everything may give back: of published pages it does if its hooks withdraw them.
    [[nodiscard]] std::size_t bytes_to_pause() const noexcept {
        const std::size_t bytes = mapped_bytes();
        const std::size_t borrowed = borrowed_.load();
        return bytes - (borrowed <= bytes ? borrowed : 0);
    }
    /// Returns whether freed blocks or released pages wait for device work.
    [[nodiscard]] bool anything_waits() {
        const std::lock_guard lock{mutex_};
        return frees_.any_waiting() || any_in(attic_, [](const Leftover& each) { return each.until != nullptr; });
    }
    /// Returns whether a pause or a trim would have nothing to do.
    [[nodiscard]] bool idle_for_pause() const noexcept {
        if (mapped_bytes() != 0 || !spent_.empty()) return false;
        const std::lock_guard lock{mutex_};
        return !held().foreign;
    }
    /// Returns whether a resume would have nothing to do. False after `close`: it would be refused.
    [[nodiscard]] bool nothing_paused() noexcept {
        const std::lock_guard lock{mutex_};
        return !closed_.load() && all_active() && attic_.empty() && spent_.empty();
    }
    /// Returns how many pauses have released pages.
    [[nodiscard]] std::uint64_t pauses() const noexcept { return pauses_.load(); }
    /// Returns a number that a later loss makes larger: bytes were given up by a policy that keeps none, or by
    /// `forget_backup`. Counted before the memory can be found resident again.
    [[nodiscard]] std::uint64_t losses() const noexcept { return losses_.load(); }
    /// Returns whether no memory is paused or being paused. Held pages do not count.
    [[nodiscard]] bool all_resident() noexcept {
        const std::lock_guard lock{mutex_};
        return all_active();
    }
    /// Returns whether all paused memory has been mapped and its bytes are being restored.
    [[nodiscard]] bool on_its_way() noexcept;
    /// Returns whether some pages are active or are just being paused.
    [[nodiscard]] bool any_resident() noexcept {
        const std::lock_guard lock{mutex_};
        return any_in(memories_, [](const auto& memory) {
            return memory->state == Memory::State::leaving ||
                   (memory->state == Memory::State::active && !memory->extents.empty());
        });
    }
    /// Returns the physical bytes that a resume would take now.
    [[nodiscard]] std::size_t bytes_to_resume() {
        fork_check_.require_parent("bytes_to_resume");
        if (coming_back()) return 0; // its pages are already there
        const std::lock_guard lock{mutex_};
        if (closed_.load()) return 0;
        std::size_t bytes = 0;
        Vector<Memory*> paused;
        for (const auto& memory : memories_) {
            if (memory->state != Memory::State::paused) continue;
            paused.push_back(memory.get());
            std::vector<Range> lacking;
            for (const Extent& extent : memory->extents) {
                if (!extent.owns && !others_keep(extent)) lacking.push_back(extent.range());
            }
            for (const Range& range : without(lacking, dead_ranges(*memory))) bytes += range.bytes;
        }
        if (bytes != 0) each_scratch(paused, [&](DeviceScratch& scratch) { bytes += scratch.wanted_bytes(); });
        return bytes;
    }

    // --- operations ---

    /// Waits for the turn, then until bytes in flight have arrived or failed to arrive. Throws NotIdle once the
    /// deadline has passed; Misuse, beginning with `what`, after `close`. With `join`, does not wait for bytes that a
    /// streamed resume is still restoring.
    [[nodiscard]] Turn::Hold take_turn(const Deadline& deadline = {}, const char* what = "use", bool join = false) {
        fork_check_.require_parent(what); // before any lock: a forked child may find it locked forever
        auto hold = turn_.take(deadline, tag_);
        require_open(what);
        commit_arriving(deadline, join);
        (void)spent_.retry();
        return hold;
    }
    /// Waits for the device if a `recover` would, which knows no deadline. By an event, which breaks captures: only for
    /// operations that keep them out, and wait for no streams named by the program. Requires the turn. Throws NotIdle
    /// once the deadline has passed.
    void await_copies(const Deadline& deadline);
    /// Returns the turn if it is free and no bytes in flight have to be waited for. Null after `close` and in a forked
    /// child.
    [[nodiscard]] Turn::Hold try_turn();
    /// Waits until another thread's operation on this arena ends, if that has only its own copies left, and for bytes
    /// in flight. Returns whether there were any.
    bool wait_for_copies(const Deadline& deadline) noexcept;
    /// Says what the operation that holds the turn waits for.
    void now(Turn::Stage stage) noexcept { turn_.now(stage); }
    /// Closes a slot that is no longer needed, unless it is the tag's own.
    void retire_slot(std::shared_ptr<AnySlot> slot) noexcept {
        if (slot && slot != own_) tell_kept(spent_.add(std::move(slot)));
    }

    /// Returns the bytes in flight, if any; also bytes whose restore failed, until the next pause or resume.
    [[nodiscard]] std::shared_ptr<Arriving> arriving() noexcept;
    /// Waits until the bytes in flight have arrived, and commits them. Takes the turn. Returns whether there were any.
    /// Failures are reported to the threads that wait for the arrival.
    bool finish_arriving() noexcept;
    /// Sets the bytes in flight that continue without the turn, or null. Requires the turn.
    void set_arriving(std::shared_ptr<Arriving> arriving) noexcept;

    /// Releases unused memory, if no operation is in progress; of an arena with copies of a failed one in flight, only
    /// if it may `wait` for the device. Returns the bytes released.
    std::size_t release_unused(bool wait) noexcept;
    /// What a call that lacks memory of this arena has tried.
    struct Reclaims {
        std::uint64_t seen = 0; ///< the last wait for the device before the last attempt
        int count = 0;          ///< limited, because other threads may keep taking what this one reclaims
        int waits = 8;          ///< how many more times to wait for another thread's operation
        bool nothing = false;   ///< the last reclaim found nothing
    };
    /// Called before each attempt.
    void note_attempt(Reclaims& tried) const noexcept { tried.seen = frees_.last_done(); }
    /// For a call that failed with `why`: makes unused memory of the arena reusable, waiting for the device if freed
    /// memory waits for it; then releases free extents, or waits for another thread's copies. Called with no lock or
    /// turn held. Returns whether another attempt may succeed.
    bool reclaim(const Status& why, Reclaims& tried) {
        constexpr int most = 64;
        constexpr int gentle = 8; // the first of them keep the arena's pages: freed memory may be enough
        const bool lacks = why.kind == StatusKind::out_of_memory || why.kind == StatusKind::out_of_host_memory ||
                           why.kind == StatusKind::out_of_addresses;
        if (!lacks || tried.count == most) return false;
        const bool found = reclaim_now(tried.count < gentle, tried.waits) || frees_.last_done() != tried.seen;
        if (!found && (tried.nothing || why.kind != StatusKind::out_of_memory)) return false;
        tried.nothing = !found; // once more: another thread's operation may have released some
        tried.count += 1;
        return true;
    }
    /// Waits for the device if freed blocks or released pages wait for it; its work may wait for other threads, so this
    /// is called with no lock or turn held.
    void wait_for_frees() noexcept {
        if (anything_waits()) (void)frees_.drain();
    }

    /// All memory of the arena; its extents and live blocks, also those that graphs keep, are sorted by address.
    struct Contents {
        Vector<Extent> extents;
        std::vector<LiveBlock> blocks;
    };
    /// For pages that other processes are about to read. Until a pause has released them, no block is allocated in
    /// them and no exchange hands them over; new blocks come from other pages. Requires the turn. Throws Misuse if any
    /// memory is paused. The contents say what had been sealed before.
    Contents seal() {
        Contents contents;
        const std::lock_guard lock{mutex_};
        for (const auto& memory : memories_) {
            if (memory->state != Memory::State::active) misuse_of(tag_, {"tag ", in_quotes(tag_), ": it is paused"});
            contents.extents.append(memory->extents.begin(), memory->extents.end());
            memory->blocks.for_each_saved([&](const Block& block) { contents.blocks.push_back(live_of(block)); });
        }
        sort_by(contents.extents, [](const Extent& extent) { return extent.address; });
        sort_by(contents.blocks, [](const LiveBlock& block) { return block.address; });
        for (const auto& memory : memories_) {
            for (Extent& extent : memory->extents) extent.sealed = memory->sealed = true;
        }
        return contents;
    }
    /// Takes a `seal` back, except for what had been sealed before. Requires the turn.
    void unseal(const Contents& contents) noexcept {
        const std::lock_guard lock{mutex_};
        for (const auto& memory : memories_) {
            memory->sealed = false;
            for (Extent& extent : memory->extents) {
                const auto before = std::find_if(contents.extents.begin(), contents.extents.end(),
                                                 [&](const Extent& each) { return each.address == extent.address; });
                if (before != contents.extents.end() && !before->sealed) extent.sealed = false;
                memory->sealed = memory->sealed || extent.sealed;
            }
        }
        merge_memories();
    }

    /// Returns whether this process is a forked child of the one that made the arena. The owner must then leave the
    /// arena alone, because its memory and files belong to the parent.
    [[nodiscard]] bool forked() const noexcept { return fork_check_.forked(); }

    /// Waits for the device and releases everything. Later calls throw Misuse, except those made by destructors. A lost
    /// device is not a failure. Throws the error of the first failing driver call after trying everything; the next
    /// call retries what is left. `closing` is called once no block can be allocated any more, before the addresses are
    /// unreserved. If the device cannot be waited for, `closing` is not called and the arena stays open.
    void close(FunctionRef<void()> closing = [] {}) {
        fork_check_.require_parent("close");
        cancel_arriving();
        const auto turn = turn_.take({}, tag_);
        commit_arriving();
        give_up_failed_arrival();
        stop_serving();
        now(Turn::Stage::moves);
        closing();
        const Status kept = end_slots();
        const Status gates = gates_.close();
        const Status pages = drop_all();
        check_of_tag(pages, "release an arena's memory");
        if (gates.kind != StatusKind::gone) check_of_tag(gates, "release the resources of gates");
        check_of_tag(kept, "release a backup's storage");
    }
    [[nodiscard]] bool closed() const noexcept { return closed_.load(); }

    std::uint64_t arena_serial = 0; // of a saver's table of tags; 0: of none of its tags

    /// Set once the tag is dropped or about to be. Used in error messages about a closed arena.
    std::atomic<bool> dropped{false};
    /// Returns what happened to a closed arena, for error messages: it was closed, or its tag was dropped.
    [[nodiscard]] const char* end() const noexcept { return dropped.load() ? "dropped" : "closed"; }

private:
    friend class ElasticRange;
    /// Pages that are no memory any more, but that the driver would not take back, or that work may still use.
    struct Leftover {
        Extent extent;
        bool owns_addresses;                     // otherwise they belong to an elastic range
        std::shared_ptr<const WorkMark> until{}; // work that an elastic release waits for; nothing failed
    };
    /// A block that was deallocated in a capture: ends with the graph.
    struct Kept {
        explicit Kept(std::shared_ptr<ArenaCore> of) noexcept : arena{std::move(of)} {}
        Kept& operator=(Kept&&) = delete;
        ~Kept() {
            if (block != 0) arena->let_go(block);
        }

        std::shared_ptr<ArenaCore> arena;
        Address block = 0; // guarded by the arena's mutex
    };
    /// Frees such a block, as if deallocated now: the graph is gone.
    void let_go(Address address) noexcept {
        if (forked()) return;
        Frees::Lock lock{mutex_};
        if (closed_.load()) return;
        bool now = memory_with_block(address)->state == Memory::State::paused; // no work can touch it
        try {
            if (!now) frees_.after_fence(address, memory_with_block(address)->blocks.find(address)->bytes);
        } catch (const std::bad_alloc&) { // waiting takes no host memory
            try {
                frees_.fence(lock);
                now = true;
            } catch (const std::exception& error) { // it stays until the arena closes
                lock.unlock();
                return emit_ignored(error.what());
            }
            if (closed_.load()) return;
        }
        Memory& memory = *memory_with_block(address);
        const Block& block = *memory.blocks.find(address);
        forget(memory, block.serial);
        memory.blocks.mark_freed(block);
        if (now) memory.blocks.reclaim(address);
    }

    // --- the steps of `close` ---

    /// Waits for the device; after that, no block can be allocated or freed. Throws if it cannot be waited for; then
    /// the arena stays open.
    void stop_serving() {
        {
            const auto growth = growth_.take({}, tag_);
            const std::lock_guard lock{mutex_};
            closing_.store(true);
        }
        const Status drained = closed_.load() ? Status{} : frees_.drain(); // work may still use the memory
        if (!drained.ok() && drained.kind != StatusKind::gone) {
            closing_.store(false);
            check_of_tag(drained, "wait for the device before closing an arena");
        }
        for (const Leftover& each : attic_) { // also work of other devices may use what elastic ranges released
            if (each.until != nullptr) (void)each.until->wait();
        }
        Frees::Lock lock{mutex_};
        closed_.store(true);
        frees_.clear(lock);
    }
    Status end_slots() noexcept {
        Status first;
        (void)note_left(first, spent_.retry());
        const auto end = [&](std::shared_ptr<AnySlot>& slot) {
            std::shared_ptr<AnySlot> last;
            {
                const std::lock_guard lock{mutex_};
                last.swap(slot);
            }
            if (last) (void)note_left(first, spent_.add(std::move(last)));
        };
        for (const auto& memory : memories_) end(memory->once);
        end(own_);
        return first;
    }
    Status drop_all() noexcept {
        Status first;
        bool all = true;
        const auto release = [&](Extent& kept) { all = note_left(first, drop_listed(kept)) && all; };
        for (const auto& memory : memories_) {
            for (Extent& extent : memory->extents) release(extent);
        }
        for (Leftover& leftover : attic_) {
            const Status passed = leftover.until == nullptr ? Status{} : leftover.until->wait();
            const bool idle =
                note_left(first, passed) || passed.kind == StatusKind::gone; // nothing runs on a lost device
            all = idle && all;
            if (idle) release(leftover.extent);
        }
        if (!all) return first;
        Addresses gone;
        Vector<Leftover> attic; // a mark in it may close an event: without the mutex
        {
            const std::lock_guard lock{mutex_};
            memories_.clear();
            attic.swap(attic_);
            extents_ = 0;
            std::swap(gone, addresses_);
        }
        if (!note_left(first, gone.close())) {
            const std::lock_guard lock{mutex_};
            std::swap(gone, addresses_);
        }
        return first;
    }

    // --- pages: none of these takes the mutex ---

    /// Returns whether others have an extent's pages too: releasing them frees nothing.
    [[nodiscard]] bool others_keep(const Extent& extent) const noexcept {
        return extent.bytes == borrowed_.load() || (extent.sealed && !published_.expired());
    }
    /// Returns the bytes that the device gets back if the extent is released.
    [[nodiscard]] std::size_t bytes_freed(const Extent& extent) const noexcept {
        return extent.owns && !others_keep(extent) ? extent.bytes : 0;
    }
    Status create(Extent& extent) noexcept {
        const Status status = driver_.create(extent.bytes, extent.pages);
        if (!status.ok()) return status;
        extent.owns = true;
        note_physical(extent.bytes);
        return status;
    }
    /// Maps pages at an extent, and allows access. After a failure, the extent may be mapped.
    Status map(Extent& extent, PageHandle pages) noexcept {
        if (!extent.mapped) {
            const Status status = driver_.map(extent.address, extent.bytes, pages);
            if (!status.ok()) return status;
            extent.mapped = true;
        }
        return driver_.allow_access(extent.address, extent.bytes, extent.sealed ? Rights::read : Rights::read_write);
    }
    Status unmap(Extent& extent) noexcept {
        if (!extent.mapped) return {};
        const Status status = driver_.unmap(extent.address, extent.bytes);
        if (status.ok()) extent.mapped = false;
        return status;
    }
    Status release(Extent& extent) noexcept {
        if (!extent.owns) return {};
        const Status status = driver_.release(extent.pages);
        if (status.ok()) note_released(extent);
        return status;
    }
    void note_released(Extent& extent) noexcept {
        extent.owns = extent.sealed = false;
        physical_bytes_ -= extent.bytes;
    }
    /// Unmaps and releases. If that fails, the extent keeps what is left.
    Status drop(Extent& extent) noexcept {
        const Status status = unmap(extent);
        return status.ok() ? release(extent) : status;
    }
    /// Likewise for an extent that queries read under the mutex.
    Status drop_listed(Extent& listed) noexcept {
        Extent extent = listed;
        const Status status = drop(extent);
        const std::lock_guard lock{mutex_};
        listed = extent;
        return status;
    }
    /// Likewise for an extent of active memory, whose bytes nobody needs: access to it is allowed.
    Status drop_active(Extent& extent) noexcept {
        if (!extent.owns || !extent.mapped || extent.sealed) return drop(extent);
        bool unmapped = false;
        const Status status = driver_.drop(extent.address, extent.bytes, extent.pages, unmapped);
        if (unmapped) extent.mapped = false;
        if (status.ok()) note_released(extent);
        return status;
    }
    /// Transfers ownership of the pages of `from`, an extent of `other`, to `to`, which has them mapped too.
    void take_over(Extent& to, ArenaCore& other, Extent& from) noexcept {
        to.pages = from.pages;
        to.owns = true;
        from.owns = false;
        other.physical_bytes_ -= from.bytes;
        note_physical(to.bytes);
    }
    void note_physical(std::size_t more) noexcept {
        const std::size_t now = physical_bytes_.fetch_add(more) + more;
        std::size_t peak = peak_bytes_.load();
        while (peak < now && !peak_bytes_.compare_exchange_weak(peak, now)) {
        }
    }
    /// Creates pages for all extents that have none, stopping at the first failure. Returns out_of_memory also if less
    /// than the margin would be left free. `beside`: bytes that will be created in addition.
    Status create_all(Vector<Extent>& extents, std::size_t beside = 0) noexcept {
        if (const Status status = leaves_margin(beside + bytes_lacking(extents)); !status.ok()) return status;
        for (Extent& extent : extents) {
            if (extent.owns || extent.mapped) continue; // kept, or another arena's pages
            const Status status = create(extent);
            if (!status.ok()) return status;
        }
        return {};
    }
    /// Notes that copies of a failed operation may still be in flight. `settle` waits for them; nothing is released
    /// before, and no block becomes free before the device has been waited for.
    void unsettle() noexcept { unsettled_.store(true); }
    Status settle() noexcept {
        if (!unsettled_.load()) return {};
        const std::uint64_t fence = frees_.begin_fence();
        Status status = driver_.drain();
        if (status.kind == StatusKind::gone) status = {}; // nothing runs on a lost device
        if (!status.ok()) return status;
        frees_.finish_fence(fence);
        unsettled_.store(false);
        return status;
    }
    /// Requires the turn.
    void note_loss() noexcept { losses_.store(++last_loss_); }

    // --- growth ---

    /// Returns a block of `size` bytes (a multiple of 256) from active memory, growing the arena if necessary.
    Address take_block(std::size_t size, const Request& request) {
        for (bool waited = false;;) {
            if (closing_.load() || forked()) refuse_closed(request.text());
            {
                const bool in_order = request.stream && frees_.reusable_in(*request.stream);
                Frees::Lock lock = Frees::lock(mutex_);
                if (const Address address = serve(lock, size, request, in_order)) return address;
                // Other threads may take the memory that this one waited for, so it waits only once to avoid growth, or
                // it might never be served.
                const std::size_t growth = std::max(size, growth_step(physical_bytes_, granularity_));
                if (!waited && frees_.fence_is_worth_it(lock, growth)) {
                    waited = true;
                    frees_.fence_oldest(lock); // often a wait that another thread has begun
                    continue;
                }
            }
            grow(size, request.alignment);
        }
    }
    /// Returns a block of active memory, or 0.
    Address serve(Frees::Lock& lock, std::size_t size, const Request& request, bool in_order) {
        if (in_order) {
            const Address freed = frees_.take(*request.stream, size, [&](Range block) {
                return block.address % request.alignment == 0 && memory_with_block(block.address)->serves();
            });
            if (freed != 0) {
                memory_with_block(freed)->blocks.revive(freed, request.bytes);
                return freed;
            }
        }
        do {
            if (closing_.load()) return 0;                                      // its pages may be going
            for (auto memory = memories_.end(); memory != memories_.begin();) { // the newest first
                if (!(*--memory)->serves()) continue;
                const Block* const block = (*memory)->blocks.allocate(size, request.alignment, request.bytes);
                if (block != nullptr) return block->address;
            }
        } while (collect(lock));
        return 0;
    }
    /// Adds active memory for a block of `bytes`. If it had to wait while another thread did that, adds none.
    void grow(std::size_t bytes, std::size_t alignment) {
        const std::uint64_t seen = growth_.ended();
        const auto growth = growth_.take({}, tag_);
        if (closing_.load() || forked()) refuse_closed(text_of({"allocate ", in_bytes(bytes)}));
        if (growth_.ended() != seen) return; // what another thread has added may suffice
        const std::size_t needed = align_up(bytes, granularity_);
        const std::size_t capacity = capacity_.load();
        const std::size_t owned = physical_bytes_.load();
        check_capacity(capacity, needed);
        std::size_t step = std::max(needed, growth_step(owned, granularity_));
        if (capacity != 0) step = std::min(step, std::max(needed, capacity - std::min(owned, capacity)));
        step = align_down(step, granularity_);
        DeviceMemory memory;
        if (needed > 1_GiB && driver_.memory(memory).ok() &&
            needed > memory.total_bytes) { // no reservation could succeed
            raise_no_room({StatusKind::out_of_memory, 0, "more than the device's total memory"},
                          "allocate device memory", needed);
        }
        const auto add = [&](std::size_t size) {
            std::vector<Range> range(1); // before the addresses, which would be lost if this threw
            range[0] = take_addresses(size, alignment, needed);
            return add_memory(range, false);
        };
        Status status = add(step);
        const bool no_room = status.kind == StatusKind::out_of_memory || status.kind == StatusKind::out_of_host_memory;
        if (no_room && step != needed) status = add(needed);
        if (!status.ok()) raise_no_room(status, "allocate device memory", needed);
    }
    /// Takes addresses, reserving another segment if necessary; if none can be reserved for `bytes`, takes `least`.
    /// Requires the turn to grow.
    Range take_addresses(std::size_t bytes, std::size_t alignment, std::size_t least) {
        alignment = std::max(alignment, granularity_);
        std::size_t wanted = 0;
        {
            const std::lock_guard lock{mutex_};
            if (const Address address = addresses_.take(bytes, alignment)) return {address, bytes};
            wanted = align_up(segment_bytes(addresses_.bytes(), bytes), granularity_);
        }
        Reservation reservation;
        const std::size_t at = std::max<std::size_t>(alignment, 1_MiB);
        Status status = reservation.open(driver_, wanted + granularity_, at);
        if (!status.ok() && wanted != bytes) { // if that many cannot be reserved, only the needed ones
            wanted = bytes;
            status = reservation.open(driver_, wanted + granularity_, at);
        }
        if (!status.ok() && bytes != least) return take_addresses(least, alignment, least);
        check(status, "reserve addresses", wanted, 0);
        const Range all{reservation.get().address, wanted};
        driver_.name_addresses(all.address, reservation.get().bytes, text_of({"tag ", in_quotes(tag_)}).c_str());
        {
            const std::lock_guard lock{mutex_};
            addresses_.add(std::move(reservation), wanted);
        }
        try {
            if (on_segment_) on_segment_(all, weak_from_this().lock());
        } catch (...) {
            Reservation unused; // closed without the mutex
            const std::lock_guard lock{mutex_};
            unused = addresses_.take_last();
            throw;
        }
        const std::lock_guard lock{mutex_};
        return {addresses_.take(bytes, alignment), bytes};
    }
    /// Creates and maps pages at sorted `ranges`, which become active memory: free, or `elastic`: live blocks with
    /// handles of their own, whose addresses are an elastic range's. Requires the turn to grow. Strong exception
    /// guarantee, except that pages which cannot be released become leftovers; unless elastic, these then own their
    /// addresses, and the rest of the addresses is freed.
    Status add_memory(const std::vector<Range>& ranges, bool elastic) {
        Vector<Extent> extents;
        try {
            for (const Range& range : ranges) split_into_extents(range, granularity_, options_.single_handle, extents);
            for (Extent& extent : extents) extent.fixed = extent.fixed || elastic;
            const std::lock_guard lock{mutex_};
            reserve_attic(extents.size());
            extents_ += extents.size();
        } catch (const std::bad_alloc&) {
            for (const Range& range : ranges) {
                if (!elastic) free_addresses(range);
            }
            throw;
        }
        Status status = create_all(extents);
        for (std::size_t i = 0; status.ok() && i < extents.size(); ++i) status = map(extents[i], extents[i].pages);
        std::exception_ptr lacking;
        try {
            if (status.ok()) return take_in(ranges, extents, elastic), status;
        } catch (const std::bad_alloc&) {
            lacking = std::current_exception();
        }
        for (Extent& extent : extents) leave(extent, !elastic, drop(extent));
        if (lacking) std::rethrow_exception(lacking);
        return status;
    }
    /// Adds mapped pages to active memory. Strong exception guarantee: may throw std::bad_alloc.
    void take_in(const std::vector<Range>& ranges, const Vector<Extent>& extents, bool elastic) {
        const std::lock_guard lock{mutex_};
        auto fresh = UniquePtr<Memory>::make(last_serial_);
        for (const Range& range : ranges) fresh->blocks.add(range, elastic ? Block::State::live : Block::State::free);
        fresh->extents = extents;
        if (Memory* const memory = newest_active()) return memory->merge(*fresh);
        memories_.push_back(std::move(fresh));
    }
    /// Throws Misuse if `more` bytes exceed `capacity`.
    void check_capacity(std::size_t capacity, std::size_t more) const {
        const std::size_t owned = physical_bytes_.load();
        if (capacity == 0 || (owned <= capacity && more <= capacity - owned)) return;
        misuse(
            Status{StatusKind::out_of_memory}, // unused memory counts, too: see `reclaim`
            {"tag ", in_quotes(tag_), ": ", in_bytes(more), " more would exceed its capacity of ", in_bytes(capacity)});
    }
    bool reclaim_now(bool gentle, int& waits) {
        const bool any = anything_waits();
        if (any) {
            Frees::Lock lock{mutex_};
            frees_.fence(lock);
            if (collect(lock) && gentle) return true;
        }
        if (release_unused(true) != 0) return true;
        if (waits == 0 || !wait_for_copies({})) return any;
        waits -= 1; // that operation may have held the missing memory
        return true;
    }
    [[nodiscard]] std::size_t check_request(const Request& request) const {
        request.check(tag_);
        if (request.alignment > 1_GiB)
            request.refuse(tag_, {"the alignment of ", in_bytes(request.alignment), " is more than 1 GiB"});
        const std::size_t capacity = capacity_.load();
        if (capacity != 0 && request.bytes > capacity)
            request.refuse(tag_, {"more than the tag's capacity of ", in_bytes(capacity)});
        if (request.bytes > std::numeric_limits<std::size_t>::max() / 2)
            request.refuse(tag_, {"the size exceeds any address space"});
        return align_up(request.bytes, BlockAllocator::unit);
    }
    void free_addresses(Range range) noexcept {
        bool freed = false;
        {
            const std::lock_guard lock{mutex_};
            freed = addresses_.give(range);
        }
        if (!freed) emit_ignored("no host memory to free addresses");
    }

    // --- memories: all require the mutex ---

    [[nodiscard]] bool all_active() const noexcept {
        return all_in(memories_, [](const auto& memory) { return memory->state == Memory::State::active; });
    }
    [[nodiscard]] Memory* newest_active() noexcept {
        for (auto memory = memories_.end(); memory != memories_.begin();) {
            if ((*--memory)->serves()) return memory->get();
        }
        return nullptr;
    }
    [[nodiscard]] Memory* memory_with_block(Address address) noexcept {
        for (const auto& memory : memories_) {
            if (memory->blocks.find(address) != nullptr) return memory.get();
        }
        return nullptr;
    }
    /// Merges memories of the same state and slot where that is possible. Never throws: what cannot be merged for lack
    /// of host memory stays apart.
    void merge_memories() noexcept {
        for (std::size_t i = 0; i < memories_.size(); ++i) {
            for (std::size_t j = i + 1; j < memories_.size();) {
                Memory& into = *memories_[i];
                Memory& from = *memories_[j];
                const bool still = into.state == Memory::State::active || into.state == Memory::State::paused;
                if (!still || into.state != from.state || into.once != from.once || into.sealed != from.sealed) {
                    ++j;
                    continue;
                }
                try { // the smaller one into the larger one
                    if (into.blocks.live_blocks() < from.blocks.live_blocks()) std::swap(memories_[i], memories_[j]);
                    memories_[i]->merge(*memories_[j]);
                    memories_.erase(memories_.begin() + static_cast<std::ptrdiff_t>(j));
                } catch (const std::bad_alloc&) { // they stay apart
                    ++j;
                }
            }
        }
    }
    /// Returns whether any part of a range is paused or being paused.
    [[nodiscard]] bool any_away(Range range) const noexcept {
        return any_in(memories_, [&](const auto& memory) {
            if (memory->state == Memory::State::active) return false;
            return any_in(memory->extents, [&](const Extent& extent) { return overlap(extent.range(), range); });
        });
    }
    /// Makes freed blocks free whose work has completed. Returns whether there was any.
    bool collect(Frees::Lock& lock) {
        return frees_.collect(lock, [&](Address block) { reclaim(block); });
    }
    void reclaim(Address block) noexcept { memory_with_block(block)->blocks.reclaim(block); }
    /// Makes all freed blocks of paused memory free, because no work can touch them any more.
    void free_paused() noexcept {
        frees_.collect_if([&](Address block) { return memory_with_block(block)->state == Memory::State::paused; },
                          [&](Address block) { reclaim(block); });
    }
    /// Returns the live block at an address, and its memory. Throws Misuse if there is none.
    std::pair<Memory*, const Block*> live_block(Address address) {
        if (Memory* const memory = memory_with_block(address)) {
            const Block* const block = memory->blocks.find(address);
            if (block->state == Block::State::live) return {memory, block};
            refuse_free(address, {"this block of ", in_bytes(block->requested), " was freed before"});
        }
        if (!addresses_.contain(address))
            misuse({"deallocate(", in_hex(address), "): not a pointer of tag ", in_quotes(tag_)});
        for (const auto& memory : memories_) {
            const Block* const around = memory->blocks.holding(address);
            if (around == nullptr || around->state != Block::State::live) continue;
            refuse_free(address, {"the pointer lies inside a block of ", in_bytes(around->requested),
                                  " that starts at ", in_hex(around->address)});
        }
        refuse_free(address, {"no block of this tag starts here; it may have been freed before"});
    }
    [[noreturn]] void refuse_free(Address address, Bits why) const {
        misuse({"deallocate(", in_hex(address), ") in tag ", in_quotes(tag_), ": ", text_of(why)});
    }
    void forget(const Memory& memory, std::uint64_t serial) noexcept {
        if (own_) own_->forget(serial);
        if (memory.once) memory.once->forget(serial);
    }
    /// Keeps capacity in `attic_` for `more` extents beside those that exist.
    void reserve_attic(std::size_t more) { attic_.reserve(attic_.size() + extents_ + more); }

    // --- leftovers ---

    /// Adds pages that could not be released, or that wait for work. Capacity was reserved for every extent.
    void leave(const Extent& extent, bool owns_addresses, const Status& status,
               std::shared_ptr<const WorkMark> until = {}) noexcept {
        tell_kept(status, "release pages (the next operation retries)");
        const std::lock_guard lock{mutex_};
        extents_ -= 1;
        const bool empty = !extent.owns && !extent.mapped;
        if (empty && (!owns_addresses || addresses_.give(extent.range()))) return;
        attic_.push_back({extent, owns_addresses, std::move(until)}); // capacity was reserved for every extent
    }
    /// Retries the release of leftovers, and of pages kept by paused memory. Adds the bytes released to
    /// `released_bytes`. Waits for the device only if copies of a failed operation may be in flight. Requires the turn.
    Status retry_leftovers(std::size_t& released_bytes) noexcept {
        Status first = retry_attic(released_bytes);
        if (!note_first(first, settle())) return first;
        Memory* each = nullptr;
        for (std::size_t i = 0; (each = memory(i)) != nullptr; ++i) {
            if (each->state != Memory::State::paused) continue;
            for (Extent& kept : each->extents) {
                if (!kept.owns && !kept.mapped) continue;
                const std::size_t bytes = bytes_freed(kept);
                if (note_first(first, drop_listed(kept))) released_bytes += bytes;
            }
        }
        return first;
    }
    Status retry_attic(std::size_t& released_bytes) noexcept {
        Status first;
        std::size_t left = 0; // how many to look at: those added meanwhile are not retried
        {
            const std::lock_guard lock{mutex_};
            left = attic_.size();
        }
        for (std::size_t at = 0; left != 0; --left) {
            Leftover each;
            {
                const std::lock_guard lock{mutex_};
                each = attic_[at]; // stays there: whoever frees its addresses must find it
            }
            bool passed = true;
            const Status status = each.until != nullptr ? each.until->query(passed) : settle();
            if (note_first(first, status) && passed) {
                const std::size_t bytes = bytes_freed(each.extent);
                if (note_first(first, drop(each.extent))) released_bytes += bytes;
                each.until = nullptr;
            }
            const std::lock_guard lock{mutex_};
            Leftover& entry = attic_[at];
            entry.extent = each.extent;
            entry.until.swap(each.until); // the old mark ends without the mutex
            const bool empty = !each.extent.owns && !each.extent.mapped;
            if (empty && (!entry.owns_addresses || addresses_.give(each.extent.range()))) {
                attic_.erase(attic_.begin() + static_cast<std::ptrdiff_t>(at));
            } else {
                ++at;
            }
        }
        return first;
    }
    struct Held {
        std::size_t bytes = 0; ///< of leftovers and of paused memory
        bool foreign = false;  ///< paused memory still has pages mapped that it has handed over
    };
    /// The caller holds the mutex.
    [[nodiscard]] Held held() const noexcept {
        Held held;
        for (const Leftover& each : attic_) held.bytes += each.extent.owns ? each.extent.bytes : 0;
        for (const auto& memory : memories_) {
            if (memory->state != Memory::State::paused) continue;
            for (const Extent& extent : memory->extents) {
                held.bytes += extent.owns ? extent.bytes : 0;
                held.foreign = held.foreign || (extent.mapped && !extent.owns);
            }
        }
        return held;
    }

    // --- operations: require the turn ---

    /// Calls `act(scratch)` for the scratch memory of each slot that keeps the bytes of these memories.
    void each_scratch(const Vector<Memory*>& memories, FunctionRef<void(DeviceScratch&)> act) const {
        for (std::size_t i = 0; i < memories.size(); ++i) {
            const std::shared_ptr<AnySlot>& slot = slot_of(*memories[i]);
            const auto* const first = first_in(memories, [&](const Memory* each) { return slot_of(*each) == slot; });
            if (const auto scratch = first == &memories[i] && slot ? slot->scratch() : nullptr) act(*scratch);
        }
    }
    /// Returns the i-th memory, or null behind the last. While the turn is held, none is removed and none comes
    /// between.
    [[nodiscard]] Memory* memory(std::size_t i) noexcept {
        const std::lock_guard lock{mutex_};
        return i < memories_.size() ? memories_[i].get() : nullptr;
    }
    /// Returns the memories in a state, merged where possible.
    [[nodiscard]] Vector<Memory*> memories_in(Memory::State state) {
        Vector<Memory*> found;
        const std::lock_guard lock{mutex_};
        merge_memories();
        for (const auto& memory : memories_) {
            if (memory->state == state) found.push_back(memory.get());
        }
        return found;
    }
    /// Releases a slot's scratch memory and adds its size to `released_bytes`.
    static Status release_scratch(const std::shared_ptr<AnySlot>& slot, std::size_t& released_bytes) noexcept {
        const auto scratch = slot ? slot->scratch() : nullptr;
        if (!scratch) return {};
        const std::size_t before = scratch->held_bytes();
        const Status status = scratch->give();
        released_bytes += before - scratch->held_bytes();
        return status;
    }
    /// Returns the parts of a paused memory that a resume leaves out: whole granules in which no block lives, if large
    /// enough to be worth it. The caller holds the mutex.
    [[nodiscard]] std::vector<Range> dead_ranges(Memory& memory) {
        std::vector<Range> free;
        memory.blocks.for_each_free(granularity_, [&](Range range) {
            const Address begin = align_up(range.address, granularity_);
            const Address end = align_down(range.end(), granularity_);
            if (begin < end) free.push_back({begin, end - begin});
        });
        sort_by_address(free);
        std::vector<Range> cuttable; // a fixed handle can only be left out whole
        std::vector<Range> dead;
        for (const Extent& extent : memory.extents) {
            if (extent.owns || extent.mapped) continue; // has pages that could not be released
            if (!extent.fixed) {
                cuttable.push_back(extent.range());
            } else if (covers(free, extent.range())) {
                dead.push_back(extent.range());
            }
        }
        for (const Range& range : worth_cutting(intersection(free, cuttable), memory.bytes())) dead.push_back(range);
        sort_by_address(dead);
        return dead;
    }
    /// Removes paused memory without extents, and adds the slots that keep nothing afterwards to `ended`, which has
    /// capacity for one of each memory. The caller holds the mutex, and passes them to `slot_resumed` without it.
    void remove_empty(Vector<std::shared_ptr<AnySlot>>& ended) noexcept {
        erase_in(memories_, [&](const auto& memory) {
            if (memory->state != Memory::State::paused || !memory->extents.empty()) return false;
            ended.push_back(slot_of(*memory));
            return true;
        });
        erase_in(ended, [&](const auto& slot) { return in_use(slot); });
    }
    /// Drops the dead ranges of all paused memory, so that their addresses can be reused, and ends slots that keep
    /// nothing afterwards. May throw std::bad_alloc; ranges dropped until then stay dropped.
    void drop_dead() {
        Vector<std::shared_ptr<AnySlot>> ended;
        {
            const std::lock_guard lock{mutex_};
            ended.reserve(memories_.size());
            for (const auto& memory : memories_) {
                if (memory->state != Memory::State::paused) continue;
                for (const Range& dead : dead_ranges(*memory)) {
                    Vector<Extent> rest;
                    rest.reserve(memory->extents.size() + 1);
                    for (const Extent& extent : memory->extents) {
                        if (!overlap(extent.range(), dead)) {
                            rest.push_back(extent);
                            continue;
                        }
                        if (extent.address < dead.address)
                            rest.push_back({.address = extent.address, .bytes = dead.address - extent.address});
                        if (extent.end() > dead.end())
                            rest.push_back({.address = dead.end(), .bytes = extent.end() - dead.end()});
                    }
                    reserve_attic(2);
                    memory->blocks.remove(dead); // the last call that may throw
                    extents_ += rest.size();
                    extents_ -= memory->extents.size();
                    memory->extents.swap(rest);
                    if (!addresses_.give(dead))
                        attic_.push_back({{.address = dead.address, .bytes = dead.bytes}, true});
                }
            }
            remove_empty(ended);
        }
        for (const auto& slot : ended) slot_resumed(slot); // none of its bytes are left
    }
    [[nodiscard]] const std::shared_ptr<AnySlot>& slot_of(const Memory& memory) const noexcept {
        return memory.once ? memory.once : own_;
    }
    /// Returns whether a paused memory's bytes are in this slot.
    [[nodiscard]] bool in_use(const std::shared_ptr<AnySlot>& slot) noexcept {
        return any_in(memories_, [&](const auto& memory) {
            return memory->state != Memory::State::active && slot_of(*memory) == slot;
        });
    }
    /// Returns a mark for all work submitted to the device so far. It counts as completed once a fence that begins
    /// later has ended.
    [[nodiscard]] std::shared_ptr<const WorkMark> next_fence();
    /// Returns the live block that contains an address, except what graphs keep.
    [[nodiscard]] std::optional<LiveBlock> block_holding(Address address) {
        const std::lock_guard lock{mutex_};
        for (const auto& memory : memories_) {
            const Block* const block = memory->blocks.holding(address);
            if (block == nullptr || block->state != Block::State::live) continue;
            if (address - block->address >= block->used_bytes()) return {};
            return live_of(*block);
        }
        return {};
    }
    /// A call about bytes of a block.
    class Asked {
    public:
        /// Takes the turn. Throws Misuse after `close`.
        Asked(ArenaCore& core, const char* call, const void* pointer, std::size_t bytes, const std::string& rest = {},
              bool join = false)
            : core_{core}, range_{as_address(pointer), bytes}, call_{text_of({call, "(", in_hex(pointer), ", ",
                                                                              in_bytes(bytes), rest, ")"})} {
            core.require_open_for([&] { return call_; });
            turn_ = core.take_turn({}, call, join);
        }

        [[nodiscard]] Range range() const noexcept { return range_; }
        [[nodiscard]] std::size_t offset_in(const LiveBlock& block) const noexcept {
            return range_.address - block.address;
        }
        [[noreturn]] void refuse(const char* why) const {
            misuse({call_, " in tag ", in_quotes(core_.tag_), ": ", why});
        }
        /// Returns the live block that contains all of the bytes. Throws Misuse if there is none.
        [[nodiscard]] LiveBlock block() const {
            if (range_.bytes == 0) refuse("the size is 0");
            return block(range_.bytes);
        }
        [[nodiscard]] LiveBlock block(std::size_t bytes) const {
            if (!core_.contains(pointer_of(range_.address))) refuse("the address does not belong to this tag");
            const std::optional<LiveBlock> block = core_.block_holding(range_.address);
            if (!block) refuse("no live block contains this address, nor a committed part of an elastic range");
            if (bytes > block->bytes - offset_in(*block)) refuse("it extends past the end of its block");
            return *block;
        }

    private:
        ArenaCore& core_;
        Range range_;
        std::string call_;
        Turn::Hold turn_;
    };
    /// Returns all live blocks of these memories; none may be changed meanwhile.
    [[nodiscard]] std::vector<LiveBlock> live_blocks(const Vector<Memory*>& memories) {
        std::vector<LiveBlock> all;
        const std::lock_guard lock{mutex_};
        for (const Memory* const memory : memories)
            memory->blocks.for_each_saved([&](const Block& block) { all.push_back(live_of(block)); });
        return all;
    }
    /// Returns the description of these memories that is passed to a slot. Must not outlive the arena.
    [[nodiscard]] LiveSet live_set(Vector<Memory*> memories, const char* what) {
        LiveSet live;
        {
            const std::lock_guard lock{mutex_};
            for (const Memory* const memory : memories) {
                for (const Extent& extent : memory->extents) live.extents.push_back(extent.range());
            }
        }
        sort_by_address(live.extents);
        live.blocks = [this, memories = std::move(memories)] { return live_blocks(memories); };
        live.host_budget = options_.host_budget;
        live.tag = tag_;
        if (!options_.events) return live;
        live.progress = [this, what](std::size_t done, std::size_t total) {
            tell(options_.events, EventKind::progress, tag_, device(), {what}, done, total);
        };
        live.tell = [this](const std::string& text) {
            tell(options_.events, EventKind::fell_back, tag_, device(), {text});
        };
        return live;
    }
    /// Waits until the copies of all tickets have ended, and returns their bytes. Throws the error of the first that
    /// failed, naming the tag.
    std::size_t wait_for(Vector<Ticket>& tickets, const char* what) const {
        std::size_t bytes = 0;
        for (Ticket& ticket : tickets) {
            check_moved(ticket.wait(), what, ticket.bytes());
            bytes += ticket.bytes();
        }
        return bytes;
    }
    /// Throws the error of a failed transfer, naming the tag.
    void check_moved(const Status& status, const Attempt& attempt, std::size_t bytes) const {
        if (!status.ok()) raise_of(status, attempt, {"tag ", in_quotes(tag_), ", ", in_bytes(bytes)}, bytes);
    }
    /// Notifies a slot that its restored bytes belong to the program again. Retires it unless it is the tag's own.
    void slot_resumed(const std::shared_ptr<AnySlot>& slot) noexcept {
        const Status status = slot->resumed();
        if (slot == own_) return tell_kept(status);
        retire_slot(slot);
    }

    // --- bytes in flight: arriving.hpp ---

    [[nodiscard]] bool coming_back() noexcept;
    void cancel_arriving() noexcept;
    /// Waits for the bytes in flight, and commits them. Throws NotIdle once the deadline has passed. With `join`, does
    /// not wait for bytes that are being restored.
    void commit_arriving(const Deadline& deadline = {}, bool join = false);
    /// Makes memory whose restore failed paused again: waits for the device, then releases the pages. Returns the bytes
    /// released.
    std::size_t give_up_failed_arrival() noexcept;
    /// As above, and waits for copies of failed operations. Throws DriverError if they cannot be waited for.
    std::size_t recover();

    // --- texts ---

    /// Throws Misuse after `close`, and in a forked child. `what()` returns a text that describes the call.
    void require_open_for(FunctionRef<std::string()> what) const {
        if (fork_check_.forked() || closed_.load()) [[unlikely]]
            refuse_closed(what());
    }
    void refuse_closed(const std::string& wanted) const {
        fork_check_.require_parent(wanted.c_str());
        misuse_of(tag_, {wanted, ": tag ", in_quotes(tag_), closed_.load() ? " has been " : " is being ", end()});
    }
    /// Throws the error of a failing driver call, naming the tag.
    void check_of_tag(const Status& status, const Attempt& attempt) const {
        if (!status.ok()) raise_of(status, attempt, {"tag ", in_quotes(tag_)});
    }
    void emit_ignored(const char* text) const noexcept {
        tell(options_.events, EventKind::ignored, tag_, device(), {text});
    }
    /// Reports what could not be given back.
    void tell_kept(const Status& status,
                   const char* what = "release a backup's storage (the next operation retries)") const noexcept {
        if (status.ok() || status.kind == StatusKind::gone)
            return; // a lost device keeps nothing, so nothing is retried
        tell_ignored(options_.events, tag_, device(), status, what);
    }

    const AnyDriver driver_;
    const std::string tag_;
    const ArenaOptions options_;
    const std::size_t granularity_;
    const AnyPolicy policy_;
    const std::function<void(Range, std::shared_ptr<ArenaCore>)> on_segment_;
    ForkCheck fork_check_;
    Turn turn_;
    Turn growth_;                      // the turn to add pages
    std::atomic<bool> closing_{false}; // `close` waits for the device, or has: no more blocks and pages
    std::atomic<bool> closed_{false};
    std::atomic<bool> unsettled_{false};
    std::atomic<std::size_t> capacity_;
    std::atomic<std::size_t> margin_;
    std::atomic<std::size_t> borrowed_{0};
    std::weak_ptr<const void> published_;
    std::atomic<std::size_t> physical_bytes_{0}; // of all handles
    std::atomic<std::size_t> peak_bytes_{0};
    std::atomic<std::size_t> elastic_bytes_{0};
    std::atomic<std::uint64_t> pauses_{0};
    std::atomic<std::uint64_t> losses_{0}; // the number of the last
    std::uint64_t last_loss_ = 0;          // also of one that was undone; guarded by the turn

    mutable std::mutex mutex_; // guards the members below
    Frees frees_{driver_};
    std::uint64_t last_serial_ = 0; // of a block
    std::size_t extents_ = 0;       // that exist outside of the attic
    Addresses addresses_;
    std::vector<Range> owned_;
    Vector<UniquePtr<Memory>> memories_;
    Vector<Leftover> attic_;
    std::shared_ptr<AnySlot> own_;                     // the tag's slot; null after `close`
    const std::shared_ptr<DeviceScratch> own_scratch_; // for readers without a lock
    std::shared_ptr<Arriving> arriving_;               // changed with the turn held, too

    Attic spent_;      // slots
    ArenaGates gates_; // guarded by the turn
};

} // namespace memsaver::inline v0_3::detail
