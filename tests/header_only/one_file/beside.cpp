// A file of the same program that is compiled header-only.
#include <memsaver/memsaver.hpp>

#ifdef MEMSAVER_COMPILED
#error "this file is to be header-only"
#endif

int beside();
int beside() {
    using namespace memsaver;
    TaggedArena<HostDriver, HostBackup> arena{HostDriver{}, "beside"};
    char* const block = static_cast<char*>(arena.allocate(1_MiB));
    *block = 'b';
    arena.pause();
    arena.resume();
    return *block == 'b' ? 0 : 2;
}
