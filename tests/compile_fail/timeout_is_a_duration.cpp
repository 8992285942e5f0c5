// error: pause
// few: and the line is the program's
// A timeout is a duration with a unit: 5 alone is ambiguous.
#include "memsaver/saver/saver.hpp"

#include <chrono>

void user(memsaver::MemorySaver<memsaver::AnyDriver>& saver) {
    saver.pause("kv_cache", {.timeout = WRONG(5) RIGHT(std::chrono::seconds{5})});
}
