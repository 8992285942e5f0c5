// Everything that most programs want. `testing/`, and what in `interop/` is for a library of somebody else's, are for
// those who ask for them.
#pragma once

#include "memsaver/core/form.hpp" // first: it says which C++ is needed, and then nothing else is said

#if __cplusplus >= 202002L
#include "memsaver/arena/arena.hpp"
#include "memsaver/backup/backup.hpp"
#include "memsaver/core/core.hpp"
#include "memsaver/driver/driver.hpp"
#include "memsaver/fwd.hpp"
#include "memsaver/graph/graph.hpp"
#include "memsaver/host/host.hpp"
#include "memsaver/interop/cuda_pools.hpp"
#include "memsaver/saver/saver.hpp"
#endif
