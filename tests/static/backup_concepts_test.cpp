// Types that satisfy Backup and BackupSlot, and types that violate one requirement.
#include "memsaver/backup/backup.hpp"
#include "memsaver/backup/verified.hpp"
#include "memsaver/host/host_driver.hpp"

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace backup_concepts_test {
using namespace memsaver;
using namespace memsaver::detail;

/// A slot with all methods, which do nothing.
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
    NullSlot open(const AnyDriver&) const { return {}; }
};

static_assert(BackupSlot<NullSlot>);
static_assert(Backup<NullPolicy>);

// A member of the same name hides the inherited one.
// clang-format off
namespace lacking {
struct Save : NullSlot { void save() = delete; };
struct Forget : NullSlot { void forget() = delete; };
struct Name : NullPolicy { void name(int) = delete; };
struct Comparison : NullPolicy { bool operator==(const Comparison&) const = delete; };
struct Copying : NullPolicy {
    Copying() = default;
    Copying(const Copying&) = delete;
    Copying& operator=(const Copying&) = delete;
};
} // namespace lacking

namespace wrong { // one requirement each
struct PrepareAnswers : NullSlot { int prepare(const LiveSet&) { return 0; } };
struct SaveAnswersNothing : NullSlot { void save(const LiveSet&) {} };
struct RestoreAnswersAStatus : NullSlot { Status restore(const LiveSet&) { return {}; } };
struct ResumedMayThrow : NullSlot { void resumed() {} };
struct ResumedAnswersANumber : NullSlot { int resumed() noexcept { return 0; } };
struct ForgetMayThrow : NullSlot { void forget(std::uint64_t) {} };
struct BytesAreNotConst : NullSlot { std::size_t backed_up_bytes() noexcept { return 0; } };

struct NameMayThrow : NullPolicy { std::string_view name() const { return ""; } };
struct OpenIsNotConst : NullPolicy { NullSlot open(const AnyDriver&) { return {}; } };
struct OpenGivesNoSlot : NullPolicy { lacking::Save open(const AnyDriver&) const { return {}; } };
struct OpenWantsItsOwnDriver : NullPolicy { NullSlot open(const HostDriver&) const { return {}; } };
} // namespace wrong

namespace also_right {
struct ResumedAnswersAStatus : NullSlot { Status resumed() noexcept { return {}; } };
struct OpenTakesAnything : NullPolicy { template <class D> NullSlot open(const D&) const { return {}; } };
} // namespace also_right
// clang-format on

static_assert(BackupSlot<also_right::ResumedAnswersAStatus> && Backup<also_right::OpenTakesAnything>);

static_assert(!BackupSlot<lacking::Save> && !BackupSlot<lacking::Forget>);
static_assert(!BackupSlot<wrong::PrepareAnswers> && !BackupSlot<wrong::SaveAnswersNothing>);
static_assert(!BackupSlot<wrong::RestoreAnswersAStatus> && !BackupSlot<wrong::ResumedMayThrow>);
static_assert(!BackupSlot<wrong::ResumedAnswersANumber> && !BackupSlot<wrong::ForgetMayThrow>);
static_assert(!BackupSlot<wrong::BytesAreNotConst>);

static_assert(!Backup<lacking::Name> && !Backup<lacking::Comparison> && !Backup<lacking::Copying>);
static_assert(!Backup<wrong::NameMayThrow> && !Backup<wrong::OpenIsNotConst> && !Backup<wrong::OpenGivesNoSlot>);
static_assert(!Backup<wrong::OpenWantsItsOwnDriver>);
static_assert(!Backup<int> && !Backup<HostDriver>);

static_assert(Backup<Zero> && Backup<Discard> && Backup<HostBackup> && Backup<FileBackup> && Backup<FileSource>);
static_assert(Backup<Verified<HostBackup>> && Backup<Verified<FileBackup>>);
} // namespace backup_concepts_test
