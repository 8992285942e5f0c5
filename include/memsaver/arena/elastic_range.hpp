// Addresses reserved up front, at which their owner wants memory step by step. That memory is live blocks of the arena,
// so pause, resume, trim, policies and usage treat it like any other.
#pragma once

#include "memsaver/arena/arena_core.hpp"
#include "memsaver/core/order.hpp"
#include "memsaver/core/ranges.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {

/// A combination of marks; completes once all of them have.
class AllMarks final : public WorkMark {
public:
    explicit AllMarks(std::vector<std::shared_ptr<const WorkMark>> marks) : marks_{std::move(marks)} {}

    MEMSAVER_INLINE Status query(bool& passed) const noexcept override;
    MEMSAVER_INLINE Status wait() const noexcept override;

private:
    std::vector<std::shared_ptr<const WorkMark>> marks_;
};

/// A range of addresses whose steps get and lose memory on demand. Each step with memory, or the steps that got it
/// together if the range is `whole`, is one live block behind handles of its own. The destructor frees addresses and
/// memory as `deallocate` does; failures go to the arena's event sink. After the arena is closed, the destructor does
/// nothing. Must not outlive its arena. Thread-safe: its methods take the arena's turn.
class ElasticRange {
public:
    /// Rounds `step` up to whole pages, and `bytes` up to a multiple of `step`. Throws Misuse if one of them is 0 or
    /// too large.
    static void round(const std::string& tag, std::size_t& bytes, std::size_t& step, std::size_t unit);

    /// Throws the error of a failing driver call.
    ElasticRange(ArenaCore& core, std::size_t bytes, std::size_t step, bool whole);
    ElasticRange(const ElasticRange&) = delete;
    ElasticRange& operator=(const ElasticRange&) = delete;
    ~ElasticRange();

    /// Ensures that a part has memory. Rounds outward to whole steps; steps that have memory are left alone. Throws
    /// Misuse (empty, beyond the range, any of the range paused, closed), OutOfMemory, OutOfHostMemory, or the error of
    /// a failing driver call; then nothing has changed. Waits for an operation that is in progress, and for work that
    /// an earlier release of these steps waits for.
    void commit(std::size_t offset, std::size_t bytes) { commit(outward("commit", offset, bytes)); }

    /// Releases the memory of a part, paused or not. Rounds inward to whole steps. The pages are released at once with
    /// `idle`, otherwise once all work submitted to the device before this call, or the mark, has completed. Throws
    /// Misuse (empty, beyond the range, closed, or a step has no memory), OutOfHostMemory, or the error of a failing
    /// driver call; then nothing has changed. Does not wait, except for an operation that is in progress. Pages that
    /// the driver does not take back are held.
    void release(std::size_t offset, std::size_t bytes, const FreeOrder& order);

    /// If byte `bytes - 1` lies behind the last step with memory, commits the steps from there up to that byte.
    /// Otherwise returns false if there is something to release. Throws as `commit`.
    bool grow(std::size_t bytes);
    /// Releases the steps behind the first `bytes`, rounded up. Throws as `release`.
    void shrink(std::size_t bytes, const FreeOrder& order);

    /// Returns the physical bytes of the whole arena.
    [[nodiscard]] std::size_t physical_bytes() const noexcept { return core_.mapped_bytes(); }
    /// Releases unused memory of the arena; waits for the device if necessary.
    void collect() noexcept { (void)core_.release_unused(true); }

    /// Sets how the destructor frees the memory; by default, after all device work submitted until then.
    void end_as(FreeOrder order) noexcept { order_ = std::move(order); }
    /// A graph owns a whole range from now on: its blocks count no more, but their bytes matter. Throws std::bad_alloc.
    void keep();

    [[nodiscard]] Address address() const noexcept { return range_.address; }
    /// Returns the bytes of reserved addresses, a multiple of `step()`.
    [[nodiscard]] std::size_t bytes() const noexcept { return range_.bytes; }
    /// Returns the size of a step in bytes.
    [[nodiscard]] std::size_t step() const noexcept { return step_; }
    /// Returns the bytes that have memory, or had memory when they were paused.
    [[nodiscard]] std::size_t committed_bytes() const noexcept { return committed_bytes_.load(); }

private:
    Turn::Hold begin(const char* what);
    void commit(Range part);
    /// Waits for the work that pages released here earlier wait for, and releases them.
    void clear_the_way(const std::vector<Range>& missing);
    void give(const std::vector<Range>& going, const FreeOrder& order);
    /// Returns whether leftovers are mapped in any of these ranges, and adds the marks that they wait for to `marks`.
    [[nodiscard]] bool blocked(const std::vector<Range>& ranges,
                               std::vector<std::shared_ptr<const WorkMark>>* marks = nullptr) const;
    /// Frees the addresses, those of pages that could not be released yet together with these pages.
    void free_addresses() noexcept;

    /// These return a part in whole steps, rounded outward or inward. Throw Misuse.
    [[nodiscard]] Range outward(const char* what, std::size_t offset, std::size_t bytes) const;
    [[nodiscard]] Range inward(const char* what, std::size_t offset, std::size_t bytes) const;
    /// Returns what a resize to `bytes` commits and what it releases; both may be empty. Throws Misuse.
    [[nodiscard]] std::pair<Range, Range> resizing(std::size_t bytes) const;
    /// Returns the blocks of a part, or those that it lacks, in order. Requires the turn.
    [[nodiscard]] std::vector<Range> steps(Range part, bool with_memory) const;
    void note(const std::vector<Range>& steps, bool has_memory) noexcept;
    void check_part(const char* what, std::size_t offset, std::size_t bytes) const;
    [[noreturn]] void refuse(const char* what, std::size_t offset, std::size_t bytes, const char* why) const;
    [[nodiscard]] std::size_t offset_of(Range part) const noexcept { return part.address - address(); }
    [[nodiscard]] std::size_t number(Address at) const noexcept { return (at - address()) / step_; }

    enum Step : char { empty, first, further }; // of a block

    [[nodiscard]] static std::size_t total(const std::vector<Range>& blocks) noexcept;

    ArenaCore& core_;
    const std::size_t step_;
    const bool whole_;
    Range range_;                  // nobody else may free what lies here
    std::vector<Step> has_memory_; // guarded by the turn
    std::atomic<std::size_t> committed_bytes_{0};
    FreeOrder order_{};
};

} // namespace detail

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/arena/elastic_range.ipp"
#endif
