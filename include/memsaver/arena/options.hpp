// Options of an arena's memory and operations, and an allocation request.
#pragma once

#include "memsaver/backup/policy.hpp"
#include "memsaver/core/event.hpp"
#include "memsaver/core/order.hpp"
#include "memsaver/core/sizes.hpp" // for callers that write sizes such as 4_GiB
#include "memsaver/core/text.hpp"

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace memsaver::inline v0_3 {

/// Options of one tag's memory on one device: `saver.arena("lora", HostBackup{}, {.capacity = 4_GiB})`. Sizes in bytes.
struct ArenaOptions {
    /// Upper limit on the physical memory that allocations may make the arena hold. 0: limited only by the device.
    /// Paused memory does not count, and a resume is never refused because of the capacity.
    std::size_t capacity = 0;
    /// Memory allocated up front, in as few handles as possible. Later growth adds to it.
    std::size_t reserve = 0;
    /// Device memory that allocations and resumes leave free. 0: the saver's margin.
    std::size_t margin = 0;
    /// Backs every block by a single handle, so that code that queries the driver for the allocation around a pointer
    /// (registrations with NCCL, UCX or libfabric, exports) sees the whole block. Limitations: a block is at most as
    /// large as one handle; a workspace grows only once; an elastic range has one handle for each step, not one in all;
    /// and the destruction of an elastic range waits for an operation that another thread has in progress. Each handle
    /// costs driver time, and a resume does not merge handles.
    bool single_handle = false;
    /// Receives failures that cannot be thrown. Empty: the saver's sink.
    EventSink events{};
    /// Budget shared by arenas that may take host memory at the same time. A saver's arenas share the saver's budget.
    std::shared_ptr<detail::HostBudget> host_budget{};
    /// For a saver's tag, on all of its devices: whether `use` of other tags, `reclaim` and allocations that evict
    /// (SaverOptions::evict_for_allocations) may pause this tag while it is not in use, even if it was never named in a
    /// `use`. If set, work may touch the tag's memory only during its uses.
    bool evictable = false;
    /// For a saver's tag, on all of its devices: tags with the lowest priority are paused first; among equal
    /// priorities, the least recently used one.
    int priority = 0;
};

/// Options of `pause`, written as `{.order = ..., .timeout = ...}`.
struct PauseOptions {
    /// Work to wait for before pages are released. Default: all work of the devices; on CUDA, that of their primary
    /// contexts. Streams of a context that the program created itself (cuCtxCreate) must be named: `after(stream)`.
    Order order{};
    /// How long to wait for that work, and for other operations on the same tags. Empty: no limit. Does not limit the
    /// wait for copies of an earlier operation that failed, if `order` names streams: a limited wait for the whole
    /// device would break captures.
    TimeLimit timeout{};
    /// Overrides the tag's policy for this pause.
    std::optional<AnyPolicy> bytes{};
};

/// Options of `resume`, written as `{.bytes = ..., .room_within = ...}`.
struct ResumeOptions {
    /// Replaces the saved bytes for this resume by a policy that keeps nothing, such as `Discard{}` when new weights
    /// will be written anyway. The existing backup becomes stale: the next pause saves everything.
    std::optional<AnyPolicy> bytes{};
    /// How long to retry when the device is out of memory, so that others can release some. Empty: no retries. The
    /// maximum of any duration: for ever.
    TimeLimit room_within{};
};

/// `bytes` bytes of memory at `pointer`, which may point into a block. The range may cover part of a block or several
/// blocks.
struct BytesAt {
    const void* pointer = nullptr;
    std::size_t bytes = 0;
};

/// Options of `resume_async`, written as `{.first = {{layer0, bytes0}, {layer1, bytes1}}, .room_within = ...}`.
struct ResumeAsyncOptions {
    /// Ranges to restore first, in this order, of any of the tags; the rest follows. Ranges that are not paused need no
    /// restoring. User-defined policies may ignore the order.
    std::vector<BytesAt> first{};
    /// See ResumeOptions::bytes.
    std::optional<AnyPolicy> bytes{};
    /// See ResumeOptions::room_within.
    TimeLimit room_within{};
};

/// Options of `save`, written as `{.order = ..., .timeout = ...}`.
struct SaveOptions {
    /// Work to wait for before the memory is read: the work that writes it. See PauseOptions::order.
    Order order{};
    /// See PauseOptions::timeout.
    TimeLimit timeout{};
};

/// Options of `exchange`, written as `{.order = ..., .bytes_out = ...}`.
struct ExchangeOptions {
    /// For the tags that are paused: as PauseOptions.
    Order order{};
    TimeLimit timeout{};
    std::optional<AnyPolicy> bytes_out{};
    /// For the tags that are resumed, as ResumeOptions::bytes: a policy that keeps nothing.
    std::optional<AnyPolicy> bytes_in{};
    /// How long to retry when the device has no memory for what the resumed tags need beyond the pages of the paused
    /// tags.
    TimeLimit room_within{};
};

/// Options of `trim`, written as `{.order = ..., .timeout = ...}`.
struct TrimOptions {
    /// Work to wait for first, so that blocks freed before the call count as free. See PauseOptions::order.
    Order order{};
    /// See PauseOptions::timeout.
    TimeLimit timeout{};
};

namespace detail {

/// A requested block: `bytes` bytes aligned to `alignment`, a power of two. With a stream, the block is for work of
/// that stream, and may be a block freed on that stream whose earlier work has not completed yet.
struct Request {
    static constexpr std::size_t default_alignment = 256;

    std::size_t bytes = 0;
    std::size_t alignment = default_alignment;
    std::optional<StreamRef> stream{};

    /// Returns a text such as "allocate(4096 bytes)". For implausibly large sizes, the text asks about a negative
    /// number.
    [[nodiscard, gnu::cold]] std::string text() const;
    /// Throws Misuse, naming `tag`, if the size is 0 or the alignment is not a power of two.
    void check(const std::string& tag) const;
    /// Throws Misuse with the request, the tag and the reason.
    [[noreturn, gnu::cold]] void refuse(const std::string& tag, Bits why) const;
};

} // namespace detail

} // namespace memsaver::inline v0_3
