// One of the files that memsaver::compiled is made of: the definitions of interop/. Written by
// cmake/checks/check_tree.py --write-compiled.
#include "memsaver/interop/cuda_pools.ipp"
#include "memsaver/interop/nccl.ipp"
