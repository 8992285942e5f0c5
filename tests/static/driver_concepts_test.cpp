// For each driver concept a type that satisfies it, and for each expression that it requires one that fails it.
#include "memsaver/driver/concepts.hpp"
#include "memsaver/testing/testing.hpp"

#include <cstddef>
#include <string>

namespace driver_concepts_test {

using namespace memsaver;

/// A machine that has everything and does nothing.
struct NullDriver {
    bool operator==(const NullDriver&) const = default;
    int device() const noexcept { return 0; }
    const char* name() const { return "null"; }

    Status granularity(std::size_t&) const noexcept { return {}; }
    Status memory(DeviceMemory&) const noexcept { return {}; }
    Status reserve(std::size_t, std::size_t, Address&) const noexcept { return {}; }
    Status unreserve(Address, std::size_t) const noexcept { return {}; }
    Status create(std::size_t, PageHandle&) const noexcept { return {}; }
    Status release(PageHandle) const noexcept { return {}; }
    Status map(Address, std::size_t, PageHandle) const noexcept { return {}; }
    Status unmap(Address, std::size_t) const noexcept { return {}; }
    Status allow_access(Address, std::size_t) const noexcept { return {}; }

    Status open_stream(StreamRef&) const noexcept { return {}; }
    Status close_stream(StreamRef) const noexcept { return {}; }
    Status open_event(StreamRef, EventRef&) const noexcept { return {}; }
    Status close_event(EventRef) const noexcept { return {}; }
    Status record(EventRef, StreamRef) const noexcept { return {}; }
    Status record_device(EventRef) const noexcept { return {}; }
    Status follow(StreamRef, EventRef) const noexcept { return {}; }
    Status query(EventRef, bool&) const noexcept { return {}; }
    Status wait(EventRef) const noexcept { return {}; }
    Status drain() const noexcept { return {}; }
    Status capturing(StreamRef, bool&) const noexcept { return {}; }

    Status copy_to_host(void*, Address, std::size_t, StreamRef) const noexcept { return {}; }
    Status copy_to_device(Address, const void*, std::size_t, StreamRef) const noexcept { return {}; }
    Status fill(Address, unsigned char, std::size_t, StreamRef) const noexcept { return {}; }

    Status allocate_plain(std::size_t, Address&) const noexcept { return {}; }
    Status free_plain(Address) const noexcept { return {}; }

    Status begin_capture(StreamRef, CaptureMode) const noexcept { return {}; }
    Status end_capture(StreamRef, GraphRef&) const noexcept { return {}; }
    Status launch(GraphRef, StreamRef) const noexcept { return {}; }
    Status update_graph(StreamRef, GraphRef&) const noexcept { return {}; }
    Status close_graph(GraphRef) const noexcept { return {}; }

    Status lane(Direction, StreamRef&) const noexcept { return {}; }

    Status pool_memory(PoolRef, std::size_t&) const noexcept { return {}; }
    Status trim_pool(PoolRef, std::size_t) const noexcept { return {}; }
    Status owns_stream(StreamRef, bool&) const noexcept { return {}; }

    Status map_host(std::size_t, void*&) const noexcept { return {}; }
    Status unmap_host(void*, std::size_t) const noexcept { return {}; }
    Status populate_host(void*, std::size_t) const noexcept { return {}; }
    Status pin_host(void*, std::size_t) const noexcept { return {}; }
    Status unpin_host(void*) const noexcept { return {}; }
    Status host_available(std::size_t&) const noexcept { return {}; }

    Status open_file(const char*, FileRef&) const noexcept { return {}; }
    Status close_file(FileRef) const noexcept { return {}; }
    Status write_file(FileRef, const void*, std::size_t, std::size_t) const noexcept { return {}; }
    Status read_file(FileRef, void*, std::size_t, std::size_t) const noexcept { return {}; }
    Status allocate_file(FileRef, std::size_t, std::size_t) const noexcept { return {}; }
    Status punch_file(FileRef, std::size_t, std::size_t) const noexcept { return {}; }
};

static_assert(Pages<NullDriver>);
static_assert(Streams<NullDriver>);
static_assert(Copies<NullDriver>);
static_assert(Plain<NullDriver>);
static_assert(Captures<NullDriver>);
static_assert(Lanes<NullDriver>);
static_assert(Trims<NullDriver>);
static_assert(StreamOwners<NullDriver>);
static_assert(HostPages<NullDriver>);
static_assert(Files<NullDriver>);
static_assert(Driver<NullDriver>);

// A member of the same name hides the inherited one.
// clang-format off

namespace lacking { // one method each
struct Granularity : NullDriver { void granularity() = delete; };
struct Memory : NullDriver { void memory() = delete; };
struct Reserve : NullDriver { void reserve() = delete; };
struct Unreserve : NullDriver { void unreserve() = delete; };
struct Create : NullDriver { void create() = delete; };
struct Release : NullDriver { void release() = delete; };
struct Map : NullDriver { void map() = delete; };
struct Unmap : NullDriver { void unmap() = delete; };
struct AllowAccess : NullDriver { void allow_access() = delete; };

struct OpenStream : NullDriver { void open_stream() = delete; };
struct CloseStream : NullDriver { void close_stream() = delete; };
struct OpenEvent : NullDriver { void open_event() = delete; };
struct CloseEvent : NullDriver { void close_event() = delete; };
struct Record : NullDriver { void record() = delete; };
struct RecordDevice : NullDriver { void record_device() = delete; };
struct Follow : NullDriver { void follow() = delete; };
struct Query : NullDriver { void query() = delete; };
struct Wait : NullDriver { void wait() = delete; };
struct Drain : NullDriver { void drain(int) = delete; };
struct Capturing : NullDriver { void capturing() = delete; };

struct CopyToHost : NullDriver { void copy_to_host() = delete; };
struct CopyToDevice : NullDriver { void copy_to_device() = delete; };
struct Fill : NullDriver { void fill() = delete; };

struct AllocatePlain : NullDriver { void allocate_plain() = delete; };
struct FreePlain : NullDriver { void free_plain() = delete; };

struct BeginCapture : NullDriver { void begin_capture() = delete; };
struct EndCapture : NullDriver { void end_capture() = delete; };
struct UpdateGraph : NullDriver { void update_graph() = delete; };
struct Launch : NullDriver { void launch() = delete; };
struct CloseGraph : NullDriver { void close_graph() = delete; };

struct Lane : NullDriver { void lane() = delete; };

struct PoolMemory : NullDriver { void pool_memory() = delete; };
struct TrimPool : NullDriver { void trim_pool() = delete; };
struct OwnsStream : NullDriver { void owns_stream() = delete; };

struct MapHost : NullDriver { void map_host() = delete; };
struct UnmapHost : NullDriver { void unmap_host() = delete; };
struct PopulateHost : NullDriver { void populate_host() = delete; };
struct PinHost : NullDriver { void pin_host() = delete; };
struct UnpinHost : NullDriver { void unpin_host() = delete; };
struct HostAvailable : NullDriver { void host_available() = delete; };

struct OpenFile : NullDriver { void open_file() = delete; };
struct CloseFile : NullDriver { void close_file() = delete; };
struct WriteFile : NullDriver { void write_file() = delete; };
struct ReadFile : NullDriver { void read_file() = delete; };
struct AllocateFile : NullDriver { void allocate_file() = delete; };
struct PunchFile : NullDriver { void punch_file() = delete; };

struct Device : NullDriver { void device(int) = delete; };
struct Name : NullDriver { void name(int) = delete; };
struct Comparison : NullDriver { bool operator==(const Comparison&) const = delete; };
struct Copying : NullDriver {
    Copying() = default;
    Copying(const Copying&) = delete;
    Copying& operator=(const Copying&) = delete;
};
} // namespace lacking
// clang-format on

static_assert(!Pages<lacking::Granularity> && !Driver<lacking::Granularity>);
static_assert(!Pages<lacking::Memory>);
static_assert(!Pages<lacking::Reserve>);
static_assert(!Pages<lacking::Unreserve>);
static_assert(!Pages<lacking::Create>);
static_assert(!Pages<lacking::Release>);
static_assert(!Pages<lacking::Map>);
static_assert(!Pages<lacking::Unmap>);
static_assert(!Pages<lacking::AllowAccess>);

static_assert(!Streams<lacking::OpenStream> && !Copies<lacking::OpenStream> && !Driver<lacking::OpenStream>);
static_assert(!Streams<lacking::CloseStream>);
static_assert(!Streams<lacking::OpenEvent>);
static_assert(!Streams<lacking::CloseEvent>);
static_assert(!Streams<lacking::Record>);
static_assert(!Streams<lacking::RecordDevice>);
static_assert(!Streams<lacking::Follow>);
static_assert(!Streams<lacking::Query>);
static_assert(!Streams<lacking::Wait>);
static_assert(!Streams<lacking::Drain>);
static_assert(!Streams<lacking::Capturing>);

static_assert(!Copies<lacking::CopyToHost> && !Driver<lacking::CopyToHost>);
static_assert(!Copies<lacking::CopyToDevice>);
static_assert(!Copies<lacking::Fill>);

// What a machine may lack.
static_assert(!Plain<lacking::AllocatePlain> && Driver<lacking::AllocatePlain>);
static_assert(!Plain<lacking::FreePlain>);
static_assert(!Captures<lacking::BeginCapture> && Driver<lacking::BeginCapture>);
static_assert(!Captures<lacking::EndCapture>);
static_assert(!Captures<lacking::UpdateGraph>);
static_assert(!Captures<lacking::Launch>);
static_assert(!Captures<lacking::CloseGraph>);
static_assert(!Lanes<lacking::Lane> && Driver<lacking::Lane>);
static_assert(!HostPages<lacking::MapHost> && Driver<lacking::MapHost>);
static_assert(!HostPages<lacking::UnmapHost>);
static_assert(!HostPages<lacking::PopulateHost>);
static_assert(!HostPages<lacking::PinHost>);
static_assert(!HostPages<lacking::UnpinHost>);
static_assert(!HostPages<lacking::HostAvailable>);
static_assert(!Trims<lacking::PoolMemory> && Driver<lacking::PoolMemory>);
static_assert(!Trims<lacking::TrimPool> && Driver<lacking::TrimPool>);
static_assert(!StreamOwners<lacking::OwnsStream> && Driver<lacking::OwnsStream>);
static_assert(!Files<lacking::OpenFile> && Driver<lacking::OpenFile>);
static_assert(!Files<lacking::CloseFile>);
static_assert(!Files<lacking::WriteFile>);
static_assert(!Files<lacking::ReadFile>);
static_assert(!Files<lacking::AllocateFile>);
static_assert(!Files<lacking::PunchFile>);

static_assert(!Driver<lacking::Device>);
static_assert(!Driver<lacking::Name>);
static_assert(!Driver<lacking::Comparison>);
static_assert(!Driver<lacking::Copying>);

// The shapes that a method may not have, on one of each concept.
// clang-format off
namespace wrong {
struct ThrowingMap : NullDriver { Status map(Address, std::size_t, PageHandle) const { return {}; } };
struct ThrowingWait : NullDriver { Status wait(EventRef) const { return {}; } };
struct ThrowingFill : NullDriver { Status fill(Address, unsigned char, std::size_t, StreamRef) const { return {}; } };
struct ThrowingFree : NullDriver { Status free_plain(Address) const { return {}; } };
struct ThrowingLaunch : NullDriver { Status launch(GraphRef, StreamRef) const { return {}; } };
struct ThrowingLane : NullDriver { Status lane(Direction, StreamRef&) const { return {}; } };
struct ThrowingPin : NullDriver { Status pin_host(void*, std::size_t) const { return {}; } };
struct ThrowingTrim : NullDriver { Status trim_pool(PoolRef, std::size_t) const { return {}; } };
struct ThrowingRead : NullDriver { Status read_file(FileRef, void*, std::size_t, std::size_t) const { return {}; } };
struct ThrowingDevice : NullDriver { int device() const { return 0; } };
struct ChangingUnmap : NullDriver { Status unmap(Address, std::size_t) noexcept { return {}; } };
struct ChangingDrain : NullDriver { Status drain() noexcept { return {}; } };
struct ChangingUnpin : NullDriver { Status unpin_host(void*) noexcept { return {}; } };
struct ChangingWrite : NullDriver {
    Status write_file(FileRef, void*, std::size_t, std::size_t) const noexcept { return {}; }
};
struct VoidClose : NullDriver { void close_file(FileRef) const noexcept {} };
struct VoidRelease : NullDriver { void release(PageHandle) const noexcept {} };
struct BoolQuery : NullDriver { bool query(EventRef, bool&) const noexcept { return true; } };
struct LongDevice : NullDriver { long device() const noexcept { return 0; } };
struct NumberName : NullDriver { int name() const { return 0; } };
} // namespace wrong
// clang-format on

static_assert(!Pages<wrong::ThrowingMap>);
static_assert(!Streams<wrong::ThrowingWait>);
static_assert(!Copies<wrong::ThrowingFill>);
static_assert(!Plain<wrong::ThrowingFree>);
static_assert(!Captures<wrong::ThrowingLaunch>);
static_assert(!Lanes<wrong::ThrowingLane>);
static_assert(!HostPages<wrong::ThrowingPin>);
static_assert(!HostPages<wrong::ChangingUnpin>);
static_assert(!Trims<wrong::ThrowingTrim>);
static_assert(!Files<wrong::ThrowingRead>);
static_assert(!Files<wrong::ChangingWrite>); // what is written is const
static_assert(!Files<wrong::VoidClose>);
static_assert(!Driver<wrong::ThrowingDevice>);
static_assert(!Pages<wrong::ChangingUnmap>);
static_assert(!Streams<wrong::ChangingDrain>);
static_assert(!Pages<wrong::VoidRelease>);
static_assert(!Streams<wrong::BoolQuery>);
static_assert(!Driver<wrong::LongDevice>);
static_assert(!Driver<wrong::NumberName>);

// FaultyDriver has what the driver inside has, and no more.
static_assert(Driver<FaultyDriver<NullDriver>> && Plain<FaultyDriver<NullDriver>>);
static_assert(Captures<FaultyDriver<NullDriver>>);
static_assert(Driver<FaultyDriver<lacking::FreePlain>> && !Plain<FaultyDriver<lacking::FreePlain>>);
static_assert(Captures<FaultyDriver<lacking::FreePlain>>);
static_assert(!Captures<FaultyDriver<lacking::Launch>> && Plain<FaultyDriver<lacking::Launch>>);
static_assert(Lanes<FaultyDriver<NullDriver>> && HostPages<FaultyDriver<NullDriver>>);
static_assert(Files<FaultyDriver<NullDriver>>);
static_assert(Trims<FaultyDriver<NullDriver>> && StreamOwners<FaultyDriver<NullDriver>>);
static_assert(!Trims<FaultyDriver<lacking::TrimPool>> && !StreamOwners<FaultyDriver<lacking::OwnsStream>>);
static_assert(!Lanes<FaultyDriver<lacking::Lane>> && HostPages<FaultyDriver<lacking::Lane>>);
static_assert(!HostPages<FaultyDriver<lacking::PinHost>> && Files<FaultyDriver<lacking::PinHost>>);
static_assert(!Files<FaultyDriver<lacking::PunchFile>> && Lanes<FaultyDriver<lacking::PunchFile>>);
static_assert(Driver<FaultyDriver<FaultyDriver<NullDriver>>>);

} // namespace driver_concepts_test
