// The definitions of driver/, for one file of a program: see memsaver/impl.hpp. Written by
// cmake/checks/check_tree.py --write-compiled.
#pragma once

#include "memsaver/driver/driver.hpp"

#include "memsaver/driver/attic.ipp"
#include "memsaver/driver/calls.ipp"
#include "memsaver/driver/cuda_api.ipp"
#include "memsaver/driver/cuda_device.ipp"
#include "memsaver/driver/cuda_driver.ipp"
#include "memsaver/driver/device.ipp"
#include "memsaver/driver/device_around.ipp"
#include "memsaver/driver/fork_check.ipp"
#include "memsaver/driver/host_cells.ipp"
#include "memsaver/driver/ring.ipp"
#include "memsaver/driver/streams.ipp"
#include "memsaver/driver/system.ipp"
#include "memsaver/driver/system_available.ipp"
#include "memsaver/driver/system_limits.ipp"
