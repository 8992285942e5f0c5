// error: nodiscard|warn_unused_result|unused-result|unused-value
// A discarded region ends at once: later allocations would go elsewhere.
#include "memsaver/host/host.hpp"
#include "memsaver/saver/saver.hpp"

void forgetful(memsaver::MemorySaver<memsaver::HostDriver>& saver) {
    WRONG(saver.region("cache");)
    (void)saver.allocate(256);
}
