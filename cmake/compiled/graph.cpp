// One of the files that memsaver::compiled is made of: the definitions of graph/. Written by
// cmake/checks/check_tree.py --write-compiled.
#include "memsaver/graph/graph.hpp"

#include "memsaver/graph/capture.ipp"
#include "memsaver/graph/graph_handle.ipp"
#include "memsaver/graph/workspace_pool.ipp"
