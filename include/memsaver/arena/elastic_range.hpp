// A range of addresses whose steps get and lose memory on demand: keeps track of which steps have memory. Knows nothing
// about pages or callers.
#pragma once

#include "memsaver/core/order.hpp"
#include "memsaver/core/ranges.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {

/// Owns its addresses and its memory, which is paused, resumed, saved and counted with the arena's: each step with
/// memory is one live block. The destructor frees both as `deallocate` does; failures go to the arena's event sink.
/// After the arena is closed, the destructor does nothing. Must not outlive its arena. Thread-safe.
class ElasticRange {
public:
    ElasticRange(const ElasticRange&) = delete;
    ElasticRange& operator=(const ElasticRange&) = delete;
    virtual ~ElasticRange() { in_all_ -= committed_bytes(); }

    /// Ensures that a part has memory. Rounds outward to whole steps; steps that have memory are left alone. Throws
    /// Misuse (empty, beyond the range, any of the range paused, closed), OutOfMemory, OutOfHostMemory, or the error of
    /// a failing driver call; then nothing has changed. Waits for an operation that is in progress, and for work that
    /// an earlier release of these steps waits for.
    virtual void commit(std::size_t offset, std::size_t bytes) = 0;

    /// Releases the memory of a part, paused or not. Rounds inward to whole steps. The pages are released at once with
    /// `idle`, otherwise once all work submitted to the device before this call, or the mark, has completed. Throws
    /// Misuse (empty, beyond the range, closed, or a step has no memory), OutOfHostMemory, or the error of a failing
    /// driver call; then nothing has changed. Does not wait, except for an operation that is in progress. Pages that
    /// the driver does not take back are held.
    virtual void release(std::size_t offset, std::size_t bytes, FreeOrder order) = 0;

    /// If byte `bytes - 1` lies behind the last step with memory, commits the steps from there up to that byte.
    /// Otherwise returns false if there is something to release. Throws as `commit`.
    virtual bool grow(std::size_t bytes) = 0;
    /// Releases the steps behind the first `bytes`, rounded up. Throws as `release`.
    virtual void shrink(std::size_t bytes, FreeOrder order) = 0;

    /// Returns the physical bytes of the whole arena.
    [[nodiscard]] virtual std::size_t physical_bytes() const noexcept = 0;
    /// Releases unused memory of the arena; waits for the device if necessary.
    virtual void collect() noexcept = 0;

    /// Sets how the destructor frees the memory; by default, after all device work submitted until then.
    void end_as(FreeOrder order) noexcept { order_ = std::move(order); }

    [[nodiscard]] Address address() const noexcept { return reserved_.address; }
    /// Returns the bytes of reserved addresses, a multiple of `step()`.
    [[nodiscard]] std::size_t bytes() const noexcept { return reserved_.bytes; }
    /// Returns the size of a step in bytes.
    [[nodiscard]] std::size_t step() const noexcept { return step_; }
    /// Returns the bytes that have memory, or had memory when they were paused.
    [[nodiscard]] std::size_t committed_bytes() const noexcept { return committed_bytes_.load(); }

protected:
    /// Rounds `step` up to a multiple of `unit`, and `bytes` up to a multiple of `step`. Throws Misuse if one of them
    /// is 0 or too large.
    static void round(const std::string& tag, std::size_t& bytes, std::size_t& step, std::size_t unit);

    /// `in_all`: the arena's counter of committed bytes.
    ElasticRange(const std::string& tag, std::size_t step, std::atomic<std::size_t>& in_all)
        : tag_{tag}, step_{step}, in_all_{in_all} {}
    /// Sets the addresses: whole steps without memory. Called once, before anything else. May throw std::bad_alloc.
    void set_range(Range reserved) {
        has_memory_.resize(reserved.bytes / step_);
        reserved_ = reserved;
    }

    /// These return a part in whole steps, rounded outward or inward. Throw Misuse.
    [[nodiscard]] Range outward(const char* what, std::size_t offset, std::size_t bytes) const;
    [[nodiscard]] Range inward(const char* what, std::size_t offset, std::size_t bytes) const;
    /// Returns what a resize to `bytes` commits and what it releases; both may be empty. Throws Misuse.
    [[nodiscard]] std::pair<Range, Range> resizing(std::size_t bytes) const;
    /// Returns whether the step that contains an address has memory.
    [[nodiscard]] bool has_memory(Address at) const noexcept { return has_memory_[number(at)]; }
    /// Returns the steps of a part that have memory, or those that have none, in order. Requires the derived class's
    /// lock.
    [[nodiscard]] std::vector<Range> steps(Range part, bool with_memory) const;
    /// Returns all steps of a part, for a release. Throws Misuse if any of them has no memory.
    [[nodiscard]] std::vector<Range> all_steps(Range part) const;
    void note(const std::vector<Range>& steps, bool has_memory) noexcept;
    [[noreturn]] void refuse(const char* what, std::size_t offset, std::size_t bytes, const std::string& why) const;
    [[nodiscard]] std::size_t offset_of(Range part) const noexcept { return part.address - reserved_.address; }
    [[nodiscard]] Range range() const noexcept { return reserved_; }

    Range reserved_{}; ///< set once
    FreeOrder order_{};

private:
    [[nodiscard]] std::size_t number(Address address) const noexcept { return (address - reserved_.address) / step_; }
    void check_part(const char* what, std::size_t offset, std::size_t bytes) const;

    std::string tag_;
    std::size_t step_;
    std::vector<bool> has_memory_; // one for each step
    std::atomic<std::size_t> committed_bytes_{0};
    std::atomic<std::size_t>& in_all_; // committed bytes of all ranges of the arena
};

} // namespace detail

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/arena/elastic_range.ipp"
#endif
