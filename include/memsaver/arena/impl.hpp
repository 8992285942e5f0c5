// The definitions of arena/, for one file of a program: see memsaver/impl.hpp. Written by
// cmake/checks/check_tree.py --write-compiled.
#pragma once

#include "memsaver/arena/arena.hpp"

#include "memsaver/arena/addresses.ipp"
#include "memsaver/arena/arena_core.ipp"
#include "memsaver/arena/arriving.ipp"
#include "memsaver/arena/elastic_range.ipp"
#include "memsaver/arena/exchange.ipp"
#include "memsaver/arena/gates.ipp"
#include "memsaver/arena/memory.ipp"
#include "memsaver/arena/operations.ipp"
#include "memsaver/arena/options.ipp"
#include "memsaver/arena/run_steps.ipp"
#include "memsaver/arena/tagged_arena.ipp"
