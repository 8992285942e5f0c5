// error: nodiscard|warn_unused_result|unused-result|unused-value
// A discarded region ends at once: later allocations would go elsewhere.
#include "memsaver/host/host.hpp"
#include "memsaver/saver/saver.hpp"

void forgetful(memsaver::MemorySaver<memsaver::HostDriver>& saver) {
#ifndef MEMSAVER_CONTROL
    saver.region("cache");
#endif
    (void)saver.allocate(256);
}
