// Blocks: which bytes are whose, and when they can be used again. Do not know pages.
#pragma once

#include "memsaver/heap/block_allocator.hpp"
#include "memsaver/heap/deferred_frees.hpp"
#include "memsaver/heap/heaps.hpp"
#include "memsaver/heap/live_block.hpp"
