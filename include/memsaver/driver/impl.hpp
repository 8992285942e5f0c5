// The definitions of driver/, for one file of a program: see memsaver/impl.hpp.
#pragma once

#include "memsaver/driver/driver.hpp"

#include "memsaver/driver/cuda_driver.ipp"
#include "memsaver/driver/device.ipp"
