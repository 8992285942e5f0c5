// The definitions of heap/, for one file of a program: see memsaver/impl.hpp. Written by
// cmake/checks/check_tree.py --write-compiled.
#pragma once

#include "memsaver/heap/heap.hpp"

#include "memsaver/heap/block_allocator.ipp"
#include "memsaver/heap/deferred_frees.ipp"
#include "memsaver/heap/frees.ipp"
