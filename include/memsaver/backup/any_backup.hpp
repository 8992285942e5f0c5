// Any policy for one kind of driver, and any slot, behind one type each.
#pragma once

#include "memsaver/backup/backup_concept.hpp"

#include <memory>
#include <string_view>
#include <type_traits>
#include <utility>

namespace memsaver::inline v0_1 {

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
    virtual Status close() noexcept = 0;
};

/// A policy of any type, for drivers of type D. Copyable; equal if type and value are.
template <class D>
class AnyBackup {
public:
    template <class P>
    requires(!std::same_as<std::remove_cvref_t<P>, AnyBackup> && Backup<std::remove_cvref_t<P>, D>)
        AnyBackup(P&& policy) // NOLINT(google-explicit-constructor): options take policies as they are
        : policy_{std::make_shared<const Holder<std::remove_cvref_t<P>>>(std::forward<P>(policy))} {}

    [[nodiscard]] std::string_view name() const noexcept { return policy_->name(); }
    [[nodiscard]] std::unique_ptr<AnySlot> open(const D& driver) const { return policy_->open(driver); }
    friend bool operator==(const AnyBackup& a, const AnyBackup& b) { return a.policy_->equals(*b.policy_); }

private:
    struct Base {
        Base() = default;
        Base(const Base&) = delete;
        Base& operator=(const Base&) = delete;
        virtual ~Base() = default;
        [[nodiscard]] virtual std::string_view name() const noexcept = 0;
        [[nodiscard]] virtual std::unique_ptr<AnySlot> open(const D& driver) const = 0;
        [[nodiscard]] virtual bool equals(const Base& other) const = 0;
    };

    template <BackupSlot S>
    struct SlotHolder final : AnySlot {
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
        [[nodiscard]] std::unique_ptr<AnySlot> open(const D& driver) const override {
            const auto open_slot = [&] { return policy.open(driver); };
            return std::make_unique<SlotHolder<decltype(open_slot())>>(open_slot);
        }
        [[nodiscard]] bool equals(const Base& other) const override {
            const auto* same = dynamic_cast<const Holder*>(&other);
            return same != nullptr && same->policy == policy;
        }
        P policy;
    };

    std::shared_ptr<const Base> policy_;
};

} // namespace memsaver::inline v0_1
