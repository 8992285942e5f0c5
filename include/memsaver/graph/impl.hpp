// The definitions of graph/, for one file of a program: see memsaver/impl.hpp.
#pragma once

#include "memsaver/graph/graph.hpp"

#include "memsaver/graph/capture.ipp"
#include "memsaver/graph/workspace_pool.ipp"
