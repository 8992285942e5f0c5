// Everything that most programs want. `testing/`, and what in `interop/` is for a library of somebody else's, are for
// those who ask for them. Shows what programs name, and not what it is made of: that is behind each folder's own
// header.
#pragma once

#include "memsaver/core/form.hpp" // first: it says which C++ is needed, and then nothing else is said

#if __cplusplus >= 202002L
#include "memsaver/arena/tagged_arena.hpp"
#include "memsaver/backup/discard.hpp"
#include "memsaver/backup/file_backup.hpp"
#include "memsaver/backup/file_source.hpp"
#include "memsaver/backup/host_backup.hpp"
#include "memsaver/backup/peer_backup.hpp"
#include "memsaver/core/core.hpp"
#include "memsaver/driver/cuda_driver.hpp"
#include "memsaver/driver/neighbours.hpp"
#include "memsaver/fwd.hpp"
#include "memsaver/graph/graph.hpp"
#include "memsaver/host/default_driver.hpp"
#include "memsaver/interop/cuda_pools.hpp"
#include "memsaver/saver/memory_saver.hpp"
#include "memsaver/saver/registrations.hpp"
#endif
