// Definitions of arena_core.hpp.
#pragma once

#include "memsaver/arena/arena_core.hpp"
#include "memsaver/backup/discard.hpp"
#include "memsaver/backup/policy_options.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {

MEMSAVER_INLINE Turn::Hold::~Hold() {
    if (turn_ == nullptr) return;
    const std::lock_guard lock{turn_->mutex_};
    turn_->taken_ = false;
    turn_->ended_ += 1;
    turn_->freed_.notify_all(); // under the lock: the turn may be destroyed as soon as it is free
}

MEMSAVER_INLINE Turn::Hold Turn::take(const Deadline& deadline, const std::string& tag) {
    std::unique_lock lock{mutex_};
    const auto free = [&] { return !taken_; };
    if (!deadline) {
        freed_.wait(lock, free);
    } else if (!freed_.wait_until(lock, *deadline, free)) {
        throw NotIdle{"tag \"" + tag +
                      "\": the timeout expired while another operation on it was running; nothing has changed"};
    }
    taken_ = true;
    owner_ = ThreadMark::here_if_possible();
    return Hold{*this};
}

MEMSAVER_INLINE std::optional<Turn::Hold> Turn::try_take() {
    const std::lock_guard lock{mutex_};
    if (taken_) return {};
    taken_ = true;
    owner_ = ThreadMark::here_if_possible();
    return std::optional<Hold>{std::in_place, *this};
}

MEMSAVER_INLINE bool Turn::wait_for_others() {
    std::unique_lock lock{mutex_};
    if (!taken_ || owner_.is_here()) return false;
    const std::uint64_t seen = ended_; // not for a free turn: another thread may take it immediately
    freed_.wait(lock, [&] { return ended_ != seen; });
    return true;
}

MEMSAVER_INLINE Address as_address(const void* pointer) noexcept { return reinterpret_cast<Address>(pointer); }

MEMSAVER_INLINE void* pointer_of(Address address) noexcept {
    return reinterpret_cast<void*>(address); // NOLINT(performance-no-int-to-ptr): device addresses are numbers
}

/// Addresses reserved up front, for an owner that maps memory at some of them. That memory is live blocks in extents of
/// the arena, so pause, resume, trim, policies and usage treat it like any other.
class ArenaCore::Reserved {
public:
    /// `bytes`: a multiple of the page size. `step`: see OwnedRanges. Throws the error of a failing driver call.
    Reserved(ArenaCore& core, std::size_t bytes, std::size_t step);

    [[nodiscard]] Range range() const noexcept { return range_; }
    /// Maps active memory: each range becomes one live block in one extent or more. `what`: the text for errors. Strong
    /// exception guarantee. Requires `growing_`.
    void take(const std::vector<Range>& blocks, const char* what);
    /// Ends the range. `blocks` (sorted) have been deallocated; all other addresses go back to the segment, those of
    /// pages that could not be released yet together with these pages.
    void free_addresses(const std::vector<Range>& blocks) noexcept;

private:
    ArenaCore& core_;
    Range range_;
};

/// A growing block. Each growth is one live block.
class ArenaCore::Growing final : public GrowingBlock {
public:
    /// Throws the error of a failing driver call.
    Growing(ArenaCore& core, std::size_t cap);
    MEMSAVER_INLINE ~Growing() override;

    MEMSAVER_INLINE void grow(std::size_t bytes) override;
    [[nodiscard]] bool grows_once() const noexcept override { return core_.options().single_handle; }

private:
    /// Retries the release of pages that an earlier, failed growth left mapped here.
    void clear_the_way(Range more);
    [[noreturn]] void refuse(std::size_t bytes, const std::string& why) const;

    ArenaCore& core_;
    Reserved addresses_;
    std::vector<Range> parts_; // one for each growth
};

/// An elastic range. Each step is one live block, behind handles of its own. The methods that change it take the turn.
class ArenaCore::ElasticPages final : public ElasticRange {
public:
    ElasticPages(ArenaCore& core, std::size_t bytes, std::size_t step);
    MEMSAVER_INLINE ~ElasticPages() override;

    MEMSAVER_INLINE void commit(std::size_t offset, std::size_t bytes) override;
    MEMSAVER_INLINE void release(std::size_t offset, std::size_t bytes, FreeOrder order) override;
    MEMSAVER_INLINE bool grow(std::size_t bytes) override;
    MEMSAVER_INLINE void shrink(std::size_t bytes, FreeOrder order) override;
    [[nodiscard]] MEMSAVER_INLINE std::size_t physical_bytes() const noexcept override;
    MEMSAVER_INLINE void collect() noexcept override;

private:
    /// Takes the turn, and makes memory whose restore failed paused again.
    Turn::Hold begin(const char* what);
    void commit(Range part);
    /// Adds memory for steps that have none. `room`: set once a failure may be due to lack of memory.
    void take(const std::vector<Range>& missing, bool& room);
    /// Releases pages that earlier calls left mapped in these ranges, after waiting for the work that they depend on.
    void clear_the_way(const std::vector<Range>& missing);
    void give(const std::vector<Range>& going, const FreeOrder& order);
    /// Releases the memory of all steps instead of leaving it to the arena, where a block could span several of its
    /// handles. If that fails, for example for lack of host memory, the memory stays where it is until the arena
    /// closes.
    bool give_all() noexcept;

    ArenaCore& core_;
    Reserved addresses_;
};

MEMSAVER_INLINE ArenaCore::ArenaCore(AnyDriver driver, std::string tag, AnyPolicy policy, ArenaOptions options,
                                     std::function<void(Range)> on_segment)
    : policy_{std::move(policy)}, pages_{std::move(driver), std::move(tag), std::move(options),
                                         [this, told = std::move(on_segment)](Range segment) {
                                             if (told) told(segment);
                                             heaps_.add_segment(segment);
                                         }},
      heaps_{pages_.driver(), pages_.granularity()}, own_{policy_.open(pages_.driver())}, gates_{pages_.driver()} {
    const std::size_t capacity = pages_.capacity();
    if (!can_align_up(pages_.options().capacity, pages_.granularity()) ||
        !can_align_up(pages_.options().reserve, pages_.granularity())) {
        throw Misuse{"tag \"" + this->tag() + "\": a capacity of " + format_bytes(pages_.options().capacity) +
                     " or a reserve of " + format_bytes(pages_.options().reserve) + " is too large"};
    }
    if (capacity != 0 && pages_.options().reserve > capacity) {
        throw Misuse{"tag \"" + this->tag() + "\": a reserve of " + format_bytes(pages_.options().reserve) +
                     " is more than the capacity of " + format_bytes(capacity)};
    }
}

MEMSAVER_INLINE ArenaCore::~ArenaCore() {
    try {
        close();
    } catch (const std::exception& error) {
        emit_ignored(error.what());
    }
}

// --- allocation ---

MEMSAVER_INLINE void* ArenaCore::allocate(const Request& request) {
    return pointer_of(take_block(check_request(request), request));
}

MEMSAVER_INLINE std::size_t ArenaCore::check_request(const Request& request) const {
    request.check(tag());
    const auto refuse = [&](const std::string& why) {
        throw Misuse{request.text() + " in tag \"" + tag() + "\": " + why};
    };
    if (request.alignment > 1_GiB)
        refuse("the alignment of " + format_bytes(request.alignment) + " is more than 1 GiB");
    const std::size_t capacity = pages_.capacity();
    if (capacity != 0 && request.bytes > capacity) {
        refuse("more than the tag's capacity of " + format_bytes(capacity));
    }
    if (request.bytes > std::numeric_limits<std::size_t>::max() / 2) refuse("the size exceeds any address space");
    return align_up(request.bytes, BlockAllocator::unit);
}

MEMSAVER_INLINE Address ArenaCore::take_block(std::size_t size, const Request& request) {
    const auto take = [&] { return heaps_.allocate(size, request.alignment, request.bytes, request.stream); };
    int reclaims = 0;            // limited, because other threads may keep taking what this one reclaims
    int waits = gentle_reclaims; // for operations of other threads
    bool nothing = false;        // the last reclaim found nothing
    for (bool waited = false, settled = false;;) {
        require_open_for([&] { return request.text(); });
        const std::uint64_t seen = growths_.load();
        const std::uint64_t passed = heaps_.fences().last_done();
        if (const Address address = take()) return address;
        if (request.stream) {
            const Address freed =
                heaps_.reuse_from_other_threads(size, request.alignment, request.bytes, *request.stream);
            if (freed != 0) return freed;
        }
        // Other threads may take the memory that this one waited for. So it waits only once to avoid growth, or it
        // might never be served. It waits again only if a shard allocates nothing because too much memory waits in it.
        const std::size_t step = growth_step(pages_.physical_bytes(), pages_.granularity());
        if (heaps_.fence_is_worth_it(size, request.alignment, waited ? ~std::size_t{0} : step)) {
            waited = true;
            const bool all = heaps_.fence_for(size, request.alignment);
            if (const Address address = take()) return address; // its own shard may suffice: no need to stop others
            if (!all) heaps_.fence();
            heaps_.settle();
            continue;
        }
        if (!settled) { // first take back what other threads' shards have to spare
            settled = true;
            heaps_.settle();
            continue;
        }
        try {
            grow(seen, size, request.alignment);
        } catch (const Error& error) {
            const Status status = error.status();
            if (reclaims == most_reclaims || status.kind == StatusKind::gone) throw;
            // Memory that was waiting may have become free through another thread's wait.
            const bool found = reclaim_own(reclaims < gentle_reclaims, waits) || heaps_.fences().last_done() != passed;
            const bool no_room = status.ok() || status.kind == StatusKind::out_of_memory;
            if (!found && (nothing || !no_room)) throw;
            nothing = !found;
            settled = false;
            reclaims += 1;
        }
    }
}

MEMSAVER_INLINE bool ArenaCore::reclaim_own(bool gentle, int& waits) {
    const bool any = anything_waits();
    if (any) {
        heaps_.fence();
        heaps_.settle();
        if (gentle) return true; // the freed memory may be enough; keep the pages
    }
    const auto turn = try_turn();
    if (!turn) return (waits-- > 0 && wait_for_others()) || any; // that operation may hold the missing memory
    return trim_now(*this) != 0 || any;
}

MEMSAVER_INLINE void ArenaCore::check_capacity(std::size_t more) const {
    const std::size_t capacity = pages_.capacity();
    const std::size_t owned = pages_.physical_bytes();
    if (capacity == 0 || (owned <= capacity && more <= capacity - owned)) return;
    throw Misuse{"tag \"" + tag() + "\": " + format_bytes(more) + " more would exceed its capacity of " +
                 format_bytes(capacity)};
}

MEMSAVER_INLINE void ArenaCore::grow(std::uint64_t seen, std::size_t bytes, std::size_t alignment) {
    const std::lock_guard lock{growing_};
    require_open_for([&] { return "allocate " + format_bytes(bytes); });
    if (growths_.load() != seen) return;
    const std::size_t needed = align_up(bytes, pages_.granularity());
    check_capacity(needed);
    std::size_t step = std::max(needed, growth_step(pages_.physical_bytes(), pages_.granularity()));
    if (pages_.capacity() != 0) step = std::min(step, std::max(needed, pages_.capacity() - pages_.physical_bytes()));
    step = align_down(step, pages_.granularity());
    DeviceMemory memory;
    if (needed > 1_GiB && driver().memory(memory).ok() && needed > memory.total_bytes) { // no reservation could succeed
        pages_.raise_no_room({StatusKind::out_of_memory, 0, "more than the device's total memory"},
                             "allocate device memory", needed);
    }
    const auto offer = [&](Range range) { heaps_.add(range); };
    Range range = pages_.take_addresses(step, alignment);
    Status status = pages_.grow_into(range, offer);
    if (status.kind == StatusKind::out_of_memory && range.bytes != needed) {
        range = pages_.take_addresses(needed, alignment);
        status = pages_.grow_into(range, offer);
    }
    if (!status.ok()) pages_.raise_no_room(status, "allocate device memory", needed);
    growths_ += 1;
}

MEMSAVER_INLINE void ArenaCore::deallocate(void* pointer, const FreeOrder& order) {
    if (pointer == nullptr) return;
    const Address address = as_address(pointer);
    require_open_for([&] { return "deallocate(" + format_address(address) + ')'; });
    if (owned_ranges_.hold(address)) {
        throw Misuse{"deallocate(" + format_address(address) + ") in tag \"" + tag() +
                     "\": it is in a growing block, such as a workspace, or in an elastic range; only its owner can "
                     "free it"};
    }
    const AnySlot* told = nullptr;
    std::uint64_t forgotten = 0;
    const bool was_shut = heaps_.deallocate(address, order, tag(), [&](std::uint64_t serial) {
        if (own_) own_->forget(serial);
        told = own_.get();
        forgotten = serial;
    });
    if (was_shut) pages_.forget_block(forgotten, told);
}

MEMSAVER_INLINE void ArenaCore::deallocate_quietly(void* pointer, const FreeOrder& order) noexcept {
    if (closed_.load() || forked()) return;
    try {
        deallocate(pointer, order);
    } catch (const std::exception& error) {
        emit_ignored(error.what());
    }
}

MEMSAVER_INLINE void ArenaCore::let_go(std::uint64_t graph) noexcept {
    std::array<std::uint64_t, 64> serials{};
    for (std::size_t count = serials.size(); count == serials.size();) {
        std::size_t next = 0;
        const AnySlot* told = nullptr;
        count = heaps_.end_graph(graph, serials.size(), [&](std::uint64_t serial) {
            told = own_.get(); // changes only under the heaps' locks
            if (own_) own_->forget(serial);
            serials[next++] = serial;
        });
        for (std::size_t i = 0; i < count; ++i) pages_.forget_block(serials[i], told);
    }
}

MEMSAVER_INLINE void ArenaCore::zero(void* pointer, std::size_t bytes, StreamRef stream) {
    const Range range{as_address(pointer), bytes};
    require_open_for([&] { return "zero " + format_bytes(bytes) + " at " + format_address(range.address); });
    if (any_paused(range)) (void)finish_arriving();
    if (any_paused(range)) {
        throw Misuse{format_bytes(bytes) + " at " + format_address(range.address) + " in tag \"" + tag() +
                     "\" cannot be zeroed: the memory is paused; resume it first"};
    }
    check(driver().fill(range.address, 0, bytes, stream), "zero memory", bytes, range.address);
}

// --- queries ---

MEMSAVER_INLINE bool ArenaCore::contains(const void* pointer) const noexcept {
    return heaps_.contains(as_address(pointer));
}

MEMSAVER_INLINE bool ArenaCore::holds(const void* pointer, std::size_t bytes) {
    const Range range{as_address(pointer), bytes};
    return !closed_.load() && contains(pointer) && range.end() >= range.address && heaps_.holds(range);
}

MEMSAVER_INLINE bool ArenaCore::here(const void* pointer, std::size_t bytes) {
    return holds(pointer, bytes) && !any_paused({as_address(pointer), bytes});
}

MEMSAVER_INLINE ArenaUsage ArenaCore::usage() {
    fork_check_.require_parent("usage");
    const auto sums = heaps_.sums();
    const bool arriving = coming_back();
    ArenaUsage row;
    row.tag = tag();
    row.device = device();
    row.policy = policy_.name();
    if (!closed_.load()) { // `close` does not clear these counts
        row.used_bytes = sums.live_bytes;
        row.blocks = sums.live_blocks;
        row.elastic_bytes = elastic_bytes.load();
    }
    const std::lock_guard lock{pages_.mutex};
    row.reserved_bytes = pages_.reserved_bytes();
    row.mapped_bytes = mapped_bytes();
    each_paused_scratch([&](const DeviceScratch& scratch) {
        if (&scratch != own_scratch_.get()) row.mapped_bytes += scratch.held_bytes();
    });
    for (const auto& held : pages_.held) row.held_bytes += held.extent.physical_bytes();
    row.backed_up_bytes = own_ ? own_->backed_up_bytes() : 0;
    for (const auto& batch : pages_.paused) {
        for (const Range& range : batch.ranges) row.paused_bytes += range.bytes;
        if (batch.slot != own_) row.backed_up_bytes += batch.slot->backed_up_bytes();
    }
    const bool some_active = pages_.physical_bytes() > row.held_bytes;
    row.peak_mapped_bytes = std::max(pages_.peak_bytes(), row.mapped_bytes);
    row.pauses = pauses_.load();
    if (arriving) row.paused_bytes = 0;
    row.state = closed_.load()          ? end()
                : arriving              ? "arriving"
                : row.paused_bytes == 0 ? (some_active ? "active" : "empty")
                                        : (some_active ? "partly paused" : "paused");
    return row;
}

MEMSAVER_INLINE void ArenaCore::require_open(const char* what) const {
    require_open_for([&] { return std::string{what}; });
}

MEMSAVER_INLINE void ArenaCore::require_resumed(const char* what, StreamRef stream) {
    require_open(what);
    if (follow_arriving(stream, what)) return;
    const std::lock_guard lock{pages_.mutex};
    if (pages_.paused.empty() && !pausing_) return;
    throw Misuse{std::string{what} + ": tag \"" + tag() + "\" is " +
                 (pages_.active.empty() ? "paused" : "partly paused") + "; resume it first"};
}

MEMSAVER_INLINE bool ArenaCore::nothing_paused() noexcept {
    const std::lock_guard lock{pages_.mutex};
    return pages_.paused.empty() && pages_.held.empty() && !pausing_ && spent_.empty();
}

MEMSAVER_INLINE bool ArenaCore::all_resident() noexcept {
    const std::lock_guard lock{pages_.mutex};
    return pages_.paused.empty() && !pausing_;
}

MEMSAVER_INLINE bool ArenaCore::any_resident() noexcept {
    const std::lock_guard lock{pages_.mutex};
    return !pages_.active.empty() || pausing_;
}

MEMSAVER_INLINE Turn::Hold ArenaCore::take_turn(const Deadline& deadline, const char* what, bool join) {
    fork_check_.require_parent(what); // before any lock: a forked child may find it locked forever
    auto hold = turn_.take(deadline, tag());
    require_open(what);
    commit_arriving(deadline, join);
    (void)spent_.retry();
    return hold;
}

MEMSAVER_INLINE BackupView ArenaCore::backup_view(const void* pointer, std::size_t bytes) {
    const auto text = [&] {
        return "backup_view(" + format_address(as_address(pointer)) + ", " + format_bytes(bytes) + ')';
    };
    require_open_for(text);
    const auto turn = take_turn({}, "backup_view");
    const auto refusal = [&](const char* why) { return Misuse{text() + " in tag \"" + tag() + "\": " + why}; };
    if (!contains(pointer)) throw refusal("the address does not belong to this tag");
    const std::optional<LiveBlock> block = heaps_.block_holding(as_address(pointer));
    if (!block) throw refusal("no live block contains this address, nor a committed part of an elastic range");
    const std::size_t offset = as_address(pointer) - block->address;
    if (bytes > block->bytes - offset) throw refusal("it extends past the end of its block");
    const Range range{as_address(pointer), std::max<std::size_t>(bytes, 1)};
    std::shared_ptr<AnySlot> slot;
    std::size_t away = 0;
    for (const auto& batch : pages_.paused) { // no lock: the turn is held
        for (const Range& part : intersection(batch.ranges, {range})) {
            if (slot != nullptr && slot != batch.slot)
                throw refusal("several pauses saved parts of it; view each part separately");
            slot = batch.slot;
            away += part.bytes;
        }
    }
    if (slot != nullptr && slot != own_ && away != range.bytes)
        throw refusal("part of it is not paused; view only the paused part");
    if (slot == nullptr) slot = own_;
    try {
        BackupView view = slot->view(block->serial, offset, std::max<std::size_t>(bytes, 1)); // no store maps 0 bytes
        view.size_bytes = bytes;
        return view;
    } catch (const Misuse& error) {
        throw refusal(error.what());
    }
}

MEMSAVER_INLINE void ArenaCore::write_backup(void* pointer, const void* from, std::size_t bytes) {
    const Range range{as_address(pointer), bytes};
    const auto text = [&] {
        return "write_backup(" + format_address(range.address) + ", " + format_bytes(bytes) + ')';
    };
    require_open_for(text);
    const auto turn = take_turn({}, "write_backup");
    const auto refusal = [&](const char* why) { return Misuse{text() + " in tag \"" + tag() + "\": " + why}; };
    if (bytes == 0) throw refusal("the size is 0");
    if (from == nullptr) throw refusal("the source pointer is null");
    const LiveBlock block = block_of(range, refusal);
    if (!covers(pages_.paused_ranges(), range)) throw refusal("it is not paused; write to the memory directly");
    const auto* const bytes_at = static_cast<const std::byte*>(from);
    // Slots that may refuse come first, before anything changes.
    for (const bool own : {!policy_.keeps_bytes(), policy_.keeps_bytes()}) {
        for (const auto& batch : pages_.paused) { // no lock: the turn is held
            if ((batch.slot == own_) != own) continue;
            for (const Range& part : intersection(batch.ranges, {range})) {
                try {
                    batch.slot->write(block, part.address - block.address, bytes_at + (part.address - range.address),
                                      part.bytes);
                } catch (const Misuse& error) {
                    throw refusal(error.what());
                }
            }
        }
    }
}

MEMSAVER_INLINE void ArenaCore::load(void* pointer, const FileRange& given, AnyPolicy (*)()) {
    const FileRange from{absolute_path(given.path), given.offset, given.bytes}; // later resumes read it again
    const Range range{as_address(pointer), from.bytes};
    const auto text = [&] {
        return "load(" + format_address(range.address) + ", " + format_bytes(range.bytes) + ", \"" + from.path +
               "\", " + std::to_string(from.offset) + ')';
    };
    require_open_for(text);
    const auto turn = take_turn({}, "load");
    const auto refusal = [&](const char* why) { return Misuse{text() + " in tag \"" + tag() + "\": " + why}; };
    const LiveBlock block = block_of(range, refusal);
    if (any_paused({block.address, block.bytes}))
        throw refusal("its block is paused or partly paused; resume the tag first");
    try {
        const LiveSet live = live_set({{block.address, block.bytes}}, "loading");
        if (own_->load(block, range.address - block.address, from, live)) return;
    } catch (const Misuse& error) {
        throw refusal(error.what());
    } catch (...) {
        pages_.unsettle(); // its copies may still be in flight
        throw;
    }
    throw refusal(("its policy is \"" + std::string{policy_.name()} + "\", not FileSource").c_str());
}

MEMSAVER_INLINE void ArenaCore::invalidate(const void* pointer, std::size_t bytes) {
    const Range range{as_address(pointer), bytes};
    const auto text = [&] {
        return "invalidate(" + format_address(range.address) + ", " + format_bytes(range.bytes) + ')';
    };
    require_open_for(text);
    const auto turn = take_turn({}, "invalidate");
    const auto refusal = [&](const char* why) { return Misuse{text() + " in tag \"" + tag() + "\": " + why}; };
    const LiveBlock block = block_of(range, refusal);
    if (!policy_.keeps_bytes()) throw refusal("its policy keeps no bytes");
    own_->invalidate(block, range.address - block.address, bytes);
}

MEMSAVER_INLINE void ArenaCore::close(FunctionRef<void()> closing) {
    fork_check_.require_parent("close");
    cancel_arriving();
    const auto turn = turn_.take();
    commit_arriving();
    give_up_failed_arrival();
    const std::lock_guard growing{growing_};
    if (!closed_.exchange(true)) {
        const Status drained = driver().drain(); // work may still use the memory
        if (!drained.ok() && drained.kind != StatusKind::gone) {
            closed_.store(false);
            check_of_tag(drained, "wait for the device before closing an arena");
        }
    }
    closing();
    const Status kept = close_slots();
    const Status gates = gates_.close();
    check_of_tag(pages_.close(), "release an arena's memory");
    if (gates.kind != StatusKind::gone) check_of_tag(gates, "release the resources of gates");
    check_of_tag(kept, "release a backup's storage");
}

MEMSAVER_INLINE void ArenaCore::forget_backup(FunctionRef<void()> dropping) {
    const auto turn = take_turn({}, "forget_backup");
    const std::shared_ptr<AnySlot> nothing{AnyPolicy{Discard{}}.open(driver())};
    const std::vector<LiveBlock> blocks = heaps_.live_blocks(pages_.paused_ranges());
    std::vector<std::shared_ptr<AnySlot>> old;
    old.reserve(pages_.paused.size());
    {
        const std::lock_guard lock{pages_.mutex};
        for (auto& batch : pages_.paused) old.push_back(std::exchange(batch.slot, nothing));
    }
    if (old.empty()) return;
    dropping();
    for (const LiveBlock& block : blocks) own_->forget(block.serial);
    tell_kept(own_->resumed());
    for (std::shared_ptr<AnySlot>& slot : old) retire_slot(std::move(slot));
}

MEMSAVER_INLINE void ArenaCore::set_retain(bool yes) {
    const auto turn = take_turn({}, "set_retain");
    if (own_->set_retain(yes)) return;
    throw Misuse{"set_retain: the policy \"" + std::string{policy_.name()} + "\" of tag \"" + tag() +
                 "\" has no retain option"};
}

// --- texts ---

MEMSAVER_INLINE void ArenaCore::emit_ignored(const char* text) const noexcept {
    emit(options().events, [&] { return event(EventKind::ignored, text); });
}

MEMSAVER_INLINE void ArenaCore::tell_kept(const Status& status) const noexcept {
    if (status.ok() || status.kind == StatusKind::gone) return;
    emit(options().events, [&] {
        return event(EventKind::ignored,
                     failure_text(status, "release a backup's storage (the next operation retries)"));
    });
}

MEMSAVER_INLINE void ArenaCore::drop_dead(const std::vector<Range>& dead) {
    const std::vector<std::shared_ptr<AnySlot>> slots = slots_in_use();
    for (const Range& range : dead) {
        pages_.forget_paused(range, [&] { return heaps_.remove_if_free(range, Side::shut); });
    }
    end_slots(slots);
}

MEMSAVER_INLINE std::vector<std::shared_ptr<AnySlot>> ArenaCore::slots_in_use() {
    std::vector<std::shared_ptr<AnySlot>> slots;
    for (const auto& batch : pages_.paused) {
        if (std::find(slots.begin(), slots.end(), batch.slot) == slots.end()) slots.push_back(batch.slot);
    }
    return slots;
}

MEMSAVER_INLINE void ArenaCore::end_slots(const std::vector<std::shared_ptr<AnySlot>>& slots) noexcept {
    for (const std::shared_ptr<AnySlot>& slot : slots) {
        const bool away = std::any_of(pages_.paused.begin(), pages_.paused.end(),
                                      [&](const auto& batch) { return batch.slot == slot; });
        if (!away) slot_resumed(slot); // none of its bytes are left
    }
}

MEMSAVER_INLINE void ArenaCore::drop_all_dead() {
    if (pages_.paused.empty() || arriving_ != nullptr) return; // memory whose restore failed has pages there
    drop_dead(without(dead_ranges(pages_.paused_ranges()), pages_.mapped_and_held()));
}

MEMSAVER_INLINE void ArenaCore::slot_resumed(const std::shared_ptr<AnySlot>& slot) noexcept {
    const Status status = slot->resumed();
    if (slot == own_) return tell_kept(status);
    retire_slot(slot);
}

MEMSAVER_INLINE void ArenaCore::retire_slot(std::shared_ptr<AnySlot> slot) noexcept {
    if (slot && slot != own_) tell_kept(spent_.add(std::move(slot)));
}

MEMSAVER_INLINE Status ArenaCore::close_slots() noexcept {
    std::vector<ArenaPages::Batch> paused;
    std::shared_ptr<AnySlot> last;
    {
        const std::lock_guard lock{pages_.mutex};
        paused.swap(pages_.paused);
        heaps_.close([&] { last.swap(own_); });
    }
    Status first;
    const auto note = [&](const Status& status) {
        if (first.ok() && status.kind != StatusKind::gone) first = status;
    };
    note(spent_.retry());
    for (auto& batch : paused) {
        if (batch.slot != last) note(spent_.add(std::move(batch.slot)));
    }
    if (last) note(spent_.add(std::move(last)));
    return first;
}

// --- operations ---

MEMSAVER_INLINE void ArenaCore::reserve() {
    while (!reserved_.load()) { // repeat: other threads may grow or trim concurrently
        const std::uint64_t seen = growths_.load();
        const std::size_t owned = pages_.physical_bytes();
        if (owned < pages_.options().reserve) grow(seen, pages_.options().reserve - owned, pages_.granularity());
        if (pages_.physical_bytes() >= pages_.options().reserve) reserved_.store(true);
    }
}

MEMSAVER_INLINE std::size_t ArenaCore::held_bytes() {
    const std::lock_guard lock{pages_.mutex};
    std::size_t sum = 0;
    for (const auto& kept : pages_.held) sum += kept.extent.physical_bytes();
    return sum;
}

MEMSAVER_INLINE Status ArenaCore::release_scratch(const std::shared_ptr<AnySlot>& slot,
                                                  std::size_t& released_bytes) noexcept {
    const auto scratch = slot ? slot->scratch() : nullptr;
    if (!scratch) return {};
    const std::size_t before = scratch->held_bytes();
    const Status status = scratch->give();
    released_bytes += before - scratch->held_bytes();
    return status;
}

MEMSAVER_INLINE Status ArenaCore::retry_held(std::size_t& released_bytes) {
    const std::size_t before = held_bytes();
    const Status status = pages_.retry_held();
    const std::size_t after = held_bytes(); // growth may have added held extents
    released_bytes += before - std::min(before, after);
    return status;
}

MEMSAVER_INLINE Status ArenaCore::collect_released(std::size_t& released_bytes) noexcept {
    if (!pages_.anything_waits()) return {};
    try {
        return retry_held(released_bytes);
    } catch (const std::bad_alloc&) {
        return {StatusKind::out_of_host_memory, 0, "no host memory to record free addresses"};
    }
}

MEMSAVER_INLINE std::vector<Range> ArenaCore::dead_ranges(const std::vector<Range>& paused) {
    std::vector<Range> dead;
    std::size_t total = 0;
    for (const Range& range : paused) total += range.bytes;
    for (const Range& free : heaps_.free_ranges(pages_.granularity(), Side::shut)) {
        const Address begin = align_up(free.address, pages_.granularity());
        const Address end = align_down(free.end(), pages_.granularity());
        if (begin < end) dead.push_back({begin, end - begin});
    }
    sort_by_address(dead);
    if (options().single_handle) { // only whole handles can be left out
        std::vector<Range> whole;
        for (const Range& range : paused) {
            if (covers(dead, range)) whole.push_back(range);
        }
        return whole;
    }
    dead = worth_cutting(intersection(dead, paused), total);
    sort_by_address(dead);
    return dead;
}

MEMSAVER_INLINE std::vector<Range> ArenaCore::ranges_to_resume() {
    const std::vector<Range> paused = pages_.paused_ranges();
    return without(paused, dead_ranges(paused));
}

MEMSAVER_INLINE void ArenaCore::open_all() noexcept {
    const std::vector<Range> none;
    try {
        heaps_.end_operation(&none, [](Range) { return false; });
        unfinished_ = false;
    } catch (const std::bad_alloc&) { // opening everything needs no memory
    }
}

MEMSAVER_INLINE void ArenaCore::end_operation(bool shut_stays) noexcept {
    try {
        const std::vector<Range> paused = pages_.paused_ranges();
        const auto passed = [&](Range block) { return covers(paused, block); };
        heaps_.end_operation(shut_stays && !unfinished_ ? nullptr : &paused, passed);
        unfinished_ = false;
    } catch (const std::bad_alloc&) { // open memory stays shut until the next operation ends
        unfinished_ = true;
        emit_ignored("no host memory to reopen memory for allocations");
    }
}

MEMSAVER_INLINE void ArenaCore::check_of_tag(const Status& status, const Attempt& attempt) const {
    if (!status.ok()) raise(status, attempt, "tag \"" + pages_.tag() + '"');
}

MEMSAVER_INLINE bool ArenaCore::any_paused(Range range) {
    const std::lock_guard lock{pages_.mutex};
    for (const auto& batch : pages_.paused) {
        for (const Range& away : batch.ranges) {
            if (overlap(away, range)) return true;
        }
    }
    if (!pausing_) return false;
    std::size_t here = 0; // bytes of the range that were added since the pause began
    for (const Extent& extent : pages_.active) {
        const Address begin = std::max(extent.address(), range.address);
        const Address end = std::min(extent.end(), range.end());
        if (begin < end) here += end - begin;
    }
    return here != range.bytes;
}

// --- slots ---

MEMSAVER_INLINE LiveSet ArenaCore::live_set(std::vector<Range> ranges, const char* what) {
    LiveSet live;
    live.extents = ranges;
    live.blocks = [this, ranges] { return heaps_.live_blocks(ranges); };
    live.host_budget = pages_.options().host_budget;
    live.tag = pages_.tag();
    if (!pages_.options().events) return live;
    live.progress = [this, what](std::size_t done, std::size_t total) {
        emit(pages_.options().events, [&] { return event(EventKind::progress, what, done, total); });
    };
    live.tell = [this](const std::string& text) {
        emit(pages_.options().events, [&] { return event(EventKind::fell_back, text); });
    };
    return live;
}

MEMSAVER_INLINE void ArenaCore::check_moved(const Status& status, const Attempt& attempt, std::size_t bytes) const {
    if (!status.ok()) raise(status, attempt, "tag \"" + pages_.tag() + "\", " + format_bytes(bytes), bytes);
}

MEMSAVER_INLINE Event ArenaCore::event(EventKind kind, std::string text, std::size_t done, std::size_t total) const {
    return {kind, pages_.tag(), pages_.driver().device(), std::move(text), done, total};
}

MEMSAVER_INLINE bool ArenaCore::owns_stream(StreamRef stream) const {
    bool yes = true;
    const Status status = driver().owns_stream(stream, yes);
    if (status.kind != StatusKind::unsupported) check(status, "query the owner of a stream");
    return yes;
}

MEMSAVER_INLINE std::optional<Turn::Hold> ArenaCore::try_turn() {
    if (closed_.load() || forked()) return {};
    auto hold = turn_.try_take();
    if (hold && !try_settle_arriving()) hold.reset();
    return hold;
}

MEMSAVER_INLINE std::size_t ArenaCore::release_unused(bool wait) noexcept {
    try {
        if (idle_for_pause()) return 0;
        const auto turn = try_turn();
        if (!turn) return 0;
        return trim_now(*this, wait);
    } catch (const std::exception&) {
        return 0; // what could not be released stays; the arena's own operations report why
    }
}

MEMSAVER_INLINE std::size_t ArenaCore::bytes_to_resume() {
    std::size_t bytes = 0;
    if (coming_back()) return 0; // its pages are already there
    for (const Range& range : ranges_to_resume()) bytes += range.bytes;
    const std::lock_guard lock{pages_.mutex};
    if (bytes != 0) each_paused_scratch([&](const DeviceScratch& scratch) { bytes += scratch.wanted_bytes(); });
    return bytes;
}

MEMSAVER_INLINE void ArenaCore::prepare() {
    const auto turn = take_turn({}, "prepare");
    std::vector<Range> ranges;
    {
        const std::lock_guard lock{pages_.mutex};
        for (const auto& extent : pages_.active) ranges.push_back({extent.address(), extent.bytes()});
    }
    sort_by_address(ranges);
    own_->prepare(live_set(std::move(ranges), "preparing"));
}

MEMSAVER_INLINE void ArenaCore::invalidate() {
    const auto turn = take_turn({}, "invalidate");
    own_->invalidate();
}

// --- addresses reserved up front ---

MEMSAVER_INLINE ArenaCore::Reserved::Reserved(ArenaCore& core, std::size_t bytes, std::size_t step) : core_{core} {
    const std::lock_guard lock{core_.growing_};
    core_.require_open_for([&] { return "reserve addresses for " + format_bytes(bytes); });
    range_ = core_.pages_.take_addresses(bytes, core_.pages_.granularity());
    try {
        core_.owned_ranges_.add(range_, step);
    } catch (...) {
        core_.pages_.free_addresses(range_);
        throw;
    }
}

MEMSAVER_INLINE void ArenaCore::Reserved::take(const std::vector<Range>& blocks, const char* what) {
    ArenaPages& pages = core_.pages_;
    std::vector<Extent> extents = pages.plan(blocks);
    Status status = pages.create_all(extents);
    for (std::size_t i = 0; status.ok() && i < extents.size(); ++i) status = extents[i].map(pages.driver());
    if (!status.ok()) {
        std::size_t needed = 0;
        for (const Range& block : blocks) needed += block.bytes;
        pages.abandon(extents, false);
        pages.raise_no_room(status, what, needed);
    }
    try {
        core_.heaps_.add_live(blocks);
    } catch (const std::bad_alloc&) {
        pages.abandon(extents, false);
        throw;
    }
    const std::lock_guard lock{pages.mutex};
    pages.activate(extents);
}

MEMSAVER_INLINE void ArenaCore::Reserved::free_addresses(const std::vector<Range>& blocks) noexcept {
    ArenaPages& pages = core_.pages_;
    try {
        const std::vector<Range> rest = without({range_}, blocks);
        std::vector<Range> mapped;
        {
            const std::lock_guard lock{pages.mutex};
            mapped.reserve(pages.held.size());
            for (auto& held : pages.held) {
                if (held.extent.state() != ExtentState::active || intersection(rest, {held.range()}).empty()) continue;
                held.owns_addresses = true;
                mapped.push_back(held.range());
            }
        }
        sort_by_address(mapped);
        for (const Range& gap : without(rest, mapped)) pages.free_addresses(gap);
    } catch (const std::bad_alloc&) {
        core_.emit_ignored("no host memory to free addresses");
    }
}

// --- growing blocks ---

MEMSAVER_INLINE std::unique_ptr<GrowingBlock> ArenaCore::reserve_block(std::size_t cap) {
    if (cap == 0 || !can_align_up(cap, pages_.granularity())) {
        throw Misuse{"tag \"" + tag() + "\": addresses for " + format_bytes(cap) + " cannot be reserved"};
    }
    const std::size_t capacity = pages_.capacity();
    if (capacity != 0 && cap > capacity) {
        throw Misuse{"tag \"" + tag() + "\": " + format_bytes(cap) + " for a growing block exceed its capacity of " +
                     format_bytes(capacity)};
    }
    return std::make_unique<Growing>(*this, align_up(cap, pages_.granularity()));
}

MEMSAVER_INLINE ArenaCore::Growing::Growing(ArenaCore& core, std::size_t cap) : core_{core}, addresses_{core, cap, 0} {
    reserved_ = addresses_.range();
}

MEMSAVER_INLINE ArenaCore::Growing::~Growing() {
    if (core_.closed_.load() || core_.forked()) return;
    core_.owned_ranges_.remove(reserved_);
    for (const Range& part : parts_) core_.deallocate_quietly(pointer_of(part.address), order_);
    addresses_.free_addresses(parts_);
}

MEMSAVER_INLINE void ArenaCore::Growing::grow(std::size_t bytes) {
    if (bytes <= bytes_) return;
    if (bytes > cap()) refuse(bytes, "its cap is " + format_bytes(cap()));
    if (bytes_ != 0 && core_.options().single_handle) {
        refuse(bytes,
               "its tag uses one handle per block (ArenaOptions::single_handle), so it can grow only once; request the "
               "maximum size first");
    }
    if (core_.any_paused({address(), bytes_})) (void)core_.finish_arriving();
    const Range more{address() + bytes_, align_up(bytes, core_.pages_.granularity()) - bytes_};
    clear_the_way(more);
    parts_.reserve(parts_.size() + 1);
    const auto take_more = [&] {
        const std::lock_guard lock{core_.growing_};
        core_.require_open_for(
            [&] { return "grow a block at " + format_address(address()) + " to " + format_bytes(bytes); });
        if (core_.any_paused({address(), bytes_})) refuse(bytes, "it is paused; resume its tag first");
        core_.check_capacity(more.bytes);
        addresses_.take({more}, "allocate memory for a growing block");
    };
    try {
        take_more();
    } catch (const Error& error) { // reclaiming unused memory of the arena may help
        int waits = 1;
        if (error.status().kind == StatusKind::gone || !core_.reclaim_own(false, waits)) throw;
        take_more();
    }
    parts_.push_back(more);
    bytes_ += more.bytes;
}

MEMSAVER_INLINE void ArenaCore::Growing::clear_the_way(Range more) {
    ArenaPages& pages = core_.pages_;
    if (intersection({more}, pages.mapped_and_held()).empty()) return;
    Status status{StatusKind::other, 0, "another operation is in progress"};
    if (const auto turn = core_.try_turn()) status = pages.retry_held();
    if (!intersection({more}, pages.mapped_and_held()).empty())
        check(status, "release pages left by an earlier growth", more.bytes, more.address);
}

MEMSAVER_INLINE void ArenaCore::Growing::refuse(std::size_t bytes, const std::string& why) const {
    throw Misuse{"a block at " + format_address(address()) + " in tag \"" + core_.tag() + "\" cannot grow to " +
                 format_bytes(bytes) + ": " + why};
}

// --- elastic ranges ---

/// A mark that has passed once a fence has ended that began after the mark was made. Must not outlive its arena.
class FenceMark final : public WorkMark {
public:
    FenceMark(Fences& fences, AnyDriver driver)
        : fences_{fences}, driver_{std::move(driver)}, last_{fences.last_begun()} {}

    MEMSAVER_INLINE Status query(bool& passed) const noexcept override {
        passed = fences_.last_done() > last_;
        return {};
    }
    MEMSAVER_INLINE Status wait() const noexcept override {
        if (fences_.last_done() > last_) return {};
        const std::uint64_t fence = fences_.begin();
        const Status status = driver_.drain();
        if (status.ok()) fences_.finish(fence);
        return status;
    }

private:
    Fences& fences_;
    AnyDriver driver_;
    std::uint64_t last_; // last fence begun when the mark was made
};

MEMSAVER_INLINE std::shared_ptr<const WorkMark> ArenaCore::next_fence() {
    return std::make_shared<FenceMark>(heaps_.fences(), driver());
}

MEMSAVER_INLINE std::unique_ptr<ElasticRange> ArenaCore::reserve_elastic(std::size_t bytes, std::size_t step) {
    struct Sizes : ElasticRange {
        using ElasticRange::round;
    };
    Sizes::round(tag(), bytes, step, pages_.granularity());
    return std::make_unique<ElasticPages>(*this, bytes, step);
}

MEMSAVER_INLINE ArenaCore::ElasticPages::ElasticPages(ArenaCore& core, std::size_t bytes, std::size_t step)
    : ElasticRange{core.tag(), step, core.elastic_bytes}, core_{core}, addresses_{core, bytes, step} {
    set_range(addresses_.range());
}

MEMSAVER_INLINE ArenaCore::ElasticPages::~ElasticPages() {
    if (core_.closed_.load() || core_.forked()) return;
    // Memory that graph replays touch stays until the arena closes, because no graph keeps such pages alive.
    if (core_.options().single_handle) {
        if (order_.kind == FreeOrder::Kind::replayed || !give_all()) return;
    }
    core_.owned_ranges_.remove(reserved_);
    for (Address at = address(); at < reserved_.end(); at += step()) {
        if (has_memory(at)) core_.deallocate_quietly(pointer_of(at), order_);
    }
    try {
        addresses_.free_addresses(steps(reserved_, true));
    } catch (const std::bad_alloc&) {
        core_.emit_ignored("no host memory to free addresses");
    }
}

MEMSAVER_INLINE Turn::Hold ArenaCore::ElasticPages::begin(const char* what) {
    auto turn = core_.take_turn({}, what);
    core_.give_up_failed_arrival(); // its pages lie at addresses that count as paused
    return turn;
}

MEMSAVER_INLINE void ArenaCore::ElasticPages::commit(std::size_t offset, std::size_t bytes) {
    commit(outward("commit", offset, bytes));
}

MEMSAVER_INLINE void ArenaCore::ElasticPages::commit(Range part) {
    bool room = false;
    const auto try_it = [&] {
        const auto turn = begin("commit");
        const std::vector<Range> missing = steps(part, false);
        if (core_.any_paused(reserved_))
            refuse("commit", offset_of(part), part.bytes, "it is paused; resume its tag first");
        if (!missing.empty()) take(missing, room);
    };
    try {
        try_it();
    } catch (const Error& error) { // reclaiming unused memory of the arena may help
        int waits = 1;
        if (!room || error.status().kind == StatusKind::gone || !core_.reclaim_own(false, waits)) throw;
        try_it();
    }
}

MEMSAVER_INLINE void ArenaCore::ElasticPages::take(const std::vector<Range>& missing, bool& room) {
    clear_the_way(missing);
    const std::lock_guard lock{core_.growing_};
    room = true;
    core_.check_capacity(missing.size() * step());
    addresses_.take(missing, "commit memory of an elastic range");
    note(missing, true);
}

MEMSAVER_INLINE void ArenaCore::ElasticPages::clear_the_way(const std::vector<Range>& missing) {
    ArenaPages& pages = core_.pages_;
    if (intersection(missing, pages.mapped_and_held()).empty()) return;
    for (const auto& mark : pages.awaited_in(missing)) {
        core_.check_of_tag(mark->wait(), "wait for work that may still use released memory");
    }
    const Status status = pages.retry_held();
    if (!intersection(missing, pages.mapped_and_held()).empty())
        core_.check_of_tag(status, "release pages left by an earlier call");
}

MEMSAVER_INLINE void ArenaCore::ElasticPages::release(std::size_t offset, std::size_t bytes, FreeOrder order) {
    const Range part = inward("release", offset, bytes);
    const auto turn = begin("release");
    give(all_steps(part), order);
}

MEMSAVER_INLINE bool ArenaCore::ElasticPages::grow(std::size_t bytes) {
    Range more;
    {
        const auto turn = begin("resize");
        const auto [grown, rest] = resizing(bytes);
        more = grown;
        if (more.bytes == 0) return steps(rest, true).empty();
    }
    commit(more);
    return true;
}

MEMSAVER_INLINE void ArenaCore::ElasticPages::shrink(std::size_t bytes, FreeOrder order) {
    const auto turn = begin("resize");
    give(steps(resizing(bytes).second, true), order);
}

MEMSAVER_INLINE void ArenaCore::ElasticPages::give(const std::vector<Range>& going, const FreeOrder& order) {
    std::size_t released = 0;
    (void)core_.collect_released(released); // failures are retried later
    if (going.empty()) return;
    ArenaPages& pages = core_.pages_;
    std::shared_ptr<const WorkMark> mark = order.mark;
    const bool settled = pages.settle().ok();
    if (mark == nullptr && (order.kind != FreeOrder::Kind::idle || !settled)) mark = core_.next_fence();
    const std::vector<std::shared_ptr<AnySlot>> slots = core_.slots_in_use();
    std::vector<Extent> extents;
    pages.take_out(going, extents, [&] {
        core_.heaps_.take_out(going, [&](std::uint64_t serial) {
            core_.own_->forget(serial);
            for (const std::shared_ptr<AnySlot>& slot : slots) {
                if (slot != core_.own_) slot->forget(serial);
            }
        });
    });
    note(going, false);
    core_.end_slots(slots);
    bool passed = false;
    if (mark != nullptr && mark->query(passed).ok() && passed) mark = nullptr;
    for (Extent& extent : extents) {
        if (mark != nullptr) {
            pages.hold_until(std::move(extent), mark);
        } else if (const Status status = pages.drop(extent); !status.ok()) {
            pages.hold(std::move(extent), false, status);
        }
    }
    const std::lock_guard lock{pages.mutex};
    pages.in_hand -= extents.size();
}

MEMSAVER_INLINE bool ArenaCore::ElasticPages::give_all() noexcept {
    try {
        const auto turn = begin("release");
        give(steps(reserved_, true), order_);
        return true;
    } catch (const std::exception& error) {
        core_.emit_ignored(error.what());
        return false;
    }
}

MEMSAVER_INLINE std::size_t ArenaCore::ElasticPages::physical_bytes() const noexcept { return core_.mapped_bytes(); }

MEMSAVER_INLINE void ArenaCore::ElasticPages::collect() noexcept { (void)core_.release_unused(true); }

// --- pause, resume, trim ---

MEMSAVER_INLINE ArenaCore::Pause::Pause(ArenaCore& core, Turn::Hold turn, const std::optional<AnyPolicy>& once)
    : turn_{std::move(turn)}, core_{&core}, once_{once.has_value()},
      keeps_{(once ? *once : core.policy_).keeps_bytes()},
      slot_{once ? std::shared_ptr<AnySlot>{once->open(core.driver())} : core.own_}, fence_{
                                                                                         core.heaps_.fences().begin()} {
    row_.tag = core.tag();
    row_.device = core.device();
    core.check_of_tag(core.pages_.settle(), "wait for copies of an earlier operation");
    core.give_up_failed_arrival();
    // A pause is not complete while pages are held, so it also releases those of earlier calls.
    if (const Status status = core.retry_held(row_.released_bytes); !status.ok()) note(status);
    released_ = core.pages_.anything_waits();
    core.drop_all_dead();
    const std::lock_guard growing{core.growing_};
    scratch_before_ = scratch_bytes();
    if (core.pages_.physical_bytes() == 0) note(release_scratch(core.own_, row_.released_bytes)); // nothing needs it
    const std::lock_guard lock{core.pages_.mutex};
    const std::size_t count = core.pages_.active.size();
    ranges_.reserve(count);
    paused_.reserve(count);
    left_.reserve(count);
    core.pages_.paused.reserve(core.pages_.paused.size() + 1);
    std::vector<Extent> none;
    none.reserve(core.pages_.active.capacity());
    for (const Extent& extent : core.pages_.active) ranges_.push_back({extent.address(), extent.bytes()});
    sort_by_address(ranges_);
    core.heaps_.begin_operation(count != 0); // the last call that may throw
    extents_ = std::exchange(core.pages_.active, std::move(none));
    core.pages_.in_hand += count;
    core.pausing_ = count != 0;
}

MEMSAVER_INLINE ArenaCore::Pause::Pause(Pause&& other) noexcept
    : turn_{std::move(other.turn_)}, core_{std::exchange(other.core_, nullptr)}, once_{other.once_},
      enqueued_{other.enqueued_}, in_part_{other.in_part_}, released_{other.released_}, keeps_{other.keeps_},
      slot_{std::move(other.slot_)}, fence_{other.fence_}, ranges_{std::move(other.ranges_)},
      extents_{std::move(other.extents_)}, targets_{std::move(other.targets_)}, scratch_before_{other.scratch_before_},
      left_{std::move(other.left_)}, paused_{std::move(other.paused_)}, ticket_{std::move(other.ticket_)},
      saving_{std::move(other.saving_)}, row_{std::move(other.row_)}, failure_{other.failure_} {}

MEMSAVER_INLINE ArenaCore::Pause::~Pause() {
    if (core_ != nullptr) (void)finish();
}

MEMSAVER_INLINE void ArenaCore::Pause::idle(std::chrono::nanoseconds waited, bool whole_device) noexcept {
    row_.waited = waited;
    if (whole_device) core_->heaps_.fences().finish(fence_);
}

MEMSAVER_INLINE void ArenaCore::Pause::enqueue() {
    if (ranges_.empty()) return;
    saving_ = Span{core_->options().events, core_->tag(), core_->device(), "save"};
    if (once_) core_->own_->invalidate(); // what it may have saved of these bytes becomes stale
    LiveSet live = core_->live_set(ranges_, "saving");
    for (std::size_t i = 0; i < targets_.size(); ++i) {
        if (targets_[i].extent != nullptr) live.handed_on.push_back({extents_[i].address(), extents_[i].bytes()});
    }
    enqueued_ = true;
    ticket_ = slot_->save(live);
}

MEMSAVER_INLINE void ArenaCore::Pause::plan_handover() { targets_.resize(extents_.size()); }

MEMSAVER_INLINE void ArenaCore::Pause::wait() {
    core_->check_moved(ticket_.wait(), "save bytes", ticket_.bytes());
    row_.saved_bytes = keeps_ ? ticket_.bytes() : 0; // else the ticket wrote poison
    saving_.end();
}

MEMSAVER_INLINE void ArenaCore::Pause::release() noexcept {
    for (std::size_t i = 0; i < extents_.size(); ++i) {
        release(extents_[i], targets_.empty() ? HandoverTarget{} : targets_[i], false);
    }
    extents_ = std::move(left_);
}

MEMSAVER_INLINE void ArenaCore::Pause::release_only(const std::vector<bool>& extents, bool saved) noexcept {
    const Status drained = driver().drain(); // copies in either direction may be in flight
    if (!drained.ok()) note(drained);
    for (std::size_t i = 0; i < extents_.size(); ++i) {
        if (!extents[i]) {
            left_.push_back(std::move(extents_[i]));
        } else if (drained.ok()) {
            release(extents_[i], {}, true);
        } else {
            paused_.push_back({extents_[i].address(), extents_[i].bytes()});
            core_->pages_.hold(std::move(extents_[i]), false, drained);
        }
    }
    extents_ = std::move(left_);
    in_part_ = saved;
}

MEMSAVER_INLINE void ArenaCore::Pause::release(Extent& extent, HandoverTarget target, bool last) noexcept {
    const Status unmapped = extent.unmap();
    if (!unmapped.ok()) note(unmapped);
    if (!unmapped.ok() && target.extent == nullptr && !last) return left_.push_back(std::move(extent)); // stays active
    paused_.push_back({extent.address(), extent.bytes()});
    if (target.extent != nullptr) { // the target may have written there: the old content is lost
        target.pages->take_over(*target.extent, core_->pages_, extent);
        row_.handed_bytes += extent.bytes();
        if (!unmapped.ok()) core_->pages_.hold(std::move(extent), false, unmapped);
        return;
    }
    const Status status = unmapped.ok() ? core_->pages_.release(extent) : unmapped;
    if (!status.ok()) {
        note(status);
        core_->pages_.hold(std::move(extent), false, status);
    } else {
        row_.released_bytes += extent.bytes();
    }
}

MEMSAVER_INLINE TagReport ArenaCore::Pause::commit(Status& status) {
    if (const Status kept = core_->collect_released(row_.released_bytes); !kept.ok()) note(kept);
    if (extents_.empty()) { // everything is paused
        ticket_ = {};
        std::size_t given = 0;
        note(release_scratch(slot_, given));
        if (slot_ != core_->own_) note(release_scratch(core_->own_, given));
        row_.released_bytes += std::min(given, scratch_before_); // the pause itself took the rest
    }
    status = failure_;
    row_.held_bytes = core_->held_bytes();
    return finish();
}

MEMSAVER_INLINE void ArenaCore::Pause::note(const Status& status) noexcept {
    if (failure_.ok()) failure_ = status;
}

MEMSAVER_INLINE TagReport ArenaCore::Pause::finish() noexcept {
    ArenaCore& core = *std::exchange(core_, nullptr);
    ticket_ = {};
    const bool whole = extents_.empty();
    if (!whole && enqueued_) {
        slot_->outdated(); // the memory that stays may change before it is saved again
        core.pages_.unsettle();
    }
    sort_by_address(paused_);
    if (in_part_ && enqueued_) slot_->saved_in_part(paused_);
    ranges_ = {};
    {
        const std::lock_guard lock{core.pages_.mutex};
        core.pages_.in_hand -= paused_.size();
        core.pages_.activate(extents_);
        core.pausing_ = false;
        if (!paused_.empty()) {
            core.pages_.paused.push_back({std::move(paused_), std::move(slot_)});
            ++core.pauses_;
        }
    }
    core.end_operation(whole);
    core.retire_slot(std::move(slot_)); // null if the batch owns it now
    return std::move(row_);
}

MEMSAVER_INLINE ArenaCore::Resume::Resume(ArenaCore& core, Turn::Hold turn, const std::optional<AnyPolicy>& once)
    : turn_{std::move(turn)}, core_{&core}, once_{once ? once->open(core.driver()) : nullptr} {
    row_.tag = core.tag();
    row_.device = core.device();
    core.give_up_failed_arrival();
    if (const Status status = core.retry_held(row_.released_bytes); !status.ok() && in_the_way()) {
        core.check_of_tag(status, "release held pages before a resume");
    }
    core.heaps_.begin_operation(false);
    try {
        begin();
    } catch (...) {
        core.pages_.abandon(extents_, false);
        core.end_operation(true);
        throw;
    }
}

MEMSAVER_INLINE ArenaCore::Resume::Resume(Resume&& other) noexcept
    : turn_{std::move(other.turn_)}, core_{std::exchange(other.core_, nullptr)}, once_{std::move(other.once_)},
      kept_{std::move(other.kept_)}, extents_{std::move(other.extents_)}, put_off_{other.put_off_},
      alone_{other.alone_}, enqueued_{other.enqueued_}, first_{std::move(other.first_)}, begun_{std::move(
                                                                                             other.begun_)},
      tickets_{std::move(other.tickets_)}, coming_{std::move(other.coming_)}, waited_{other.waited_},
      scratch_bytes_{other.scratch_bytes_}, restoring_{std::move(other.restoring_)}, row_{std::move(other.row_)} {}

MEMSAVER_INLINE ArenaCore::Resume::~Resume() {
    if (core_ == nullptr) return;
    tickets_.clear();
    core_->pages_.abandon(extents_, false, alone_ || enqueued_);
    core_->each_paused_scratch([](DeviceScratch& scratch) { (void)scratch.give(); }); // a failure stays counted
    core_->end_operation(true);
}

MEMSAVER_INLINE std::size_t ArenaCore::Resume::needed_bytes() const noexcept {
    std::size_t bytes = 0;
    for (const Extent& extent : extents_) bytes += extent.state() == ExtentState::active ? 0 : extent.bytes();
    return bytes + needed_scratch();
}

MEMSAVER_INLINE std::size_t ArenaCore::Resume::needed_scratch() const noexcept {
    std::size_t bytes = 0;
    if (once_ || kept_.empty()) return bytes;
    core_->each_paused_scratch([&](const DeviceScratch& scratch) { bytes += scratch.wanted_bytes(); });
    return bytes;
}

MEMSAVER_INLINE void ArenaCore::Resume::map_of(Extent& extent, const Extent& owner) {
    check(extent.map(core_->driver(), owner), "map handed-over pages", extent.bytes(), extent.address());
    row_.mapped_bytes += extent.bytes();
}

MEMSAVER_INLINE void ArenaCore::Resume::create() {
    if (put_off_) return;
    const std::size_t scratch_bytes = needed_scratch();
    Status status = core_->pages_.create_all(extents_, scratch_bytes);
    if (status.ok() && scratch_bytes != 0) {
        core_->each_paused_scratch([&](DeviceScratch& scratch) {
            if (status.ok()) status = scratch.take();
        });
        scratch_bytes_ += scratch_bytes;
    }
    if (status.ok()) return;
    uncreate();
    core_->pages_.raise_no_room(status, "allocate memory for a resume", needed_bytes());
}

MEMSAVER_INLINE void ArenaCore::Resume::uncreate() noexcept {
    core_->pages_.give_up_pages(extents_);
    core_->each_paused_scratch([](DeviceScratch& scratch) { (void)scratch.give(); });
    scratch_bytes_ = 0;
}

MEMSAVER_INLINE void ArenaCore::Resume::map() {
    row_.mapped_bytes += std::exchange(scratch_bytes_, 0);
    for (Extent& extent : extents_) {
        if (extent.state() != ExtentState::held) continue; // another arena's pages, or not created yet
        check(extent.map(core_->driver()), "map pages", extent.bytes(), extent.address());
        row_.mapped_bytes += extent.bytes();
    }
}

MEMSAVER_INLINE void ArenaCore::Resume::enqueue(const std::function<Status(Range)>& before_write) {
    std::vector<Range> mapped;
    mapped.reserve(extents_.size());
    for (const Extent& extent : extents_) {
        if (extent.state() == ExtentState::active) mapped.push_back({extent.address(), extent.bytes()});
    }
    const std::vector<Range> now = without(mapped, begun_);
    if (now.empty() || (put_off_ && needed_scratch() != 0)) return; // later, together with the rest
    restoring_ = Span{core_->options().events, core_->tag(), core_->device(), "restore"};
    tickets_.reserve(tickets_.size() + core_->pages_.paused.size());
    coming_.reserve(tickets_.capacity());
    for (const auto& batch : core_->pages_.paused) { // no lock: the turn is held
        std::vector<Range> ranges = intersection(batch.ranges, now);
        if (ranges.empty()) continue;
        AnySlot& slot = once_ ? *once_ : *batch.slot;
        if (before_write && !slot.asks_before_write()) {
            for (const Range& range : ranges)
                core_->check_of_tag(before_write(range), "wait for the save of the previous bytes");
        }
        std::vector<Range> brought = ranges;
        LiveSet live = core_->live_set(std::move(ranges), "restoring");
        live.before_write = before_write;
        live.first = first_;
        enqueued_ = true;
        tickets_.push_back(slot.restore(live));
        coming_.push_back(std::move(brought)); // capacity was reserved
    }
    begun_ = std::move(mapped);
}

MEMSAVER_INLINE void ArenaCore::Resume::record_gates() {
    std::vector<Bringing> coming;
    for (std::size_t i = 0; i < tickets_.size(); ++i) coming.push_back({&tickets_[i], coming_[i]});
    core_->gates_.record(
        coming, first_,
        [&](const GateMark& gate) {
            const std::optional<LiveBlock> block = core_->heaps_.block_holding(gate.block);
            return block && block->serial == gate.serial;
        },
        [&](const Status& status, Ticket& ticket) {
            core_->check_moved(ticket.wait(), "restore bytes", ticket.bytes()); // the ticket reports the cause
            core_->check_moved(status, "make a gate wait for arriving bytes", ticket.bytes());
        });
}

MEMSAVER_INLINE void ArenaCore::Resume::go_on_alone() noexcept {
    alone_ = true;
    const Turn::Hold given_up{std::move(turn_)};
}

MEMSAVER_INLINE void ArenaCore::Resume::wait() {
    for (; waited_ < tickets_.size(); ++waited_) {
        Ticket& ticket = tickets_[waited_];
        core_->check_moved(ticket.wait(), "restore bytes", ticket.bytes());
        row_.restored_bytes += ticket.bytes();
    }
    restoring_.end();
}

MEMSAVER_INLINE TagReport ArenaCore::Resume::commit() noexcept {
    ArenaCore& core = *std::exchange(core_, nullptr);
    tickets_.clear();
    {
        const std::lock_guard lock{core.pages_.mutex};
        core.pages_.activate(extents_);
    }
    if (!alone_) core.end_operation(true); // needs the list of paused ranges
    // Unless the resume ran without the turn, no work can have been launched on this memory before it is open: blocks
    // freed in shut memory count as unreachable for work.
    core.open_all();
    decltype(core.pages_.paused) done;
    {
        const std::lock_guard lock{core.pages_.mutex};
        done.swap(core.pages_.paused);
    }
    if (once_) core.own_->invalidate();
    for (const auto& batch : done) core.slot_resumed(batch.slot); // without a lock, because it may take long
    row_.held_bytes = core.held_bytes();
    return std::move(row_);
}

MEMSAVER_INLINE bool ArenaCore::Resume::in_the_way() const {
    return !intersection(core_->pages_.paused_ranges(), core_->pages_.mapped_and_held()).empty();
}

MEMSAVER_INLINE void ArenaCore::Resume::begin() {
    const std::vector<Range> paused = core_->pages_.paused_ranges();
    const std::vector<Range> dead = core_->dead_ranges(paused);
    kept_ = core_->owned_ranges_.cut(without(paused, dead));
    extents_ = core_->pages_.plan(kept_);
    core_->drop_dead(dead);
}

MEMSAVER_INLINE ArenaCore::Trim::Trim(ArenaCore& core, Turn::Hold turn) : Trim{core} {
    (void)turn_.emplace(std::move(turn));
}

MEMSAVER_INLINE ArenaCore::Trim::Trim(ArenaCore& core) : core_{&core}, fence_{core.heaps_.fences().begin()} {
    row_.tag = core.tag();
    row_.device = core.device();
}

MEMSAVER_INLINE void ArenaCore::Trim::idle(std::chrono::nanoseconds waited, bool whole_device) noexcept {
    row_.waited = waited;
    if (whole_device) core_->heaps_.fences().finish(fence_);
}

MEMSAVER_INLINE void ArenaCore::Trim::release() noexcept {
    try {
        if (const Status status = core_->pages_.settle(); !status.ok()) return note(status);
        if (const Status status = core_->retry_held(row_.released_bytes); !status.ok()) note(status);
        if (turn_) core_->drop_all_dead(); // not within another operation's step
        std::vector<Extent> unused = take_unused();
        for (Extent& extent : unused) give_back(extent);
        if (const Status status = release_scratch(core_->own_, row_.released_bytes); !status.ok()) note(status);
        const std::lock_guard lock{core_->pages_.mutex};
        core_->pages_.in_hand -= unused.size();
    } catch (const std::bad_alloc&) { // thrown before anything was taken out
        note({StatusKind::out_of_host_memory, 0, "no host memory for the records of a trim"});
    }
}

MEMSAVER_INLINE TagReport ArenaCore::Trim::commit(Status& status) noexcept {
    status = failure_;
    row_.held_bytes = core_->held_bytes();
    return std::move(row_);
}

MEMSAVER_INLINE void ArenaCore::Trim::note(const Status& status) noexcept {
    if (failure_.ok()) failure_ = status;
}

MEMSAVER_INLINE void ArenaCore::Trim::give_back(Extent& extent) noexcept {
    auto& pages = core_->pages_;
    const Range range{extent.address(), extent.bytes()};
    Status status = extent.unmap();
    if (!status.ok() && open_again(range)) {
        note(status);
        const std::lock_guard lock{pages.mutex};
        pages.active.push_back(std::move(extent)); // capacity was reserved while it was in hand
        return;
    }
    if (status.ok()) status = pages.release(extent);
    if (status.ok()) {
        row_.released_bytes += range.bytes;
        try {
            return pages.free_addresses(range);
        } catch (const std::bad_alloc&) { // held without pages, only for its addresses
            status = {StatusKind::out_of_host_memory, 0, "no host memory to record free addresses"};
        }
    }
    note(status);
    pages.hold(std::move(extent), true, status);
}

MEMSAVER_INLINE bool ArenaCore::Trim::open_again(Range range) noexcept {
    try {
        core_->heaps_.add(range);
        return true;
    } catch (const std::bad_alloc&) {
        return false;
    }
}

MEMSAVER_INLINE std::vector<Extent> ArenaCore::Trim::take_unused() {
    const std::lock_guard growing{core_->growing_};
    const std::vector<Range> free = core_->heaps_.free_ranges(core_->pages_.granularity(), Side::open);
    const std::lock_guard lock{core_->pages_.mutex};
    std::vector<Extent> unused;
    unused.reserve(core_->pages_.active.size());
    std::erase_if(core_->pages_.active, [&](Extent& extent) {
        const Range range{extent.address(), extent.bytes()};
        const bool is_free = std::any_of(free.begin(), free.end(), [&](const Range& held) {
            return held.address <= range.address && range.end() <= held.end();
        });
        if (!is_free || !take_out(range)) return false;
        unused.push_back(std::move(extent));
        return true;
    });
    core_->pages_.in_hand += unused.size();
    return unused;
}

MEMSAVER_INLINE bool ArenaCore::Trim::take_out(Range range) noexcept {
    try {
        return core_->heaps_.remove_if_free(range, Side::open);
    } catch (const std::bad_alloc&) {
        return false;
    }
}

MEMSAVER_INLINE std::size_t trim_now(ArenaCore& core, bool wait) {
    TrimStep step{core};
    if (wait && core.anything_waits() && core.driver().drain().ok()) step.idle({}, true);
    step.release();
    Status ignored;
    return step.commit(ignored).released_bytes;
}

} // namespace detail

} // namespace memsaver::inline v0_3

#include "memsaver/arena/arriving.hpp" // at the end: it defines what is used above
