// error: deleted
// A region belongs to its scope and its thread, and cannot be moved out of them.
#include "memsaver/host/host.hpp"
#include "memsaver/saver/saver.hpp"

#include <utility>

void mover(memsaver::MemorySaver<memsaver::HostDriver>& saver) {
    auto region = saver.region("cache");
    WRONG(auto moved = std::move(region);)
}
