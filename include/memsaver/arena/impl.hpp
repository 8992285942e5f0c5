// The definitions of arena/, for one file of a program: see memsaver/impl.hpp. Written by
// cmake/checks/check_tree.py --write-compiled.
#pragma once

#include "memsaver/arena/arena.hpp"

#include "memsaver/arena/tagged_arena.ipp"
