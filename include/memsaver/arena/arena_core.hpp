// One tag's memory on one device: grows, hands out blocks, and lets steps pause and resume it.
// Does not know other tags.
#pragma once

#include "memsaver/arena/arena_base.hpp"
#include "memsaver/arena/arena_memory.hpp"
#include "memsaver/arena/arena_slots.hpp"
#include "memsaver/arena/extending_block.hpp"
#include "memsaver/arena/turn.hpp"
#include "memsaver/backup/backup.hpp"
#include "memsaver/memory/memory.hpp"

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace memsaver::inline v0_1 {

template <Driver D>
class PauseStep;
template <Driver D>
class ResumeStep;
template <Driver D>
class TrimStep;

/// Locks, in the order in which they are taken: the turn (one operation at a time; held across waits and copies), then
/// `growing_` (one thread grows; held across driver calls that do not wait), then the pages' mutex or the heaps'
/// (bookkeeping).
template <Driver D>
class ArenaCore final : public ArenaBase {
public:
    /// `quarantine`: what to put behind paused addresses, if anything. Throws Misuse for impossible options, or what a
    /// failing driver call stands for.
    ArenaCore(D driver, std::string tag, AnyBackup<D> policy, ArenaOptions options,
              std::shared_ptr<QuarantineBlocks<D>> quarantine = {})
        : policy_{std::move(policy)},
          memory_{std::move(driver), std::move(tag), std::move(options), std::move(quarantine)}, slots_{memory_,
                                                                                                        policy_} {}

    /// Takes what `options.reserve` asks for; called once whoever owns the arena has it in hand, and again after a
    /// failure: once it was there, does nothing. Throws OutOfMemory if it does not fit.
    void reserve() { memory_.reserve(); }

    ~ArenaCore() override {
        try {
            close();
        } catch (const std::exception& error) {
            tell(memory_.pages.options().events, [&] {
                return Event{EventKind::ignored, tag(), device(), error.what()};
            });
        }
    }

    void* allocate(std::size_t bytes, std::size_t alignment) override {
        const std::size_t size = check_request(bytes, alignment);
        try {
            return pointer(memory_.allocate(size, alignment, bytes));
        } catch (const std::bad_alloc&) {
            throw OutOfHostMemory{"allocate(" + format_bytes(bytes) + ") in tag \"" + tag() +
                                  "\": no host memory for it"};
        }
    }

    void deallocate(void* pointer, FreeOrder order) override {
        if (pointer == nullptr) return;
        memory_.require_open([&] { return "deallocate(" + format_address(address_of(pointer)) + ')'; });
        if (!contains(pointer)) {
            throw Misuse{"deallocate(" + format_address(address_of(pointer)) + "): not a pointer of tag \"" + tag() +
                         '"'};
        }
        if (memory_.growing_blocks.hold(address_of(pointer))) {
            throw Misuse{"deallocate(" + format_address(address_of(pointer)) + ") in tag \"" + tag() +
                         "\": it lies in a block that grows, such as a workspace; its owner gives it back"};
        }
        try {
            const AnySlot* own = nullptr;
            std::uint64_t given_up = 0;
            const bool was_shut =
                memory_.heaps.deallocate(address_of(pointer), order, tag(), [&](std::uint64_t serial) {
                    if (slots_.own) slots_.own->forget(serial);
                    own = slots_.own.get();
                    given_up = serial;
                });
            if (was_shut) memory_.pages.forget_block(given_up, own);
        } catch (const std::bad_alloc&) {
            throw OutOfHostMemory{"deallocate in tag \"" + tag() + "\": no host memory for it"};
        }
    }

    [[nodiscard]] std::unique_ptr<GrowingBlock> reserve_block(std::size_t cap) override {
        return std::make_unique<ExtendingBlock<ArenaCore, D>>(*this, cap);
    }

    void zero(void* pointer, std::size_t bytes, StreamRef stream) override {
        const Range range{address_of(pointer), bytes};
        memory_.require_open([&] { return "zero " + format_bytes(bytes) + " at " + format_address(range.address); });
        if (!contains(pointer) || bytes > addresses().end() - range.address || memory_.any_away(range)) {
            throw Misuse{format_bytes(bytes) + " at " + format_address(range.address) + " in tag \"" + tag() +
                         "\" cannot be zeroed: they are paused, or not the tag's"};
        }
        check(driver().fill(range.address, 0, bytes, stream), "zero memory", bytes, range.address);
    }

    [[nodiscard]] bool owns_stream(StreamRef stream) const override {
        bool yes = true;
        if constexpr (StreamOwners<D>) check(driver().owns_stream(stream, yes), "ask whose stream it is");
        return yes;
    }

    void deallocate_quietly(void* pointer, FreeOrder order) noexcept override {
        if (memory_.closed.load() || forked()) return;
        try {
            deallocate(pointer, order);
        } catch (const std::exception& error) {
            tell(memory_.pages.options().events, [&] {
                return Event{EventKind::ignored, tag(), device(), error.what()};
            });
        }
    }

    void let_go(std::uint64_t graph) noexcept override { memory_.let_go(graph, slots_.own); }
    void require_open(const char* what) const override { memory_.require_open(what); }
    void require_resumed(const char* what) override { memory_.require_resumed(what); }
    [[nodiscard]] bool contains(const void* pointer) const noexcept override {
        return overlap(addresses(), {address_of(pointer), 1});
    }
    [[nodiscard]] bool holds(const void* pointer, std::size_t bytes) override {
        const Range range{address_of(pointer), bytes};
        return contains(pointer) && bytes <= addresses().end() - range.address && memory_.heaps.holds(range);
    }

    [[nodiscard]] ArenaUsage usage() override {
        memory_.fork_mark.require_parent("usage");
        const auto sums = memory_.heaps.sums();
        ArenaUsage row;
        row.tag = tag();
        row.device = device();
        row.policy = policy_.name();
        row.used_bytes = sums.live_bytes;
        row.blocks = sums.live_blocks;
        const std::lock_guard lock{memory_.pages.mutex};
        row.reserved_bytes = memory_.pages.reserved() ? addresses().bytes : 0;
        row.mapped_bytes = memory_.pages.physical_bytes();
        for (const auto& held : memory_.pages.held) row.held_bytes += held.extent.physical_bytes();
        row.backed_up_bytes = slots_.own ? slots_.own->backed_up_bytes() : 0;
        for (const auto& batch : memory_.pages.paused) {
            for (const Range& range : batch.ranges) row.paused_bytes += range.bytes;
            if (batch.slot != slots_.own) row.backed_up_bytes += batch.slot->backed_up_bytes();
        }
        const bool some_active = row.mapped_bytes > row.held_bytes;
        row.state = memory_.closed.load()   ? "closed"
                    : row.paused_bytes == 0 ? (some_active ? "active" : "empty")
                                            : (some_active ? "partly paused" : "paused");
        return row;
    }

    [[nodiscard]] const std::string& tag() const noexcept override { return memory_.pages.tag(); }
    [[nodiscard]] int device() const noexcept override { return driver().device(); }
    [[nodiscard]] const D& driver() const noexcept { return memory_.pages.driver(); }
    [[nodiscard]] const AnyBackup<D>& policy() const noexcept { return policy_; }
    [[nodiscard]] const ArenaOptions& options() const noexcept { return memory_.pages.options(); }

    /// The right to run one operation. Throws NotIdle once the deadline has passed; Misuse, beginning with `what`,
    /// after `close`.
    Turn::Hold take_turn(const Deadline& deadline = {}, const char* what = "use") {
        memory_.fork_mark.require_parent(what); // before any lock: a child may find it taken for ever
        auto hold = turn_.take(deadline, tag());
        memory_.require_open(what);
        slots_.retry();
        return hold;
    }

    /// The same if it is to be had at once.
    std::optional<Turn::Hold> try_turn() {
        return memory_.closed.load() || forked() ? std::optional<Turn::Hold>{} : turn_.try_take();
    }

    /// Whether this process is a child of the one that made the arena: whoever owns it must then let it be, for its
    /// memory and files are the parent's.
    [[nodiscard]] bool forked() const noexcept { return memory_.fork_mark.forked(); }

    /// All addresses that its blocks can have.
    [[nodiscard]] Range addresses() const noexcept { return memory_.pages.addresses(); }

    /// Physical bytes that a resume would take now.
    [[nodiscard]] std::size_t bytes_to_resume() {
        std::size_t bytes = 0;
        for (const Range& range : memory_.ranges_to_resume()) bytes += range.bytes;
        return bytes;
    }

    /// Takes ahead of time what saving the live blocks would take. Any thread; allocations go on meanwhile.
    void prepare() {
        const auto turn = take_turn({}, "prepare");
        std::vector<Range> ranges;
        {
            const std::lock_guard lock{memory_.pages.mutex};
            for (const auto& extent : memory_.pages.active) ranges.push_back({extent.address(), extent.bytes()});
        }
        sort_by_address(ranges);
        slots_.own->prepare(slots_.live_set(std::move(ranges), "preparing"));
    }

    [[nodiscard]] BackupView backup_view(const void* pointer, std::size_t bytes) override {
        memory_.require_open([&] { return view_text(pointer, bytes); });
        const auto turn = take_turn({}, "backup_view");
        const auto refusal = [&](const char* why) {
            return Misuse{view_text(pointer, bytes) + " in tag \"" + tag() + "\": " + why};
        };
        if (!contains(pointer)) throw refusal("it is no address of this tag");
        const std::optional<LiveBlock> block = memory_.heaps.block_holding(address_of(pointer));
        if (!block) throw refusal("no live block holds this address");
        const std::size_t offset = address_of(pointer) - block->address;
        if (bytes > block->bytes - offset) throw refusal("it reaches past the end of its block");
        try {
            return slots_.view(*block, offset, bytes);
        } catch (const Misuse& error) {
            throw refusal(error.what());
        }
    }

    /// The program changed bytes that the policy may have saved before: save them again at the next pause.
    void invalidate() {
        const auto turn = take_turn({}, "invalidate");
        slots_.own->invalidate();
    }

    /// Gives everything back, waiting for the device first. Later calls throw Misuse, but for those of destructors. A
    /// lost device is no failure here. Throws what the first failing driver call stands for, after everything has been
    /// tried; what is left is tried again by the next call.
    void close() {
        memory_.fork_mark.require_parent("close");
        const auto turn = turn_.take();
        const std::lock_guard growing{memory_.growing};
        if (!memory_.closed.exchange(true)) {
            const Status drained = driver().drain(); // memory that work still uses is not pulled away
            if (!drained.ok() && drained.kind != StatusKind::gone) {
                memory_.closed.store(false);
                memory_.check_of_tag(drained, "wait for the device before an arena closes");
            }
        }
        const Status kept = slots_.close();
        const Status uncovered = memory_.quarantined.uncover();
        const bool bare = uncovered.ok() || uncovered.kind == StatusKind::gone;
        const Status gone = memory_.pages.close(bare);
        const Status shared = memory_.quarantined.retry();
        memory_.check_of_tag(gone, "give back an arena's memory");
        if (!bare) memory_.check_of_tag(uncovered, "end the quarantine of paused memory");
        if (shared.kind != StatusKind::gone) memory_.check_of_tag(shared, "give back what quarantine shared");
        if (!kept.ok()) raise(kept, "give back what a backup holds", "tag \"" + tag() + "\"");
    }

private:
    friend class PauseStep<D>;
    friend class ResumeStep<D>;
    friend class TrimStep<D>;
    friend class ExtendingBlock<ArenaCore, D>;

    [[nodiscard]] std::size_t check_request(std::size_t bytes, std::size_t alignment) const {
        const auto refuse = [&](const std::string& why) {
            throw Misuse{"allocate(" + std::to_string(bytes) + " bytes) in tag \"" + tag() + "\": " + why};
        };
        if (bytes == 0) refuse("the size is 0");
        if (alignment == 0 || (alignment & (alignment - 1)) != 0) {
            refuse("the alignment of " + std::to_string(alignment) + " is not a power of two");
        }
        if (bytes > addresses().bytes || alignment > addresses().bytes) {
            refuse("more than the tag's capacity of " + format_bytes(addresses().bytes));
        }
        return align_up(bytes, BlockAllocator::unit);
    }
    static std::string view_text(const void* pointer, std::size_t bytes) {
        return "backup_view(" + format_address(address_of(pointer)) + ", " + format_bytes(bytes) + ')';
    }
    static Address address_of(const void* pointer) noexcept { return reinterpret_cast<Address>(pointer); }
    static void* pointer(Address address) noexcept {
        return reinterpret_cast<void*>(address); // NOLINT(performance-no-int-to-ptr): device addresses are numbers
    }

    AnyBackup<D> policy_;
    Turn turn_;
    ArenaMemory<D> memory_;
    ArenaSlots<D> slots_;
};

} // namespace memsaver::inline v0_1
