// What becomes of the bytes of a paused tag: the concepts that a policy and its slot meet, and any policy behind one
// type. They do not know arenas.
#pragma once

#include "memsaver/backup/ticket.hpp"
#include "memsaver/driver/any_driver.hpp"
#include "memsaver/heap/live_block.hpp"

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace memsaver::inline v0_2 {

namespace detail {
class DeviceScratch;
class HostBudget;
} // namespace detail

/// Kept bytes that the program may read. Owns them, or shares them with the backup, whose next pause may write fresh
/// ones to the same place.
struct BackupView {
    std::shared_ptr<const void> owner{};
    const std::byte* bytes = nullptr;
    std::size_t size_bytes = 0;

    [[nodiscard]] const std::byte* data() const noexcept { return bytes; }
};

/// The memory that an operation concerns, seen as coarsely or as finely as a policy needs.
struct LiveSet {
    /// The mapped ranges that hold the live blocks, and whatever lies between them, sorted. Cheap.
    std::vector<Range> extents;
    /// The live blocks that have bytes in them, in no particular order. Where giving pages back failed halfway through
    /// a block, parts of it may lie outside: those are not mapped, or are active: leave them alone. Costs time in
    /// proportion to their number: a policy that does not look at single blocks does not call it.
    std::function<std::vector<LiveBlock>()> blocks;
    /// Told bytes done and bytes to do, as they pass; may be empty.
    ProgressSink progress{};
    /// Told what the program may want to know, but need not; may be empty.
    std::function<void(const std::string&)> tell{};
    /// Shared by all that may take host memory at the same time; may be null.
    std::shared_ptr<detail::HostBudget> host_budget{};
    /// Whose memory it is, for the text of errors.
    std::string tag{};
    /// Of a restore: what the memory held before may still be on its way out. Called on the thread that is about to
    /// have bytes of a range written, it waits until they may be; where it fails, they may not. May be empty. See
    /// BackupSlot for who calls it.
    std::function<Status(Range)> before_write{};
    /// Of a restore: to be told before the whole device is waited for, by a thread that brings bytes: streams may be
    /// waiting for them, and then go on. The bytes count as not brought. May be empty.
    std::function<void()> given_up{};
    /// Of a save: the pages of these, some of `extents`, go to another tag of the program, and not back to the device.
    std::vector<Range> handed_on{};
    /// Of a restore: ranges whose bytes are wanted first, in this order; they may overlap, and reach beyond `extents`.
    /// What is moved in any other order is right as well, and slower for whoever waits for these.
    std::vector<Range> first{};
};

namespace detail {

/// So many bytes of a file, from `offset` on.
struct FileRange {
    std::string path{};
    std::size_t offset = 0;
    std::size_t bytes = 0;
};

} // namespace detail

/// What a slot's `resumed` may answer: nothing, or the Status of what it could not give back.
template <class T>
concept VoidOrStatus = std::same_as<T, void> || std::same_as<T, Status>;

/// What holds the bytes of one arena. One thread at a time, but for `forget` and `backed_up_bytes`, which may be called
/// at any time. All addresses given to it are mapped and idle. It may throw any Error from `prepare`, `save` and
/// `restore`; the arena's memory then stays as it was.
///
/// - `prepare(live)`: takes ahead of time what saving these would take.
/// - `save(live)`: enqueues the copying of these blocks out; the pages go once the ticket is done.
/// - `restore(live)`: enqueues bringing these blocks' bytes back; never consumes them, for it may be repeated.
/// - `resumed()`: the bytes restored last are the program's again, and a copy need no longer be kept. It may answer a
///   Status: what could not be given back, and will be tried again.
/// - `forget(serial)`: the program gave this block up. Called under the arena's locks: only for the books.
/// - `invalidate()`: bytes changed since they were saved.
/// - `backed_up_bytes()`: what is held, in bytes.
/// - `view(serial, offset, bytes)`, if it has it: a BackupView of a part of a block's kept bytes; throws Misuse
///   if there are none.
/// - `write(block, offset, from, bytes)`, if it has it: other bytes for a part of a LiveBlock that is away; throws
/// Misuse
///   if nothing is kept of it.
/// - `load(block, offset, from, live)`, if it has it: a part of a LiveBlock, all of which is mapped, is read from a
///   detail::FileRange, now and by later restores. Returns once the bytes are there.
/// - `invalidate(block, offset, bytes)`, if it has it: these bytes of a LiveBlock changed. Else all have, for that
/// slot.
/// - `outdated()`, if it has it: noexcept; a save failed, so what was saved may be old when it is next needed. Else it
///   is told to `invalidate`.
/// - `set_retain(yes)`, if it has it: noexcept, whether room is kept after the resumes to come, for the next pause.
/// - `static constexpr bool asks_before_write = true`, if it has it: `restore` calls `live.before_write` for the bytes
///   that it is about to bring, as late as it can. Otherwise all that is to be written is waited for before `restore`.
/// - `saves_once()`, if it has it: noexcept, whether what was saved is good until `invalidate`, so that it can be saved
///   ahead of the pause: `save` may then be called while the memory is active and stays so. Else it may not.
/// - `saved_in_part(ranges)`, if it has it: noexcept; a save failed, but these ranges of it had been saved by then, and
///   are away. Needed by slots whose tickets know single ranges (`wait_for`). Takes a sorted std::vector<Range>.
/// - `scratch()`, if it has it: noexcept, a std::shared_ptr<detail::DeviceScratch>: device memory that `save` and
///   `restore` use beside the blocks, always the same. The arena counts it, has it take what a restore wants together
///   with the pages, and gives it back once everything is away. For slots of this library's.
/// - `close()`, if it has it: noexcept, gives everything back and answers the first failure; what is left is tried
///   again by the next call. The arena keeps a slot whose `close` failed. Without it, the destructor does what it can.
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

/// A policy: a plain, comparable aggregate of options. `name()` is what `usage()` prints; `open(driver)` gives the slot
/// that an arena on that driver holds. It may also have `keeps_bytes()`, false if what is paused is lost, and
/// `describe()`, its options for people as "threads 8, ring 64.00 MiB".
template <class P>
concept Backup = requires(const P policy, const AnyDriver driver) {
    { policy.name() }
    noexcept->std::convertible_to<std::string_view>;
    { policy.open(driver) } -> BackupSlot;
}
&&std::copyable<P>&& std::equality_comparable<P>; // last, for optional<AnyPolicy> to be comparable

namespace detail {

/// A slot whose policy has been forgotten. See BackupSlot for what each method promises.
class AnySlot {
public:
    AnySlot() = default;
    AnySlot(const AnySlot&) = delete;
    AnySlot& operator=(const AnySlot&) = delete;
    virtual ~AnySlot() = default;

    virtual void prepare(const LiveSet& live) = 0;
    virtual Ticket save(const LiveSet& live) = 0;
    virtual Ticket restore(const LiveSet& live) = 0;
    virtual Status resumed() noexcept = 0;
    virtual void forget(std::uint64_t serial) noexcept = 0;
    virtual void invalidate() noexcept = 0;
    [[nodiscard]] virtual std::size_t backed_up_bytes() const noexcept = 0;
    [[nodiscard]] virtual BackupView view(std::uint64_t serial, std::size_t offset, std::size_t bytes) const = 0;
    virtual void write(const LiveBlock& block, std::size_t offset, const std::byte* from, std::size_t bytes) = 0;
    /// False if the slot cannot.
    virtual bool load(const LiveBlock& block, std::size_t offset, const FileRange& from, const LiveSet& live) = 0;
    virtual void invalidate(const LiveBlock& block, std::size_t offset, std::size_t bytes) = 0;
    virtual void outdated() noexcept = 0;
    /// False if the slot has no such choice.
    virtual bool set_retain(bool yes) noexcept = 0;
    [[nodiscard]] virtual bool asks_before_write() const noexcept = 0;
    virtual void saved_in_part(const std::vector<Range>& away) noexcept = 0;
    [[nodiscard]] virtual bool saves_once() const noexcept = 0;
    /// Null if the slot has none.
    [[nodiscard]] virtual std::shared_ptr<DeviceScratch> scratch() const noexcept { return {}; }
    virtual Status close() noexcept = 0;
};

} // namespace detail

/// A policy of any type, for drivers of type AnyDriver. Copyable; equal if type and value are.
class AnyPolicy {
public:
    template <class P>
    requires(!std::same_as<std::remove_cvref_t<P>, AnyPolicy> && Backup<std::remove_cvref_t<P>>)
        AnyPolicy(P&& policy) // NOLINT(google-explicit-constructor): options take policies as they are
        : policy_{detail::translated(
              [&] { return std::make_shared<const Holder<std::remove_cvref_t<P>>>(std::forward<P>(policy)); })} {}

    /// What was meant as a policy: the error says what it lacks.
    template <class P>
    requires(!Backup<P> && requires(const P policy, const AnyDriver driver) { policy.open(driver); })
        AnyPolicy(const P&) { // NOLINT(google-explicit-constructor)
        using Slot = decltype(std::declval<const P&>().open(std::declval<const AnyDriver&>()));
        if constexpr (!BackupSlot<Slot>) {
            static_assert(BackupSlot<Slot>, "what a policy opens must satisfy the concept BackupSlot");
        } else {
            static_assert(Backup<P>, "a policy must satisfy the concept Backup");
        }
    }

    [[nodiscard]] std::string_view name() const noexcept { return policy_->name(); }
    [[nodiscard]] std::unique_ptr<detail::AnySlot> open(const AnyDriver& driver) const { return policy_->open(driver); }
    /// False if the bytes of what is paused are lost: nothing is saved, so there is nothing to prepare or invalidate.
    [[nodiscard]] bool keeps_bytes() const noexcept { return policy_->keeps_bytes(); }
    /// Its options for people, "threads 8, ring 64.00 MiB"; empty if it does not say.
    [[nodiscard]] std::string describe() const { return policy_->describe(); }
    friend bool operator==(const AnyPolicy& a, const AnyPolicy& b) { return a.policy_->equals(*b.policy_); }

private:
    struct Base {
        Base() = default;
        Base(const Base&) = delete;
        Base& operator=(const Base&) = delete;
        virtual ~Base() = default;
        [[nodiscard]] virtual std::string_view name() const noexcept = 0;
        [[nodiscard]] virtual std::unique_ptr<detail::AnySlot> open(const AnyDriver& driver) const = 0;
        [[nodiscard]] virtual bool keeps_bytes() const noexcept = 0;
        [[nodiscard]] virtual std::string describe() const = 0;
        [[nodiscard]] virtual bool equals(const Base& other) const = 0;
    };

    template <BackupSlot S>
    struct SlotHolder final : detail::AnySlot {
        template <class Open>
        explicit SlotHolder(const Open& open) : slot(open()) {} // from a prvalue: a slot need not be movable
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
        void invalidate() noexcept override { slot.invalidate(); }
        [[nodiscard]] std::size_t backed_up_bytes() const noexcept override { return slot.backed_up_bytes(); }
        [[nodiscard]] BackupView view(std::uint64_t serial, std::size_t offset, std::size_t bytes) const override {
            if constexpr (requires { slot.view(serial, offset, bytes); }) {
                return slot.view(serial, offset, bytes);
            } else {
                throw Misuse{"the tag's policy keeps no bytes"};
            }
        }
        void write(const LiveBlock& block, std::size_t offset, const std::byte* from, std::size_t bytes) override {
            if constexpr (requires { slot.write(block, offset, from, bytes); }) {
                slot.write(block, offset, from, bytes);
            } else {
                throw Misuse{"the tag's policy keeps no bytes that could be changed"};
            }
        }
        bool set_retain(bool yes) noexcept override {
            if constexpr (requires {
                              { slot.set_retain(yes) }
                              noexcept;
                          }) {
                slot.set_retain(yes);
                return true;
            } else {
                return false;
            }
        }
        [[nodiscard]] bool asks_before_write() const noexcept override {
            if constexpr (requires { S::asks_before_write; }) {
                return S::asks_before_write;
            } else {
                return false;
            }
        }
        void saved_in_part(const std::vector<Range>& away) noexcept override {
            if constexpr (requires { slot.saved_in_part(away); }) slot.saved_in_part(away);
        }
        [[nodiscard]] bool saves_once() const noexcept override {
            if constexpr (requires { slot.saves_once(); }) {
                return slot.saves_once();
            } else {
                return false;
            }
        }
        bool load(const LiveBlock& block, std::size_t offset, const detail::FileRange& from,
                  const LiveSet& live) override {
            if constexpr (requires { slot.load(block, offset, from, live); }) {
                slot.load(block, offset, from, live);
                return true;
            } else {
                return false;
            }
        }
        void invalidate(const LiveBlock& block, std::size_t offset, std::size_t bytes) override {
            if constexpr (requires { slot.invalidate(block, offset, bytes); }) {
                slot.invalidate(block, offset, bytes);
            } else {
                slot.invalidate();
            }
        }
        void outdated() noexcept override {
            if constexpr (requires {
                              { slot.outdated() }
                              noexcept->std::same_as<void>;
                          }) {
                slot.outdated();
            } else {
                slot.invalidate();
            }
        }
        [[nodiscard]] std::shared_ptr<detail::DeviceScratch> scratch() const noexcept override {
            if constexpr (requires {
                              { slot.scratch() }
                              noexcept->std::same_as<std::shared_ptr<detail::DeviceScratch>>;
                          }) {
                return slot.scratch();
            } else {
                return {};
            }
        }
        Status close() noexcept override {
            if constexpr (requires {
                              { slot.close() }
                              noexcept->std::same_as<Status>;
                          }) {
                return slot.close();
            } else {
                return {};
            }
        }
        S slot;
    };

    template <class P>
    struct Holder final : Base {
        explicit Holder(P value) : policy{std::move(value)} {}
        [[nodiscard]] std::string_view name() const noexcept override { return policy.name(); }
        [[nodiscard]] std::unique_ptr<detail::AnySlot> open(const AnyDriver& driver) const override {
            const auto open_slot = [&] { return policy.open(driver); };
            return std::make_unique<SlotHolder<decltype(open_slot())>>(open_slot);
        }
        [[nodiscard]] bool keeps_bytes() const noexcept override {
            if constexpr (requires { policy.keeps_bytes(); }) {
                return policy.keeps_bytes();
            } else {
                return true;
            }
        }
        [[nodiscard]] std::string describe() const override {
            if constexpr (requires { policy.describe(); }) {
                return policy.describe();
            } else {
                return {};
            }
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

/// How two policies that are not equal differ: `the policy "host" with "threads 8", not "threads 4"`.
std::string difference(const AnyPolicy& has, const AnyPolicy& wanted);

} // namespace detail

} // namespace memsaver::inline v0_2

#ifndef MEMSAVER_COMPILED
#include "memsaver/backup/policy.ipp"
#endif
