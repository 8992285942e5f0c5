// One tag's memory on one device, and its operations. Knows nothing about other tags.
#pragma once

#include "memsaver/core/macros_off.hpp"

#include "memsaver/arena/addresses.hpp"
#include "memsaver/arena/arena_core.hpp"
#include "memsaver/arena/arriving.hpp"
#include "memsaver/arena/elastic_range.hpp"
#include "memsaver/arena/exchange.hpp"
#include "memsaver/arena/memory.hpp"
#include "memsaver/arena/operations.hpp"
#include "memsaver/arena/options.hpp"
#include "memsaver/arena/run_steps.hpp"
#include "memsaver/arena/tagged_arena.hpp"

#include "memsaver/core/macros_on.hpp"
