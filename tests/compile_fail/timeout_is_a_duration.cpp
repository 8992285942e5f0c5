// error: pause
// few: and the line is the program's
// A timeout is a duration with a unit: 5 alone is ambiguous.
#include "memsaver/saver/saver.hpp"

#include <chrono>

void user(memsaver::MemorySaver<memsaver::AnyDriver>& saver) {
#ifndef MEMSAVER_CONTROL
    saver.pause("kv_cache", {.timeout = 5});
#else
    saver.pause("kv_cache", {.timeout = std::chrono::seconds{5}});
#endif
}
