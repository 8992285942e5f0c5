// Tests what the C interface adds to the C++ library: that each argument, result, null, size field, error and callback
// arrives. What the calls do is tested in C++. Run as: c_test host | gpu | host_gpu | stub <a libcuda that fails on
// request>. host_gpu: libcuda.so.1 is implemented in host memory. Returns 0 on success, 1 on failure, 77 if it cannot
// run.
#define _GNU_SOURCE // for memfd's names under /proc
#include "checks.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

// A list of tags, as two arguments.
#define LIST(...) ((const char* const[]){__VA_ARGS__})
#define TAGS(...) LIST(__VA_ARGS__), COUNT(LIST(__VA_ARGS__))
#define UNDER(prefix) LIST(prefix), MEMSAVER_UNDER
#define NONE LIST(NULL), 0
#define ALL NULL, 0

// --- The machine: host memory accessible to the CPU, or a GPU through its driver ---

static int (*copy_in)(unsigned long long to, const void* from, size_t bytes);
static int (*copy_out)(void* to, unsigned long long from, size_t bytes);

static void put(void* block, unsigned char byte, size_t bytes) {
    if (copy_in == NULL) {
        memset(block, byte, bytes);
        return;
    }
    void* from = malloc(bytes);
    memset(from, byte, bytes);
    CHECK(copy_in((unsigned long long)(uintptr_t)block, from, bytes) == 0);
    free(from);
}

static bool reads(const void* block, unsigned char byte, size_t bytes) {
    unsigned char* copy = malloc(bytes);
    if (copy_out != NULL) {
        CHECK(copy_out(copy, (unsigned long long)(uintptr_t)block, bytes) == 0);
    } else {
        memcpy(copy, block, bytes);
    }
    bool all = true;
    for (size_t i = 0; i < bytes; ++i) all = all && copy[i] == byte;
    free(copy);
    return all;
}

static memsaver_options options_of_machine = MEMSAVER_OPTIONS_INIT;

/// The saver under test.
static memsaver_saver* saver = NULL;

static void open_with(memsaver_options options) { OK(memsaver_create(&options, &saver)); }
static void open_saver(void) { open_with(options_of_machine); }

static memsaver_options small_machine(void) {
    memsaver_options options = options_of_machine;
    options.host_capacity = 64 * MIB;
    return options;
}

static memsaver_policy policy_of(int32_t kind) {
    memsaver_policy policy = MEMSAVER_POLICY_INIT;
    policy.kind = kind;
    if (kind == MEMSAVER_FILE_BACKUP) policy.directory = "/tmp";
    return policy;
}

static memsaver_result make(const char* tag, memsaver_policy policy) {
    memsaver_arena_options options = MEMSAVER_ARENA_OPTIONS_INIT;
    options.policy = &policy;
    return memsaver_make_tag(saver, tag, &options);
}

static void* block_of(const char* tag, size_t bytes, unsigned char byte) {
    void* block = NULL;
    OK(memsaver_allocate(saver, tag, bytes, 0, &block));
    put(block, byte, bytes);
    return block;
}

static void* kept_block(const char* tag, size_t bytes, unsigned char byte) {
    OK(make(tag, policy_of(MEMSAVER_HOST_BACKUP)));
    return block_of(tag, bytes, byte);
}

static memsaver_report report;

static memsaver_report* told(void) {
    report = (memsaver_report)MEMSAVER_REPORT_INIT;
    return &report;
}

static memsaver_error last(void) {
    memsaver_error error = MEMSAVER_ERROR_INIT;
    OK(memsaver_get_last_error(&error));
    CHECK(error.size == sizeof error);
    return error;
}

static memsaver_usage usage_of(const char* tag) {
    memsaver_usage usage = MEMSAVER_USAGE_INIT;
    OK(memsaver_get_usage(saver, &tag, 1, &usage));
    return usage;
}

static memsaver_usage usage_in(memsaver_arena* arena) {
    memsaver_usage usage = MEMSAVER_USAGE_INIT;
    OK(memsaver_get_arena_usage(arena, &usage));
    return usage;
}

static bool usage_says(const char* text) {
    char* json = NULL;
    OK(memsaver_get_usage_json(saver, &json));
    const bool says = json != NULL && strstr(json, text) != NULL;
    memsaver_free_text(json);
    return says;
}

static const memsaver_pause_options plain_pause = MEMSAVER_PAUSE_OPTIONS_INIT;
static const memsaver_resume_options plain_resume = MEMSAVER_RESUME_OPTIONS_INIT;

static void run(void* (*act)(void*), void* argument) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, act, argument) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
}

// --- Pages and bytes ---

static void test_version_and_results(void) {
    CHECK(memsaver_version() >= 200);
    int major = -1, minor = -1, patch = -1;
    CHECK(sscanf(memsaver_version_text(), "%d.%d.%d", &major, &minor, &patch) == 3);
    CHECK(memsaver_version() == major * 10000 + minor * 100 + patch);
    for (int result = MEMSAVER_OK; result <= MEMSAVER_PUBLICATION_DAMAGED; ++result) {
        CHECK(strncmp(memsaver_result_name(result), "MEMSAVER_", 9) == 0);
        for (int other = MEMSAVER_OK; other < result; ++other)
            CHECK(strcmp(memsaver_result_name(result), memsaver_result_name(other)) != 0);
    }
    CHECK(strcmp(memsaver_result_name(-1), "unknown result") == 0);
    CHECK(strcmp(memsaver_result_name(99), "unknown result") == 0);
}

static void test_pause_and_resume(void) {
    open_saver();
    const size_t size = 5 * MIB;
    char* weights = kept_block("weights", size, 7);
    void* cache = block_of("kv_cache", 8 * MIB, 1);
    CHECK(memsaver_owns(saver, weights) && memsaver_owns(saver, weights + size - 1));
    CHECK(!memsaver_owns(saver, &weights) && !memsaver_owns(saver, NULL) && !memsaver_owns(NULL, weights));
    CHECK(!memsaver_is_paused(saver, weights, size));
    size_t bytes = 1;
    OK(memsaver_bytes_to_resume(saver, ALL, &bytes));
    CHECK(bytes == 0);
    OK(memsaver_pause(saver, ALL, NULL, told()));
    CHECK(report.size == sizeof report && report.released_bytes >= 13 * MIB && report.saved_bytes == size);
    CHECK(report.elapsed_ns > 0 && report.waited_ns >= 0 && report.waited_ns <= report.elapsed_ns);
    CHECK(report.mapped_bytes == 0 && report.restored_bytes == 0 && report.held_bytes == 0);
    CHECK(memsaver_owns(saver, weights) && memsaver_is_paused(saver, weights, size));
    CHECK(memsaver_is_paused(saver, weights + size - 1, 1) && !memsaver_is_paused(saver, weights, 0));
    CHECK(!memsaver_is_paused(saver, &weights, 1) && !memsaver_is_paused(NULL, weights, 1));
    OK(memsaver_bytes_to_resume(saver, TAGS("weights"), &bytes));
    CHECK(bytes >= size && bytes < 13 * MIB);

    // The backup, read and written.
    unsigned char fresh[3000], kept[sizeof fresh];
    memset(fresh, 9, sizeof fresh);
    OK(memsaver_write_backup(saver, weights + 2 * MIB, fresh, sizeof fresh));
    OK(memsaver_read_backup(saver, weights + 2 * MIB, sizeof kept, kept));
    CHECK(memcmp(kept, fresh, sizeof fresh) == 0);
    MISUSE(memsaver_read_backup(saver, cache, 1, kept), "kv_cache");
    MISUSE(memsaver_write_backup(saver, cache, fresh, 1), "kv_cache");
    CHECK(strcmp(last().tag, "kv_cache") == 0);
    OK(memsaver_resume(saver, TAGS("weights"), NULL, told()));
    CHECK(report.restored_bytes == size && report.mapped_bytes >= size && report.released_bytes == 0);
    CHECK(reads(weights, 7, 2 * MIB) && reads(weights + 2 * MIB, 9, sizeof fresh));
    CHECK(reads(weights + 2 * MIB + sizeof fresh, 7, size - 2 * MIB - sizeof fresh));
    OK(memsaver_resume(saver, ALL, NULL, NULL));

    // Other bytes for one pause, or for one resume.
    const memsaver_policy discard = policy_of(MEMSAVER_DISCARD);
    memsaver_pause_options pausing = plain_pause;
    memsaver_resume_options resuming = plain_resume;
    pausing.bytes = &discard;
    OK(memsaver_pause(saver, TAGS("weights"), &pausing, told()));
    CHECK(report.saved_bytes == 0);
    OK(memsaver_resume(saver, TAGS("weights"), NULL, NULL));
    resuming.bytes = &discard;
    OK(memsaver_pause(saver, TAGS("weights"), NULL, told()));
    CHECK(report.saved_bytes == size);
    OK(memsaver_resume(saver, TAGS("weights"), &resuming, told()));
    CHECK(report.restored_bytes == 0);
    OK(memsaver_pause(saver, TAGS("weights"), NULL, NULL));
    OK(memsaver_forget_backup(saver, TAGS("weights")));
    OK(memsaver_resume(saver, TAGS("weights"), NULL, told()));
    CHECK(report.restored_bytes == 0);

    // A list of tags: every one, none, all under a prefix. The longest times mean for ever.
    OK(memsaver_pause(saver, NONE, NULL, told()));
    CHECK(report.released_bytes == 0);
    pausing.timeout_ns = INT64_MAX;
    resuming = plain_resume;
    resuming.room_within_ns = INT64_MAX;
    OK(memsaver_pause(saver, UNDER("kv_"), &pausing, told()));
    CHECK(report.released_bytes >= 8 * MIB && report.released_bytes < 13 * MIB);
    OK(memsaver_resume(saver, UNDER("kv_"), &resuming, NULL));

    // Not retained, then retained; trimmed, dropped, closed.
    for (int retain = 0; retain < 2; ++retain) {
        OK(memsaver_set_retain(saver, TAGS("weights"), retain != 0));
        OK(memsaver_pause(saver, TAGS("weights"), NULL, NULL));
        OK(memsaver_resume(saver, TAGS("weights"), NULL, NULL));
        CHECK(usage_of("weights").backed_up_bytes == (retain != 0 ? size : 0));
    }
    OK(memsaver_deallocate_idle(saver, weights));
    OK(memsaver_trim(saver, ALL, NULL, told()));
    CHECK(report.released_bytes >= size && usage_of("weights").mapped_bytes == 0);
    OK(memsaver_drop(saver, TAGS("weights")));
    MISUSE(memsaver_pause(saver, TAGS("weights"), NULL, NULL), "weights");
    OK(memsaver_close(saver));
    MISUSE(memsaver_allocate(saver, "weights", 1, 0, (void**)&weights), "closed");
    CHECK(weights == NULL);
    memsaver_destroy(saver);
}

static void test_exchange(void) {
    open_saver();
    const size_t size = 16 * MIB;
    void* first = kept_block("lora/a", size, 3);
    OK(memsaver_pause(saver, TAGS("lora/a"), NULL, NULL));
    void* second = kept_block("lora/b", size, 5);
    OK(memsaver_exchange(saver, TAGS("lora/b"), TAGS("lora/a"), NULL, told()));
    CHECK(report.handed_bytes >= size && report.mapped_bytes >= size && report.released_bytes == 0);
    CHECK(report.saved_bytes == size && report.restored_bytes == size && report.held_bytes == 0);
    CHECK(usage_of("lora/a").mapped_bytes >= size && usage_of("lora/b").mapped_bytes == 0 && reads(first, 3, size));

    // Each option of both sides.
    memsaver_policy discard = policy_of(MEMSAVER_DISCARD), zero = policy_of(MEMSAVER_ZERO);
    memsaver_pause_options pausing = plain_pause;
    memsaver_resume_options resuming = plain_resume;
    memsaver_exchange_options options = MEMSAVER_EXCHANGE_OPTIONS_INIT;
    void* streams[] = {NULL};
    options.pausing = &pausing;
    options.resuming = &resuming;
    pausing.bytes = &discard;
    resuming.bytes = &zero;
    OK(memsaver_exchange(saver, TAGS("lora/a"), TAGS("lora/b"), &options, told()));
    CHECK(report.saved_bytes == 0 && reads(second, 0, size));
    pausing = plain_pause;
    resuming = plain_resume;
    pausing.order = MEMSAVER_AFTER_STREAMS;
    pausing.streams = streams;
    pausing.stream_count = 1;
    pausing.timeout_ns = (int64_t)60 * 1000000000;
    OK(memsaver_exchange(saver, TAGS("lora/b"), TAGS("lora/a"), &options, told()));
    CHECK(report.saved_bytes == size && report.restored_bytes == 0);
    OK(memsaver_exchange(saver, TAGS("lora/a"), NONE, NULL, told()));
    CHECK(report.handed_bytes == 0 && report.released_bytes >= size && report.saved_bytes == size);

    // Invalid arguments: the result is a misuse, and an empty report.
    MISUSE(memsaver_exchange(saver, TAGS("lora/b"), TAGS("c"), NULL, told()), "exchange: unknown tag \"c\"");
    CHECK(report.size == sizeof report && report.handed_bytes == 0 && report.released_bytes == 0);
    resuming.size = 0;
    MISUSE(memsaver_exchange(saver, TAGS("lora/b"), TAGS("lora/a"), &options, NULL), "resume_options: its size field");
    pausing.order = MEMSAVER_AFTER_DEVICE;
    options.resuming = NULL;
    MISUSE(memsaver_exchange(saver, TAGS("lora/b"), TAGS("lora/a"), &options, NULL), "exchange: streams and events");
    pausing.size = 0;
    MISUSE(memsaver_exchange(saver, TAGS("lora/b"), TAGS("lora/a"), &options, NULL), "pause_options: its size field");
    options.size = 1;
    MISUSE(memsaver_exchange(saver, TAGS("lora/b"), TAGS("lora/a"), &options, NULL), "exchange_options: its size");
    CHECK(usage_of("lora/a").mapped_bytes == 0);
    memsaver_destroy(saver);
}

// --- Blocks, arenas, regions ---

static void test_blocks(void) {
    open_saver();
    memsaver_saver* const mine = saver;
    memsaver_arena* arena = NULL;
    memsaver_arena_options options = MEMSAVER_ARENA_OPTIONS_INIT;
    options.capacity = 64 * MIB;
    options.reserve = 4 * MIB;
    OK(memsaver_get_arena(saver, "tag", &options, &arena));
    CHECK(usage_in(arena).arenas == 1 && usage_in(arena).mapped_bytes == 4 * MIB && usage_in(arena).used_bytes == 0);
    void* blocks[6] = {NULL};
    OK(memsaver_allocate(saver, "tag", 1000, 0, &blocks[0]));
    OK(memsaver_allocate(saver, "tag", 1000, 1 << 14, &blocks[1]));
    OK(memsaver_allocate_on(saver, "tag", 1000, 1 << 15, NULL, &blocks[2]));
    OK(memsaver_arena_allocate(arena, 1000, 0, &blocks[3]));
    OK(memsaver_arena_allocate(arena, 1000, 1 << 17, &blocks[4]));
    OK(memsaver_arena_allocate_on(arena, 1000, 1 << 18, NULL, &blocks[5]));
    const uintptr_t alignments[] = {256, 1 << 14, 1 << 15, 256, 1 << 17, 1 << 18};
    for (size_t i = 0; i < COUNT(blocks); ++i) CHECK(blocks[i] != NULL && (uintptr_t)blocks[i] % alignments[i] == 0);
    CHECK(usage_in(arena).blocks == 6 && usage_in(arena).used_bytes == 6000);
    MISUSE(memsaver_arena_allocate(arena, 1, 3, &blocks[0]), "alignment");
    CHECK(blocks[0] == NULL);
    OK(memsaver_deallocate(saver, blocks[1]));
    MISUSE(memsaver_deallocate(saver, blocks[1]), "tag");
    OK(memsaver_deallocate_idle(saver, blocks[2]));
    MISUSE(memsaver_deallocate_idle(saver, blocks[2]), "tag");
    OK(memsaver_arena_deallocate(arena, blocks[3]));
    MISUSE(memsaver_arena_deallocate(arena, blocks[3]), "tag");
    OK(memsaver_arena_deallocate_idle(arena, blocks[4]));
    MISUSE(memsaver_arena_deallocate_idle(arena, blocks[4]), "tag");
    OK(memsaver_arena_deallocate_on(arena, blocks[5], NULL));
    MISUSE(memsaver_arena_deallocate_on(arena, blocks[5], NULL), "tag");
    OK(memsaver_allocate(saver, "tag", 1000, 0, &blocks[5]));
    OK(memsaver_deallocate_on(saver, blocks[5], NULL));
    MISUSE(memsaver_deallocate_on(saver, blocks[5], NULL), "tag");

    // No bytes: null, in no region too, and freed.
    for (size_t i = 0; i < COUNT(blocks); ++i) blocks[i] = &arena;
    OK(memsaver_allocate(saver, NULL, 0, 0, &blocks[0]));
    OK(memsaver_arena_allocate(arena, 0, 0, &blocks[1]));
    OK(memsaver_arena_allocate_on(arena, 0, 0, NULL, &blocks[2]));
    for (size_t i = 0; i < 3; ++i) CHECK(blocks[i] == NULL);
    OK(memsaver_deallocate(saver, NULL));

    void* large = NULL;
    MISUSE(memsaver_arena_allocate(arena, 65 * MIB, 0, &large), "tag"); // exceeds its capacity
    OK(memsaver_set_capacity(saver, TAGS("tag"), 80 * MIB));
    OK(memsaver_arena_allocate(arena, 65 * MIB, 0, &large));

    // Regions: of a tag, an arena, plain memory, which no pause concerns.
    OK(memsaver_push_region(saver, "other"));
    OK(memsaver_push_arena(saver, arena));
    void* inner = block_of(NULL, 100, 1);
    OK(memsaver_push_outside(saver));
    void* plain = block_of(NULL, 1000, 1);
    OK(memsaver_pop_region(saver));
    OK(memsaver_pop_region(saver));
    void* outer = block_of(NULL, 10, 1);
    OK(memsaver_pop_region(saver));
    MISUSE(memsaver_pop_region(saver), "no open region");
    CHECK(usage_in(arena).used_bytes == 65 * MIB + 1100 && usage_of("other").used_bytes == 10);
    OK(memsaver_pause(saver, ALL, NULL, NULL));
    CHECK(memsaver_is_paused(saver, inner, 1) && memsaver_is_paused(saver, outer, 1) && reads(plain, 1, 1000));
    open_saver();
    MISUSE(memsaver_push_arena(saver, arena), "another saver");
    OK(memsaver_close(saver));
    memsaver_destroy(saver);

    memsaver_destroy(mine); // the arena outlives the saver's handle
    OK(memsaver_arena_deallocate(arena, large));
    memsaver_release_arena(arena);
    open_saver();
    OK(memsaver_get_arena(saver, "tag", NULL, &arena));
    OK(memsaver_close(saver));
    MISUSE(memsaver_push_arena(saver, arena), "closed");
    memsaver_release_arena(arena);
    memsaver_destroy(saver);
}

static void test_torch(void) {
    open_saver();
    memsaver_arena *outer = NULL, *inner = NULL;
    OK(memsaver_get_arena(saver, "outer", NULL, &outer));
    OK(memsaver_get_arena(saver, "inner", NULL, &inner));
    OK(memsaver_torch_push(outer));
    OK(memsaver_torch_push(inner));
    void* a = memsaver_torch_allocate(1000, 0, NULL);
    CHECK(a != NULL && (uintptr_t)a % 512 == 0 && usage_in(inner).blocks == 1 && usage_in(outer).blocks == 0);
    OK(memsaver_torch_pop());
    void* b = memsaver_torch_allocate(1000, 0, NULL);
    CHECK(b != NULL && usage_in(outer).blocks == 1);
    CHECK(memsaver_torch_allocate(0, 0, NULL) == NULL);
    CHECK(memsaver_torch_allocate(1000, 7, NULL) == NULL);
    CHECK(strstr(memsaver_last_error(), "device 7") != NULL);
    CHECK(memsaver_torch_allocate((ptrdiff_t)1 << 50, 0, NULL) == NULL);
    OK(memsaver_torch_pop());
    MISUSE(memsaver_torch_pop(), "pushed no arena");
    CHECK(memsaver_torch_allocate(1000, 0, NULL) == NULL);
    CHECK(strstr(memsaver_last_error(), "pushed no arena") != NULL);
    memsaver_torch_free(NULL, 8, 0, NULL);
    memsaver_torch_free(&b, 4, 0, NULL);   // foreign pointer
    memsaver_torch_free(a, 1000, 0, NULL); // outside any region
    CHECK(usage_in(inner).blocks == 0);
    memsaver_torch_free(a, 1000, 0, NULL); // twice

    // A late free, after its tag was dropped, does not free a new block at the same address.
    OK(memsaver_drop(saver, TAGS("outer")));
    memsaver_usage usage = MEMSAVER_USAGE_INIT;
    MISUSE(memsaver_get_arena_usage(outer, &usage), "tag \"outer\" has been dropped");
    CHECK(usage.arenas == 0);
    memsaver_release_arena(outer);
    OK(memsaver_get_arena(saver, "outer", NULL, &outer));
    OK(memsaver_torch_push(outer));
    void* c = memsaver_torch_allocate(1000, 0, NULL);
    OK(memsaver_torch_pop());
    memsaver_torch_free(b, 1000, 0, NULL);
    CHECK(usage_in(outer).blocks == 1);
    memsaver_release_arena(outer);
    memsaver_release_arena(inner);
    memsaver_destroy(saver); // before the last tensor is freed
    memsaver_torch_free(c, 1000, 0, NULL);
}

static void count_ignored(void* context, const memsaver_event* event) {
    if (event->kind == MEMSAVER_EVENT_IGNORED) ++*(int*)context;
}

static void* leave_a_region(void* unused) {
    OK(memsaver_push_region(saver, "left"));
    return unused;
}

static void* expect_no_region(void* unused) {
    void* block = NULL;
    MISUSE(memsaver_allocate(saver, NULL, 1000, 0, &block), "no open region");
    MISUSE(memsaver_pop_region(saver), "no open region");
    OK(memsaver_push_region(saver, "own"));
    OK(memsaver_allocate(saver, NULL, 1000, 0, &block));
    OK(memsaver_pop_region(saver));
    MISUSE(memsaver_pop_region(saver), "no open region");
    return unused;
}

static void test_regions_that_are_left(void) {
    // A saver that closes ends a thread's regions innermost first: none ends out of order.
    for (int destroy = 0; destroy < 2; ++destroy) {
        int ignored = 0;
        memsaver_options options = options_of_machine;
        options.on_event = count_ignored;
        options.on_event_context = &ignored;
        open_with(options);
        OK(memsaver_push_region(saver, "one"));
        OK(memsaver_push_region(saver, "two"));
        OK(memsaver_push_region(saver, "three"));
        if (destroy == 0) OK(memsaver_close(saver));
        memsaver_destroy(saver);
        CHECK(ignored == 0);
    }
    // A region that an ended thread left open is none of a later thread, to which the system gives the same id.
    open_saver();
    run(leave_a_region, NULL);
    for (int i = 0; i < 20; ++i) run(expect_no_region, NULL);
    CHECK(usage_of("left").blocks == 0);
    memsaver_destroy(saver);
}

// --- Policies and usage ---

#define WRONG(kind, field, value, text)                                                                                \
    do {                                                                                                               \
        memsaver_policy wrong = policy_of(kind);                                                                       \
        wrong.field = value;                                                                                           \
        MISUSE(make("new", wrong), text);                                                                              \
    } while (0)

static void test_policies(void) {
    open_saver();
    memsaver_policy policies[8];
    for (size_t i = 0; i < COUNT(policies); ++i)
        policies[i] = policy_of(i < 5 ? MEMSAVER_HOST_BACKUP : MEMSAVER_FILE_BACKUP);
    policies[0] = policy_of(MEMSAVER_DISCARD);
    policies[0].poison = 0x5a;
    policies[1] = policy_of(MEMSAVER_ZERO);
    policies[1].compressed = true; // ignored
    policies[2].storage = MEMSAVER_PAGEABLE;
    policies[2].retain = false;
    policies[2].threads = 2;
    policies[2].ring_bytes = 8 * MIB;
    policies[3].refresh = MEMSAVER_ONCE;
    policies[3].check = true;
    policies[4].verified = true;
    policies[6].refresh = MEMSAVER_ONCE;
    policies[7].compressed = true;
    policies[7].refresh = MEMSAVER_ONCE;
    const int after[] = {0x5a, 0, 42, 42, 42, 42, 42, 42};
    for (size_t i = 0; i < COUNT(policies); ++i) {
        char name[16];
        snprintf(name, sizeof name, "tag %zu", i);
        const memsaver_result result = make(name, policies[i]);
        // The library was built without xxHash, or there is no codec.
        if ((policies[i].verified || i == 7) && result == MEMSAVER_UNAVAILABLE) continue;
        OK(result);
        void* block = block_of(name, 3 * MIB, 42);
        if (i < 2) MISUSE(memsaver_invalidate(saver, TAGS(name)), name);
        IS(i < 2 ? MEMSAVER_MISUSE : MEMSAVER_OK, memsaver_prepare(saver, TAGS(name)));
        OK(memsaver_pause(saver, TAGS(name), NULL, told()));
        CHECK(report.saved_bytes == (i < 2 ? 0 : 3 * MIB));
        const memsaver_usage usage = usage_of(name);
        CHECK(usage.mapped_bytes == 0 && usage.paused_bytes >= 3 * MIB && usage.pauses == 1);
        CHECK(i < 2   ? usage.backed_up_bytes == 0
              : i < 7 ? usage.backed_up_bytes >= 3 * MIB
                      : usage.backed_up_bytes > 0);
        // A GPU's codec compresses each number to half.
        if (i == 7) CHECK(usage.backed_up_bytes < (copy_in == NULL ? 2 : 3) * MIB);
        OK(memsaver_resume(saver, TAGS(name), NULL, NULL));
        CHECK(reads(block, (unsigned char)after[i], 3 * MIB));
        CHECK((usage_of(name).backed_up_bytes > 0) == (i > 2));
        if (policies[i].refresh != MEMSAVER_ONCE) continue;
        OK(memsaver_pause(saver, TAGS(name), NULL, told()));
        CHECK(report.saved_bytes == 0);
        OK(memsaver_resume(saver, TAGS(name), NULL, NULL));
        put(block, 43, MIB);
        if (policies[i].check) MISUSE(memsaver_pause(saver, TAGS(name), NULL, NULL), name);
        OK(memsaver_invalidate(saver, TAGS(name)));
        OK(memsaver_pause(saver, TAGS(name), NULL, told()));
        CHECK(report.saved_bytes == 3 * MIB);
    }

    // Fields that are wrong are named, those of other kinds are ignored.
    WRONG(5, check, false, "kind cannot be 5");
    WRONG(MEMSAVER_FILE_BACKUP, directory, NULL, "directory");
    WRONG(MEMSAVER_DISCARD, poison, 256, "poison");
    WRONG(MEMSAVER_HOST_BACKUP, refresh, 2, "refresh cannot be 2");
    WRONG(MEMSAVER_HOST_BACKUP, storage, -5, "storage cannot be -5");
    WRONG(MEMSAVER_HOST_BACKUP, threads, 1000000, "HostBackup::threads is 1000000; valid: 1 to 1024");
    WRONG(MEMSAVER_HOST_BACKUP, ring_bytes, (size_t)1 << 60, "HostBackup::ring_bytes");
    WRONG(MEMSAVER_HOST_BACKUP, size, 3, "memsaver_policy: its size field is 3");
    memsaver_policy unused = policy_of(MEMSAVER_DISCARD);
    unused.refresh = 2;
    unused.storage = 9;
    OK(make("no use for them", unused));
    memsaver_destroy(saver);

    // The default policy of new tags, which does not name one.
    memsaver_options options = options_of_machine;
    options.default_policy = &policies[0];
    open_with(options);
    void* block = block_of("tag", MIB, 1);
    OK(memsaver_pause(saver, ALL, NULL, NULL));
    OK(memsaver_resume(saver, ALL, NULL, NULL));
    CHECK(reads(block, 0x5a, MIB));
    memsaver_destroy(saver);
    options.new_tags = MEMSAVER_NEW_TAGS_WITH_POLICY;
    open_with(options);
    OK(make("weights", policies[1]));
    MISUSE(memsaver_allocate(saver, "weigths", MIB, 0, &block), "did you mean \"weights\"");
    CHECK(block == NULL);
    memsaver_destroy(saver);
}

static void test_usage(void) {
    open_saver();
    (void)block_of("a \"tag\"\n", 100, 1);
    OK(memsaver_make_tag(saver, "empty", NULL));
    OK(memsaver_push_outside(saver));
    (void)block_of(NULL, 1000, 1);
    OK(memsaver_pop_region(saver));
    OK(memsaver_pause(saver, ALL, NULL, NULL));
    memsaver_usage usage = MEMSAVER_USAGE_INIT;
    OK(memsaver_get_usage(saver, ALL, &usage));
    CHECK(usage.arenas == 3 && usage.blocks == 2 && usage.used_bytes == 1100 && usage.mapped_bytes >= 1000);
    CHECK(usage.peak_mapped_bytes >= 1100 && usage.reserved_bytes >= 100 && usage.held_bytes == 0);
    OK(memsaver_get_usage(saver, TAGS("empty", "a \"tag\"\n"), &usage));
    CHECK(usage.arenas == 2 && usage.used_bytes == 100 && usage.mapped_bytes == 0 && usage.paused_bytes >= 100);
    CHECK(usage_of("empty").arenas == 1 && usage_of("empty").used_bytes == 0 && usage_of("empty").reserved_bytes == 0);
    OK(memsaver_get_usage(saver, UNDER("a "), &usage));
    CHECK(usage.arenas == 1 && usage.used_bytes == 100 && usage.size == sizeof usage);
    MISUSE(memsaver_get_usage(saver, TAGS("emty"), &usage), "unknown tag \"emty\": did you mean \"empty\"");
    CHECK(strcmp(last().tag, "emty") == 0);
    MISUSE(memsaver_get_usage(saver, TAGS("outside"), &usage), "unknown tag"); // plain memory's row is no tag's
    OK(memsaver_get_usage(saver, UNDER("out"), &usage));
    CHECK(usage.arenas == 0);
    CHECK(usage_says("{\"arenas\":[{\"tag\":\"") && usage_says("\"tag\":\"a \\\"tag\\\"\\u000a\""));
    CHECK(usage_says("],\"devices\":[{") && usage_says("\"known\":true}],\"residency\":{\"hits\":0,"));
    memsaver_free_text(NULL);
    memsaver_info info = MEMSAVER_INFO_INIT;
    OK(memsaver_get_info(saver, &info));
    CHECK(info.enabled && info.granularity >= 4096 && info.free_bytes <= info.total_bytes && info.total_bytes > 0);
    CHECK(strlen(info.name) > 0 && info.device == 0 && info.driver == options_of_machine.driver);
    memsaver_destroy(saver);

    // Switched off.
    memsaver_options options = options_of_machine;
    options.enabled = false;
    open_with(options);
    OK(memsaver_get_info(saver, &info));
    CHECK(!info.enabled);
    char* block = block_of("tag", 1000, 9);
    OK(memsaver_pause(saver, ALL, NULL, NULL));
    OK(memsaver_write_backup(saver, block + 10, "\5\5", 2)); // writes to the memory itself
    CHECK(reads(block, 9, 10) && reads(block + 10, 5, 2) && reads(block + 12, 9, 988));
    memsaver_destroy(saver);
}

// --- Arrivals, files, uses, elastic memory ---

static void test_arrivals(void) {
    open_saver();
    const size_t size = 16 * MIB;
    char* weights = kept_block("weights", size, 3);
    const void* first[] = {weights + 8 * MIB, weights};
    const size_t first_bytes[] = {4 * MIB, 1000};
    memsaver_resume_async_options options = MEMSAVER_RESUME_ASYNC_OPTIONS_INIT;
    options.first = first;
    options.first_bytes = first_bytes;
    options.first_count = 2;
    memsaver_arrival* coming = NULL;
    memsaver_gate* gate = NULL;
    OK(memsaver_get_gate(saver, weights + 100, 3000, &gate));
    OK(memsaver_pause(saver, TAGS("weights"), NULL, NULL));
    OK(memsaver_resume_async(saver, TAGS("weights"), &options, &coming));
    memsaver_use_options here = MEMSAVER_USE_OPTIONS_INIT;
    here.await_bytes = false;
    memsaver_use* use = NULL;
    OK(memsaver_begin_use(saver, TAGS("weights"), &here, &use)); // otherwise they may be evicted
    OK(memsaver_gate_before(gate, NULL));
    OK(memsaver_arrival_before_range(coming, NULL, weights, 1000));
    OK(memsaver_arrival_before(coming, NULL));
    OK(memsaver_arrival_wait_range(coming, weights + 8 * MIB, 4 * MIB));
    CHECK(reads(weights + 8 * MIB, 3, 4 * MIB));
    OK(memsaver_arrival_wait(coming, told()));
    CHECK(report.restored_bytes == size && report.mapped_bytes >= size);
    bool done = false;
    OK(memsaver_arrival_done(coming, &done));
    CHECK(done && reads(weights, 3, size));
    memsaver_end_use(use);
    memsaver_end_arrival(coming);

    // Without its bytes, this time; ending it waits.
    const memsaver_policy zero = policy_of(MEMSAVER_ZERO);
    memsaver_resume_options resuming = plain_resume;
    resuming.bytes = &zero;
    options.first_count = 0;
    options.resuming = &resuming;
    OK(memsaver_pause(saver, TAGS("weights"), NULL, NULL));
    OK(memsaver_resume_async(saver, TAGS("weights"), &options, &coming));
    memsaver_end_arrival(coming);
    CHECK(reads(weights, 0, size));

    // Saves ahead.
    memsaver_policy once = policy_of(MEMSAVER_HOST_BACKUP);
    once.refresh = MEMSAVER_ONCE;
    OK(make("frozen", once));
    void* block = block_of("frozen", size, 4);
    memsaver_pause_options idle = plain_pause;
    idle.order = MEMSAVER_ALREADY_IDLE;
    OK(memsaver_save(saver, TAGS("frozen"), &idle, &coming));
    OK(memsaver_arrival_wait(coming, told()));
    CHECK(report.saved_bytes == size);
    memsaver_end_arrival(coming);
    OK(memsaver_pause(saver, ALL, NULL, told()));
    CHECK(report.saved_bytes == size);

    options.first_count = 1;
    first[0] = block;
    MISUSE(memsaver_resume_async(saver, TAGS("weights"), &options, &coming), "not in live blocks");
    CHECK(coming == NULL);
    options.first = NULL;
    MISUSE(memsaver_resume_async(saver, TAGS("weights"), &options, &coming), "first pointers is null");
    options.first = first;
    options.first_bytes = NULL;
    MISUSE(memsaver_resume_async(saver, TAGS("weights"), &options, &coming), "first sizes is null");
    options.size = 0;
    MISUSE(memsaver_resume_async(saver, TAGS("weights"), &options, &coming), "its size field is 0");
    OK(memsaver_resume_async(saver, ALL, NULL, &coming));
    MISUSE(memsaver_arrival_wait_range(coming, weights + size - 1, 2), "");
    MISUSE(memsaver_arrival_before_range(coming, NULL, weights + size - 1, 2), "");
    memsaver_arrival* none = coming;
    idle.order = 3;
    MISUSE(memsaver_save(saver, TAGS("frozen"), &idle, &none), "order cannot be 3");
    CHECK(none == NULL);
    memsaver_release_gate(gate);
    MISUSE(memsaver_get_gate(saver, weights, size + 1, &gate), "");
    CHECK(gate == NULL);
    OK(memsaver_get_gate(saver, weights, 1, &gate));
    OK(memsaver_close(saver));
    MISUSE(memsaver_arrival_wait(coming, NULL), "closed");
    MISUSE(memsaver_arrival_before(coming, NULL), "closed");
    MISUSE(memsaver_gate_before(gate, NULL), "closed");
    memsaver_destroy(saver);
    memsaver_end_arrival(coming);
    memsaver_release_gate(gate);
}

static void write_file(const char* path, unsigned char byte, size_t bytes) {
    FILE* file = fopen(path, "wb");
    CHECK(file != NULL);
    for (size_t i = 0; file != NULL && i < bytes; ++i) (void)fputc(byte, file);
    CHECK(file != NULL && fclose(file) == 0);
}

static void test_load(void) {
    char path[] = "/tmp/memsaver_c_test_XXXXXX";
    const int descriptor = mkstemp(path);
    CHECK(descriptor >= 0 && close(descriptor) == 0);
    write_file(path, 6, 2 * MIB + 7);
    open_saver();
    memsaver_policy source = policy_of(MEMSAVER_FILE_SOURCE);
    source.threads = 2;
    OK(make("model", source));
    char* block = block_of("model", 2 * MIB, 1);
    MISUSE(memsaver_load(saver, block, 2 * MIB, path, 8), path); // past the end of the file
    OK(memsaver_load(saver, block, 2 * MIB, path, 7));
    CHECK(reads(block, 6, 2 * MIB));
    put(block + MIB, 9, 5000);
    OK(memsaver_invalidate_range(saver, block + MIB, 5000));
    OK(memsaver_pause(saver, TAGS("model"), NULL, told()));
    CHECK(report.saved_bytes == 5000);
    OK(memsaver_resume(saver, TAGS("model"), NULL, NULL));
    CHECK(reads(block, 6, MIB) && reads(block + MIB, 9, 5000) && reads(block + MIB + 5000, 6, MIB - 5000));
    MISUSE(memsaver_invalidate_range(saver, block + 1, 2 * MIB), "");
    OK(memsaver_pause(saver, TAGS("model"), NULL, NULL));
    write_file(path, 6, 100);
    FAILS(MEMSAVER_SOURCE_CHANGED, memsaver_resume(saver, TAGS("model"), NULL, NULL), path);
    CHECK(unlink(path) == 0);
    memsaver_destroy(saver);
}

static void test_uses(void) {
    open_saver();
    const size_t size = 8 * MIB;
    void* block = kept_block("a", size, 3);
    (void)block_of("cache", size, 1);
    OK(memsaver_pause(saver, ALL, NULL, NULL));
    memsaver_use* use = NULL;
    OK(memsaver_begin_use(saver, TAGS("a", "cache"), NULL, &use));
    CHECK(reads(block, 3, size));
    const char* const* lost = NULL;
    size_t count = 0;
    OK(memsaver_use_lost(use, &lost, &count));
    CHECK(count == 1 && strcmp(lost[0], "cache") == 0);
    memsaver_pause_options pausing = plain_pause;
    pausing.timeout_ns = 1000000;
    IS(MEMSAVER_NOT_IDLE, memsaver_pause(saver, TAGS("a"), &pausing, NULL));
    CHECK(usage_says("\"users\":1,\"evictable\":true,\"priority\":0"));
    MISUSE(memsaver_use_until_event(use, NULL), "event is null");
    OK(memsaver_use_until(use, NULL));
    memsaver_end_use(use);
    memsaver_use_options options = MEMSAVER_USE_OPTIONS_INIT;
    options.timeout_ns = (int64_t)60 * 1000000000;
    options.room_within_ns = options.timeout_ns;
    OK(memsaver_begin_use(saver, TAGS("a", "cache"), &options, &use));
    memsaver_end_use(use);
    options.order = 3;
    MISUSE(memsaver_begin_use(saver, TAGS("a"), &options, &use), "order cannot be 3");
    CHECK(use == NULL);
    options.size = 0;
    MISUSE(memsaver_begin_use(saver, TAGS("a"), &options, &use), "memsaver_use_options");

    // Idle memory is reclaimed.
    memsaver_reclaimed got = MEMSAVER_RECLAIMED_INIT;
    char* text = NULL;
    OK(memsaver_set_evictable(saver, TAGS("cache"), false));
    OK(memsaver_set_priority(saver, TAGS("a", "cache"), 5));
    CHECK(usage_says("\"evictable\":false,\"priority\":5"));
    OK(memsaver_reclaim(saver, (size_t)1 << 40, NULL, &got, &text));
    CHECK(got.wanted_bytes == (size_t)1 << 40 && got.evicted_bytes >= size && got.evicted_bytes < 2 * size);
    CHECK(got.saved_bytes == size && got.elastic_bytes == 0 && got.size == sizeof got);
    CHECK(text != NULL && strstr(text, "reclaimed ") == text && strstr(text, "cache") != NULL);
    memsaver_free_text(text);
    memsaver_reclaim_options reclaiming = MEMSAVER_RECLAIM_OPTIONS_INIT;
    reclaiming.device = 7;
    MISUSE(memsaver_reclaim(saver, 1, &reclaiming, NULL, NULL), "7");
    reclaiming.order = 3;
    MISUSE(memsaver_reclaim(saver, 1, &reclaiming, NULL, NULL), "order cannot be 3");
    memsaver_arena_options arena = MEMSAVER_ARENA_OPTIONS_INIT;
    arena.evictable = true;
    arena.priority = -3;
    OK(memsaver_make_tag(saver, "made so", &arena));
    CHECK(usage_says("\"evictable\":true,\"priority\":-3"));
    OK(memsaver_begin_use(saver, TAGS("a"), NULL, &use));
    OK(memsaver_close(saver));
    memsaver_destroy(saver);
    memsaver_end_use(use); // after the saver
}

typedef struct Owner {
    memsaver_elastic* elastic;
    size_t asked;
} Owner;

static size_t spare(void* context, size_t bytes) {
    Owner* owner = context;
    owner->asked = bytes;
    OK(memsaver_elastic_release(owner->elastic, 0, 2 * MIB, NULL));
    return 2 * MIB;
}

static void test_elastic(void) {
    open_saver();
    memsaver_arena* arena = NULL;
    OK(memsaver_get_arena(saver, "kv", NULL, &arena));
    Owner owner = {NULL, 0};
    memsaver_elastic_options options = MEMSAVER_ELASTIC_OPTIONS_INIT;
    options.granularity = 2 * MIB;
    options.on_reclaim = spare;
    options.on_reclaim_context = &owner;
    OK(memsaver_make_elastic(arena, 63 * MIB, &options, &owner.elastic));
    memsaver_elastic_info info = MEMSAVER_ELASTIC_INFO_INIT;
    OK(memsaver_get_elastic_info(owner.elastic, &info));
    CHECK(info.capacity == 64 * MIB && info.granularity == 2 * MIB && info.committed_bytes == 0 && info.data != NULL);
    char* data = info.data;
    OK(memsaver_elastic_commit(owner.elastic, 2 * MIB, 6 * MIB));
    OK(memsaver_elastic_commit(owner.elastic, 0, 1));
    put(data, 5, 8 * MIB);
    CHECK(usage_of("kv").elastic_bytes == 8 * MIB && usage_of("kv").blocks == 4);
    memsaver_pause_options idle = plain_pause;
    idle.order = MEMSAVER_ALREADY_IDLE;
    OK(memsaver_elastic_release(owner.elastic, 6 * MIB, 2 * MIB, &idle));
    OK(memsaver_elastic_resize(owner.elastic, 4 * MIB, NULL));
    OK(memsaver_get_elastic_info(owner.elastic, &info));
    CHECK(info.committed_bytes == 4 * MIB && info.data == data && reads(data, 5, 4 * MIB));
    memsaver_reclaimed got = MEMSAVER_RECLAIMED_INIT;
    OK(memsaver_reclaim(saver, 32 * MIB, NULL, &got, NULL));
    CHECK(owner.asked != 0 && owner.asked <= 32 * MIB && got.elastic_bytes == 2 * MIB);

    MISUSE(memsaver_elastic_commit(owner.elastic, 63 * MIB, 2 * MIB), "");
    idle.order = 3;
    MISUSE(memsaver_elastic_release(owner.elastic, 2 * MIB, 2 * MIB, &idle), "order cannot be 3");
    MISUSE(memsaver_elastic_resize(owner.elastic, 2 * MIB, &idle), "order cannot be 3");
    memsaver_elastic* other = owner.elastic;
    MISUSE(memsaver_make_elastic(arena, 0, NULL, &other), "");
    CHECK(other == NULL);
    options.size = 1;
    MISUSE(memsaver_make_elastic(arena, 1, &options, &other), "memsaver_elastic_options");
    OK(memsaver_make_elastic(arena, 1, NULL, &other));
    OK(memsaver_get_elastic_info(other, &info));
    CHECK(info.granularity == 64 * MIB);
    memsaver_end_elastic(other);
    OK(memsaver_close(saver));
    MISUSE(memsaver_elastic_commit(owner.elastic, 0, 1), "closed");
    memsaver_destroy(saver);
    memsaver_release_arena(arena);
    memsaver_end_elastic(owner.elastic);
}

// --- Hooks and callbacks ---

typedef struct Noted {
    int calls;
    int answer;
    int32_t moment;
    size_t tag_count;
    memsaver_report report;
    char first_tag[32];
    memsaver_result nested;
} Noted;

static int note(void* context, const memsaver_hook_event* event) {
    Noted* noted = context;
    ++noted->calls;
    noted->moment = event->moment;
    noted->tag_count = event->tag_count;
    noted->report = *event->report;
    snprintf(noted->first_tag, sizeof noted->first_tag, "%s", event->tag_count > 0 ? event->tags[0] : "");
    noted->nested = memsaver_pause(saver, ALL, NULL, NULL);
    return noted->answer;
}

int throwing_hook(void* context, const memsaver_hook_event* event); // throwing.cpp

static void answer_with(void* context, const memsaver_hook_event* event, int32_t* answer) {
    if (event->moment == MEMSAVER_AFTER_PAUSE && *(const int32_t*)context != -1) *answer = *(const int32_t*)context;
}

static void test_hooks(void) {
    open_saver();
    void* block = block_of("tag", 3 * MIB, 1);
    Noted noted[4] = {{0}};
    memsaver_hook* hooks[4] = {0};
    for (int moment = 0; moment < 4; ++moment)
        OK(memsaver_add_hook(saver, moment, note, &noted[moment], &hooks[moment]));
    OK(memsaver_pause(saver, ALL, NULL, NULL));
    for (int moment = 0; moment < 4; ++moment) CHECK(noted[moment].calls == (moment < 2));
    OK(memsaver_resume(saver, ALL, NULL, NULL));
    for (int moment = 0; moment < 4; ++moment) {
        CHECK(noted[moment].calls == 1 && noted[moment].moment == moment && noted[moment].tag_count == 1);
        CHECK(strcmp(noted[moment].first_tag, "tag") == 0 && noted[moment].nested == MEMSAVER_MISUSE);
        CHECK((noted[moment].report.released_bytes >= 3 * MIB) == (moment == MEMSAVER_AFTER_PAUSE));
        CHECK((noted[moment].report.mapped_bytes >= 3 * MIB) == (moment == MEMSAVER_AFTER_RESUME));
    }

    // Hooks that refuse, before and after; a hook that the saver keeps.
    Noted another = {0};
    OK(memsaver_add_hook(saver, MEMSAVER_AFTER_PAUSE, note, &another, NULL));
    noted[MEMSAVER_BEFORE_PAUSE].answer = 17;
    IS(MEMSAVER_HOOK_FAILED, memsaver_pause(saver, ALL, NULL, told()));
    CHECK(strstr(memsaver_last_error(), "before a pause returned 17") != NULL && report.released_bytes == 0);
    put(block, 1, MIB); // still active
    noted[MEMSAVER_BEFORE_PAUSE].answer = 0;
    noted[MEMSAVER_AFTER_PAUSE].answer = -3;
    IS(MEMSAVER_HOOK_FAILED, memsaver_pause(saver, ALL, NULL, told()));
    CHECK(strstr(memsaver_last_error(), "after a pause returned -3") != NULL && report.released_bytes >= 3 * MIB);
    CHECK(another.calls == 1);
    noted[MEMSAVER_BEFORE_RESUME].answer = 1;
    IS(MEMSAVER_HOOK_FAILED, memsaver_resume(saver, ALL, NULL, told()));
    CHECK(strstr(memsaver_last_error(), "before a resume returned 1") != NULL && report.mapped_bytes == 0);
    memsaver_remove_hook(hooks[MEMSAVER_BEFORE_RESUME]);
    noted[MEMSAVER_AFTER_RESUME].answer = 2;
    FAILS(MEMSAVER_HOOK_FAILED, memsaver_resume(saver, ALL, NULL, NULL), "after a resume returned 2");
    CHECK(noted[MEMSAVER_BEFORE_RESUME].calls == 2);
    memsaver_destroy(saver);
    for (int moment = 0; moment < 4; ++moment) // after the saver
        if (moment != MEMSAVER_BEFORE_RESUME) memsaver_remove_hook(hooks[moment]);

    open_saver(); // hooks that answer, or do not
    int32_t answer = -1;
    OK(memsaver_add_answering_hook(saver, MEMSAVER_AFTER_PAUSE, answer_with, &answer, NULL));
    FAILS(MEMSAVER_HOOK_FAILED, memsaver_pause(saver, ALL, NULL, NULL), "after a pause returned -1");
    answer = 0;
    OK(memsaver_pause(saver, ALL, NULL, NULL));
    answer = 5;
    FAILS(MEMSAVER_HOOK_FAILED, memsaver_pause(saver, ALL, NULL, NULL), "after a pause returned 5");
    memsaver_destroy(saver);

    open_saver(); // hooks that throw
    OK(memsaver_add_hook(saver, MEMSAVER_BEFORE_PAUSE, throwing_hook, saver, NULL));
    IS(MEMSAVER_INTERNAL, memsaver_pause(saver, ALL, NULL, NULL));
    CHECK(strcmp(memsaver_last_error(), "thrown by a hook") == 0);
    OK(memsaver_add_hook(saver, MEMSAVER_AFTER_RESUME, throwing_hook, NULL, NULL));
    IS(MEMSAVER_INTERNAL, memsaver_resume(saver, ALL, NULL, NULL));
    memsaver_destroy(saver);
}

static memsaver_result of_the_sink = MEMSAVER_OK;

static void call_the_saver(void* context, const memsaver_event* event) {
    if (event->size == sizeof *event && event->device == 0 && *(bool*)context)
        of_the_sink = memsaver_trim(saver, ALL, NULL, NULL);
}

static void test_sink_that_calls_the_saver(void) {
    bool calls = false;
    memsaver_options options = options_of_machine;
    options.on_event = call_the_saver;
    options.on_event_context = &calls;
    open_with(options);
    (void)block_of("a", MIB, 1);
    calls = true;
    OK(memsaver_pause(saver, ALL, NULL, NULL));
    calls = false;
    IS(MEMSAVER_MISUSE, of_the_sink);
    memsaver_destroy(saver);
}

typedef struct Room {
    void* spare;
    int asked;
    memsaver_no_room need;
    int warnings;
} Room;

static int make_room(void* context, const memsaver_no_room* need) {
    Room* room = context;
    ++room->asked;
    room->need = *need;
    if (room->spare == NULL || strcmp(need->tag, "tag") != 0) return 0;
    OK(memsaver_deallocate_idle(saver, room->spare));
    room->spare = NULL;
    return 1;
}

static void count_warnings(void* context, const memsaver_event* event) {
    if (event->kind == MEMSAVER_EVENT_WARNED && strcmp(event->tag, "") != 0 && strlen(event->text) > 0)
        ++((Room*)context)->warnings;
}

/// Only on host memory, where the test can choose the capacity.
static void test_no_room(void) {
    Room room = {0};
    memsaver_options options = small_machine();
    options.on_no_room = make_room;
    options.on_event = count_warnings;
    options.on_no_room_context = options.on_event_context = &room;
    open_with(options);
    void* block = NULL;
    IS(MEMSAVER_OUT_OF_MEMORY, memsaver_allocate(saver, "tag", 100 * MIB, 0, &block));
    CHECK(block == NULL && room.asked == 1 && room.need.size == sizeof room.need && room.need.device == 0);
    CHECK(room.need.free_bytes == 64 * MIB && room.need.bytes >= 100 * MIB && room.need.missing_bytes >= 36 * MIB);
    const memsaver_error error = last();
    CHECK(error.result == MEMSAVER_OUT_OF_MEMORY && strcmp(error.tag, "tag") == 0 && error.free_bytes == 64 * MIB);
    CHECK(error.needed_bytes >= 100 * MIB && strlen(error.driver_name) > 0 && error.driver_code != 0);
    MISUSE(memsaver_pop_region(saver), "no open region");
    CHECK(last().needed_bytes == 0 && last().free_bytes == 0 && strcmp(last().tag, "") == 0);
    OK(memsaver_allocate(saver, "spare", 40 * MIB, 0, &room.spare));
    OK(memsaver_allocate(saver, "tag", 40 * MIB, 0, &block)); // the program frees the other one
    CHECK(room.asked == 2 && room.spare == NULL);

    OK(memsaver_pause(saver, ALL, NULL, NULL));
    CHECK(room.warnings == 1); // no policy was named
    void* taken = NULL;
    OK(memsaver_allocate(saver, "spare", 40 * MIB, 0, &taken));
    memsaver_resume_options resuming = plain_resume;
    resuming.room_within_ns = 1000000;
    IS(MEMSAVER_OUT_OF_MEMORY, memsaver_resume(saver, TAGS("tag"), &resuming, told()));
    CHECK(report.mapped_bytes == 0);
    memsaver_exchange_options exchanging = MEMSAVER_EXCHANGE_OPTIONS_INIT;
    exchanging.resuming = &resuming;
    OK(memsaver_make_tag(saver, "empty", NULL));
    IS(MEMSAVER_OUT_OF_MEMORY, memsaver_exchange(saver, TAGS("empty"), TAGS("tag"), &exchanging, told()));
    CHECK(report.handed_bytes == 0 && report.mapped_bytes == 0 && strcmp(last().tag, "tag") == 0);
    OK(memsaver_deallocate(saver, taken));
    OK(memsaver_resume(saver, TAGS("tag"), NULL, NULL));
    memsaver_arena_options with_margin = MEMSAVER_ARENA_OPTIONS_INIT;
    with_margin.margin = 24 * MIB;
    OK(memsaver_make_tag(saver, "careful", &with_margin));
    IS(MEMSAVER_OUT_OF_MEMORY, memsaver_allocate(saver, "careful", 4 * MIB, 0, &taken));
    OK(memsaver_allocate(saver, "other", 4 * MIB, 0, &taken));
    OK(memsaver_set_margin(saver, 64 * MIB));
    IS(MEMSAVER_OUT_OF_MEMORY, memsaver_allocate(saver, "other", 4 * MIB, 0, &taken));
    memsaver_destroy(saver);

    // The saver's margin, and eviction for allocations.
    options = small_machine();
    options.evict_for_allocations = true;
    options.margin = 20 * MIB;
    open_with(options);
    IS(MEMSAVER_OUT_OF_MEMORY, memsaver_allocate(saver, "large", 50 * MIB, 0, &block));
    memsaver_arena_options idle = MEMSAVER_ARENA_OPTIONS_INIT;
    idle.evictable = true;
    OK(memsaver_make_tag(saver, "idle", &idle));
    OK(memsaver_allocate(saver, "idle", 40 * MIB, 0, &block));
    OK(memsaver_allocate(saver, "new", 40 * MIB, 0, &taken));
    CHECK(memsaver_is_paused(saver, block, 1));
    memsaver_destroy(saver);

    // More bytes than this computer's memory can back up.
    options = options_of_machine;
    options.host_capacity = (size_t)8 << 40;
    open_with(options);
    OK(make("huge", policy_of(MEMSAVER_HOST_BACKUP)));
    if (memsaver_allocate(saver, "huge", (size_t)4 << 40, 0, &block) != MEMSAVER_OK) {
        printf("no addresses for 4 TiB (as under the thread sanitizer): %s\n", memsaver_last_error());
    } else {
        IS(MEMSAVER_OUT_OF_HOST_MEMORY, memsaver_pause(saver, ALL, NULL, NULL));
        CHECK(strcmp(last().tag, "huge") == 0);
    }
    memsaver_destroy(saver);
}

// --- Damaged backups ---

/// Inverts all bytes of all unnamed files that this process has open in a folder. A second call restores them.
static int damage_files(const char* folder) {
    int damaged = 0;
    DIR* open_files = opendir("/proc/self/fd");
    for (struct dirent* entry; open_files != NULL && (entry = readdir(open_files)) != NULL;) {
        char link[300], target[300] = {0};
        snprintf(link, sizeof link, "/proc/self/fd/%s", entry->d_name);
        if (readlink(link, target, sizeof target - 1) <= 0) continue;
        if (strncmp(target, folder, strlen(folder)) != 0 || strstr(target, "(deleted)") == NULL) continue;
        const int file = open(link, O_RDWR);
        char bytes[65536];
        for (ssize_t at = 0, got; (got = pread(file, bytes, sizeof bytes, at)) > 0; at += got) {
            for (ssize_t i = 0; i < got; ++i) bytes[i] = (char)~bytes[i];
            damaged += pwrite(file, bytes, (size_t)got, at) == got;
        }
        close(file);
    }
    if (open_files != NULL) closedir(open_files);
    return damaged;
}

static void test_damage(void) {
    open_saver();
    char folder[] = "/tmp/memsaver_c_test_XXXXXX";
    CHECK(mkdtemp(folder) != NULL);
    memsaver_policy keep = policy_of(MEMSAVER_FILE_BACKUP);
    keep.directory = folder;
    keep.verified = true;
    const memsaver_result result = make("tag", keep);
    if (result != MEMSAVER_UNAVAILABLE) { // otherwise the library was built without xxHash
        OK(result);
        void* block = block_of("tag", 3 * MIB, 5);
        OK(memsaver_pause(saver, ALL, NULL, NULL));
        CHECK(damage_files(folder) > 0);
        IS(MEMSAVER_BACKUP_DAMAGED, memsaver_resume(saver, ALL, NULL, NULL));
        CHECK(strcmp(last().tag, "tag") == 0 && strstr(memsaver_last_error(), "tag") != NULL);
        CHECK(damage_files(folder) > 0); // undoes the damage
        OK(memsaver_resume(saver, ALL, NULL, NULL));
        CHECK(reads(block, 5, 3 * MIB));
    }
    CHECK(rmdir(folder) == 0);
    keep.verified = false;
    IS(MEMSAVER_DRIVER_ERROR, make("nowhere", keep));
    CHECK(strcmp(last().driver_name, "ENOENT") == 0 && strcmp(last().tag, "nowhere") == 0);
    CHECK(strstr(memsaver_last_error(), "No such file or directory") != NULL);
    memsaver_destroy(saver);
}

// --- Threads ---

static void* fail_elsewhere(void* unused) {
    CHECK(strcmp(memsaver_last_error(), "") == 0); // each thread has its own
    MISUSE(memsaver_pause(saver, TAGS("theirs"), NULL, NULL), "theirs");
    MISUSE(memsaver_pop_region(saver), "no open region");
    return unused;
}

static void test_threads(void) {
    open_saver();
    OK(memsaver_push_region(saver, "own"));
    MISUSE(memsaver_pause(saver, TAGS("mine"), NULL, NULL), "mine");
    run(fail_elsewhere, NULL);
    CHECK(strstr(memsaver_last_error(), "mine") != NULL);
    OK(memsaver_pop_region(saver));
    memsaver_destroy(saver);
}

/// Holds a pause in progress while another thread pauses the same tag.
typedef struct Held {
    pthread_barrier_t began, asked;
    bool first;
    size_t bytes;
} Held;

static void hold(void* context, const memsaver_event* event) {
    Held* held = context;
    if (event->kind != MEMSAVER_EVENT_PROGRESS || !held->first) return;
    held->first = false;
    held->bytes = event->bytes_total;
    CHECK(event->bytes_done <= event->bytes_total);
    pthread_barrier_wait(&held->began);
    pthread_barrier_wait(&held->asked);
}

static void* pause_all(void* unused) {
    OK(memsaver_pause(saver, ALL, NULL, NULL));
    return unused;
}

static void test_orders(void) {
    Held held;
    held.first = true;
    pthread_barrier_init(&held.began, NULL, 2);
    pthread_barrier_init(&held.asked, NULL, 2);
    memsaver_options options = options_of_machine;
    options.on_event = hold;
    options.on_event_context = &held;
    open_with(options);
    (void)kept_block("tag", 3 * MIB, 1);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, pause_all, NULL) == 0);
    pthread_barrier_wait(&held.began);
    CHECK(held.bytes == 3 * MIB);
    memsaver_pause_options soon = plain_pause;
    soon.timeout_ns = 1000000;
    soon.order = MEMSAVER_ALREADY_IDLE;
    memsaver_exchange_options exchanging = MEMSAVER_EXCHANGE_OPTIONS_INIT;
    exchanging.pausing = &soon;
    memsaver_use_options using = MEMSAVER_USE_OPTIONS_INIT;
    using.timeout_ns = 1000000;
    memsaver_use* use = NULL;
    memsaver_arrival* saving = NULL;
    IS(MEMSAVER_NOT_IDLE, memsaver_pause(saver, ALL, &soon, NULL));
    IS(MEMSAVER_NOT_IDLE, memsaver_trim(saver, ALL, &soon, NULL));
    IS(MEMSAVER_NOT_IDLE, memsaver_exchange(saver, TAGS("tag"), NONE, &exchanging, NULL));
    IS(MEMSAVER_NOT_IDLE, memsaver_exchange(saver, NONE, TAGS("tag"), &exchanging, NULL));
    IS(MEMSAVER_NOT_IDLE, memsaver_begin_use(saver, TAGS("tag"), &using, &use));
    IS(MEMSAVER_NOT_IDLE, memsaver_save(saver, TAGS("tag"), &soon, &saving));
    pthread_barrier_wait(&held.asked);
    pthread_join(thread, NULL);
    OK(memsaver_resume(saver, ALL, NULL, NULL));
    pthread_barrier_destroy(&held.began);
    pthread_barrier_destroy(&held.asked);

    // Orders. The default stream belongs to every device.
    void* streams[] = {NULL};
    memsaver_pause_options after = plain_pause;
    after.order = MEMSAVER_AFTER_STREAMS;
    MISUSE(memsaver_pause(saver, ALL, &after, NULL), "no stream and no CUDA event");
    after.stream_count = 1;
    MISUSE(memsaver_pause(saver, ALL, &after, NULL), "list of streams is null");
    after.streams = streams;
    OK(memsaver_pause(saver, ALL, &after, NULL));
    OK(memsaver_resume(saver, ALL, NULL, NULL));
    OK(memsaver_trim(saver, ALL, &after, NULL));
    after.event_count = 1;
    MISUSE(memsaver_trim(saver, ALL, &after, NULL), "list of events is null");
    after.events = streams;
    MISUSE(memsaver_pause(saver, ALL, &after, NULL), "an event is null");
    after.order = 3;
    MISUSE(memsaver_pause(saver, ALL, &after, NULL), "order cannot be 3");
    memsaver_destroy(saver);
}

// --- Null and invalid arguments ---

static int hook_of_nobody(void* context, const memsaver_hook_event* event) {
    (void)context;
    (void)event;
    return 0;
}

static void test_null(void) {
    open_saver();
    memsaver_arena* arena = NULL;
    OK(memsaver_get_arena(saver, "tag", NULL, &arena));
    char to[4] = {0};
    void* blocks[] = {to, to, to, to};
    char* text = to;
    size_t bytes = 0;
    bool done = false;
    memsaver_info info = MEMSAVER_INFO_INIT;
    memsaver_usage usage = MEMSAVER_USAGE_INIT;
    memsaver_elastic_info range = MEMSAVER_ELASTIC_INFO_INIT;
    const char* const* lost = NULL;
    // Any object will do where a null output is to be written.
    memsaver_arena* no_arena = arena;
    memsaver_hook* hook = (memsaver_hook*)to;
    memsaver_arrival* arrival = (memsaver_arrival*)to;
    memsaver_gate* gate = (memsaver_gate*)to;
    memsaver_use* use = (memsaver_use*)to;
    memsaver_elastic* elastic = (memsaver_elastic*)to;

    const int handles =
        REFUSED(memsaver_close(NULL)) & REFUSED(memsaver_get_info(NULL, &info)) &
        REFUSED(memsaver_set_margin(NULL, 0)) & REFUSED(memsaver_make_tag(NULL, "tag", NULL)) &
        REFUSED(memsaver_get_arena(NULL, "tag", NULL, &no_arena)) & REFUSED(memsaver_drop(NULL, ALL)) &
        REFUSED(memsaver_set_capacity(NULL, ALL, 0)) & REFUSED(memsaver_set_retain(NULL, ALL, true)) &
        REFUSED(memsaver_allocate(NULL, "tag", 0, 0, &blocks[0])) &
        REFUSED(memsaver_allocate_on(NULL, "tag", 1, 0, NULL, &blocks[1])) & REFUSED(memsaver_deallocate(NULL, to)) &
        REFUSED(memsaver_deallocate_on(NULL, to, NULL)) & REFUSED(memsaver_deallocate_idle(NULL, to)) &
        REFUSED(memsaver_arena_allocate(NULL, 1, 0, &blocks[2])) &
        REFUSED(memsaver_arena_allocate_on(NULL, 1, 0, NULL, &blocks[3])) &
        REFUSED(memsaver_arena_deallocate(NULL, to)) & REFUSED(memsaver_arena_deallocate_on(NULL, to, NULL)) &
        REFUSED(memsaver_arena_deallocate_idle(NULL, to)) & REFUSED(memsaver_read_backup(NULL, to, 1, to)) &
        REFUSED(memsaver_write_backup(NULL, to, to, 1)) & REFUSED(memsaver_push_region(NULL, "tag")) &
        REFUSED(memsaver_push_arena(NULL, arena)) & REFUSED(memsaver_push_outside(NULL)) &
        REFUSED(memsaver_pop_region(NULL)) & REFUSED(memsaver_pause(NULL, ALL, NULL, NULL)) &
        REFUSED(memsaver_resume(NULL, ALL, NULL, NULL)) & REFUSED(memsaver_exchange(NULL, ALL, ALL, NULL, NULL)) &
        REFUSED(memsaver_bytes_to_resume(NULL, ALL, &bytes)) & REFUSED(memsaver_trim(NULL, ALL, NULL, NULL)) &
        REFUSED(memsaver_prepare(NULL, ALL)) & REFUSED(memsaver_invalidate(NULL, ALL)) &
        REFUSED(memsaver_forget_backup(NULL, ALL)) & REFUSED(memsaver_invalidate_range(NULL, to, 1)) &
        REFUSED(memsaver_load(NULL, to, 1, "file", 0)) & REFUSED(memsaver_resume_async(NULL, ALL, NULL, &arrival)) &
        REFUSED(memsaver_save(NULL, ALL, NULL, &arrival)) & REFUSED(memsaver_arrival_before(NULL, NULL)) &
        REFUSED(memsaver_arrival_before_range(NULL, NULL, to, 1)) & REFUSED(memsaver_arrival_wait(NULL, NULL)) &
        REFUSED(memsaver_arrival_wait_range(NULL, to, 1)) & REFUSED(memsaver_arrival_done(NULL, &done)) &
        REFUSED(memsaver_get_gate(NULL, to, 1, &gate)) & REFUSED(memsaver_gate_before(NULL, NULL)) &
        REFUSED(memsaver_begin_use(NULL, ALL, NULL, &use)) & REFUSED(memsaver_use_until(NULL, NULL)) &
        REFUSED(memsaver_use_until_event(NULL, to)) & REFUSED(memsaver_use_lost(NULL, &lost, &bytes)) &
        REFUSED(memsaver_set_evictable(NULL, ALL, true)) & REFUSED(memsaver_set_priority(NULL, ALL, 1)) &
        REFUSED(memsaver_reclaim(NULL, 1, NULL, NULL, &text)) &
        REFUSED(memsaver_make_elastic(NULL, 1, NULL, &elastic)) & REFUSED(memsaver_elastic_commit(NULL, 0, 1)) &
        REFUSED(memsaver_elastic_release(NULL, 0, 1, NULL)) & REFUSED(memsaver_elastic_resize(NULL, 0, NULL)) &
        REFUSED(memsaver_get_elastic_info(NULL, &range)) &
        REFUSED(memsaver_add_hook(NULL, 0, hook_of_nobody, NULL, &hook)) &
        REFUSED(memsaver_add_answering_hook(NULL, 0, answer_with, NULL, &hook)) &
        REFUSED(memsaver_get_usage(NULL, ALL, &usage)) & REFUSED(memsaver_get_arena_usage(NULL, &usage)) &
        REFUSED(memsaver_get_usage_json(NULL, &text)) & REFUSED(memsaver_torch_push(NULL));
    CHECK(handles);
    CHECK(!no_arena && !hook && !arrival && !gate && !use && !elastic && !text);
    for (size_t i = 0; i < COUNT(blocks); ++i) CHECK(blocks[i] == NULL);
    memsaver_destroy(NULL);
    memsaver_release_arena(NULL);
    memsaver_end_arrival(NULL);
    memsaver_release_gate(NULL);
    memsaver_end_use(NULL);
    memsaver_end_elastic(NULL);
    memsaver_remove_hook(NULL);

    OK(memsaver_begin_use(saver, ALL, NULL, &use));
    OK(memsaver_resume_async(saver, ALL, NULL, &arrival));
    OK(memsaver_make_elastic(arena, 1, NULL, &elastic));
    const int outputs =
        REFUSED(memsaver_create(NULL, NULL)) & REFUSED(memsaver_get_last_error(NULL)) &
        REFUSED(memsaver_get_info(saver, NULL)) & REFUSED(memsaver_get_arena(saver, "tag", NULL, NULL)) &
        REFUSED(memsaver_allocate(saver, "tag", 1, 0, NULL)) &
        REFUSED(memsaver_allocate_on(saver, "tag", 1, 0, NULL, NULL)) &
        REFUSED(memsaver_arena_allocate(arena, 1, 0, NULL)) &
        REFUSED(memsaver_arena_allocate_on(arena, 1, 0, NULL, NULL)) &
        REFUSED(memsaver_read_backup(saver, to, 1, NULL)) & REFUSED(memsaver_bytes_to_resume(saver, ALL, NULL)) &
        REFUSED(memsaver_resume_async(saver, ALL, NULL, NULL)) & REFUSED(memsaver_save(saver, ALL, NULL, NULL)) &
        REFUSED(memsaver_get_gate(saver, to, 1, NULL)) & REFUSED(memsaver_begin_use(saver, ALL, NULL, NULL)) &
        REFUSED(memsaver_make_elastic(arena, 1, NULL, NULL)) & REFUSED(memsaver_get_usage(saver, ALL, NULL)) &
        REFUSED(memsaver_get_arena_usage(arena, NULL)) & REFUSED(memsaver_get_usage_json(saver, NULL)) &
        REFUSED(memsaver_use_lost(use, NULL, &bytes)) & REFUSED(memsaver_use_lost(use, &lost, NULL)) &
        REFUSED(memsaver_arrival_done(arrival, NULL)) & REFUSED(memsaver_get_elastic_info(elastic, NULL));
    CHECK(outputs);
    memsaver_end_use(use);
    memsaver_end_arrival(arrival);
    memsaver_end_elastic(elastic);

    // Names, functions, pointers.
    MISUSE(memsaver_make_tag(saver, NULL, NULL), "tag is null");
    MISUSE(memsaver_push_region(saver, NULL), "tag is null");
    MISUSE(memsaver_push_arena(saver, NULL), "arena is null");
    MISUSE(memsaver_pause(saver, TAGS(NULL), NULL, NULL), "name of a tag is null");
    MISUSE(memsaver_pause(saver, UNDER(NULL), NULL, NULL), "prefix is null");
    MISUSE(memsaver_pause(saver, NULL, 1, NULL, NULL), "list of tags is null");
    MISUSE(memsaver_load(saver, to, 1, NULL, 0), "the path is null");
    MISUSE(memsaver_write_backup(saver, to, NULL, 1), "memsaver_write_backup: the source is null");
    MISUSE(memsaver_add_hook(saver, 0, NULL, NULL, &hook), "function is null");
    MISUSE(memsaver_add_hook(saver, 4, hook_of_nobody, NULL, &hook), "moment cannot be 4");
    MISUSE(memsaver_add_hook(saver, -1, hook_of_nobody, NULL, NULL), "moment cannot be -1");
    MISUSE(memsaver_add_answering_hook(saver, 0, NULL, NULL, &hook), "function is null");
    MISUSE(memsaver_add_answering_hook(saver, 4, answer_with, NULL, &hook), "moment cannot be 4");
    MISUSE(memsaver_deallocate(saver, to), "no tag of this saver contains this pointer");
    memsaver_release_arena(arena);
    memsaver_destroy(saver);
}

#define WRONG_OPTION(field, value, text)                                                                               \
    do {                                                                                                               \
        memsaver_options wrong = options_of_machine;                                                                   \
        wrong.field = value;                                                                                           \
        MISUSE(memsaver_create(&wrong, &saver), text);                                                                 \
    } while (0)

static void test_structures(void) {
    memsaver_options options = options_of_machine;
    saver = (memsaver_saver*)&options;
    options.size = 0;
    MISUSE(memsaver_create(&options, &saver), "MEMSAVER_..._INIT");
    CHECK(saver == NULL);
    WRONG_OPTION(size, (size_t)-1, "MEMSAVER_..._INIT");
    WRONG_OPTION(driver, 3, "driver cannot be 3");
    WRONG_OPTION(export_handles, -1, "export_handles cannot be -1");
    WRONG_OPTION(peer_count, 1, "list of peers is null");
    WRONG_OPTION(new_tags, 2, "memsaver_options.new_tags cannot be 2");

    // A program compiled before some fields were added: they get their defaults.
    options = options_of_machine;
    options.margin = (size_t)1 << 50;
    options.size = offsetof(memsaver_options, margin);
    open_with(options);

    // A program compiled with more fields than the library knows.
    struct {
        memsaver_report known;
        size_t unknown;
    } longer = {MEMSAVER_REPORT_INIT, 5};
    longer.known.size = sizeof longer;
    (void)block_of("tag", MIB, 1);
    OK(memsaver_pause(saver, ALL, NULL, &longer.known));
    CHECK(longer.known.released_bytes >= MIB && longer.unknown == 0 && longer.known.size == sizeof longer);
    longer.known.size = offsetof(memsaver_report, saved_bytes);
    longer.known.saved_bytes = 99;
    OK(memsaver_pause(saver, ALL, NULL, &longer.known));
    CHECK(longer.known.released_bytes == 0 && longer.known.saved_bytes == 99);
    longer.known.size = 1;
    MISUSE(memsaver_resume(saver, ALL, NULL, &longer.known), "memsaver_report");
    struct {
        memsaver_resume_options known;
        size_t unknown;
    } resuming = {MEMSAVER_RESUME_OPTIONS_INIT, 1};
    resuming.known.size = sizeof resuming;
    MISUSE(memsaver_resume(saver, ALL, &resuming.known, NULL), "older than the header");
    resuming.unknown = 0;
    OK(memsaver_resume(saver, ALL, &resuming.known, NULL));

    // The text of an error, of two-byte characters, is cut between them. Success does not change it.
    char name[3000];
    for (size_t i = 0; i + 2 < sizeof name; i += 2) memcpy(name + i, "\xc3\xa4", 2);
    name[sizeof name - 2] = '\0';
    IS(MEMSAVER_MISUSE, memsaver_pause(saver, TAGS(name), NULL, NULL));
    const char* text = memsaver_last_error();
    const size_t size = strlen(text);
    CHECK(size >= 2000 && size < 2048 && (unsigned char)text[size - 1] == 0xa4);
    OK(memsaver_close(saver));
    CHECK(strlen(memsaver_last_error()) == size);
    CHECK(last().result == MEMSAVER_MISUSE && last().driver_code == 0 && strcmp(last().driver_name, "") == 0);
    memsaver_destroy(saver);
}

static void test_fork(void) {
    open_saver();
    memsaver_arena* arena = NULL;
    OK(memsaver_get_arena(saver, "tag", NULL, &arena));
    OK(memsaver_push_region(saver, "tag"));
    void* block = block_of(NULL, MIB, 4);
    const pid_t child = fork();
    if (child == 0) {
        failures = 0;
        char* text = NULL;
        MISUSE(memsaver_push_region(saver, "tag"), "fork");
        MISUSE(memsaver_push_outside(saver), "fork");
        MISUSE(memsaver_pop_region(saver), "fork");
        MISUSE(memsaver_get_usage_json(saver, &text), "fork");
        MISUSE(memsaver_add_hook(saver, 0, hook_of_nobody, NULL, NULL), "fork");
        MISUSE(memsaver_close(saver), "fork");
        CHECK(!memsaver_owns(saver, block));
        memsaver_release_arena(arena);
        memsaver_destroy(saver);
        _exit(failures != 0);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(reads(block, 4, MIB));
    OK(memsaver_pop_region(saver));
    memsaver_release_arena(arena);
    memsaver_destroy(saver);
}

static void test_machines(void) {
    memsaver_options options = MEMSAVER_OPTIONS_INIT;
    options.cuda_library = "libmemsaver-has-no-such-driver.so.1";
    options.driver = MEMSAVER_DRIVER_CUDA;
    IS(MEMSAVER_UNAVAILABLE, memsaver_create(&options, &saver));
    CHECK(saver == NULL && strstr(memsaver_last_error(), "no CUDA driver") != NULL);
    options.driver = MEMSAVER_DRIVER_DEFAULT;
    options.device = 3;
    options.host_capacity = 64 * MIB;
    options.host_granularity = 64 << 10;
    open_with(options);
    memsaver_info info = MEMSAVER_INFO_INIT;
    OK(memsaver_get_info(saver, &info));
    CHECK(info.driver == MEMSAVER_DRIVER_HOST && info.total_bytes == 64 * MIB && info.granularity == 64 << 10);
    CHECK(info.device == 3);
    memsaver_arena_options arena = MEMSAVER_ARENA_OPTIONS_INIT;
    arena.device = 5;
    MISUSE(memsaver_make_tag(saver, "tag", &arena), "no device 5");
    arena.device = 3;
    OK(memsaver_make_tag(saver, "tag", &arena));
    memsaver_destroy(saver);
    options.host_granularity = 3000;
    MISUSE(memsaver_create(&options, &saver), "granularity");
    const memsaver_result gpu = memsaver_gpu_available(0);
    CHECK(gpu == MEMSAVER_OK || (gpu == MEMSAVER_UNAVAILABLE && strlen(memsaver_last_error()) > 0));
    CHECK(gpu != MEMSAVER_OK || memsaver_gpu_count() > 0);
    IS(MEMSAVER_UNAVAILABLE, memsaver_gpu_available(12345));
    OK(memsaver_create(NULL, &saver));
    OK(memsaver_get_info(saver, &info));
    CHECK(info.driver == (gpu == MEMSAVER_OK ? MEMSAVER_DRIVER_CUDA : MEMSAVER_DRIVER_HOST));
    memsaver_destroy(saver);
}

// --- A driver that fails on request: tests/driver/stub_libcuda.cpp ---

static void test_failing_driver(const char* library) {
    void* stub = dlopen(library, RTLD_NOW);
    void (*fail_call)(const char*, int) = NULL;
    if (stub != NULL) *(void**)&fail_call = dlsym(stub, "memsaver_stub_fail");
    if (fail_call == NULL) {
        CHECK(!"there is no stub");
        return;
    }
    memsaver_options options = MEMSAVER_OPTIONS_INIT;
    options.driver = MEMSAVER_DRIVER_CUDA;
    options.cuda_library = library;
    open_with(options);
    memsaver_info info = MEMSAVER_INFO_INIT;
    OK(memsaver_get_info(saver, &info));
    CHECK(info.driver == MEMSAVER_DRIVER_CUDA && strstr(info.name, "Stub GPU") != NULL);
    void* block = NULL;
    OK(memsaver_allocate(saver, "tag", 100, 0, &block));

    fail_call("cuMemUnmap", 1); // invalid value
    IS(MEMSAVER_DRIVER_ERROR, memsaver_pause(saver, TAGS("tag"), NULL, told()));
    CHECK(last().result == MEMSAVER_DRIVER_ERROR && last().driver_code == 1 && report.released_bytes == 0);
    CHECK(strcmp(last().driver_name, "CUDA_ERROR_INVALID_VALUE") == 0 && strcmp(last().tag, "tag") == 0);
    fail_call("cuMemUnmap", 0);
    OK(memsaver_pause(saver, TAGS("tag"), NULL, told()));
    CHECK(report.released_bytes > 0);
    fail_call("cuMemCreate", 700); // an illegal address: the context is lost
    IS(MEMSAVER_DEVICE_LOST, memsaver_resume(saver, TAGS("tag"), NULL, NULL));
    fail_call("cuMemCreate", 2);
    IS(MEMSAVER_OUT_OF_MEMORY, memsaver_resume(saver, TAGS("tag"), NULL, NULL));
    CHECK(strcmp(last().driver_name, "CUDA_ERROR_OUT_OF_MEMORY") == 0 && last().needed_bytes > 0);
    fail_call("cuMemCreate", 0);
    OK(memsaver_resume(saver, TAGS("tag"), NULL, NULL));
    fail_call("cuMemRelease", 1); // freed for the program, held for the driver
    IS(MEMSAVER_DRIVER_ERROR, memsaver_pause(saver, TAGS("tag"), NULL, told()));
    CHECK(report.held_bytes > 0 && usage_of("tag").held_bytes > 0);
    fail_call("cuMemRelease", 0);
    OK(memsaver_pause(saver, TAGS("tag"), NULL, told()));
    CHECK(report.held_bytes == 0 && report.released_bytes > 0);

    // Another device of the same saver.
    memsaver_arena_options second = MEMSAVER_ARENA_OPTIONS_INIT;
    second.device = 1;
    memsaver_arena* arena = NULL;
    OK(memsaver_get_arena(saver, "tag", &second, &arena));
    memsaver_release_arena(arena);
    second.device = 99;
    MISUSE(memsaver_get_arena(saver, "tag", &second, &arena), "99");
    memsaver_destroy(saver);
}

// --- GPU access, to write and read its memory ---

static bool open_gpu(void) {
    if (memsaver_gpu_available(0) != MEMSAVER_OK) {
        printf("skipped: %s\n", memsaver_last_error());
        return false;
    }
    void* driver = dlopen("libcuda.so.1", RTLD_NOW);
    int (*retain)(void**, int) = NULL;
    int (*set_current)(void*) = NULL;
    *(void**)&retain = dlsym(driver, "cuDevicePrimaryCtxRetain");
    *(void**)&set_current = dlsym(driver, "cuCtxSetCurrent");
    *(void**)&copy_in = dlsym(driver, "cuMemcpyHtoD_v2");
    *(void**)&copy_out = dlsym(driver, "cuMemcpyDtoH_v2");
    void* context = NULL;
    CHECK(retain(&context, 0) == 0 && set_current(context) == 0);
    return failures == 0;
}

int main(int count, char** arguments) {
    const char* machine = count > 1 ? arguments[1] : "host";
    const bool host = strcmp(machine, "host") == 0;
    if (strcmp(machine, "stub") == 0 && count == 3) {
        test_failing_driver(arguments[2]);
        return failures != 0;
    }
    options_of_machine.driver = host ? MEMSAVER_DRIVER_HOST : MEMSAVER_DRIVER_CUDA;
    options_of_machine.host_capacity = (size_t)1 << 30;
    if (host) test_fork(); // first, before any other thread exists
    if (strcmp(machine, "gpu") == 0 && !open_gpu()) return failures != 0 ? 1 : 77;
    test_version_and_results();
    test_pause_and_resume();
    test_exchange();
    test_blocks();
    test_torch();
    test_regions_that_are_left();
    test_policies();
    test_usage();
    test_arrivals();
    test_load();
    test_uses();
    test_elastic();
    test_hooks();
    test_sink_that_calls_the_saver();
    test_damage();
    test_threads();
    test_orders();
    test_null();
    test_structures();
    if (host) {
        test_no_room();
        test_machines();
    }
    if (failures != 0) fprintf(stderr, "%d failures\n", failures);
    return failures != 0;
}
