// One of the files that memsaver::compiled is made of: the definitions of driver/. Written by
// cmake/checks/check_tree.py --write-compiled.
#include "memsaver/driver/driver.hpp"

#include "memsaver/driver/cuda_api.ipp"
#include "memsaver/driver/cuda_device.ipp"
#include "memsaver/driver/cuda_driver.ipp"
#include "memsaver/driver/fork_check.ipp"
#include "memsaver/driver/host_cells.ipp"
#include "memsaver/driver/neighbours.ipp"
#include "memsaver/driver/streams.ipp"
#include "memsaver/driver/system.ipp"
#include "memsaver/driver/system_available.ipp"
