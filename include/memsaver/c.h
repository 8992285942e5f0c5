// The C interface: savers, tags, regions, pause and resume for programs in C, in C++ before C++20, and in any language
// that can call C. Requires C11 or C++11 and three headers of the C library. Link with libmemsaver.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Conventions
//
// - A function does what the member of its name does in C++: the comments in saver/memory_saver.hpp, arrival.hpp,
//   gate.hpp, use.hpp, elastic.hpp and share/share.hpp say more, such as what it waits for and what a failure leaves.
// - Every function that can fail returns a memsaver_result; memsaver_last_error() returns the error text. No C++
//   exception leaves the library. MEMSAVER_MISUSE: null handles, invalid arguments, unknown tags, a closed saver. Any
//   call that uses the driver may be MEMSAVER_DEVICE_LOST or MEMSAVER_DRIVER_ERROR. Comments name the other errors.
// - Every function is thread-safe. A handle must not be used while or after another thread releases it. Releasing null
//   is a no-op.
// - Sizes are in bytes, times in nanoseconds. Text is null-terminated UTF-8; tag names keep the bytes that the program
//   passed. The library copies its arguments. The only program pointers that it keeps are callbacks and their contexts.
// - Structures begin with their size. Initialize them with their macro (MEMSAVER_OPTIONS_INIT and so on), which sets
//   every field to its default; docs/options.md explains them. A null options pointer means all defaults. A newer
//   library accepts the shorter structures of programs compiled against an older header. An older library rejects a
//   longer structure unless all fields that it does not know are 0.
// - A list of tags is `names` and `count`. Null `names` (with count 0) means every tag. A non-null list with count 0
//   means no tag. With the count MEMSAVER_UNDER, `names` holds one prefix: every tag whose name begins with it. A
//   function for policies that keep bytes is MEMSAVER_MISUSE for a named tag with another, and leaves others out.
// - Out pointers are written on success. Null skips a `report`, and what a comment says "may be null". On failure,
//   handles and pointers are set to null, and a report describes what was done before the failure. memsaver_free_text()
//   frees texts that the library allocates.
// - `bytes` at a `pointer` are in live blocks, and may begin inside one.
// - Callbacks must not throw C++ exceptions or longjmp.
// - Streams are cudaStream_t or CUstream, events cudaEvent_t or CUevent, passed as void*. A null stream is the device's
//   default stream. Null is no event.
// - In a forked child every call is MEMSAVER_MISUSE, except that destroying and releasing handles is a no-op, and so is
//   what would do nothing elsewhere (freeing null).

#define MEMSAVER_INIT(type, ...)                                                                                       \
    { sizeof(type), __VA_ARGS__ }
#if defined(__GNUC__) || defined(__clang__)
#define MEMSAVER_API __attribute__((visibility("default")))
#else
#define MEMSAVER_API
#endif
#ifdef __cplusplus
#define MEMSAVER_NOEXCEPT noexcept
extern "C" {
#else
#define MEMSAVER_NOEXCEPT
#endif

// --- Results ---

/// The result of a call. New values may be added: treat an unknown value as a failure.
typedef enum memsaver_result {
    MEMSAVER_OK = 0,
    MEMSAVER_OUT_OF_MEMORY = 1,       ///< of the device. Nothing changed; succeeds once enough memory is free
    MEMSAVER_OUT_OF_HOST_MEMORY = 2,  ///< the memory concerned is still active
    MEMSAVER_MISUSE = 3,              ///< invalid arguments, or a call in the wrong state; the text gives details
    MEMSAVER_NOT_IDLE = 4,            ///< the device was busy, or a tag in use, at the timeout. Nothing changed
    MEMSAVER_DEVICE_LOST = 5,         ///< or its context. Backups stay readable and closing works
    MEMSAVER_DRIVER_ERROR = 6,        ///< a driver call failed for another reason
    MEMSAVER_UNAVAILABLE = 7,         ///< no usable device or driver, or this machine or this build lacks a feature
    MEMSAVER_BACKUP_DAMAGED = 8,      ///< it does not match its checksum (`verified`, `compressed`); still paused
    MEMSAVER_HOOK_FAILED = 9,         ///< returned non-zero: nothing was done if it runs before, all if it runs after
    MEMSAVER_INTERNAL = 10,           ///< an unknown exception was thrown, for example by a callback
    MEMSAVER_SOURCE_CHANGED = 11,     ///< a file that bytes were loaded from; paused until the original is back
    MEMSAVER_OUT_OF_ADDRESSES = 12,   ///< or mappings; the text names the limit. Nothing changed; memory may be free
    MEMSAVER_PUBLICATION_DAMAGED = 13 ///< somebody wrote bytes that were published
} memsaver_result;

/// Returns the name of a result, such as "MEMSAVER_OUT_OF_MEMORY", or "unknown result". Static.
MEMSAVER_API const char* memsaver_result_name(int32_t result) MEMSAVER_NOEXCEPT;
/// Returns the text, at most 2047 bytes, of this thread's last failure, valid until its next; "" if there was none.
MEMSAVER_API const char* memsaver_last_error(void) MEMSAVER_NOEXCEPT;

/// The details of this thread's last failure. The strings have the same lifetime as the text of memsaver_last_error().
typedef struct memsaver_error {
    size_t size;
    int32_t result;          ///< memsaver_result
    int32_t driver_code;     ///< the driver's error code; 0 if no driver call failed
    const char* driver_name; ///< its name, such as "CUDA_ERROR_INVALID_VALUE"; "" if no driver call failed
    const char* tag;         ///< the tag concerned, truncated to 255 bytes; "" if there is none, or several
    size_t needed_bytes;     ///< for MEMSAVER_OUT_OF_MEMORY: device memory that the call needed
    size_t free_bytes;       ///< and device memory that was free after the failure
} memsaver_error;
#define MEMSAVER_ERROR_INIT MEMSAVER_INIT(memsaver_error, MEMSAVER_OK, 0, "", "", 0, 0)

/// Returns the details of this thread's last failure. Changes them only if this call itself fails.
MEMSAVER_API memsaver_result memsaver_get_last_error(memsaver_error* error) MEMSAVER_NOEXCEPT;
/// Return the version of the loaded library: major * 10000 + minor * 100 + patch, and "0.3.0", which is static.
MEMSAVER_API int memsaver_version(void) MEMSAVER_NOEXCEPT;
MEMSAVER_API const char* memsaver_version_text(void) MEMSAVER_NOEXCEPT;

// --- Handles ---

typedef struct memsaver_saver memsaver_saver; ///< allocates memory by tag, and pauses and resumes it by tag
typedef struct memsaver_arena memsaver_arena; ///< one tag's memory on one device, kept even after memsaver_destroy()
typedef struct memsaver_hook memsaver_hook;   ///< keeps a hook registered
typedef struct memsaver_arrival memsaver_arrival;   ///< copies in flight, of memsaver_resume_async() or memsaver_save()
typedef struct memsaver_gate memsaver_gate;         ///< makes streams and captured graphs wait for bytes in flight
typedef struct memsaver_use memsaver_use;           ///< tags in use, which are therefore not paused
typedef struct memsaver_elastic memsaver_elastic;   ///< addresses in which memory is committed and released in steps
typedef struct memsaver_share memsaver_share;       ///< a membership of the processes that share a device
typedef struct memsaver_lending memsaver_lending;   ///< lends a saver's idle memory to the other members of a share
typedef struct memsaver_attached memsaver_attached; ///< a publication of another process, as a tag of a saver

/// The `count` of a list whose single name is a prefix: every tag whose name begins with it, possibly none.
#define MEMSAVER_UNDER SIZE_MAX

/// The alignment in bytes that an alignment argument of 0 selects.
#define MEMSAVER_DEFAULT_ALIGNMENT 256

// --- Policies: what happens to the bytes of a paused tag ---

typedef enum memsaver_policy_kind {
    MEMSAVER_DISCARD = 0,     ///< undefined after a resume
    MEMSAVER_ZERO = 1,        ///< live blocks read as zero after a resume
    MEMSAVER_HOST_BACKUP = 2, ///< kept in host memory
    MEMSAVER_FILE_BACKUP = 3, ///< kept in an unnamed file that is deleted with the tag
    MEMSAVER_FILE_SOURCE = 4  ///< bytes of memsaver_load() are read again and never saved; others kept in pinned memory
} memsaver_policy_kind;

/// When bytes are saved.
typedef enum memsaver_refresh {
    MEMSAVER_EVERY_PAUSE = 0,
    MEMSAVER_ONCE = 1 ///< at the first pause, and again after memsaver_invalidate()
} memsaver_refresh;

/// The kind of host memory that a MEMSAVER_HOST_BACKUP uses.
typedef enum memsaver_storage {
    MEMSAVER_PINNED = 0,  ///< copied at the full speed of the link; cannot be swapped
    MEMSAVER_PAGEABLE = 1 ///< ordinary memory, copied through a bounded ring of pinned buffers
} memsaver_storage;

/// A policy and its options. Fields that do not apply to its kind are ignored.
typedef struct memsaver_policy {
    size_t size;
    int32_t kind;          ///< memsaver_policy_kind
    int32_t poison;        ///< MEMSAVER_DISCARD: the byte (0 to 255) that resumed memory is filled with; -1: none
    int32_t refresh;       ///< backups: memsaver_refresh
    int32_t storage;       ///< MEMSAVER_HOST_BACKUP: memsaver_storage
    bool retain;           ///< backups: keep host memory or disk space after a resume; must be true with MEMSAVER_ONCE
    bool check;            ///< with MEMSAVER_ONCE: a pause is MEMSAVER_MISUSE if bytes changed without an invalidate
    bool verified;         ///< backups: checksums; MEMSAVER_UNAVAILABLE if the library was built without xxHash
    uint32_t threads;      ///< backups: threads per copy, up to 1024; 0: 8, for a file 4
    size_t ring_bytes;     ///< backups: the most pinned memory for copies; 0: 64 MiB, for a file 256, a source 32
    const char* directory; ///< MEMSAVER_FILE_BACKUP: the directory of the file; required
    bool compressed; ///< backups: compressed losslessly on the device; MEMSAVER_UNAVAILABLE if a GPU lacks nvCOMP 6
} memsaver_policy;
#define MEMSAVER_POLICY_INIT                                                                                           \
    MEMSAVER_INIT(memsaver_policy, MEMSAVER_DISCARD, -1, MEMSAVER_EVERY_PAUSE, MEMSAVER_PINNED, true, false, false, 0, \
                  0, NULL, false)

// --- Savers ---

/// Where a saver's memory comes from.
typedef enum memsaver_driver {
    MEMSAVER_DRIVER_DEFAULT = 0, ///< the GPU if a usable one exists, else host memory
    MEMSAVER_DRIVER_CUDA = 1,    ///< the GPU; MEMSAVER_UNAVAILABLE if there is none
    MEMSAVER_DRIVER_HOST = 2     ///< this process's memory; touching it while it is paused is a segmentation fault
} memsaver_driver;

/// The handle type with which a GPU's pages can be exported to other processes.
typedef enum memsaver_export {
    MEMSAVER_EXPORT_NONE = 0,
    MEMSAVER_EXPORT_FILE_DESCRIPTOR = 1,
    MEMSAVER_EXPORT_FABRIC = 2
} memsaver_export;

/// Which uses of an unknown name create a tag.
typedef enum memsaver_new_tags {
    MEMSAVER_NEW_TAGS_ALLOWED = 0,
    MEMSAVER_NEW_TAGS_WITH_POLICY = 1 ///< others are MEMSAVER_MISUSE, because the name may be mistyped
} memsaver_new_tags;

typedef enum memsaver_event_kind {
    MEMSAVER_EVENT_IGNORED = 0,   ///< a failure that no call could return
    MEMSAVER_EVENT_RETRIED = 1,   ///< the device was out of memory; unused memory was released and the call retried
    MEMSAVER_EVENT_TRIMMED = 2,   ///< unused memory was released
    MEMSAVER_EVENT_FELL_BACK = 3, ///< a slower fallback is used instead of the requested method
    MEMSAVER_EVENT_WARNED = 4,    ///< the request was carried out, but may be a mistake
    MEMSAVER_EVENT_BEGAN = 5,     ///< a pause, resume, trim, save or restore began; `ended` always follows
    MEMSAVER_EVENT_ENDED = 6,
    MEMSAVER_EVENT_PROGRESS = 7 ///< `bytes_done` of `bytes_total` have been copied
} memsaver_event_kind;

/// A message from the library to the program. Strings are valid during the call. New fields are added at the end.
typedef struct memsaver_event {
    size_t size;
    int32_t kind; ///< memsaver_event_kind; ignore unknown values
    int32_t device;
    const char* tag; ///< "" if the event does not concern a single tag
    const char* text;
    size_t bytes_done;
    size_t bytes_total;
} memsaver_event;

/// Called on the thread that reports the event, possibly with a lock held. Must not call the saver.
typedef void (*memsaver_event_function)(void* context, const memsaver_event* event);

/// Describes a call that is out of device memory although unused memory was released first.
typedef struct memsaver_no_room {
    size_t size;
    size_t bytes;      ///< device memory that the call needs; 0 if the failed call did not request bytes
    size_t free_bytes; ///< free device memory at the time of the query, the margin included
    int32_t device;
    const char* tag;      ///< the tag that needs the memory; "" if there are several
    size_t missing_bytes; ///< device memory missing for the call and its margin; at least 1
} memsaver_no_room;

/// Called before MEMSAVER_OUT_OF_MEMORY is returned, on the thread that needs the memory, with no lock held. May free,
/// pause and drop. Returns non-zero to retry, up to 100 times for one call, 0 if it could not release anything.
typedef int (*memsaver_no_room_function)(void* context, const memsaver_no_room* need);

/// Options of memsaver_create().
typedef struct memsaver_options {
    size_t size;
    int32_t driver; ///< memsaver_driver
    int32_t device; ///< the GPU's number; for host memory, a number for display only
    bool enabled;   ///< false: plain allocations; pause and resume check their tags and do nothing else
    bool rdma;      ///< GPU: allocate pages that network cards and other devices can access directly, where supported
    int32_t export_handles;                ///< GPU: memsaver_export
    size_t margin;                         ///< bytes of each device's memory that allocations and resumes leave free
    const memsaver_policy* default_policy; ///< of new tags that name none; null: MEMSAVER_DISCARD, with a warning
    size_t host_capacity;    ///< host memory: used only as it is touched; 0: half of the physical memory, at most 8 GiB
    size_t host_granularity; ///< host memory: bytes of a page, a power of two, at least the system's; 0: 2 MiB
    const int* peers;        ///< GPU: numbers of `peer_count` other devices that may read and write the pages
    size_t peer_count;
    const char* cuda_library; ///< GPU: the driver library's name or path; null: "libcuda.so.1"
    /// Callbacks; null: none. They and their contexts must outlive the saver and its arenas.
    memsaver_no_room_function on_no_room;
    void* on_no_room_context;
    memsaver_event_function on_event;
    void* on_event_context;
    int32_t new_tags;           ///< memsaver_new_tags
    bool evict_for_allocations; ///< allocations and resumes pause idle tags, as memsaver_begin_use() does
    const char* host_machine;   ///< host memory: savers of this user with this name, of at most 64 characters, share it
    memsaver_share* share;      ///< takes the memory as its member, on its device, whatever these options select
} memsaver_options;
#define MEMSAVER_OPTIONS_INIT                                                                                          \
    MEMSAVER_INIT(memsaver_options, MEMSAVER_DRIVER_DEFAULT, 0, true, false, MEMSAVER_EXPORT_NONE, 0, NULL, 0, 0,      \
                  NULL, 0, NULL, NULL, NULL, NULL, NULL, MEMSAVER_NEW_TAGS_ALLOWED, false, NULL, NULL)

/// Returns MEMSAVER_OK if a saver can be created with MEMSAVER_DRIVER_CUDA on this device, else MEMSAVER_UNAVAILABLE
/// with the reason in memsaver_last_error(). Creates no context.
MEMSAVER_API memsaver_result memsaver_gpu_available(int device) MEMSAVER_NOEXCEPT;
/// Returns the number of GPUs that the driver reports, usable or not; 0 if there is no driver.
MEMSAVER_API int memsaver_gpu_count(void) MEMSAVER_NOEXCEPT;
/// Creates a saver. Errors: MEMSAVER_UNAVAILABLE.
MEMSAVER_API memsaver_result memsaver_create(const memsaver_options* options, memsaver_saver** saver) MEMSAVER_NOEXCEPT;
/// Releases every tag, block and backup, and ends open regions. On failure, still tries the rest; may be called again.
MEMSAVER_API memsaver_result memsaver_close(memsaver_saver* saver) MEMSAVER_NOEXCEPT;
/// Destroys the handle. Memory is released now, or with the last arena obtained from the saver. Failures go to
/// `on_event`.
MEMSAVER_API void memsaver_destroy(memsaver_saver* saver) MEMSAVER_NOEXCEPT;

/// A saver's driver and device. `free_bytes` and `total_bytes` are those of the whole device, across all processes.
typedef struct memsaver_info {
    size_t size;
    int32_t driver; ///< MEMSAVER_DRIVER_CUDA or MEMSAVER_DRIVER_HOST
    int32_t device;
    bool enabled;
    size_t granularity; ///< page granularity in bytes
    size_t free_bytes;
    size_t total_bytes;
    char name[128]; ///< "NVIDIA H200 (CUDA device 0)"; truncated if longer
} memsaver_info;
#define MEMSAVER_INFO_INIT MEMSAVER_INIT(memsaver_info, 0, 0, false, 0, 0, 0, "")

MEMSAVER_API memsaver_result memsaver_get_info(memsaver_saver* saver, memsaver_info* info) MEMSAVER_NOEXCEPT;
/// Sets memsaver_options.margin from now on. Does not affect tags that have a margin of their own.
MEMSAVER_API memsaver_result memsaver_set_margin(memsaver_saver* saver, size_t bytes) MEMSAVER_NOEXCEPT;

// --- Tags and arenas ---

/// Options of a tag on a device. For an existing tag, every option that is not at its default must match.
typedef struct memsaver_arena_options {
    size_t size;
    const memsaver_policy* policy; ///< null: the saver's default
    size_t capacity;  ///< the most bytes, paused ones not counted, that allocations may make it hold; 0: no limit
    size_t reserve;   ///< bytes of memory to allocate immediately, in as few handles as possible
    size_t margin;    ///< bytes of device memory that its allocations and resumes leave free; 0: the saver's margin
    int32_t device;   ///< the number of another GPU, used with the saver's driver options; -1: the saver's
    bool evictable;   ///< others may pause the tag even if no use ever named it, unless it is in use
    int32_t priority; ///< tags of the lowest priority are paused first, the least recently used one first among equals
} memsaver_arena_options;
#define MEMSAVER_ARENA_OPTIONS_INIT MEMSAVER_INIT(memsaver_arena_options, NULL, 0, 0, 0, -1, false, 0)

/// Makes a tag if it does not exist. MEMSAVER_MISUSE if the tag exists with another policy.
MEMSAVER_API memsaver_result memsaver_make_tag(memsaver_saver* saver, const char* tag,
                                               const memsaver_arena_options* options) MEMSAVER_NOEXCEPT;
/// Likewise, and returns a handle to its memory on the device, through which allocating needs no lookup.
MEMSAVER_API memsaver_result memsaver_get_arena(memsaver_saver* saver, const char* tag,
                                                const memsaver_arena_options* options,
                                                memsaver_arena** arena) MEMSAVER_NOEXCEPT;
/// Releases the handle, but not the tag or its blocks.
MEMSAVER_API void memsaver_release_arena(memsaver_arena* arena) MEMSAVER_NOEXCEPT;
/// Waits for the device, then releases all that these tags have. Names and arenas are then MEMSAVER_MISUSE.
MEMSAVER_API memsaver_result memsaver_drop(memsaver_saver* saver, const char* const* names,
                                           size_t count) MEMSAVER_NOEXCEPT;
/// Sets memsaver_arena_options.capacity from now on, on each device. Memory that is already mapped stays.
MEMSAVER_API memsaver_result memsaver_set_capacity(memsaver_saver* saver, const char* const* names, size_t count,
                                                   size_t bytes) MEMSAVER_NOEXCEPT;
/// Sets memsaver_policy.retain from the next resume on, for policies that keep bytes.
MEMSAVER_API memsaver_result memsaver_set_retain(memsaver_saver* saver, const char* const* names, size_t count,
                                                 bool retain) MEMSAVER_NOEXCEPT;

// --- Blocks ---

/// Allocates `bytes` of memory aligned to `alignment` (a power of two; 0: 256), with undefined content, usable on every
/// stream at once, from `tag`, which is made if it does not exist; null: from this thread's innermost region. 0 bytes
/// succeed with a null pointer, whatever the tag. Errors: MEMSAVER_OUT_OF_MEMORY, MEMSAVER_OUT_OF_HOST_MEMORY.
MEMSAVER_API memsaver_result memsaver_allocate(memsaver_saver* saver, const char* tag, size_t bytes, size_t alignment,
                                               void** pointer) MEMSAVER_NOEXCEPT;
/// Likewise, for work on `stream`. Reuses at once a block of about the same size that was freed with this stream. Other
/// streams must be ordered after `stream`.
MEMSAVER_API memsaver_result memsaver_allocate_on(memsaver_saver* saver, const char* tag, size_t bytes,
                                                  size_t alignment, void* stream, void** pointer) MEMSAVER_NOEXCEPT;
/// Frees a block of any tag, paused or active, on any thread. As safe as cudaFree: the block is not reused until all
/// work submitted to the device before this call has completed.
MEMSAVER_API memsaver_result memsaver_deallocate(memsaver_saver* saver, void* pointer) MEMSAVER_NOEXCEPT;
/// Likewise; the block is reused once `stream`, of its device, has completed all work submitted to it before this call.
MEMSAVER_API memsaver_result memsaver_deallocate_on(memsaver_saver* saver, void* pointer,
                                                    void* stream) MEMSAVER_NOEXCEPT;
/// Likewise, for a block that no work touches any more: reused at once.
MEMSAVER_API memsaver_result memsaver_deallocate_idle(memsaver_saver* saver, void* pointer) MEMSAVER_NOEXCEPT;
/// The same functions for one arena. They work for as long as the arena's handle exists.
MEMSAVER_API memsaver_result memsaver_arena_allocate(memsaver_arena* arena, size_t bytes, size_t alignment,
                                                     void** pointer) MEMSAVER_NOEXCEPT;
MEMSAVER_API memsaver_result memsaver_arena_allocate_on(memsaver_arena* arena, size_t bytes, size_t alignment,
                                                        void* stream, void** pointer) MEMSAVER_NOEXCEPT;
MEMSAVER_API memsaver_result memsaver_arena_deallocate(memsaver_arena* arena, void* pointer) MEMSAVER_NOEXCEPT;
MEMSAVER_API memsaver_result memsaver_arena_deallocate_on(memsaver_arena* arena, void* pointer,
                                                          void* stream) MEMSAVER_NOEXCEPT;
MEMSAVER_API memsaver_result memsaver_arena_deallocate_idle(memsaver_arena* arena, void* pointer) MEMSAVER_NOEXCEPT;
/// Returns whether `pointer` is in a live block of this saver, paused or not, plain memory included. False on errors.
MEMSAVER_API bool memsaver_owns(memsaver_saver* saver, const void* pointer) MEMSAVER_NOEXCEPT;
/// Returns whether any of `bytes` at `pointer` are paused or being paused. False for bytes that memsaver_resume_async()
/// is restoring, for memory that is not live blocks, and on errors.
MEMSAVER_API bool memsaver_is_paused(memsaver_saver* saver, const void* pointer, size_t bytes) MEMSAVER_NOEXCEPT;
/// Copies the backup of `bytes` at `pointer` to host memory at `to`. MEMSAVER_MISUSE says why there is none.
MEMSAVER_API memsaver_result memsaver_read_backup(memsaver_saver* saver, const void* pointer, size_t bytes,
                                                  void* to) MEMSAVER_NOEXCEPT;
/// Replaces the backup of `bytes` of paused memory at `pointer` by those at `from` in host memory. The next resume
/// restores them; with MEMSAVER_ONCE they count as saved. If a file cannot be written, repeat the call.
MEMSAVER_API memsaver_result memsaver_write_backup(memsaver_saver* saver, void* pointer, const void* from,
                                                   size_t bytes) MEMSAVER_NOEXCEPT;

// --- Regions: where a thread's memsaver_allocate(saver, NULL, ...) allocates ---

/// Begins a region: until the matching pop, this thread's allocations without a tag come from `tag`, which is made if
/// it does not exist. An inner region overrides an outer one. Blocks outlive them.
MEMSAVER_API memsaver_result memsaver_push_region(memsaver_saver* saver, const char* tag) MEMSAVER_NOEXCEPT;
/// Begins a region of an arena of this saver, on whichever device the arena is.
MEMSAVER_API memsaver_result memsaver_push_arena(memsaver_saver* saver, memsaver_arena* arena) MEMSAVER_NOEXCEPT;
/// Begins a region of plain memory, which is never paused.
MEMSAVER_API memsaver_result memsaver_push_outside(memsaver_saver* saver) MEMSAVER_NOEXCEPT;
/// Ends this thread's innermost region. Those that a thread leaves open end when the saver is closed or destroyed.
MEMSAVER_API memsaver_result memsaver_pop_region(memsaver_saver* saver) MEMSAVER_NOEXCEPT;

// --- Pause and resume ---

/// What an operation did: sums over all tags concerned, in physical bytes unless stated otherwise.
typedef struct memsaver_report {
    size_t size;
    size_t released_bytes; ///< released to the device, including previously held bytes
    size_t saved_bytes;    ///< copied to backups
    size_t restored_bytes; ///< copied or filled from backups
    size_t mapped_bytes;   ///< taken from the device, or from a tag paused by the same exchange
    size_t handed_bytes;   ///< of the mapped bytes, those handed over by an exchange without being released
    size_t held_bytes;     ///< could not be released yet; the next call retries
    int64_t elapsed_ns;    ///< the whole call, hooks excluded
    int64_t waited_ns;     ///< waiting for devices before the operation: the maximum over all tags
} memsaver_report;
#define MEMSAVER_REPORT_INIT MEMSAVER_INIT(memsaver_report, 0, 0, 0, 0, 0, 0, 0, 0)

/// What a pause, a trim or an exchange waits for.
typedef enum memsaver_order {
    MEMSAVER_AFTER_DEVICE = 0,  ///< all work submitted to every device before the call. Breaks a stream capture
    MEMSAVER_AFTER_STREAMS = 1, ///< work submitted to `streams` before the call, and `events`; there must be no other
    MEMSAVER_ALREADY_IDLE = 2   ///< nothing: no work touches the memory any more
} memsaver_order;

/// Options of a pause or a trim.
typedef struct memsaver_pause_options {
    size_t size;
    int32_t order;        ///< memsaver_order
    void* const* streams; ///< for MEMSAVER_AFTER_STREAMS; a null stream is that of every device concerned
    size_t stream_count;
    void* const* events;
    size_t event_count;
    int64_t timeout_ns;           ///< for that, and for other operations on the tags. Negative: no limit
    const memsaver_policy* bytes; ///< this once; null: the tag's. Not for a trim
} memsaver_pause_options;
#define MEMSAVER_PAUSE_OPTIONS_INIT                                                                                    \
    MEMSAVER_INIT(memsaver_pause_options, MEMSAVER_AFTER_DEVICE, NULL, 0, NULL, 0, -1, NULL)

/// Releases the physical pages of these tags to the device and keeps their addresses. Waits first, as the options say;
/// the program must stop submitting work that touches the memory. Each tag's policy decides what happens to its bytes.
/// Errors: MEMSAVER_NOT_IDLE, MEMSAVER_OUT_OF_HOST_MEMORY, MEMSAVER_HOOK_FAILED.
MEMSAVER_API memsaver_result memsaver_pause(memsaver_saver* saver, const char* const* names, size_t count,
                                            const memsaver_pause_options* options,
                                            memsaver_report* report) MEMSAVER_NOEXCEPT;

/// Options of a resume.
typedef struct memsaver_resume_options {
    size_t size;
    const memsaver_policy* bytes; ///< one that keeps no bytes, this once: the backup is then stale. Null: restore it
    int64_t room_within_ns;       ///< how long to retry while out of memory. Negative: not at all; INT64_MAX: for ever
} memsaver_resume_options;
#define MEMSAVER_RESUME_OPTIONS_INIT MEMSAVER_INIT(memsaver_resume_options, NULL, -1)

/// Maps new pages at the same addresses and restores the bytes that the policies kept, in the order of the list; all
/// or, if memory does not suffice, nothing. On return every stream sees the bytes. Errors: as memsaver_pause(),
/// MEMSAVER_OUT_OF_MEMORY and MEMSAVER_BACKUP_DAMAGED.
MEMSAVER_API memsaver_result memsaver_resume(memsaver_saver* saver, const char* const* names, size_t count,
                                             const memsaver_resume_options* options,
                                             memsaver_report* report) MEMSAVER_NOEXCEPT;

/// Options of an exchange.
typedef struct memsaver_exchange_options {
    size_t size;
    const memsaver_pause_options* pausing;   ///< for the tags of `out`. Null: all defaults
    const memsaver_resume_options* resuming; ///< for the tags of `in`. Null: all defaults
} memsaver_exchange_options;
#define MEMSAVER_EXCHANGE_OPTIONS_INIT MEMSAVER_INIT(memsaver_exchange_options, NULL, NULL)

/// Pauses the tags of `out` and resumes those of `in`, in the pages of `out` and with both copies at once. Waits, runs
/// hooks and fails like a pause of `out` followed by a resume of `in`; memory_saver.hpp says what holds then. Until the
/// call returns, no memory of either list may be touched.
MEMSAVER_API memsaver_result memsaver_exchange(memsaver_saver* saver, const char* const* out_names, size_t out_count,
                                               const char* const* in_names, size_t in_count,
                                               const memsaver_exchange_options* options,
                                               memsaver_report* report) MEMSAVER_NOEXCEPT;
/// Returns the physical bytes that resuming these tags would take now.
MEMSAVER_API memsaver_result memsaver_bytes_to_resume(memsaver_saver* saver, const char* const* names, size_t count,
                                                      size_t* bytes) MEMSAVER_NOEXCEPT;
/// Releases pages that hold no live block. Waits like a pause, so that blocks freed before the call count as free.
MEMSAVER_API memsaver_result memsaver_trim(memsaver_saver* saver, const char* const* names, size_t count,
                                           const memsaver_pause_options* options,
                                           memsaver_report* report) MEMSAVER_NOEXCEPT;
/// Allocates, ahead of the first pause, the storage that saving needs. For policies that keep bytes.
MEMSAVER_API memsaver_result memsaver_prepare(memsaver_saver* saver, const char* const* names,
                                              size_t count) MEMSAVER_NOEXCEPT;
/// Marks saved bytes as changed: the next pause saves them again. For policies that keep bytes.
MEMSAVER_API memsaver_result memsaver_invalidate(memsaver_saver* saver, const char* const* names,
                                                 size_t count) MEMSAVER_NOEXCEPT;
/// Discards the backups of these tags' paused memory. A resume then maps memory with undefined bytes.
MEMSAVER_API memsaver_result memsaver_forget_backup(memsaver_saver* saver, const char* const* names,
                                                    size_t count) MEMSAVER_NOEXCEPT;
/// Marks `bytes` at `pointer` as changed: with MEMSAVER_FILE_SOURCE only these, else the whole tag.
MEMSAVER_API memsaver_result memsaver_invalidate_range(memsaver_saver* saver, const void* pointer,
                                                       size_t bytes) MEMSAVER_NOEXCEPT;
/// Fills `bytes` at `pointer`, in a tag with policy MEMSAVER_FILE_SOURCE, from a file starting at `offset`, now and at
/// every later resume. A pause does not save these bytes. Does not wait for work that still uses the old bytes. Errors:
/// MEMSAVER_DRIVER_ERROR (the file cannot be opened: nothing has changed; or read: some of the bytes are new),
/// MEMSAVER_SOURCE_CHANGED.
MEMSAVER_API memsaver_result memsaver_load(memsaver_saver* saver, void* pointer, size_t bytes, const char* path,
                                           size_t offset) MEMSAVER_NOEXCEPT;

// --- Copies in flight ---

/// Options of memsaver_resume_async().
typedef struct memsaver_resume_async_options {
    size_t size;
    const void* const* first;  ///< ranges to restore first, in this order: pointers into blocks of the tags
    const size_t* first_bytes; ///< the size of each range in bytes
    size_t first_count;
    const memsaver_resume_options* resuming; ///< null: all defaults
} memsaver_resume_async_options;
#define MEMSAVER_RESUME_ASYNC_OPTIONS_INIT MEMSAVER_INIT(memsaver_resume_async_options, NULL, NULL, 0, NULL)

/// Resumes tags like memsaver_resume(), but does not wait for the bytes: on return all memory is mapped and the copies
/// are in flight. Until a block's bytes have arrived, only work on a stream passed to memsaver_arrival_before() may
/// touch it; after memsaver_arrival_wait() any work may.
MEMSAVER_API memsaver_result memsaver_resume_async(memsaver_saver* saver, const char* const* names, size_t count,
                                                   const memsaver_resume_async_options* options,
                                                   memsaver_arrival** arrival) MEMSAVER_NOEXCEPT;
/// Saves the bytes that a pause of these tags would save, ahead of it and during the program's work, which must call
/// memsaver_invalidate() if it writes to the memory afterwards. For policies with MEMSAVER_ONCE. Waits for the order in
/// `options`; ignores their `bytes`.
MEMSAVER_API memsaver_result memsaver_save(memsaver_saver* saver, const char* const* names, size_t count,
                                           const memsaver_pause_options* options,
                                           memsaver_arrival** arrival) MEMSAVER_NOEXCEPT;
/// Makes work submitted to `stream` from now on wait until all bytes of all tags have arrived. Does not wait itself,
/// except for bytes of files and pageable memory. MEMSAVER_MISUSE in a capture: use a gate.
MEMSAVER_API memsaver_result memsaver_arrival_before(memsaver_arrival* arrival, void* stream) MEMSAVER_NOEXCEPT;
/// The same for only these bytes of the tags.
MEMSAVER_API memsaver_result memsaver_arrival_before_range(memsaver_arrival* arrival, void* stream, const void* pointer,
                                                           size_t bytes) MEMSAVER_NOEXCEPT;
/// Waits until all bytes have arrived; hooks that run after a resume run here. If bytes could not be copied, every call
/// returns that error; the backup is intact, and the next pause or resume continues.
MEMSAVER_API memsaver_result memsaver_arrival_wait(memsaver_arrival* arrival,
                                                   memsaver_report* report) MEMSAVER_NOEXCEPT;
/// Waits until these bytes have arrived and every stream sees them.
MEMSAVER_API memsaver_result memsaver_arrival_wait_range(memsaver_arrival* arrival, const void* pointer,
                                                         size_t bytes) MEMSAVER_NOEXCEPT;
/// Sets `done` to whether no copies are in flight any more, successful or not. Does not wait.
MEMSAVER_API memsaver_result memsaver_arrival_done(memsaver_arrival* arrival, bool* done) MEMSAVER_NOEXCEPT;
/// Waits like memsaver_arrival_wait() and releases the handle. Failures go to `on_event`.
MEMSAVER_API void memsaver_end_arrival(memsaver_arrival* arrival) MEMSAVER_NOEXCEPT;
/// Creates a gate for `bytes` at `pointer`, in one block: work behind it waits for them whenever
/// memsaver_resume_async() has them in flight. Keep it until graphs captured behind it are destroyed.
MEMSAVER_API memsaver_result memsaver_get_gate(memsaver_saver* saver, const void* pointer, size_t bytes,
                                               memsaver_gate** gate) MEMSAVER_NOEXCEPT;
/// Makes work submitted to `stream` from now on wait at the gate; if the stream is being captured, each launch of the
/// graph waits.
MEMSAVER_API memsaver_result memsaver_gate_before(memsaver_gate* gate, void* stream) MEMSAVER_NOEXCEPT;
MEMSAVER_API void memsaver_release_gate(memsaver_gate* gate) MEMSAVER_NOEXCEPT;

// --- Uses: more tags than memory ---

/// Options of memsaver_begin_use().
typedef struct memsaver_use_options {
    size_t size;
    int32_t order; ///< what evictions wait for besides the work that uses marked, as in memsaver_pause_options
    void* const* streams;
    size_t stream_count;
    void* const* events;
    size_t event_count;
    int64_t timeout_ns;     ///< how long to wait for whatever it is; the earlier of both counts. Negative: no limit
    int64_t room_within_ns; ///< likewise
    bool await_bytes;       ///< false: does not wait for bytes that memsaver_resume_async() is restoring
} memsaver_use_options;
#define MEMSAVER_USE_OPTIONS_INIT                                                                                      \
    MEMSAVER_INIT(memsaver_use_options, MEMSAVER_ALREADY_IDLE, NULL, 0, NULL, 0, -1, -1, true)

/// Resumes these tags where necessary and keeps them resident until memsaver_end_use() and until the work marked by
/// memsaver_use_until() has completed; a pause of them waits. If the device lacks memory, idle tags are paused, lowest
/// priority first and least recently used first among equals; only tags that a use has named before, or that are
/// evictable. If that is not enough, waits for other threads' uses to end.
///
/// Errors: those of a pause and of a resume; MEMSAVER_OUT_OF_MEMORY, at once, if even the end of all other threads'
/// uses could not free enough, and on a thread that holds a use. MEMSAVER_MISUSE in a hook, and in a capture unless all
/// tags are resident.
MEMSAVER_API memsaver_result memsaver_begin_use(memsaver_saver* saver, const char* const* names, size_t count,
                                                const memsaver_use_options* options,
                                                memsaver_use** use) MEMSAVER_NOEXCEPT;
/// Keeps the tags resident until `stream` has completed all work submitted to it before this call. May be called for
/// several streams, by one thread at a time. MEMSAVER_MISUSE for a stream that is being captured.
MEMSAVER_API memsaver_result memsaver_use_until(memsaver_use* use, void* stream) MEMSAVER_NOEXCEPT;
/// The same for a recorded event.
MEMSAVER_API memsaver_result memsaver_use_until_event(memsaver_use* use, void* event) MEMSAVER_NOEXCEPT;
/// Returns the tags of the use whose bytes were discarded since they were last used. The `count` names are valid as
/// long as the handle.
MEMSAVER_API memsaver_result memsaver_use_lost(memsaver_use* use, const char* const** names,
                                               size_t* count) MEMSAVER_NOEXCEPT;
/// Ends the use, on any thread. Submitted work that was not marked must have completed.
MEMSAVER_API void memsaver_end_use(memsaver_use* use) MEMSAVER_NOEXCEPT;
/// Sets memsaver_arena_options.evictable. A use makes its tags evictable; false reverts that until the next.
MEMSAVER_API memsaver_result memsaver_set_evictable(memsaver_saver* saver, const char* const* names, size_t count,
                                                    bool evictable) MEMSAVER_NOEXCEPT;
/// Sets memsaver_arena_options.priority from now on.
MEMSAVER_API memsaver_result memsaver_set_priority(memsaver_saver* saver, const char* const* names, size_t count,
                                                   int32_t priority) MEMSAVER_NOEXCEPT;

/// Options of memsaver_reclaim().
typedef struct memsaver_reclaim_options {
    size_t size;
    int32_t order; ///< as memsaver_use_options.order, with its streams and events
    void* const* streams;
    size_t stream_count;
    void* const* events;
    size_t event_count;
    int64_t timeout_ns; ///< how long to wait for work that uses marked, before skipping the tag. Negative: no limit
    int32_t device;     ///< the number of the device on which memory is reclaimed; -1: the saver's
} memsaver_reclaim_options;
#define MEMSAVER_RECLAIM_OPTIONS_INIT                                                                                  \
    MEMSAVER_INIT(memsaver_reclaim_options, MEMSAVER_ALREADY_IDLE, NULL, 0, NULL, 0, -1, -1)

/// The result of a reclaim, in bytes of physical memory.
typedef struct memsaver_reclaimed {
    size_t size;
    size_t wanted_bytes;
    size_t unused_bytes;  ///< unused memory released
    size_t elastic_bytes; ///< released by `on_reclaim` callbacks of elastic ranges
    size_t evicted_bytes; ///< released by pausing idle tags
    size_t saved_bytes;   ///< copied to backups by these pauses
} memsaver_reclaimed;
#define MEMSAVER_RECLAIMED_INIT MEMSAVER_INIT(memsaver_reclaimed, 0, 0, 0, 0, 0)

/// Releases at least `bytes` to a device: first unused memory, then memory that `on_reclaim` callbacks of elastic
/// ranges release, then idle tags, as a use would pause them. Never waits for a use. Releasing less is not an error:
/// `text` is one line that says why, and who holds the rest. Both outputs may be null.
MEMSAVER_API memsaver_result memsaver_reclaim(memsaver_saver* saver, size_t bytes,
                                              const memsaver_reclaim_options* options, memsaver_reclaimed* reclaimed,
                                              char** text) MEMSAVER_NOEXCEPT;

// --- Elastic memory ---

/// Called when the device lacks memory that idle tags cannot supply, on the thread that needs it, with no lock held.
/// Releases memory of the range that it can spare, and returns the number of bytes released; 0 refuses.
typedef size_t (*memsaver_reclaim_function)(void* context, size_t bytes);

/// Options of memsaver_make_elastic().
typedef struct memsaver_elastic_options {
    size_t size;
    size_t granularity;                   ///< bytes of one step, rounded up to whole pages; 0: 64 MiB
    memsaver_reclaim_function on_reclaim; ///< null: none. It and its context must outlive the range
    void* on_reclaim_context;
} memsaver_elastic_options;
#define MEMSAVER_ELASTIC_OPTIONS_INIT MEMSAVER_INIT(memsaver_elastic_options, 0, NULL, NULL)

/// Reserves `bytes` of an arena's addresses, without memory. The range may exceed the device's memory. Each step with
/// memory is a block of the tag.
MEMSAVER_API memsaver_result memsaver_make_elastic(memsaver_arena* arena, size_t bytes,
                                                   const memsaver_elastic_options* options,
                                                   memsaver_elastic** elastic) MEMSAVER_NOEXCEPT;
/// Destroys the range and releases all its memory, as memsaver_elastic_release() does with default options.
MEMSAVER_API void memsaver_end_elastic(memsaver_elastic* elastic) MEMSAVER_NOEXCEPT;
/// Commits memory for `bytes` at `offset`, rounded outward to whole steps, all or nothing. Steps that have memory keep
/// it. Errors: those of an allocation.
MEMSAVER_API memsaver_result memsaver_elastic_commit(memsaver_elastic* elastic, size_t offset,
                                                     size_t bytes) MEMSAVER_NOEXCEPT;
/// Releases the memory of `bytes` at `offset`, rounded inward to whole steps, paused or not, once the order in
/// `options` is satisfied, without waiting for it; their `timeout_ns` and `bytes` are ignored.
MEMSAVER_API memsaver_result memsaver_elastic_release(memsaver_elastic* elastic, size_t offset, size_t bytes,
                                                      const memsaver_pause_options* options) MEMSAVER_NOEXCEPT;
/// Commits everything up to the step of byte `bytes - 1` if that lies behind the last step with memory; otherwise
/// releases everything behind it. Steps released before the last step with memory stay so.
MEMSAVER_API memsaver_result memsaver_elastic_resize(memsaver_elastic* elastic, size_t bytes,
                                                     const memsaver_pause_options* options) MEMSAVER_NOEXCEPT;

/// Describes an elastic range.
typedef struct memsaver_elastic_info {
    size_t size;
    void* data;             ///< the first address, which never changes
    size_t capacity;        ///< bytes of addresses
    size_t granularity;     ///< bytes of one step
    size_t committed_bytes; ///< bytes with memory, paused or not; after a close or drop, those of before
} memsaver_elastic_info;
#define MEMSAVER_ELASTIC_INFO_INIT MEMSAVER_INIT(memsaver_elastic_info, NULL, 0, 0, 0)

MEMSAVER_API memsaver_result memsaver_get_elastic_info(memsaver_elastic* elastic,
                                                       memsaver_elastic_info* info) MEMSAVER_NOEXCEPT;

// --- Hooks ---

typedef enum memsaver_moment {
    MEMSAVER_BEFORE_PAUSE = 0,
    MEMSAVER_AFTER_PAUSE = 1,
    MEMSAVER_BEFORE_RESUME = 2,
    MEMSAVER_AFTER_RESUME = 3
} memsaver_moment;

/// The argument of a hook. Valid during the call. New fields are added at the end.
typedef struct memsaver_hook_event {
    size_t size;
    int32_t moment;          ///< memsaver_moment
    const char* const* tags; ///< the tags concerned
    size_t tag_count;
    const memsaver_report* report; ///< what was done; all 0 in hooks that run before
} memsaver_hook_event;

/// Runs on the thread that pauses or resumes, with no lock held. May allocate and free, and pause, resume, exchange,
/// trim and drop other tags than those it runs for, but not use, reclaim or close. Returns 0 to continue. Otherwise the
/// call returns MEMSAVER_HOOK_FAILED, and its text contains the number: from a hook that runs before, nothing is done
/// and the remaining hooks do not run; from a hook that runs after, the operation is done, and all other hooks still
/// run.
typedef int (*memsaver_hook_function)(void* context, const memsaver_hook_event* event);

/// Adds a hook for a `moment` (memsaver_moment). Hooks of one moment run in the order in which they were added. Hooks
/// that run after do not run if the operation failed. `hook` may be null: the hook is then removed with the saver.
MEMSAVER_API memsaver_result memsaver_add_hook(memsaver_saver* saver, int32_t moment, memsaver_hook_function function,
                                               void* context, memsaver_hook** hook) MEMSAVER_NOEXCEPT;

/// A hook that writes to `answer`, -1 before, what a memsaver_hook_function returns; without an answer it has failed.
typedef void (*memsaver_answering_hook_function)(void* context, const memsaver_hook_event* event, int32_t* answer);
/// For a language whose runtime may fail to begin or to end a callback (Python at Ctrl-C) and return anything.
MEMSAVER_API memsaver_result memsaver_add_answering_hook(memsaver_saver* saver, int32_t moment,
                                                         memsaver_answering_hook_function function, void* context,
                                                         memsaver_hook** hook) MEMSAVER_NOEXCEPT;
/// Removes a hook, even after the saver was destroyed. A call that is running on another thread completes.
MEMSAVER_API void memsaver_remove_hook(memsaver_hook* hook) MEMSAVER_NOEXCEPT;

// --- Usage ---

/// Memory usage, in bytes.
typedef struct memsaver_usage {
    size_t size;
    size_t arenas;            ///< number of arenas summed up
    size_t reserved_bytes;    ///< addresses
    size_t mapped_bytes;      ///< physical memory owned, held bytes included
    size_t held_bytes;        ///< of these, what the driver refused to release so far, or work may still touch
    size_t used_bytes;        ///< live blocks, as requested, paused or not
    size_t paused_bytes;      ///< addresses whose memory is paused
    size_t backed_up_bytes;   ///< held by policies, on the host or in files
    size_t blocks;            ///< live blocks
    size_t peak_mapped_bytes; ///< peak of mapped bytes; for several arenas, the sum of their peaks
    size_t pauses;            ///< since the arenas were made
    size_t elastic_bytes;     ///< of the used bytes, those committed in elastic ranges
} memsaver_usage;
#define MEMSAVER_USAGE_INIT MEMSAVER_INIT(memsaver_usage, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)

/// Returns the sums over these tags on all their devices. Every tag (null names) includes plain memory.
MEMSAVER_API memsaver_result memsaver_get_usage(memsaver_saver* saver, const char* const* names, size_t count,
                                                memsaver_usage* usage) MEMSAVER_NOEXCEPT;
/// Returns the usage of one arena, even of a closed saver. MEMSAVER_MISUSE if its tag was dropped, even if made anew.
MEMSAVER_API memsaver_result memsaver_get_arena_usage(memsaver_arena* arena, memsaver_usage* usage) MEMSAVER_NOEXCEPT;
/// Returns the usage of all arenas and devices as one line of JSON, as `to_json(usage)` in core/usage.hpp has it:
///     {"arenas":[{"tag":"weights","device":0,"policy":"host","state":"paused","reserved_bytes":0, ...}, ...],
///      "devices":[{"device":0,"total_bytes":0, ...}, ...], "residency":{"hits":0, ...}, "host_bytes":0}
MEMSAVER_API memsaver_result memsaver_get_usage_json(memsaver_saver* saver, char** json) MEMSAVER_NOEXCEPT;
/// Frees a text that the library returned.
MEMSAVER_API void memsaver_free_text(char* text) MEMSAVER_NOEXCEPT;

// --- Several processes on one device (docs/sharing.md) ---

/// Options of memsaver_join_share(): what this process is in the share.
typedef struct memsaver_share_options {
    size_t size;
    const char* name; ///< for the tables of the others, at most 63 bytes; null: none
    int32_t
        priority;   ///< who lacks room at a higher one gets it first; who has some at a lower one is asked for it first
    size_t floor;   ///< device memory that others do not ask this process to give up
    size_t ceiling; ///< the most device memory that this process takes; 0: no limit
    bool trusted;   ///< pages pass as they were left between members that both say so; others are cleared first
    int64_t answer_within_ns; ///< how long another process may take to answer before it is passed by; at least 1 ms
    const char* folder;       ///< where the members meet, mode 0700, made if it is not there. Null: one for each device
    int64_t linger_ns;        ///< how long released pages stay with the share if nobody waits for them, at most an hour
} memsaver_share_options;
#define MEMSAVER_SHARE_OPTIONS_INIT MEMSAVER_INIT(memsaver_share_options, NULL, 0, 0, 0, false, 500000000, NULL, 0)

/// Joins the share of a device. `device` selects it as for memsaver_create(), by its `driver`, `device`, `rdma`,
/// `peers`, `cuda_library` and the fields for host memory. With `share` set in them, memsaver_create() makes a member.
///
/// Errors: MEMSAVER_UNAVAILABLE (the folder cannot be used, the members use another version, no `host_machine`).
MEMSAVER_API memsaver_result memsaver_join_share(const memsaver_options* device, const memsaver_share_options* options,
                                                 memsaver_share** share) MEMSAVER_NOEXCEPT;
/// Releases the handle. The membership ends with the last saver made with it.
MEMSAVER_API void memsaver_leave_share(memsaver_share* share) MEMSAVER_NOEXCEPT;
/// Returns the members, this process too, as one line of JSON:
///     [{"name":"rollout","process":4711,"priority":1,"floor":0,"ceiling":0,"held_bytes":0,"lends":true,
///       "published_bytes":0,"waiting_bytes":0}, ...]
MEMSAVER_API memsaver_result memsaver_get_members_json(memsaver_share* share, char** json) MEMSAVER_NOEXCEPT;
/// Lends what is idle in a saver of the share to members that lack room, as memsaver_reclaim() would release it, on a
/// thread of the library; hooks run there.
MEMSAVER_API memsaver_result memsaver_lend(memsaver_share* share, memsaver_saver* saver,
                                           memsaver_lending** lending) MEMSAVER_NOEXCEPT;
/// Ends the lending, and waits for one that runs.
MEMSAVER_API void memsaver_end_lending(memsaver_lending* lending) MEMSAVER_NOEXCEPT;

/// Options of memsaver_publish(): a version, and `count` ranges that readers find by their names.
typedef struct memsaver_publish_options {
    size_t size;
    const char* version;      ///< versions of one name stand side by side; at most 63 bytes; null: none
    const char* const* names; ///< each at most 199 bytes, and only once
    const void* const* data;  ///< in live blocks of the tag, or, if copied, of any tag of the saver
    const size_t* bytes;
    const bool* copied; ///< whether each reader gets a copy of the range that it may write; null: of none
    size_t count;
} memsaver_publish_options;
#define MEMSAVER_PUBLISH_OPTIONS_INIT MEMSAVER_INIT(memsaver_publish_options, NULL, NULL, NULL, NULL, NULL, 0)

/// Publishes a tag of a saver of the share: other processes may map it for reading. Every live block of the tag must
/// have a name in it. Waits for the device. Afterwards the tag's pages are read-only here too, except for handles in
/// which copied ranges lie. `hash` (may be null): of the names and their bytes. Errors: MEMSAVER_UNAVAILABLE. After a
/// failure nothing has changed.
MEMSAVER_API memsaver_result memsaver_publish(memsaver_share* share, const char* name, memsaver_saver* saver,
                                              const char* tag, const memsaver_publish_options* options,
                                              uint64_t* hash) MEMSAVER_NOEXCEPT;
/// Ends a publication, in all its versions, for late readers. Its pages are freed with the last process that has it.
/// MEMSAVER_UNAVAILABLE if there is none, or a process that is stopped cannot be told.
MEMSAVER_API memsaver_result memsaver_withdraw(memsaver_share* share, const char* name) MEMSAVER_NOEXCEPT;

/// Options of memsaver_attach().
typedef struct memsaver_attach_options {
    size_t size;
    const char* version;  ///< null: the version that was published last
    const uint64_t* hash; ///< refuses a publication of other bytes; null: takes any
} memsaver_attach_options;
#define MEMSAVER_ATTACH_OPTIONS_INIT MEMSAVER_INIT(memsaver_attach_options, NULL, NULL)

/// Maps a publication as a new tag of a saver of the share, which is paused, resumed and dropped like any other, and
/// which lives on when the handle is released. This process keeps the publication from now on. Errors:
/// MEMSAVER_UNAVAILABLE (the text says what is published instead).
MEMSAVER_API memsaver_result memsaver_attach(memsaver_share* share, const char* name, memsaver_saver* saver,
                                             const memsaver_attach_options* options,
                                             memsaver_attached** attached) MEMSAVER_NOEXCEPT;
/// Releases the handle; the tag stays.
MEMSAVER_API void memsaver_release_attached(memsaver_attached* attached) MEMSAVER_NOEXCEPT;

/// Describes an attached publication.
typedef struct memsaver_attached_info {
    size_t size;
    const char* tag; ///< its name and version, "llama-70b@2026-11"; valid as long as the handle
    uint64_t hash;   ///< as memsaver_publish() returned it
} memsaver_attached_info;
#define MEMSAVER_ATTACHED_INFO_INIT MEMSAVER_INIT(memsaver_attached_info, NULL, 0)

MEMSAVER_API memsaver_result memsaver_get_attached_info(memsaver_attached* attached,
                                                        memsaver_attached_info* info) MEMSAVER_NOEXCEPT;

/// A range of an attached publication. Its addresses never change, and may be used while the tag is resumed.
typedef struct memsaver_attached_range {
    size_t size;
    const void* data;
    void* writable; ///< the same address if the range is a copy of this process; null if it is shared, for reading
    size_t bytes;
} memsaver_attached_range;
#define MEMSAVER_ATTACHED_RANGE_INIT MEMSAVER_INIT(memsaver_attached_range, NULL, NULL, 0)

/// Finds a range by its name.
MEMSAVER_API memsaver_result memsaver_attached_at(memsaver_attached* attached, const char* name,
                                                  memsaver_attached_range* range) MEMSAVER_NOEXCEPT;
/// Returns the name of the range `index`, counted from 0 in order; null after the last. Valid as long as the handle.
MEMSAVER_API memsaver_result memsaver_attached_name(memsaver_attached* attached, size_t index,
                                                    const char** name) MEMSAVER_NOEXCEPT;
/// Reads the shared ranges again and compares them with what was published. MEMSAVER_PUBLICATION_DAMAGED names a range
/// that differs.
MEMSAVER_API memsaver_result memsaver_attached_verify(memsaver_attached* attached) MEMSAVER_NOEXCEPT;

// --- PyTorch ---

// The functions that a pluggable allocator of PyTorch (torch.cuda.memory.CUDAPluggableAllocator) calls by name, without
// a context. The Python package uses them (docs/python.md).

/// Until the matching pop, this thread's memsaver_torch_allocate() allocates from `arena`. An inner push overrides an
/// outer one. The handle may be released before the pop.
MEMSAVER_API memsaver_result memsaver_torch_push(memsaver_arena* arena) MEMSAVER_NOEXCEPT;
/// Ends this thread's innermost push. MEMSAVER_MISUSE if there is none.
MEMSAVER_API memsaver_result memsaver_torch_pop(void) MEMSAVER_NOEXCEPT;
/// Allocates `bytes`, aligned to 512, from the arena that this thread has pushed, for every stream. Returns null for 0
/// or fewer bytes, and, with the reason in memsaver_last_error(), if no arena is pushed, `device` is not its, or memory
/// is exhausted.
MEMSAVER_API void* memsaver_torch_allocate(ptrdiff_t bytes, int device, void* stream) MEMSAVER_NOEXCEPT;
/// Frees a block of memsaver_torch_allocate(), on any thread, paused or not. It is reused once `stream` has completed
/// all work submitted to it before this call, or the device has if the stream cannot be marked. Null, unknown pointers,
/// and blocks whose tag was dropped or whose saver was closed are no-ops. If the address was allocated again since, it
/// becomes free once freed as many times. Failures go to the saver's on_event.
MEMSAVER_API void memsaver_torch_free(void* pointer, ptrdiff_t bytes, int device, void* stream) MEMSAVER_NOEXCEPT;

#ifdef __cplusplus
} // extern "C"
#endif
