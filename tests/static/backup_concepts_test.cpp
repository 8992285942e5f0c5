// For Backup and BackupSlot a type that satisfies each, and for each expression that they require one that fails it.
#include "memsaver/backup/backup.hpp"

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace backup_concepts_test {

using namespace memsaver;

struct SomeDriver {};

/// A slot that has everything and does nothing.
struct NullSlot {
    void prepare(const LiveSet&) {}
    Ticket save(const LiveSet&) { return {}; }
    Ticket restore(const LiveSet&) { return {}; }
    void resumed() noexcept {}
    void forget(std::uint64_t) noexcept {}
    void invalidate() noexcept {}
    std::size_t backed_up_bytes() const noexcept { return 0; }
};

struct NullPolicy {
    bool operator==(const NullPolicy&) const = default;
    std::string_view name() const noexcept { return "null"; }
    NullSlot open(const SomeDriver&) const { return {}; }
};

static_assert(BackupSlot<NullSlot>);
static_assert(Backup<NullPolicy, SomeDriver>);

// A member of the same name hides the inherited one.
// clang-format off
namespace lacking { // one method each
struct Prepare : NullSlot { void prepare() = delete; };
struct Save : NullSlot { void save() = delete; };
struct Restore : NullSlot { void restore() = delete; };
struct Resumed : NullSlot { void resumed(int) = delete; };
struct Forget : NullSlot { void forget() = delete; };
struct Invalidate : NullSlot { void invalidate(int) = delete; };
struct BackedUpBytes : NullSlot { void backed_up_bytes(int) = delete; };

struct Name : NullPolicy { void name(int) = delete; };
struct Open : NullPolicy { void open() = delete; };
struct Comparison : NullPolicy { bool operator==(const Comparison&) const = delete; };
struct Copying : NullPolicy {
    Copying() = default;
    Copying(const Copying&) = delete;
    Copying& operator=(const Copying&) = delete;
};
} // namespace lacking

namespace wrong { // one promise each
struct PrepareAnswers : NullSlot { int prepare(const LiveSet&) { return 0; } };
struct SaveAnswersNothing : NullSlot { void save(const LiveSet&) {} };
struct RestoreAnswersAStatus : NullSlot { Status restore(const LiveSet&) { return {}; } };
struct ResumedMayThrow : NullSlot { void resumed() {} };
struct ForgetMayThrow : NullSlot { void forget(std::uint64_t) {} };
struct InvalidateMayThrow : NullSlot { void invalidate() {} };
struct BytesMayThrow : NullSlot { std::size_t backed_up_bytes() const { return 0; } };
struct BytesAreNotConst : NullSlot { std::size_t backed_up_bytes() noexcept { return 0; } };
struct BytesAreNegative : NullSlot { long backed_up_bytes() const noexcept { return 0; } };

struct NameMayThrow : NullPolicy { std::string_view name() const { return ""; } };
struct NameIsANumber : NullPolicy { int name() const noexcept { return 0; } };
struct OpenIsNotConst : NullPolicy { NullSlot open(const SomeDriver&) { return {}; } };
struct OpenGivesNoSlot : NullPolicy { lacking::Save open(const SomeDriver&) const { return {}; } };
struct OpenWantsAnotherDriver : NullPolicy { NullSlot open(const NullPolicy&) const { return {}; } };
} // namespace wrong
// clang-format on

static_assert(!BackupSlot<lacking::Prepare>);
static_assert(!BackupSlot<lacking::Save>);
static_assert(!BackupSlot<lacking::Restore>);
static_assert(!BackupSlot<lacking::Resumed>);
static_assert(!BackupSlot<lacking::Forget>);
static_assert(!BackupSlot<lacking::Invalidate>);
static_assert(!BackupSlot<lacking::BackedUpBytes>);
static_assert(!BackupSlot<wrong::PrepareAnswers>);
static_assert(!BackupSlot<wrong::SaveAnswersNothing>);
static_assert(!BackupSlot<wrong::RestoreAnswersAStatus>);
static_assert(!BackupSlot<wrong::ResumedMayThrow>);
static_assert(!BackupSlot<wrong::ForgetMayThrow>);
static_assert(!BackupSlot<wrong::InvalidateMayThrow>);
static_assert(!BackupSlot<wrong::BytesMayThrow>);
static_assert(!BackupSlot<wrong::BytesAreNotConst>);
static_assert(!BackupSlot<wrong::BytesAreNegative>);

static_assert(!Backup<lacking::Name, SomeDriver>);
static_assert(!Backup<lacking::Open, SomeDriver>);
static_assert(!Backup<lacking::Comparison, SomeDriver>);
static_assert(!Backup<lacking::Copying, SomeDriver>);
static_assert(!Backup<wrong::NameMayThrow, SomeDriver>);
static_assert(!Backup<wrong::NameIsANumber, SomeDriver>);
static_assert(!Backup<wrong::OpenIsNotConst, SomeDriver>);
static_assert(!Backup<wrong::OpenGivesNoSlot, SomeDriver>);
static_assert(!Backup<wrong::OpenWantsAnotherDriver, SomeDriver>);
static_assert(!Backup<NullPolicy, int>);
static_assert(!Backup<int, SomeDriver>);

// The policies of the library need a driver that can fill.
static_assert(!Backup<Zero, SomeDriver>);
static_assert(!Backup<Discard, SomeDriver>);

} // namespace backup_concepts_test
