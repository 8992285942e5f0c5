// Umbrella header of saver/: MemorySaver and everything it returns, and the headers behind them. Knows nothing about
// graphs.
#pragma once

#include "memsaver/core/macros_off.hpp"

#include "memsaver/backup/discard.hpp" // the default policy
#include "memsaver/saver/arrival_state.hpp"
#include "memsaver/saver/memory_saver.hpp"
#include "memsaver/saver/plain_blocks.hpp"
#include "memsaver/saver/registrations.hpp"
#include "memsaver/saver/residency.hpp"
#include "memsaver/saver/tagged_arena.hpp"

#include "memsaver/core/macros_on.hpp"
