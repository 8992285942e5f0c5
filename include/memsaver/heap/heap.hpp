// Blocks: which bytes belong to which block, and when they can be reused. Knows nothing about pages.
#pragma once

#include "memsaver/core/macros_off.hpp"

#include "memsaver/heap/block_allocator.hpp"
#include "memsaver/heap/frees.hpp"
#include "memsaver/heap/live_block.hpp"

#include "memsaver/core/macros_on.hpp"
