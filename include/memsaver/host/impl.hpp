// The definitions of host/, for one file of a program: see memsaver/impl.hpp.
#pragma once

#include "memsaver/host/host.hpp"

#include "memsaver/host/default_driver.ipp"
#include "memsaver/host/host_driver.ipp"
