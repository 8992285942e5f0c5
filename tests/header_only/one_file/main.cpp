// One of the files of a program that are compiled with MEMSAVER_COMPILED: declarations only.
#include <memsaver/memsaver.hpp>

using namespace memsaver;

#ifdef MEMSAVER_TEST_BESIDE
int beside();
#else
static int beside() { return 0; }
#endif

int main() {
    MemorySaver saver{HostDriver{}};
    Arena weights = saver.arena("weights", HostBackup{});
    static_cast<char*>(weights.allocate(1_MiB))[0] = 'w';
    saver.pause();
    saver.resume();
    return saver.usage().size() == 1 ? beside() : 1;
}
