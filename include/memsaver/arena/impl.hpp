// The definitions of arena/, for one file of a program: see memsaver/impl.hpp.
#pragma once

#include "memsaver/arena/arena.hpp"

#include "memsaver/arena/tagged_arena.ipp"
