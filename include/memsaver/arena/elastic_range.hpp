// A range of addresses that has memory in steps, where and while it is wanted: which steps have some.
// Does not know pages, nor who calls.
#pragma once

#include "memsaver/core/order.hpp"
#include "memsaver/core/ranges.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace memsaver::inline v0_2 {

namespace detail {

/// Owns its addresses and its memory, which is paused, resumed, saved and counted with its arena's: each step that has
/// memory is one live block. Gives both back when it dies, as `deallocate` does; what fails then is told to the arena's
/// event sink. After the arena has been closed it does nothing. Must not outlive its arena. Thread safe.
class ElasticRange {
public:
    ElasticRange(const ElasticRange&) = delete;
    ElasticRange& operator=(const ElasticRange&) = delete;
    virtual ~ElasticRange() { in_all_ -= committed_bytes(); }

    /// Memory behind every byte of a part, rounded outward to whole steps; nothing happens to steps that have some.
    /// Throws Misuse (empty, beyond the range, any of the range paused, closed), OutOfMemory, OutOfHostMemory, or what
    /// a failing driver call stands for; then nothing has changed. Waits for an operation that is under way, and for
    /// work that an earlier release of these steps waits for.
    virtual void commit(std::size_t offset, std::size_t bytes) = 0;

    /// The memory of a part goes, rounded inward to whole steps, paused or not: at once with `idle`, else once the
    /// device's work so far, or the mark, has passed. Throws Misuse (empty, beyond the range, closed, or a step has
    /// none), OutOfHostMemory, or what a failing driver call stands for; then nothing has changed. Does not wait but
    /// for an operation that is under way. What the driver does not take back is held.
    virtual void release(std::size_t offset, std::size_t bytes, FreeOrder order) = 0;

    /// Where byte `bytes - 1` lies behind the last step that has memory, steps from there up to its own get some. False
    /// if it lies before, and there is something to release. Throws as `commit`.
    virtual bool grow(std::size_t bytes) = 0;
    /// Releases what lies behind `bytes`, rounded up. Throws as `release`.
    virtual void shrink(std::size_t bytes, FreeOrder order) = 0;

    /// Physical bytes of the whole arena.
    [[nodiscard]] virtual std::size_t physical_bytes() const noexcept = 0;
    /// Of these, what has been released and goes once work has passed.
    [[nodiscard]] virtual std::size_t waiting_bytes() const noexcept = 0;
    /// Gives back what nobody uses there, waiting for the device if that needs it and it may.
    virtual void collect(bool may_wait) noexcept = 0;

    /// How its end gives its memory up, if not as work of the whole device so far.
    void end_as(FreeOrder order) noexcept { order_ = std::move(order); }

    [[nodiscard]] Address address() const noexcept { return reserved_.address; }
    /// Bytes of addresses, a multiple of `step()`.
    [[nodiscard]] std::size_t bytes() const noexcept { return reserved_.bytes; }
    /// Bytes.
    [[nodiscard]] std::size_t step() const noexcept { return step_; }
    /// Bytes that have memory, or had when they were paused.
    [[nodiscard]] std::size_t committed_bytes() const noexcept { return committed_bytes_.load(); }

protected:
    /// `step` is a multiple of `unit`, after this has rounded it up; both sizes fit. Throws Misuse.
    static void round(const std::string& tag, std::size_t& bytes, std::size_t& step, std::size_t unit);

    /// `in_all`: of its arena.
    ElasticRange(const std::string& tag, std::size_t step, std::atomic<std::size_t>& in_all)
        : tag_{tag}, step_{step}, in_all_{in_all} {}
    /// Of whole steps, none of which has memory. Once, before anything else. May throw bad_alloc.
    void set_range(Range reserved) {
        has_memory_.resize(reserved.bytes / step_);
        reserved_ = reserved;
    }

    /// The part in whole steps. Throws Misuse.
    [[nodiscard]] Range outward(const char* what, std::size_t offset, std::size_t bytes) const;
    [[nodiscard]] Range inward(const char* what, std::size_t offset, std::size_t bytes) const;
    /// What a resize to `bytes` commits, or else releases; both may be empty. Throws Misuse.
    [[nodiscard]] std::pair<Range, Range> resizing(std::size_t bytes) const;
    /// Whether the step that an address lies in has memory.
    [[nodiscard]] bool has_memory(Address at) const noexcept { return has_memory_[number(at)]; }
    /// The steps of a part that have memory, or those that have none, in order. Under the lock of who derives.
    [[nodiscard]] std::vector<Range> steps(Range part, bool with_memory) const;
    /// The same of all that have some, for a release: Misuse if any of the part has none.
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
    std::vector<bool> has_memory_; // of each step
    std::atomic<std::size_t> committed_bytes_{0};
    std::atomic<std::size_t>& in_all_; // committed bytes of all ranges of the arena
};

} // namespace detail

} // namespace memsaver::inline v0_2

#ifndef MEMSAVER_COMPILED
#include "memsaver/arena/elastic_range.ipp"
#endif
