// One tag's memory on one device, and its operations. Knows nothing about other tags.
#pragma once

#include "memsaver/core/macros_off.hpp"

#include "memsaver/arena/arena_core.hpp"
#include "memsaver/arena/arriving.hpp"
#include "memsaver/arena/exchange.hpp"
#include "memsaver/arena/options.hpp"
#include "memsaver/arena/owned_ranges.hpp"
#include "memsaver/arena/pages.hpp"
#include "memsaver/arena/run_steps.hpp"
#include "memsaver/arena/tagged_arena.hpp"

#include "memsaver/core/macros_on.hpp"
