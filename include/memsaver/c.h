// The C interface: savers, tags, regions, pause and resume for programs in C, older C++, and every language that calls
// C. Needs C11 or C++11 and three headers of the C library. Link libmemsaver.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// How it reads
//
// - Every function that can fail returns a memsaver_result and says with memsaver_last_error() what happened. No C++
//   exception ever leaves the library. Null handles and arguments that cannot be meant are MEMSAVER_MISUSE.
// - Every function may be called from any thread. A handle (memsaver_saver, memsaver_arena, memsaver_hook and so on)
// must
//   not be used while or after another thread gives it back.
// - Sizes are bytes, times are nanoseconds. Text is UTF-8 or whatever the program named its tags with, and ends with 0.
//   What is passed in is copied; the library keeps no pointer of the program's but callbacks and their contexts.
// - Structures begin with their size. Initialize them with their macro (MEMSAVER_OPTIONS_INIT and so on): every field
//   has its default then. A null pointer in the place of options stands for all defaults. A later library knows the
//   shorter structures of programs compiled before it. An earlier library refuses a longer one, unless the fields that
//   it does not know are all 0.
// - A list of tags is `names` and `count`. Null `names` (count 0) is every tag; a list that is not null and has no
//   names is no tag; with the count MEMSAVER_UNDER, `names` holds one prefix and stands for every tag under it.
// - Out pointers are written on success. Where it says "may be null", the answer is not wanted. On failure a handle or
//   pointer is set to null; a report says what had been done.
// - Streams are cudaStream_t or CUstream as a void*. Null is the device's default stream.
// - In a forked child every call is MEMSAVER_MISUSE; destroying and releasing is allowed and does nothing.

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

/// What a call came to. More may be added: treat an unknown one as a failure.
typedef enum memsaver_result {
    MEMSAVER_OK = 0,
    /// The device has no room. Nothing changed; the same call succeeds once there is room.
    MEMSAVER_OUT_OF_MEMORY = 1,
    /// The host has no room. The memory concerned is still active.
    MEMSAVER_OUT_OF_HOST_MEMORY = 2,
    /// The program asked for something that cannot be meant. The text says what.
    MEMSAVER_MISUSE = 3,
    /// The device was still at work when the time allowed ran out. Nothing changed.
    MEMSAVER_NOT_IDLE = 4,
    /// The device or its context is lost. Backups stay readable, closing works.
    MEMSAVER_DEVICE_LOST = 5,
    /// A driver call failed in some other way.
    MEMSAVER_DRIVER_ERROR = 6,
    /// There is no usable device or driver, or the machine or this build lacks what was asked for.
    MEMSAVER_UNAVAILABLE = 7,
    /// Kept bytes are not those that were saved (policy option `verified`). The memory is still paused.
    MEMSAVER_BACKUP_DAMAGED = 8,
    /// A hook returned non-zero. One that runs before: nothing happened. One that runs after: the operation is done.
    MEMSAVER_HOOK_FAILED = 9,
    /// Something that the library does not know of was thrown, as by a callback that threw through C.
    MEMSAVER_INTERNAL = 10,
    /// A file that bytes were loaded from is not what it was. Paused memory stays paused; the same call succeeds once
    /// the file is back.
    MEMSAVER_SOURCE_CHANGED = 11
} memsaver_result;

/// "MEMSAVER_OUT_OF_MEMORY" and so on; "unknown result" for any other number. Static.
MEMSAVER_API const char* memsaver_result_name(int32_t result) MEMSAVER_NOEXCEPT;

/// What this thread's last call that failed has to say; "" if none has failed so far. Never null. Calls that succeed
/// leave it. The text is valid until this thread's next call that fails; what does not fit in 2047 bytes is cut.
MEMSAVER_API const char* memsaver_last_error(void) MEMSAVER_NOEXCEPT;

/// This thread's last failure in parts. Texts are valid as long as memsaver_last_error()'s.
typedef struct memsaver_error {
    size_t size;
    int32_t result;          ///< memsaver_result
    int32_t driver_code;     ///< what the driver answered; 0 where no driver call failed
    const char* driver_name; ///< its name, as "CUDA_ERROR_INVALID_VALUE"; "" where no driver call failed
    const char* tag;         ///< the tag concerned, cut after 255 bytes; "" where none is, or several are
    size_t needed_bytes;     ///< of MEMSAVER_OUT_OF_MEMORY: what the call wanted to take of the device
    size_t free_bytes;       ///< and what was free there after the failure
} memsaver_error;

#define MEMSAVER_ERROR_INIT                                                                                            \
    { sizeof(memsaver_error), MEMSAVER_OK, 0, "", "", 0, 0 }

/// Does not change what it tells of, but by failing itself.
MEMSAVER_API memsaver_result memsaver_get_last_error(memsaver_error* error) MEMSAVER_NOEXCEPT;

/// The version of the library that runs: major * 10000 + minor * 100 + patch, 200 for 0.2.0.
MEMSAVER_API int memsaver_version(void) MEMSAVER_NOEXCEPT;
/// "0.2.0". Static.
MEMSAVER_API const char* memsaver_version_text(void) MEMSAVER_NOEXCEPT;

// --- Handles ---

/// Hands out memory by tag; pauses and resumes it by tag.
typedef struct memsaver_saver memsaver_saver;
/// One tag's memory on one device. Keeps the memory alive, also beyond memsaver_destroy().
typedef struct memsaver_arena memsaver_arena;
/// Keeps a hook in force.
typedef struct memsaver_hook memsaver_hook;
/// Bytes that are on their way.
typedef struct memsaver_arrival memsaver_arrival;
/// Has streams and captured graphs wait for bytes that are on their way.
typedef struct memsaver_gate memsaver_gate;
/// Tags that are in use, and so are not paused.
typedef struct memsaver_use memsaver_use;
/// A range of addresses with memory where and while it is wanted.
typedef struct memsaver_elastic memsaver_elastic;

/// The `count` of a list whose one name is a prefix: every tag whose name begins with it, perhaps none.
#define MEMSAVER_UNDER SIZE_MAX

/// What 0 stands for where an alignment is asked for, in bytes.
#define MEMSAVER_DEFAULT_ALIGNMENT 256

// --- Policies: what becomes of the bytes of a paused tag ---

typedef enum memsaver_policy_kind {
    MEMSAVER_DISCARD = 0,     ///< undefined after a resume
    MEMSAVER_ZERO = 1,        ///< live blocks read as zero after a resume
    MEMSAVER_HOST_BACKUP = 2, ///< kept in host memory
    MEMSAVER_FILE_BACKUP = 3, ///< kept in a file that has no name and goes with the tag
    /// What memsaver_load() filled comes from its file again, and is never saved. The rest is kept in pinned host
    /// memory.
    MEMSAVER_FILE_SOURCE = 4
} memsaver_policy_kind;

/// When bytes are saved.
typedef enum memsaver_refresh {
    MEMSAVER_EVERY_PAUSE = 0,
    MEMSAVER_ONCE = 1 ///< at the first pause, and again after memsaver_invalidate()
} memsaver_refresh;

/// What the host memory of a MEMSAVER_HOST_BACKUP is.
typedef enum memsaver_storage {
    MEMSAVER_PINNED = 0,  ///< copies reach it at the link's full speed; it cannot be swapped
    MEMSAVER_PAGEABLE = 1 ///< ordinary memory, reached through a bounded ring of pinned buffers
} memsaver_storage;

/// A policy and its options. Fields that its kind has no use for are ignored.
typedef struct memsaver_policy {
    size_t size;
    int32_t kind; ///< memsaver_policy_kind
    /// MEMSAVER_DISCARD: every byte of resumed memory reads as this value, 0 to 255, to show what was wrongly assumed
    /// to survive. -1: no such thing.
    int32_t poison;
    int32_t refresh; ///< backups: memsaver_refresh
    int32_t storage; ///< MEMSAVER_HOST_BACKUP: memsaver_storage
    /// Backups: host memory or the disk's room is kept after a resume for the next pause, which is then faster. Else it
    /// is given back before the resume returns. With MEMSAVER_ONCE it is kept whatever this says.
    bool retain;
    /// Backups with MEMSAVER_ONCE: every pause compares the memory with the kept bytes and is MEMSAVER_MISUSE, the
    /// memory still active, if they differ although nobody called memsaver_invalidate(). A test mode: costs a copy.
    bool check;
    /// Backups: a checksum is taken on the way out and compared before bytes come back: MEMSAVER_BACKUP_DAMAGED.
    /// MEMSAVER_UNAVAILABLE where the library was built without xxHash.
    bool verified;
    uint32_t threads;  ///< backups: threads of a copy; 0: 8 for host memory and a source, 4 for a file
    size_t ring_bytes; ///< backups: the most pinned memory for bytes on their way; 0: 64 MiB, 256 MiB for a file, 32
                       ///< MiB for a source
    const char* directory; ///< MEMSAVER_FILE_BACKUP: where the file is made; needed there
    /// Backups: bytes are coded on the device, without loss, and kept coded: of 16-bit weights about two thirds. Where
    /// the codec is missing (nvCOMP 6 for a GPU, LZ4 for host memory) making the tag is MEMSAVER_UNAVAILABLE.
    bool compressed;
} memsaver_policy;

#define MEMSAVER_POLICY_INIT                                                                                           \
    {                                                                                                                  \
        sizeof(memsaver_policy), MEMSAVER_DISCARD, -1, MEMSAVER_EVERY_PAUSE, MEMSAVER_PINNED, true, false, false, 0,   \
            0, NULL, false                                                                                             \
    }

// --- Savers ---

/// What a saver takes its memory from.
typedef enum memsaver_driver {
    MEMSAVER_DRIVER_DEFAULT = 0, ///< the GPU where there is a usable one, host memory elsewhere
    MEMSAVER_DRIVER_CUDA = 1,    ///< the GPU; MEMSAVER_UNAVAILABLE where there is none
    /// Host memory: pointers are memory of this process, which the CPU may read and write while it is not paused.
    /// Touching paused memory is a segmentation fault, before which a line on stderr names the tag. A handler of
    /// SIGSEGV is there for that while a tag has addresses; it hands on to the one that it found.
    MEMSAVER_DRIVER_HOST = 2
} memsaver_driver;

/// In which form a GPU's pages can be handed to other processes.
typedef enum memsaver_export {
    MEMSAVER_EXPORT_NONE = 0,
    MEMSAVER_EXPORT_FILE_DESCRIPTOR = 1,
    MEMSAVER_EXPORT_FABRIC = 2
} memsaver_export;

/// Which uses of a name that no tag has make a tag.
typedef enum memsaver_new_tags {
    MEMSAVER_NEW_TAGS_ALLOWED = 0,
    /// Those that name a policy; any other is MEMSAVER_MISUSE, for the name may be mistyped.
    MEMSAVER_NEW_TAGS_WITH_POLICY = 1
} memsaver_new_tags;

typedef enum memsaver_event_kind {
    MEMSAVER_EVENT_IGNORED = 0,   ///< a failure where nothing could be returned
    MEMSAVER_EVENT_RETRIED = 1,   ///< the device had no room; unused memory was given back and the call tried again
    MEMSAVER_EVENT_TRIMMED = 2,   ///< memory that nobody used was given back
    MEMSAVER_EVENT_FELL_BACK = 3, ///< something is done in a slower way than was asked for
    MEMSAVER_EVENT_WARNED = 4,    ///< something was done as asked that may not have been meant
    MEMSAVER_EVENT_BEGAN = 5,     ///< a pause, resume, trim, save or restore; `ended` follows, whatever happens
    MEMSAVER_EVENT_ENDED = 6,
    MEMSAVER_EVENT_PROGRESS = 7 ///< `bytes_done` of `bytes_total` have been copied
} memsaver_event_kind;

/// What the library tells besides what it returns. Texts are valid during the call. New fields come at the end.
typedef struct memsaver_event {
    size_t size;
    int32_t kind; ///< memsaver_event_kind; ignore those that you do not know
    int32_t device;
    const char* tag; ///< "" where no single tag is concerned
    const char* text;
    size_t bytes_done;
    size_t bytes_total;
} memsaver_event;

/// Called on whatever thread has something to tell, perhaps while a lock is held: it must not call the saver. It must
/// not throw C++ exceptions nor leave by longjmp.
typedef void (*memsaver_event_function)(void* context, const memsaver_event* event);

/// A call found no room, though memory that nobody uses was given back first.
typedef struct memsaver_no_room {
    size_t size;
    size_t bytes;      ///< that the call wants to take of the device
    size_t free_bytes; ///< of the device, when it was asked
    int32_t device;
    const char* tag;      ///< whose memory it would be; "" where it is that of several
    size_t missing_bytes; ///< that the device lacks for the call, and its margin; at least 1
} memsaver_no_room;

/// Called before MEMSAVER_OUT_OF_MEMORY is returned, on the thread that wants the memory, with no lock held: it may
/// free, pause and drop. Non-zero: something was done, try again. 0: there is no more. Must not throw nor longjmp.
typedef int (*memsaver_no_room_function)(void* context, const memsaver_no_room* need);

/// How a saver is made.
typedef struct memsaver_options {
    size_t size;
    int32_t driver; ///< memsaver_driver
    int32_t device; ///< the GPU's number; of host memory, a number for people
    /// False: the same program runs with plain allocations; pause and resume check their tags and do nothing.
    bool enabled;
    /// GPU: pages that network cards and other devices can reach by themselves, where the device supports it.
    bool rdma;
    int32_t export_handles; ///< GPU: memsaver_export
    /// Bytes of each device's memory that allocations and resumes leave free.
    size_t margin;
    /// What a new tag gets that names no policy. Null: MEMSAVER_DISCARD, and MEMSAVER_EVENT_WARNED at its first pause.
    const memsaver_policy* default_policy;
    /// Host memory: bytes of the machine; 0: half of the physical memory, but at most 8 GiB. Memory is taken only as it
    /// is used.
    size_t host_capacity;
    /// Host memory: the unit of pages in bytes, a power of two and at least the system's page; 0: 2 MiB.
    size_t host_granularity;
    /// GPU: numbers of other devices that may read and write the pages; `peer_count` of them.
    const int* peers;
    size_t peer_count;
    /// GPU: the driver library's name or path; null: "libcuda.so.1".
    const char* cuda_library;
    /// Null: nobody is asked. It and its context must outlive the saver and its arenas.
    memsaver_no_room_function on_no_room;
    void* on_no_room_context;
    /// Null: nobody is told. It and its context must outlive the saver and its arenas.
    memsaver_event_function on_event;
    void* on_event_context;
    int32_t new_tags; ///< memsaver_new_tags
    /// Bytes of each device's memory to keep free for others: whenever memory has been taken, what is missing is given
    /// back as memsaver_reclaim() gives it, on the same thread, by nothing that would have to wait. Refuses nothing. 0:
    /// none.
    size_t pressure;
} memsaver_options;

#define MEMSAVER_OPTIONS_INIT                                                                                          \
    {                                                                                                                  \
        sizeof(memsaver_options), MEMSAVER_DRIVER_DEFAULT, 0, true, false, MEMSAVER_EXPORT_NONE, 0, NULL, 0, 0, NULL,  \
            0, NULL, NULL, NULL, NULL, NULL, MEMSAVER_NEW_TAGS_ALLOWED, 0                                              \
    }

/// MEMSAVER_OK where a saver can be made with MEMSAVER_DRIVER_CUDA on this device; else MEMSAVER_UNAVAILABLE, and
/// memsaver_last_error() says why. Makes no context.
MEMSAVER_API memsaver_result memsaver_gpu_available(int device) MEMSAVER_NOEXCEPT;
/// How many GPUs the driver shows, usable or not; 0 where there is no driver.
MEMSAVER_API int memsaver_gpu_count(void) MEMSAVER_NOEXCEPT;

/// Makes a saver. Errors: MEMSAVER_UNAVAILABLE, MEMSAVER_MISUSE (options, a number that no device has).
MEMSAVER_API memsaver_result memsaver_create(const memsaver_options* options, memsaver_saver** saver) MEMSAVER_NOEXCEPT;

/// Gives everything back now, waiting for the device first: every tag, block and backup, and this saver's open regions.
/// Afterwards every use is MEMSAVER_MISUSE. Returns the first failure after everything has been tried, and may be
/// called again.
MEMSAVER_API memsaver_result memsaver_close(memsaver_saver* saver) MEMSAVER_NOEXCEPT;

/// Ends the handle; null does nothing. Memory goes back to the device now, or with the last arena that was got from it.
/// What fails then is told to `on_event`; call memsaver_close() first to know. No other thread may use the saver.
MEMSAVER_API void memsaver_destroy(memsaver_saver* saver) MEMSAVER_NOEXCEPT;

/// What a saver stands on. `free_bytes` and `total_bytes` are the whole device's, whoever holds it.
typedef struct memsaver_info {
    size_t size;
    int32_t driver; ///< MEMSAVER_DRIVER_CUDA or MEMSAVER_DRIVER_HOST
    int32_t device;
    bool enabled;
    size_t granularity; ///< the unit of pages, in bytes
    size_t free_bytes;
    size_t total_bytes;
    char name[128]; ///< "NVIDIA H200 (CUDA device 0)"; cut if it is longer
} memsaver_info;

#define MEMSAVER_INFO_INIT                                                                                             \
    { sizeof(memsaver_info), 0, 0, false, 0, 0, 0, "" }

MEMSAVER_API memsaver_result memsaver_get_info(memsaver_saver* saver, memsaver_info* info) MEMSAVER_NOEXCEPT;

/// As memsaver_options.margin, from now on; not for tags that have a margin of their own.
MEMSAVER_API memsaver_result memsaver_set_margin(memsaver_saver* saver, size_t bytes) MEMSAVER_NOEXCEPT;

// --- Tags and arenas ---

/// How a tag is made on a device. A tag that exists must have what is not as it is by default.
typedef struct memsaver_arena_options {
    size_t size;
    const memsaver_policy* policy; ///< null: the saver's default
    /// The most bytes that allocations may make it hold; 0: what the device has. What is paused does not count.
    size_t capacity;
    size_t reserve; ///< bytes of memory taken at once, in as few pieces as can be
    size_t margin;  ///< bytes of the device's memory that its allocations and resumes leave free; 0: the saver's
    /// -1: the saver's device. Of a saver on a GPU, the number of another GPU, driven with the saver's options.
    int32_t device;
    /// Whether uses of other tags and memsaver_reclaim() may pause it while nobody uses it, though it was never named
    /// in a use. Outside of its uses no work may then touch it.
    bool evictable;
    int32_t priority; ///< those of the lowest are paused first, and of these the one that was used longest ago
} memsaver_arena_options;

#define MEMSAVER_ARENA_OPTIONS_INIT                                                                                    \
    { sizeof(memsaver_arena_options), NULL, 0, 0, 0, -1, false, 0 }

/// Makes a tag, with its policy, if there is none. A tag that exists with another policy is MEMSAVER_MISUSE.
MEMSAVER_API memsaver_result memsaver_make_tag(memsaver_saver* saver, const char* tag,
                                               const memsaver_arena_options* options) MEMSAVER_NOEXCEPT;

/// The same, and a handle to the tag's memory on the device: allocating through it looks nothing up.
MEMSAVER_API memsaver_result memsaver_get_arena(memsaver_saver* saver, const char* tag,
                                                const memsaver_arena_options* options,
                                                memsaver_arena** arena) MEMSAVER_NOEXCEPT;
/// Ends the handle, not the tag; blocks live on. Null does nothing.
MEMSAVER_API void memsaver_release_arena(memsaver_arena* arena) MEMSAVER_NOEXCEPT;

/// Ends these tags: waits for the device, then gives back their blocks, pages, addresses and backups. The names are
/// unknown again; using their arenas is MEMSAVER_MISUSE.
MEMSAVER_API memsaver_result memsaver_drop(memsaver_saver* saver, const char* const* names,
                                           size_t count) MEMSAVER_NOEXCEPT;

/// As memsaver_arena_options.capacity, from now on, on each device. What is mapped already stays.
MEMSAVER_API memsaver_result memsaver_set_capacity(memsaver_saver* saver, const char* const* names, size_t count,
                                                   size_t bytes) MEMSAVER_NOEXCEPT;

/// Whether the backups of these tags keep their host memory, or their files' room, after a resume, for the next pause;
/// from the next resume on. Tags whose policies keep nothing are MEMSAVER_MISUSE, if they were named.
MEMSAVER_API memsaver_result memsaver_set_retain(memsaver_saver* saver, const char* const* names, size_t count,
                                                 bool retain) MEMSAVER_NOEXCEPT;

// --- Blocks ---

/// `bytes` of memory at a multiple of `alignment` (a power of two; 0: 256), content undefined, good on every stream at
/// once. From the tag, which is made if there is none; a null `tag` stands for this thread's innermost region.
///
/// 0 bytes succeed with a null pointer, whatever the tag, and freeing null does nothing.
///
/// Errors: MEMSAVER_OUT_OF_MEMORY, MEMSAVER_OUT_OF_HOST_MEMORY, MEMSAVER_MISUSE (no region, beyond the tag's capacity,
/// alignment, closed), MEMSAVER_DEVICE_LOST, MEMSAVER_DRIVER_ERROR.
MEMSAVER_API memsaver_result memsaver_allocate(memsaver_saver* saver, const char* tag, size_t bytes, size_t alignment,
                                               void** pointer) MEMSAVER_NOEXCEPT;
/// The same for work of `stream`: a block of about the size that this thread has freed with this stream is reused at
/// once, without waiting. Other streams have to be ordered after it.
MEMSAVER_API memsaver_result memsaver_allocate_on(memsaver_saver* saver, const char* tag, size_t bytes,
                                                  size_t alignment, void* stream, void** pointer) MEMSAVER_NOEXCEPT;

/// As safe as cudaFree: the block is not handed out again before the device's work so far has passed it. Does not wait,
/// but for plain memory. Paused or not, whatever tag it is of, any thread. Null does nothing. What is not a live block
/// is MEMSAVER_MISUSE.
MEMSAVER_API memsaver_result memsaver_deallocate(memsaver_saver* saver, void* pointer) MEMSAVER_NOEXCEPT;
/// The block can be handed out again once `stream`, of any device of this saver, has passed here.
MEMSAVER_API memsaver_result memsaver_deallocate_on(memsaver_saver* saver, void* pointer,
                                                    void* stream) MEMSAVER_NOEXCEPT;
/// The block can be handed out again at once: no work touches it any more.
MEMSAVER_API memsaver_result memsaver_deallocate_idle(memsaver_saver* saver, void* pointer) MEMSAVER_NOEXCEPT;

/// The same of an arena. They work as long as the arena's handle does.
MEMSAVER_API memsaver_result memsaver_arena_allocate(memsaver_arena* arena, size_t bytes, size_t alignment,
                                                     void** pointer) MEMSAVER_NOEXCEPT;
MEMSAVER_API memsaver_result memsaver_arena_allocate_on(memsaver_arena* arena, size_t bytes, size_t alignment,
                                                        void* stream, void** pointer) MEMSAVER_NOEXCEPT;
MEMSAVER_API memsaver_result memsaver_arena_deallocate(memsaver_arena* arena, void* pointer) MEMSAVER_NOEXCEPT;
MEMSAVER_API memsaver_result memsaver_arena_deallocate_on(memsaver_arena* arena, void* pointer,
                                                          void* stream) MEMSAVER_NOEXCEPT;
MEMSAVER_API memsaver_result memsaver_arena_deallocate_idle(memsaver_arena* arena, void* pointer) MEMSAVER_NOEXCEPT;

/// Whether a pointer points to or into a live block of this saver, paused or not, plain memory included. False for
/// null, and where it cannot be told.
MEMSAVER_API bool memsaver_owns(memsaver_saver* saver, const void* pointer) MEMSAVER_NOEXCEPT;

/// Copies the kept bytes of `bytes` at `pointer` (or inside its block) to host memory: while the tag is paused, and
/// later for as long as its policy keeps them. MEMSAVER_MISUSE says why there are none.
MEMSAVER_API memsaver_result memsaver_read_backup(memsaver_saver* saver, const void* pointer, size_t bytes,
                                                  void* to) MEMSAVER_NOEXCEPT;

/// Other bytes, `from` host memory, for `bytes` at `pointer` (or inside its block), whose memory is paused: they are
/// changed where the policy keeps them, and the next resume brings them; with MEMSAVER_ONCE they count as saved. Waits
/// for an operation on the tag that is under way. MEMSAVER_MISUSE for memory that is active, and where nothing is kept.
/// If a file cannot be written, some of the bytes may be the new ones, and the same call goes on. Of a saver that is
/// switched off, whose memory is never away, it writes to the memory itself.
MEMSAVER_API memsaver_result memsaver_write_backup(memsaver_saver* saver, void* pointer, const void* from,
                                                   size_t bytes) MEMSAVER_NOEXCEPT;

// --- Regions: where a thread's memsaver_allocate(saver, NULL, ...) goes ---

/// From here to the matching pop, this thread's allocations without a tag go to `tag`, which is made if there is none.
/// Each thread has regions of its own in each saver; an inner one overrides an outer one. Blocks live on.
MEMSAVER_API memsaver_result memsaver_push_region(memsaver_saver* saver, const char* tag) MEMSAVER_NOEXCEPT;
/// The same with an arena of this saver, so on whatever device that is.
MEMSAVER_API memsaver_result memsaver_push_arena(memsaver_saver* saver, memsaver_arena* arena) MEMSAVER_NOEXCEPT;
/// The same with plain memory, which is never paused.
MEMSAVER_API memsaver_result memsaver_push_outside(memsaver_saver* saver) MEMSAVER_NOEXCEPT;
/// Ends this thread's innermost region. Without any it is MEMSAVER_MISUSE. A thread pops what it has pushed before it
/// ends; else the region stays until the saver is closed or destroyed.
MEMSAVER_API memsaver_result memsaver_pop_region(memsaver_saver* saver) MEMSAVER_NOEXCEPT;

// --- Pause and resume ---

/// What an operation did. Sums over all tags concerned; physical bytes where nothing else is said.
typedef struct memsaver_report {
    size_t size;
    size_t released_bytes; ///< given back to the device, those held so far included
    size_t saved_bytes;    ///< copied to backups
    size_t restored_bytes; ///< copied, or filled, from backups
    size_t mapped_bytes;   ///< taken from the device, or from a tag that went
    size_t handed_bytes;   ///< of these, passed on by a tag that went, and never released (memsaver_exchange)
    size_t held_bytes;     ///< that could not be given back yet; the next call tries again
    int64_t elapsed_ns;    ///< the whole call, hooks excluded
    int64_t waited_ns;     ///< for devices' work before anything was done: the longest of all tags
} memsaver_report;

#define MEMSAVER_REPORT_INIT                                                                                           \
    { sizeof(memsaver_report), 0, 0, 0, 0, 0, 0, 0, 0 }

/// What a pause, a trim or an exchange waits for.
typedef enum memsaver_order {
    /// All work that every device concerned was given before the call. Breaks a stream capture that is open then.
    MEMSAVER_AFTER_DEVICE = 0,
    /// What `streams` have been given so far, and `events`: all that may still touch the memory.
    MEMSAVER_AFTER_STREAMS = 1,
    /// Nothing: no work touches the memory any more.
    MEMSAVER_ALREADY_IDLE = 2
} memsaver_order;

/// How a pause or a trim goes about it.
typedef struct memsaver_pause_options {
    size_t size;
    int32_t order; ///< memsaver_order
    /// For MEMSAVER_AFTER_STREAMS, which needs one at least of both: cudaStream_t or CUstream; a null one is the
    /// default stream of every device concerned.
    void* const* streams;
    size_t stream_count;
    void* const* events; ///< cudaEvent_t or CUevent, none of them null
    size_t event_count;
    /// How long to wait for that, and for other operations on the same tags: else MEMSAVER_NOT_IDLE. Negative: as long
    /// as it takes.
    int64_t timeout_ns;
    /// What becomes of the bytes this once. Null: what the tag's policy says. memsaver_trim() ignores it.
    const memsaver_policy* bytes;
} memsaver_pause_options;

#define MEMSAVER_PAUSE_OPTIONS_INIT                                                                                    \
    { sizeof(memsaver_pause_options), MEMSAVER_AFTER_DEVICE, NULL, 0, NULL, 0, -1, NULL }

/// Gives the physical pages of these tags back to the device; addresses stay. Waits first, as the options say; the
/// program stops submitting work that touches the memory. What is paused already stays so. The bytes become what each
/// tag's policy says. `report` may be null. Repeating a call that failed goes on from there.
///
/// Errors: MEMSAVER_MISUSE (an unknown tag), MEMSAVER_NOT_IDLE, MEMSAVER_OUT_OF_HOST_MEMORY, MEMSAVER_HOOK_FAILED,
/// MEMSAVER_DEVICE_LOST, MEMSAVER_DRIVER_ERROR.
MEMSAVER_API memsaver_result memsaver_pause(memsaver_saver* saver, const char* const* names, size_t count,
                                            const memsaver_pause_options* options,
                                            memsaver_report* report) MEMSAVER_NOEXCEPT;

/// How a resume goes about it.
typedef struct memsaver_resume_options {
    size_t size;
    /// What the bytes are this once: a policy that keeps nothing, as where new weights are coming anyway. What was kept
    /// is then stale. Null: what was kept.
    const memsaver_policy* bytes;
    /// How long to try again where there is no room, so that others can make some. Negative: not at all.
    int64_t room_within_ns;
} memsaver_resume_options;

#define MEMSAVER_RESUME_OPTIONS_INIT                                                                                   \
    { sizeof(memsaver_resume_options), NULL, -1 }

/// Fresh pages at the same addresses, and the bytes that the policies kept. All tags' memory is taken before any is
/// mapped: without room for all it is MEMSAVER_OUT_OF_MEMORY and nothing changes. On return every stream sees the
/// bytes. Bytes arrive in the order of the list. `report` may be null.
///
/// Errors: as memsaver_pause(), MEMSAVER_OUT_OF_MEMORY and MEMSAVER_BACKUP_DAMAGED.
MEMSAVER_API memsaver_result memsaver_resume(memsaver_saver* saver, const char* const* names, size_t count,
                                             const memsaver_resume_options* options,
                                             memsaver_report* report) MEMSAVER_NOEXCEPT;

/// How an exchange goes about it.
typedef struct memsaver_exchange_options {
    size_t size;
    const memsaver_pause_options* pausing;   ///< of the tags that go. Null: all defaults
    const memsaver_resume_options* resuming; ///< of the tags that come. Null: all defaults
} memsaver_exchange_options;

#define MEMSAVER_EXCHANGE_OPTIONS_INIT                                                                                 \
    { sizeof(memsaver_exchange_options), NULL, NULL }

/// Pauses the tags of `out` and resumes those of `in`, so that one steps aside for the other: pages pass from tag to
/// tag, as whole handles, without being released, and bytes are saved and restored at the same time. Only what `in` has
/// more is taken from the device, only what it has less is given back. Waits, runs hooks and is refused as a pause of
/// `out` followed by a resume of `in`; what is paused of `out` and active of `in` stays so. Until it returns, nothing
/// of either may be touched; then every stream sees the bytes of `in`. `report` may be null.
///
/// Without room for what `in` has more it is MEMSAVER_OUT_OF_MEMORY and nothing changes, unless others took what `out`
/// gave back. After another failure `in` is paused and its backup whole; of `out`, what the report says was handed on
/// or released is paused and saved, the rest is active; repeating the call goes on from there.
///
/// Errors: as memsaver_resume(). A tag in both lists is MEMSAVER_MISUSE.
MEMSAVER_API memsaver_result memsaver_exchange(memsaver_saver* saver, const char* const* out_names, size_t out_count,
                                               const char* const* in_names, size_t in_count,
                                               const memsaver_exchange_options* options,
                                               memsaver_report* report) MEMSAVER_NOEXCEPT;

/// Physical bytes that resuming these tags would take now.
MEMSAVER_API memsaver_result memsaver_bytes_to_resume(memsaver_saver* saver, const char* const* names, size_t count,
                                                      size_t* bytes) MEMSAVER_NOEXCEPT;

/// Gives back memory in which no block lives. Waits as a pause does, so that blocks freed before count.
MEMSAVER_API memsaver_result memsaver_trim(memsaver_saver* saver, const char* const* names, size_t count,
                                           const memsaver_pause_options* options,
                                           memsaver_report* report) MEMSAVER_NOEXCEPT;

/// Takes, ahead of the first pause, the host memory or the disk's room that saving the tags' live blocks would take.
/// MEMSAVER_MISUSE for a tag that was named and whose policy keeps nothing.
MEMSAVER_API memsaver_result memsaver_prepare(memsaver_saver* saver, const char* const* names,
                                              size_t count) MEMSAVER_NOEXCEPT;

/// The program has changed bytes that a policy may have saved before: save them again at the next pause.
/// MEMSAVER_MISUSE for a tag that was named and whose policy keeps nothing.
MEMSAVER_API memsaver_result memsaver_invalidate(memsaver_saver* saver, const char* const* names,
                                                 size_t count) MEMSAVER_NOEXCEPT;

/// What is kept of these tags' paused memory goes, with the room that it took: a resume brings the memory back with
/// undefined bytes. What is active is not concerned.
MEMSAVER_API memsaver_result memsaver_forget_backup(memsaver_saver* saver, const char* const* names,
                                                    size_t count) MEMSAVER_NOEXCEPT;

/// The same of `bytes` at `pointer` (or inside its block). With MEMSAVER_FILE_SOURCE they have no home in a file from
/// now on: pauses save them. Other policies take it for their tag.
MEMSAVER_API memsaver_result memsaver_invalidate_range(memsaver_saver* saver, const void* pointer,
                                                       size_t bytes) MEMSAVER_NOEXCEPT;

/// Fills `bytes` at `pointer` (or inside its block), in a tag whose policy is MEMSAVER_FILE_SOURCE, with those of a
/// file from `offset` on, now and at every later resume; a pause saves nothing of them. On return every stream sees the
/// bytes. Waits for no work that still uses the old ones. The path is used again as it stands.
///
/// Errors: MEMSAVER_MISUSE (no bytes, not in one live block, paused, another policy, fewer bytes in the file),
/// MEMSAVER_DRIVER_ERROR (the file cannot be opened or read; the text names it), MEMSAVER_SOURCE_CHANGED. If the file
/// could not be had at all, nothing has changed; if reading failed, some of the bytes are the new ones.
MEMSAVER_API memsaver_result memsaver_load(memsaver_saver* saver, void* pointer, size_t bytes, const char* path,
                                           size_t offset) MEMSAVER_NOEXCEPT;

// --- Bytes on their way ---

/// How a resume that does not wait goes about it.
typedef struct memsaver_resume_async_options {
    size_t size;
    const void* const* first;  ///< bytes that are wanted first, in this order: pointers into blocks of the tags
    const size_t* first_bytes; ///< and how many each
    size_t first_count;
    const memsaver_resume_options* resuming; ///< null: all defaults
} memsaver_resume_async_options;

#define MEMSAVER_RESUME_ASYNC_OPTIONS_INIT                                                                             \
    { sizeof(memsaver_resume_async_options), NULL, NULL, 0, NULL }

/// As memsaver_resume(), but does not wait for the bytes: on return all memory is mapped, and bytes are on their way.
/// Until a block's have come it must not be touched but by work of a stream that memsaver_arrival_before() was called
/// with, or after memsaver_arrival_wait(). `arrival` may not be null.
///
/// Errors: as memsaver_resume(), and MEMSAVER_MISUSE for bytes of `first` that are in no live block of the tags.
MEMSAVER_API memsaver_result memsaver_resume_async(memsaver_saver* saver, const char* const* names, size_t count,
                                                   const memsaver_resume_async_options* options,
                                                   memsaver_arrival** arrival) MEMSAVER_NOEXCEPT;

/// Saves what a pause of these tags would save, ahead of it, for policies with MEMSAVER_ONCE: copies while the program
/// works, so that the pause only gives pages back. Waits for the order in `options` here, whose `bytes` it ignores.
/// What is written after that is for the program to tell: memsaver_invalidate(). `arrival` may not be null.
///
/// Errors: MEMSAVER_MISUSE (a tag that was named and whose policy saves at every pause, or keeps nothing),
/// MEMSAVER_NOT_IDLE, and those of a pause.
MEMSAVER_API memsaver_result memsaver_save(memsaver_saver* saver, const char* const* names, size_t count,
                                           const memsaver_pause_options* options,
                                           memsaver_arrival** arrival) MEMSAVER_NOEXCEPT;

/// Work that `stream` is given from now on waits until all bytes of all tags have come. Does not wait itself, but for
/// bytes that copies do not reach directly (files, pageable memory). A stream that is being captured is
/// MEMSAVER_MISUSE: that is what gates are for.
MEMSAVER_API memsaver_result memsaver_arrival_before(memsaver_arrival* arrival, void* stream) MEMSAVER_NOEXCEPT;
/// The same for just these bytes, which are MEMSAVER_MISUSE where they are not in live blocks of the tags.
MEMSAVER_API memsaver_result memsaver_arrival_before_range(memsaver_arrival* arrival, void* stream, const void* pointer,
                                                           size_t bytes) MEMSAVER_NOEXCEPT;
/// Waits until all bytes have come, and ends what was begun; hooks that run after a resume run here. `report` may be
/// null. Tells, each time, what kept bytes from coming; the backup is whole then, and the next pause or resume goes on.
MEMSAVER_API memsaver_result memsaver_arrival_wait(memsaver_arrival* arrival,
                                                   memsaver_report* report) MEMSAVER_NOEXCEPT;
/// Waits until just these bytes have come; every stream sees them then.
MEMSAVER_API memsaver_result memsaver_arrival_wait_range(memsaver_arrival* arrival, const void* pointer,
                                                         size_t bytes) MEMSAVER_NOEXCEPT;
/// Whether nothing is on its way any more, whatever came of it. Does not wait.
MEMSAVER_API memsaver_result memsaver_arrival_done(memsaver_arrival* arrival, bool* done) MEMSAVER_NOEXCEPT;
/// Waits as memsaver_arrival_wait() does, and ends the handle. What fails then goes to `on_event`. Null does nothing.
MEMSAVER_API void memsaver_end_arrival(memsaver_arrival* arrival) MEMSAVER_NOEXCEPT;

/// A gate of `bytes` at `pointer` (or inside its block): work behind it waits for just these bytes whenever a
/// memsaver_resume_async() has them on their way. MEMSAVER_MISUSE for what is not in one live block. Keep it until
/// graphs that were captured behind it are gone.
MEMSAVER_API memsaver_result memsaver_get_gate(memsaver_saver* saver, const void* pointer, size_t bytes,
                                               memsaver_gate** gate) MEMSAVER_NOEXCEPT;
/// Work that `stream` is given from now on waits at the gate. If the stream is being captured, a wait becomes part of
/// the graph: each launch waits for the bytes that are on their way then.
MEMSAVER_API memsaver_result memsaver_gate_before(memsaver_gate* gate, void* stream) MEMSAVER_NOEXCEPT;
/// Ends the handle. Null does nothing.
MEMSAVER_API void memsaver_release_gate(memsaver_gate* gate) MEMSAVER_NOEXCEPT;

// --- Uses: more tags than memory ---

/// How tags are brought.
typedef struct memsaver_use_options {
    size_t size;
    /// What evictions wait for besides the ends of uses and what these marked: memsaver_order, streams and events as in
    /// memsaver_pause_options. By default MEMSAVER_ALREADY_IDLE: work outside of uses touches nothing that is evicted.
    int32_t order;
    void* const* streams;
    size_t stream_count;
    void* const* events;
    size_t event_count;
    /// How long to wait for pauses that are under way, and for work that uses marked: else MEMSAVER_NOT_IDLE. Negative:
    /// as long as it takes.
    int64_t timeout_ns;
    /// How long to wait for room that other threads' uses hold: else MEMSAVER_OUT_OF_MEMORY. Negative: as long as it
    /// takes.
    int64_t room_within_ns;
    /// False: a tag whose bytes memsaver_resume_async() is bringing counts as here. Where all tags are here or on their
    /// way this does not wait for the bytes, and nobody evicts them meanwhile; until they have come they are touched
    /// behind the arrival or a gate only.
    bool await_bytes;
} memsaver_use_options;

#define MEMSAVER_USE_OPTIONS_INIT                                                                                      \
    { sizeof(memsaver_use_options), MEMSAVER_ALREADY_IDLE, NULL, 0, NULL, 0, -1, -1, true }

/// Brings these tags, and keeps them here until memsaver_end_use() and until what memsaver_use_until() marked has
/// passed. Room is made by pausing tags that nobody uses, of the lowest priority first and of these the one that was
/// used longest ago: only tags that were once named in a use, or are evictable. Where these do not make enough room it
/// waits for other threads' uses to end. A pause of the tags meanwhile waits. `use` may not be null.
///
/// Errors: MEMSAVER_OUT_OF_MEMORY, at once, where no end of other threads' uses could make enough room, and on a thread
/// that holds a use; its text says who holds what. MEMSAVER_NOT_IDLE, MEMSAVER_MISUSE (an unknown tag; in a hook; in a
/// capture where not all is here already), and those of a pause and of a resume.
MEMSAVER_API memsaver_result memsaver_begin_use(memsaver_saver* saver, const char* const* names, size_t count,
                                                const memsaver_use_options* options,
                                                memsaver_use** use) MEMSAVER_NOEXCEPT;
/// The tags also stay until `stream` has passed what it was given so far. Does not wait; may be called for several, by
/// one thread at a time. A stream that is being captured is MEMSAVER_MISUSE.
MEMSAVER_API memsaver_result memsaver_use_until(memsaver_use* use, void* stream) MEMSAVER_NOEXCEPT;
/// The same for an event that was recorded: cudaEvent_t or CUevent, not null.
MEMSAVER_API memsaver_result memsaver_use_until_event(memsaver_use* use, void* event) MEMSAVER_NOEXCEPT;
/// Those of its tags whose bytes were dropped since they were last used, and have to be filled anew: `count` names,
/// valid as long as the handle.
MEMSAVER_API memsaver_result memsaver_use_lost(memsaver_use* use, const char* const** names,
                                               size_t* count) MEMSAVER_NOEXCEPT;
/// Ends the use, on any thread: what was submitted and not marked has passed. Null does nothing.
MEMSAVER_API void memsaver_end_use(memsaver_use* use) MEMSAVER_NOEXCEPT;

/// As memsaver_arena_options.evictable, from now on. A tag that was named in a use is so; false takes that back until
/// the next one.
MEMSAVER_API memsaver_result memsaver_set_evictable(memsaver_saver* saver, const char* const* names, size_t count,
                                                    bool evictable) MEMSAVER_NOEXCEPT;
/// As memsaver_arena_options.priority, from now on.
MEMSAVER_API memsaver_result memsaver_set_priority(memsaver_saver* saver, const char* const* names, size_t count,
                                                   int32_t priority) MEMSAVER_NOEXCEPT;

/// How memory is reclaimed.
typedef struct memsaver_reclaim_options {
    size_t size;
    int32_t order; ///< as memsaver_use_options.order, with its streams and events
    void* const* streams;
    size_t stream_count;
    void* const* events;
    size_t event_count;
    int64_t timeout_ns; ///< how long to wait for work that uses marked; then the tag is passed by. Negative: no end
    int32_t device;     ///< the number of the device that is to have more; -1: the saver's
} memsaver_reclaim_options;

#define MEMSAVER_RECLAIM_OPTIONS_INIT                                                                                  \
    { sizeof(memsaver_reclaim_options), MEMSAVER_ALREADY_IDLE, NULL, 0, NULL, 0, -1, -1 }

/// What a reclaim got, in bytes of physical memory.
typedef struct memsaver_reclaimed {
    size_t size;
    size_t wanted_bytes;
    size_t unused_bytes;  ///< given back of what nobody used
    size_t elastic_bytes; ///< given back by owners of elastic memory, whom it asked
    size_t evicted_bytes; ///< given back by pausing idle tags
    size_t saved_bytes;   ///< that these pauses copied to backups
} memsaver_reclaimed;

#define MEMSAVER_RECLAIMED_INIT                                                                                        \
    { sizeof(memsaver_reclaimed), 0, 0, 0, 0, 0 }

/// Gives `bytes` or more back to a device: first what nobody uses, then what owners of elastic memory release when they
/// are asked, then idle tags, in the order in which a use would pause them. Never waits for a use. Less than that is no
/// failure: `reclaimed` says what was got, and `text`, in a line, also why not more and who holds the rest; it is given
/// back with memsaver_free_text(). Both may be null.
///
/// Errors: those of a pause, and MEMSAVER_MISUSE inside a hook and for a device on which no tag lives.
MEMSAVER_API memsaver_result memsaver_reclaim(memsaver_saver* saver, size_t bytes,
                                              const memsaver_reclaim_options* options, memsaver_reclaimed* reclaimed,
                                              char** text) MEMSAVER_NOEXCEPT;

// --- Elastic memory ---

/// Asked where the device lacks memory that idle tags do not make up for, on the thread that wants it, with no lock
/// held: releases what it can spare of the range, and returns how many bytes that were; 0 refuses. Must not throw nor
/// longjmp.
typedef size_t (*memsaver_reclaim_function)(void* context, size_t bytes);

/// How an elastic range is made.
typedef struct memsaver_elastic_options {
    size_t size;
    size_t granularity; ///< bytes of one step, rounded up to the device's pages; 0: 64 MiB
    /// Null: nobody is asked. It and its context must outlive the range.
    memsaver_reclaim_function on_reclaim;
    void* on_reclaim_context;
} memsaver_elastic_options;

#define MEMSAVER_ELASTIC_OPTIONS_INIT                                                                                  \
    { sizeof(memsaver_elastic_options), 0, NULL, NULL }

/// `bytes` of addresses of an arena, without memory so far. They cost no memory and may be more than the device has.
/// Each step that has memory is a block of the tag: paused, resumed, saved and counted with it.
MEMSAVER_API memsaver_result memsaver_make_elastic(memsaver_arena* arena, size_t bytes,
                                                   const memsaver_elastic_options* options,
                                                   memsaver_elastic** elastic) MEMSAVER_NOEXCEPT;
/// Ends the range: gives everything back, as memsaver_deallocate() does. Null does nothing.
MEMSAVER_API void memsaver_end_elastic(memsaver_elastic* elastic) MEMSAVER_NOEXCEPT;

/// Memory for `bytes` at `offset`, rounded outward to whole steps; steps that have some keep it, and their bytes. All
/// or nothing. Errors: MEMSAVER_MISUSE (0 bytes, beyond the range, any of it paused, the tag's capacity), and those of
/// an allocation.
MEMSAVER_API memsaver_result memsaver_elastic_commit(memsaver_elastic* elastic, size_t offset,
                                                     size_t bytes) MEMSAVER_NOEXCEPT;
/// Gives up the memory of `bytes` at `offset`, rounded inward to whole steps, paused or not. Does not wait: pages go
/// back once the order in `options` has passed, whose `timeout_ns` and `bytes` it ignores. MEMSAVER_MISUSE: 0 bytes,
/// beyond the range, a step of it has no memory, a capture.
MEMSAVER_API memsaver_result memsaver_elastic_release(memsaver_elastic* elastic, size_t offset, size_t bytes,
                                                      const memsaver_pause_options* options) MEMSAVER_NOEXCEPT;
/// Commits or releases at the end. Where the step that holds byte `bytes - 1` lies behind the last one with memory,
/// commits all from there up to it; else releases what lies behind it. 0 releases everything. What was released before
/// the last step with memory stays so. Errors as of these two.
MEMSAVER_API memsaver_result memsaver_elastic_resize(memsaver_elastic* elastic, size_t bytes,
                                                     const memsaver_pause_options* options) MEMSAVER_NOEXCEPT;

/// What an elastic range is.
typedef struct memsaver_elastic_info {
    size_t size;
    void* data;             ///< its first address, which never changes
    size_t capacity;        ///< bytes of addresses
    size_t granularity;     ///< bytes of one step
    size_t committed_bytes; ///< that have memory, paused or not
} memsaver_elastic_info;

#define MEMSAVER_ELASTIC_INFO_INIT                                                                                     \
    { sizeof(memsaver_elastic_info), NULL, 0, 0, 0 }

MEMSAVER_API memsaver_result memsaver_get_elastic_info(memsaver_elastic* elastic,
                                                       memsaver_elastic_info* info) MEMSAVER_NOEXCEPT;

// --- Hooks ---

typedef enum memsaver_moment {
    MEMSAVER_BEFORE_PAUSE = 0,
    MEMSAVER_AFTER_PAUSE = 1,
    MEMSAVER_BEFORE_RESUME = 2,
    MEMSAVER_AFTER_RESUME = 3
} memsaver_moment;

/// What a hook is told. Valid during the call. New fields come at the end.
typedef struct memsaver_hook_event {
    size_t size;
    int32_t moment;          ///< memsaver_moment
    const char* const* tags; ///< the tags concerned
    size_t tag_count;
    const memsaver_report* report; ///< what was done; all 0 before
} memsaver_hook_event;

/// Runs on the thread that pauses or resumes, with no lock held. It may allocate and free, but not pause, resume,
/// exchange, trim, drop or close. 0: go on. Non-zero: before, the operation is refused, nothing happens and the hooks
/// after it do not run; after, the operation is done, and all others still run. Either way the call is
/// MEMSAVER_HOOK_FAILED, and its text has the number. A hook must not throw C++ exceptions nor leave by longjmp.
typedef int (*memsaver_hook_function)(void* context, const memsaver_hook_event* event);

/// Adds a hook at a `moment` (memsaver_moment); hooks of one moment run in the order in which they were added. Those
/// that run after do not run when the operation failed. `hook` may be null: the hook then ends with the saver.
MEMSAVER_API memsaver_result memsaver_add_hook(memsaver_saver* saver, int32_t moment, memsaver_hook_function function,
                                               void* context, memsaver_hook** hook) MEMSAVER_NOEXCEPT;
/// Ends a hook. It does not run again; one that is running on another thread runs to its end. Also works after the
/// saver was destroyed. Null does nothing.
MEMSAVER_API void memsaver_remove_hook(memsaver_hook* hook) MEMSAVER_NOEXCEPT;

// --- Usage ---

/// Who holds what, in bytes.
typedef struct memsaver_usage {
    size_t size;
    size_t arenas;          ///< how many arenas these are the sums of
    size_t reserved_bytes;  ///< addresses
    size_t mapped_bytes;    ///< physical memory owned, held bytes included
    size_t held_bytes;      ///< of these, what the driver refused to take back so far
    size_t used_bytes;      ///< live blocks, as requested, paused or not
    size_t paused_bytes;    ///< addresses whose memory is away
    size_t backed_up_bytes; ///< held by policies, on the host or in files
    size_t blocks;          ///< live blocks
    // Since the arenas were made:
    size_t peak_mapped_bytes;    ///< the most that was ever mapped; of several arenas, the sum of their peaks
    size_t pauses;               ///< how often memory went away
    size_t resumes;              ///< and how often it came back
    size_t released_total_bytes; ///< physical memory that pauses gave back, summed up
    size_t saved_total_bytes;    ///< copied to backups
    size_t restored_total_bytes; ///< copied, or filled, from them
    size_t elastic_bytes;        ///< of what is used now: committed in elastic ranges
} memsaver_usage;

#define MEMSAVER_USAGE_INIT                                                                                            \
    { sizeof(memsaver_usage), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/// The sums over these tags on all their devices. A name that is unknown is MEMSAVER_MISUSE. Every tag (null names)
/// includes plain memory.
MEMSAVER_API memsaver_result memsaver_get_usage(memsaver_saver* saver, const char* const* names, size_t count,
                                                memsaver_usage* usage) MEMSAVER_NOEXCEPT;
/// One arena's, also once the saver has been closed. Of a tag that was dropped it is MEMSAVER_MISUSE: the handle stands
/// for nothing, also where the name has been made anew.
MEMSAVER_API memsaver_result memsaver_get_arena_usage(memsaver_arena* arena, memsaver_usage* usage) MEMSAVER_NOEXCEPT;

/// All of it as JSON, in one line:
/// {"arenas":[{"tag":"weights","device":0,"policy":"host","state":"paused","reserved_bytes":0, ...}, ...],
///  "devices":[{"device":0,"total_bytes":0,"used_bytes":0,"mapped_bytes":0,"unexplained_bytes":0,"known":true}, ...],
///  "residency":{"hits":0,"misses":0,"waits":0,"evictions":0, ...}}
/// Arenas have the fields of memsaver_usage and a state: "active", "paused", "partly paused", "arriving", "empty",
/// "plain" or "closed"; and of their tag how many uses name it ("users"), "evictable", "priority" and "age_ns", since
/// its last use began or ended. Bytes of a tag's name that are no UTF-8 pass as they are. Give the text back with
/// memsaver_free_text().
MEMSAVER_API memsaver_result memsaver_get_usage_json(memsaver_saver* saver, char** json) MEMSAVER_NOEXCEPT;

/// Gives back a text that the library made. Null does nothing.
MEMSAVER_API void memsaver_free_text(char* text) MEMSAVER_NOEXCEPT;

// --- PyTorch ---

// What a pluggable allocator of PyTorch (torch.cuda.memory.CUDAPluggableAllocator) calls by name, without a context.
// The Python package does the rest (docs/python.md).

/// From here to the matching pop, this thread's memsaver_torch_allocate() serves from `arena`; an inner push overrides
/// an outer one. The handle may be released meanwhile.
MEMSAVER_API memsaver_result memsaver_torch_push(memsaver_arena* arena) MEMSAVER_NOEXCEPT;
/// Ends this thread's innermost push. Without any it is MEMSAVER_MISUSE.
MEMSAVER_API memsaver_result memsaver_torch_pop(void) MEMSAVER_NOEXCEPT;
/// `bytes` at a multiple of 512, from the arena that this thread has pushed. Null, and memsaver_last_error() says why,
/// where there is none, where `device` is not the arena's, and where there is no room. 0 bytes or less are null. The
/// block is good on every stream.
MEMSAVER_API void* memsaver_torch_allocate(ptrdiff_t bytes, int device, void* stream) MEMSAVER_NOEXCEPT;
/// Gives back what memsaver_torch_allocate() gave, on any thread, paused or not; it is handed out again once `stream`
/// has passed here, or the device where the stream cannot be marked. Null, and what is not known, do nothing. After its
/// tag was dropped or its saver closed it does nothing; an address that was handed out again meanwhile is free once it
/// was given back as often. What fails goes to the saver's on_event.
MEMSAVER_API void memsaver_torch_free(void* pointer, ptrdiff_t bytes, int device, void* stream) MEMSAVER_NOEXCEPT;

#ifdef __cplusplus
} // extern "C"
#endif
