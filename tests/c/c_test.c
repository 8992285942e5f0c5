// Tests the C interface from a program in C: c_test host | gpu | host_gpu | stub <a libcuda that fails on request>.
// host_gpu: libcuda.so.1 is implemented in host memory. Returns 0 on success, 1 on failure, 77 if it cannot run.
#define _GNU_SOURCE // for memfd's names under /proc
#include <memsaver/c.h>

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)
#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static int failures = 0;

static void fail(int line, const char* what) {
    __atomic_add_fetch(&failures, 1, __ATOMIC_RELAXED);
    fprintf(stderr, "c_test.c:%d: %s\n", line, what);
}

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) fail(__LINE__, #condition);                                                                  \
    } while (0)

static void is(int line, const char* call, memsaver_result result, memsaver_result wanted) {
    if (result == wanted) return;
    fail(line, call);
    fprintf(stderr, "    is %s and not %s: %s\n", memsaver_result_name(result), memsaver_result_name(wanted),
            result == MEMSAVER_OK ? "" : memsaver_last_error());
}

#define IS(wanted, call) is(__LINE__, #call, call, wanted)
#define OK(call) IS(MEMSAVER_OK, call)

/// Expects a misuse whose message contains `text`.
static void misuses(int line, const char* call, memsaver_result result, const char* text) {
    is(line, call, result, MEMSAVER_MISUSE);
    if (strstr(memsaver_last_error(), text) != NULL) return;
    fail(line, call);
    fprintf(stderr, "    does not say \"%s\": %s\n", text, memsaver_last_error());
}

#define MISUSE(call, text) misuses(__LINE__, #call, call, text)

// --- The machine: host memory accessible to the CPU, or a GPU through its driver ---

static int (*copy_in)(unsigned long long to, const void* from, size_t bytes);
static int (*copy_out)(void* to, unsigned long long from, size_t bytes);

static memsaver_options options_of_machine = MEMSAVER_OPTIONS_INIT;

static memsaver_saver* made(void) {
    memsaver_saver* saver = NULL;
    OK(memsaver_create(&options_of_machine, &saver));
    return saver;
}

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

// --- Tests ---

static void test_version_and_results(void) {
    CHECK(memsaver_version() >= 200);
    int major = -1, minor = -1, patch = -1;
    CHECK(sscanf(memsaver_version_text(), "%d.%d.%d", &major, &minor, &patch) == 3);
    CHECK(memsaver_version() == major * 10000 + minor * 100 + patch);
    for (int result = MEMSAVER_OK; result <= MEMSAVER_PUBLICATION_DAMAGED; ++result) {
        CHECK(strncmp(memsaver_result_name(result), "MEMSAVER_", 9) == 0);
    }
    CHECK(strcmp(memsaver_result_name(-1), "unknown result") == 0);
    CHECK(strcmp(memsaver_result_name(99), "unknown result") == 0);
}

static void test_pause_and_resume(void) {
    memsaver_saver* saver = made();
    memsaver_policy keep = MEMSAVER_POLICY_INIT;
    keep.kind = MEMSAVER_HOST_BACKUP;
    memsaver_arena_options options = MEMSAVER_ARENA_OPTIONS_INIT;
    options.policy = &keep;
    OK(memsaver_make_tag(saver, "weights", &options));
    OK(memsaver_make_tag(saver, "weights", NULL));
    OK(memsaver_make_tag(saver, "weights", &options));

    void* weights = NULL;
    void* cache = NULL;
    OK(memsaver_allocate(saver, "weights", 5 * MIB, 0, &weights));
    OK(memsaver_allocate(saver, "kv_cache", 8 * MIB, 4096, &cache));
    CHECK(weights != NULL && cache != NULL && (uintptr_t)weights % 256 == 0 && (uintptr_t)cache % 4096 == 0);
    put(weights, 7, 5 * MIB);
    CHECK(memsaver_owns(saver, weights) && memsaver_owns(saver, (char*)weights + 5 * MIB - 1));
    CHECK(!memsaver_owns(saver, &weights) && !memsaver_owns(saver, NULL));

    size_t bytes = 1;
    OK(memsaver_bytes_to_resume(saver, NULL, 0, &bytes));
    CHECK(bytes == 0);
    memsaver_report report = MEMSAVER_REPORT_INIT;
    OK(memsaver_pause(saver, NULL, 0, NULL, &report));
    CHECK(report.size == sizeof report && report.released_bytes >= 13 * MIB && report.saved_bytes == 5 * MIB);
    CHECK(report.elapsed_ns > 0 && report.waited_ns >= 0 && report.waited_ns <= report.elapsed_ns);
    CHECK(report.mapped_bytes == 0 && report.restored_bytes == 0 && report.held_bytes == 0);

    const char* names[] = {"weights"};
    OK(memsaver_bytes_to_resume(saver, names, 1, &bytes));
    CHECK(bytes >= 5 * MIB && bytes < 13 * MIB);
    unsigned char kept[100];
    OK(memsaver_read_backup(saver, (char*)weights + 1000, sizeof kept, kept));
    (void)memsaver_read_backup(saver, weights, 0, kept);
    CHECK(kept[0] == 7 && kept[99] == 7);
    MISUSE(memsaver_read_backup(saver, cache, 1, kept), "kv_cache");
    CHECK(memsaver_owns(saver, weights));

    OK(memsaver_resume(saver, names, 1, NULL, &report));
    CHECK(report.restored_bytes == 5 * MIB && report.mapped_bytes >= 5 * MIB && report.released_bytes == 0);
    CHECK(reads(weights, 7, 5 * MIB));
    OK(memsaver_resume(saver, NULL, 0, NULL, NULL));

    // For one pause: neither saved nor restored.
    memsaver_policy discard = MEMSAVER_POLICY_INIT;
    memsaver_pause_options pausing = MEMSAVER_PAUSE_OPTIONS_INIT;
    pausing.bytes = &discard;
    OK(memsaver_pause(saver, names, 1, &pausing, &report));
    CHECK(report.saved_bytes == 0);
    OK(memsaver_resume(saver, names, 1, NULL, &report));
    CHECK(report.restored_bytes == 0);
    memsaver_resume_options resuming = MEMSAVER_RESUME_OPTIONS_INIT;
    resuming.bytes = &discard;
    OK(memsaver_pause(saver, names, 1, NULL, NULL));
    OK(memsaver_resume(saver, names, 1, &resuming, &report));
    CHECK(report.restored_bytes == 0);
    resuming.bytes = &keep;
    MISUSE(memsaver_resume(saver, names, 1, &resuming, NULL), "");

    // Drops the backup.
    put(weights, 8, 5 * MIB);
    OK(memsaver_pause(saver, names, 1, NULL, NULL));
    OK(memsaver_forget_backup(saver, names, 1));
    OK(memsaver_resume(saver, names, 1, NULL, &report));
    CHECK(report.restored_bytes == 0);

    // No list means every tag, an empty list none, a prefix all tags under it.
    OK(memsaver_pause(saver, names, 0, NULL, &report));
    CHECK(report.released_bytes == 0);
    const char* under[] = {"kv_"};
    OK(memsaver_pause(saver, under, MEMSAVER_UNDER, NULL, &report));
    CHECK(report.released_bytes >= 8 * MIB && report.released_bytes < 13 * MIB);
    OK(memsaver_resume(saver, under, MEMSAVER_UNDER, NULL, NULL));

    // Frees in every way, also while paused; a trim releases unused pages.
    OK(memsaver_pause(saver, NULL, 0, NULL, NULL));
    OK(memsaver_deallocate(saver, cache));
    OK(memsaver_resume(saver, NULL, 0, NULL, NULL));
    OK(memsaver_deallocate_on(saver, weights, NULL));
    MISUSE(memsaver_deallocate(saver, weights), "weights");
    OK(memsaver_allocate_on(saver, "weights", 5 * MIB, 0, NULL, &weights));
    OK(memsaver_deallocate_idle(saver, weights));
    OK(memsaver_deallocate(saver, NULL));
    OK(memsaver_deallocate_on(saver, NULL, NULL));
    OK(memsaver_deallocate_idle(saver, NULL));
    OK(memsaver_trim(saver, NULL, 0, NULL, &report));
    CHECK(report.released_bytes >= 5 * MIB);

    // Drops a tag.
    OK(memsaver_drop(saver, names, 1));
    MISUSE(memsaver_pause(saver, names, 1, NULL, NULL), "weights");
    const char* near[] = {"kv_cahce"};
    MISUSE(memsaver_pause(saver, near, 1, NULL, NULL), "did you mean \"kv_cache\"");
    OK(memsaver_close(saver));
    OK(memsaver_close(saver));
    MISUSE(memsaver_allocate(saver, "weights", 1, 0, &weights), "");
    CHECK(weights == NULL);
    memsaver_destroy(saver);
}

static memsaver_usage usage_of(memsaver_saver* saver, const char* tag) {
    memsaver_usage usage = MEMSAVER_USAGE_INIT;
    OK(memsaver_get_usage(saver, &tag, 1, &usage));
    return usage;
}

static void* kept_block(memsaver_saver* saver, const char* tag, size_t bytes, unsigned char byte) {
    memsaver_policy keep = MEMSAVER_POLICY_INIT;
    keep.kind = MEMSAVER_HOST_BACKUP;
    memsaver_arena_options options = MEMSAVER_ARENA_OPTIONS_INIT;
    options.policy = &keep;
    OK(memsaver_make_tag(saver, tag, &options));
    void* block = NULL;
    OK(memsaver_allocate(saver, tag, bytes, 0, &block));
    put(block, byte, bytes);
    return block;
}

static void test_exchange(void) {
    memsaver_saver* saver = made();
    const size_t size = 16 * MIB;
    const char* a[] = {"lora/a"};
    const char* b[] = {"lora/b"};
    const char* both[] = {"lora/b", "lora/a"};
    const char* under[] = {"lora/"};
    const char* none[] = {NULL};
    void* first = kept_block(saver, a[0], size, 3);
    OK(memsaver_pause(saver, a, 1, NULL, NULL));
    void* second = kept_block(saver, b[0], size, 5);

    // Exchanges back and forth: pages are handed over, and the bytes of both are correct.
    memsaver_report report = MEMSAVER_REPORT_INIT;
    for (int round = 0; round < 2; ++round) {
        OK(memsaver_exchange(saver, b, 1, a, 1, NULL, &report));
        CHECK(report.handed_bytes >= size && report.mapped_bytes >= size && report.released_bytes == 0);
        CHECK(report.saved_bytes == size && report.restored_bytes == size && report.held_bytes == 0);
        CHECK(report.elapsed_ns > 0 && report.waited_ns >= 0 && report.size == sizeof report);
        CHECK(usage_of(saver, a[0]).mapped_bytes >= size && usage_of(saver, b[0]).mapped_bytes == 0);
        CHECK(reads(first, 3, size));
        OK(memsaver_exchange(saver, a, 1, b, 1, NULL, NULL));
        CHECK(usage_of(saver, a[0]).mapped_bytes == 0 && reads(second, 5, size));
    }

    // Options of both sides: other bytes for one exchange, and the order.
    memsaver_policy policies[] = {MEMSAVER_POLICY_INIT, MEMSAVER_POLICY_INIT, MEMSAVER_POLICY_INIT};
    policies[1].kind = MEMSAVER_ZERO;
    policies[2].kind = MEMSAVER_HOST_BACKUP;
    memsaver_pause_options pausing = MEMSAVER_PAUSE_OPTIONS_INIT;
    memsaver_resume_options resuming = MEMSAVER_RESUME_OPTIONS_INIT;
    memsaver_exchange_options options = MEMSAVER_EXCHANGE_OPTIONS_INIT;
    void* streams[] = {NULL};
    OK(memsaver_exchange(saver, b, 1, a, 1, &options, NULL));
    options.pausing = &pausing;
    options.resuming = &resuming;
    pausing.bytes = &policies[0];
    resuming.bytes = &policies[1];
    OK(memsaver_exchange(saver, a, 1, b, 1, &options, &report));
    CHECK(report.saved_bytes == 0 && reads(second, 0, size));
    put(second, 5, size);
    pausing.bytes = NULL;
    resuming.bytes = NULL;
    pausing.order = MEMSAVER_AFTER_STREAMS;
    pausing.streams = streams;
    pausing.stream_count = 1;
    pausing.timeout_ns = (int64_t)60 * 1000000000;
    OK(memsaver_exchange(saver, b, 1, a, 1, &options, &report));
    CHECK(report.saved_bytes == size && report.restored_bytes == 0);
    put(first, 3, size);

    // With an empty list, an exchange is only a pause, only a resume, or a no-op.
    OK(memsaver_exchange(saver, a, 1, none, 0, NULL, &report));
    CHECK(report.handed_bytes == 0 && report.released_bytes >= size && report.saved_bytes == size);
    OK(memsaver_exchange(saver, none, 0, under, MEMSAVER_UNDER, NULL, &report));
    CHECK(report.handed_bytes == 0 && report.mapped_bytes >= 2 * size && report.restored_bytes == 2 * size);
    OK(memsaver_exchange(saver, none, 0, NULL, 0, NULL, &report));
    CHECK(report.mapped_bytes == 0 && report.released_bytes == 0);

    // Invalid arguments change nothing.
    OK(memsaver_pause(saver, a, 1, NULL, NULL));
    MISUSE(memsaver_exchange(saver, a, 1, a, 1, NULL, NULL), "tag \"lora/a\" is in both lists");
    memsaver_error error = MEMSAVER_ERROR_INIT;
    OK(memsaver_get_last_error(&error));
    CHECK(strcmp(error.tag, "lora/a") == 0);
    MISUSE(memsaver_exchange(saver, both, 2, a, 1, NULL, NULL), "is in both lists");
    MISUSE(memsaver_exchange(saver, b, 1, under, MEMSAVER_UNDER, NULL, NULL), "is in both lists");
    MISUSE(memsaver_exchange(saver, NULL, 0, NULL, 0, NULL, NULL), "is in both lists");
    const char* near[] = {"lora/c"};
    MISUSE(memsaver_exchange(saver, near, 1, a, 1, NULL, NULL), "exchange: unknown tag \"lora/c\"");
    MISUSE(memsaver_exchange(saver, b, 1, near, 1, NULL, &report), "exchange: unknown tag \"lora/c\"");
    CHECK(report.size == sizeof report && report.handed_bytes == 0 && report.released_bytes == 0);
    MISUSE(memsaver_exchange(saver, none, 1, a, 1, NULL, NULL), "memsaver_exchange: the name of a tag is null");
    MISUSE(memsaver_exchange(saver, b, 1, NULL, 1, NULL, NULL), "memsaver_exchange: the list of tags is null");
    MISUSE(memsaver_exchange(saver, b, 1, none, MEMSAVER_UNDER, NULL, NULL), "the prefix is null");
    resuming.bytes = &policies[2];
    MISUSE(memsaver_exchange(saver, b, 1, a, 1, &options, NULL), "");
    resuming.bytes = NULL;
    pausing.order = MEMSAVER_AFTER_DEVICE;
    MISUSE(memsaver_exchange(saver, b, 1, a, 1, &options, NULL), "memsaver_exchange: streams and events require");
    pausing.order = 3;
    MISUSE(memsaver_exchange(saver, b, 1, a, 1, &options, NULL), "order cannot be 3");
    pausing.size = 0;
    MISUSE(memsaver_exchange(saver, b, 1, a, 1, &options, NULL), "memsaver_pause_options: its size field is 0");
    options.pausing = NULL;
    resuming.size = 0;
    MISUSE(memsaver_exchange(saver, b, 1, a, 1, &options, NULL), "memsaver_resume_options: its size field is 0");
    options.resuming = NULL;
    options.size = 1;
    MISUSE(memsaver_exchange(saver, b, 1, a, 1, &options, NULL), "memsaver_exchange_options: its size field is 1");
    struct {
        memsaver_exchange_options known;
        size_t unknown;
    } later = {MEMSAVER_EXCHANGE_OPTIONS_INIT, 1};
    later.known.size = sizeof later;
    MISUSE(memsaver_exchange(saver, b, 1, a, 1, &later.known, NULL), "older than the header");
    report.size = 0;
    MISUSE(memsaver_exchange(saver, b, 1, a, 1, NULL, &report), "memsaver_report: its size field is 0");
    CHECK(usage_of(saver, a[0]).mapped_bytes == 0 && reads(second, 5, size));
    later.unknown = 0;
    OK(memsaver_exchange(saver, b, 1, a, 1, &later.known, NULL));
    CHECK(reads(first, 3, size));
    OK(memsaver_close(saver));
    MISUSE(memsaver_exchange(saver, a, 1, b, 1, NULL, NULL), "closed");
    memsaver_destroy(saver);
}

static void test_write_backup(void) {
    memsaver_saver* saver = made();
    const size_t size = 5 * MIB;
    const size_t offset = 2 * MIB + 1000;
    unsigned char fresh[3000];
    unsigned char kept[sizeof fresh];
    memset(fresh, 9, sizeof fresh);
    const char* names[] = {"kept"};
    unsigned char* block = kept_block(saver, names[0], size, 3);
    void* lost = NULL;
    OK(memsaver_allocate(saver, "lost", size, 0, &lost));
    MISUSE(memsaver_write_backup(saver, block, fresh, sizeof fresh), "it is not paused");
    CHECK(reads(block, 3, size));

    // A part of a block, its end, all of it.
    OK(memsaver_pause(saver, NULL, 0, NULL, NULL));
    OK(memsaver_write_backup(saver, block + offset, fresh, sizeof fresh));
    OK(memsaver_write_backup(saver, block + size - 1, fresh, 1));
    OK(memsaver_read_backup(saver, block + offset, sizeof kept, kept));
    CHECK(memcmp(kept, fresh, sizeof fresh) == 0);

    // Invalid arguments change nothing.
    memset(fresh, 1, sizeof fresh);
    MISUSE(memsaver_write_backup(saver, block, fresh, 0), "the size is 0");
    MISUSE(memsaver_write_backup(saver, block, NULL, 1), "memsaver_write_backup: the source is null");
    MISUSE(memsaver_write_backup(saver, block + size - 1, fresh, 2), "past the end");
    MISUSE(memsaver_write_backup(saver, block, fresh, (size_t)-1), "past the end");
    MISUSE(memsaver_write_backup(saver, lost, fresh, 1), "tag \"lost\"");
    memsaver_error error = MEMSAVER_ERROR_INIT;
    OK(memsaver_get_last_error(&error));
    CHECK(strcmp(error.tag, "lost") == 0);
    MISUSE(memsaver_write_backup(saver, kept, fresh, 1), "no tag of this saver contains this pointer");
    MISUSE(memsaver_write_backup(saver, NULL, fresh, 1), "no tag of this saver contains this pointer");
    OK(memsaver_resume(saver, names, 1, NULL, NULL));
    CHECK(reads(block, 3, offset) && reads(block + offset, 9, sizeof fresh));
    CHECK(reads(block + offset + sizeof fresh, 3, size - offset - sizeof fresh - 1) && reads(block + size - 1, 9, 1));
    MISUSE(memsaver_write_backup(saver, block, fresh, 1), "it is not paused");

    OK(memsaver_pause(saver, names, 1, NULL, NULL));
    unsigned char* all = malloc(size);
    memset(all, 6, size);
    OK(memsaver_write_backup(saver, block, all, size));
    free(all); // the bytes were copied
    OK(memsaver_resume(saver, names, 1, NULL, NULL));
    CHECK(reads(block, 6, size));

    OK(memsaver_pause(saver, names, 1, NULL, NULL));
    OK(memsaver_forget_backup(saver, names, 1));
    MISUSE(memsaver_write_backup(saver, block, fresh, 1), "keeps no bytes");
    OK(memsaver_close(saver));
    MISUSE(memsaver_write_backup(saver, block, fresh, 1), "");
    memsaver_destroy(saver);
}

static void test_no_bytes(void) {
    memsaver_saver* saver = made();
    memsaver_arena* arena = NULL;
    OK(memsaver_get_arena(saver, "tag", NULL, &arena));
    void* pointer = &saver;
    OK(memsaver_allocate(saver, "tag", 0, 0, &pointer));
    CHECK(pointer == NULL);
    pointer = &saver;
    OK(memsaver_allocate(saver, NULL, 0, 0, &pointer)); // in no region
    CHECK(pointer == NULL);
    pointer = &saver;
    OK(memsaver_arena_allocate(arena, 0, 0, &pointer));
    CHECK(pointer == NULL);
    OK(memsaver_allocate_on(saver, "tag", 0, 0, NULL, &pointer));
    OK(memsaver_arena_allocate_on(arena, 0, 0, NULL, &pointer));
    OK(memsaver_deallocate(saver, pointer));
    OK(memsaver_arena_deallocate(arena, pointer));
    memsaver_release_arena(arena);
    memsaver_destroy(saver);
}

static void test_arenas(void) {
    memsaver_saver* saver = made();
    memsaver_saver* other = made();
    memsaver_arena* arena = NULL;
    memsaver_arena_options options = MEMSAVER_ARENA_OPTIONS_INIT;
    options.capacity = 64 * MIB;
    options.reserve = 4 * MIB;
    OK(memsaver_get_arena(saver, "tag", &options, &arena));
    memsaver_usage usage = MEMSAVER_USAGE_INIT;
    OK(memsaver_get_arena_usage(arena, &usage));
    CHECK(usage.arenas == 1 && usage.mapped_bytes == 4 * MIB && usage.used_bytes == 0);
    void* a = NULL;
    void* b = NULL;
    OK(memsaver_arena_allocate(arena, 1000, 0, &a));
    OK(memsaver_arena_allocate_on(arena, 2000, 512, NULL, &b));
    CHECK(a != NULL && b != NULL && a != b && (uintptr_t)b % 512 == 0);
    OK(memsaver_arena_deallocate_on(arena, a, NULL));
    OK(memsaver_arena_deallocate_idle(arena, b));
    MISUSE(memsaver_arena_deallocate(arena, b), "tag");
    MISUSE(memsaver_arena_allocate(arena, 65 * MIB, 0, &a), "tag"); // exceeds its capacity
    CHECK(a == NULL);
    const char* names[] = {"tag"};
    OK(memsaver_set_capacity(saver, names, 1, 80 * MIB));
    OK(memsaver_arena_allocate(arena, 65 * MIB, 0, &a));
    MISUSE(memsaver_arena_allocate(arena, 1, 3, &b), "alignment");

    OK(memsaver_push_arena(saver, arena));
    MISUSE(memsaver_push_arena(other, arena), "another saver");
    OK(memsaver_allocate(saver, NULL, 100, 0, &b));
    OK(memsaver_pop_region(saver));
    OK(memsaver_get_arena_usage(arena, &usage));
    CHECK(usage.used_bytes == 65 * MIB + 100 && usage.blocks == 2);

    memsaver_policy zero = MEMSAVER_POLICY_INIT;
    zero.kind = MEMSAVER_ZERO;
    memsaver_arena_options wrong = MEMSAVER_ARENA_OPTIONS_INIT;
    wrong.policy = &zero;
    MISUSE(memsaver_make_tag(saver, "tag", &wrong), "policy");
    memsaver_destroy(other);

    // The arena outlives the saver's handle.
    memsaver_destroy(saver);
    put(a, 3, MIB);
    OK(memsaver_arena_deallocate(arena, a));
    OK(memsaver_arena_deallocate(arena, b));
    memsaver_release_arena(arena);
}

static size_t blocks_of(memsaver_arena* arena) {
    memsaver_usage usage = MEMSAVER_USAGE_INIT;
    OK(memsaver_get_arena_usage(arena, &usage));
    return usage.blocks;
}

static void test_torch(void) {
    memsaver_saver* saver = made();
    memsaver_arena* outer = NULL;
    memsaver_arena* inner = NULL;
    OK(memsaver_get_arena(saver, "outer", NULL, &outer));
    OK(memsaver_get_arena(saver, "inner", NULL, &inner));
    OK(memsaver_torch_push(outer));
    OK(memsaver_torch_push(inner));
    void* a = memsaver_torch_allocate(1000, 0, NULL);
    CHECK(a != NULL && (uintptr_t)a % 512 == 0 && blocks_of(inner) == 1 && blocks_of(outer) == 0);
    OK(memsaver_torch_pop());
    void* b = memsaver_torch_allocate(1000, 0, NULL);
    CHECK(b != NULL && blocks_of(outer) == 1);
    CHECK(memsaver_torch_allocate(0, 0, NULL) == NULL);
    CHECK(memsaver_torch_allocate(1000, 7, NULL) == NULL);
    CHECK(strstr(memsaver_last_error(), "device 7") != NULL);
    CHECK(memsaver_torch_allocate((ptrdiff_t)1 << 50, 0, NULL) == NULL);
    OK(memsaver_torch_pop());
    MISUSE(memsaver_torch_pop(), "pushed no arena");
    CHECK(memsaver_torch_allocate(1000, 0, NULL) == NULL);
    int mine = 0;
    memsaver_torch_free(&mine, 4, 0, NULL); // foreign pointer
    memsaver_torch_free(a, 1000, 0, NULL);  // outside any region
    CHECK(blocks_of(inner) == 0);
    memsaver_torch_free(a, 1000, 0, NULL); // twice

    // A late free, after its tag was dropped, does not free a new block at the same address.
    const char* names[] = {"outer"};
    OK(memsaver_drop(saver, names, 1));
    memsaver_usage usage = MEMSAVER_USAGE_INIT;
    MISUSE(memsaver_get_arena_usage(outer, &usage), "tag \"outer\" has been dropped");
    CHECK(usage.arenas == 0);
    memsaver_release_arena(outer);
    OK(memsaver_get_arena(saver, "outer", NULL, &outer));
    OK(memsaver_torch_push(outer));
    void* c = memsaver_torch_allocate(1000, 0, NULL);
    OK(memsaver_torch_pop());
    memsaver_torch_free(b, 1000, 0, NULL);
    CHECK(blocks_of(outer) == 1);
    memsaver_release_arena(outer);
    memsaver_release_arena(inner);
    memsaver_destroy(saver); // before the last tensor is freed
    memsaver_torch_free(c, 1000, 0, NULL);
}

static void test_retain(void) {
    memsaver_saver* saver = made();
    memsaver_policy keep = MEMSAVER_POLICY_INIT;
    keep.kind = MEMSAVER_HOST_BACKUP;
    memsaver_arena_options options = MEMSAVER_ARENA_OPTIONS_INIT;
    options.policy = &keep;
    OK(memsaver_make_tag(saver, "kept", &options));
    void* block = NULL;
    OK(memsaver_allocate(saver, "kept", MIB, 0, &block));
    memsaver_usage usage = MEMSAVER_USAGE_INIT;
    const char* names[] = {"kept"};
    for (int retain = 0; retain < 2; ++retain) {
        OK(memsaver_set_retain(saver, names, 1, retain != 0));
        OK(memsaver_pause(saver, names, 1, NULL, NULL));
        OK(memsaver_resume(saver, names, 1, NULL, NULL));
        OK(memsaver_get_usage(saver, names, 1, &usage));
        CHECK(usage.backed_up_bytes == (retain != 0 ? MIB : 0));
    }
    OK(memsaver_make_tag(saver, "dropped", NULL));
    const char* dropped[] = {"dropped"};
    MISUSE(memsaver_set_retain(saver, dropped, 1, true), "dropped");
    memsaver_destroy(saver);
}

static void test_policies(void) {
    memsaver_saver* saver = made();
    memsaver_policy policies[8];
    for (size_t i = 0; i < COUNT(policies); ++i) policies[i] = (memsaver_policy)MEMSAVER_POLICY_INIT;
    policies[0].poison = 0x5a;
    policies[1].kind = MEMSAVER_ZERO;
    policies[2].kind = MEMSAVER_HOST_BACKUP;
    policies[3].kind = MEMSAVER_HOST_BACKUP;
    policies[3].storage = MEMSAVER_PAGEABLE;
    policies[3].retain = false;
    policies[3].threads = 2;
    policies[3].ring_bytes = 8 * MIB;
    policies[4].kind = MEMSAVER_HOST_BACKUP;
    policies[4].refresh = MEMSAVER_ONCE;
    policies[4].check = true;
    policies[5].kind = MEMSAVER_FILE_BACKUP;
    policies[5].directory = "/tmp";
    policies[6].kind = MEMSAVER_FILE_BACKUP;
    policies[6].directory = "/tmp";
    policies[6].refresh = MEMSAVER_ONCE;
    policies[7].kind = MEMSAVER_HOST_BACKUP;
    policies[7].verified = true;
    const int after[] = {0x5a, 0, 42, 42, 42, 42, 42, 42};
    for (size_t i = 0; i < COUNT(policies); ++i) {
        char name[16];
        snprintf(name, sizeof name, "tag %zu", i);
        const char* names[] = {name};
        memsaver_arena_options options = MEMSAVER_ARENA_OPTIONS_INIT;
        options.policy = &policies[i];
        const memsaver_result result = memsaver_make_tag(saver, name, &options);
        if (policies[i].verified && result == MEMSAVER_UNAVAILABLE) continue; // the library was built without xxHash
        OK(result);
        void* block = NULL;
        OK(memsaver_allocate(saver, name, 3 * MIB, 0, &block));
        put(block, 42, 3 * MIB);
        memsaver_report report = MEMSAVER_REPORT_INIT;
        if (i < 2) {
            MISUSE(memsaver_prepare(saver, names, 1), name);
            MISUSE(memsaver_invalidate(saver, names, 1), name);
        } else {
            OK(memsaver_prepare(saver, names, 1));
        }
        OK(memsaver_pause(saver, names, 1, NULL, &report));
        CHECK(report.saved_bytes == (i < 2 ? 0 : 3 * MIB));
        memsaver_usage usage = MEMSAVER_USAGE_INIT;
        OK(memsaver_get_usage(saver, names, 1, &usage));
        CHECK(usage.mapped_bytes == 0 && usage.paused_bytes >= 3 * MIB && usage.pauses == 1);
        CHECK((usage.backed_up_bytes >= 3 * MIB) == (i >= 2));
        OK(memsaver_resume(saver, names, 1, NULL, &report));
        CHECK(reads(block, (unsigned char)after[i], 3 * MIB));
        if (policies[i].refresh != MEMSAVER_ONCE) continue;
        OK(memsaver_pause(saver, names, 1, NULL, &report));
        CHECK(report.saved_bytes == 0);
        OK(memsaver_resume(saver, names, 1, NULL, NULL));
        put(block, 43, MIB);
        if (policies[i].check) MISUSE(memsaver_pause(saver, names, 1, NULL, NULL), name);
        OK(memsaver_invalidate(saver, names, 1));
        OK(memsaver_pause(saver, names, 1, NULL, &report));
        CHECK(report.saved_bytes == 3 * MIB);
        OK(memsaver_resume(saver, names, 1, NULL, NULL));
        CHECK(reads(block, 43, MIB));
    }
    OK(memsaver_prepare(saver, NULL, 0)); // skips tags that keep nothing
    OK(memsaver_invalidate(saver, NULL, 0));
    OK(memsaver_close(saver));
    memsaver_destroy(saver);

    memsaver_options options = options_of_machine; // the default policy of new tags
    options.default_policy = &policies[1];
    OK(memsaver_create(&options, &saver));
    void* block = NULL;
    OK(memsaver_allocate(saver, "tag", MIB, 0, &block));
    put(block, 1, MIB);
    OK(memsaver_pause(saver, NULL, 0, NULL, NULL));
    OK(memsaver_resume(saver, NULL, 0, NULL, NULL));
    CHECK(reads(block, 0, MIB));
    memsaver_destroy(saver);

    options.new_tags = MEMSAVER_NEW_TAGS_WITH_POLICY; // a default policy does not count
    OK(memsaver_create(&options, &saver));
    memsaver_arena_options named = MEMSAVER_ARENA_OPTIONS_INIT;
    named.policy = &policies[1];
    OK(memsaver_make_tag(saver, "weights", &named));
    OK(memsaver_allocate(saver, "weights", MIB, 0, &block));
    OK(memsaver_make_tag(saver, "weights", NULL));
    MISUSE(memsaver_allocate(saver, "weigths", MIB, 0, &block), "did you mean \"weights\"");
    CHECK(block == NULL);
    MISUSE(memsaver_push_region(saver, "weigths"), "unknown tag \"weigths\"");
    MISUSE(memsaver_make_tag(saver, "other", NULL), "unknown tag \"other\"");
    memsaver_destroy(saver);
    options.new_tags = 2;
    MISUSE(memsaver_create(&options, &saver), "memsaver_options.new_tags cannot be 2");
}

static void test_compressed(void) {
    memsaver_saver* saver = made();
    memsaver_policy coded = MEMSAVER_POLICY_INIT;
    coded.kind = MEMSAVER_HOST_BACKUP;
    coded.compressed = true;
    memsaver_arena_options options = MEMSAVER_ARENA_OPTIONS_INIT;
    options.policy = &coded;
    const char* names[] = {"coded", "coded in a file"};
    const memsaver_result result = memsaver_make_tag(saver, names[0], &options);
    if (result == MEMSAVER_UNAVAILABLE) {
        CHECK(strlen(memsaver_last_error()) > 0); // a machine without the codec
        memsaver_destroy(saver);
        return;
    }
    OK(result);
    coded.kind = MEMSAVER_FILE_BACKUP;
    coded.directory = "/tmp";
    coded.refresh = MEMSAVER_ONCE;
    OK(memsaver_make_tag(saver, names[1], &options));
    for (size_t i = 0; i < 2; ++i) {
        void* block = NULL;
        OK(memsaver_allocate(saver, names[i], 8 * MIB, 0, &block));
        put(block, 42, 8 * MIB);
        for (int round = 0; round < 2; ++round) {
            OK(memsaver_pause(saver, &names[i], 1, NULL, NULL));
            memsaver_usage usage = MEMSAVER_USAGE_INIT;
            OK(memsaver_get_usage(saver, &names[i], 1, &usage));
            CHECK(usage.mapped_bytes == 0 && usage.backed_up_bytes > 0);
            // A GPU's codec compresses each number to half.
            CHECK(usage.backed_up_bytes < (copy_in == NULL ? 4 : 8) * MIB);
            OK(memsaver_resume(saver, &names[i], 1, NULL, NULL));
            CHECK(reads(block, 42, 8 * MIB));
        }
    }
    coded.kind = MEMSAVER_ZERO; // ignores `compressed`
    OK(memsaver_make_tag(saver, "zero", &options));
    OK(memsaver_close(saver));
    memsaver_destroy(saver);
}

static void test_usage(void) {
    memsaver_saver* saver = made();
    void* block = NULL;
    OK(memsaver_allocate(saver, "a \"tag\"\n", 100, 0, &block));
    OK(memsaver_make_tag(saver, "empty", NULL));
    OK(memsaver_push_outside(saver));
    void* plain = NULL;
    OK(memsaver_allocate(saver, NULL, 1000, 0, &plain));
    OK(memsaver_pop_region(saver));
    CHECK(memsaver_owns(saver, plain));
    OK(memsaver_pause(saver, NULL, 0, NULL, NULL));
    put(plain, 1, 1000); // never paused

    memsaver_usage usage = MEMSAVER_USAGE_INIT;
    OK(memsaver_get_usage(saver, NULL, 0, &usage));
    CHECK(usage.arenas == 3 && usage.blocks == 2 && usage.used_bytes == 1100 && usage.mapped_bytes >= 1000);
    const char* names[] = {"empty", "a \"tag\"\n"};
    OK(memsaver_get_usage(saver, names, 2, &usage));
    CHECK(usage.arenas == 2 && usage.used_bytes == 100 && usage.mapped_bytes == 0 && usage.paused_bytes >= 100);
    OK(memsaver_get_usage(saver, names, 1, &usage));
    CHECK(usage.arenas == 1 && usage.used_bytes == 0 && usage.reserved_bytes == 0);
    const char* prefix[] = {"a "};
    OK(memsaver_get_usage(saver, prefix, MEMSAVER_UNDER, &usage));
    CHECK(usage.arenas == 1 && usage.used_bytes == 100);
    const char* unknown[] = {"emty"};
    MISUSE(memsaver_get_usage(saver, unknown, 1, &usage), "unknown tag \"emty\": did you mean \"empty\"");

    char* json = NULL;
    OK(memsaver_get_usage_json(saver, &json));
    CHECK(json != NULL && strstr(json, "\"tag\":\"a \\\"tag\\\"\\u000a\"") != NULL);
    CHECK(json != NULL && strstr(json, "{\"arenas\":[{\"tag\":") == json && strstr(json, "],\"devices\":[{") != NULL);
    CHECK(json != NULL && strstr(json, "\"state\":\"paused\"") != NULL &&
          strstr(json, "\"known\":true}],\"residency\":{\"hits\":0,") != NULL);
    memsaver_free_text(json);
    memsaver_free_text(NULL);

    memsaver_info info = MEMSAVER_INFO_INIT;
    OK(memsaver_get_info(saver, &info));
    CHECK(info.enabled && info.granularity >= 4096 && info.free_bytes <= info.total_bytes && info.total_bytes > 0);
    CHECK(strlen(info.name) > 0 && info.device == 0 && info.driver == options_of_machine.driver);
    OK(memsaver_deallocate(saver, plain));
    memsaver_destroy(saver);
}

static void test_switched_off(void) {
    memsaver_options options = options_of_machine;
    options.enabled = false;
    memsaver_saver* saver = NULL;
    OK(memsaver_create(&options, &saver));
    memsaver_info info = MEMSAVER_INFO_INIT;
    OK(memsaver_get_info(saver, &info));
    CHECK(!info.enabled);
    void* block = NULL;
    OK(memsaver_allocate(saver, "tag", 1000, 0, &block));
    put(block, 9, 1000);
    OK(memsaver_pause(saver, NULL, 0, NULL, NULL));
    CHECK(reads(block, 9, 1000));
    const char* names[] = {"unknown"};
    MISUSE(memsaver_pause(saver, names, 1, NULL, NULL), "unknown");
    const char* tag[] = {"tag"};
    OK(memsaver_exchange(saver, tag, 1, names, 0, NULL, NULL));
    MISUSE(memsaver_exchange(saver, tag, 1, names, 1, NULL, NULL), "unknown");
    CHECK(reads(block, 9, 1000));
    OK(memsaver_write_backup(saver, (char*)block + 10, "\5\5", 2)); // writes to the memory itself
    CHECK(reads(block, 9, 10) && reads((char*)block + 10, 5, 2) && reads((char*)block + 12, 9, 988));
    MISUSE(memsaver_write_backup(saver, (char*)block + 999, "\5\5", 2), "tag \"tag\"");
    memsaver_use* use = NULL;
    OK(memsaver_begin_use(saver, tag, 1, NULL, &use));
    OK(memsaver_use_until(use, NULL));
    memsaver_end_use(use);
    memsaver_arrival* coming = NULL;
    OK(memsaver_resume_async(saver, tag, 1, NULL, &coming));
    OK(memsaver_arrival_wait(coming, NULL));
    memsaver_end_arrival(coming);
    memsaver_gate* gate = NULL;
    OK(memsaver_get_gate(saver, block, 1000, &gate));
    OK(memsaver_gate_before(gate, NULL));
    memsaver_release_gate(gate);
    OK(memsaver_deallocate(saver, block));
    memsaver_destroy(saver);
}

// --- Arrivals, files, uses, elastic memory ---

static void test_arrivals(void) {
    memsaver_saver* saver = made();
    const size_t size = 16 * MIB;
    const char* names[] = {"weights"};
    char* weights = kept_block(saver, names[0], size, 3);
    const void* first[] = {weights + 8 * MIB, weights};
    const size_t first_bytes[] = {4 * MIB, 1000};
    memsaver_resume_async_options options = MEMSAVER_RESUME_ASYNC_OPTIONS_INIT;
    options.first = first;
    options.first_bytes = first_bytes;
    options.first_count = 2;
    memsaver_arrival* coming = NULL;
    memsaver_gate* gate = NULL;
    OK(memsaver_get_gate(saver, weights + 100, 3000, &gate));
    for (int round = 0; round < 2; ++round) {
        OK(memsaver_pause(saver, names, 1, NULL, NULL));
        OK(memsaver_resume_async(saver, names, 1, round == 0 ? &options : NULL, &coming));
        memsaver_use_options here = MEMSAVER_USE_OPTIONS_INIT;
        here.await_bytes = false;
        memsaver_use* use = NULL;
        OK(memsaver_begin_use(saver, names, 1, &here, &use)); // otherwise they may be evicted
        OK(memsaver_gate_before(gate, NULL));
        OK(memsaver_arrival_before_range(coming, NULL, weights, 1000));
        OK(memsaver_arrival_before(coming, NULL));
        OK(memsaver_arrival_wait_range(coming, weights + 8 * MIB, 4 * MIB));
        CHECK(reads(weights + 8 * MIB, 3, 4 * MIB));
        memsaver_report report = MEMSAVER_REPORT_INIT;
        OK(memsaver_arrival_wait(coming, &report));
        CHECK(report.restored_bytes == size && report.mapped_bytes >= size);
        bool done = false;
        OK(memsaver_arrival_done(coming, &done));
        CHECK(done && reads(weights, 3, size));
        OK(memsaver_arrival_wait(coming, NULL));
        memsaver_end_use(use);
        memsaver_end_arrival(coming);
    }

    // Restores no bytes this time; ending it waits.
    memsaver_policy zero = MEMSAVER_POLICY_INIT;
    zero.kind = MEMSAVER_ZERO;
    memsaver_resume_options resuming = MEMSAVER_RESUME_OPTIONS_INIT;
    resuming.bytes = &zero;
    options.first_count = 0;
    options.resuming = &resuming;
    OK(memsaver_pause(saver, names, 1, NULL, NULL));
    OK(memsaver_resume_async(saver, names, 1, &options, &coming));
    memsaver_end_arrival(coming);
    CHECK(reads(weights, 0, size));

    // Saves ahead.
    memsaver_policy once = MEMSAVER_POLICY_INIT;
    once.kind = MEMSAVER_HOST_BACKUP;
    once.refresh = MEMSAVER_ONCE;
    memsaver_arena_options frozen = MEMSAVER_ARENA_OPTIONS_INIT;
    frozen.policy = &once;
    const char* ahead[] = {"frozen"};
    OK(memsaver_make_tag(saver, ahead[0], &frozen));
    void* block = NULL;
    OK(memsaver_allocate(saver, ahead[0], size, 0, &block));
    put(block, 4, size);
    memsaver_pause_options idle = MEMSAVER_PAUSE_OPTIONS_INIT;
    idle.order = MEMSAVER_ALREADY_IDLE;
    memsaver_report report = MEMSAVER_REPORT_INIT;
    OK(memsaver_save(saver, ahead, 1, &idle, &coming));
    OK(memsaver_arrival_wait(coming, &report));
    CHECK(report.saved_bytes == size);
    memsaver_end_arrival(coming);
    OK(memsaver_pause(saver, ahead, 1, NULL, &report));
    CHECK(report.saved_bytes == 0);
    OK(memsaver_resume(saver, ahead, 1, NULL, NULL));
    CHECK(reads(block, 4, size));

    // Invalid arguments.
    OK(memsaver_pause(saver, NULL, 0, NULL, NULL));
    options.first_count = 1;
    first[0] = block;
    MISUSE(memsaver_resume_async(saver, names, 1, &options, &coming), "not in live blocks");
    CHECK(coming == NULL);
    options.first = NULL;
    MISUSE(memsaver_resume_async(saver, names, 1, &options, &coming), "first pointers is null");
    options.first = first;
    options.first_bytes = NULL;
    MISUSE(memsaver_resume_async(saver, names, 1, &options, &coming), "first sizes is null");
    options.size = 0;
    MISUSE(memsaver_resume_async(saver, names, 1, &options, &coming), "its size field is 0");
    MISUSE(memsaver_resume_async(saver, names, 1, NULL, NULL), "output pointer is null");
    MISUSE(memsaver_resume_async(NULL, names, 1, NULL, &coming), "saver is null");
    OK(memsaver_resume_async(saver, NULL, 0, NULL, &coming));
    MISUSE(memsaver_arrival_wait_range(coming, &saver, 1), "");
    MISUSE(memsaver_arrival_before_range(coming, NULL, weights + size - 1, 2), "");
    MISUSE(memsaver_arrival_done(coming, NULL), "output pointer is null");
    MISUSE(memsaver_save(saver, names, 1, NULL, NULL), "output pointer is null");
    memsaver_arrival* none = coming;
    MISUSE(memsaver_save(saver, names, 1, NULL, &none), "weights");
    CHECK(none == NULL);
    memsaver_release_gate(gate);
    MISUSE(memsaver_get_gate(saver, weights, size + 1, &gate), "");
    CHECK(gate == NULL);
    MISUSE(memsaver_get_gate(saver, weights, 1, NULL), "output pointer is null");
    MISUSE(memsaver_gate_before(NULL, NULL), "gate is null");
    MISUSE(memsaver_arrival_wait(NULL, NULL), "arrival is null");
    MISUSE(memsaver_arrival_wait_range(NULL, weights, 1), "arrival is null");
    MISUSE(memsaver_arrival_before(NULL, NULL), "arrival is null");
    MISUSE(memsaver_arrival_before_range(NULL, NULL, weights, 1), "arrival is null");
    memsaver_end_arrival(NULL);
    memsaver_release_gate(NULL);
    OK(memsaver_get_gate(saver, weights, 1, &gate));
    OK(memsaver_close(saver));
    MISUSE(memsaver_arrival_wait(coming, NULL), "closed");
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
    memsaver_saver* saver = made();
    memsaver_policy source = MEMSAVER_POLICY_INIT;
    source.kind = MEMSAVER_FILE_SOURCE;
    source.threads = 2;
    memsaver_arena_options options = MEMSAVER_ARENA_OPTIONS_INIT;
    options.policy = &source;
    const char* names[] = {"model"};
    OK(memsaver_make_tag(saver, names[0], &options));
    char* block = NULL;
    OK(memsaver_allocate(saver, names[0], 2 * MIB, 0, (void**)&block));
    OK(memsaver_load(saver, block, 2 * MIB, path, 7));
    CHECK(reads(block, 6, 2 * MIB));
    memsaver_report report = MEMSAVER_REPORT_INIT;
    OK(memsaver_pause(saver, names, 1, NULL, &report));
    CHECK(report.saved_bytes == 0);
    OK(memsaver_resume(saver, names, 1, NULL, &report));
    CHECK(report.restored_bytes == 2 * MIB && reads(block, 6, 2 * MIB));

    // Changed bytes are kept from then on.
    put(block + MIB, 9, 5000);
    OK(memsaver_invalidate_range(saver, block + MIB, 5000));
    OK(memsaver_pause(saver, names, 1, NULL, &report));
    CHECK(report.saved_bytes == 5000);
    OK(memsaver_resume(saver, names, 1, NULL, NULL));
    CHECK(reads(block, 6, MIB) && reads(block + MIB, 9, 5000) && reads(block + MIB + 5000, 6, MIB - 5000));

    // A file that has changed.
    OK(memsaver_pause(saver, names, 1, NULL, NULL));
    write_file(path, 6, 100);
    IS(MEMSAVER_SOURCE_CHANGED, memsaver_resume(saver, names, 1, NULL, NULL));
    CHECK(strstr(memsaver_last_error(), path) != NULL);
    CHECK(strcmp(memsaver_result_name(MEMSAVER_SOURCE_CHANGED), "MEMSAVER_SOURCE_CHANGED") == 0);
    memsaver_policy discard = MEMSAVER_POLICY_INIT;
    memsaver_resume_options without = MEMSAVER_RESUME_OPTIONS_INIT;
    without.bytes = &discard;
    OK(memsaver_resume(saver, names, 1, &without, NULL));

    MISUSE(memsaver_load(saver, block, 101, path, 0), path);
    MISUSE(memsaver_load(saver, block, 0, path, 0), "");
    MISUSE(memsaver_load(saver, block, 2 * MIB + 1, path, 0), "");
    MISUSE(memsaver_load(saver, block, 1, NULL, 0), "the path is null");
    MISUSE(memsaver_load(NULL, block, 1, path, 0), "saver is null");
    MISUSE(memsaver_invalidate_range(saver, block + 1, 2 * MIB), "");
    MISUSE(memsaver_invalidate_range(NULL, block, 1), "saver is null");
    OK(unlink(path) == 0 ? MEMSAVER_OK : MEMSAVER_INTERNAL);
    IS(MEMSAVER_DRIVER_ERROR, memsaver_load(saver, block, 1, path, 0));
    CHECK(strstr(memsaver_last_error(), path) != NULL);
    void* other = kept_block(saver, "other", MIB, 1);
    MISUSE(memsaver_load(saver, other, 1, path, 0), "not FileSource");
    OK(memsaver_invalidate_range(saver, other, 1));
    memsaver_destroy(saver);
}

static void test_uses(void) {
    memsaver_saver* saver = made();
    const size_t size = 8 * MIB;
    const char* a[] = {"a"};
    const char* cache[] = {"cache"};
    const char* both[] = {"a", "cache"};
    void* block = kept_block(saver, a[0], size, 3);
    void* dropped = NULL;
    OK(memsaver_allocate(saver, cache[0], size, 0, &dropped));
    OK(memsaver_pause(saver, NULL, 0, NULL, NULL));
    memsaver_use* use = NULL;
    OK(memsaver_begin_use(saver, both, 2, NULL, &use));
    CHECK(reads(block, 3, size));
    const char* const* lost = NULL;
    size_t count = 0;
    OK(memsaver_use_lost(use, &lost, &count));
    CHECK(count == 1 && strcmp(lost[0], "cache") == 0);
    memsaver_pause_options pausing = MEMSAVER_PAUSE_OPTIONS_INIT;
    pausing.timeout_ns = 1000000;
    IS(MEMSAVER_NOT_IDLE, memsaver_pause(saver, a, 1, &pausing, NULL));
    MISUSE(memsaver_pause(saver, a, 1, NULL, NULL), "a"); // it would wait for itself
    char* json = NULL;
    OK(memsaver_get_usage_json(saver, &json));
    CHECK(json != NULL && strstr(json, "\"users\":1,\"evictable\":true,\"priority\":0") != NULL);
    CHECK(json != NULL && strstr(json, "\"residency\":{\"hits\":0,\"misses\":1") != NULL);
    memsaver_free_text(json);
    OK(memsaver_use_until(use, NULL));
    memsaver_end_use(use);
    memsaver_use_options options = MEMSAVER_USE_OPTIONS_INIT;
    options.timeout_ns = (int64_t)60 * 1000000000;
    options.room_within_ns = options.timeout_ns;
    OK(memsaver_begin_use(saver, both, 2, &options, &use));
    OK(memsaver_use_lost(use, &lost, &count));
    CHECK(count == 0);
    memsaver_end_use(use);

    // Idle memory is available.
    memsaver_reclaimed got = MEMSAVER_RECLAIMED_INIT;
    char* text = NULL;
    OK(memsaver_set_evictable(saver, cache, 1, false));
    OK(memsaver_set_priority(saver, both, 2, 5));
    OK(memsaver_reclaim(saver, (size_t)1 << 40, NULL, &got, &text));
    CHECK(got.wanted_bytes == (size_t)1 << 40 && got.evicted_bytes >= size && got.evicted_bytes < 2 * size);
    CHECK(got.saved_bytes == size && got.elastic_bytes == 0);
    CHECK(text != NULL && strstr(text, "reclaimed ") == text && strstr(text, "cache") != NULL);
    memsaver_free_text(text);
    OK(memsaver_reclaim(saver, 1, NULL, NULL, NULL));
    memsaver_arena_options arena = MEMSAVER_ARENA_OPTIONS_INIT;
    arena.evictable = true;
    arena.priority = -3;
    OK(memsaver_make_tag(saver, "made so", &arena));
    OK(memsaver_get_usage_json(saver, &json));
    CHECK(json != NULL && strstr(json, "\"evictable\":true,\"priority\":-3") != NULL);
    memsaver_free_text(json);

    // Invalid arguments.
    const char* unknown[] = {"b"};
    use = (memsaver_use*)&saver;
    MISUSE(memsaver_begin_use(saver, unknown, 1, NULL, &use), "unknown tag \"b\"");
    CHECK(use == NULL);
    MISUSE(memsaver_begin_use(saver, a, 1, NULL, NULL), "output pointer is null");
    MISUSE(memsaver_begin_use(NULL, a, 1, NULL, &use), "saver is null");
    options.order = 3;
    MISUSE(memsaver_begin_use(saver, a, 1, &options, &use), "order cannot be 3");
    options.size = 0;
    MISUSE(memsaver_begin_use(saver, a, 1, &options, &use), "memsaver_use_options");
    MISUSE(memsaver_use_until(NULL, NULL), "use is null");
    MISUSE(memsaver_use_lost(NULL, &lost, &count), "use is null");
    memsaver_reclaim_options reclaiming = MEMSAVER_RECLAIM_OPTIONS_INIT;
    reclaiming.device = 7;
    MISUSE(memsaver_reclaim(saver, 1, &reclaiming, NULL, NULL), "7");
    MISUSE(memsaver_reclaim(NULL, 1, NULL, NULL, NULL), "saver is null");
    MISUSE(memsaver_set_evictable(saver, unknown, 1, true), "unknown tag");
    MISUSE(memsaver_set_evictable(NULL, a, 1, true), "saver is null");
    MISUSE(memsaver_set_priority(saver, unknown, 1, 1), "unknown tag");
    MISUSE(memsaver_set_priority(NULL, a, 1, 1), "saver is null");
    OK(memsaver_begin_use(saver, a, 1, NULL, &use));
    MISUSE(memsaver_use_until_event(use, NULL), "event is null");
    MISUSE(memsaver_use_until_event(NULL, &saver), "use is null");
    MISUSE(memsaver_use_lost(use, NULL, &count), "output pointer is null");
    MISUSE(memsaver_use_lost(use, &lost, NULL), "pointer for the count is null");
    OK(memsaver_close(saver));
    memsaver_destroy(saver);
    memsaver_end_use(use);
    memsaver_end_use(NULL);
}

/// More tags than fit.
static void test_uses_without_room(void) {
    memsaver_options options = options_of_machine;
    options.host_capacity = 64 * MIB;
    memsaver_saver* saver = NULL;
    OK(memsaver_create(&options, &saver));
    const char* names[] = {"a", "b", "c"};
    void* blocks[COUNT(names)] = {NULL};
    memsaver_use* use = NULL;
    for (size_t i = 0; i < COUNT(names); ++i) {
        blocks[i] = kept_block(saver, names[i], 40 * MIB, (unsigned char)(i + 1));
        OK(memsaver_pause(saver, &names[i], 1, NULL, NULL));
    }
    for (size_t i = 0; i < 6; ++i) {
        OK(memsaver_begin_use(saver, &names[i % 3], 1, NULL, &use));
        CHECK(reads(blocks[i % 3], (unsigned char)(i % 3 + 1), 40 * MIB));
        memsaver_use* other = NULL;
        IS(MEMSAVER_OUT_OF_MEMORY, memsaver_begin_use(saver, &names[(i + 1) % 3], 1, NULL, &other));
        CHECK(other == NULL && strstr(memsaver_last_error(), "in use by 1") != NULL);
        memsaver_end_use(use);
    }
    memsaver_destroy(saver);
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
    memsaver_saver* saver = made();
    memsaver_policy keep = MEMSAVER_POLICY_INIT;
    keep.kind = MEMSAVER_HOST_BACKUP;
    memsaver_arena_options of_tag = MEMSAVER_ARENA_OPTIONS_INIT;
    of_tag.policy = &keep;
    memsaver_arena* arena = NULL;
    OK(memsaver_get_arena(saver, "kv", &of_tag, &arena));
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
    CHECK(usage_of(saver, "kv").elastic_bytes == 8 * MIB && usage_of(saver, "kv").blocks == 4);
    OK(memsaver_pause(saver, NULL, 0, NULL, NULL));
    MISUSE(memsaver_elastic_commit(owner.elastic, 0, 1), "paused");
    memsaver_pause_options idle = MEMSAVER_PAUSE_OPTIONS_INIT;
    idle.order = MEMSAVER_ALREADY_IDLE;
    OK(memsaver_elastic_release(owner.elastic, 6 * MIB, 2 * MIB, &idle));
    OK(memsaver_resume(saver, NULL, 0, NULL, NULL));
    CHECK(reads(data, 5, 6 * MIB));
    OK(memsaver_elastic_resize(owner.elastic, 4 * MIB, NULL));
    OK(memsaver_get_elastic_info(owner.elastic, &info));
    CHECK(info.committed_bytes == 4 * MIB && info.data == data);

    // Calls the reclaim function of the range's owner.
    memsaver_reclaimed got = MEMSAVER_RECLAIMED_INIT;
    OK(memsaver_reclaim(saver, 32 * MIB, NULL, &got, NULL));
    CHECK(owner.asked != 0 && owner.asked <= 32 * MIB && got.elastic_bytes == 2 * MIB);
    OK(memsaver_get_elastic_info(owner.elastic, &info));
    CHECK(info.committed_bytes == 2 * MIB && reads(data + 2 * MIB, 5, 2 * MIB));

    MISUSE(memsaver_elastic_commit(owner.elastic, 63 * MIB, 2 * MIB), "");
    MISUSE(memsaver_elastic_commit(owner.elastic, 0, 0), "");
    MISUSE(memsaver_elastic_release(owner.elastic, 0, 2 * MIB, NULL), "");
    MISUSE(memsaver_elastic_resize(owner.elastic, 65 * MIB, NULL), "");
    idle.order = 3;
    MISUSE(memsaver_elastic_release(owner.elastic, 0, 2 * MIB, &idle), "order cannot be 3");
    MISUSE(memsaver_get_elastic_info(owner.elastic, NULL), "output pointer is null");
    MISUSE(memsaver_get_elastic_info(NULL, &info), "range is null");
    MISUSE(memsaver_elastic_commit(NULL, 0, 1), "range is null");
    MISUSE(memsaver_elastic_release(NULL, 0, 1, NULL), "range is null");
    MISUSE(memsaver_elastic_resize(NULL, 0, NULL), "range is null");
    memsaver_elastic* none = owner.elastic;
    MISUSE(memsaver_make_elastic(NULL, 1, NULL, &none), "arena is null");
    CHECK(none == NULL);
    MISUSE(memsaver_make_elastic(arena, 1, NULL, NULL), "output pointer is null");
    MISUSE(memsaver_make_elastic(arena, 0, NULL, &none), "");
    options.size = 1;
    MISUSE(memsaver_make_elastic(arena, 1, &options, &none), "memsaver_elastic_options");
    OK(memsaver_make_elastic(arena, 1, NULL, &none));
    OK(memsaver_get_elastic_info(none, &info));
    CHECK(info.granularity == 64 * MIB);
    memsaver_end_elastic(none);
    memsaver_end_elastic(NULL);
    OK(memsaver_close(saver));
    MISUSE(memsaver_elastic_commit(owner.elastic, 0, 1), "closed");
    memsaver_destroy(saver);
    memsaver_release_arena(arena);
    memsaver_end_elastic(owner.elastic);
}

// --- Hooks and callbacks ---

typedef struct Noted {
    memsaver_saver* saver;
    int calls;
    int answer;
    int32_t moment;
    size_t tag_count;
    size_t released;
    size_t handed;
    char first_tag[32];
    memsaver_result nested;
} Noted;

static int note(void* context, const memsaver_hook_event* event) {
    Noted* noted = context;
    ++noted->calls;
    noted->moment = event->moment;
    noted->tag_count = event->tag_count;
    noted->released = event->report->released_bytes;
    noted->handed = event->report->handed_bytes;
    snprintf(noted->first_tag, sizeof noted->first_tag, "%s", event->tag_count > 0 ? event->tags[0] : "");
    if (noted->saver != NULL) noted->nested = memsaver_pause(noted->saver, NULL, 0, NULL, NULL);
    return noted->answer;
}

static void test_hooks(void) {
    memsaver_saver* saver = made();
    void* block = NULL;
    OK(memsaver_allocate(saver, "tag", 3 * MIB, 0, &block));
    Noted noted[4] = {{0}};
    memsaver_hook* hooks[4] = {0};
    for (int moment = 0; moment < 4; ++moment)
        OK(memsaver_add_hook(saver, moment, note, &noted[moment], &hooks[moment]));
    OK(memsaver_pause(saver, NULL, 0, NULL, NULL));
    OK(memsaver_resume(saver, NULL, 0, NULL, NULL));
    for (int moment = 0; moment < 4; ++moment) {
        CHECK(noted[moment].calls == 1 && noted[moment].moment == moment && noted[moment].tag_count == 1);
        CHECK(strcmp(noted[moment].first_tag, "tag") == 0);
        CHECK((noted[moment].released >= 3 * MIB) == (moment == MEMSAVER_AFTER_PAUSE));
    }

    // One hook that refuses; one that fails after the pause; one that makes a forbidden call.
    memsaver_report report = MEMSAVER_REPORT_INIT;
    noted[MEMSAVER_BEFORE_PAUSE].answer = 17;
    IS(MEMSAVER_HOOK_FAILED, memsaver_pause(saver, NULL, 0, NULL, &report));
    CHECK(strstr(memsaver_last_error(), "before a pause returned 17") != NULL && report.released_bytes == 0);
    put(block, 1, MIB); // still active
    CHECK(noted[MEMSAVER_AFTER_PAUSE].calls == 1);
    noted[MEMSAVER_BEFORE_PAUSE].answer = 0;
    noted[MEMSAVER_AFTER_PAUSE].answer = -3;
    noted[MEMSAVER_AFTER_PAUSE].saver = saver;
    Noted another = {0};
    OK(memsaver_add_hook(saver, MEMSAVER_AFTER_PAUSE, note, &another, NULL)); // the saver keeps it
    IS(MEMSAVER_HOOK_FAILED, memsaver_pause(saver, NULL, 0, NULL, &report));
    CHECK(strstr(memsaver_last_error(), "after a pause returned -3") != NULL && report.released_bytes >= 3 * MIB);
    CHECK(noted[MEMSAVER_AFTER_PAUSE].nested == MEMSAVER_MISUSE && another.calls == 1);
    noted[MEMSAVER_BEFORE_RESUME].answer = 1;
    IS(MEMSAVER_HOOK_FAILED, memsaver_resume(saver, NULL, 0, NULL, &report));
    CHECK(report.mapped_bytes == 0);
    memsaver_remove_hook(hooks[MEMSAVER_BEFORE_RESUME]);
    OK(memsaver_resume(saver, NULL, 0, NULL, NULL));
    CHECK(noted[MEMSAVER_BEFORE_RESUME].calls == 2);

    // An exchange runs the hooks of both.
    noted[MEMSAVER_AFTER_PAUSE] = (Noted){0};
    noted[MEMSAVER_AFTER_RESUME] = (Noted){0};
    const char* out[] = {"tag"};
    const char* in[] = {"other"};
    OK(memsaver_allocate(saver, "other", 3 * MIB, 0, &block));
    OK(memsaver_pause(saver, in, 1, NULL, NULL));
    OK(memsaver_exchange(saver, out, 1, in, 1, NULL, &report));
    CHECK(noted[MEMSAVER_AFTER_PAUSE].calls == 2 && strcmp(noted[MEMSAVER_AFTER_PAUSE].first_tag, "tag") == 0);
    CHECK(noted[MEMSAVER_AFTER_RESUME].calls == 1 && strcmp(noted[MEMSAVER_AFTER_RESUME].first_tag, "other") == 0);
    CHECK(noted[MEMSAVER_AFTER_RESUME].handed == report.handed_bytes && report.handed_bytes > 0);
    noted[MEMSAVER_BEFORE_PAUSE].answer = 5;
    IS(MEMSAVER_HOOK_FAILED, memsaver_exchange(saver, in, 1, out, 1, NULL, &report));
    CHECK(report.handed_bytes == 0 && usage_of(saver, "tag").mapped_bytes == 0);
    noted[MEMSAVER_BEFORE_PAUSE].answer = 0;

    memsaver_remove_hook(hooks[MEMSAVER_BEFORE_PAUSE]);
    memsaver_remove_hook(hooks[MEMSAVER_AFTER_PAUSE]);
    memsaver_destroy(saver);
    memsaver_remove_hook(hooks[MEMSAVER_AFTER_RESUME]); // after the saver
    memsaver_remove_hook(NULL);
}

int throwing_hook(void* context, const memsaver_hook_event* event); // throwing.cpp

static void test_throwing_hooks(void) {
    memsaver_saver* saver = made();
    memsaver_hook* hook = NULL;
    OK(memsaver_add_hook(saver, MEMSAVER_BEFORE_PAUSE, throwing_hook, saver, &hook));
    IS(MEMSAVER_INTERNAL, memsaver_pause(saver, NULL, 0, NULL, NULL));
    CHECK(strcmp(memsaver_last_error(), "thrown by a hook") == 0);
    memsaver_remove_hook(hook);
    OK(memsaver_add_hook(saver, MEMSAVER_AFTER_RESUME, throwing_hook, NULL, &hook));
    IS(MEMSAVER_INTERNAL, memsaver_resume(saver, NULL, 0, NULL, NULL));
    memsaver_remove_hook(hook);
    OK(memsaver_resume(saver, NULL, 0, NULL, NULL));
    memsaver_destroy(saver);
}

typedef struct Room {
    memsaver_saver* saver;
    void* spare;
    int asked;
    size_t bytes;
    size_t free_bytes;
} Room;

static int make_room(void* context, const memsaver_no_room* need) {
    Room* room = context;
    ++room->asked;
    room->bytes = need->bytes;
    room->free_bytes = need->free_bytes;
    if (room->spare == NULL || strcmp(need->tag, "tag") != 0) return 0;
    OK(memsaver_deallocate_idle(room->saver, room->spare));
    room->spare = NULL;
    return 1;
}

static void count_warnings(void* context, const memsaver_event* event) {
    if (event->kind == MEMSAVER_EVENT_WARNED && strcmp(event->tag, "") != 0 && strlen(event->text) > 0)
        ++*(int*)context;
}

// Only on host memory, where the test can choose the capacity.
static void test_no_room(void) {
    Room room = {0};
    int warnings = 0;
    memsaver_options options = options_of_machine;
    options.host_capacity = 64 * MIB;
    options.on_no_room = make_room;
    options.on_no_room_context = &room;
    options.on_event = count_warnings;
    options.on_event_context = &warnings;
    memsaver_saver* saver = NULL;
    OK(memsaver_create(&options, &saver));
    room.saver = saver;
    void* block = NULL;
    IS(MEMSAVER_OUT_OF_MEMORY, memsaver_allocate(saver, "tag", 100 * MIB, 0, &block));
    CHECK(block == NULL && room.asked == 1);
    memsaver_error error = MEMSAVER_ERROR_INIT;
    OK(memsaver_get_last_error(&error));
    CHECK(error.result == MEMSAVER_OUT_OF_MEMORY && strcmp(error.tag, "tag") == 0);
    CHECK(error.needed_bytes >= 100 * MIB && error.free_bytes == 64 * MIB && room.free_bytes == 64 * MIB);
    CHECK(strlen(error.driver_name) > 0 && error.driver_code != 0);

    OK(memsaver_allocate(saver, "spare", 40 * MIB, 0, &room.spare));
    OK(memsaver_allocate(saver, "tag", 40 * MIB, 0, &block)); // the program frees the other one
    CHECK(room.asked == 2 && room.spare == NULL);

    // A paused tag whose memory has been taken.
    OK(memsaver_pause(saver, NULL, 0, NULL, NULL));
    CHECK(warnings == 1); // no policy was named
    void* taken = NULL;
    OK(memsaver_allocate(saver, "spare", 40 * MIB, 0, &taken));
    memsaver_report report = MEMSAVER_REPORT_INIT;
    const char* names[] = {"tag"};
    IS(MEMSAVER_OUT_OF_MEMORY, memsaver_resume(saver, names, 1, NULL, &report));
    CHECK(report.mapped_bytes == 0);
    memsaver_resume_options resuming = MEMSAVER_RESUME_OPTIONS_INIT;
    resuming.room_within_ns = 1000000;
    IS(MEMSAVER_OUT_OF_MEMORY, memsaver_resume(saver, names, 1, &resuming, NULL));
    OK(memsaver_deallocate(saver, taken));
    OK(memsaver_resume(saver, names, 1, NULL, NULL));

    // A tag larger than the sum of the released and the free memory.
    void* larger = kept_block(saver, "larger", 24 * MIB, 6);
    const char* small[] = {"small"};
    const char* large[] = {"larger"};
    OK(memsaver_pause(saver, large, 1, NULL, NULL));
    void* smaller = kept_block(saver, "small", 16 * MIB, 7);
    OK(memsaver_allocate(saver, "spare", 8 * MIB, 0, &taken));
    memsaver_exchange_options exchanging = MEMSAVER_EXCHANGE_OPTIONS_INIT;
    exchanging.resuming = &resuming; // which retries
    IS(MEMSAVER_OUT_OF_MEMORY, memsaver_exchange(saver, small, 1, large, 1, &exchanging, &report));
    CHECK(report.handed_bytes == 0 && report.mapped_bytes == 0 && report.released_bytes == 0);
    OK(memsaver_get_last_error(&error));
    CHECK(strcmp(error.tag, "larger") == 0 && error.needed_bytes == 8 * MIB && error.free_bytes == 0);
    CHECK(reads(smaller, 7, 16 * MIB));
    OK(memsaver_deallocate_idle(saver, taken));
    OK(memsaver_exchange(saver, small, 1, large, 1, &exchanging, &report));
    CHECK(report.handed_bytes == 16 * MIB && report.mapped_bytes == 24 * MIB && reads(larger, 6, 24 * MIB));
    OK(memsaver_drop(saver, large, 1));

    OK(memsaver_set_margin(saver, 64 * MIB));
    IS(MEMSAVER_OUT_OF_MEMORY, memsaver_allocate(saver, "other", 4 * MIB, 0, &taken));
    memsaver_destroy(saver);

    // More bytes than this computer's memory can back up.
    options = options_of_machine;
    options.host_capacity = (size_t)8 << 40;
    OK(memsaver_create(&options, &saver));
    memsaver_policy keep = MEMSAVER_POLICY_INIT;
    keep.kind = MEMSAVER_HOST_BACKUP;
    memsaver_arena_options keeping = MEMSAVER_ARENA_OPTIONS_INIT;
    keeping.policy = &keep;
    OK(memsaver_make_tag(saver, "huge", &keeping));
    if (memsaver_allocate(saver, "huge", (size_t)4 << 40, 0, &block) != MEMSAVER_OK) {
        printf("no addresses for 4 TiB (as under the thread sanitizer): %s\n", memsaver_last_error());
    } else {
        IS(MEMSAVER_OUT_OF_HOST_MEMORY, memsaver_pause(saver, NULL, 0, NULL, NULL));
        memsaver_error of_tag = MEMSAVER_ERROR_INIT;
        OK(memsaver_get_last_error(&of_tag));
        CHECK(strcmp(of_tag.tag, "huge") == 0);
        *(char*)block = 1; // still active
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
    memsaver_saver* saver = made();
    char folder[] = "/tmp/memsaver_c_test_XXXXXX";
    CHECK(mkdtemp(folder) != NULL);
    memsaver_policy keep = MEMSAVER_POLICY_INIT;
    keep.kind = MEMSAVER_FILE_BACKUP;
    keep.directory = folder;
    keep.verified = true;
    memsaver_arena_options keeping = MEMSAVER_ARENA_OPTIONS_INIT;
    keeping.policy = &keep;
    const memsaver_result result = memsaver_make_tag(saver, "tag", &keeping);
    if (result != MEMSAVER_UNAVAILABLE) { // otherwise the library was built without xxHash
        OK(result);
        void* block = NULL;
        OK(memsaver_allocate(saver, "tag", 3 * MIB, 0, &block));
        put(block, 5, 3 * MIB);
        OK(memsaver_pause(saver, NULL, 0, NULL, NULL));
        CHECK(damage_files(folder) > 0);
        IS(MEMSAVER_BACKUP_DAMAGED, memsaver_resume(saver, NULL, 0, NULL, NULL));
        CHECK(strstr(memsaver_last_error(), "tag") != NULL);
        CHECK(damage_files(folder) > 0); // undoes the damage
        OK(memsaver_resume(saver, NULL, 0, NULL, NULL));
        CHECK(reads(block, 5, 3 * MIB));
    }
    keep.verified = false;
    OK(memsaver_make_tag(saver, "lost", &keeping));
    const char* names[] = {"lost"};
    void* lost = NULL;
    OK(memsaver_allocate(saver, "lost", MIB, 0, &lost));
    CHECK(rmdir(folder) == 0);
    IS(MEMSAVER_DRIVER_ERROR, memsaver_pause(saver, names, 1, NULL, NULL));
    memsaver_error error = MEMSAVER_ERROR_INIT;
    OK(memsaver_get_last_error(&error));
    CHECK(strcmp(error.driver_name, "ENOENT") == 0 && strcmp(error.tag, "lost") == 0);
    keep.directory = "/nowhere/at/all";
    IS(MEMSAVER_DRIVER_ERROR, memsaver_make_tag(saver, "nowhere", &keeping));
    OK(memsaver_get_last_error(&error));
    CHECK(strcmp(error.driver_name, "ENOENT") == 0 && strcmp(error.tag, "nowhere") == 0);
    CHECK(strstr(memsaver_last_error(), "No such file or directory") != NULL);
    memsaver_destroy(saver);
}

// --- Threads ---

typedef struct Worker {
    memsaver_saver* saver;
    pthread_barrier_t* together;
    const char* tag;
    const char* wrong;
} Worker;

static void* work(void* context) {
    const Worker* self = context;
    CHECK(strcmp(memsaver_last_error(), "") == 0); // each thread has its own
    for (int round = 0; round < 50; ++round) {
        OK(memsaver_push_region(self->saver, self->tag));
        pthread_barrier_wait(self->together);
        const char* wrong[] = {self->wrong};
        IS(MEMSAVER_MISUSE, memsaver_pause(self->saver, wrong, 1, NULL, NULL));
        void* block = NULL;
        OK(memsaver_allocate(self->saver, NULL, 1000, 0, &block));
        OK(memsaver_push_outside(self->saver));
        OK(memsaver_pop_region(self->saver));
        pthread_barrier_wait(self->together);
        CHECK(strstr(memsaver_last_error(), self->wrong) != NULL); // the other thread's names another tag
        OK(memsaver_pop_region(self->saver));
        IS(MEMSAVER_MISUSE, memsaver_pop_region(self->saver));
        IS(MEMSAVER_MISUSE, memsaver_allocate(self->saver, NULL, 1000, 0, &block));
    }
    return NULL;
}

static void test_threads(void) {
    memsaver_saver* saver = made();
    pthread_barrier_t together;
    pthread_barrier_init(&together, NULL, 2);
    Worker workers[] = {{saver, &together, "one", "wrong one"}, {saver, &together, "two", "wrong two"}};
    pthread_t threads[2];
    for (int i = 0; i < 2; ++i) CHECK(pthread_create(&threads[i], NULL, work, &workers[i]) == 0);
    for (int i = 0; i < 2; ++i) pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&together);
    for (int i = 0; i < 2; ++i) {
        memsaver_usage usage = MEMSAVER_USAGE_INIT;
        OK(memsaver_get_usage(saver, &workers[i].tag, 1, &usage));
        CHECK(usage.blocks == 50 && usage.used_bytes == 50 * 1000);
    }
    // Closing the saver ends regions that were never popped.
    OK(memsaver_push_region(saver, "one"));
    OK(memsaver_push_region(saver, "two"));
    OK(memsaver_close(saver));
    memsaver_destroy(saver);
    saver = made();
    OK(memsaver_push_region(saver, "one"));
    memsaver_destroy(saver);
}

static int stop = 0;

static void* make_and_drop(void* saver) {
    const char* names[] = {"comes and goes"};
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        void* block = NULL;
        OK(memsaver_allocate(saver, names[0], 4096, 0, &block));
        OK(memsaver_drop(saver, names, 1));
    }
    return NULL;
}

/// Calls on all tags leave out those that another thread drops meanwhile.
static void test_all_tags_and_a_drop(void) {
    memsaver_saver* saver = made();
    void* block = kept_block(saver, "stays", MIB, 7);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, make_and_drop, saver) == 0);
    for (int i = 0; i < 100; ++i) {
        size_t bytes = 0;
        memsaver_usage usage = MEMSAVER_USAGE_INIT;
        OK(memsaver_prepare(saver, NULL, 0));
        OK(memsaver_pause(saver, NULL, 0, NULL, NULL));
        OK(memsaver_get_usage(saver, NULL, 0, &usage));
        OK(memsaver_bytes_to_resume(saver, NULL, 0, &bytes));
        OK(memsaver_resume(saver, NULL, 0, NULL, NULL));
        OK(memsaver_invalidate(saver, NULL, 0));
        OK(memsaver_trim(saver, NULL, 0, NULL, NULL));
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    pthread_join(thread, NULL);
    CHECK(reads(block, 7, MIB));
    memsaver_destroy(saver);
}

static void count_ignored(void* context, const memsaver_event* event) {
    if (event->kind == MEMSAVER_EVENT_IGNORED) ++*(int*)context;
}

/// A saver that closes ends a thread's regions innermost first: none ends out of order.
static void test_regions_end_in_order(void) {
    for (int destroy = 0; destroy < 2; ++destroy) {
        int ignored = 0;
        memsaver_options options = options_of_machine;
        options.on_event = count_ignored;
        options.on_event_context = &ignored;
        memsaver_saver* saver = NULL;
        OK(memsaver_create(&options, &saver));
        const char* names[] = {"one", "two", "three"};
        for (size_t i = 0; i < COUNT(names); ++i) OK(memsaver_push_region(saver, names[i]));
        if (destroy == 0) OK(memsaver_close(saver));
        memsaver_destroy(saver);
        CHECK(ignored == 0);
    }
}

static void* leave_a_region(void* saver) {
    OK(memsaver_push_region(saver, "left"));
    return NULL;
}

static void* expect_no_region(void* saver) {
    void* block = NULL;
    MISUSE(memsaver_allocate(saver, NULL, 1000, 0, &block), "no open region");
    MISUSE(memsaver_pop_region(saver), "no open region");
    OK(memsaver_push_region(saver, "own"));
    OK(memsaver_allocate(saver, NULL, 1000, 0, &block));
    OK(memsaver_pop_region(saver));
    MISUSE(memsaver_pop_region(saver), "no open region");
    return NULL;
}

/// A region that an ended thread left open is none of a later thread, to which the system gives the same id.
static void test_region_of_an_ended_thread(void) {
    memsaver_saver* saver = made();
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, leave_a_region, saver) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    for (int i = 0; i < 20; ++i) {
        CHECK(pthread_create(&thread, NULL, expect_no_region, saver) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
    }
    memsaver_usage usage = MEMSAVER_USAGE_INIT;
    const char* names[] = {"left"};
    OK(memsaver_get_usage(saver, names, 1, &usage));
    CHECK(usage.blocks == 0);
    memsaver_destroy(saver);
}

/// Times at the end of their range mean for ever; options that cannot mean anything are refused.
static void test_limits_of_options(void) {
    memsaver_saver* saver = made();
    OK(memsaver_make_tag(saver, "a", NULL));
    void* block = NULL;
    OK(memsaver_allocate(saver, "a", MIB, 0, &block));
    memsaver_pause_options pausing = MEMSAVER_PAUSE_OPTIONS_INIT;
    pausing.timeout_ns = INT64_MAX;
    CHECK(!memsaver_is_paused(saver, block, MIB));
    OK(memsaver_pause(saver, NULL, 0, &pausing, NULL));
    CHECK(memsaver_is_paused(saver, block, MIB));
    CHECK(memsaver_is_paused(saver, (char*)block + MIB - 1, 1));
    CHECK(!memsaver_is_paused(saver, &block, 1) && !memsaver_is_paused(saver, block, 0));
    CHECK(!memsaver_is_paused(NULL, block, 1));
    memsaver_resume_options resuming = MEMSAVER_RESUME_OPTIONS_INIT;
    resuming.room_within_ns = INT64_MAX;
    OK(memsaver_resume(saver, NULL, 0, &resuming, NULL));
    CHECK(!memsaver_is_paused(saver, block, MIB));

    memsaver_policy policy = MEMSAVER_POLICY_INIT;
    policy.kind = MEMSAVER_HOST_BACKUP;
    memsaver_arena_options options = MEMSAVER_ARENA_OPTIONS_INIT;
    options.policy = &policy;
    policy.threads = 1000000;
    MISUSE(memsaver_make_tag(saver, "b", &options), "HostBackup::threads is 1000000; valid: 1 to 1024");
    policy.threads = 0;
    policy.ring_bytes = (size_t)1 << 60;
    MISUSE(memsaver_make_tag(saver, "b", &options), "HostBackup::ring_bytes");
    policy.ring_bytes = 0;
    policy.refresh = 9;
    MISUSE(memsaver_make_tag(saver, "b", &options), "refresh");
    policy.refresh = MEMSAVER_ONCE;
    policy.retain = false;
    MISUSE(memsaver_make_tag(saver, "b", &options), "HostBackup::retain");
    memsaver_destroy(saver);
}

static memsaver_result of_the_sink;

static void call_the_saver(void* context, const memsaver_event* event) {
    (void)event;
    memsaver_saver* saver = *(memsaver_saver**)context;
    if (saver != NULL) of_the_sink = memsaver_trim(saver, NULL, 0, NULL, NULL);
}

static void test_sink_that_calls_the_saver(void) {
    memsaver_saver* self = NULL;
    memsaver_options options = options_of_machine;
    options.on_event = call_the_saver;
    options.on_event_context = &self;
    memsaver_saver* saver = NULL;
    OK(memsaver_create(&options, &saver));
    OK(memsaver_make_tag(saver, "a", NULL));
    self = saver;
    of_the_sink = MEMSAVER_OK;
    OK(memsaver_pause(saver, NULL, 0, NULL, NULL));
    IS(MEMSAVER_MISUSE, of_the_sink);
    self = NULL;
    memsaver_destroy(saver);
}

// Only on host memory, where the test can choose the capacity.
static void test_evict_for_allocations(void) {
    memsaver_options options = options_of_machine;
    options.host_capacity = 64 * MIB;
    memsaver_policy keep = MEMSAVER_POLICY_INIT;
    keep.kind = MEMSAVER_HOST_BACKUP;
    memsaver_arena_options idle = MEMSAVER_ARENA_OPTIONS_INIT;
    idle.policy = &keep;
    idle.evictable = true;
    for (int evicts = 0; evicts < 2; ++evicts) {
        options.evict_for_allocations = evicts == 1;
        memsaver_saver* saver = NULL;
        OK(memsaver_create(&options, &saver));
        OK(memsaver_make_tag(saver, "idle", &idle));
        void* block = NULL;
        OK(memsaver_allocate(saver, "idle", 40 * MIB, 0, &block));
        memsaver_report report = MEMSAVER_REPORT_INIT;
        const memsaver_result result = memsaver_allocate(saver, "new", 40 * MIB, 0, &block);
        IS(evicts ? MEMSAVER_OK : MEMSAVER_OUT_OF_MEMORY, result);
        IS(evicts ? MEMSAVER_OUT_OF_MEMORY : MEMSAVER_OK,
           memsaver_resume(saver, NULL, 0, NULL, &report)); // is it away?
        CHECK(report.mapped_bytes == 0);
        memsaver_destroy(saver);
    }
}

/// Holds a pause in progress while another thread pauses the same tag.
typedef struct Held {
    pthread_barrier_t began, asked;
    bool first;
} Held;

static void hold(void* context, const memsaver_event* event) {
    Held* held = context;
    if (event->kind != MEMSAVER_EVENT_PROGRESS || !held->first) return;
    held->first = false;
    pthread_barrier_wait(&held->began);
    pthread_barrier_wait(&held->asked);
}

static void* pause_all(void* saver) {
    OK(memsaver_pause(saver, NULL, 0, NULL, NULL));
    return NULL;
}

static void test_not_idle(void) {
    Held held;
    held.first = true;
    pthread_barrier_init(&held.began, NULL, 2);
    pthread_barrier_init(&held.asked, NULL, 2);
    memsaver_options options = options_of_machine;
    options.on_event = hold;
    options.on_event_context = &held;
    memsaver_saver* saver = NULL;
    OK(memsaver_create(&options, &saver));
    memsaver_policy keep = MEMSAVER_POLICY_INIT;
    keep.kind = MEMSAVER_HOST_BACKUP;
    memsaver_arena_options keeping = MEMSAVER_ARENA_OPTIONS_INIT;
    keeping.policy = &keep;
    OK(memsaver_make_tag(saver, "tag", &keeping));
    void* block = NULL;
    OK(memsaver_allocate(saver, "tag", 3 * MIB, 0, &block));
    put(block, 1, 3 * MIB);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, pause_all, saver) == 0);
    pthread_barrier_wait(&held.began);
    memsaver_pause_options soon = MEMSAVER_PAUSE_OPTIONS_INIT;
    soon.timeout_ns = 1000000;
    soon.order = MEMSAVER_ALREADY_IDLE;
    IS(MEMSAVER_NOT_IDLE, memsaver_pause(saver, NULL, 0, &soon, NULL));
    IS(MEMSAVER_NOT_IDLE, memsaver_trim(saver, NULL, 0, &soon, NULL));
    const char* names[] = {"tag"};
    memsaver_exchange_options exchanging = MEMSAVER_EXCHANGE_OPTIONS_INIT;
    exchanging.pausing = &soon;
    IS(MEMSAVER_NOT_IDLE, memsaver_exchange(saver, names, 1, names, 0, &exchanging, NULL));
    IS(MEMSAVER_NOT_IDLE, memsaver_exchange(saver, names, 0, names, 1, &exchanging, NULL));
    pthread_barrier_wait(&held.asked);
    pthread_join(thread, NULL);
    OK(memsaver_resume(saver, NULL, 0, NULL, NULL));

    // Orders. The default stream belongs to every device.
    void* streams[] = {NULL};
    memsaver_pause_options after = MEMSAVER_PAUSE_OPTIONS_INIT;
    after.order = MEMSAVER_AFTER_STREAMS;
    after.streams = streams;
    after.stream_count = 1;
    OK(memsaver_pause(saver, NULL, 0, &after, NULL));
    OK(memsaver_resume(saver, NULL, 0, NULL, NULL));
    OK(memsaver_trim(saver, NULL, 0, &after, NULL));
    after.stream_count = 0;
    MISUSE(memsaver_pause(saver, NULL, 0, &after, NULL), "no stream and no CUDA event");
    after.event_count = 1;
    MISUSE(memsaver_pause(saver, NULL, 0, &after, NULL), "list of events is null");
    after.events = streams;
    MISUSE(memsaver_pause(saver, NULL, 0, &after, NULL), "an event is null");
    after.order = MEMSAVER_AFTER_DEVICE;
    MISUSE(memsaver_pause(saver, NULL, 0, &after, NULL), "MEMSAVER_AFTER_STREAMS");
    memsaver_destroy(saver);
    pthread_barrier_destroy(&held.began);
    pthread_barrier_destroy(&held.asked);
}

// --- Null and invalid arguments ---

static int hook_of_nobody(void* context, const memsaver_hook_event* event) {
    (void)context;
    (void)event;
    return 0;
}

static void test_null(void) {
    memsaver_saver* saver = made();
    memsaver_arena* arena = NULL;
    OK(memsaver_get_arena(saver, "tag", NULL, &arena));
    void* p = NULL;
    char* text = NULL;
    size_t bytes = 0;
    char to[4];
    memsaver_info info = MEMSAVER_INFO_INIT;
    memsaver_usage usage = MEMSAVER_USAGE_INIT;
    memsaver_hook* hook = NULL;
    const char* none[] = {NULL};

    // Null handles.
    MISUSE(memsaver_close(NULL), "saver is null");
    MISUSE(memsaver_get_info(NULL, &info), "saver is null");
    MISUSE(memsaver_set_margin(NULL, 0), "saver is null");
    MISUSE(memsaver_make_tag(NULL, "tag", NULL), "saver is null");
    memsaver_arena* no_arena = arena;
    MISUSE(memsaver_get_arena(NULL, "tag", NULL, &no_arena), "saver is null");
    CHECK(no_arena == NULL);
    MISUSE(memsaver_drop(NULL, NULL, 0), "saver is null");
    MISUSE(memsaver_set_capacity(NULL, NULL, 0, 0), "saver is null");
    MISUSE(memsaver_set_retain(NULL, NULL, 0, true), "saver is null");
    MISUSE(memsaver_torch_push(NULL), "arena is null");
    MISUSE(memsaver_torch_pop(), "pushed no arena");
    CHECK(memsaver_torch_allocate(8, 0, NULL) == NULL);
    CHECK(strstr(memsaver_last_error(), "pushed no arena") != NULL);
    memsaver_torch_free(NULL, 8, 0, NULL);
    MISUSE(memsaver_allocate(NULL, "tag", 1, 0, &p), "saver is null");
    MISUSE(memsaver_allocate(NULL, "tag", 0, 0, &p), "saver is null");
    MISUSE(memsaver_allocate_on(NULL, "tag", 1, 0, NULL, &p), "saver is null");
    MISUSE(memsaver_deallocate(NULL, &p), "saver is null");
    MISUSE(memsaver_deallocate_on(NULL, &p, NULL), "saver is null");
    MISUSE(memsaver_deallocate_idle(NULL, &p), "saver is null");
    MISUSE(memsaver_arena_allocate(NULL, 1, 0, &p), "arena is null");
    MISUSE(memsaver_arena_allocate_on(NULL, 1, 0, NULL, &p), "arena is null");
    MISUSE(memsaver_arena_deallocate(NULL, &p), "arena is null");
    MISUSE(memsaver_arena_deallocate_on(NULL, &p, NULL), "arena is null");
    MISUSE(memsaver_arena_deallocate_idle(NULL, &p), "arena is null");
    CHECK(!memsaver_owns(NULL, &p));
    MISUSE(memsaver_read_backup(NULL, &p, 1, to), "saver is null");
    MISUSE(memsaver_write_backup(NULL, &p, to, 1), "saver is null");
    MISUSE(memsaver_push_region(NULL, "tag"), "saver is null");
    MISUSE(memsaver_push_arena(NULL, arena), "saver is null");
    MISUSE(memsaver_push_outside(NULL), "saver is null");
    MISUSE(memsaver_pop_region(NULL), "saver is null");
    MISUSE(memsaver_pause(NULL, NULL, 0, NULL, NULL), "saver is null");
    MISUSE(memsaver_resume(NULL, NULL, 0, NULL, NULL), "saver is null");
    MISUSE(memsaver_exchange(NULL, NULL, 0, NULL, 0, NULL, NULL), "saver is null");
    MISUSE(memsaver_trim(NULL, NULL, 0, NULL, NULL), "saver is null");
    MISUSE(memsaver_bytes_to_resume(NULL, NULL, 0, &bytes), "saver is null");
    MISUSE(memsaver_prepare(NULL, NULL, 0), "saver is null");
    MISUSE(memsaver_invalidate(NULL, NULL, 0), "saver is null");
    MISUSE(memsaver_forget_backup(NULL, NULL, 0), "saver is null");
    MISUSE(memsaver_add_hook(NULL, 0, hook_of_nobody, NULL, &hook), "saver is null");
    MISUSE(memsaver_get_usage(NULL, NULL, 0, &usage), "saver is null");
    MISUSE(memsaver_get_arena_usage(NULL, &usage), "arena is null");
    MISUSE(memsaver_get_usage_json(NULL, &text), "saver is null");
    memsaver_destroy(NULL);
    memsaver_release_arena(NULL);
    memsaver_remove_hook(NULL);

    // Null output pointers.
    MISUSE(memsaver_create(NULL, NULL), "output pointer is null");
    MISUSE(memsaver_get_last_error(NULL), "output pointer is null");
    MISUSE(memsaver_get_info(saver, NULL), "output pointer is null");
    MISUSE(memsaver_get_arena(saver, "tag", NULL, NULL), "output pointer is null");
    MISUSE(memsaver_allocate(saver, "tag", 1, 0, NULL), "output pointer is null");
    MISUSE(memsaver_allocate_on(saver, "tag", 1, 0, NULL, NULL), "output pointer is null");
    MISUSE(memsaver_arena_allocate(arena, 1, 0, NULL), "output pointer is null");
    MISUSE(memsaver_arena_allocate_on(arena, 1, 0, NULL, NULL), "output pointer is null");
    MISUSE(memsaver_read_backup(saver, &p, 1, NULL), "output pointer is null");
    MISUSE(memsaver_bytes_to_resume(saver, NULL, 0, NULL), "output pointer is null");
    MISUSE(memsaver_get_usage(saver, NULL, 0, NULL), "output pointer is null");
    MISUSE(memsaver_get_arena_usage(arena, NULL), "output pointer is null");
    MISUSE(memsaver_get_usage_json(saver, NULL), "output pointer is null");

    // Names, functions, arenas.
    MISUSE(memsaver_make_tag(saver, NULL, NULL), "tag is null");
    MISUSE(memsaver_push_region(saver, NULL), "tag is null");
    MISUSE(memsaver_push_arena(saver, NULL), "arena is null");
    MISUSE(memsaver_pop_region(saver), "no open region");
    MISUSE(memsaver_pause(saver, none, 1, NULL, NULL), "name of a tag is null");
    MISUSE(memsaver_pause(saver, none, MEMSAVER_UNDER, NULL, NULL), "prefix is null");
    MISUSE(memsaver_pause(saver, NULL, 1, NULL, NULL), "list of tags is null");
    MISUSE(memsaver_add_hook(saver, 0, NULL, NULL, &hook), "function is null");
    MISUSE(memsaver_add_hook(saver, 4, hook_of_nobody, NULL, &hook), "moment cannot be 4");
    MISUSE(memsaver_add_hook(saver, -1, hook_of_nobody, NULL, NULL), "moment cannot be -1");
    CHECK(hook == NULL);
    MISUSE(memsaver_allocate(saver, NULL, 1, 0, &p), "no open region");
    MISUSE(memsaver_deallocate(saver, &p), "no tag of this saver contains this pointer");
    MISUSE(memsaver_read_backup(saver, &p, 1, to), "no tag of this saver contains this pointer");

    memsaver_release_arena(arena);
    memsaver_destroy(saver);
}

static void test_structures(void) {
    memsaver_saver* saver = NULL;
    memsaver_options options = options_of_machine;
    options.size = 0;
    MISUSE(memsaver_create(&options, &saver), "MEMSAVER_..._INIT");
    CHECK(saver == NULL);
    options.size = (size_t)-1;
    MISUSE(memsaver_create(&options, &saver), "MEMSAVER_..._INIT");
    options = options_of_machine;
    options.driver = 3;
    MISUSE(memsaver_create(&options, &saver), "driver cannot be 3");
    options.driver = options_of_machine.driver;
    options.export_handles = -1;
    MISUSE(memsaver_create(&options, &saver), "export_handles cannot be -1");
    options.export_handles = 0;
    options.peer_count = 1;
    MISUSE(memsaver_create(&options, &saver), "list of peers is null");

    // A program compiled before some fields were added: they get their defaults.
    options = options_of_machine;
    options.enabled = true;
    options.margin = 123;
    options.size = offsetof(memsaver_options, margin);
    OK(memsaver_create(&options, &saver));

    // A program compiled with more fields than the library knows.
    struct {
        memsaver_report known;
        size_t unknown;
    } report = {MEMSAVER_REPORT_INIT, 5};
    report.known.size = sizeof report;
    report.known.released_bytes = 77;
    void* block = NULL;
    OK(memsaver_allocate(saver, "tag", MIB, 0, &block));
    OK(memsaver_pause(saver, NULL, 0, NULL, &report.known));
    CHECK(report.known.released_bytes >= MIB && report.unknown == 0 && report.known.size == sizeof report);
    report.known.size = offsetof(memsaver_report, saved_bytes);
    report.known.saved_bytes = 99;
    OK(memsaver_pause(saver, NULL, 0, NULL, &report.known));
    CHECK(report.known.released_bytes == 0 && report.known.saved_bytes == 99);
    report.known.size = 1;
    MISUSE(memsaver_resume(saver, NULL, 0, NULL, &report.known), "memsaver_report");
    struct {
        memsaver_resume_options known;
        size_t unknown;
    } resuming = {MEMSAVER_RESUME_OPTIONS_INIT, 0};
    resuming.known.size = sizeof resuming;
    OK(memsaver_resume(saver, NULL, 0, &resuming.known, NULL));
    resuming.unknown = 1;
    MISUSE(memsaver_resume(saver, NULL, 0, &resuming.known, NULL), "older than the header");

    // Policies and others.
    memsaver_policy policy = MEMSAVER_POLICY_INIT;
    memsaver_arena_options arena = MEMSAVER_ARENA_OPTIONS_INIT;
    arena.policy = &policy;
    policy.kind = 5;
    MISUSE(memsaver_make_tag(saver, "new", &arena), "kind cannot be 5");
    policy.kind = MEMSAVER_FILE_BACKUP;
    MISUSE(memsaver_make_tag(saver, "new", &arena), "directory");
    policy.kind = MEMSAVER_DISCARD;
    policy.poison = 256;
    MISUSE(memsaver_make_tag(saver, "new", &arena), "poison");
    policy.poison = -1;
    policy.refresh = 2;
    policy.storage = 9;
    OK(memsaver_make_tag(saver, "no use for them", &arena));
    policy.storage = 0;
    policy.kind = MEMSAVER_HOST_BACKUP;
    MISUSE(memsaver_make_tag(saver, "new", &arena), "refresh cannot be 2");
    policy.refresh = 0;
    policy.storage = -5;
    MISUSE(memsaver_make_tag(saver, "new", &arena), "storage cannot be -5");
    policy.storage = 0;
    policy.size = 3;
    MISUSE(memsaver_make_tag(saver, "new", &arena), "memsaver_policy: its size field is 3");
    memsaver_pause_options pausing = MEMSAVER_PAUSE_OPTIONS_INIT;
    pausing.order = 3;
    MISUSE(memsaver_pause(saver, NULL, 0, &pausing, NULL), "order cannot be 3");
    memsaver_arena* late = NULL;
    OK(memsaver_get_arena(saver, "no use for them", NULL, &late));
    OK(memsaver_close(saver));
    MISUSE(memsaver_push_arena(saver, late), "closed");
    MISUSE(memsaver_pop_region(saver), "no open region");
    memsaver_release_arena(late);
    memsaver_destroy(saver);
}

static void test_errors_text(void) {
    memsaver_saver* saver = made();
    char name[3000]; // two-byte characters, so that the message is cut within one
    for (size_t i = 0; i + 2 < sizeof name; i += 2) memcpy(name + i, "\xc3\xa4", 2);
    name[sizeof name - 2] = '\0';
    const char* names[] = {name};
    IS(MEMSAVER_MISUSE, memsaver_pause(saver, names, 1, NULL, NULL));
    const char* text = memsaver_last_error();
    const size_t size = strlen(text);
    CHECK(size >= 2000 && size < 2048 && (unsigned char)text[size - 1] == 0xa4);
    OK(memsaver_close(saver)); // success does not change the message
    CHECK(strlen(memsaver_last_error()) == size);
    memsaver_error error = MEMSAVER_ERROR_INIT;
    OK(memsaver_get_last_error(&error));
    CHECK(error.result == MEMSAVER_MISUSE && error.driver_code == 0 && strcmp(error.driver_name, "") == 0);
    memsaver_destroy(saver);
}

static void test_fork(void) {
    memsaver_saver* saver = made();
    memsaver_arena* arena = NULL;
    OK(memsaver_get_arena(saver, "tag", NULL, &arena));
    OK(memsaver_push_region(saver, "tag"));
    void* block = NULL;
    OK(memsaver_allocate(saver, NULL, MIB, 0, &block));
    put(block, 4, MIB);
    const pid_t child = fork();
    if (child == 0) {
        failures = 0;
        memsaver_info info = MEMSAVER_INFO_INIT;
        void* other = NULL;
        char* text = NULL;
        MISUSE(memsaver_get_info(saver, &info), "fork");
        MISUSE(memsaver_allocate(saver, "tag", 1, 0, &other), "fork");
        MISUSE(memsaver_allocate(saver, NULL, 1, 0, &other), "fork");
        MISUSE(memsaver_deallocate(saver, block), "fork");
        MISUSE(memsaver_push_region(saver, "tag"), "fork");
        MISUSE(memsaver_push_outside(saver), "fork");
        MISUSE(memsaver_pop_region(saver), "fork");
        MISUSE(memsaver_pause(saver, NULL, 0, NULL, NULL), "fork");
        const char* names[] = {"tag"};
        MISUSE(memsaver_exchange(saver, names, 1, names, 0, NULL, NULL), "fork");
        MISUSE(memsaver_write_backup(saver, block, "", 1), "fork");
        memsaver_use* use = NULL;
        memsaver_arrival* coming = NULL;
        MISUSE(memsaver_begin_use(saver, names, 1, NULL, &use), "fork");
        MISUSE(memsaver_resume_async(saver, names, 1, NULL, &coming), "fork");
        MISUSE(memsaver_save(saver, names, 1, NULL, &coming), "fork");
        MISUSE(memsaver_reclaim(saver, 1, NULL, NULL, NULL), "fork");
        MISUSE(memsaver_load(saver, block, 1, "file", 0), "fork");
        MISUSE(memsaver_invalidate_range(saver, block, 1), "fork");
        MISUSE(memsaver_get_usage_json(saver, &text), "fork");
        MISUSE(memsaver_add_hook(saver, 0, hook_of_nobody, NULL, NULL), "fork");
        MISUSE(memsaver_set_margin(saver, 1), "fork");
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
    memsaver_saver* saver = NULL;
    memsaver_options options = MEMSAVER_OPTIONS_INIT;
    options.cuda_library = "libmemsaver-has-no-such-driver.so.1";
    options.driver = MEMSAVER_DRIVER_CUDA;
    IS(MEMSAVER_UNAVAILABLE, memsaver_create(&options, &saver));
    CHECK(saver == NULL && strstr(memsaver_last_error(), "no CUDA driver") != NULL);
    options.driver = MEMSAVER_DRIVER_DEFAULT;
    options.host_capacity = 64 * MIB;
    options.host_granularity = 64 << 10;
    OK(memsaver_create(&options, &saver));
    memsaver_info info = MEMSAVER_INFO_INIT;
    OK(memsaver_get_info(saver, &info));
    CHECK(info.driver == MEMSAVER_DRIVER_HOST && info.total_bytes == 64 * MIB && info.granularity == 64 << 10);
    memsaver_arena_options arena = MEMSAVER_ARENA_OPTIONS_INIT;
    arena.device = 5;
    MISUSE(memsaver_make_tag(saver, "tag", &arena), "no device 5");
    arena.device = 0;
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
        fail(__LINE__, "there is no stub");
        return;
    }
    memsaver_options options = MEMSAVER_OPTIONS_INIT;
    options.driver = MEMSAVER_DRIVER_CUDA;
    options.cuda_library = library;
    memsaver_saver* saver = NULL;
    OK(memsaver_create(&options, &saver));
    memsaver_info info = MEMSAVER_INFO_INIT;
    OK(memsaver_get_info(saver, &info));
    CHECK(info.driver == MEMSAVER_DRIVER_CUDA && strstr(info.name, "Stub GPU") != NULL);
    void* block = NULL;
    OK(memsaver_allocate(saver, "tag", 100, 0, &block));
    const char* names[] = {"tag"};

    fail_call("cuMemUnmap", 1); // invalid value
    memsaver_report report = MEMSAVER_REPORT_INIT;
    IS(MEMSAVER_DRIVER_ERROR, memsaver_pause(saver, names, 1, NULL, &report));
    memsaver_error error = MEMSAVER_ERROR_INIT;
    OK(memsaver_get_last_error(&error));
    CHECK(error.result == MEMSAVER_DRIVER_ERROR && error.driver_code == 1 && report.released_bytes == 0);
    CHECK(strcmp(error.driver_name, "CUDA_ERROR_INVALID_VALUE") == 0 && strcmp(error.tag, "tag") == 0);
    fail_call("cuMemUnmap", 0);
    OK(memsaver_pause(saver, names, 1, NULL, &report));
    CHECK(report.released_bytes > 0);
    fail_call("cuMemCreate", 700); // an illegal address: the context is lost
    IS(MEMSAVER_DEVICE_LOST, memsaver_resume(saver, names, 1, NULL, NULL));
    fail_call("cuMemCreate", 2);
    IS(MEMSAVER_OUT_OF_MEMORY, memsaver_resume(saver, names, 1, NULL, NULL));
    OK(memsaver_get_last_error(&error));
    CHECK(strcmp(error.driver_name, "CUDA_ERROR_OUT_OF_MEMORY") == 0 && error.needed_bytes > 0);
    fail_call("cuMemCreate", 0);
    OK(memsaver_resume(saver, names, 1, NULL, NULL));

    fail_call("cuMemRelease", 1); // freed for the program, held for the driver
    IS(MEMSAVER_DRIVER_ERROR, memsaver_pause(saver, names, 1, NULL, &report));
    CHECK(report.held_bytes > 0);
    fail_call("cuMemRelease", 0);
    OK(memsaver_pause(saver, names, 1, NULL, &report));
    CHECK(report.held_bytes == 0 && report.released_bytes > 0);

    // Another device of the same saver.
    memsaver_arena_options second = MEMSAVER_ARENA_OPTIONS_INIT;
    second.device = 1;
    memsaver_arena* arena = NULL;
    OK(memsaver_get_arena(saver, "tag", &second, &arena));
    memsaver_release_arena(arena);
    second.device = 99;
    MISUSE(memsaver_get_arena(saver, "tag", &second, &arena), "99");
    OK(memsaver_close(saver));
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
    test_write_backup();
    test_no_bytes();
    test_arenas();
    test_torch();
    test_retain();
    test_regions_end_in_order();
    test_region_of_an_ended_thread();
    test_limits_of_options();
    test_sink_that_calls_the_saver();
    test_policies();
    test_compressed();
    test_usage();
    test_switched_off();
    test_arrivals();
    test_load();
    test_uses();
    test_elastic();
    test_hooks();
    test_throwing_hooks();
    test_damage();
    test_threads();
    test_all_tags_and_a_drop();
    test_not_idle();
    test_null();
    test_structures();
    test_errors_text();
    if (host) {
        test_no_room();
        test_evict_for_allocations();
        test_uses_without_room();
        test_machines();
    }
    if (failures != 0) fprintf(stderr, "%d failures\n", failures);
    return failures != 0;
}
