// The simulated device in host memory, and the default driver.
#pragma once

#include "memsaver/core/macros_off.hpp"

#include "memsaver/host/default_driver.hpp"
#include "memsaver/host/host_driver.hpp"

#include "memsaver/core/macros_on.hpp"
