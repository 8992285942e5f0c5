// One of the files that memsaver::compiled is made of: the definitions of host/. Written by
// cmake/checks/check_tree.py --write-compiled.
#include "memsaver/host/host.hpp"

#include "memsaver/host/default_driver.ipp"
#include "memsaver/host/fault_names.ipp"
#include "memsaver/host/host_driver.ipp"
#include "memsaver/host/host_engine.ipp"
#include "memsaver/host/host_memory.ipp"
