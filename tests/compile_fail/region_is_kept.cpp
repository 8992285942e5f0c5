// error: nodiscard|warn_unused_result|unused-result|unused-value
// A region that nobody keeps ends at once: what follows would land elsewhere.
#include "memsaver/host/host.hpp"
#include "memsaver/saver/saver.hpp"

void forgetful(memsaver::MemorySaver<memsaver::HostDriver>& saver) {
#ifndef MEMSAVER_CONTROL
    saver.region("cache");
#endif
    (void)saver.allocate(256);
}
