// Everything that most programs want. `testing/`, and what in `interop/` is for a library of somebody else's, are for
// those who ask for them.
#pragma once

#include "memsaver/arena/arena.hpp"
#include "memsaver/backup/backup.hpp"
#include "memsaver/base/base.hpp"
#include "memsaver/driver/driver.hpp"
#include "memsaver/graph/graph.hpp"
#include "memsaver/interop/cuda_pools.hpp"
#include "memsaver/memory/memory.hpp"
#include "memsaver/saver/saver.hpp"
#include "memsaver/transfer/transfer.hpp"
