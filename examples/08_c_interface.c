// The C interface: tags with policies, regions, pause and resume, a hook, and error messages.
#include <memsaver/c.h>

#include <stdio.h>

#define MIB ((size_t)1 << 20)

// Every call returns a result code; the message of the last error is per thread.
static int failed(memsaver_result result) {
    if (result != MEMSAVER_OK) fprintf(stderr, "%s: %s\n", memsaver_result_name(result), memsaver_last_error());
    return result != MEMSAVER_OK;
}

static int before_pause(void* context, const memsaver_hook_event* event) {
    printf("%s: %zu tags will be paused\n", (const char*)context, event->tag_count);
    return 0; // any other value refuses the pause
}

static int run(memsaver_saver* saver) {
    memsaver_info machine = MEMSAVER_INFO_INIT;
    if (failed(memsaver_get_info(saver, &machine))) return 1;
    printf("%s: %zu of %zu MiB are free\n", machine.name, machine.free_bytes / MIB, machine.total_bytes / MIB);

    // The first use makes a tag, or memsaver_make_tag makes it beforehand with its options.
    memsaver_policy keep = MEMSAVER_POLICY_INIT;
    keep.kind = MEMSAVER_HOST_BACKUP;
    memsaver_arena_options options = MEMSAVER_ARENA_OPTIONS_INIT;
    options.policy = &keep;
    if (failed(memsaver_make_tag(saver, "weights", &options))) return 1;
    void* weights = NULL;
    if (failed(memsaver_allocate(saver, "weights", 32 * MIB, 0, &weights))) return 1;

    // In a region, this thread's allocations that name no tag go to the region's tag.
    void* cache = NULL;
    if (failed(memsaver_push_region(saver, "kv_cache"))) return 1;
    if (failed(memsaver_allocate(saver, NULL, 64 * MIB, 0, &cache))) return 1;
    if (failed(memsaver_pop_region(saver))) return 1;

    char name[] = "engine";
    if (failed(memsaver_add_hook(saver, MEMSAVER_BEFORE_PAUSE, before_pause, name, NULL))) return 1;
    memsaver_report report = MEMSAVER_REPORT_INIT;
    if (failed(memsaver_pause(saver, NULL, 0, NULL, &report))) return 1; // every tag
    printf("released %zu MiB, saved %zu MiB\n", report.released_bytes / MIB, report.saved_bytes / MIB);

    const char* first[] = {"weights"}; // a staged resume: first the weights, later the cache
    if (failed(memsaver_resume(saver, first, 1, NULL, &report))) return 1;
    printf("resumed weights: restored %zu MiB\n", report.restored_bytes / MIB);
    size_t needed = 0;
    if (failed(memsaver_bytes_to_resume(saver, NULL, 0, &needed))) return 1;
    printf("%zu MiB left to resume\n", needed / MIB);

    const char* wrong[] = {"kv_cahce"};
    if (memsaver_resume(saver, wrong, 1, NULL, NULL) == MEMSAVER_MISUSE) printf("%s\n", memsaver_last_error());
    if (failed(memsaver_resume(saver, NULL, 0, NULL, NULL))) return 1;

    memsaver_use* use = NULL; // a tag in use is not paused; afterwards it may be evicted
    if (failed(memsaver_begin_use(saver, first, 1, NULL, &use))) return 1;
    memsaver_end_use(use);
    memsaver_reclaimed got = MEMSAVER_RECLAIMED_INIT;
    if (failed(memsaver_reclaim(saver, 16 * MIB, NULL, &got, NULL))) return 1;
    printf("reclaimed %zu MiB\n", got.evicted_bytes / MIB);

    char* usage = NULL;
    if (failed(memsaver_get_usage_json(saver, &usage))) return 1;
    printf("%s\n", usage);
    memsaver_free_text(usage);
    if (failed(memsaver_deallocate(saver, cache)) || failed(memsaver_deallocate(saver, weights))) return 1;
    return failed(memsaver_close(saver));
}

int main(void) {
    memsaver_saver* saver = NULL; // on a GPU if there is one, otherwise in host memory
    if (failed(memsaver_create(NULL, &saver))) return 1;
    const int result = run(saver);
    memsaver_destroy(saver);
    return result;
}
