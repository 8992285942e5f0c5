// error: nodiscard|warn_unused_result|unused-result
// A driver's result cannot be ignored by accident.
#include "memsaver/core/core.hpp"

memsaver::Status map_pages();

void forgetful() { WRONG(map_pages();) }
