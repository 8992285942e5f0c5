// Backup policies: what happens to the bytes of a paused tag. Defines the concepts for a policy and its slot, and
// AnyPolicy, which holds a policy of any type. Knows nothing about arenas.
#pragma once

#include "memsaver/backup/ticket.hpp"
#include "memsaver/core/closable.hpp"
#include "memsaver/core/pointers.hpp"
#include "memsaver/driver/any_driver.hpp"
#include "memsaver/heap/live_block.hpp"

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {
class DeviceScratch;
class HostBudget;
} // namespace detail

/// Backup bytes that the program may read. `owner` keeps them alive: it owns them or shares them with the backup. If
/// they are shared, the next pause may overwrite them with fresh bytes.
struct BackupView {
    std::shared_ptr<const void> owner{};
    const std::byte* bytes = nullptr;
    std::size_t size_bytes = 0;

    [[nodiscard]] const std::byte* data() const noexcept { return bytes; }
};

/// The memory that an operation concerns, as ranges and, on request, as single blocks.
struct LiveSet {
    /// The mapped ranges that hold the live blocks, sorted by address. They include the free space between blocks.
    /// Cheap to use.
    std::vector<Range> extents;
    /// Returns the live blocks, in no particular order. Each lies in `extents`. The cost is proportional to the number
    /// of blocks; a policy that does not look at single blocks should not call it.
    std::function<std::vector<LiveBlock>()> blocks;
    /// Receives the bytes done and the bytes to do as copies progress. May be empty.
    ProgressSink progress{};
    /// Receives information that the program may want but does not need. May be empty.
    std::function<void(const std::string&)> tell{};
    /// Shared by all operations that may allocate host memory at the same time. May be null.
    std::shared_ptr<detail::HostBudget> host_budget{};
    /// The name of the tag, for error messages.
    std::string tag{};
    /// Restore only. Waits until a range may be written: in an exchange, its pages may still hold bytes that are being
    /// saved. Must be called on the thread that is about to enqueue writes to the range. If it fails, the range must
    /// not be written. May be empty. `asks_before_write` in BackupSlot says which slots call it.
    std::function<Status(Range)> before_write{};
    /// Save only. The ranges of `extents` whose pages are handed over to another tag of the program instead of being
    /// released to the device.
    std::vector<Range> handed_on{};
    /// Restore only. The ranges whose bytes are needed first, in this order. They may overlap and reach beyond
    /// `extents`. Any other order is correct too, but delays threads and streams that wait for these ranges.
    std::vector<Range> first{};
};

namespace detail {

/// `bytes` bytes of a file, starting at `offset`.
struct FileRange {
    std::string path{};
    std::size_t offset = 0;
    std::size_t bytes = 0;
};

} // namespace detail

/// Return type of a slot's `resumed`: void, or the Status of whatever it could not free.
template <class T>
concept VoidOrStatus = std::same_as<T, void> || std::same_as<T, Status>;

/// A slot: holds the bytes of one arena. Methods are called by one thread at a time, except `forget` and
/// `backed_up_bytes`, which may be called at any time. All addresses passed to it are mapped and idle. `prepare`,
/// `save` and `restore` may throw any Error; the arena's memory then stays as it was.
///
/// Required:
/// - `prepare(live)`: allocates ahead of time what saving these blocks would need.
/// - `save(live)`: enqueues copies of these blocks out of the device. The pages are released once the ticket is done.
/// - `restore(live)`: enqueues copies that restore these blocks. Must not consume the saved bytes: it may be repeated.
/// - `resumed()`: the resume succeeded, and the saved copy need no longer be kept. May return a Status for whatever
///   could not be freed and will be retried.
/// - `forget(serial)`: the program gave up this block. Called under the arena's mutex: only update bookkeeping.
/// - `invalidate()`: bytes changed since they were saved.
/// - `backed_up_bytes()`: returns the number of bytes held.
///
/// Optional:
/// - `view(serial, offset, bytes)`: returns a BackupView of a part of a block's backup. Throws Misuse if there is none.
/// - `write(block, offset, from, bytes)`: overwrites a part of the backup of a paused LiveBlock. Throws Misuse if
///   nothing is kept of the block.
/// - `load(block, offset, from, live)`: reads a part of a LiveBlock from a detail::FileRange, now and at later
///   restores. All of the block is mapped. Returns once the bytes have arrived.
/// - `invalidate(block, offset, bytes)`: these bytes of a LiveBlock changed. Without it, `invalidate()` is called
///   instead.
/// - `drop(serial)`: noexcept. The saved bytes of a block that lives on are no longer needed; a later pause saves the
///   block anew. Called as `forget` is. Without it, `invalidate()` is called instead.
/// - `outdated()`: noexcept. A save failed, so saved bytes may be out of date when they are next needed. Without it,
///   `invalidate()` is called instead.
/// - `set_retain(yes)`: noexcept. Whether storage is kept for the next pause after future resumes.
/// - `static constexpr bool asks_before_write = true`: `restore` calls `live.before_write` for each range that it is
///   about to write, as late as possible. Without it, the arena waits for all ranges before it calls `restore`.
/// - `saves_once()`: noexcept. Returns whether saved bytes stay valid until `invalidate`. If true, `save` may also be
///   called ahead of the pause, while the memory is active and stays active.
/// - `saved_in_part(ranges)`: noexcept. An exchange failed once all copies of a save were on their streams: these
///   ranges are saved and now paused. Takes a sorted std::vector<Range>. Required for slots whose tickets can wait for
///   single ranges (`wait_for`).
/// - `scratch()`: noexcept. Returns a std::shared_ptr<detail::DeviceScratch>, always the same one: device memory that
///   `save` and `restore` use in addition to the blocks. The arena counts it, allocates the part that a restore needs
///   together with the pages, and releases it once everything is paused. For slots of this library only.
/// - `close()`: noexcept. Frees everything and returns the first failure; the next call retries the rest. The arena
///   keeps a slot whose `close` failed. Without it, the destructor frees what it can.
template <class S>
concept BackupSlot = requires(S slot, const S& readable, const LiveSet& live, std::uint64_t serial) {
    { slot.prepare(live) } -> std::same_as<void>;
    { slot.save(live) } -> std::same_as<Ticket>;
    { slot.restore(live) } -> std::same_as<Ticket>;
    { slot.resumed() }
    noexcept->VoidOrStatus;
    { slot.forget(serial) }
    noexcept->std::same_as<void>;
    { slot.invalidate() }
    noexcept->std::same_as<void>;
    { readable.backed_up_bytes() }
    noexcept->std::same_as<std::size_t>;
};

/// A policy: a plain, comparable aggregate of options. `name()` is what `usage()` prints; `open(driver)` returns the
/// slot for an arena on that driver. Optional members: `keeps_bytes()`, which returns false if a pause loses the bytes,
/// `describe()`, which returns the options as readable text such as "threads 8, ring 64.00 MiB"; and `normalized()`,
/// which returns the policy as it is kept, for example with relative paths made absolute, and throws Misuse for options
/// that cannot mean anything. It is called when an AnyPolicy is made of the policy.
template <class P>
concept Backup = requires(const P policy, const AnyDriver driver) {
    { policy.name() }
    noexcept->std::convertible_to<std::string_view>;
    { policy.open(driver) } -> BackupSlot;
}
&&std::copyable<P>&& std::equality_comparable<P>; // last, so that optional<AnyPolicy> is comparable

namespace detail {

/// Returns a policy as it is kept.
template <class P>
[[nodiscard]] P normalized(const P& policy) {
    if constexpr (requires {
                      { policy.normalized() } -> std::same_as<P>;
                  }) {
        return policy.normalized();
    } else {
        return policy;
    }
}

/// A type-erased slot. See BackupSlot for the contract of each method.
class AnySlot : public Closable {
public:
    virtual void prepare(const LiveSet& live) = 0;
    virtual Ticket save(const LiveSet& live) = 0;
    virtual Ticket restore(const LiveSet& live) = 0;
    virtual Status resumed() noexcept = 0;
    virtual void forget(std::uint64_t serial) noexcept = 0;
    /// Returns false if the slot has no `drop`.
    virtual bool drop(std::uint64_t serial) noexcept = 0;
    virtual void invalidate() noexcept = 0;
    [[nodiscard]] virtual std::size_t backed_up_bytes() const noexcept = 0;
    [[nodiscard]] virtual BackupView view(std::uint64_t serial, std::size_t offset, std::size_t bytes) const = 0;
    virtual void write(const LiveBlock& block, std::size_t offset, const std::byte* from, std::size_t bytes) = 0;
    /// Returns false if the slot has no `load`.
    virtual bool load(const LiveBlock& block, std::size_t offset, const FileRange& from, const LiveSet& live) = 0;
    virtual void invalidate(const LiveBlock& block, std::size_t offset, std::size_t bytes) = 0;
    virtual void outdated() noexcept = 0;
    /// Returns false if the slot has no `set_retain`. Empty: only asks.
    virtual bool set_retain(std::optional<bool> yes) noexcept = 0;
    [[nodiscard]] virtual bool asks_before_write() const noexcept = 0;
    virtual void saved_in_part(const std::vector<Range>& away) noexcept = 0;
    [[nodiscard]] virtual bool saves_once() const noexcept = 0;
    /// Returns null if the slot has no scratch memory.
    [[nodiscard]] virtual std::shared_ptr<DeviceScratch> scratch() const noexcept { return {}; }
};

} // namespace detail

/// Holds a policy of any type. Copyable. Two are equal if the types and the values of their policies are equal.
class AnyPolicy {
public:
    template <class P>
    requires(!std::same_as<std::remove_cvref_t<P>, AnyPolicy> && Backup<std::remove_cvref_t<P>>)
        AnyPolicy(P&& policy) // NOLINT(google-explicit-constructor): options take policies as they are
        : policy_{detail::translated(
              [&] { return detail::new_shared<const Holder<std::remove_cvref_t<P>>>(detail::normalized(policy)); })} {}

    /// Catches types that look like a policy but are none; the static_assert names the concept that they do not
    /// satisfy.
    template <class P>
    requires(!Backup<P> && requires(const P policy, const AnyDriver driver) { policy.open(driver); })
        AnyPolicy(const P&) { // NOLINT(google-explicit-constructor)
        using Slot = decltype(std::declval<const P&>().open(std::declval<const AnyDriver&>()));
        if constexpr (!BackupSlot<Slot>) {
            static_assert(BackupSlot<Slot>,
                          "a policy's open() must return a type that satisfies the concept BackupSlot");
        } else {
            static_assert(Backup<P>, "a policy must satisfy the concept Backup");
        }
    }

    [[nodiscard]] std::string_view name() const noexcept { return policy_->name(); }
    [[nodiscard]] detail::UniquePtr<detail::AnySlot> open(const AnyDriver& driver) const {
        return policy_->open(driver);
    }
    /// Returns false if a pause loses the bytes. Nothing is saved then, so there is nothing to prepare or invalidate.
    [[nodiscard]] bool keeps_bytes() const noexcept { return policy_->keeps_bytes(); }
    /// Returns the options as readable text, such as "threads 8, ring 64.00 MiB". Empty if the policy does not provide
    /// it.
    [[nodiscard]] std::string describe() const { return policy_->describe(); }
    friend bool operator==(const AnyPolicy& a, const AnyPolicy& b) { return a.policy_->equals(*b.policy_); }

private:
    struct Base {
        Base& operator=(Base&&) = delete;
        virtual ~Base() = default;
        [[nodiscard]] virtual std::string_view name() const noexcept = 0;
        [[nodiscard]] virtual detail::UniquePtr<detail::AnySlot> open(const AnyDriver& driver) const = 0;
        [[nodiscard]] virtual bool keeps_bytes() const noexcept = 0;
        [[nodiscard]] virtual std::string describe() const = 0;
        [[nodiscard]] virtual bool equals(const Base& other) const = 0;
    };

    template <BackupSlot S>
    struct SlotHolder final : detail::AnySlot {
        template <class Open>
        explicit SlotHolder(const Open& open) : slot(open()) {} // from a prvalue, because a slot need not be movable
        void prepare(const LiveSet& live) override { slot.prepare(live); }
        Ticket save(const LiveSet& live) override { return slot.save(live); }
        Ticket restore(const LiveSet& live) override { return slot.restore(live); }
        Status resumed() noexcept override {
            if constexpr (std::same_as<decltype(slot.resumed()), Status>) {
                return slot.resumed();
            } else {
                slot.resumed();
                return {};
            }
        }
        void forget(std::uint64_t serial) noexcept override { slot.forget(serial); }
        bool drop(std::uint64_t serial) noexcept override {
            if constexpr (requires { requires noexcept(slot.drop(serial)); }) return slot.drop(serial), true;
            return false;
        }
        void invalidate() noexcept override { slot.invalidate(); }
        [[nodiscard]] std::size_t backed_up_bytes() const noexcept override { return slot.backed_up_bytes(); }
        [[nodiscard]] BackupView view(std::uint64_t serial, std::size_t offset, std::size_t bytes) const override {
            if constexpr (requires { slot.view(serial, offset, bytes); }) return slot.view(serial, offset, bytes);
            detail::misuse({"the tag's policy keeps no bytes that can be read"});
        }
        void write(const LiveBlock& block, std::size_t offset, const std::byte* from, std::size_t bytes) override {
            if constexpr (requires { slot.write(block, offset, from, bytes); })
                return static_cast<void>(slot.write(block, offset, from, bytes));
            detail::misuse({"the tag's policy keeps no bytes that can be changed"});
        }
        bool set_retain(std::optional<bool> yes) noexcept override {
            if constexpr (requires { requires noexcept(slot.set_retain(true)); }) {
                if (yes) slot.set_retain(*yes);
                return true;
            }
            return false;
        }
        [[nodiscard]] bool asks_before_write() const noexcept override {
            if constexpr (requires { S::asks_before_write; }) return S::asks_before_write;
            return false;
        }
        void saved_in_part(const std::vector<Range>& away) noexcept override {
            if constexpr (requires { slot.saved_in_part(away); }) slot.saved_in_part(away);
        }
        [[nodiscard]] bool saves_once() const noexcept override {
            if constexpr (requires { slot.saves_once(); }) return slot.saves_once();
            return false;
        }
        bool load(const LiveBlock& block, std::size_t offset, const detail::FileRange& from,
                  const LiveSet& live) override {
            if constexpr (requires { slot.load(block, offset, from, live); })
                return slot.load(block, offset, from, live), true;
            return false;
        }
        void invalidate(const LiveBlock& block, std::size_t offset, std::size_t bytes) override {
            if constexpr (requires { slot.invalidate(block, offset, bytes); })
                slot.invalidate(block, offset, bytes);
            else
                slot.invalidate();
        }
        void outdated() noexcept override {
            if constexpr (requires { requires noexcept(slot.outdated()); })
                slot.outdated();
            else
                slot.invalidate();
        }
        [[nodiscard]] std::shared_ptr<detail::DeviceScratch> scratch() const noexcept override {
            if constexpr (requires { requires noexcept(slot.scratch()); }) return slot.scratch();
            return {};
        }
        Status close() noexcept override {
            if constexpr (requires { requires noexcept(Status{slot.close()}); }) return slot.close();
            return {};
        }
        S slot;
    };

    template <class P>
    struct Holder final : Base {
        explicit Holder(P value) : policy{std::move(value)} {}
        [[nodiscard]] std::string_view name() const noexcept override { return policy.name(); }
        [[nodiscard]] detail::UniquePtr<detail::AnySlot> open(const AnyDriver& driver) const override {
            const auto open_slot = [&] { return policy.open(driver); };
            return detail::UniquePtr<SlotHolder<decltype(open_slot())>>::make(open_slot);
        }
        [[nodiscard]] bool keeps_bytes() const noexcept override {
            if constexpr (requires { policy.keeps_bytes(); }) return policy.keeps_bytes();
            return true;
        }
        [[nodiscard]] std::string describe() const override {
            if constexpr (requires { policy.describe(); }) return policy.describe();
            return {};
        }
        [[nodiscard]] bool equals(const Base& other) const override {
            const auto* same = dynamic_cast<const Holder*>(&other);
            return same != nullptr && same->policy == policy;
        }
        P policy;
    };

    std::shared_ptr<const Base> policy_;
};

namespace detail {

/// Describes how two unequal policies differ: `the policy "host" with "threads 8", not "threads 4"`.
std::string difference(const AnyPolicy& has, const AnyPolicy& wanted);

} // namespace detail

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/backup/policy.ipp"
#endif
