// The public headers after headers that define macros with their names. Which headers begin and end with the pair of
// core/macros_off.hpp is checked by check_tree.py.
#include "support/foreign_macros.h"

#include "memsaver/memsaver.hpp"

#include "memsaver/backup/compressed.hpp"
#include "memsaver/backup/verified.hpp"
#include "memsaver/interop/cublas.hpp"
#include "memsaver/interop/cuda_pools.hpp"
#include "memsaver/interop/nccl.hpp"
#include "memsaver/interop/no_throw.hpp"
#include "memsaver/interop/nvtx.hpp"
#include "memsaver/interop/pytorch.hpp"
#include "memsaver/testing/testing.hpp"

#include "memsaver/arena/arena.hpp"
#include "memsaver/backup/backup.hpp"
#include "memsaver/core/core.hpp"
#include "memsaver/driver/driver.hpp"
#include "memsaver/graph/graph.hpp"
#include "memsaver/heap/heap.hpp"
#include "memsaver/host/host.hpp"
#include "memsaver/saver/saver.hpp"
#include "memsaver/share/share.hpp"

#include "support/foreign_macros_kept.h"

int main() { return foreign_macros_kept() ? None : ERR; }
