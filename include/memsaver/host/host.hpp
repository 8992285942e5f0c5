// The simulated machine in host memory, and the choice of the machine at hand.
#pragma once

#include "memsaver/host/default_driver.hpp"
#include "memsaver/host/host_driver.hpp"
