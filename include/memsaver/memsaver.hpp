// Umbrella header with everything that most programs need. Include `testing/`, and headers of `interop/` that need a
// third-party library, separately. Declares public types only; the implementation is in each folder's own umbrella
// header.
#pragma once

#include "memsaver/core/form.hpp" // first, so that an unsupported compiler option gives only its error message

#ifdef MEMSAVER_USABLE
#include "memsaver/core/macros_off.hpp"

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
#include "memsaver/saver/tagged_arena.hpp"

#include "memsaver/core/macros_on.hpp"
#endif
