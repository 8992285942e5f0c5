// Machines with addresses, pages, streams and copies, and owners of their resources. They know nothing about tags or
// policies.
#pragma once

#include "memsaver/core/macros_off.hpp"

#include "memsaver/driver/any_driver.hpp"
#include "memsaver/driver/attic.hpp"
#include "memsaver/driver/calls.hpp"
#include "memsaver/driver/cuda_abi.hpp"
#include "memsaver/driver/cuda_driver.hpp"
#include "memsaver/driver/cuda_options.hpp"
#include "memsaver/driver/device.hpp"
#include "memsaver/driver/device_around.hpp"
#include "memsaver/driver/device_calls.hpp"
#include "memsaver/driver/fork_check.hpp"
#include "memsaver/driver/host_cells.hpp"
#include "memsaver/driver/neighbours.hpp"
#include "memsaver/driver/owned.hpp"
#include "memsaver/driver/ring.hpp"
#include "memsaver/driver/system.hpp"
#include "memsaver/driver/system_available.hpp"
#include "memsaver/driver/system_limits.hpp"

#include "memsaver/core/macros_on.hpp"
