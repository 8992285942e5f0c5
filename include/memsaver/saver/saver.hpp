// Umbrella header of saver/: MemorySaver and everything it returns. Knows nothing about graphs.
#pragma once

#include "memsaver/core/macros_off.hpp"

#include "memsaver/backup/discard.hpp" // the default policy
#include "memsaver/saver/arena_handle.hpp"
#include "memsaver/saver/arrival.hpp"
#include "memsaver/saver/arrival_state.hpp"
#include "memsaver/saver/buffer.hpp"
#include "memsaver/saver/directory.hpp"
#include "memsaver/saver/elastic.hpp"
#include "memsaver/saver/gate.hpp"
#include "memsaver/saver/hook_lists.hpp"
#include "memsaver/saver/hooks.hpp"
#include "memsaver/saver/memory_saver.hpp"
#include "memsaver/saver/open_captures.hpp"
#include "memsaver/saver/options.hpp"
#include "memsaver/saver/plain_blocks.hpp"
#include "memsaver/saver/plain_memory.hpp"
#include "memsaver/saver/region_stacks.hpp"
#include "memsaver/saver/registrations.hpp"
#include "memsaver/saver/residency.hpp"
#include "memsaver/saver/residents.hpp"
#include "memsaver/saver/saver_core.hpp"
#include "memsaver/saver/saver_state.hpp"
#include "memsaver/saver/stream_mark.hpp"
#include "memsaver/saver/tag_table.hpp"
#include "memsaver/saver/use.hpp"
#include "memsaver/saver/use_options.hpp"

#include "memsaver/core/macros_on.hpp"
