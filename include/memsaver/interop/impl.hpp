// The definitions of interop/, for one file of a program: see memsaver/impl.hpp.
#pragma once

#include "memsaver/interop/cuda_pools.ipp"
#include "memsaver/interop/nccl.ipp"
