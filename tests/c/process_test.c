// How the C interface behaves in processes that fork, end and cancel threads. Each case runs in a forked child, so that
// one that hangs or crashes is a failure. Returns 0 on success.
#define _GNU_SOURCE
#include "checks.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HOST(...) OPTIONS(.driver = MEMSAVER_DRIVER_HOST, .host_capacity = 256 * MIB, __VA_ARGS__)

static memsaver_saver* made_with(const memsaver_options* options) {
    memsaver_saver* saver = NULL;
    OK(memsaver_create(options, &saver));
    return saver;
}

static memsaver_saver* made(void) { return made_with(HOST()); }

static const char* const tag = "tag";

static void make_tag(memsaver_saver* saver) {
    OK(memsaver_make_tag(saver, tag, ARENA(.policy = POLICY(.kind = MEMSAVER_HOST_BACKUP))));
}

static void pause_and_resume(memsaver_saver* saver) {
    void* block = NULL;
    OK(memsaver_allocate(saver, tag, MIB, 0, &block));
    if (block == NULL) return;
    memset(block, 7, MIB);
    OK(memsaver_pause(saver, &tag, 1, NULL, NULL));
    OK(memsaver_resume(saver, &tag, 1, NULL, NULL));
    CHECK(((unsigned char*)block)[MIB - 1] == 7);
    OK(memsaver_deallocate(saver, block));
}

// --- pthread_exit in main: the process ends with its last thread, and runs its exit there ---

static void leave_main(void* unused) {
    (void)unused;
    memsaver_saver* saver = made(); // never destroyed
    make_tag(saver);
    pause_and_resume(saver);
    if (failures != 0) _exit(1);
    pthread_exit(NULL);
}

// --- Cancelled threads ---

static void* use_for_ever(void* saver) {
    for (;;) {
        void* block = NULL;
        if (memsaver_allocate(saver, tag, 64 * 1024, 0, &block) != MEMSAVER_OK) continue;
        memsaver_pause(saver, &tag, 1, NULL, NULL);
        memsaver_resume(saver, &tag, 1, NULL, NULL);
        memsaver_deallocate(saver, block);
        pthread_testcancel();
    }
    return NULL;
}

static void cancel(void* unused) {
    (void)unused;
    memsaver_saver* saver = made();
    make_tag(saver);
    for (int i = 0; i < 20; ++i) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, use_for_ever, saver) == 0);
        usleep((useconds_t)(1000 + 777 * i));
        CHECK(pthread_cancel(thread) == 0);
        void* result = NULL;
        CHECK(pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
    }
    pause_and_resume(saver); // no lock is left taken
    int state = -1;
    CHECK(pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &state) == 0 && state == PTHREAD_CANCEL_ENABLE);
    memsaver_destroy(saver);
}

// --- Forked children of a process whose threads are inside the library ---

static int stop = 0;

static void* allocate_for_torch(void* arena) {
    if (memsaver_torch_push(arena) != MEMSAVER_OK) return NULL;
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED))
        memsaver_torch_free(memsaver_torch_allocate(512, 0, NULL), 512, 0, NULL);
    memsaver_torch_pop();
    return NULL;
}

static void free_inherited(void* block) {
    memsaver_torch_free(block, 4096, 0, NULL); // PyTorch in a worker of a data loader
}

static void have_own(void* unused) {
    (void)unused;
    memsaver_saver* saver = made();
    memsaver_arena* arena = NULL;
    OK(memsaver_get_arena(saver, tag, NULL, &arena));
    OK(memsaver_torch_push(arena));
    void* block = memsaver_torch_allocate(4096, 0, NULL);
    CHECK(block != NULL);
    memsaver_torch_free(block, 4096, 0, NULL);
    OK(memsaver_torch_pop());
    memsaver_release_arena(arena);
    memsaver_destroy(saver);
}

static void test_forks(void) {
    memsaver_saver* saver = made();
    memsaver_arena* arena = NULL;
    OK(memsaver_get_arena(saver, tag, NULL, &arena));
    OK(memsaver_torch_push(arena));
    void* const inherited = memsaver_torch_allocate(4096, 0, NULL);
    pthread_t threads[2];
    for (int i = 0; i < 2; ++i) CHECK(pthread_create(&threads[i], NULL, allocate_for_torch, arena) == 0);
    for (int i = 0; i < 100 && failures == 0; ++i) {
        in_child("free of a parent's block", free_inherited, inherited);
        in_child("a saver of the child's own", have_own, NULL);
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < 2; ++i) pthread_join(threads[i], NULL);
    memset(inherited, 1, 4096); // still the parent's
    memsaver_torch_free(inherited, 4096, 0, NULL);
    OK(memsaver_torch_pop());
    memsaver_release_arena(arena);
    memsaver_destroy(saver);
}

// --- Blocks for PyTorch ---

static void free_for_torch(void* context, const memsaver_event* event) {
    if (event->kind != MEMSAVER_EVENT_IGNORED) return;
    ++*(int*)context;
    int stranger = 0;
    memsaver_torch_free(&stranger, 1, 0, NULL); // as a callback in Python frees tensors
}

/// The address of a dropped tag's block is allocated again: the saver of that block ends there, and says what fails.
static void end_with_a_block(void* unused) {
    (void)unused;
    int events = 0;
    memsaver_saver* saver = made_with(HOST(.on_event = free_for_torch, .on_event_context = &events));
    const char* const torch = "torch";
    memsaver_arena* arena = NULL;
    OK(memsaver_get_arena(saver, torch, NULL, &arena));
    OK(memsaver_torch_push(arena));
    void* const block = memsaver_torch_allocate(MIB, 0, NULL);
    OK(memsaver_torch_pop());
    memsaver_release_arena(arena);
    const memsaver_policy* const file = POLICY(.kind = MEMSAVER_FILE_BACKUP, .directory = "/tmp");
    OK(memsaver_make_tag(saver, tag, ARENA(.policy = file)));
    void* other = NULL;
    OK(memsaver_allocate(saver, tag, MIB, 0, &other));
    const int next = open("/dev/null", O_RDONLY);
    CHECK(next >= 0 && close(next) == 0);
    OK(memsaver_pause(saver, &tag, 1, NULL, NULL));
    for (int i = next; i < next + 16; ++i) (void)close(i); // of the backup's file too
    OK(memsaver_drop(saver, &torch, 1));
    memsaver_destroy(saver); // the block keeps it
    CHECK(events == 0);
    saver = made();
    OK(memsaver_get_arena(saver, torch, NULL, &arena));
    OK(memsaver_torch_push(arena));
    void* blocks[64];
    for (int i = 0; i < 64; ++i) blocks[i] = memsaver_torch_allocate(MIB, 0, NULL);
    bool again = false;
    for (int i = 0; i < 64; ++i) again = again || blocks[i] == block;
    CHECK((events != 0) == again);
    for (int i = 0; i < 64; ++i) memsaver_torch_free(blocks[i], MIB, 0, NULL);
    memsaver_torch_free(block, MIB, 0, NULL);
    OK(memsaver_torch_pop());
    memsaver_release_arena(arena);
    memsaver_destroy(saver);
}

int main(void) {
    in_child("pthread_exit in main", leave_main, NULL); // before any other thread exists
    in_child("cancelled threads", cancel, NULL);
    in_child("the end of a saver that a block has kept", end_with_a_block, NULL);
    test_forks();
    return failures != 0;
}
