// Loads the C library at run time, uses it and closes it: unload_test <library>. It stays loaded, because its threads
// may still run, and threads that end destroy what they have of it. Returns 0 on success.
#define _GNU_SOURCE
#include <memsaver/c.h>

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>

typedef memsaver_result (*Create)(const memsaver_options*, memsaver_saver**);
typedef memsaver_result (*Allocate)(memsaver_saver*, const char*, size_t, size_t, void**);
typedef memsaver_result (*Pause)(memsaver_saver*, const char* const*, size_t, const memsaver_pause_options*,
                                 memsaver_report*);

static void* function(void* library, const char* name) {
    void* const found = dlsym(library, name);
    if (found == NULL) fprintf(stderr, "%s\n", dlerror());
    return found;
}

/// Returns whether a library was linked with -z nodelete. Without that it also stays if the linker found a unique
/// symbol in it (STB_GNU_UNIQUE), or while a thread has something to destroy: neither is to be relied on.
static int never_unloaded(void* library) {
    struct link_map* map = NULL;
    if (dlinfo(library, RTLD_DI_LINKMAP, &map) != 0) return 0;
    for (const ElfW(Dyn)* entry = map->l_ld; entry->d_tag != DT_NULL; ++entry) {
        if (entry->d_tag == DT_FLAGS_1) return (entry->d_un.d_val & DF_1_NODELETE) != 0;
    }
    return 0;
}

static const char* path;

/// Runs on a thread of its own, which ends after the library was closed.
static void* use_and_close(void* unused) {
    (void)unused;
    void* const library = dlopen(path, RTLD_NOW);
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return NULL;
    }
    if (!never_unloaded(library)) {
        fprintf(stderr, "the library was linked without -z nodelete\n");
        return NULL;
    }
    Create create;
    Allocate allocate;
    Pause pause;
    *(void**)&create = function(library, "memsaver_create");
    *(void**)&allocate = function(library, "memsaver_allocate");
    *(void**)&pause = function(library, "memsaver_pause");
    memsaver_options options = MEMSAVER_OPTIONS_INIT;
    options.driver = MEMSAVER_DRIVER_HOST;
    options.host_capacity = (size_t)64 << 20;
    memsaver_saver* saver = NULL; // never destroyed
    void* block = NULL;
    if (create(&options, &saver) != MEMSAVER_OK || allocate(saver, "tag", 4096, 0, &block) != MEMSAVER_OK ||
        pause(saver, NULL, 0, NULL, NULL) != MEMSAVER_OK)
        return NULL;
    dlclose(library);
    return block;
}

int main(int count, char** arguments) {
    if (count != 2) return 2;
    path = arguments[1];
    pthread_t thread;
    void* used = NULL;
    if (pthread_create(&thread, NULL, use_and_close, NULL) != 0 || pthread_join(thread, &used) != 0) return 2;
    if (used == NULL) return 1;
    if (dlopen(path, RTLD_NOW | RTLD_NOLOAD) != NULL) return 0;
    fprintf(stderr, "the library was unloaded\n");
    return 1;
}
