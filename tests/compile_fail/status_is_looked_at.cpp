// error: nodiscard|warn_unused_result|unused-result
// A driver's answer cannot be dropped by accident.
#include "memsaver/core/core.hpp"

memsaver::Status map_pages();

void forgetful() {
#ifndef MEMSAVER_CONTROL
    map_pages();
#endif
}
