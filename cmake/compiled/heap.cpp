// One of the files that memsaver::compiled is made of: the definitions of heap/. Written by
// cmake/checks/check_tree.py --write-compiled.
#include "memsaver/heap/heap.hpp"

#include "memsaver/heap/block_allocator.ipp"
#include "memsaver/heap/deferred_frees.ipp"
#include "memsaver/heap/heaps.ipp"
