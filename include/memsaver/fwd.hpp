// Forward declarations of the types that programs name in their own headers, for members, parameters and return types.
// Cheap to include. The default template arguments of MemorySaver and TaggedArena are only here.
#pragma once

#include "memsaver/core/macros_off.hpp"

#include "memsaver/core/form.hpp"

namespace memsaver::inline v0_3 {

class AnyDriver;
class CudaDriver;
class HostDriver;

class AnyPolicy;
struct Discard;
struct FileBackup;
struct FileSource;
struct HostBackup;
struct Zero;

template <class D = AnyDriver>
class MemorySaver;
template <class D = AnyDriver, class Policy = Discard>
class TaggedArena;
template <class T>
class Buffer;
class Arena;
class Arrival;
class Elastic;
class Gate;
class Hook;
class Region;
class Registration;
class Registrations;
class TagName;
class Tags;
class Use;

class Graph;
class WorkspacePool;

struct ArenaOptions;
struct BytesAt;
struct ElasticOptions;
struct ExchangeOptions;
struct PauseOptions;
struct ReclaimOptions;
struct RegistrationOptions;
struct RegistrationsOptions;
struct ResumeAsyncOptions;
struct ResumeOptions;
struct SaveOptions;
struct SaverOptions;
struct TrimOptions;
struct UseOptions;

struct ArenaUsage;
struct BackupView;
struct Event;
struct Holder;
struct NoRoom;
struct PauseEvent;
/// What hooks of a resume get.
using ResumeEvent = PauseEvent;
struct Reclaimed;
struct Report;
struct ResidencyUsage;
struct TagReport;
class Usage;

class Order;
class StreamRef;

class Error;

namespace detail { // what stands behind them

class ArenaCore;
class ArrivalState;
class CapturedGraph;
class Directory;
class ElasticRange;
struct GateMark;
class GraphKeeps;
class RegistrationBook;
struct RegistrationEntry;
class SaverCore;
class SaverState;
class UseRecord;
struct WantedTag;
struct WorkspacePoolState;

} // namespace detail

} // namespace memsaver::inline v0_3

#include "memsaver/core/macros_on.hpp"
