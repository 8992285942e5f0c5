// Tests what the C interface adds to the C++ library: that each argument, result, null, size field, error and callback
// arrives. What the calls do is tested in C++. Run as: c_test host | gpu | host_gpu | stub <a libcuda that fails on
// request>. host_gpu: libcuda.so.1 is implemented in host memory. Returns 0 on success, 1 on failure, 77 if it cannot
// run.
#define _GNU_SOURCE
#include "checks.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

// A list of tags, as two arguments.
#define LIST(...) ((const char* const[]){__VA_ARGS__})
#define TAGS(...) LIST(__VA_ARGS__), COUNT(LIST(__VA_ARGS__))
#define UNDER(prefix) LIST(prefix), MEMSAVER_UNDER
#define NONE LIST(NULL), 0
#define ALL NULL, 0

// Options.
#define HOST(...) POLICY(.kind = MEMSAVER_HOST_BACKUP, __VA_ARGS__)
#define ONCE(...) HOST(.refresh = MEMSAVER_ONCE, __VA_ARGS__)
#define FILES(...) POLICY(.kind = MEMSAVER_FILE_BACKUP, .directory = "/tmp", __VA_ARGS__)
#define SOURCE(...) POLICY(.kind = MEMSAVER_FILE_SOURCE, __VA_ARGS__)
#define PAUSE(...) MADE(pause_options, MEMSAVER_PAUSE_OPTIONS_INIT, __VA_ARGS__)
#define RESUME(...) MADE(resume_options, MEMSAVER_RESUME_OPTIONS_INIT, __VA_ARGS__)
#define EXCHANGE(...) MADE(exchange_options, MEMSAVER_EXCHANGE_OPTIONS_INIT, __VA_ARGS__)
#define ASYNC(...) MADE(resume_async_options, MEMSAVER_RESUME_ASYNC_OPTIONS_INIT, __VA_ARGS__)
#define USE(...) MADE(use_options, MEMSAVER_USE_OPTIONS_INIT, __VA_ARGS__)
#define RECLAIM(...) MADE(reclaim_options, MEMSAVER_RECLAIM_OPTIONS_INIT, __VA_ARGS__)
#define ELASTIC(...) MADE(elastic_options, MEMSAVER_ELASTIC_OPTIONS_INIT, __VA_ARGS__)

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

static int32_t machine = MEMSAVER_DRIVER_HOST;
#define MACHINE(...) OPTIONS(.driver = machine, .host_capacity = (size_t)1 << 30, __VA_ARGS__)

/// The saver under test.
static memsaver_saver* saver = NULL;

static void open_with(const memsaver_options* options) { OK(memsaver_create(options, &saver)); }
static void open_saver(void) { open_with(MACHINE()); }

static memsaver_result make(const char* tag, const memsaver_policy* policy) {
    return memsaver_make_tag(saver, tag, ARENA(.policy = policy));
}

static memsaver_arena* arena_of(const char* tag, const memsaver_arena_options* options) {
    memsaver_arena* arena = NULL;
    OK(memsaver_get_arena(saver, tag, options, &arena));
    return arena;
}

static void* block_of(const char* tag, size_t bytes, unsigned char byte) {
    void* block = NULL;
    OK(memsaver_allocate(saver, tag, bytes, 0, &block));
    put(block, byte, bytes);
    return block;
}

static void* kept_block(const char* tag, size_t bytes, unsigned char byte) {
    OK(make(tag, HOST()));
    return block_of(tag, bytes, byte);
}

static memsaver_report report;

static memsaver_report* told(void) {
    report = (memsaver_report){MEMSAVER_REPORT_INIT};
    return &report;
}

/// A function `name` that returns what a call tells in a structure.
#define TELLS(name, type, init, call, ...)                                                                             \
    static memsaver_##type name(__VA_ARGS__) {                                                                         \
        memsaver_##type to = {init};                                                                                   \
        OK(call);                                                                                                      \
        CHECK(to.size == sizeof to);                                                                                   \
        return to;                                                                                                     \
    }
#define REPORTS(name, call, ...) TELLS(name, report, MEMSAVER_REPORT_INIT, call, __VA_ARGS__)
#define NAMES const char *const *names, size_t count

TELLS(last, error, MEMSAVER_ERROR_INIT, memsaver_get_last_error(&to), void)
TELLS(info, info, MEMSAVER_INFO_INIT, memsaver_get_info(saver, &to), void)
TELLS(usage_in, usage, MEMSAVER_USAGE_INIT, memsaver_get_usage(saver, names, count, &to), NAMES)
TELLS(usage_at, usage, MEMSAVER_USAGE_INIT, memsaver_get_arena_usage(arena, &to), memsaver_arena* arena)
REPORTS(paused, memsaver_pause(saver, names, count, options, &to), NAMES, const memsaver_pause_options* options)
REPORTS(resumed, memsaver_resume(saver, names, count, options, &to), NAMES, const memsaver_resume_options* options)
REPORTS(trimmed, memsaver_trim(saver, names, count, NULL, &to), NAMES)
REPORTS(arrived, memsaver_arrival_wait(arrival, &to), memsaver_arrival* arrival)

static memsaver_usage usage_of(const char* tag) { return usage_in(&tag, 1); }

static bool usage_says(const char* text) {
    char* json = NULL;
    OK(memsaver_get_usage_json(saver, &json));
    const bool says = json != NULL && strstr(json, text) != NULL;
    memsaver_free_text(json);
    return says;
}

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
    CHECK(memsaver_owns(saver, weights + size - 1) && !memsaver_owns(saver, &weights) && !memsaver_owns(NULL, weights));
    CHECK(!memsaver_is_paused(saver, weights, size));
    OK(memsaver_set_retain(saver, TAGS("weights"), false));
    report = paused(ALL, NULL);
    CHECK(report.released_bytes >= 13 * MIB && report.saved_bytes == size);
    CHECK(report.elapsed_ns > 0 && report.waited_ns >= 0 && report.waited_ns <= report.elapsed_ns);
    CHECK(report.mapped_bytes == 0 && report.restored_bytes == 0 && report.held_bytes == 0);
    CHECK(memsaver_is_paused(saver, weights, 1) && !memsaver_is_paused(saver, weights, 0));
    CHECK(!memsaver_is_paused(saver, &weights, 1) && !memsaver_is_paused(NULL, weights, 1));
    size_t bytes = 0;
    OK(memsaver_bytes_to_resume(saver, TAGS("weights"), &bytes));
    CHECK(bytes >= size && bytes < 13 * MIB);
    char kept[4] = "";
    OK(memsaver_write_backup(saver, weights + 2 * MIB, "\t\t\t", 3));
    OK(memsaver_read_backup(saver, weights + 2 * MIB - 1, 4, kept));
    CHECK(memcmp(kept, "\7\t\t\t", 4) == 0);
    MISUSE(memsaver_read_backup(saver, cache, 1, kept), "kv_cache");
    MISUSE(memsaver_write_backup(saver, cache, kept, 1), "kv_cache");
    CHECK(strcmp(last().tag, "kv_cache") == 0);
    report = resumed(TAGS("weights"), NULL);
    CHECK(report.restored_bytes == size && report.mapped_bytes >= size && report.released_bytes == 0);
    CHECK(reads(weights, 7, 2 * MIB) && reads(weights + 2 * MIB, 9, 3) && reads(weights + 2 * MIB + 3, 7, MIB));
    CHECK(usage_of("weights").backed_up_bytes == 0);

    // Other bytes for one pause, or for one resume; none at all; retained ones.
    OK(memsaver_set_retain(saver, TAGS("weights"), true));
    CHECK(paused(TAGS("weights"), PAUSE(.bytes = POLICY())).saved_bytes == 0);
    (void)resumed(TAGS("weights"), NULL);
    (void)paused(TAGS("weights"), NULL);
    CHECK(resumed(TAGS("weights"), RESUME(.bytes = POLICY())).restored_bytes == 0);
    CHECK(usage_of("weights").backed_up_bytes == size);
    (void)paused(TAGS("weights"), NULL);
    OK(memsaver_forget_backup(saver, TAGS("weights")));
    CHECK(resumed(ALL, NULL).restored_bytes == 0);

    // A list of tags: none, all under a prefix.
    CHECK(paused(NONE, NULL).released_bytes == 0);
    report = paused(UNDER("kv_"), PAUSE(.timeout_ns = INT64_MAX));
    CHECK(report.released_bytes >= 8 * MIB && report.released_bytes < 13 * MIB);
    (void)resumed(UNDER("kv_"), RESUME(.room_within_ns = INT64_MAX)); // for ever

    // Prepared, saved once, invalidated; trimmed, dropped, closed.
    OK(make("frozen", ONCE()));
    (void)block_of("frozen", MIB, 3);
    OK(memsaver_prepare(saver, TAGS("frozen")));
    for (int pause = 0; pause < 3; ++pause) {
        if (pause == 2) OK(memsaver_invalidate(saver, TAGS("frozen")));
        CHECK(paused(TAGS("frozen"), NULL).saved_bytes == (pause == 1 ? 0 : MIB));
        (void)resumed(TAGS("frozen"), NULL);
    }
    OK(memsaver_deallocate_idle(saver, weights));
    CHECK(trimmed(TAGS("weights")).released_bytes >= size);
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
    (void)paused(TAGS("lora/a"), NULL);
    void* second = kept_block("lora/b", size, 5);
    OK(memsaver_exchange(saver, TAGS("lora/b"), TAGS("lora/a"), NULL, told()));
    CHECK(report.handed_bytes >= size && report.mapped_bytes >= size && report.released_bytes == 0);
    CHECK(report.saved_bytes == size && report.restored_bytes == size && report.held_bytes == 0);
    CHECK(usage_of("lora/b").mapped_bytes == 0 && reads(first, 3, size));
    const memsaver_exchange_options* bytes =
        EXCHANGE(.pausing = PAUSE(.bytes = POLICY()), .resuming = RESUME(.bytes = POLICY(.kind = MEMSAVER_ZERO)));
    OK(memsaver_exchange(saver, TAGS("lora/a"), TAGS("lora/b"), bytes, told()));
    CHECK(report.saved_bytes == 0 && reads(second, 0, size));
    OK(memsaver_exchange(saver, TAGS("lora/b"), NONE, NULL, told()));
    CHECK(report.handed_bytes == 0 && report.released_bytes >= size && report.saved_bytes == size);

    // Invalid arguments: the result is a misuse, and an empty report.
    MISUSE(memsaver_exchange(saver, TAGS("lora/b"), TAGS("c"), NULL, told()), "exchange: unknown tag \"c\"");
    CHECK(report.size == sizeof report && report.handed_bytes == 0 && report.released_bytes == 0);
    MISUSE(memsaver_exchange(saver, ALL, NONE, EXCHANGE(.resuming = RESUME(.size = 0)), NULL), "resume_options: its");
    MISUSE(memsaver_exchange(saver, ALL, NONE, EXCHANGE(.pausing = PAUSE(.size = 0)), NULL), "pause_options: its size");
    MISUSE(memsaver_exchange(saver, ALL, NONE, EXCHANGE(.size = 1), NULL), "exchange_options: its size");
    memsaver_destroy(saver);
}

// --- Blocks, arenas, regions ---

static void test_blocks(void) {
    open_saver();
    memsaver_saver* const mine = saver;
    memsaver_arena* arena = arena_of("tag", ARENA(.reserve = 4 * MIB));
    CHECK(usage_at(arena).arenas == 1 && usage_at(arena).mapped_bytes == 4 * MIB && usage_at(arena).used_bytes == 0);
    void* blocks[6] = {NULL};
    OK(memsaver_allocate(saver, "tag", 1000, 0, &blocks[0]));
    OK(memsaver_allocate(saver, "tag", 1000, 1 << 14, &blocks[1]));
    OK(memsaver_allocate_on(saver, "tag", 1000, 1 << 15, NULL, &blocks[2]));
    OK(memsaver_arena_allocate(arena, 1000, 0, &blocks[3]));
    OK(memsaver_arena_allocate(arena, 1000, 1 << 17, &blocks[4]));
    OK(memsaver_arena_allocate_on(arena, 1000, 1 << 18, NULL, &blocks[5]));
    const uintptr_t alignments[] = {256, 1 << 14, 1 << 15, 256, 1 << 17, 1 << 18};
    for (size_t i = 0; i < COUNT(blocks); ++i) CHECK(blocks[i] != NULL && (uintptr_t)blocks[i] % alignments[i] == 0);
    CHECK(usage_at(arena).blocks == 6 && usage_at(arena).used_bytes == 6000);
    MISUSE(memsaver_arena_allocate(arena, 1, 3, &blocks[0]), "alignment");
    CHECK(blocks[0] == NULL);
    OK(memsaver_deallocate(saver, blocks[1]));
    OK(memsaver_deallocate_idle(saver, blocks[2]));
    OK(memsaver_arena_deallocate(arena, blocks[3]));
    OK(memsaver_arena_deallocate_idle(arena, blocks[4]));
    OK(memsaver_arena_deallocate_on(arena, blocks[5], NULL));
    CHECK(usage_at(arena).blocks == 1);
    MISUSE(memsaver_deallocate(saver, blocks[1]), "tag");
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

    OK(memsaver_set_capacity(saver, TAGS("tag"), 80 * MIB));
    MISUSE(memsaver_arena_allocate(arena, 81 * MIB, 0, &blocks[0]), "tag");
    OK(memsaver_arena_allocate(arena, 65 * MIB, 0, &blocks[0]));

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
    CHECK(usage_at(arena).used_bytes == 65 * MIB + 1100 && usage_of("other").used_bytes == 10);
    OK(memsaver_pause(saver, ALL, NULL, NULL));
    CHECK(memsaver_is_paused(saver, inner, 1) && memsaver_is_paused(saver, outer, 1) && reads(plain, 1, 1000));
    open_saver();
    MISUSE(memsaver_push_arena(saver, arena), "another saver");
    memsaver_destroy(saver);

    memsaver_destroy(mine); // the arena outlives the saver's handle
    OK(memsaver_arena_deallocate(arena, blocks[0]));
    memsaver_release_arena(arena);
    open_saver();
    arena = arena_of("tag", NULL);
    OK(memsaver_close(saver));
    MISUSE(memsaver_push_arena(saver, arena), "closed");
    memsaver_release_arena(arena);
    memsaver_destroy(saver);
}

static void test_torch(void) {
    open_saver();
    memsaver_arena *outer = arena_of("outer", NULL), *inner = arena_of("inner", NULL);
    OK(memsaver_torch_push(outer));
    OK(memsaver_torch_push(inner));
    void* before = NULL;
    OK(memsaver_arena_allocate(inner, 256, 0, &before)); // what follows it is aligned to 512 only if that was asked for
    void* a = memsaver_torch_allocate(1000, 0, NULL);
    CHECK(a != NULL && (uintptr_t)a % 512 == 0 && usage_at(inner).blocks == 2 && usage_at(outer).blocks == 0);
    OK(memsaver_torch_pop());
    void* b = memsaver_torch_allocate(1000, 0, NULL);
    CHECK(b != NULL && usage_at(outer).blocks == 1);
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
    CHECK(usage_at(inner).blocks == 1);
    memsaver_torch_free(a, 1000, 0, NULL); // twice

    // A late free, after its tag was dropped, does not free a new block at the same address.
    OK(memsaver_drop(saver, TAGS("outer")));
    memsaver_usage usage = {MEMSAVER_USAGE_INIT};
    MISUSE(memsaver_get_arena_usage(outer, &usage), "tag \"outer\" has been dropped");
    CHECK(usage.arenas == 0);
    memsaver_release_arena(outer);
    outer = arena_of("outer", NULL);
    OK(memsaver_torch_push(outer));
    void* c = memsaver_torch_allocate(1000, 0, NULL);
    OK(memsaver_torch_pop());
    memsaver_torch_free(b, 1000, 0, NULL);
    CHECK(usage_at(outer).blocks == 1);
    memsaver_release_arena(outer);
    memsaver_release_arena(inner);
    memsaver_destroy(saver); // before the last tensor is freed
    memsaver_torch_free(c, 1000, 0, NULL);
}

static void count_ignored(void* context, const memsaver_event* event) {
    if (event->kind == MEMSAVER_EVENT_IGNORED) ++*(int*)context;
}

static void* leave_a_region(void* unused) {
    CHECK(strcmp(memsaver_last_error(), "") == 0); // each thread has its own
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
        open_with(MACHINE(.on_event = count_ignored, .on_event_context = &ignored));
        OK(memsaver_push_region(saver, "one"));
        OK(memsaver_push_region(saver, "two"));
        OK(memsaver_push_region(saver, "three"));
        if (destroy == 0) OK(memsaver_close(saver));
        memsaver_destroy(saver);
        CHECK(ignored == 0);
    }
    // A region that an ended thread left open is none of a later thread, to which the system gives the same id.
    open_saver();
    MISUSE(memsaver_pause(saver, TAGS("mine"), NULL, NULL), "mine");
    run(leave_a_region, NULL);
    for (int i = 0; i < 20; ++i) run(expect_no_region, NULL);
    CHECK(strstr(memsaver_last_error(), "mine") != NULL);
    CHECK(usage_of("left").blocks == 0);
    memsaver_destroy(saver);
}

// --- Policies, options of tags, usage ---

/// A tag keeps what it was made with: what is asked for later says by its difference which field arrived, and as what.
static void test_options_of_tags(void) {
    open_saver();
    // Of the tag's policy and of another one, the text says the difference.
#define DIFFERS(has, asked, difference)                                                                                \
    do {                                                                                                               \
        OK(make("tag", has));                                                                                          \
        MISUSE(make("tag", asked), difference);                                                                        \
        OK(memsaver_drop(saver, TAGS("tag")));                                                                         \
    } while (0)
    DIFFERS(POLICY(), POLICY(.poison = 0x5a), "poison");
    DIFFERS(POLICY(), POLICY(.kind = MEMSAVER_ZERO), "the policy \"discard\", not \"zero\"");
    DIFFERS(POLICY(.kind = MEMSAVER_ZERO, .compressed = true), HOST(), "\"zero\", not \"host\"");
    DIFFERS(HOST(), HOST(.storage = MEMSAVER_PAGEABLE), "the policy \"host\", not \"host pageable\";");
    DIFFERS(HOST(), ONCE(), "the policy \"host\", not \"host, once\";");
    DIFFERS(HOST(), HOST(.retain = false), "\"host\" with \"retained\", not \"not retained\";");
    DIFFERS(ONCE(), ONCE(.check = true), "\"host, once\" with \"not checked\", not \"checked\";");
    DIFFERS(HOST(), HOST(.threads = 3), "\"host\" with \"threads 8\", not \"threads 3\";");
    DIFFERS(HOST(), HOST(.ring_bytes = 5 * MIB), "\"host\" with \"ring 64.00 MiB\", not \"ring 5.00 MiB\";");
    DIFFERS(HOST(), HOST(.compressed = true), "the policy \"host\", not \"compressed");
    DIFFERS(HOST(), FILES(), "the policy \"host\", not \"file\"");
    DIFFERS(FILES(), FILES(.directory = "/"), "\"file\" with \"directory /tmp\", not \"directory /\";");
    DIFFERS(FILES(), FILES(.threads = 3), "\"threads 4\", not \"threads 3\";");
    DIFFERS(FILES(), FILES(.compressed = true), "the policy \"file\", not \"compressed");
    DIFFERS(SOURCE(), SOURCE(.threads = 3, .ring_bytes = MIB),
            "\"threads 3\", \"ring 32.00 MiB\", not \"ring 1.00 MiB\";");
    DIFFERS(SOURCE(), SOURCE(.retain = false), "\"retained\", not \"not retained\";");
    MISUSE(make("new", POLICY(.kind = 5)), "kind cannot be 5");
    MISUSE(make("new", FILES(.directory = NULL)), "directory");
    MISUSE(make("new", POLICY(.poison = 256)), "poison");
    MISUSE(make("new", HOST(.refresh = 2)), "refresh cannot be 2");
    MISUSE(make("new", HOST(.storage = -5)), "storage cannot be -5");
    MISUSE(make("new", HOST(.threads = 1000000)), "HostBackup::threads is 1000000; valid: 1 to 1024");
    MISUSE(make("new", HOST(.size = 3)), "memsaver_policy: its size field is 3");
    OK(make("no use for them", POLICY(.refresh = 2, .storage = 9)));

    OK(memsaver_make_tag(saver, "tag", NULL));
#define ANOTHER(difference, ...) MISUSE(memsaver_make_tag(saver, "tag", ARENA(__VA_ARGS__)), difference)
    ANOTHER("another capacity: none of its own, not 1.00 MiB", .capacity = MIB);
    ANOTHER("another reserve: none, not 1.00 MiB", .reserve = MIB);
    ANOTHER("another margin: none, not 1.00 MiB", .margin = MIB);
    ANOTHER("not evictable", .evictable = true);
    ANOTHER("with priority 0, not -3", .priority = -3);
    ANOTHER("memsaver_arena_options: its size field is 1", .size = 1);
    MISUSE(memsaver_prepare(saver, TAGS("tag")), "tag"); // keeps no bytes
    MISUSE(memsaver_invalidate(saver, TAGS("tag")), "tag");
    memsaver_destroy(saver);

    // The saver's policy, of tags that name none.
    open_with(MACHINE(.default_policy = POLICY(.poison = 0x5a)));
    void* block = block_of("tag", MIB, 1);
    OK(memsaver_pause(saver, ALL, NULL, NULL));
    OK(memsaver_resume(saver, ALL, NULL, NULL));
    CHECK(reads(block, 0x5a, MIB));
    memsaver_destroy(saver);
    open_with(MACHINE(.new_tags = MEMSAVER_NEW_TAGS_WITH_POLICY));
    OK(make("weights", POLICY()));
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
    memsaver_usage usage = usage_in(ALL);
    CHECK(usage.arenas == 3 && usage.blocks == 2 && usage.used_bytes == 1100 && usage.mapped_bytes >= 1000);
    CHECK(usage.peak_mapped_bytes >= 1100 && usage.reserved_bytes >= 100 && usage.held_bytes == 0);
    usage = usage_in(TAGS("empty", "a \"tag\"\n"));
    CHECK(usage.arenas == 2 && usage.used_bytes == 100 && usage.mapped_bytes == 0 && usage.paused_bytes >= 100);
    CHECK(usage.pauses == 1 && usage_of("empty").arenas == 1 && usage_of("empty").used_bytes == 0);
    CHECK(usage_in(UNDER("a ")).arenas == 1 && usage_in(UNDER("a ")).used_bytes == 100);
    MISUSE(memsaver_get_usage(saver, TAGS("emty"), &usage), "unknown tag \"emty\": did you mean \"empty\"");
    CHECK(strcmp(last().tag, "emty") == 0);
    MISUSE(memsaver_get_usage(saver, TAGS("outside"), &usage), "unknown tag"); // plain memory's row is no tag's
    CHECK(usage_in(UNDER("out")).arenas == 0);
    CHECK(usage_says("{\"arenas\":[{\"tag\":\"") && usage_says("\"tag\":\"a \\\"tag\\\"\\u000a\""));
    memsaver_free_text(NULL);
    CHECK(info().enabled && info().granularity >= 4096 && info().free_bytes <= info().total_bytes);
    CHECK(info().total_bytes > 0 && strlen(info().name) > 0 && info().device == 0 && info().driver == machine);
    memsaver_destroy(saver);

    open_with(MACHINE(.enabled = false));
    CHECK(!info().enabled);
    memsaver_destroy(saver);
}

// --- Arrivals, files, uses, elastic memory ---

static void test_arrivals(void) {
    open_saver();
    const size_t size = 16 * MIB;
    char* weights = kept_block("weights", size, 3);
    const void* const first[] = {weights + 8 * MIB, weights};
    const size_t sizes[] = {4 * MIB, 1000};
    memsaver_arrival* coming = NULL;
    memsaver_gate* gate = NULL;
    OK(memsaver_get_gate(saver, weights + 100, 3000, &gate));
    OK(memsaver_pause(saver, TAGS("weights"), NULL, NULL));
    const memsaver_resume_async_options* two = ASYNC(.first = first, .first_bytes = sizes, .first_count = 2);
    OK(memsaver_resume_async(saver, TAGS("weights"), two, &coming));
    memsaver_use* use = NULL;
    OK(memsaver_begin_use(saver, TAGS("weights"), USE(.await_bytes = false), &use)); // otherwise they may be evicted
    OK(memsaver_gate_before(gate, NULL));
    OK(memsaver_arrival_before_range(coming, NULL, weights, 1000));
    OK(memsaver_arrival_before(coming, NULL));
    OK(memsaver_arrival_wait_range(coming, weights + 8 * MIB, 4 * MIB));
    CHECK(reads(weights + 8 * MIB, 3, 4 * MIB));
    report = arrived(coming);
    CHECK(report.restored_bytes == size && report.mapped_bytes >= size);
    bool done = false;
    OK(memsaver_arrival_done(coming, &done));
    CHECK(done && reads(weights, 3, size));
    memsaver_end_use(use);
    memsaver_end_arrival(coming);

    // Saves ahead.
    OK(make("frozen", ONCE()));
    const void* const frozen = block_of("frozen", size, 4);
    OK(memsaver_save(saver, TAGS("frozen"), PAUSE(.order = MEMSAVER_ALREADY_IDLE), &coming));
    CHECK(arrived(coming).saved_bytes == size);
    memsaver_end_arrival(coming);
    CHECK(paused(ALL, NULL).saved_bytes == size);

#define WRONG(text, ...) MISUSE(memsaver_resume_async(saver, TAGS("weights"), ASYNC(__VA_ARGS__), &coming), text)
    WRONG("not in live blocks", .first = &frozen, .first_bytes = sizes, .first_count = 1);
    WRONG("first pointers is null", .first_bytes = sizes, .first_count = 1);
    WRONG("first sizes is null", .first = first, .first_count = 1);
    WRONG("memsaver_resume_options: its size field is 0", .resuming = RESUME(.size = 0));
    WRONG("memsaver_resume_async_options: its size field is 0", .size = 0);
    CHECK(coming == NULL);
    const memsaver_resume_options* zero = RESUME(.bytes = POLICY(.kind = MEMSAVER_ZERO)); // not its bytes, this time
    OK(memsaver_resume_async(saver, ALL, ASYNC(.resuming = zero), &coming));
    MISUSE(memsaver_arrival_wait_range(coming, weights + size - 1, 2), "");
    MISUSE(memsaver_arrival_before_range(coming, NULL, weights + size - 1, 2), "");
    OK(memsaver_arrival_wait(coming, NULL));
    CHECK(reads(weights, 0, size));
    memsaver_gate* none = gate;
    MISUSE(memsaver_get_gate(saver, weights, size + 1, &none), "");
    CHECK(none == NULL);
    OK(memsaver_close(saver));
    MISUSE(memsaver_arrival_wait(coming, NULL), "closed");
    memsaver_destroy(saver);
    memsaver_end_arrival(coming); // after the saver
    memsaver_release_gate(gate);
}

static void test_load(void) {
    char path[] = "/tmp/memsaver_c_test_XXXXXX";
    const int file = mkstemp(path);
    CHECK(ftruncate(file, 2 * MIB + 7) == 0 && pwrite(file, "\6", 1, 7) == 1 && close(file) == 0);
    open_saver();
    OK(make("model", SOURCE()));
    char* block = block_of("model", 2 * MIB, 1);
    MISUSE(memsaver_load(saver, block, 2 * MIB, path, 8), path); // past the end of the file
    OK(memsaver_load(saver, block, 2 * MIB, path, 7));
    CHECK(reads(block, 6, 1) && reads(block + 1, 0, 2 * MIB - 1));
    OK(memsaver_invalidate_range(saver, block + MIB, 5000));
    CHECK(paused(TAGS("model"), NULL).saved_bytes == 5000 && truncate(path, 100) == 0);
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
    IS(MEMSAVER_NOT_IDLE, memsaver_pause(saver, TAGS("a"), PAUSE(.timeout_ns = 1000000), NULL));
    CHECK(usage_says("\"users\":1,\"evictable\":true,\"priority\":0"));
    MISUSE(memsaver_use_until_event(use, NULL), "event is null");
    OK(memsaver_use_until(use, NULL));
    memsaver_end_use(use);
    MISUSE(memsaver_begin_use(saver, TAGS("a"), USE(.size = 0), &use), "memsaver_use_options");
    CHECK(use == NULL);

    // Idle memory is reclaimed.
    memsaver_reclaimed got = {MEMSAVER_RECLAIMED_INIT};
    char* text = NULL;
    OK(memsaver_set_evictable(saver, TAGS("cache"), false));
    OK(memsaver_set_priority(saver, TAGS("a", "cache"), 5));
    CHECK(usage_says("\"evictable\":false,\"priority\":5"));
    OK(memsaver_reclaim(saver, (size_t)1 << 40, NULL, &got, &text));
    CHECK(got.wanted_bytes == (size_t)1 << 40 && got.evicted_bytes >= size && got.evicted_bytes < 2 * size);
    CHECK(got.saved_bytes == size && got.elastic_bytes == 0 && got.size == sizeof got);
    CHECK(text != NULL && strstr(text, "reclaimed ") == text && strstr(text, "cache") != NULL);
    memsaver_free_text(text);
    MISUSE(memsaver_reclaim(saver, 1, RECLAIM(.device = 7), NULL, NULL), "7");
    MISUSE(memsaver_reclaim(saver, 1, RECLAIM(.size = 0), NULL, NULL), "memsaver_reclaim_options");
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

TELLS(range_of, elastic_info, MEMSAVER_ELASTIC_INFO_INIT, memsaver_get_elastic_info(elastic, &to),
      memsaver_elastic* elastic)

static void test_elastic(void) {
    open_saver();
    memsaver_arena* arena = arena_of("kv", NULL);
    Owner owner = {NULL, 0};
    OK(memsaver_make_elastic(arena, 63 * MIB,
                             ELASTIC(.granularity = 2 * MIB, .on_reclaim = spare, .on_reclaim_context = &owner),
                             &owner.elastic));
    const memsaver_elastic_info range = range_of(owner.elastic);
    CHECK(range.capacity == 64 * MIB && range.granularity == 2 * MIB && range.committed_bytes == 0);
    OK(memsaver_elastic_commit(owner.elastic, 2 * MIB, 6 * MIB));
    OK(memsaver_elastic_commit(owner.elastic, 0, 1));
    put(range.data, 5, 8 * MIB);
    CHECK(usage_of("kv").elastic_bytes == 8 * MIB && usage_of("kv").blocks == 4);
    OK(memsaver_elastic_release(owner.elastic, 6 * MIB, 2 * MIB, PAUSE(.order = MEMSAVER_ALREADY_IDLE)));
    OK(memsaver_elastic_resize(owner.elastic, 4 * MIB, NULL));
    CHECK(range_of(owner.elastic).committed_bytes == 4 * MIB && reads(range.data, 5, 4 * MIB));
    memsaver_reclaimed got = {MEMSAVER_RECLAIMED_INIT};
    OK(memsaver_reclaim(saver, 32 * MIB, NULL, &got, NULL));
    CHECK(owner.asked != 0 && owner.asked <= 32 * MIB && got.elastic_bytes == 2 * MIB);

    MISUSE(memsaver_elastic_commit(owner.elastic, 63 * MIB, 2 * MIB), "");
    memsaver_elastic* other = owner.elastic;
    MISUSE(memsaver_make_elastic(arena, 0, NULL, &other), "");
    CHECK(other == NULL);
    MISUSE(memsaver_make_elastic(arena, 1, ELASTIC(.size = 1), &other), "memsaver_elastic_options");
    OK(memsaver_make_elastic(arena, 1, NULL, &other));
    CHECK(range_of(other).granularity == 64 * MIB);
    memsaver_end_elastic(other);
    OK(memsaver_close(saver));
    MISUSE(memsaver_elastic_commit(owner.elastic, 0, 1), "closed");
    memsaver_destroy(saver);
    memsaver_release_arena(arena);
    memsaver_end_elastic(owner.elastic);
}

// --- Hooks and callbacks ---

typedef struct Noted {
    int32_t moment;
    int calls;
    int answer;
} Noted;

static int note(void* context, const memsaver_hook_event* event) {
    Noted* noted = context;
    ++noted->calls;
    CHECK(event->size == sizeof *event && event->moment == noted->moment);
    CHECK(event->tag_count == 1 && strcmp(event->tags[0], "tag") == 0);
    CHECK((event->report->released_bytes >= 3 * MIB) == (event->moment == MEMSAVER_AFTER_PAUSE));
    CHECK((event->report->mapped_bytes >= 3 * MIB) == (event->moment == MEMSAVER_AFTER_RESUME));
    return noted->answer;
}

int throwing_hook(void* context, const memsaver_hook_event* event); // throwing.cpp

static void answer_with(void* context, const memsaver_hook_event* event, int32_t* answer) {
    if (event->moment == MEMSAVER_AFTER_PAUSE && *(const int32_t*)context != -1) *answer = *(const int32_t*)context;
}

static void test_hooks(void) {
    open_saver();
    (void)block_of("tag", 3 * MIB, 1);
    Noted noted[] = {{0, 0, 17}, {1, 0, -3}, {2, 0, 1}, {3, 0, 2}};
    static const char* const said[] = {"before a pause returned 17", "after a pause returned -3",
                                       "before a resume returned 1", "after a resume returned 2"};
    memsaver_hook* hooks[4] = {0};
    for (int moment = 0; moment < 4; ++moment)
        OK(memsaver_add_hook(saver, moment, note, &noted[moment], &hooks[moment]));
    for (int moment = 0; moment < 4; ++moment) { // each refuses, and is removed
        FAILS(MEMSAVER_HOOK_FAILED,
              (moment < 2 ? memsaver_pause(saver, ALL, NULL, told()) : memsaver_resume(saver, ALL, NULL, told())),
              said[moment]);
        CHECK((report.released_bytes + report.mapped_bytes != 0) == (moment % 2 != 0));
        memsaver_remove_hook(hooks[moment]);
    }
    for (int moment = 0; moment < 4; ++moment) CHECK(noted[moment].calls == 1);
    OK(memsaver_add_hook(saver, MEMSAVER_AFTER_PAUSE, note, &noted[1], &hooks[1]));
    OK(memsaver_add_hook(saver, MEMSAVER_BEFORE_PAUSE, note, &noted[0], NULL)); // the saver keeps it
    IS(MEMSAVER_HOOK_FAILED, memsaver_pause(saver, ALL, NULL, NULL));
    memsaver_destroy(saver);
    memsaver_remove_hook(hooks[1]); // after the saver

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
    FAILS(MEMSAVER_INTERNAL, memsaver_pause(saver, ALL, NULL, NULL), "thrown by a hook");
    OK(memsaver_add_hook(saver, MEMSAVER_AFTER_RESUME, throwing_hook, NULL, NULL));
    IS(MEMSAVER_INTERNAL, memsaver_resume(saver, ALL, NULL, NULL));
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
    CHECK(event->size == sizeof *event && event->device == 0);
    if (event->kind == MEMSAVER_EVENT_WARNED && strcmp(event->tag, "tag") == 0 && strlen(event->text) > 0)
        ++((Room*)context)->warnings;
}

/// Only on host memory, where the test can choose the capacity.
static void test_no_room(void) {
    Room room = {0};
#define SMALL(...) MACHINE(.host_capacity = 64 * MIB, __VA_ARGS__)
    open_with(SMALL(.on_no_room = make_room, .on_no_room_context = &room, .on_event = count_warnings,
                    .on_event_context = &room));
    void* block = NULL;
    IS(MEMSAVER_OUT_OF_MEMORY, memsaver_allocate(saver, "tag", 100 * MIB, 0, &block));
    CHECK(block == NULL && room.asked == 1 && room.need.size == sizeof room.need && room.need.device == 0);
    CHECK(room.need.free_bytes == 64 * MIB && room.need.bytes >= 100 * MIB && room.need.missing_bytes >= 36 * MIB);
    CHECK(room.need.missing_bytes < 64 * MIB);
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
    memsaver_destroy(saver);

    // Margins; times to wait for room; eviction for allocations.
    open_with(SMALL(.margin = 20 * MIB, .evict_for_allocations = true));
    IS(MEMSAVER_OUT_OF_MEMORY, memsaver_allocate(saver, "large", 50 * MIB, 0, &block));
    OK(memsaver_make_tag(saver, "idle", ARENA(.evictable = true)));
    OK(memsaver_allocate(saver, "idle", 40 * MIB, 0, &block));
    void* taken = NULL;
    OK(memsaver_allocate(saver, "new", 40 * MIB, 0, &taken));
    CHECK(memsaver_is_paused(saver, block, 1));
    const memsaver_resume_options* soon = RESUME(.room_within_ns = 1000000);
    memsaver_use* use = NULL;
    memsaver_arrival* arrival = NULL;
    IS(MEMSAVER_OUT_OF_MEMORY, memsaver_resume(saver, TAGS("idle"), soon, told()));
    CHECK(report.mapped_bytes == 0);
    IS(MEMSAVER_OUT_OF_MEMORY, memsaver_exchange(saver, NONE, TAGS("idle"), EXCHANGE(.resuming = soon), told()));
    CHECK(report.mapped_bytes == 0 && strcmp(last().tag, "idle") == 0);
    IS(MEMSAVER_OUT_OF_MEMORY, memsaver_resume_async(saver, TAGS("idle"), ASYNC(.resuming = soon), &arrival));
    IS(MEMSAVER_OUT_OF_MEMORY, memsaver_begin_use(saver, TAGS("idle"), USE(.room_within_ns = 1000000), &use));
    OK(memsaver_deallocate(saver, taken));
    OK(memsaver_resume(saver, TAGS("idle"), NULL, NULL));
    OK(memsaver_set_margin(saver, 64 * MIB));
    IS(MEMSAVER_OUT_OF_MEMORY, memsaver_allocate(saver, "other", 4 * MIB, 0, &taken));
    memsaver_destroy(saver);

    // More bytes than this computer's memory can back up.
    open_with(MACHINE(.host_capacity = (size_t)8 << 40));
    OK(make("huge", HOST()));
    if (memsaver_allocate(saver, "huge", (size_t)4 << 40, 0, &block) != MEMSAVER_OK) {
        printf("no addresses for 4 TiB (as under the thread sanitizer): %s\n", memsaver_last_error());
    } else {
        IS(MEMSAVER_OUT_OF_HOST_MEMORY, memsaver_pause(saver, ALL, NULL, NULL));
        CHECK(strcmp(last().tag, "huge") == 0);
    }
    memsaver_destroy(saver);
}

// --- Damaged backups ---

/// Overwrites the unnamed files that this process has open in a folder.
static void damage_files(const char* folder) {
    for (int i = 3; i < 1024; ++i) {
        char link[32], target[300] = {0};
        snprintf(link, sizeof link, "/proc/self/fd/%d", i);
        if (readlink(link, target, sizeof target - 1) <= 0 || strstr(target, folder) == NULL) continue;
        const int file = open(link, O_RDWR);
        CHECK(pwrite(file, "damage", 6, 0) == 6);
        close(file);
    }
}

static void test_damage(void) {
    open_saver();
    char folder[] = "/tmp/memsaver_c_test_XXXXXX";
    CHECK(mkdtemp(folder) != NULL);
    OK(make("host", HOST()));
    const memsaver_result result = make("tag", FILES(.directory = folder, .verified = true));
    if (result != MEMSAVER_UNAVAILABLE) { // otherwise the library was built without xxHash
        OK(result);
        MISUSE(make("host", HOST(.verified = true)), "not \"verified");
        (void)block_of("tag", 3 * MIB, 5);
        OK(memsaver_pause(saver, ALL, NULL, NULL));
        damage_files(folder);
        FAILS(MEMSAVER_BACKUP_DAMAGED, memsaver_resume(saver, ALL, NULL, NULL), "tag");
        CHECK(strcmp(last().tag, "tag") == 0);
    }
    CHECK(rmdir(folder) == 0);
    FAILS(MEMSAVER_DRIVER_ERROR, make("nowhere", FILES(.directory = folder)), "No such file or directory");
    CHECK(strcmp(last().driver_name, "ENOENT") == 0 && strcmp(last().tag, "nowhere") == 0);
    memsaver_destroy(saver);
}

/// Asks for a tag while it is being paused.
static void* ask_meanwhile(void* unused) {
    const memsaver_pause_options* soon = PAUSE(.timeout_ns = 1000000, .order = MEMSAVER_ALREADY_IDLE);
    memsaver_use* use = NULL;
    memsaver_arrival* saving = NULL;
    IS(MEMSAVER_NOT_IDLE, memsaver_pause(saver, ALL, soon, NULL));
    IS(MEMSAVER_NOT_IDLE, memsaver_trim(saver, ALL, soon, NULL));
    IS(MEMSAVER_NOT_IDLE, memsaver_exchange(saver, TAGS("tag"), NONE, EXCHANGE(.pausing = soon), NULL));
    IS(MEMSAVER_NOT_IDLE, memsaver_begin_use(saver, TAGS("tag"), USE(.timeout_ns = 1000000), &use));
    IS(MEMSAVER_NOT_IDLE, memsaver_save(saver, TAGS("tag"), soon, &saving));
    return unused;
}

static void meanwhile(void* context, const memsaver_event* event) {
    if (event->kind != MEMSAVER_EVENT_PROGRESS || *(size_t*)context != 0) return;
    *(size_t*)context = event->bytes_total;
    CHECK(event->bytes_done <= event->bytes_total);
    run(ask_meanwhile, NULL);
}

static void test_timeouts(void) {
    size_t bytes = 0;
    open_with(MACHINE(.on_event = meanwhile, .on_event_context = &bytes));
    (void)kept_block("tag", 3 * MIB, 1);
    OK(memsaver_pause(saver, ALL, NULL, NULL));
    CHECK(bytes == 3 * MIB);
    memsaver_destroy(saver);
}

// --- Orders and streams ---

/// No stream and no event. Host memory says so, and a GPU may not be asked.
#define STRANGER ((void*)0x5eed)

static void test_orders(void) {
    open_saver();
    memsaver_arena* arena = arena_of("tag", ARENA(.policy = ONCE(), .evictable = true));
    memsaver_elastic* elastic = NULL;
    OK(memsaver_make_elastic(arena, 4 * MIB, ELASTIC(.granularity = 2 * MIB), &elastic));
    OK(memsaver_elastic_commit(elastic, 0, 4 * MIB));
    void *stranger[] = {STRANGER}, *null[] = {NULL};
    memsaver_use* use = NULL;
    memsaver_arrival* saving = NULL;
#define WRONG_ORDER(result, says, ...)                                                                                 \
    do {                                                                                                               \
        const memsaver_pause_options* order = PAUSE(__VA_ARGS__);                                                      \
        FAILS(result, memsaver_pause(saver, ALL, order, NULL), says);                                                  \
        FAILS(result, memsaver_trim(saver, ALL, order, NULL), says);                                                   \
        FAILS(result, memsaver_exchange(saver, ALL, NONE, EXCHANGE(.pausing = order), NULL), says);                    \
        FAILS(result, memsaver_save(saver, ALL, order, &saving), says);                                                \
        FAILS(result, memsaver_elastic_release(elastic, 0, 2 * MIB, order), says);                                     \
        FAILS(result, memsaver_elastic_resize(elastic, 2 * MIB, order), says);                                         \
        FAILS(result, memsaver_reclaim(saver, 2 * MIB, RECLAIM(__VA_ARGS__), NULL, NULL), says);                       \
    } while (0)
#define NO_ORDER(says, ...)                                                                                            \
    WRONG_ORDER(MEMSAVER_MISUSE, says, __VA_ARGS__);                                                                   \
    MISUSE(memsaver_begin_use(saver, ALL, USE(__VA_ARGS__), &use), says)
    NO_ORDER("order cannot be 3", .order = 3);
    NO_ORDER("streams and events require MEMSAVER_AFTER_STREAMS", .stream_count = 1);
    NO_ORDER("streams and events require MEMSAVER_AFTER_STREAMS", .order = MEMSAVER_ALREADY_IDLE, .event_count = 1);
    NO_ORDER("list of streams is null", .order = MEMSAVER_AFTER_STREAMS, .stream_count = 1);
    NO_ORDER("list of events is null", .order = MEMSAVER_AFTER_STREAMS, .event_count = 1);
    NO_ORDER("an event is null", .order = MEMSAVER_AFTER_STREAMS, .events = null, .event_count = 1);
    WRONG_ORDER(MEMSAVER_MISUSE, "no stream and no CUDA event", .order = MEMSAVER_AFTER_STREAMS);
    if (machine == MEMSAVER_DRIVER_HOST) {
        WRONG_ORDER(MEMSAVER_DRIVER_ERROR, "stream 0x5eed", .order = MEMSAVER_AFTER_STREAMS, .streams = stranger,
                    .stream_count = 1);
        WRONG_ORDER(MEMSAVER_DRIVER_ERROR, "event", .order = MEMSAVER_AFTER_STREAMS, .events = stranger,
                    .event_count = 1);
    }
    CHECK(saving == NULL && use == NULL);
    memsaver_end_elastic(elastic);

    // Each other stream.
    char* block = block_of("tag", MIB, 1);
    memsaver_gate* gate = NULL;
    OK(memsaver_get_gate(saver, block, 10, &gate));
    OK(memsaver_pause(saver, ALL, PAUSE(.order = MEMSAVER_AFTER_STREAMS, .streams = null, .stream_count = 1), NULL));
    OK(memsaver_resume_async(saver, ALL, NULL, &saving));
    if (machine == MEMSAVER_DRIVER_HOST) {
        FAILS(MEMSAVER_DRIVER_ERROR, memsaver_arrival_before(saving, STRANGER), "0x5eed");
        FAILS(MEMSAVER_DRIVER_ERROR, memsaver_arrival_before_range(saving, STRANGER, block, 10), "0x5eed");
        FAILS(MEMSAVER_DRIVER_ERROR, memsaver_gate_before(gate, STRANGER), "0x5eed");
        OK(memsaver_begin_use(saver, ALL, NULL, &use));
        FAILS(MEMSAVER_DRIVER_ERROR, memsaver_use_until(use, STRANGER), "0x5eed");
        FAILS(MEMSAVER_DRIVER_ERROR, memsaver_use_until_event(use, STRANGER), "event");
        memsaver_end_use(use);
        FAILS(MEMSAVER_DRIVER_ERROR, memsaver_deallocate_on(saver, block, STRANGER), "0x5eed");
        block = block_of("tag", 100, 1);
        FAILS(MEMSAVER_DRIVER_ERROR, memsaver_arena_deallocate_on(arena, block, STRANGER), "0x5eed");
    }
    memsaver_end_arrival(saving);
    memsaver_release_gate(gate);
    memsaver_release_arena(arena);
    memsaver_destroy(saver);
}

// --- Null and invalid arguments ---

static int hook_of_nobody(void* context, const memsaver_hook_event* event) {
    (void)context;
    (void)event;
    return 0;
}

/// Any pointer, of an output too: then the call sets it to null.
static void* any = &any;
#define OUT ((void*)&any)

#define NULLED(function, ...) (any = OUT, NIL(function, __VA_ARGS__) && any == NULL)

static void test_null(void) {
    open_saver();
    memsaver_arena* arena = arena_of("tag", NULL);
    char to[4] = {0};
    size_t bytes = 0;
    const int handles =
        NIL(close, NULL) && NIL(get_info, NULL, OUT) && NIL(set_margin, NULL, 0) && NIL(make_tag, NULL, "tag", NULL) &&
        NIL(drop, NULL, ALL) && NIL(set_capacity, NULL, ALL, 0) && NIL(set_retain, NULL, ALL, true) &&
        NIL(deallocate, NULL, to) && NIL(deallocate_on, NULL, to, NULL) && NIL(deallocate_idle, NULL, to) &&
        NIL(arena_deallocate, NULL, to) && NIL(arena_deallocate_on, NULL, to, NULL) &&
        NIL(arena_deallocate_idle, NULL, to) && NIL(read_backup, NULL, to, 1, to) &&
        NIL(write_backup, NULL, to, to, 1) && NIL(push_region, NULL, "tag") && NIL(push_arena, NULL, arena) &&
        NIL(push_arena, saver, NULL) && NIL(push_outside, NULL) && NIL(pop_region, NULL) &&
        NIL(pause, NULL, ALL, NULL, NULL) && NIL(resume, NULL, ALL, NULL, NULL) &&
        NIL(exchange, NULL, ALL, ALL, NULL, NULL) && NIL(bytes_to_resume, NULL, ALL, OUT) &&
        NIL(trim, NULL, ALL, NULL, NULL) && NIL(prepare, NULL, ALL) && NIL(invalidate, NULL, ALL) &&
        NIL(forget_backup, NULL, ALL) && NIL(invalidate_range, NULL, to, 1) && NIL(load, NULL, to, 1, "file", 0) &&
        NIL(arrival_before, NULL, NULL) && NIL(arrival_before_range, NULL, NULL, to, 1) &&
        NIL(arrival_wait, NULL, NULL) && NIL(arrival_wait_range, NULL, to, 1) && NIL(arrival_done, NULL, OUT) &&
        NIL(gate_before, NULL, NULL) && NIL(use_until, NULL, NULL) && NIL(use_until_event, NULL, to) &&
        NIL(use_lost, NULL, OUT, &bytes) && NIL(set_evictable, NULL, ALL, true) && NIL(set_priority, NULL, ALL, 1) &&
        NIL(elastic_commit, NULL, 0, 1) && NIL(elastic_release, NULL, 0, 1, NULL) &&
        NIL(elastic_resize, NULL, 0, NULL) && NIL(get_elastic_info, NULL, OUT) && NIL(get_usage, NULL, ALL, OUT) &&
        NIL(get_arena_usage, NULL, OUT) && NIL(torch_push, NULL) && NULLED(get_arena, NULL, "tag", NULL, OUT) &&
        NULLED(allocate, NULL, "tag", 0, 0, OUT) && NULLED(allocate_on, NULL, "tag", 1, 0, NULL, OUT) &&
        NULLED(arena_allocate, NULL, 1, 0, OUT) && NULLED(arena_allocate_on, NULL, 1, 0, NULL, OUT) &&
        NULLED(resume_async, NULL, ALL, NULL, OUT) && NULLED(save, NULL, ALL, NULL, OUT) &&
        NULLED(get_gate, NULL, to, 1, OUT) && NULLED(begin_use, NULL, ALL, NULL, OUT) &&
        NULLED(reclaim, NULL, 1, NULL, NULL, OUT) && NULLED(make_elastic, NULL, 1, NULL, OUT) &&
        NULLED(add_hook, NULL, 0, hook_of_nobody, NULL, OUT) &&
        NULLED(add_answering_hook, NULL, 0, answer_with, NULL, OUT) && NULLED(get_usage_json, NULL, OUT);
    CHECK(handles);
    memsaver_destroy(NULL);
    memsaver_release_arena(NULL);
    memsaver_end_arrival(NULL);
    memsaver_release_gate(NULL);
    memsaver_end_use(NULL);
    memsaver_end_elastic(NULL);
    memsaver_remove_hook(NULL);

    memsaver_use* use = NULL;
    memsaver_arrival* arrival = NULL;
    memsaver_elastic* elastic = NULL;
    OK(memsaver_begin_use(saver, ALL, NULL, &use));
    OK(memsaver_resume_async(saver, ALL, NULL, &arrival));
    OK(memsaver_make_elastic(arena, 1, NULL, &elastic));
    const int outputs =
        NIL(create, NULL, NULL) && NIL(get_last_error, NULL) && NIL(get_info, saver, NULL) &&
        NIL(get_arena, saver, "tag", NULL, NULL) && NIL(allocate, saver, "tag", 1, 0, NULL) &&
        NIL(allocate_on, saver, "tag", 1, 0, NULL, NULL) && NIL(arena_allocate, arena, 1, 0, NULL) &&
        NIL(arena_allocate_on, arena, 1, 0, NULL, NULL) && NIL(read_backup, saver, to, 1, NULL) &&
        NIL(bytes_to_resume, saver, ALL, NULL) && NIL(resume_async, saver, ALL, NULL, NULL) &&
        NIL(save, saver, ALL, NULL, NULL) && NIL(get_gate, saver, to, 1, NULL) &&
        NIL(begin_use, saver, ALL, NULL, NULL) && NIL(make_elastic, arena, 1, NULL, NULL) &&
        NIL(get_usage, saver, ALL, NULL) && NIL(get_arena_usage, arena, NULL) && NIL(get_usage_json, saver, NULL) &&
        NIL(use_lost, use, NULL, &bytes) && NIL(use_lost, use, OUT, NULL) && NIL(arrival_done, arrival, NULL) &&
        NIL(get_elastic_info, elastic, NULL) &&
        // Names, functions, pointers.
        NIL(make_tag, saver, NULL, NULL) && NIL(push_region, saver, NULL) &&
        NIL(pause, saver, TAGS(NULL), NULL, NULL) && NIL(pause, saver, UNDER(NULL), NULL, NULL) &&
        NIL(load, saver, to, 1, NULL, 0) && NIL(write_backup, saver, to, NULL, 1) && NIL(use_until_event, use, NULL) &&
        NULLED(add_hook, saver, 0, NULL, NULL, OUT) && NULLED(add_answering_hook, saver, 0, NULL, NULL, OUT);
    CHECK(outputs);
    memsaver_end_use(use);
    memsaver_end_arrival(arrival);
    memsaver_end_elastic(elastic);
    MISUSE(memsaver_pause(saver, NULL, 1, NULL, NULL), "list of tags is null");
    MISUSE(memsaver_add_hook(saver, 4, hook_of_nobody, NULL, NULL), "moment cannot be 4");
    MISUSE(memsaver_add_answering_hook(saver, -1, answer_with, NULL, NULL), "moment cannot be -1");
    MISUSE(memsaver_deallocate(saver, to), "no tag of this saver contains this pointer");
    memsaver_release_arena(arena);
    memsaver_destroy(saver);
}

static void test_structures(void) {
#define WRONG_OPTION(text, ...) MISUSE(memsaver_create(MACHINE(__VA_ARGS__), &saver), text)
    saver = OUT;
    WRONG_OPTION("MEMSAVER_..._INIT", .size = 0);
    CHECK(saver == NULL);
    WRONG_OPTION("MEMSAVER_..._INIT", .size = (size_t)-1);
    WRONG_OPTION("driver cannot be 3", .driver = 3);
    WRONG_OPTION("export_handles cannot be -1", .export_handles = -1);
    WRONG_OPTION("list of peers is null", .peer_count = 1);
    WRONG_OPTION("memsaver_options.new_tags cannot be 2", .new_tags = 2);

    // A program compiled before some fields were added: they get their defaults.
    open_with(MACHINE(.margin = (size_t)1 << 50, .size = offsetof(memsaver_options, margin)));

    // A program compiled with more fields than the library knows.
    struct {
        memsaver_report known;
        size_t unknown;
    } longer = {{MEMSAVER_REPORT_INIT}, 5};
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
    } resuming = {{MEMSAVER_RESUME_OPTIONS_INIT}, 1};
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

static memsaver_arena* inherited_arena = NULL;

static void use_inherited(void* block) {
    MISUSE(memsaver_pop_region(saver), "fork");
    MISUSE(memsaver_get_info(saver, &(memsaver_info){MEMSAVER_INFO_INIT}), "fork");
    CHECK(!memsaver_owns(saver, block));
    memsaver_release_arena(inherited_arena);
    memsaver_destroy(saver);
}

static void test_fork(void) {
    open_saver();
    inherited_arena = arena_of("tag", NULL);
    OK(memsaver_push_region(saver, "tag"));
    void* block = block_of(NULL, MIB, 4);
    in_child("use of a parent's saver", use_inherited, block);
    CHECK(reads(block, 4, MIB));
    OK(memsaver_pop_region(saver));
    memsaver_release_arena(inherited_arena);
    memsaver_destroy(saver);
}

static void test_machines(void) {
    const char* const none = "libmemsaver-has-no-such-driver.so.1";
    FAILS(MEMSAVER_UNAVAILABLE, memsaver_create(OPTIONS(.cuda_library = none, .driver = MEMSAVER_DRIVER_CUDA), &saver),
          "no CUDA driver");
    CHECK(saver == NULL);
    open_with(OPTIONS(.cuda_library = none, .device = 3, .host_capacity = 64 * MIB, .host_granularity = 64 << 10));
    CHECK(info().driver == MEMSAVER_DRIVER_HOST && info().total_bytes == 64 * MIB && info().granularity == 64 << 10);
    CHECK(info().device == 3 && info().free_bytes == 64 * MIB);
    MISUSE(memsaver_make_tag(saver, "tag", ARENA(.device = 5)), "no device 5");
    OK(memsaver_make_tag(saver, "tag", ARENA(.device = 3)));
    memsaver_destroy(saver);
    MISUSE(memsaver_create(MACHINE(.host_granularity = 3000), &saver), "granularity");
    const memsaver_result gpu = memsaver_gpu_available(0);
    CHECK(gpu == MEMSAVER_OK || (gpu == MEMSAVER_UNAVAILABLE && strlen(memsaver_last_error()) > 0));
    CHECK(gpu != MEMSAVER_OK || memsaver_gpu_count() > 0);
    IS(MEMSAVER_UNAVAILABLE, memsaver_gpu_available(12345));
    open_with(NULL);
    CHECK(info().driver == (gpu == MEMSAVER_OK ? MEMSAVER_DRIVER_CUDA : MEMSAVER_DRIVER_HOST));
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
    open_with(OPTIONS(.driver = MEMSAVER_DRIVER_CUDA, .cuda_library = library));
    CHECK(info().driver == MEMSAVER_DRIVER_CUDA && strstr(info().name, "Stub GPU") != NULL);
    OK(memsaver_allocate(saver, "tag", 100, 0, &stub));
    fail_call("cuMemUnmap", 1); // invalid value
    IS(MEMSAVER_DRIVER_ERROR, memsaver_pause(saver, TAGS("tag"), NULL, told()));
    CHECK(last().result == MEMSAVER_DRIVER_ERROR && last().driver_code == 1 && report.released_bytes == 0);
    CHECK(strcmp(last().driver_name, "CUDA_ERROR_INVALID_VALUE") == 0 && strcmp(last().tag, "tag") == 0);
    fail_call("cuMemUnmap", 0);
    fail_call("cuMemRelease", 1); // freed for the program, held for the driver
    IS(MEMSAVER_DRIVER_ERROR, memsaver_pause(saver, TAGS("tag"), NULL, told()));
    CHECK(report.held_bytes > 0 && usage_of("tag").held_bytes > 0);
    fail_call("cuMemRelease", 0);
    OK(memsaver_pause(saver, TAGS("tag"), NULL, NULL));
    fail_call("cuMemCreate", 700); // an illegal address: the context is lost
    IS(MEMSAVER_DEVICE_LOST, memsaver_resume(saver, TAGS("tag"), NULL, NULL));
    fail_call("cuMemCreate", 0);

    // Other devices of the same saver.
    memsaver_release_arena(arena_of("tag", ARENA(.device = 1)));
    MISUSE(memsaver_make_tag(saver, "tag", ARENA(.device = 99)), "99");
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
    alarm(300); // a call that hangs ends by this signal
    const char* name = count > 1 ? arguments[1] : "host";
    const bool host = strcmp(name, "host") == 0;
    if (strcmp(name, "stub") == 0 && count == 3) {
        test_failing_driver(arguments[2]);
        return failures != 0;
    }
    if (!host) machine = MEMSAVER_DRIVER_CUDA;
    if (host) test_fork(); // first, before any other thread exists
    if (strcmp(name, "gpu") == 0 && !open_gpu()) return failures != 0 ? 1 : 77;
    test_version_and_results();
    test_pause_and_resume();
    test_exchange();
    test_blocks();
    test_torch();
    test_regions_that_are_left();
    test_options_of_tags();
    test_usage();
    test_arrivals();
    test_load();
    test_uses();
    test_elastic();
    test_hooks();
    test_damage();
    test_timeouts();
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
