// Each driver concept is satisfied by a driver with all methods, and by none that lacks a method of it or violates the
// common requirements of methods.
#include "memsaver/driver/any_driver.hpp"
#include "memsaver/testing/testing.hpp"

#include "support/gullible.hpp"

#include <cstddef>
#include <type_traits>

namespace driver_concepts_test {

using namespace memsaver;
using Whole = test::Gullible;

static_assert(Driver<Whole> && Pages<Whole> && Streams<Whole> && Copies<Whole>);
static_assert(Plain<Whole> && Captures<Whole> && Gates<Whole> && Lanes<Whole> && Trims<Whole> && StreamOwners<Whole>);
static_assert(Peers<Whole> && BatchCopies<Whole> && KernelCopies<Whole> && HostPages<Whole> && Files<Whole> &&
              Shared<Whole> && Named<Whole>);

// A member of the same name hides the inherited one.
// clang-format off
namespace lacking {
struct Memory : Whole { void memory() = delete; };
struct Capturing : Whole { void capturing() = delete; };
struct Fill : Whole { void fill() = delete; };
struct FreePlain : Whole { void free_plain() = delete; };
struct UpdateGraph : Whole { void update_graph() = delete; };
struct FollowOutside : Whole { void follow_outside() = delete; };
struct Lane : Whole { void lane() = delete; };
struct CopyPeer : Whole { void copy_peer() = delete; };
struct CopyMany : Whole { void copy_many() = delete; };
struct CopyByKernel : Whole { void copy_by_kernel() = delete; };
struct TrimPool : Whole { void trim_pool() = delete; };
struct OwnsStream : Whole { void owns_stream() = delete; };
struct NeighboursOf : Whole { void neighbours() = delete; };
struct NameAddresses : Whole { void name_addresses() = delete; };
struct HostAvailable : Whole { void host_available() = delete; };
struct PunchFile : Whole { void punch_file() = delete; };
struct FileCached : Whole { void file_cached() = delete; };
struct Name : Whole { void name(int) = delete; };
struct Comparison : Whole { bool operator==(const Comparison&) const = delete; };
struct Copying : Whole {
    Copying() = default;
    Copying(const Copying&) = delete;
    Copying& operator=(const Copying&) = delete;
};
} // namespace lacking

namespace wrong {
struct ThrowingMap : Whole { Status map(Address, std::size_t, PageHandle) const { return {}; } };
struct ThrowingDevice : Whole { int device() const { return 0; } };
struct ThrowingPin : Whole { Status pin_host(void*, std::size_t) const { return {}; } };
struct ChangingDrain : Whole { Status drain() noexcept { return {}; } };
struct ChangingWrite : Whole { // the written bytes are const
    Status write_file(FileRef, void*, std::size_t, std::size_t) const noexcept { return {}; }
};
struct ThrowingReach : Whole { Status reach_peer(Address, std::size_t) const { return {}; } };
struct VoidFacts : Whole { void file_facts(FileRef, FileFacts&) const noexcept {} };
struct ThrowingName : Whole { void name_addresses(Address, std::size_t, const char*) const {} };
struct VoidRelease : Whole { void release(PageHandle) const noexcept {} };
struct BoolQuery : Whole { bool query(EventRef, bool&) const noexcept { return true; } };
struct NumberName : Whole { int name() const { return 0; } };
} // namespace wrong
// clang-format on

static_assert(!Pages<lacking::Memory> && !Driver<lacking::Memory>);
static_assert(!Streams<lacking::Capturing> && !Copies<lacking::Capturing> && !Driver<lacking::Capturing>);
static_assert(!Copies<lacking::Fill> && !Driver<lacking::Fill>);
static_assert(!Driver<lacking::Name> && !Driver<lacking::Comparison> && !Driver<lacking::Copying>);

// Optional methods.
static_assert(!Plain<lacking::FreePlain> && Driver<lacking::FreePlain>);
static_assert(!Captures<lacking::UpdateGraph> && Driver<lacking::UpdateGraph>);
static_assert(!Gates<lacking::FollowOutside> && Captures<lacking::FollowOutside> && Driver<lacking::FollowOutside>);
static_assert(!Lanes<lacking::Lane> && Driver<lacking::Lane>);
static_assert(!Peers<lacking::CopyPeer> && Driver<lacking::CopyPeer>);
static_assert(!BatchCopies<lacking::CopyMany> && Driver<lacking::CopyMany>);
static_assert(!KernelCopies<lacking::CopyByKernel> && Driver<lacking::CopyByKernel>);
static_assert(!Trims<lacking::TrimPool> && Driver<lacking::TrimPool>);
static_assert(!StreamOwners<lacking::OwnsStream> && Driver<lacking::OwnsStream>);
static_assert(!HostPages<lacking::HostAvailable> && Driver<lacking::HostAvailable>);
static_assert(!Files<lacking::PunchFile> && Driver<lacking::PunchFile>);
static_assert(!Sources<lacking::PunchFile> && !Sources<lacking::FileCached> && Files<lacking::FileCached>);
static_assert(Sources<Whole> && !Sources<wrong::VoidFacts> && Files<wrong::VoidFacts>);
static_assert(!Shared<lacking::NeighboursOf> && Driver<lacking::NeighboursOf>);
static_assert(!Named<lacking::NameAddresses> && Driver<lacking::NameAddresses>);

static_assert(!Pages<wrong::ThrowingMap> && !Driver<wrong::ThrowingDevice> && !HostPages<wrong::ThrowingPin>);
static_assert(!Named<wrong::ThrowingName> && !Peers<wrong::ThrowingReach>);
static_assert(!Streams<wrong::ChangingDrain> && !Files<wrong::ChangingWrite>);
static_assert(!Pages<wrong::VoidRelease> && !Streams<wrong::BoolQuery> && !Driver<wrong::NumberName>);

// FaultyDriver has exactly the methods of its inner driver; AnyDriver has all of them, whatever is inside.
template <class D>
using Faulty = FaultyDriver<D>;
static_assert(Driver<Faulty<Whole>> && Plain<Faulty<Whole>> && Captures<Faulty<Whole>> && Lanes<Faulty<Whole>>);
static_assert(Trims<Faulty<Whole>> && StreamOwners<Faulty<Whole>> && HostPages<Faulty<Whole>> && Files<Faulty<Whole>>);
static_assert(!Plain<Faulty<lacking::FreePlain>> && Captures<Faulty<lacking::FreePlain>>);
static_assert(!Captures<Faulty<lacking::UpdateGraph>> && Plain<Faulty<lacking::UpdateGraph>>);
static_assert(Peers<Faulty<Whole>> && !Peers<Faulty<lacking::CopyPeer>>);
static_assert(BatchCopies<Faulty<Whole>> && !BatchCopies<Faulty<lacking::CopyMany>>);
static_assert(KernelCopies<Faulty<Whole>> && !KernelCopies<Faulty<lacking::CopyByKernel>>);
static_assert(Gates<Faulty<Whole>> && !Gates<Faulty<lacking::FollowOutside>> &&
              Captures<Faulty<lacking::FollowOutside>>);
static_assert(!Lanes<Faulty<lacking::Lane>> && !Trims<Faulty<lacking::TrimPool>>);
static_assert(!StreamOwners<Faulty<lacking::OwnsStream>> && !HostPages<Faulty<lacking::HostAvailable>>);
static_assert(Shared<Faulty<Whole>> && !Shared<Faulty<lacking::NeighboursOf>>);
static_assert(Named<Faulty<Whole>> && !Named<Faulty<lacking::NameAddresses>>);
static_assert(!Files<Faulty<lacking::PunchFile>> && Driver<Faulty<Faulty<Whole>>>);
static_assert(std::is_constructible_v<AnyDriver, lacking::FreePlain>);
static_assert(!std::is_constructible_v<AnyDriver, lacking::Fill> && !std::is_constructible_v<AnyDriver, int>);

} // namespace driver_concepts_test
