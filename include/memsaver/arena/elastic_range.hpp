// Addresses reserved up front, at which their owner wants memory step by step. That memory is live blocks of the arena,
// so pause, resume, trim, policies and usage treat it like any other.
#pragma once

#include "memsaver/arena/arena_core.hpp"
#include "memsaver/core/lists.hpp"
#include "memsaver/core/order.hpp"
#include "memsaver/core/pointers.hpp"
#include "memsaver/core/ranges.hpp"
#include "memsaver/core/vector.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <utility>
#include <vector>

namespace memsaver::inline v0_3::detail {

/// A combination of marks; completes once all of them have.
class AllMarks final : public WorkMark {
public:
    explicit AllMarks(Vector<std::shared_ptr<const WorkMark>> marks) : marks_{std::move(marks)} {}

    Status query(bool& passed) const noexcept override {
        passed = true;
        for (const auto& mark : marks_) {
            const Status status = passed ? mark->query(passed) : Status{};
            if (!status.ok()) return status;
        }
        return {};
    }
    Status wait() const noexcept override {
        for (const auto& mark : marks_) {
            if (const Status status = mark->wait(); !status.ok()) return status;
        }
        return {};
    }

private:
    Vector<std::shared_ptr<const WorkMark>> marks_;
};

/// A range of addresses whose steps get and lose memory on demand. Each step with memory, or the steps that got it
/// together if the range is `whole`, is one live block behind handles of its own. The destructor frees addresses and
/// memory as `deallocate` does; failures go to the arena's event sink. After the arena is closed, the destructor does
/// nothing. Must not outlive its arena. Thread-safe: its methods take the arena's turn.
class ElasticRange {
public:
    /// Rounds `step` up to whole pages, and `bytes` up to a multiple of `step`. Throws Misuse if one of them is 0 or
    /// too large.
    static void round(const std::string& tag, std::size_t& bytes, std::size_t& step, std::size_t unit) {
        constexpr std::size_t most_addresses = std::size_t{1} << 56; // upper limit for any device
        const auto refuse_it = [&](const std::string& why) {
            misuse({"tag ", in_quotes(tag), ": an elastic range of ", in_bytes(bytes), " with a granularity of ",
                    in_bytes(step), " is invalid: ", why});
        };
        if (step == 0 || step > most_addresses)
            refuse_it("the granularity may be 1 byte to " + format_bytes(most_addresses) +
                      ", and is rounded up to a multiple of " + format_bytes(unit));
        const std::size_t rounded = align_up(step, unit);
        const std::size_t most = most_addresses - most_addresses % rounded;
        if (bytes == 0 || bytes > most)
            refuse_it("the size may be 1 byte to " + format_bytes(most) +
                      ", and is rounded up to a multiple of the granularity");
        step = rounded;
        const std::size_t rest = bytes % rounded; // a step need not be a power of two
        bytes += rest == 0 ? 0 : rounded - rest;
    }

    /// Throws the error of a failing driver call.
    ElasticRange(ArenaCore& core, std::size_t bytes, std::size_t step, bool whole)
        : core_{core}, step_{step}, whole_{whole} {
        const auto growth = core.growth_.take({}, core.tag_);
        if (core.closing_.load() || core.forked()) core.refuse_closed("reserve addresses for " + format_bytes(bytes));
        range_ = core.take_addresses(bytes, core.granularity_, bytes);
        try {
            has_memory_.resize(bytes / step);
            const std::lock_guard lock{core.mutex_};
            core.owned_.push_back(range_);
        } catch (...) {
            core.free_addresses(range_);
            throw;
        }
    }
    ElasticRange& operator=(ElasticRange&&) = delete;
    ~ElasticRange() {
        if (core_.closed() || core_.forked()) return;
        // Memory that graph replays touch stays until the arena closes, if host memory was lacking for the graph to own
        // it.
        if (order_.kind == FreeOrder::Kind::replayed) return;
        try {
            const auto turn = begin("release");
            give(steps(range_, true), order_);
            free_addresses();
        } catch (const std::exception& error) { // its memory stays where it is until the arena closes
            core_.emit_ignored(error.what());
        }
    }

    /// Ensures that a part has memory. Rounds outward to whole steps; steps that have memory are left alone. Throws
    /// Misuse (empty, beyond the range, any of the range paused, closed), OutOfMemory, OutOfHostMemory, or the error of
    /// a failing driver call; then nothing has changed. Waits for an operation that is in progress, and for work that
    /// an earlier release of these steps waits for.
    void commit(std::size_t offset, std::size_t bytes) {
        const Range part = outward("commit", offset, bytes);
        commit("commit", [&] { return part; });
    }

    /// Releases the memory of a part, paused or not. Rounds inward to whole steps. The pages are released at once with
    /// `idle`, otherwise once all work submitted to the device before this call, or the mark, has completed. Throws
    /// Misuse (empty, beyond the range, closed, or a step has no memory), OutOfHostMemory, or the error of a failing
    /// driver call; then nothing has changed. Does not wait, except for an operation that is in progress. Pages that
    /// the driver does not take back are held.
    void release(std::size_t offset, std::size_t bytes, const FreeOrder& order) {
        const Range part = inward("release", offset, bytes);
        const auto turn = begin("release");
        const std::vector<Range> going = steps(part, true);
        if (total(going) != part.bytes)
            refuse("release", offset_of(part), part.bytes, "part of it is not committed, possibly already released");
        give(going, order);
    }

    /// If byte `bytes - 1` lies behind the last step with memory, commits the steps from there up to that byte.
    /// Otherwise returns false if there is something to release. Throws as `commit`.
    bool grow(std::size_t bytes) {
        bool done = true;
        commit("resize", [&] {
            const auto [more, rest] = resizing(bytes);
            done = more.bytes != 0 || steps(rest, true).empty();
            return more;
        });
        return done;
    }
    /// Releases the steps behind the first `bytes`, rounded up. Throws as `release`.
    void shrink(std::size_t bytes, const FreeOrder& order) {
        const auto turn = begin("resize");
        give(steps(resizing(bytes).second, true), order);
    }

    /// Returns the physical bytes of the whole arena.
    [[nodiscard]] std::size_t physical_bytes() const noexcept { return core_.mapped_bytes(); }
    /// Releases unused memory of the arena; waits for the device if necessary.
    void collect() noexcept {
        core_.wait_for_frees();
        (void)core_.release_unused(true);
    }

    /// Sets how the destructor frees the memory; by default, after all device work submitted until then.
    void end_as(FreeOrder order) noexcept { order_ = std::move(order); }
    /// A graph owns a whole range from now on: its blocks count no more, but their bytes matter. Throws std::bad_alloc.
    void keep() {
        if (!whole_) return; // on_reclaim may be releasing parts of others
        const std::vector<Range> blocks = steps(range_, true);
        const std::lock_guard lock{core_.mutex_};
        if (core_.closed()) return;
        for (const Range& block : blocks) {
            BlockAllocator& all = core_.memory_with_block(block.address)->blocks;
            all.keep(*all.find(block.address));
        }
    }

    [[nodiscard]] Address address() const noexcept { return range_.address; }
    /// Returns the bytes of reserved addresses, a multiple of `step()`.
    [[nodiscard]] std::size_t bytes() const noexcept { return range_.bytes; }
    /// Returns the size of a step in bytes.
    [[nodiscard]] std::size_t step() const noexcept { return step_; }
    /// Returns the bytes that have memory, or had memory when they were paused.
    [[nodiscard]] std::size_t committed_bytes() const noexcept { return committed_bytes_.load(); }

private:
    Turn::Hold begin(const char* what) {
        auto turn = core_.take_turn({}, what);
        core_.give_up_failed_arrival(); // its pages lie at addresses that count as paused
        return turn;
    }
    /// Commits the part that `which()` returns, with the turn held; it may be empty.
    void commit(const char* what, FunctionRef<Range()> which) {
        const auto turn = begin(what);
        const Range part = which();
        if (part.bytes == 0) return;
        const std::vector<Range> missing = steps(part, false);
        {
            const std::lock_guard lock{core_.mutex_};
            if (core_.any_away(range_))
                refuse("commit", offset_of(part), part.bytes, "it is paused; resume its tag first");
        }
        if (missing.empty()) return;
        clear_the_way(missing);
        const auto growth = core_.growth_.take({}, core_.tag_);
        const std::size_t bytes = total(missing);
        core_.check_capacity(core_.capacity_.load(), bytes);
        const Status status = core_.add_memory(missing, true);
        if (!status.ok())
            core_.raise_no_room(
                status, whole_ ? "allocate memory for a workspace" : "commit memory of an elastic range", bytes);
        note(missing, true);
    }
    /// Waits for the work that pages released here earlier wait for, and releases them.
    void clear_the_way(const std::vector<Range>& missing) {
        Vector<std::shared_ptr<const WorkMark>> marks;
        if (!blocked(missing, &marks)) return;
        for (const auto& mark : marks) {
            core_.check_of_tag(mark->wait(), "wait for work that may still use released memory");
        }
        std::size_t released = 0;
        const Status status = core_.retry_attic(released);
        if (blocked(missing)) core_.check_of_tag(status, "release pages left by an earlier call");
    }
    void give(const std::vector<Range>& going, const FreeOrder& order) {
        ArenaCore& core = core_;
        std::size_t released = 0;
        (void)core.retry_attic(released); // failures are retried later
        if (going.empty()) return;
        std::shared_ptr<const WorkMark> mark = order.mark;
        if (mark == nullptr && order.kind != FreeOrder::Kind::idle) mark = core.next_fence();
        bool passed = false;
        if (mark != nullptr && mark->query(passed).ok() && passed) mark = nullptr;
        if (!core.settle().ok()) { // the library's own copies, which no mark of the program covers
            const std::shared_ptr<const WorkMark> copies = core.next_fence();
            mark = mark == nullptr ? copies : new_shared<AllMarks>(Vector{mark, copies});
        }
        core.now(Turn::Stage::moves);
        Vector<Extent> extents;
        Vector<std::shared_ptr<AnySlot>> ended;
        {
            const std::lock_guard lock{core.mutex_};
            std::size_t count = 0;
            for (const auto& memory : core.memories_) count += memory->extents.size();
            extents.reserve(count);
            ended.reserve(core.memories_.size()); // nothing can fail from here on
            for (const Range& step : going) {
                Memory& memory = *core.memory_with_block(step.address);
                core.forget(memory, memory.blocks.find(step.address)->serial);
                memory.blocks.take_out(step.address);
            }
            for (const auto& memory : core.memories_) {
                erase_in(memory->extents, [&](const Extent& extent) {
                    if (!covers(going, extent.range())) return false;
                    extents.push_back(extent);
                    return true;
                });
            }
            core.remove_empty(ended);
        }
        note(going, false);
        for (const auto& slot : ended) core.slot_resumed(slot); // none of its bytes are left
        for (Extent& extent : extents) {
            if (mark != nullptr && extent.mapped) {
                core.leave(extent, false, {}, mark);
            } else {
                core.leave(extent, false, core.drop(extent));
            }
        }
    }
    /// Returns whether leftovers are mapped in any of these ranges, and adds the marks that they wait for to `marks`.
    [[nodiscard]] bool blocked(const std::vector<Range>& ranges,
                               Vector<std::shared_ptr<const WorkMark>>* marks = nullptr) const {
        const std::lock_guard lock{core_.mutex_};
        bool any = false;
        for (const ArenaCore::Leftover& each : core_.attic_) {
            const bool here = any_in(ranges, [&](const Range& range) { return overlap(range, each.extent.range()); });
            if (!here || !each.extent.mapped) continue;
            any = true;
            if (marks != nullptr && each.until != nullptr) marks->push_back(each.until);
        }
        return any;
    }
    /// Frees the addresses, those of pages that could not be released yet together with these pages.
    void free_addresses() noexcept {
        bool lacking = false;
        {
            const std::lock_guard lock{core_.mutex_};
            erase_in(core_.owned_, [&](const Range& owned) { return owned.address == range_.address; });
            try {
                std::vector<Range> kept;
                for (ArenaCore::Leftover& each : core_.attic_) {
                    if (!overlap(range_, each.extent.range())) continue;
                    each.owns_addresses = true;
                    kept.push_back(each.extent.range());
                }
                sort_by_address(kept);
                for (const Range& gap : without({range_}, kept)) lacking = !core_.addresses_.give(gap) || lacking;
            } catch (const std::bad_alloc&) {
                lacking = true;
            }
        }
        if (lacking) core_.emit_ignored("no host memory to free addresses");
    }

    /// These return a part in whole steps, rounded outward or inward. Throw Misuse.
    [[nodiscard]] Range outward(const char* what, std::size_t offset, std::size_t bytes) const {
        check_part(what, offset, bytes);
        const std::size_t begin = offset / step_ * step_;
        const std::size_t last = (offset + bytes - 1) / step_ * step_; // the step that contains the last byte
        return {address() + begin, last + step_ - begin};
    }
    [[nodiscard]] Range inward(const char* what, std::size_t offset, std::size_t bytes) const {
        check_part(what, offset, bytes);
        const std::size_t begin = (offset + step_ - 1) / step_ * step_;
        const std::size_t end = (offset + bytes) / step_ * step_;
        return {address() + begin, end > begin ? end - begin : 0};
    }
    /// Returns what a resize to `bytes` commits and what it releases; both may be empty. Throws Misuse.
    [[nodiscard]] std::pair<Range, Range> resizing(std::size_t bytes) const {
        if (bytes > this->bytes()) refuse("resize", 0, bytes, "it extends past the end of the range");
        std::size_t have = has_memory_.size();
        while (have != 0 && has_memory_[have - 1] == 0) --have;
        const std::size_t want = bytes / step_ + (bytes % step_ == 0 ? 0 : 1);
        const std::size_t grown = want > have ? want - have : 0;
        return {Range{address() + have * step_, grown * step_},
                Range{address() + want * step_, (has_memory_.size() - want) * step_}};
    }
    /// Returns the blocks of a part, or those that it lacks, in order. Requires the turn.
    [[nodiscard]] std::vector<Range> steps(Range part, bool with_memory) const {
        std::vector<Range> found;
        for (Address at = part.address; at < part.end(); at += step_) {
            const Step step = has_memory_[number(at)];
            if ((step != empty) != with_memory) continue;
            const bool goes_on = with_memory ? step == further : whole_;
            if (goes_on && !found.empty() && found.back().end() == at) {
                found.back().bytes += step_;
            } else {
                found.push_back({at, step_});
            }
        }
        return found;
    }
    void note(const std::vector<Range>& blocks, bool has_memory) noexcept {
        const std::size_t bytes = has_memory ? total(blocks) : 0 - total(blocks);
        for (const Range& block : blocks) {
            for (Address at = block.address; at < block.end(); at += step_)
                has_memory_[number(at)] = !has_memory ? empty : at == block.address ? first : further;
        }
        committed_bytes_ += bytes;
        if (!whole_) core_.elastic_bytes_ += bytes;
    }
    void check_part(const char* what, std::size_t offset, std::size_t bytes) const {
        if (bytes == 0) refuse(what, offset, bytes, "the size is 0");
        if (offset > this->bytes() || bytes > this->bytes() - offset)
            refuse(what, offset, bytes, "it extends past the end of the range");
    }
    [[noreturn]] void refuse(const char* what, std::size_t offset, std::size_t bytes, const char* why) const {
        misuse({what, " of ", in_bytes(bytes), " at ", in_digits(offset),
                whole_ ? " in a workspace of " : " in an elastic range of ", in_bytes(this->bytes()), " at ",
                in_hex(address()), " in tag ", in_quotes(core_.tag()), ": ", why});
    }
    [[nodiscard]] std::size_t offset_of(Range part) const noexcept { return part.address - address(); }
    [[nodiscard]] std::size_t number(Address at) const noexcept { return (at - address()) / step_; }

    enum Step : char { empty, first, further }; // of a block

    [[nodiscard]] static std::size_t total(const std::vector<Range>& blocks) noexcept {
        std::size_t bytes = 0;
        for (const Range& block : blocks) bytes += block.bytes;
        return bytes;
    }

    ArenaCore& core_;
    const std::size_t step_;
    const bool whole_;
    Range range_;             // nobody else may free what lies here
    Vector<Step> has_memory_; // guarded by the turn
    std::atomic<std::size_t> committed_bytes_{0};
    FreeOrder order_{};
};

// --- elastic ranges: memory ---

/// A mark that has passed once a fence has ended that began after the mark was made. Must not outlive its arena.
class FenceMark final : public WorkMark {
public:
    explicit FenceMark(Frees& fences) : fences_{fences}, last_{fences.last_begun()} {}

    Status query(bool& passed) const noexcept override {
        passed = fences_.last_done() > last_;
        return {};
    }
    Status wait() const noexcept override { return fences_.last_done() > last_ ? Status{} : fences_.drain(); }

private:
    Frees& fences_;
    std::uint64_t last_; // last fence begun when the mark was made
};

inline std::shared_ptr<const WorkMark> ArenaCore::next_fence() { return new_shared<FenceMark>(frees_); }

inline UniquePtr<ElasticRange> ArenaCore::reserve_elastic(std::size_t bytes, std::size_t step, bool whole) {
    const std::size_t capacity = capacity_.load();
    if (whole && capacity != 0 && bytes > capacity) {
        misuse({"tag ", in_quotes(tag_), ": ", in_bytes(bytes), " for a workspace exceed its capacity of ",
                in_bytes(capacity)});
    }
    ElasticRange::round(tag_, bytes, step, granularity_);
    return UniquePtr<ElasticRange>::make(*this, bytes, step, whole);
}

} // namespace memsaver::inline v0_3::detail
