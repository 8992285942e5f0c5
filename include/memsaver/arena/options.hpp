// What is asked of an arena: the options of its memory and of its operations, and a block.
#pragma once

#include "memsaver/backup/policy.hpp"
#include "memsaver/core/event.hpp"
#include "memsaver/core/order.hpp"
#include "memsaver/core/sizes.hpp" // for those who write sizes

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace memsaver::inline v0_2 {

/// Options of one tag's memory on one device: `saver.arena("lora", HostBackup{}, {.capacity = 4_GiB})`. Sizes in bytes.
struct ArenaOptions {
    /// The most bytes of memory that allocations may make the arena hold; 0: what the device has. What is paused does
    /// not count, and a resume is not refused for it.
    std::size_t capacity = 0;
    /// Bytes of memory taken at once, in as few pieces as can be; later growth comes on top.
    std::size_t reserve = 0;
    /// Bytes of the device's memory that allocations and resumes leave free. 0: the saver's margin, if there is a
    /// saver.
    std::size_t margin = 0;
    /// Every block lies behind one handle, so that who asks the driver for the memory around a pointer (registrations
    /// with NCCL, UCX, libfabric, exports) is told of the whole block. Then a block is as large as one handle can be, a
    /// workspace grows once, each step of an elastic range is one handle (the range has many), and an elastic range
    /// that ends waits for an operation that another thread has under way. Costs time for each handle: a resume joins
    /// none.
    bool single_handle = false;
    /// Told what could not be thrown. Empty: the saver's sink, if there is a saver.
    EventSink events{};
    /// Shared by arenas that may take host memory at the same time; a saver's arenas share the saver's.
    std::shared_ptr<detail::HostBudget> host_budget{};
    /// Of a saver's tag, on all of its devices: whether `use` of other tags and `reclaim` may pause it while nobody
    /// uses it, though it was never named in a `use`. Outside of its uses no work may then touch it.
    bool evictable = false;
    /// Of a saver's tag, on all of its devices: those of the lowest priority are paused first, and of these the one
    /// that was used longest ago.
    int priority = 0;
};

/// Written as `{.order = ..., .timeout = ...}`.
struct PauseOptions {
    /// What to wait for before pages go. By default the devices' work, on CUDA that of their primary contexts; streams
    /// of a context of the program's own (cuCtxCreate) have to be named: `after(stream)`.
    Order order{};
    /// How long to wait for that, and for other operations on the same tags. None: as long as it takes.
    std::optional<std::chrono::nanoseconds> timeout{};
    /// What becomes of the bytes this once, if not what the tag's policy says.
    std::optional<AnyPolicy> bytes{};
};

/// Written as `{.bytes = ..., .room_within = ...}`.
struct ResumeOptions {
    /// What the bytes are this once, if not what was kept: a policy that keeps nothing, such as `Discard{}` where new
    /// weights are coming anyway. What was kept is then stale: the next pause saves everything.
    std::optional<AnyPolicy> bytes{};
    /// How long to try again where there is no room, so that others can make some. None: not at all.
    std::optional<std::chrono::nanoseconds> room_within{};
};

/// `bytes` of memory at `pointer`, which may point into a block; they may be a part of one or reach over several.
struct BytesAt {
    const void* pointer = nullptr;
    std::size_t bytes = 0;
};

/// Written as `{.first = {{layer0, bytes0}, {layer1, bytes1}}, .room_within = ...}`.
struct ResumeAsyncOptions {
    /// Bytes that are wanted first, in this order, of any of the tags; those that are not paused are there already. The
    /// rest comes after. Policies of the program's own may know no order.
    std::vector<BytesAt> first{};
    /// As ResumeOptions::bytes.
    std::optional<AnyPolicy> bytes{};
    /// As ResumeOptions::room_within.
    std::optional<std::chrono::nanoseconds> room_within{};
};

/// Written as `{.order = ..., .timeout = ...}`.
struct SaveOptions {
    /// What to wait for before bytes are read: the work that has written them. As PauseOptions::order.
    Order order{};
    /// As PauseOptions::timeout.
    std::optional<std::chrono::nanoseconds> timeout{};
};

/// Written as `{.order = ..., .bytes_out = ...}`.
struct ExchangeOptions {
    /// Of the tags that go, as for a pause.
    Order order{};
    std::optional<std::chrono::nanoseconds> timeout{};
    std::optional<AnyPolicy> bytes_out{};
    /// Of the tags that come, as for a resume: a policy that keeps nothing.
    std::optional<AnyPolicy> bytes_in{};
    /// How long to try again where there is no room for what the tags that come have more than those that go.
    std::optional<std::chrono::nanoseconds> room_within{};
};

/// Written as `{.order = ..., .timeout = ...}`.
struct TrimOptions {
    /// What to wait for first, so that blocks that were freed before count as free. As PauseOptions::order.
    Order order{};
    /// As PauseOptions::timeout.
    std::optional<std::chrono::nanoseconds> timeout{};
};

namespace detail {

/// A block that is wanted. `bytes` at a multiple of `alignment`, a power of two. With a stream, the block is for work
/// of that stream, and may be one that it has given up but not passed yet.
struct Request {
    static constexpr std::size_t default_alignment = 256;

    std::size_t bytes = 0;
    std::size_t alignment = default_alignment;
    std::optional<StreamRef> stream{};

    /// "allocate(4096 bytes)"; suspects a negative number in what is too large to be meant.
    [[nodiscard]] std::string text() const;
    /// Throws Misuse, naming `tag`, for a size of 0 and an alignment that is no power of two.
    void check(const std::string& tag) const;
};

} // namespace detail

} // namespace memsaver::inline v0_2

#ifndef MEMSAVER_COMPILED
#include "memsaver/arena/options.ipp"
#endif
